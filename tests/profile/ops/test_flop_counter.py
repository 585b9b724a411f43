"""FLOPs of drawn networks against torch's own counter, in the forward pass and in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from holdfast.profile.ops.profiling import profile

Case = tuple[nn.Module, tuple[Tensor, ...]]
few, sides = st.integers(1, 4), st.integers(1, 9)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(*args)


def counted(module: nn.Module, inputs: tuple[Tensor, ...], training: bool) -> int:
    """By `FlopCounterMode`: it does not know the fused kernel of the CPU, so attention is written out."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        out = module(*inputs)
        if training:
            out.sum().backward()
    return counter.get_total_flops()


@st.composite
def convolutions(draw: Any, most_groups: int = 4) -> Case:
    dimensions, groups = draw(st.integers(1, 3)), draw(st.integers(1, most_groups))
    transposed = draw(st.booleans())
    stride = draw(st.integers(1, 3))
    settings = {
        "stride": stride,
        "padding": draw(st.integers(0, 2)),
        "dilation": draw(st.integers(1, 2)),
        "groups": groups,
        "bias": draw(st.booleans()),
    }
    if transposed:
        settings["output_padding"] = draw(st.integers(0, stride - 1))
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dimensions}d")
    channels = [groups * draw(few) for _ in range(2)]
    layer = kind(*channels, draw(st.integers(1, 3)), **settings)
    batch = [draw(few)] if draw(st.booleans()) else []
    return layer, (
        torch.randn(*batch, channels[0], *(draw(st.integers(6, 9)) for _ in "xyz"[:dimensions])),
    )


@st.composite
def products(draw: Any) -> Case:
    """Products of matrices, in the ways in which they are written."""
    a, b, c, d = (draw(sides) for _ in "abcd")
    text, shapes = draw(
        st.sampled_from(
            [
                ("ab,bc->ac", [(a, b), (b, c)]),
                ("ab,cb->ca", [(a, b), (c, b)]),
                ("dab,dbc->dac", [(d, a, b), (d, b, c)]),
                ("abc,dc->abd", [(a, b, c), (d, c)]),
                ("abc,acd->bd", [(a, b, c), (a, c, d)]),
                ("abcd,abed->abce", [(a, b, c, d), (a, b, 3, d)]),
            ]
        )
    )
    return Call(lambda *args: torch.einsum(text, *args)), tuple(map(torch.randn, shapes))


@st.composite
def attentions(draw: Any) -> Case:
    """One call; the heads of keys and values may be fewer."""
    batch, groups, queries, keys, size, values = (draw(few) for _ in range(6))
    heads = groups * draw(few)
    call = Call(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    shapes = (heads, queries, size), (groups, keys, size), (groups, keys, values)
    return call, tuple(torch.randn(batch, *shape) for shape in shapes)


@st.composite
def transformers(draw: Any) -> Case:
    heads = draw(few)
    width = 2 * heads * draw(few)
    layer = nn.TransformerDecoderLayer(
        width, heads, draw(sides), 0.0, batch_first=True, norm_first=draw(st.booleans())
    )
    batch = draw(few)
    return layer, (torch.randn(batch, draw(few), width), torch.randn(batch, draw(few), width))


@given(st.one_of(convolutions(), products(), attentions(), transformers()), st.booleans())
@pytest.mark.examples(60)
def test_flops_are_those_of_torchs_counter(case: Case, measured: bool) -> None:
    module, inputs = case
    made = profile(
        module, *inputs, device="cpu" if measured else "meta", machine="h100-sxm", runs=1
    )
    assert made.flops == counted(module, inputs, training=False)
    assert made.unknown_ops == []


# Torch's counter takes the gradient of grouped weights for that of full ones.
@given(st.one_of(convolutions(most_groups=1), transformers()))
@pytest.mark.examples(30)
def test_a_training_step_has_the_flops_of_torchs_counter(case: Case) -> None:
    module, inputs = case
    made = profile(module, *inputs, machine="h100-sxm", training=True, attention="math")
    assert made.flops == counted(module, inputs, training=True)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("batch", [None, 5])
def test_recurrent_networks_multiply_every_weight_once_a_step(
    kind: type[nn.RNNBase], layers: int, both_ways: bool, batch: int | None
) -> None:
    network = kind(6, 7, layers, bidirectional=both_ways)
    steps = torch.randn(4, *([batch] if batch else []), 6)
    weights = sum(each.numel() for each in network.parameters() if each.dim() == 2)
    for device in ("meta", "cpu"):
        made = profile(network, steps, device=device, machine="h100-sxm", runs=1)
        assert made.flops == 2 * 4 * (batch or 1) * weights
        assert made.unknown_ops == []


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("both_ways", [False, True])
def test_projected_states_are_multiplied_too(both_ways: bool) -> None:
    network = nn.LSTM(6, 7, 2, proj_size=3, bidirectional=both_ways)
    weights = sum(each.numel() for each in network.parameters() if each.dim() == 2)
    made = profile(network, torch.randn(4, 5, 6), device="cpu", machine="h100-sxm", runs=1)
    assert made.flops == 2 * 4 * 5 * weights


def test_sequences_of_different_length_count_their_own_steps() -> None:
    lengths = [4, 2, 1]
    network = nn.LSTM(6, 7)

    def packed(x: Tensor) -> Tensor:
        return network(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data

    made = profile(Call(packed), torch.randn(4, 3, 6), device="cpu", machine="h100-sxm", runs=1)
    assert made.flops == 2 * sum(lengths) * (6 + 7) * 4 * 7
