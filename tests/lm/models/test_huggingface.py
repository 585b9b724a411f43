"""Hugging Face models: every prefix computed once, and the same numbers as a plain forward pass."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import InputError, LimitError
from holdfast.lm.models.huggingface import HuggingFaceModel, open_huggingface
from holdfast.lm.models.loading import load
from holdfast.lm.models.protocol import Prefix
from holdfast.lm.tokenizers.tokenizer import Tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZE = 23
SMALL = {"vocab_size": SIZE, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 40}


def tokenizer(size: int = SIZE, bos: int | None = 0, eos: int | None = 1) -> Tokenizer:
    pieces = [None, None, *(bytes([97 + place]) for place in range(size - 2))]
    return Tokenizer("letters", tuple(pieces), lambda text: [byte - 95 for byte in text], bos, eos)


CONFIGS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=SIZE,
        n_embd=16,
        n_layer=2,
        n_head=4,
        n_positions=40,
        bos_token_id=0,
        eos_token_id=0,
    ),
    "llama": lambda: transformers.LlamaConfig(**LLAMA),
    "qwen2": lambda: transformers.Qwen2Config(**LLAMA, use_sliding_window=False),
    "neox": lambda: transformers.GPTNeoXConfig(
        **SMALL, intermediate_size=24, max_position_embeddings=40
    ),
    "sliding": lambda: transformers.MistralConfig(**LLAMA, sliding_window=4),
    "local": lambda: transformers.GPTNeoConfig(
        vocab_size=SIZE,
        hidden_size=16,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=40,
    ),
    "alibi": lambda: transformers.BloomConfig(vocab_size=SIZE, hidden_size=16, n_layer=2, n_head=4),
}
CACHED = ("gpt2", "llama", "qwen2", "neox")
"""Families that take a mask of ancestors; the others are evaluated without a cache."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            torch.manual_seed(7)
            model = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind]())
            for parameter in model.parameters():  # far from uniform, so that a wrong mask shows
                torch.nn.init.normal_(parameter, std=0.4)
            made[kind] = tmp_path_factory.mktemp(kind)
            model.save_pretrained(made[kind])
        return made[kind]

    return folder


