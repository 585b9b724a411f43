"""llama.cpp gives the distributions of a forward pass written out here, however prefixes share cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import InputError, MissingExtraError
from holdfast.lm.models.llama_cpp import open_gguf
from holdfast.lm.models.protocol import Prefix

WIDTH, HEADS, HIDDEN, LAYERS, LENGTH = 64, 4, 96, 2, 48
WORDS = [
    "\u2581",
    "a",
    "b",
    "\u2581a",
    "\u2581b",
    "ab",
    "\u2581ab",
    "é",
    "\u2581th",
    "th",
    "t",
    "h",
]
PIECES = [None, None, None, *(bytes([byte]) for byte in range(256)),
          *(word.replace("\u2581", " ").encode() for word in WORDS), None]  # fmt: skip
BOS, EOS = 1, 2


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(PIECES), WIDTH),
        "output": (len(PIECES), WIDTH),
        "output_norm": (WIDTH,),
    }
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{layer}.ffn_{name}": (HIDDEN, WIDTH) for name in ("gate", "up")}
        shapes |= {f"blk.{layer}.ffn_down": (WIDTH, HIDDEN)}
        shapes |= {f"blk.{layer}.{name}_norm": (WIDTH,) for name in ("attn", "ffn")}
    return {
        name: (random.normal(0, 0.3, shape) + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def model_file(weights: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with random weights and a SentencePiece vocabulary, written as GGUF."""
    pytest.importorskip("llama_cpp")
    gguf: Any = pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("gguf") / "random.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(PIECES))
    kinds = gguf.TokenType
    writer.add_tokenizer_model("llama")
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS, "<|new|>"]
    writer.add_token_list([text.encode() for text in texts])
    writer.add_token_scores([0.0] * 259 + [-float(place) for place in range(len(WORDS))] + [0.0])
    written = [*([kinds.BYTE] * 256), *([kinds.NORMAL] * len(WORDS))]
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *written, kinds.CONTROL])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(True)
    for name, array in weights.items():
        writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def forward(weights: dict[str, np.ndarray], tokens: Prefix) -> np.ndarray:
    """[V] log-probabilities after `tokens`: the LLaMA architecture, in double precision."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    size = WIDTH // HEADS
    angles = np.arange(len(tokens))[:, None] / 10000.0 ** (np.arange(0, size, 2) / size)
    turns = np.exp(1j * angles)[
        :, None, :
    ]  # [T, 1, size / 2]: pairs of neighbours, as complex numbers

    def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain

    def turned(x: np.ndarray) -> np.ndarray:
        pairs = np.ascontiguousarray(x).view(np.complex128) * turns
        return pairs.view(np.float64)

    x = w["token_embd"][list(tokens)]
    for layer in range(LAYERS):
        part = {name: w[f"blk.{layer}.{name}"] for name in
                ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up",
                 "ffn_down")}  # fmt: skip
        y = norm(x, part["attn_norm"])
        q, k, v = ((y @ part[f"attn_{name}"].T).reshape(-1, HEADS, size) for name in "qkv")
        scores = np.einsum("ihd,jhd->hij", turned(q), turned(k)) / np.sqrt(size)
        scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", shares, v).reshape(-1, WIDTH) @ part["attn_output"].T
        y = norm(x, part["ffn_norm"])
        gate = y @ part["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ part["ffn_up"].T)) @ part["ffn_down"].T
    logits = w["output"] @ norm(x[-1], w["output_norm"])
    return np.asarray(logits - np.logaddexp.reduce(logits))


def draw(count: int, seed: int) -> list[Prefix]:
    """Prefixes that share many beginnings."""
    random = np.random.default_rng(seed)
    found: list[Prefix] = [()]
    while len(found) < count:
        parent = found[int(random.integers(len(found)))]
        found.append(
            (*parent, *(int(token) for token in random.integers(3, 250, random.integers(1, 4))))
        )
    return [prefix for prefix in found if len(prefix) < LENGTH]


@pytest.mark.parametrize(
    "options", ["n_ctx=512", "n_ctx=64&sequences=4", "n_ctx=512&sequences=6&threads=1"]
)
def test_every_prefix_as_if_alone(
    model_file: Path, weights: dict[str, np.ndarray], options: str
) -> None:
    with open_gguf(f"gguf:{model_file}?kv=f32&{options}") as model:
        for seed in range(3):
            prefixes = draw(24, seed)
            for each, prefix in zip(model.logprobs(prefixes), prefixes, strict=True):
                expected = forward(weights, (BOS, *prefix))
                np.testing.assert_allclose(each.logprobs, expected, atol=2e-4)
                assert each.rest == 0


def test_a_cache_without_room_begins_again(
    model_file: Path, weights: dict[str, np.ndarray]
) -> None:
    random = np.random.default_rng(7)
    prefixes = [tuple(random.integers(3, 250, 40).tolist()) for _ in range(24)]  # 984 cells of 256
    with open_gguf(f"gguf:{model_file}?kv=f32&n_ctx=48") as model:
        found = model.logprobs([(5,), *prefixes, prefixes[0]])
        assert model.cost.nodes == 25
    for each, prefix in zip(found, [(5,), *prefixes, prefixes[0]], strict=True):
        np.testing.assert_allclose(each.logprobs, forward(weights, (BOS, *prefix)), atol=2e-4)


def test_a_tree_is_computed_once(model_file: Path) -> None:
    with open_gguf(f"gguf:{model_file}?kv=f32&n_ctx=512") as model:
        model.logprobs([(), (5,), (5, 6), (5, 7), (5, 6, 8)])
        assert (model.cost.calls, model.cost.evaluations, model.cost.nodes) == (1, 5, 5)
        model.logprobs([(5, 6, 8, 9), (5, 7, 9), (5, 7, 10), (5, 7, 10)])
        assert (model.cost.calls, model.cost.evaluations, model.cost.nodes) == (2, 8, 8)


def test_the_tokenizer_is_that_of_the_file(model_file: Path) -> None:
    with open_gguf(f"gguf:{model_file}") as model:
        tokenizer = model.tokenizer
        assert list(tokenizer.pieces) == PIECES
        assert (tokenizer.bos, tokenizer.eos, tokenizer.lead) == (BOS, EOS, b" ")
        for text in ("ab", "the ab", "é\0ü", " a", ""):
            assert tokenizer.spell(tokenizer.encode(text.encode())) == text.encode()
        ab = tokenizer.encode(b"ab")
        assert [tokenizer.pieces[token] for token in ab] == [b" ab"]
    with pytest.raises(ValueError, match="closed"):
        tokenizer.encode(b"ab")


def test_what_is_too_long_is_not_listed(model_file: Path) -> None:
    with open_gguf(f"gguf:{model_file}") as model:
        assert model.context == LENGTH - 1
        short, long = model.logprobs([(5,) * (LENGTH - 1), (5,) * LENGTH])
    assert short.rest == 0
    assert long.rest == 1


def test_a_model_without_bos(model_file: Path, weights: dict[str, np.ndarray]) -> None:
    with open_gguf(f"gguf:{model_file}?bos=none&kv=f32") as model:
        (found,) = model.logprobs([(5, 6)])
        np.testing.assert_allclose(found.logprobs, forward(weights, (5, 6)), atol=2e-4)
        with pytest.raises(InputError, match="bos=ID"):
            model.logprobs([()])
    with open_gguf(f"gguf:{model_file}?bos=7&kv=f32") as model:
        (found,) = model.logprobs([(5, 6)])
        np.testing.assert_allclose(found.logprobs, forward(weights, (7, 5, 6)), atol=2e-4)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF and no more")
    with pytest.raises(InputError, match="cannot read this file"):
        open_gguf(f"gguf:{bad}")


def test_names_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="model file not found"):
        open_gguf(f"gguf:{tmp_path}/none.gguf")
    with pytest.raises(InputError, match="n_ctx, sequences, threads"):
        open_gguf("gguf:x?context=5")
    there = tmp_path / "there.gguf"
    there.touch()
    monkeypatch.setitem(__import__("sys").modules, "llama_cpp", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[gguf\]"):
        open_gguf(f"gguf:{there}")
