"""Functions of shared tensors, each with its domain and its largest error.

Errors are stated for 16 fractional bits. A value outside a domain gives the value at its end where the
table says "saturates", else an undefined result; ``debug="ranges"`` raises `RangeError` instead.

| function | domain | largest error | outside |
|-|-|-|-|
| exp | -16 to 16 | relative 2^-12, plus 2^-15 | 0 below, saturates above |
| reciprocal, rsqrt | 2^-10 to 2^20 | relative 2^-14, plus 2^-15 | 0 below |
| sqrt | 0, 2^-10 to 2^20 | relative 2^-14, plus 2^-15 | 0 below |
| log | 2^-10 to 2^20 | 2^-14 | 0 below |
| sigmoid, tanh | all | 2^-10 | |
| erf, gelu | all | 2^-10 | |
| silu | all | 2^-10 | |
| softmax, attention | differences below 2^46 | 2^-11 | |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from holdfast.private.mpc import arithmetic, comparison, ring
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.rounds import Rounds, parallel
from holdfast.private.mpc.tables import (
    MANTISSA_BITS,
    Parabolas,
    look_up,
    normalize,
    of_mantissa,
    on_parabolas,
    parabolas,
    signed_places,
)
from holdfast.private.mpc.tensor import SharedTensor, check_domain, chosen_by, no_gradient

# --- Functions of a bounded argument -------------------------------------------------------------


class Curve:
    """A function by a table on [-radius, radius), constant or linear beyond.

    Args:
        name: of the function.
        function: on float64 arrays.
        radius: power of two.
        bits: width of the table's places.
        tail: multiple of x that the function is above the radius; 0 where it is constant there.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[np.ndarray], np.ndarray],
        radius: int,
        bits: int = 6,
        tail: float = 0.0,
    ) -> None:
        self.name, self.function, self.radius = name, function, radius
        self.bits, self.tail = bits, tail
        ends = (float(function(np.array(at))) for at in (-2.0 * radius, 2.0 * radius))
        self.low, self.high = ends if not tail else (0.0, 0.0)
        self.table = lru_cache(maxsize=8)(self._table)

    def _table(self, scale: int) -> Parabolas:
        step = 2.0 * self.radius / (1 << self.bits)
        shift = scale + round(math.log2(step))
        return parabolas(self.function, signed_places(self.bits) * step, shift, scale)

    def __call__(self, x: SharedTensor) -> SharedTensor:
        """The function of a tensor: 5 rounds."""
        x = x.fractional().narrowed()
        table = self.table(x.scale)
        with x.scope(self.name):
            share = x.party.run(self._protocol(x.party, x.share, x.scale, table))
            out = x.like(share, table.scale).narrowed()
        return out.recorded((x, lambda g: g * _derivative(self)(x)))

    def _protocol(self, party: Party, x: Tensor, scale: int, table: Parabolas) -> Rounds[Tensor]:
        # The top step belongs to the tail, as its places may be rounded up beyond the table.
        limits = (-self.radius << scale, (self.radius << scale) - (1 << table.shift))
        value, bits = yield from parallel(
            on_parabolas(party, x, table), comparison.at_least(party, x, limits)
        )
        above = bits[..., 1]
        inside = bits[..., 0] ^ above
        if self.tail:
            both = torch.stack([value, x << (table.scale - scale)])
            selected = yield from comparison.select(party, np.stack([inside, above]), both)
            return selected.sum(0)
        low, high = (int(ring.encode(end, table.scale)) for end in (self.low, self.high))
        if party.lead:
            value = value - low
        selected, over = yield from parallel(
            comparison.select(party, inside, value), comparison.to_arithmetic(party, above)
        )
        total = selected + over * (high - low)
        return total + low if party.lead else total


@lru_cache(maxsize=16)
def _derivative(curve: Curve) -> Curve:
    """The derivative of a curve as a curve, by central differences."""

    def slope(x: np.ndarray) -> np.ndarray:
        return (curve.function(x + 1e-5) - curve.function(x - 1e-5)) / 2e-5

    return Curve(f"{curve.name}_backward", slope, curve.radius, curve.bits)


