"""Prompts, settings and dtypes of other people's checkpoints, against transformers on the same folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tiny_models import tiny
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from holdfast.errors import InputError
from holdfast.lm.generate import Generator, Sampling
from holdfast.lm.generate.results import first_difference

TEXT = [
    "Hello, who are you? I am the one who wrote this text.",
    "naïve café 東京 🙂 don't stop",
    "user hi",
]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[CLS]", "[SEP]", "[UNK]"]
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROMPTS = (
    "<|im_start|>user\nhi<|im_end|>\n",
    "<s>[INST] Hello [/INST]",
    "  two  spaces",
    "naïve café 東京 🙂",
    "don't stop.",
)


def tokenizer(kind: str) -> Any:
    """A fast tokenizer of one of four kinds, with special tokens and a chat template."""
    if kind == "byte-level":
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=400, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "unigram":
        made = tokenizers.Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=SPECIALS, unk_token="[UNK]", show_progress=False
        )
    elif kind == "wordpiece":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=200, special_tokens=SPECIALS, show_progress=False
        )
    else:  # as of Llama 2: characters without a token fall back to bytes
        letters = sorted({*"".join(TEXT[:1]).replace(" ", "▁"), "▁"})
        vocabulary = {
            token: number
            for number, token in enumerate(
                [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
            )
        }
        made = tokenizers.Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, fuse_unk=True))
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        made.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        trainer = None
    if trainer is not None:
        made.train_from_iterator(TEXT * 3, trainer)
    around = {"wordpiece": "[CLS] $A [SEP]", "byte-level": "$A"}.get(kind, "<s> $A")
    ids = [(name, made.token_to_id(name)) for name in SPECIALS]
    if kind == "byte-level":
        made.post_processor = processors.ByteLevel(trim_offsets=False)
    else:
        made.post_processor = processors.TemplateProcessing(single=around, special_tokens=ids)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="[UNK]"
    )
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "[INST]"]})
    fast.chat_template = CHAT
    return fast


KINDS = ("byte-level", "unigram", "wordpiece", "byte-fallback")


def checkpoint(folder: Path, kind: str, family: str = "llama-grouped", **settings: Any) -> Path:
    """A folder with a tiny model of random weights and a tokenizer; settings of generation_config.json."""
    fast = tokenizer(kind)
    dtype = settings.pop("dtype", torch.float32)
    more = settings.pop("config", {})
    model = tiny(family, vocab_size=len(fast), **more).to(dtype)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    path = folder / "generation_config.json"
    path.unlink()
    if settings:
        path.write_text(json.dumps(settings))
    return folder


def opened(folder: Path) -> Any:
    """The model of transformers, as its own defaults say."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def peer(model: Any, ids: list[int], new: int, **options: Any) -> list[int]:
    """Tokens of transformers."""
    prompt = torch.tensor([ids])
    options = {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0} | options
    return model.generate(prompt, max_new_tokens=new, **options)[0, len(ids) :].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_encoded_as_by_the_tokenizer_of_the_folder(tmp_path: Path, kind: str) -> None:
    folder = checkpoint(tmp_path, kind)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    generator = Generator(folder)
    in_memory = Generator(tiny("llama-grouped", vocab_size=len(theirs)), theirs)
    for ours in (generator, in_memory):
        assert ours.encode(PROMPTS) == [theirs(text).input_ids for text in PROMPTS]
    special = theirs.convert_tokens_to_ids("<|im_start|>")
    assert special in generator.encode([PROMPTS[0]])[0]
    said = [{"role": "system", "content": "short"}, {"role": "user", "content": " hi "}]
    expected = theirs.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
    assert generator.encode([said]) == [expected]
    assert generator.encode(["hi"], chat=True) == [
        theirs.apply_chat_template(said[1:], add_generation_prompt=True, return_dict=False)
    ]
    # The whole way: the same continuation, from messages.
    result = generator.generate(messages=said, max_new=8, ignore_end=True)
    assert result.tokens == [peer(opened(folder), expected, 8, eos_token_id=None)]
    assert generator.generate(messages=[said], max_new=8, ignore_end=True).tokens == result.tokens


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_what_its_tokens_add_to_the_prompt(tmp_path: Path, kind: str) -> None:
    generator = Generator(checkpoint(tmp_path, kind))
    theirs = generator.tokenizer

    def decode(ids: list[int]) -> str:
        return theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    prompts = ["who are you", "I am the one", PROMPTS[0] + "who"]
    result = generator.generate(prompts, max_new=24, ignore_end=True)
    for prompt, text in zip(generator.encode(prompts), result.details, strict=True):
        assert decode(prompt) + text.text == decode([*prompt, *text.tokens])


