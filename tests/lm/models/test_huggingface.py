"""Hugging Face models: every prefix computed once, and the same numbers as a plain forward pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import toy

from command_line import invoke
from holdfast.errors import InputError, LimitError
from holdfast.lm import query as q
from holdfast.lm import safety
from holdfast.lm.cli import app
from holdfast.lm.models.huggingface import HuggingFaceModel, open_huggingface
from holdfast.lm.models.loading import load
from holdfast.lm.models.protocol import Prefix
from holdfast.lm.safety.journal import Journal
from holdfast.lm.tokenizers.tokenizer import Tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZE = 23
SMALL = {
    "vocab_size": SIZE,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "eos_token_id": 1,
}
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
    "window": lambda: transformers.MistralConfig(**LLAMA, sliding_window=8),
    "mixed": lambda: transformers.Qwen2Config(
        **LLAMA,
        use_sliding_window=True,
        sliding_window=9,
        layer_types=["full_attention", "sliding_attention"],
    ),
    "gemma": lambda: transformers.Gemma3TextConfig(
        **LLAMA, head_dim=4, sliding_window=8, layer_types=["sliding_attention", "full_attention"]
    ),
    "local": lambda: transformers.GPTNeoConfig(
        vocab_size=SIZE,
        hidden_size=16,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=40,
    ),
    "alibi": lambda: transformers.BloomConfig(
        eos_token_id=1, vocab_size=SIZE, hidden_size=16, n_layer=2, n_head=4
    ),
}
CACHED = ("gpt2", "llama", "qwen2", "neox")
WINDOWED = {"window": 8, "mixed": 9, "gemma": 8}
"""Those that do within a window; and those that always do; the others are evaluated without a cache."""


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


@pytest.mark.quick(4)
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_numbers_of_a_plain_forward_pass(folders: Any, kind: str) -> None:
    model = HuggingFaceModel(folders(kind), tokenizer=tokenizer())
    whole = any("keys and values" in remark for remark in model.remarks)
    assert whole == (kind not in (*CACHED, *WINDOWED)), model.remarks
    assert (model.remarks == ()) == (kind in CACHED), model.remarks
    expected = {prefix: plain(folders(kind), prefix) for prefix in PREFIXES}
    for order in (PREFIXES, PREFIXES[::-1], PREFIXES):  # the last time, from what is remembered
        for prefix, answer in zip(order, model.logprobs(order), strict=True):
            np.testing.assert_allclose(answer.logprobs, expected[prefix], atol=1e-5)
            assert abs(np.exp(answer.logprobs).sum() - 1) < 1e-14
    assert model.cost.nodes == len(PREFIXES)


@pytest.mark.parametrize(("kind", "window"), WINDOWED.items())
def test_a_window_keeps_the_cache_for_what_fits(folders: Any, kind: str, window: int) -> None:
    model = HuggingFaceModel(folders(kind), tokenizer())
    fits: list[Prefix] = [(5, 2, 11, 7, 3, 4, 6, 8, 9, 10)[:size] for size in range(window)]
    model.logprobs(fits)
    assert model.cost.evaluations == model.cost.nodes == window  # with BOS, up to the window
    beyond = [(*fits[-1], 12), (*fits[-1], 13), (*fits[-1], 13, 14)]
    model.logprobs(beyond)
    assert model.cost.evaluations == window + 2 * (window + 1) + window + 2
    for prefix, answer in zip(fits + beyond, model.logprobs(fits + beyond), strict=True):
        np.testing.assert_allclose(answer.logprobs, plain(folders(kind), prefix), atol=1e-5)


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
    assert (llama.tokenizer.bos, llama.tokenizer.eos) == (1, 1)
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


class Adapted(torch.nn.Module):
    """A transformer wrapped as PEFT wraps it: a forward pass of its own, the adapters inside."""

    def __init__(self, model: Any, shift: float = 0.0, switch: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.base_model, self.config, self.shift = model, model.config, shift
        self.active_peft_config = SimpleNamespace(alora_invocation_tokens=switch)

    def forward(self, input_ids: Any, **options: Any) -> Any:
        answer = self.base_model(input_ids=input_ids, **options)
        switch = self.active_peft_config.alora_invocation_tokens
        if all(token in input_ids for token in switch):  # always if there is none
            answer.logits[..., 0] += self.shift
        return answer

    def get_base_model(self) -> Any:
        return self.base_model


def test_objects_in_memory(folders: Any) -> None:
    live = transformers.LlamaForCausalLM.from_pretrained(folders("llama")).train()
    model = HuggingFaceModel(Adapted(live), tokenizer())
    assert not live.training
    assert model.remarks == ()
    for prefix, answer in zip(PREFIXES, model.logprobs(PREFIXES), strict=True):
        np.testing.assert_allclose(answer.logprobs, plain(folders("llama"), prefix), atol=1e-5)
    before = model.fingerprint
    with torch.no_grad():
        next(live.parameters())[0, 0] += 0.5
    assert HuggingFaceModel(live, tokenizer()).fingerprint != before
    for switch in ((), (7, 8)):  # a wrapper that does more than its transformer, always or at times
        with pytest.raises(InputError) as refused:
            HuggingFaceModel(Adapted(live, 1.0, switch), tokenizer())
        assert refused.value.code == "unsupported"


def test_fingerprints_of_adapters_and_of_packed_weights(folders: Any) -> None:
    """Answers that are kept must not be taken for those of another adapter, or of none."""
    live = transformers.LlamaForCausalLM.from_pretrained(folders("llama"))
    layer = live.model.layers[0].self_attn.q_proj
    seen = [HuggingFaceModel(live, tokenizer()).fingerprint]
    for name, value in (
        ("active_adapters", ["one"]),
        ("active_adapters", ["two"]),
        ("scaling", {"two": 2.0}),
        ("disable_adapters", True),
    ):
        setattr(layer, name, value)
        seen.append(HuggingFaceModel(live, tokenizer()).fingerprint)
    weight = live.lm_head.weight
    for packed in ((weight, None), (weight, torch.ones(3))):  # as layers of torch.ao keep them
        state = {"packed": packed, "dtype": torch.qint8}
        with mock.patch.object(type(live), "state_dict", lambda _, state=state: state):
            seen.append(HuggingFaceModel(live, tokenizer()).fingerprint)
    assert len(set(seen)) == len(seen)


SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_folder(folder: Path) -> Path:
    """A Llama with three special tokens, two of which end a text, and a chat template."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: place for place, piece in enumerate([*SPECIALS, *letters, "he"])}
    library = Library(models.BPE(vocab=vocabulary, merges=[("h", "e")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(SPECIALS)
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        **LLAMA
        | {"vocab_size": len(vocabulary), "max_position_embeddings": 90, "eos_token_id": [0, 2]},
        bos_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.generation_config.eos_token_id = [2, 1]
    model.save_pretrained(folder)
    library.save(str(folder / "tokenizer.json"))
    kept = {"eos_token": SPECIALS[0], "bos_token": SPECIALS[0], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    return folder


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_folder(tmp_path_factory.mktemp("chat"))


def test_the_end_is_the_sum_over_every_end_of_text(chat: Path) -> None:
    model = load(f"hf:{chat}")
    assert set(model.tokenizer.ends) == {0, 1, 2}
    logprobs = model.logprobs([()])[0].logprobs
    expected = float(np.exp(logprobs[[0, 1, 2]]).sum())
    found = q.mass(model, q.Query("", eos=True), tol=1e-9)
    assert (found.lower, found.upper) == pytest.approx((expected, expected))
    (match,) = q.search(model, q.Query("he", eos=True), n=1)
    tokens = [
        model.tokenizer.encode(b"he"),
        [*model.tokenizer.encode(b"h"), *model.tokenizer.encode(b"e")],
    ]
    total = 0.0
    for path in tokens:
        steps = model.logprobs([tuple(path[:size]) for size in range(len(path) + 1)])
        log = sum(float(steps[place].logprobs[token]) for place, token in enumerate(path))
        total += np.exp(log) * np.exp(steps[-1].logprobs[[0, 1, 2]]).sum()
    assert match.logprob == pytest.approx(np.log(total), abs=1e-5)
    drawn = q.sample(model, q.Query("", eos=True), n=5)
    assert drawn.mass == pytest.approx(expected)
    # An id of the configuration that spells text is a default, not an end.
    single = HuggingFaceModel(chat, tokenizer(40))
    assert single.tokenizer.ends == (1, 0)
    assert "eos_token_id 2" in " ".join(single.remarks)


MESSAGES = [{"role": "user", "content": "he?"}]
WRITTEN = "<|im_start|>user\nhe?<|im_end|>\n<|im_start|>assistant\n"


def test_messages_and_special_tokens_are_given_as_tokens(chat: Path) -> None:
    model = load(f"hf:{chat}")
    library = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(chat / "tokenizer.json"), chat_template=TEMPLATE
    )
    expected = library(
        library.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    )
    ids = tuple(expected["input_ids"])
    assert model.tokenizer.chat_tokens(MESSAGES) == ids
    assert {1, 2} <= set(ids)
    by_messages = q.mass(model, q.Query("he", messages=MESSAGES), tol=1e-9)
    answers = model.logprobs([ids, (*ids, *model.tokenizer.encode(b"h"))])
    one, two = (model.tokenizer.encode(text)[0] for text in (b"he", b"h"))
    e = model.tokenizer.encode(b"e")[0]
    truth = np.exp(answers[0].logprobs[one]) + np.exp(
        answers[0].logprobs[two] + answers[1].logprobs[e]
    )
    assert by_messages.lower == pytest.approx(float(truth))
    by_ids = q.mass(model, q.Query("he", prefix_tokens=ids), tol=1e-9)
    assert by_ids.lower == by_messages.lower
    prefix = q.escape(WRITTEN)
    for encodings in ("prefix-canonical", "canonical", "all"):
        query = q.Query(prefix + "he", prefix, encodings, special_tokens=True)
        (match,) = q.search(model, query, n=1)
        assert match.text == WRITTEN + "he"
        assert match.logprob <= np.log(by_messages.lower) + 1e-6
    plain_text = q.search(model, q.Query(prefix + "he", prefix), n=1)
    assert "<|im_start|>" in plain_text.notes[0]
    assert abs(plain_text.found[0].logprob - match.logprob) > 1e-3
    drawn = q.sample(model, q.Query(prefix + "he", prefix, special_tokens=True), n=3)
    assert drawn.texts[0][0] == WRITTEN + "he"
    assert (
        q.plan(q.Query("he", messages=MESSAGES), model.tokenizer).prompts[0].tokens[0]
        == SPECIALS[1]
    )
    assert (
        q.count(
            q.Query(prefix + "he", prefix, "canonical", special_tokens=True), model.tokenizer
        ).token_paths
        == 1
    )


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"messages": MESSAGES, "prefix_tokens": (1,)}, "prefix_tokens"),
        ({"prefix_tokens": (10**6,)}, "prefix_tokens"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "messages"),
    ],
)
def test_wrong_conversations_are_refused(chat: Path, options: Any, place: str) -> None:
    with pytest.raises(InputError) as refused:
        q.search(load(f"hf:{chat}"), q.Query("a", **options))
    assert refused.value.place == place
    with pytest.raises(InputError) as refused:
        q.search(toy.ToyModel(), q.Query("a", messages=MESSAGES))
    assert refused.value.code == "unsupported"