sigmoid = Curve("sigmoid", special.expit, 8)
tanh = Curve("tanh", np.tanh, 4)
erf = Curve("erf", special.erf, 4)
gelu = Curve("gelu", lambda x: x * special.ndtr(x), 4, tail=1.0)
silu = Curve("silu", lambda x: x * special.expit(x), 16, bits=7, tail=1.0)


# --- Exponential ---------------------------------------------------------------------------------

_EXP_BITS = 8  # table places, 1/8 apart, from -16 to 16


def exp(x: SharedTensor) -> SharedTensor:
    """e^x on [-16, 16): 5 rounds. A table of e^k at multiples k of 1/8, times a parabola for the rest."""
    x = x.fractional().narrowed()
    check_domain(x, "exp", -math.inf, _largest_exponent(x.scale))
    share = x.run("exp", _exp(x.party, x.share, x.scale))
    out = x.like(share, 2 * x.scale)
    return out.recorded((x, lambda g: g * out))


def _largest_exponent(scale: int) -> float:
    """The end of the domain: e^x with 2 `scale` fractional bits must stay below 2^61."""
    return min(16.0 - 2.0**-3, math.floor(8 * math.log(2) * (61 - 2 * scale)) / 8 - 2.0**-3)


def _exp(party: Party, x: Tensor, scale: int) -> Rounds[Tensor]:
    top = _largest_exponent(scale)
    limits = [-16 << scale, int(top * 2**scale)]
    value, bits = yield from parallel(
        _exp_inside(party, x, scale, top), comparison.at_least(party, x, limits)
    )
    largest = torch.zeros_like(value)
    if party.lead:
        largest += round(math.exp(top) * 2 ** (2 * scale))
    pair = np.stack([bits[..., 0] ^ bits[..., 1], bits[..., 1]])
    return (yield from comparison.select(party, pair, torch.stack([value, largest]))).sum(0)


def _exp_at_most_zero(party: Party, x: Tensor, scale: int) -> Rounds[Tensor]:
    """e^x for x <= 0, with `scale` fractional bits: 0 below -16. Half the table, and one round less."""
    places = np.arange(128.0)  # x = 0 is stored at place 0, where -16 would be
    table = parabolas(np.exp, np.where(places == 0, 0.0, places / 8 - 16), scale - 3, scale)
    value, bits = yield from parallel(
        on_parabolas(party, x, table),
        comparison.at_least(party, x, [(-16 << scale) + (1 << table.shift)]),
    )
    selected = yield from comparison.select(party, bits[..., 0], value)
    return (yield from arithmetic.truncate(party, selected, table.scale - scale))


def _exp_inside(party: Party, x: Tensor, scale: int, top: float) -> Rounds[Tensor]:
    knots = signed_places(_EXP_BITS) / 8
    values = np.exp(np.minimum(knots, top + 0.25))
    tables = np.stack([np.round(values * 2**scale), np.round(knots * 2**scale)], axis=1)
    entries = yield from look_up(
        party, x, torch.from_numpy(tables.astype(np.int64)), scale - 3, _EXP_BITS
    )
    power, knot = entries.unbind(-1)
    rest = x - knot  # at most 1/8 in magnitude
    square = yield from arithmetic.square(party, rest)
    # 1 + (1 + 1/512) t + t^2 / 2: the best parabola for e^t on [-1/8, 1/8], up to 2^-13.
    curved = square + (rest << (scale + 1 - 9))
    factor = rest + (yield from arithmetic.truncate(party, curved, scale + 1))
    if party.lead:
        factor = factor + (1 << scale)
    return (yield from arithmetic.product(party, "mul", power, factor))


# --- Functions by mantissa and exponent ----------------------------------------------------------