def test_a_special_token_stops_a_text(tmp_path: Path) -> None:
    generator = Generator(checkpoint(tmp_path, "byte-level"))
    free = generator.generate(["who"], max_new=40, ignore_end=True).tokens[0]
    place = next(n for n, token in enumerate(free) if token not in free[:n] and n > 2)
    name = "<|stop|>"
    # The token that comes anyway becomes a special one, which spells nothing.
    generator.tokenizer.get_added_vocab = lambda: {name: free[place]}
    for plan in ("off", "lookup:6"):
        result = generator.generate(
            ["who"], max_new=40, stop=[name], ignore_end=True, speculate=plan
        )
        assert result.tokens[0] == free[: place + 1]
        assert result.details[0].ended == "stop"


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {}),
        ({"repetition_penalty": 1.5}, {}),
        ({"eos_token_id": [20, 21, 22, 23, 24, 25]}, {}),
        ({"eos_token_id": 30, "repetition_penalty": 1.1}, {}),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {}),
        (
            {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.2},
            {"do_sample": False},
        ),
    ],
)
@pytest.mark.parametrize("family", ["gpt2", "llama-grouped"])
def test_greedy_tokens_follow_generation_config(
    tmp_path: Path, settings: dict[str, Any], options: dict[str, Any], family: str
) -> None:
    config = {"eos_token_id": 9, "bos_token_id": 8, "tie_word_embeddings": True}
    folder = checkpoint(tmp_path, "byte-level", family, config=config, **settings)
    generator = Generator(folder)
    sampling = Sampling(temperature=0) if options else Sampling()
    prompts = generator.encode(["who", "I am the one who", "user hi"])
    model = opened(folder)
    expected = [peer(model, ids, 30, **options) for ids in prompts]
    for plan in ("off", "early-exit:2,3"):
        result = generator.generate(prompts, max_new=30, sampling=sampling, speculate=plan)
        assert result.tokens == expected
        assert set(result.ignored_settings) == {"eos_token of the tokenizer"}
    # Of a model in memory, with its tokenizer or without, the same.
    for fast in (generator.tokenizer, None):
        result = Generator(model, fast).generate(prompts, max_new=30, sampling=sampling)
        assert result.tokens == expected


def test_an_end_that_only_the_tokenizer_names_is_said(tmp_path: Path) -> None:
    """Transformers goes on behind it, and so does this, until it is a stop string."""
    folder = checkpoint(tmp_path, "byte-level", repetition_penalty=1.5)
    generator = Generator(folder)
    assert generator.settings.ends == frozenset()
    assert generator.settings.ignored == {"eos_token of the tokenizer": "</s>"}
    model = opened(folder)
    model.generation_config.eos_token_id = [5, generator.tokenizer.eos_token_id]
    settings = Generator(model, generator.tokenizer).settings
    assert settings.ends == {5, generator.tokenizer.eos_token_id}
    assert not settings.ignored


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        ({"do_sample": True}, Sampling(), Sampling(1.0, 50, 1.0, 1.0)),
        ({"do_sample": True, "top_k": 0}, Sampling(), Sampling(1.0, 0, 1.0, 1.0)),
        (
            {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
            Sampling(),
            Sampling(0.7, 20, 0.8, 1.0),
        ),
        (
            {"do_sample": True, "temperature": 0.7, "top_p": 0.8},
            Sampling(top_p=0.5, seed=3),
            Sampling(0.7, 50, 0.5, 1.0, 3),
        ),
        ({"repetition_penalty": 1.2}, Sampling(0.5), Sampling(0.5, 0, 1.0, 1.2)),
        ({"repetition_penalty": 1.2}, Sampling(repetition_penalty=1.0), Sampling(0.0, 0, 1.0, 1.0)),
    ],
)
def test_what_the_user_does_not_set_is_as_the_checkpoint_says(
    tmp_path: Path, settings: dict[str, Any], own: Sampling, expected: Sampling
) -> None:
    result = Generator(checkpoint(tmp_path, "byte-level", **settings)).generate(
        ["who"], max_new=2, sampling=own
    )
    assert {key: result.settings[key] for key in vars(expected)} == vars(expected)


def test_the_distribution_is_that_of_generation_config(tmp_path: Path) -> None:
    """Two tokens by top-k, top-p and penalty of the file: frequencies beside those of transformers."""
    settings = {"do_sample": True, "temperature": 1.5, "top_k": 6, "top_p": 0.9}
    settings["repetition_penalty"] = 1.3
    folder = checkpoint(tmp_path, "wordpiece", **settings)
    generator = Generator(folder)
    ids, count = generator.encode(["who are you"])[0], 2_000
    ours = np.array(generator.generate([ids] * count, max_new=2, batch=500, ignore_end=True).tokens)
    model = opened(folder)
    prompt = torch.tensor([ids] * count)
    torch.manual_seed(0)
    theirs = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=2,
        eos_token_id=None,
        pad_token_id=0,
    )[:, -2:].numpy()
    width = len(generator.tokenizer)
    one, two = (np.bincount(part @ [width, 1], minlength=width**2) for part in (ours, theirs))
    assert len(np.flatnonzero(one)) > 4
    large = one + two >= 20
    # Equal distributions: each difference is of mean 0 and variance one + two.
    z = (one - two)[large] / np.sqrt((one + two)[large])
    assert np.abs(z).max() < 4.5
    assert one[~large].sum() < count / 5