@cache
def reference(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()


@cache
def plain(folder: Path, prefix: Prefix) -> np.ndarray:
    with torch.no_grad():
        logits = reference(folder)(torch.tensor([[0, *prefix]])).logits[0, -1]
    return logits.double().log_softmax(-1).numpy()


PREFIXES = [
    (),
    (3,),
    (3, 4),
    (3, 4, 5, 6, 7, 8),
    (9,),
    (9, 3, 4),
    (3, 4, 5, 6, 7, 9),
    (3, 9, 9, 9, 9, 9),
]


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_numbers_of_a_plain_forward_pass(folders: Any, kind: str) -> None:
    model = HuggingFaceModel(folders(kind), tokenizer=tokenizer())
    assert (model.remarks == ()) == (kind in CACHED), model.remarks
    expected = {prefix: plain(folders(kind), prefix) for prefix in PREFIXES}
    for order in (PREFIXES, PREFIXES[::-1], PREFIXES):  # the last time, from what is remembered
        for prefix, answer in zip(order, model.logprobs(order), strict=True):
            np.testing.assert_allclose(answer.logprobs, expected[prefix], atol=1e-5)
            assert abs(np.exp(answer.logprobs).sum() - 1) < 1e-14
    assert model.cost.nodes == len(PREFIXES)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_every_prefix_is_computed_once(folders: Any, kind: str, batch: int) -> None:
    model = HuggingFaceModel(folders(kind), tokenizer=tokenizer(), batch=batch)
    once = HuggingFaceModel(folders(kind), tokenizer=tokenizer(), batch=1000)
    asked: list[Prefix] = [()]
    for size in (1, 2, 3):  # a search: children of what was answered
        asked += list(product((2, 5, 11), repeat=size))
    for start in range(0, len(asked), 4):
        model.logprobs(asked[start : start + 4])
    assert model.cost.evaluations == model.cost.nodes == len(asked)
    assert model.cost.calls >= len(asked) / max(batch, 1) / 4
    expected = once.logprobs(asked)
    assert (once.cost.calls, once.cost.evaluations) == (1, len(asked))
    for one, other in zip(model.logprobs(asked), expected, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)
    assert model.cost.evaluations == len(asked)


def test_ancestors_that_were_not_asked_are_counted(folders: Any) -> None:
    model = HuggingFaceModel(folders("gpt2"), tokenizer=tokenizer())
    model.logprobs([(3, 4, 5)])
    assert (model.cost.evaluations, model.cost.nodes) == (4, 1)  # with BOS
    model.logprobs([(3, 4, 6), (3, 4, 5, 7), (3, 4, 5)])
    assert (model.cost.evaluations, model.cost.nodes) == (6, 3)


@pytest.mark.parametrize("cache_bytes", [0, 3000, 9000])
def test_a_small_cache_forgets_and_stays_right(folders: Any, cache_bytes: int) -> None:
    model = HuggingFaceModel(
        folders("llama"), tokenizer=tokenizer(), batch=4, cache_bytes=cache_bytes
    )
    model._answers.budget_bytes = 0  # so that everything asked again is computed again
    rng = np.random.default_rng(3)
    asked = [tuple(map(int, rng.integers(2, 5, rng.integers(0, 7)))) for _ in range(60)]
    for start in range(0, len(asked), 6):
        part = asked[start : start + 6]
        for prefix, answer in zip(part, model.logprobs(part), strict=True):
            np.testing.assert_allclose(answer.logprobs, plain(folders("llama"), prefix), atol=1e-5)
    assert model.cost.evaluations > len(set(asked))
    assert model._tree is not None
    assert len(model._tree.slots) <= max(cache_bytes // 128, 28)


def test_without_a_cache_whole_prefixes_are_counted(folders: Any) -> None:
    model = HuggingFaceModel(folders("alibi"), tokenizer=tokenizer())
    model.logprobs([(), (3,), (4,), (3, 4, 5)])
    assert (model.cost.evaluations, model.cost.nodes, model.cost.calls) == (1 + 2 + 2 + 4, 4, 3)
    assert "without a cache" in model.remarks[0]


def test_interrupted_passes_leave_nothing_half_kept(folders: Any, monkeypatch: Any) -> None:
    model = HuggingFaceModel(folders("gpt2"), tokenizer=tokenizer())
    model.logprobs([(3,)])
    assert model._tree is not None

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(model._tree, "_store", full)
        with pytest.raises(Exception, match="memory is full: no room"):
            model.logprobs([(3, 4), (3, 4, 5)])
    assert set(model._tree.slots) == {(), (3,)}
    answer = model.logprobs([(3, 4, 5)])[0]
    np.testing.assert_allclose(answer.logprobs, plain(folders("gpt2"), (3, 4, 5)), atol=1e-5)


def test_logits_beyond_the_tokenizer_keep_their_probability(folders: Any) -> None:
    model = HuggingFaceModel(folders("gpt2"), tokenizer=tokenizer(SIZE - 3))
    assert model.tokenizer.size == SIZE
    assert model.tokenizer.pieces[-3:] == (None, None, None)
    answer = model.logprobs([(3,)])[0]
    assert np.exp(answer.logprobs[:-3]).sum() < 1 - 1e-6
    assert "belong to no token" in model.remarks[0]


def test_tokens_without_logits_are_never_produced(folders: Any) -> None:
    model = HuggingFaceModel(folders("gpt2"), tokenizer=tokenizer(SIZE + 2))
    answer = model.logprobs([(3,)])[0]
    assert len(answer.logprobs) == SIZE + 2
    assert np.isneginf(answer.logprobs[-2:]).all()
    assert "never produced" in model.remarks[0]
    with pytest.raises(InputError, match="no embedding"):
        HuggingFaceModel(folders("gpt2"), tokenizer=tokenizer(SIZE + 2, eos=SIZE))


def test_the_first_token(folders: Any) -> None:
    # The tokenizer knows none: GPT-2's configuration does; Llama's files here say 1; -1 is none.
    unknown = tokenizer(bos=None, eos=None)
    assert HuggingFaceModel(folders("gpt2"), tokenizer=unknown).tokenizer.bos == 0
    llama = HuggingFaceModel(folders("llama"), tokenizer=unknown)
    assert (llama.tokenizer.bos, llama.tokenizer.eos) == (1, 2)
    none = HuggingFaceModel(folders("llama"), tokenizer=unknown, bos=-1)
    assert none.context == 40
    with pytest.raises(InputError, match=r"no token that begins[\s\S]*\?bos=ID"):
        none.logprobs([()])
    with_bos = HuggingFaceModel(folders("llama"), tokenizer=unknown, bos=5)
    assert with_bos.context == 39
    answers = none.logprobs([(5,), (5, 6, 7)]), with_bos.logprobs([(), (6, 7)])
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_prefixes_beyond_the_context_are_refused(folders: Any) -> None:
    model = HuggingFaceModel(folders("gpt2"), tokenizer=tokenizer())
    assert model.context == 39
    assert len(model.logprobs([(3,) * 39])) == 1
    with pytest.raises(LimitError, match="max_tokens"):
        model.logprobs([(3,) * 40])


def test_names_and_folders(folders: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model in this folder"):
        open_huggingface(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be opened"):
        HuggingFaceModel(tmp_path, tokenizer=tokenizer())
    with pytest.raises(InputError, match="unknown dtype"):
        HuggingFaceModel(folders("gpt2"), dtype="float7", tokenizer=tokenizer())
    with pytest.raises(InputError, match="not known"):
        open_huggingface(f"{folders('gpt2')}?colour=red")


def test_half_precision_still_sums_to_one(folders: Any) -> None:
    model = HuggingFaceModel(folders("gpt2"), dtype="bfloat16", tokenizer=tokenizer())
    assert model.remarks == ()
    for answer in model.logprobs(PREFIXES):
        assert abs(np.exp(answer.logprobs).sum() - 1) < 1e-14


def test_a_folder_with_its_tokenizer(folders: Any, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    characters = ["<|endoftext|>", *map(chr, range(97, 97 + SIZE - 2)), "ab"]
    vocabulary = {piece: token for token, piece in enumerate(characters)}
    library = Library(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<|endoftext|>"])
    folder = tmp_path / "model"
    shutil.copytree(folders("gpt2"), folder)
    library.save(str(folder / "tokenizer.json"))
    model = load(f"hf:{folder}?batch=8&dtype=float32&cache_mb=1")
    assert isinstance(model, HuggingFaceModel)
    assert (model.tokenizer.bos, model.tokenizer.eos, model.batch) == (0, 0, 8)
    assert model.tokenizer.encode(b"cab") == [3, SIZE - 1]
    assert model.tokenizer.spell([3, SIZE - 1]) == b"cab"
    np.testing.assert_allclose(
        model.logprobs([(3,)])[0].logprobs, plain(folders("gpt2"), (3,)), atol=1e-5
    )