def _by_exponent(
    x: SharedTensor,
    name: str,
    low: float,
    high: float,
    of_m: Callable[[np.ndarray], np.ndarray],
    of_e: Callable[[np.ndarray], np.ndarray],
    *,
    signed: bool = False,
    combine: str = "mul",
) -> SharedTensor:
    """of_m(m) * of_e(e), or their sum, for x = m 2^e in [low, high]."""
    x = x.fractional()
    spare = x.scale + max(0, math.ceil(math.log2(high))) - 58
    if spare > 0:  # room for the mantissa
        x = x.like(x.run(name, arithmetic.truncate(x.party, x.share, spare)), x.scale - spare)
    if not signed:
        check_domain(x, name, 0.0 if name == "sqrt" else low, high)
    first = max(0, math.floor(math.log2(low)) + x.scale)
    last = max(first, math.ceil(math.log2(high)) - 1 + x.scale)
    factors = of_e(np.arange(first, last + 1, dtype=np.float64) - x.scale)
    largest = float(np.abs(factors).max())
    bits = MANTISSA_BITS if combine == "add" else 58 - MANTISSA_BITS - math.ceil(math.log2(largest))
    weights = torch.from_numpy(np.round(factors * 2.0**bits).astype(np.int64))

    def protocol() -> Rounds[Tensor]:
        number = yield from normalize(x.party, x.share, first, last, signed)
        value = yield from of_mantissa(x.party, number.mantissa, of_m)
        scaled = (number.exponent * weights).sum(-1)
        if combine == "add":
            return value + scaled
        return (yield from arithmetic.product(x.party, "mul", value, scaled))

    scale = MANTISSA_BITS + (0 if combine == "add" else bits)
    with x.scope(name):
        return x.like(x.party.run(protocol()), scale).narrowed()


def reciprocal(
    x: SharedTensor, *, low: float = 2.0**-10, high: float = 2.0**20, signed: bool = False
) -> SharedTensor:
    """1 / x for x in [low, high]: 11 rounds.

    Args:
        x: any shape.
        low: lower end of the domain; a narrower domain costs fewer bytes.
        high: upper end.
        signed: whether x may be negative, with its magnitude in the domain; twice the bytes.
    """
    out = _by_exponent(
        x, "reciprocal", low, high, lambda m: 1 / m, lambda e: 2.0**-e, signed=signed
    )
    return out.recorded((x, lambda g: -(g * out.narrowed().square())))


def rsqrt(x: SharedTensor, *, low: float = 2.0**-10, high: float = 2.0**20) -> SharedTensor:
    """1 / sqrt(x) for x in [low, high]: 11 rounds."""
    out = _by_exponent(x, "rsqrt", low, high, lambda m: m**-0.5, lambda e: 2.0 ** (-e / 2))
    return out.recorded((x, lambda g: g * out**3 * -0.5))


def sqrt(x: SharedTensor, *, low: float = 2.0**-10, high: float = 2.0**20) -> SharedTensor:
    """The square root for 0, and for x in [low, high]: 11 rounds."""
    out = _by_exponent(x, "sqrt", low, high, np.sqrt, lambda e: 2.0 ** (e / 2))
    return out.recorded((x, no_gradient("sqrt")))


def log(x: SharedTensor, *, low: float = 2.0**-10, high: float = 2.0**20) -> SharedTensor:
    """The natural logarithm for x in [low, high]: 10 rounds."""
    out = _by_exponent(x, "log", low, high, np.log, lambda e: e * math.log(2), combine="add")
    return out.recorded((x, lambda g: g * reciprocal(x, low=low, high=high)))


# --- Softmax and normalizations ------------------------------------------------------------------


def _powers(x: SharedTensor) -> SharedTensor:
    x = x.narrowed()
    return x.like(x.party.run(_exp_at_most_zero(x.party, x.share, x.scale)))


def softmax(x: SharedTensor, dim: int = -1) -> SharedTensor:
    """Softmax along a dimension: the maximum is subtracted first."""
    with x.scope("softmax"):
        x = x.fractional().narrowed()
        shifted = x.detach() - x.detach().max(dim, keepdim=True)
        powers = _powers(shifted)
        total = powers.sum(dim, keepdim=True)
        inverse = reciprocal(total, low=1.0, high=float(max(2, x.shape[dim])) + 1)
        out = powers * inverse

    def back(g: SharedTensor) -> SharedTensor:
        weighted = g * out
        return weighted - out * weighted.sum(dim, keepdim=True)

    return out.recorded((x, back))