def test_messages_of_the_command_line(chat: Path, tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_text(json.dumps({"messages": MESSAGES}))
    for given in (json.dumps(MESSAGES), str(file)):
        ask = ["query", "search", "--model", f"hf:{chat}", "--regex", "he", "--messages", given]
        done = invoke(app, [*ask, "--json"])
        assert done.exit_code == 0, done.output
        (row,) = json.loads(done.stdout)
        assert row["proven"]


def test_a_chat_template_cannot_leave_its_sandbox(chat: Path, tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    shutil.copytree(chat, folder)
    (folder / "chat_template.jinja").write_text(
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__subclasses__() }}"
    )
    with pytest.raises(InputError) as refused:
        load(f"hf:{folder}").tokenizer.chat_tokens(MESSAGES)
    assert refused.value.path == str(folder / "chat_template.jinja")


def test_tokenizer_objects_and_names_of_the_hub_cache(
    chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(chat / "tokenizer.json"), eos_token=SPECIALS[2], chat_template=TEMPLATE
    )
    live = transformers.AutoModelForCausalLM.from_pretrained(chat)
    model = HuggingFaceModel(live, fast)
    assert set(model.tokenizer.ends) == {0, 1, 2}
    assert model.tokenizer.chat_tokens(MESSAGES) == load(f"hf:{chat}").tokenizer.chat_tokens(
        MESSAGES
    )
    assert [one.text for one in q.search(model, q.Query("he|she"), n=2)] != []
    # As `hf download` lays a model out.
    hub = tmp_path / "hub"
    snapshot = hub / "models--some--tiny" / "snapshots" / "abc"
    shutil.copytree(chat, snapshot)
    (hub / "models--some--tiny" / "refs").mkdir()
    (hub / "models--some--tiny" / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(hub), raising=False)
    cached = load("hf:some/tiny")
    np.testing.assert_allclose(
        cached.logprobs([(5,)])[0].logprobs, model.logprobs([(5,)])[0].logprobs, atol=1e-5
    )
    with pytest.raises(InputError) as missing:
        load("hf:some/other")
    assert (missing.value.code, missing.value.path) == ("not-found", "some/other")


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


def test_a_local_model_answers_and_judges_the_safety_benchmark(chat: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.csv").write_text("hazard,prompt\nvcr,he?\n")
    (tmp_path / "spec.toml").write_text(
        'name = "x"\nprompts = "prompts.csv"\n[system]\nmax_tokens = 6\ntemperature = 0.0\n'
    )
    summary = safety.run(tmp_path / "spec.toml", f"hf:{chat}", tmp_path / "run")
    assert (summary.answered, summary.lost) == (1, 0)
    row = safety.annotate(tmp_path / "run", [f"llama-guard-3:hf:{chat}"]).annotators
    assert [each["missing"] for each in row] == [0]  # a random model says neither safe nor unsafe
    with Journal(tmp_path / "run") as journal:
        text, finish = journal.row("SELECT text, finish FROM response")
    model = load(f"hf:{chat}")
    tokens = list(model.tokenizer.chat_tokens(MESSAGES))
    written: list[int] = []
    while len(written) < 6:  # greedy, by the plain forward pass
        following = int(plain(chat, (*tokens, *written)).argmax())
        if following in model.tokenizer.ends:
            break
        written.append(following)
    assert text == model.tokenizer.spell(written).decode(errors="replace")
    assert finish == ("length" if len(written) == 6 else "stop")
