"""The forward pass by ranges of layers, its caches and its products, against transformers and float64."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import FAMILIES, VOCABULARY, tiny
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from holdfast.errors import InputError
from holdfast.lm.generate import Arena, Decoder, Generator, architecture
from holdfast.lm.generate.architectures import FAMILIES as KNOWN
from holdfast.lm.generate.architectures import check_config, layer_parts
from holdfast.lm.generate.decoder import Block, Linear, _norm, _rotate
from holdfast.lm.generate.exact import ROWS, SPLIT, ExactArena, ExactDecoder, check_exact

TEXTS, LENGTH = 3, 24


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


# --- Modules of the model ------------------------------------------------------------------------

ROTARY = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in FAMILIES},
    **{
        kind: ("llama", {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **settings}})
        for kind, settings in ROTARY.items()
    },
    "biases": ("llama-grouped", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "wide heads": ("llama-grouped", {"head_dim": 20, "tie_word_embeddings": True}),
    "one key for all": ("llama", {"num_key_value_heads": 1}),
    "norms without weights": (
        "opt",
        {"enable_bias": False, "layer_norm_elementwise_affine": False},
    ),
    "scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "relu": ("gpt2", {"activation_function": "relu"}),
    "window as wide as the context": ("mistral", {"sliding_window": 128}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_of_every_layer_are_those_of_transformers(variant: str) -> None:
    """In float64, but for norms and rotations (float32 in transformers); up to the last position."""
    family, more = VARIANTS[variant]
    model = tiny(family, **more).double()
    text = ids(2, 128)
    with torch.inference_mode():
        expected = model(text, output_hidden_states=True)
        decoder = Decoder(architecture(model))
        cache = Arena(decoder, 2, 128)
        x = decoder.embed(text, [0, 0])
        for layer, state in enumerate(expected.hidden_states[:-1]):
            torch.testing.assert_close(x, state, atol=5e-5, rtol=1e-5)
            x = decoder.run(x, cache, [0, 0], layer, layer + 1)
        torch.testing.assert_close(decoder.logits(x), expected.logits, atol=5e-5, rtol=1e-5)
    assert decoder.rows == [256] * 4


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_a_model_has_one_place(family: str) -> None:
    model = tiny(family)
    arch = architecture(model)
    counts = [arch.embedding.weight.numel(), arch.head.weight.numel()]
    modules = [arch.norm] if arch.positions is None else [arch.norm, arch.positions]
    for number in range(len(arch.layers)):
        parts = layer_parts(arch, number)
        for weight, bias in (parts.qkv, parts.output, parts.up, parts.down):
            counts += [weight.numel(), 0 if bias is None else bias.numel()]
        modules += [parts.attention_norm, parts.mlp_norm, parts.query_norm, parts.key_norm]
    counts += [part.numel() for one in modules if one for part in one.parameters()]
    tied = arch.embedding.weight is arch.head.weight
    assert sum(counts) == model.num_parameters() + tied * counts[0]
    shapes = (arch.query_heads, arch.kv_heads, arch.head_size, arch.context)
    config = model.config
    grouped = getattr(config, "num_key_value_heads", config.num_attention_heads)
    assert shapes == (4, grouped, getattr(config, "head_dim", None) or 8, 128)


def test_of_all_families_of_transformers_seven_are_understood() -> None:
    understood = set()
    for name in CONFIG_MAPPING_NAMES:
        config = SimpleNamespace(
            model_type=name,
            max_position_embeddings=64,
            do_layer_norm_before=True,
            word_embed_proj_dim=32,
            hidden_size=32,
        )
        try:
            check_config(config)
            understood.add(name)
        except InputError as error:
            assert (error.code, error.place) == ("unsupported", "model_type")  # noqa: PT017
    assert understood == set(KNOWN)


@pytest.mark.parametrize(
    ("family", "change", "reason"),
    [
        ("gpt2", {"add_cross_attention": True}, "cross-attention"),
        ("opt", {"do_layer_norm_before": False}, "normalize after"),
        ("opt", {"word_embed_proj_dim": 16}, "projected embeddings"),
        ("opt", {"_remove_final_layer_norm": True}, "normalize after"),
        ("mistral", {"sliding_window": 127}, "127 tokens"),
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "'longrope'"),
        ("llama", {"num_local_experts": 8}, "mixture of experts"),
        ("llama", {"is_encoder_decoder": True}, "encoder-decoder"),
    ],
)
def test_variants_that_are_refused(family: str, change: dict[str, Any], reason: str) -> None:
    config = tiny(family).config
    check_config(config)
    for name, value in change.items():
        setattr(config, name, value)
    with pytest.raises(InputError) as refused:
        check_config(config)
    assert refused.value.code == "unsupported"
    assert reason in str(refused.value.found)


# --- Caches --------------------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> list[dict[str, Any]]:
    """Passes over a batch, as speculation may order them: each begins anywhere in what is stored.

    A rejected pass stores other tokens than the text's; one that lags runs its early layers token by token.
    """
    stored, rows, steps = [0] * TEXTS, list(range(TEXTS)), []
    for _ in range(draw(st.integers(2, 6))):
        starts = [draw(st.integers(max(0, stored[row] - 3), stored[row])) for row in rows]
        most = min(9, LENGTH - max(starts))
        if most < 1:
            break
        counts = [draw(st.integers(1, most)) for _ in rows]
        joined = draw(st.booleans())
        if not joined:
            counts = [counts[0]] * len(rows)
        step = {
            "rows": list(rows),
            "starts": starts,
            "counts": counts,
            "joined": joined,
            "rejected": draw(st.booleans()),
            "exit": 0 if joined else draw(st.integers(0, 3)),
            "select": [],
        }
        for row, start, count in zip(rows, starts, counts, strict=True):
            stored[row] = start if step["rejected"] else start + count
        if len(rows) > 1 and draw(st.integers(0, 3)) == 0:  # a text has ended; the last one moves
            gone = draw(st.integers(0, len(rows) - 1))
            sources = list(range(len(rows) - 1))
            if gone < len(sources):
                sources[gone] = len(rows) - 1
            step["select"], rows = sources, [rows[source] for source in sources]
        steps.append(step)
    return steps


def passes(
    decoder: Decoder, cache: Arena, text: Tensor, steps: list[dict[str, Any]]
) -> Iterator[tuple[int, int, Tensor]]:
    """(text, position, logits [V]) of every row that a program computes for good."""
    for number, step in enumerate(steps):
        rows, starts, counts = step["rows"], step["starts"], step["counts"]
        source = ids(TEXTS, LENGTH + 9, number + 7) if step["rejected"] else text
        parts = [
            source[row, start : start + count]
            for row, start, count in zip(rows, starts, counts, strict=True)
        ]
        if step["joined"] and cache.joins:
            lines = zip(parts, starts, strict=True)
            x = torch.cat([decoder.embed(part[None], [at]) for part, at in lines], 1)
            logits = decoder.logits(decoder.run(x, cache, starts, counts=counts))[0]
        else:
            width = max(counts)
            tokens = torch.stack(
                [nn.functional.pad(part, (0, width - len(part))) for part in parts]
            )
            x, lag = decoder.embed(tokens, starts), step["exit"]
            early = [
                decoder.run(x[:, n : n + 1], cache, [start + n for start in starts], 0, lag)
                for n in range(width)
            ]
            x = torch.cat(early, 1) if lag else x
            full = decoder.logits(decoder.run(x, cache, starts, lag))
            logits = torch.cat([full[n, :count] for n, count in enumerate(counts)])
        if not step["rejected"]:
            places = [
                (row, start + n)
                for row, start, count in zip(rows, starts, counts, strict=True)
                for n in range(count)
            ]
            for (row, place), one in zip(places, logits, strict=True):
                yield row, place, one
        if step["select"]:
            if not cache.joins:
                return  # bits depend on the number of rows: exact passes keep all texts
            cache.select(step["select"])


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        *((family, (Decoder, Arena)) for family in ("llama-grouped", "gpt2", "gpt_neox")),
        ("llama-grouped", (ExactDecoder, ExactArena)),
    ],
)
@given(steps=programs())
@pytest.mark.examples(8)
def test_any_order_of_passes_gives_the_logits_of_the_whole_text(
    family: str, kinds: tuple[type[Decoder], type[Arena]], steps: list[dict[str, Any]]
) -> None:
    model, text = tiny(family, layers=4), ids(TEXTS, LENGTH)
    with torch.inference_mode():
        expected = model(text).logits
        decoder = kinds[0](architecture(model))
        cache = kinds[1](decoder, TEXTS, LENGTH + ROWS)
        for row, place, logits in passes(decoder, cache, text, steps):
            torch.testing.assert_close(logits, expected[row, place], atol=5e-4, rtol=1e-4)


def test_exact_passes_count_whole_blocks_of_keys() -> None:
    decoder = ExactDecoder(architecture(tiny("llama")))
    for capacity, stored in ((1, SPLIT), (SPLIT, SPLIT), (SPLIT + 1, 2 * SPLIT)):
        assert ExactArena(decoder, 2, capacity).k.shape[3] == stored
        assert Arena(decoder, 2, capacity).nbytes() == 2 * 4 * 2 * 4 * capacity * 8 * 4


def test_rows_that_depend_on_their_place_refuse_exact_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder, forward = ExactDecoder(architecture(tiny("llama"))), Block.forward
    check_exact(decoder)
    assert decoder.rows == [0] * 4

    def uneven(block: Block, x: Tensor, *rest: Any) -> Tensor:
        return forward(block, x, *rest) * (1 + 1e-6 * torch.arange(x.shape[1])[:, None])

    monkeypatch.setattr(Block, "forward", uneven)
    with pytest.raises(InputError) as refused:
        Generator(tiny("llama"), exact=True)
    assert (refused.value.code, refused.value.place) == ("unsupported", "exact")


# --- Products, norms, rotations ------------------------------------------------------------------

ROUNDING = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


@given(
    shape=st.tuples(st.integers(1, 80), st.integers(1, 70)),
    rows=st.tuples(st.integers(1, 3), st.integers(1, 9)),
    dtype=st.sampled_from(list(ROUNDING)),
    bias=st.booleans(),
    pack=st.booleans(),
    shared=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
@pytest.mark.examples(40)
def test_a_product_does_not_depend_on_how_its_weights_are_stored(
    shape: tuple[int, int],
    rows: tuple[int, int],
    dtype: torch.dtype,
    bias: bool,
    pack: bool,
    shared: bool,
    threads: int,
) -> None:
    random = torch.Generator().manual_seed(sum(shape))
    weight = torch.randn(shape, generator=random).to(dtype)
    added = torch.randn(shape[0], generator=random).to(dtype) if bias else None
    x = torch.randn(*rows, shape[1], generator=random).to(dtype)
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PACKED_WEIGHTS", "STREAMED_WEIGHTS"):
            patch.setattr(f"holdfast.lm.generate.decoder.{name}", 0)
        torch.set_num_threads(threads)
        try:
            product = Linear(weight, added, pack, shared)(x)
        finally:
            torch.set_num_threads(before)
    exact = x.double() @ weight.double().T + (0 if added is None else added.double())
    assert (product.dtype, product.shape) == (dtype, exact.shape)
    scale = (x.double().abs() @ weight.double().abs().T).amax() + 1
    assert float((product.double() - exact).abs().amax() / scale) < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e3])
@pytest.mark.parametrize("kind", ["layer", "layer without weights", "rms"])
def test_norms_are_those_of_the_model(kind: str, scale: float, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(5)
    module: Any = {
        "layer": nn.LayerNorm(24),
        "layer without weights": nn.LayerNorm(24, elementwise_affine=False),
        "rms": LlamaRMSNorm(24, eps=1e-5),
    }[kind]
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.randn(24, generator=random))
    x = (scale * torch.randn(2, 3, 24, generator=random)).to(dtype)
    module = module.to(dtype)
    with torch.inference_mode():
        ours, theirs = _norm(module)(x), module(x)
        # The weights of a permuted norm go with the numbers that they scale.
        order = torch.randperm(24, generator=random)
        permuted = None if kind == "layer" else _norm(module, None if "without" in kind else order)
    assert ours.dtype == dtype
    near = max(
        ROUNDING[dtype], 1e-6 if kind == "rms" else 0.0
    )  # in transformers of float32 at most
    torch.testing.assert_close(ours, theirs, atol=near, rtol=near)
    if permuted is not None:
        torch.testing.assert_close(permuted(x[..., order]), theirs[..., order], atol=0.1, rtol=near)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 99))
@pytest.mark.examples(15)
def test_products_of_rotated_vectors_depend_on_their_distance(m: int, n: int, seed: int) -> None:
    """Su et al. (RoFormer), equation 16: pairs turn by angles proportional to the position."""
    random = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=random, dtype=torch.float64)
    angles = 10_000.0 ** -(torch.arange(4, dtype=torch.float64) / 4)

    def turned(x: Tensor, place: int) -> Tensor:
        return _rotate(x, torch.polar(torch.ones(1, 4).double(), place * angles[None]))

    product = float((turned(q, m) * turned(k, n)).sum())
    assert product == pytest.approx(float((turned(q, m + 77) * turned(k, n + 77)).sum()), abs=1e-9)
    by_hand = sum(
        float(torch.real(torch.complex(q[..., 2 * i], q[..., 2 * i + 1])
        * torch.complex(k[..., 2 * i], k[..., 2 * i + 1]).conj()
        * torch.polar(torch.ones(()).double(), (m - n) * angles[i])).sum())
        for i in range(4)
    )  # fmt: skip
    assert product == pytest.approx(by_hand, abs=1e-9)
    assert float(turned(q, m).norm()) == pytest.approx(float(q.norm()))


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_projections_of_single_heads(family: str) -> None:
    """Rows of fewer heads give what the whole projection gives; of GPT-2 it is the model's own."""
    model = tiny(family)
    block = Decoder(architecture(model)).blocks[1]
    x = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = dict(zip(("query", "key", "value"), block.project(x), strict=True))
        for part, expected in whole.items():
            for heads in ([0], [3, 1], [2, 2, 0]):
                weight, bias = block.head_rows(part, heads)
                rows = nn.functional.linear(x, weight, bias).unflatten(-1, (-1, 8)).transpose(1, 2)
                torch.testing.assert_close(rows, expected[:, heads])
        if family == "gpt2":
            own = model.transformer.h[1].attn.c_attn(x).split(32, -1)
            for mine, theirs in zip(whole.values(), own, strict=True):
                torch.testing.assert_close(mine.transpose(1, 2).flatten(2), theirs)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_share_of_the_head_in_the_weights(family: str) -> None:
    model = tiny(family)
    own = {"llama": 4 * 32 * 32 + 3 * 32 * 48, "gpt2": 12 * 32 * 32}[family]  # of a layer
    head = VOCABULARY * 32
    share = Decoder(architecture(model)).head_share
    assert share == pytest.approx(head / (head + 4 * own))