def log_softmax(x: SharedTensor, dim: int = -1) -> SharedTensor:
    """Logarithm of the softmax along a dimension."""
    with x.scope("log_softmax"):
        x = x.fractional().narrowed()
        fixed = x.detach()
        shifted = fixed - fixed.max(dim, keepdim=True)
        total = _powers(shifted).sum(dim, keepdim=True)
        out = shifted - log(total, low=1.0, high=float(max(2, x.shape[dim])) + 1)
    return out.recorded((x, lambda g: g - softmax(fixed, dim) * g.sum(dim, keepdim=True)))


def layer_norm(
    x: SharedTensor,
    shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> SharedTensor:
    """Layer normalization over the last ``len(shape)`` dimensions, of a variance up to 2^20."""
    dims = tuple(range(-len(shape), 0))
    with x.scope("layer_norm"):
        x = x.fractional()
        centered = (x - x.mean(dims, keepdim=True)).narrowed()
        return _normalized(centered, dims, weight, bias, eps)


def rms_norm(
    x: SharedTensor, shape: Sequence[int], weight: Any = None, eps: float = 1e-5
) -> SharedTensor:
    """Root-mean-square normalization over the last ``len(shape)`` dimensions."""
    with x.scope("rms_norm"):
        return _normalized(
            x.fractional().narrowed(), tuple(range(-len(shape), 0)), weight, None, eps
        )


def _normalized(
    x: SharedTensor, dims: tuple[int, ...], weight: Any, bias: Any, eps: float
) -> SharedTensor:
    variance = x.square().mean(dims, keepdim=True)
    variance = variance + x.party.public(eps, scale=variance.scale)
    out = x * rsqrt(variance, low=2.0**-20)
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def attention(
    query: SharedTensor,
    key: SharedTensor,
    value: SharedTensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> SharedTensor:
    """Scaled dot-product attention ``[..., L, d], [..., S, d], [..., S, e] -> [..., L, e]``.

    Args:
        query: queries.
        key: keys.
        value: values.
        mask: public; True where a query sees a key, or numbers that are added to the scores.
        scale: of the scores; 1 / sqrt(d) by default.
    """
    with query.scope("attention"):
        factor = scale if scale is not None else query.shape[-1] ** -0.5
        scores = query @ key.T * factor
        if mask is not None:
            added = torch.where(mask, 0.0, -1024.0) if mask.dtype == torch.bool else mask
            scores = scores + added.clamp(min=-1024.0).expand(scores.shape)
        return softmax(scores) @ value


# --- Layers --------------------------------------------------------------------------------------


def linear(x: SharedTensor, weight: Any, bias: Any = None) -> SharedTensor:
    """``x weight^T + bias``, with torch's ``[outputs, inputs]`` weight."""
    transposed = transposed_weight(weight)
    out = x.product(transposed, "matmul", name="linear")
    return out if bias is None else out + bias


def transposed_weight(weight: Any) -> Any:
    """The transpose; that of a fixed weight is fixed too, and made once."""
    if not isinstance(weight, SharedTensor):
        return torch.as_tensor(weight).T
    if weight.fixed is None:
        return weight.T
    if not hasattr(weight, "fixed_transpose"):
        weight.fixed_transpose = weight.T.fix()  # type: ignore[attr-defined]
    return weight.fixed_transpose  # type: ignore[attr-defined]


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


def conv2d(
    x: SharedTensor,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> SharedTensor:
    """Convolution ``[N, C, H, W] -> [N, O, oh, ow]``."""
    options = (
        ("stride", _pair(stride)),
        ("padding", _pair(padding)),
        ("dilation", _pair(dilation)),
        ("groups", groups),
    )
    out = x.product(weight, "conv2d", options)
    if bias is None:
        return out
    shaped = bias if isinstance(bias, SharedTensor) else torch.as_tensor(bias)
    return out + shaped.reshape(1, -1, 1, 1)


def max_pool2d(
    x: SharedTensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> SharedTensor:
    """Maximum over windows; padding counts as minus infinity."""
    size, step = _pair(kernel), _pair(kernel if stride is None or stride == [] else stride)
    edge = _pair(padding)
    padded = x
    if any(edge):
        lowest = -(2.0 ** (ring.LIMIT_BITS - 2 - x.scale))
        padded = x.pad((edge[1], edge[1], edge[0], edge[0]), lowest)
    windows = ring.patches(padded.share, size, step, (0, 0), _pair(dilation))
    n, channels, _, _, oh, ow = windows.shape
    values = windows.permute(0, 1, 4, 5, 2, 3).reshape(n, channels, oh, ow, -1)
    with x.scope("max_pool2d"):
        return x.like(values).max(-1).recorded((x, no_gradient("max_pool2d")))


def avg_pool2d(
    x: SharedTensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
) -> SharedTensor:
    """Mean over windows; padding counts as zeros. No communication."""
    size, step = _pair(kernel), _pair(kernel if stride is None or stride == [] else stride)
    channels = x.shape[1]
    kernel_of_ones = torch.full((channels, 1, *size), 1.0 / (size[0] * size[1]))
    options = (("stride", step), ("padding", _pair(padding)), ("groups", channels))
    return x.product(kernel_of_ones, "conv2d", options)


def one_hot(index: SharedTensor, classes: int) -> SharedTensor:
    """Unit vectors of secret integers from 0 to ``classes - 1``: ``[...] -> [..., classes]``. One round."""
    check_domain(index, "one_hot", 0, classes - 1)
    bits = max(1, (classes - 1).bit_length())
    table = torch.eye(1 << bits, dtype=torch.int64)[:, :classes]
    return index.like(index.run("one_hot", look_up(index.party, index.share, table, 0, bits)), 0)


def embedding(index: SharedTensor, weight: Any) -> SharedTensor:
    """Rows of a weight ``[entries, d]`` at secret integers: ``[...] -> [..., d]``. Two rounds."""
    with index.scope("embedding"):
        return one_hot(index, weight.shape[0]).matmul(weight)


def where(condition: SharedTensor, x: Any, y: Any) -> SharedTensor:
    """X where a secret bit is 1, else y: one round."""
    right = condition.lift(y)
    return right + condition * (condition.lift(x) - right)


def clamp(x: SharedTensor, low: float | None = None, high: float | None = None) -> SharedTensor:
    """X limited to [low, high]: 4 rounds."""
    ends = [int(ring.encode(end, x.scale)) for end in (low, high) if end is not None]
    if low is None:  # min(x, high) = -max(-x, -high)
        return -clamp(-x, -high) if high is not None else x

    def protocol() -> Rounds[tuple[Tensor, comparison.Bits]]:
        bits = np.moveaxis((yield from comparison.at_least(x.party, x.share, ends)), -1, 0)
        over = torch.stack([x.share - (end if x.party.lead else 0) for end in ends])
        selected = yield from comparison.select(x.party, bits, over)
        return (selected[0] - selected[1:].sum(0)), np.bitwise_xor.reduce(bits)

    share, inside = x.run("clamp", protocol())
    out = x.like(share + (ends[0] if x.party.lead else 0))
    return out.recorded((x, lambda g: chosen_by(inside, g)))


def cat(tensors: Sequence[SharedTensor], dim: int = 0) -> SharedTensor:
    """Tensors joined along a dimension."""
    scale = max(tensor.scale for tensor in tensors)
    shares = [tensor.share << (scale - tensor.scale) for tensor in tensors]
    out = tensors[0].like(torch.cat(shares, dim=dim), scale)
    start, sources = 0, []
    for tensor in tensors:
        out = out.combined(tensor, out.share)
        columns = slice(start, start + tensor.shape[dim])

        def part(g: SharedTensor, columns: slice = columns) -> SharedTensor:
            return g[(slice(None),) * (dim % g.ndim) + (columns,)]

        sources.append((tensor, part))
        start = columns.stop
    return out.recorded(*sources)


def stack(tensors: Sequence[SharedTensor], dim: int = 0) -> SharedTensor:
    """Tensors joined along a new dimension."""
    return cat([tensor.unsqueeze(dim) for tensor in tensors], dim)