def test_settings_without_effect_are_named(tmp_path: Path) -> None:
    kept = {
        "eos_token_id": 3,
        "num_beams": 1,
        "use_cache": True,
        "bos_token_id": 1,
        "transformers_version": "4.40.0",
    }
    ignored = {
        "num_beams": 4,
        "min_new_tokens": 1,
        "suppress_tokens": [5],
        "no_repeat_ngram_size": 1,
    }
    ignored |= {"chat_format": "chatml"}
    quiet = Generator(checkpoint(tmp_path / "a", "byte-level", **kept))
    assert not quiet.generate(["who"], max_new=2).ignored_settings
    loud = Generator(checkpoint(tmp_path / "b", "byte-level", **kept | ignored))
    result = loud.generate(["who"], max_new=2, speculate="off")
    assert result.ignored_settings == ignored
    assert len(result.unknowns()) == len(result.to_dict()["unknown"]) == len(ignored)


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama-grouped", "gpt2", "qwen3"])
def test_the_dtype_is_that_of_the_checkpoint(tmp_path: Path, dtype: str, family: str) -> None:
    config = {"tie_word_embeddings": True}
    folder = checkpoint(tmp_path, "byte-level", family, dtype=getattr(torch, dtype), config=config)
    generator = Generator(folder)
    prompts = generator.encode([*TEXT, *PROMPTS])
    result = generator.generate(prompts, max_new=24, batch=3, ignore_end=True)
    assert result.dtype == result.to_dict()["dtype"] == dtype
    model, equal = opened(folder), 0
    for ids, text in zip(prompts, result.details, strict=True):
        first = first_difference(text.tokens, peer(model, ids, 24, eos_token_id=None))
        assert first is None or first in text.near_ties
        equal += first is None
    assert equal
    other = Generator(f"hf:{folder}?dtype=float32").generate(prompts[:1], max_new=2)
    assert other.dtype == "float32"


def held(decoder: Any) -> int:
    """Bytes of the weights that a decoder reads, each storage counted once, and their packed copies."""
    maps = [decoder._head]
    for block in decoder.blocks:
        maps += [block.qkv, block.output, block.up, block.down]
    tensors = [decoder._table, *(one.weight for one in maps)]
    storages = {part.untyped_storage().data_ptr(): part.untyped_storage() for part in tensors}
    packed = sum(one.weight.nbytes for one in maps if one._packed is not None)
    return sum(one.nbytes() for one in storages.values()) + packed


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama-grouped", "gpt2", "gpt_neox"])
def test_weights_are_held_once_on_request(
    monkeypatch: pytest.MonkeyPatch, family: str, tied: bool
) -> None:
    monkeypatch.setattr("holdfast.lm.generate.decoder.PACKED_WEIGHTS", 0)
    model = tiny(family, tie_word_embeddings=tied)
    matrices = sum(part.nbytes for part in model.parameters() if part.ndim == 2)
    if family == "gpt2":
        matrices -= model.transformer.wpe.weight.nbytes
    plain = Generator(model)
    expected = plain.generate([[3, 4, 5]], max_new=8).tokens
    once = Generator(model, low_memory=True)
    assert held(once.decoder) == matrices
    assert held(plain.decoder) > 1.5 * matrices
    assert once.generate([[3, 4, 5]], max_new=8).tokens == expected
    layers = once.decoder.arch.layers
    assert all(part.is_meta for layer in layers for part in layer.parameters())


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "byte-level", repetition_penalty=1.1)
    said = [{"role": "user", "content": "hi"}]
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no') }}")
    with pytest.raises(InputError) as raised:
        Generator(folder).encode([said])
    assert (raised.value.code, raised.value.place) == ("invalid-value", "prompt 1")
    (folder / "chat_template.jinja").unlink()
    generator = Generator(folder)
    for prompts, code in (
        ([said], "unsupported"),
        ([[{"role": "user"}]], "unsupported"),
        ([""], "empty-input"),
    ):
        with pytest.raises(InputError) as raised:
            generator.encode(prompts)
        assert raised.value.code == code
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(InputError) as raised:
        Generator(folder)
    assert raised.value.code == "unreadable"
    (folder / "generation_config.json").unlink()
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(InputError) as raised:
        Generator(folder)
    assert raised.value.code == "unreadable"
    for path in folder.glob("tokenizer*"):
        path.unlink()
    bare = Generator(folder)
    assert len(bare.generate([[10, 11]], max_new=3, ignore_end=True).tokens[0]) == 3
    with pytest.raises(InputError) as raised:
        bare.encode(["who"])
    assert raised.value.code == "conflict"


def test_objects_that_are_not_models_or_tokenizers() -> None:
    for model, fast in (
        ("openai:http://127.0.0.1:1/v1#m", None),
        (object(), None),
        (tiny("llama"), object()),
    ):
        with pytest.raises(InputError) as raised:
            Generator(model, fast)
        assert raised.value.code == "unsupported"
