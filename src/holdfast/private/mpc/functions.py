"""Functions of shared tensors, each with its domain and its largest error.

Errors are stated for 16 fractional bits, and for the number that is shared: a user's 0.001 is 66 / 2^16. A
value outside of a domain is a `RangeError` before anything is revealed next: it is found in secret, where
the bound of the tensor does not rule it out.

| function | domain | largest error | below |
|-|-|-|-|
| exp | below 15.875 | relative 2^-12, plus 2^-15 | 0 below -16 |
| reciprocal, rsqrt | 2^-10 to 2^20 | relative 2^-14, plus 2^-15 | refused |
| sqrt | 0 to 2^20 | relative 2^-14, plus 2^-15 | refused |
| log | 2^-10 to 2^20 | 2^-14 | refused |
| sigmoid, tanh, erf, gelu, silu | all | 2^-10 | |
| softmax, attention | all | 2^-11 | |
| layer_norm, rms_norm | all | 2^-9, plus 2^-14 / standard deviation | |
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce, wraps
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from holdfast.private.mpc import arithmetic, comparison, ring
from holdfast.private.mpc.bounds import ZERO, Bound
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.rounds import Rounds, parallel
from holdfast.private.mpc.tables import (
    MANTISSA_BITS,
    Parabolas,
    RealFunction,
    look_up,
    normalize,
    of_mantissa,
    on_parabolas,
    parabolas,
    signed_places,
)
from holdfast.private.mpc.tensor import SharedTensor

# --- Functions of a bounded argument -------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A function by a table on [-radius, radius), constant or linear beyond.

    Args:
        name: of the function.
        function: of the table.
        radius: power of two.
        bits: width of the table's places.
        tail: multiple of x that the function is above the radius; 0 where it is constant there.
    """

    name: str
    function: RealFunction
    radius: int
    bits: int = 6
    tail: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """What it is below the radius, and above it less its tail."""
        if self.tail:
            return 0.0, 0.0
        low, high = self.function(np.array([-2.0, 2.0]) * self.radius)
        return float(low), float(high)

    @property
    def range(self) -> Bound:
        """Where its values are, without the tail."""
        inside = self.function(np.linspace(-self.radius, self.radius, 4096))
        return Bound.around(torch.tensor([*inside, *self.ends]))

    def __call__(self, x: SharedTensor) -> SharedTensor:
        """The function of a tensor: 5 rounds, 6 with a tail."""
        x = x.finite().argument()
        table = _table(self, x.scale)
        bound = self.range.widened(2.0**-7)
        if self.tail:
            bound = bound.union(x.bound.clipped(0.0, math.inf).widened(2.0**-7))
        with x.scope(self.name):
            share = x.party.run(self._protocol(x.party, x.share, x.scale, table))
            scale = x.scale if self.tail else table.scale
            out = x.like(share, scale, bound, keep=x.scale).narrowed()
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
            pair = np.stack([inside, above])
            value, tail = yield from comparison.select(party, pair, torch.stack([value, x]))
            return tail + (yield from arithmetic.truncate(party, value, table.scale - scale))
        low, high = (int(ring.encode(end, table.scale)) for end in self.ends)
        if party.lead:
            value = value - low
        selected, over = yield from parallel(
            comparison.select(party, inside, value), comparison.to_arithmetic(party, above)
        )
        total = selected + over * (high - low)
        return total + low if party.lead else total


@lru_cache(maxsize=64)
def _table(curve: Curve, scale: int) -> Parabolas:
    """Its table for arguments of so many fractional bits."""
    step = 2.0 * curve.radius / (1 << curve.bits)
    shift = scale + round(math.log2(step))
    return parabolas(curve.function, signed_places(curve.bits) * step, shift, scale)


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
    """e^x for x below 15.875 at 16 fractional bits, or (61 - 2 bits) ln 2; 0 below -16: 5 rounds.

    A table of e^k at multiples k of 1/8, times a parabola for the rest.
    """
    x = x.finite().argument()
    top = _largest_exponent(x.scale)
    with x.scope("exp"):
        share, inside = x.party.run(_exp(x.party, x.share, x.scale))
        if x.bound.high >= top:
            x.party.require(inside, f"below {top:g}")
    bound = Bound(0.0, math.exp(min(top, x.bound.high)) * 1.001 + 2.0**-10)
    out = x.like(share, 2 * x.scale, bound)
    return out.recorded((x, lambda g: g * out))


def _largest_exponent(scale: int) -> float:
    """The end of the domain: e^x with 2 `scale` fractional bits must stay below 2^61."""
    return min(16.0 - 2.0**-3, math.floor(8 * math.log(2) * (61 - 2 * scale)) / 8 - 2.0**-3)


def _exp(party: Party, x: Tensor, scale: int) -> Rounds[tuple[Tensor, comparison.Bits]]:
    """e^x with 2 `scale` fractional bits, 0 outside of -16 to `_largest_exponent`; the bits "not above"."""
    top = _largest_exponent(scale)
    limits = [-16 << scale, int(top * 2**scale)]
    value, bits = yield from parallel(
        _exp_inside(party, x, scale, top), comparison.at_least(party, x, limits)
    )
    selected = yield from comparison.select(party, bits[..., 0] ^ bits[..., 1], value)
    return selected, bits[..., 1] ^ np.uint8(party.lead)


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


_LEAST_UNITS_BITS = (
    10  # of numbers that lost bits for the sake of large ones: 2^-10 of them is 1e-3
)


@dataclass(frozen=True)
class _Split:
    """A function by mantissa and exponent: of_m(m) * of_e(e), or their sum, for x = m 2^e.

    Args:
        name: of the function.
        of_m: of the mantissa, 1 to 2.
        of_e: of the exponent.
        range: bound of the function on [low, high].
        slope: the derivative, from x and the function's value.
        combine: ``mul`` or ``add``.
        zero: whether 0 is in the domain, and what lies between it and `low`.
        divides: the power of x in the denominator.
    """

    name: str
    of_m: RealFunction
    of_e: RealFunction
    range: Callable[[float, float], tuple[float, float]]
    slope: Callable[[SharedTensor, SharedTensor], SharedTensor]
    combine: str = "mul"
    zero: bool = False
    divides: float = 0.0

    def __call__(
        self,
        x: SharedTensor,
        *,
        low: float = 2.0**-10,
        high: float = 2.0**20,
        signed: bool = False,
        extra_bits: float | None = None,
    ) -> SharedTensor:
        """The function of x in [low, high]; `extra_bits` fractional bits more than the party's are kept."""
        whole = x
        x = x.checked().unmasked().fractional()
        if extra_bits is None:  # a quotient by a large number keeps its bits
            extra_bits = self.divides * max(0.0, min(math.log2(high), x.bound.bits))
        low = max(low, x.bound.low) if not signed and not self.zero else low
        high = max(low, min(high, 2.0 ** math.ceil(x.bound.bits)))
        spare = x.scale + max(0, math.ceil(math.log2(high))) - 58
        first = max(0, math.floor(math.log2(low)) + x.scale) if not self.zero else 0
        if spare > 0:  # room for the mantissa
            x = x.like(x.share, keep=x.scale).narrowed(x.scale - spare)
            least = 0 if self.zero else _LEAST_UNITS_BITS
            first = max(least, first - spare)
        last = max(first, math.ceil(math.log2(high)) - 1 + x.scale)
        ends = self.range(2.0 ** (first - x.scale), 2.0 ** (last + 1 - x.scale))
        bound = Bound.of(ends).widened(2.0**-10).times(1 + 2.0**-10)
        bound = bound.union(-bound) if signed else bound
        factors = self.of_e(np.arange(first, last + 1, dtype=np.float64) - x.scale)
        largest = float(np.abs(factors).max())
        bits = MANTISSA_BITS
        if self.combine == "mul":
            bits = 58 - MANTISSA_BITS - math.ceil(math.log2(largest))
        weights = torch.from_numpy(np.round(factors * 2.0**bits).astype(np.int64))
        with x.scope(self.name):
            share = x.party.run(self._protocol(x, first, last, weights, signed))
            scale = MANTISSA_BITS + (0 if self.combine == "add" else bits)
            keep = min(x.party.fraction_bits + math.ceil(extra_bits), bound.room, scale)
            out = x.like(share, scale, bound, keep=keep).narrowed()
        return out.recorded((whole, lambda g: g * self.slope(whole, out)))

    def _protocol(
        self, x: SharedTensor, first: int, last: int, weights: Tensor, signed: bool
    ) -> Rounds[Tensor]:
        least = 0.0 if self.zero else 2.0**first
        top = 1 << (last + 1)
        below = signed or x.bound.low * 2.0**x.scale < least * (1 - 2.0**-6)
        above = x.bound.magnitude * 2.0**x.scale > top
        ends = [0] * (below and self.zero) + [top + 1] * above + [-top] * (above and signed)
        number = yield from normalize(x.party, x.share, first, last, signed, ends)
        # 1 for numbers in the domain: at least its lower end, and not above the upper one.
        inside = np.bitwise_xor.reduce(number.ends, axis=-1)
        if below and not self.zero:
            inside = inside ^ number.nonzero
        if not below or (above and signed):  # all reach the lower end, or minus the upper one
            inside = inside ^ np.uint8(x.party.lead)
        if below or above:
            ends_of = (least * 2.0**-x.scale, top * 2.0**-x.scale)
            x.party.require(inside, f"{ends_of[0]:g} to {ends_of[1]:g}" + " in magnitude" * signed)
        value = yield from of_mantissa(x.party, number.mantissa, self.of_m)
        scaled = (number.exponent * weights).sum(-1)
        if self.combine == "add":
            return value + scaled
        return (yield from arithmetic.product(x.party, "mul", value, scaled))


reciprocal = _Split(
    "reciprocal",
    lambda m: 1 / m,
    lambda e: 2.0**-e,
    lambda low, high: (0.0, 1 / low),
    lambda x, out: -(out * out),
    divides=1.0,
)
sqrt = _Split(
    "sqrt",
    np.sqrt,
    lambda e: 2.0 ** (e / 2),
    lambda low, high: (0.0, math.sqrt(high)),
    lambda x, out: reciprocal(out) * 0.5,
    zero=True,
)
log = _Split(
    "log",
    np.log,
    lambda e: e * math.log(2),
    lambda low, high: (math.log(low), math.log(high)),
    lambda x, out: reciprocal(x),
    combine="add",
)


def _rsqrt_times(multiple: float) -> _Split:
    """`multiple` / sqrt(x)."""
    return _Split(
        "rsqrt",
        lambda m: m**-0.5,
        lambda e: multiple * 2.0 ** (-e / 2),
        lambda low, high: (0.0, multiple * low**-0.5),
        lambda x, out: out**3 * (-0.5 / multiple**2),
        divides=0.5,
    )


rsqrt = _rsqrt_times(1.0)


# --- Softmax and normalizations ------------------------------------------------------------------


def _powers(x: SharedTensor) -> tuple[SharedTensor, SharedTensor, SharedTensor]:
    """X less its maximum, e to that, and the sum of these powers, which is at least 1."""
    x = x.detach()
    largest = x.amax(-1, keepdim=True)
    shifted = x - largest
    shifted.bound = Bound(x.bound.low - x.bound.high, 0.0)
    shifted = shifted.argument()
    share = x.party.run(_exp_at_most_zero(x.party, shifted.share, shifted.scale))
    powers = shifted.like(share, shifted.scale, Bound(0.0, 1.0 + 2.0**-10), keep=shifted.scale)
    total = powers.sum(-1, keepdim=True)
    total.bound = Bound(1.0, total.bound.high)
    return shifted, powers, total


def _along(function: Callable[[SharedTensor], SharedTensor]) -> Callable[..., SharedTensor]:
    """A function along the last dimension as one along any."""

    @wraps(function)
    def along(x: SharedTensor, dim: int = -1) -> SharedTensor:
        with x.scope(function.__name__):
            return function(x.transpose(dim, -1)).transpose(dim, -1)  # type: ignore[no-any-return]

    return along


@_along
def softmax(x: SharedTensor) -> SharedTensor:
    """Softmax along a dimension: the maximum is subtracted first."""
    x = x.finite([-1]).fractional().narrowed()
    _, powers, total = _powers(x)
    inverse = reciprocal(total)
    out = powers.product(inverse, "mul", bound=Bound(0.0, 1.0 + 2.0**-8))

    def back(g: SharedTensor) -> SharedTensor:
        weighted = g * out
        return weighted - out * weighted.sum(-1, keepdim=True)

    return out.recorded((x, back))


@_along
def log_softmax(x: SharedTensor) -> SharedTensor:
    """Logarithm of the softmax along a dimension."""
    x = x.unmasked().fractional().narrowed()
    shifted, powers, total = _powers(x)
    out = shifted - log(total)

    def back(g: SharedTensor) -> SharedTensor:
        shares = powers.product(reciprocal(total), "mul", bound=Bound(0.0, 1.1))
        return g - shares * g.sum(-1, keepdim=True)

    return out.recorded((x, back))


def layer_norm(
    x: SharedTensor,
    shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> SharedTensor:
    """Layer normalization over the last ``len(shape)`` dimensions."""
    dims = _last(x, shape)
    with x.scope("layer_norm"):
        x = x.fractional()
        centered = (x - x.mean(dims, keepdim=True)).narrowed()
        distance = x.bound.high - x.bound.low
        centered.bound = centered.bound.clipped(-distance, distance)
        return _normalized(centered, dims, weight, bias, eps)


def rms_norm(
    x: SharedTensor, shape: Sequence[int], weight: Any = None, eps: float = 1e-5
) -> SharedTensor:
    """Root-mean-square normalization over the last ``len(shape)`` dimensions."""
    with x.scope("rms_norm"):
        dims = _last(x, shape)
        return _normalized(x.fractional().narrowed(), dims, weight, None, eps)


def _last(x: SharedTensor, shape: Sequence[int]) -> tuple[int, ...]:
    """The last dimensions, which must have these sizes."""
    if x.shape[-len(shape) :] != tuple(shape):
        raise ring.invalid("shape", shape, f"the last sizes of {x.shape}")
    return tuple(range(-len(shape), 0))


def _normalized(
    x: SharedTensor, dims: tuple[int, ...], weight: Any, bias: Any, eps: float
) -> SharedTensor:
    """X / sqrt(mean of x^2 + eps), by the sum of squares: sqrt(n) / sqrt(sum + n eps)."""
    count = math.prod(x.shape[dim] for dim in dims)
    squares = x.square()
    squares.keep = squares.scale  # small rows need these bits
    total = squares.sum(dims, keepdim=True)
    total = total + count * eps
    high = max(1.0, total.bound.high)
    deviation = math.ceil(max(0.0, math.log2(high / count) / 2))
    low = max(count * eps / 2, 2.0 ** (_LEAST_UNITS_BITS - total.scale))
    inverse = _rsqrt_times(math.sqrt(count))(total, low=low, high=high, extra_bits=deviation)
    largest = math.sqrt(count) * (1 + 2.0**-8)
    out = x.product(inverse, "mul", bound=Bound(-largest, largest))
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def attention(
    query: SharedTensor,
    key: SharedTensor,
    value: SharedTensor,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> SharedTensor:
    """Scaled dot-product attention ``[..., L, d], [..., S, d], [..., S, e] -> [..., L, e]``.

    Args:
        query: queries.
        key: keys.
        value: values.
        mask: True where a query sees a key; or numbers that are added to the scores, public with minus
            infinities, or secret. A query that sees no key gets zeros, as in torch.
        dropout: has no meaning here.
        is_causal: a query sees keys up to its place; without a mask.
        scale: of the scores; 1 / sqrt(d) by default.
        enable_gqa: must be false.

    Raises:
        InputError: ``conflict`` for a mask beside `is_causal`.
    """
    if is_causal and mask is not None:
        raise ring.invalid("mask", "a mask and is_causal", "one of them", "conflict")
    with query.scope("attention"):
        factor = scale if scale is not None else query.shape[-1] ** -0.5
        scores = query @ key.T * factor
        if is_causal:
            mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
        if mask is not None:
            if not isinstance(mask, SharedTensor) and mask.dtype == torch.bool:
                mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
            scores = scores + mask
        seen = torch.ones(1, dtype=torch.int64)
        if scores.masked is not None:
            seen = scores.masked.amin(-1, keepdim=True) ^ 1
            scores.masked = scores.masked * seen
        weights = softmax(scores)
        largest = value.bound.union(ZERO).times(1 + 2.0**-6)
        out = weights.product(value, "matmul", bound=largest)
        return out if bool(seen.all()) else out * seen


# --- Layers --------------------------------------------------------------------------------------


def linear(x: SharedTensor, weight: Any, bias: Any = None) -> SharedTensor:
    """``x weight^T + bias``, with torch's ``[outputs, inputs]`` weight."""
    out = x.product(weight, "linear")
    return out if bias is None else out + bias


Size = int | Sequence[int]
"""One number for both directions, or two."""


def _pair(value: Size) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


def conv2d(
    x: SharedTensor,
    weight: Any,
    bias: Any = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> SharedTensor:
    """Convolution ``[N, C, H, W] -> [N, O, oh, ow]`` or ``[N, C, L] -> [N, O, ol]``.

    Padding may be ``same`` or ``valid``.
    """
    if weight.ndim == 3:  # of images of height 1
        edge = padding if isinstance(padding, str) else (0, _pair(padding)[1])
        high = x.unsqueeze(2), with_height(weight)
        return conv2d(*high, bias, stride, edge, dilation, groups).squeeze(2)  # type: ignore[no-any-return]
    dilation = _pair(dilation)
    if padding == "same":  # the odd zero is at the end, as in torch
        spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        x = x.pad([width for span in spans[::-1] for width in (span // 2, span - span // 2)])
    options = (
        ("stride", _pair(stride)),
        ("padding", _pair(0 if isinstance(padding, str) else padding)),
        ("dilation", dilation),
        ("groups", groups),
    )
    out = x.product(weight, "conv2d", options)
    if bias is None:
        return out
    shaped = bias if isinstance(bias, SharedTensor) else torch.as_tensor(bias)
    return out + shaped.reshape(1, -1, 1, 1)


conv1d = conv2d


def with_height(weight: Any) -> Any:
    """A kernel of one dimension as one of two; that of a fixed weight is made once."""
    if getattr(weight, "fixed", None) is None:
        return weight.unsqueeze(2)
    if "fixed_height" not in vars(weight):
        weight.fixed_height = weight.unsqueeze(2).fix()
        weight.fixed_height.row_sum = weight.row_sum
    return weight.fixed_height


def max_pool2d(
    x: SharedTensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
) -> SharedTensor:
    """Maximum over windows; padding counts as minus infinity."""
    with x.scope("max_pool2d"):
        pixels = torch.ones_like(x.share[:1, :1])
        geometry = _window_geometry(kernel_size, stride, padding, dilation)
        if not bool(ring.patches(pixels, *geometry).amax((2, 3)).all()):
            raise ring.invalid("padding", padding, "less, so that every window has a pixel")
        height, width = _pair(padding)
        x = x.pad((width, width, height, height), x.bound.low)
        return _windows(x, kernel_size, stride, 0, dilation).amax((2, 3))  # type: ignore[no-any-return]


def avg_pool2d(
    x: SharedTensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
) -> SharedTensor:
    """Mean over windows; padding counts as zeros. No communication."""
    return _windows(x, kernel_size, stride, padding).mean((2, 3))  # type: ignore[no-any-return]


def _windows(x: SharedTensor, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> Any:
    """``[N, C, H, W] -> [N, C, kh, kw, oh, ow]``, with zeros at the edges."""
    geometry = _window_geometry(kernel, stride, padding, dilation)
    return x.moved(ring.patches, *geometry, fills=padding not in (0, (0, 0), [0, 0]))


def _window_geometry(kernel: Any, stride: Any, *others: Any) -> Sequence[tuple[int, int]]:
    """Kernel, stride (by default the kernel), padding and dilation, of both directions."""
    return [
        _pair(each) for each in (kernel, kernel if stride in (None, [], ()) else stride, *others)
    ]


def one_hot(index: SharedTensor, classes: int) -> SharedTensor:
    """Unit vectors of secret integers from 0 to ``classes - 1``: ``[...] -> [..., classes]``. One round."""
    index = index.unmasked()
    bits = max(1, (classes - 1).bit_length())
    table = torch.eye(1 << bits, dtype=torch.int64)[:, :classes]

    def protocol() -> Rounds[Tensor]:
        entry = look_up(index.party, index.share, table, 0, bits)
        if index.bound.low >= 0 and index.bound.high <= classes - 1:
            return (yield from entry)
        checked = comparison.at_least(index.party, index.share, (0, classes))
        out, ends = yield from parallel(entry, checked)
        index.party.require(ends[..., 0] ^ ends[..., 1], f"0 to {classes - 1}")
        return out

    return index.like(index.run("one_hot", protocol()), 0, Bound(0.0, 1.0))


def embedding(index: SharedTensor, weight: Any) -> SharedTensor:
    """Rows of a weight ``[entries, d]`` at secret integers: ``[...] -> [..., d]``. Two rounds."""
    with index.scope("embedding"):
        vectors = one_hot(index, weight.shape[0])
        if not isinstance(weight, SharedTensor):
            return vectors.product(weight, "matmul")
        return vectors.product(weight, "matmul", bound=weight.bound.union(ZERO))


def where(condition: Any, x: Any, y: Any) -> Any:
    """X where a bit is 1, else y: one round for a secret bit, none for a public one.

    Public values may be minus infinity. Secret integers are checked to be bits, where that is not known.
    """
    if not isinstance(condition, SharedTensor):
        if isinstance(x, SharedTensor) and isinstance(y, SharedTensor):
            return where(condition, x - y, 0.0) + y
        if isinstance(x, SharedTensor):
            public = torch.where(condition, 0.0, torch.as_tensor(y, dtype=torch.float64))
            return x * condition.to(torch.int64) + public
        if isinstance(y, SharedTensor):
            return where(~condition, y, x)
        return torch.where(condition, torch.as_tensor(x), torch.as_tensor(y))
    if condition.scale:
        raise ring.invalid("condition", "numbers with fractional bits", "bits, as of a comparison")
    condition = condition.within((0.0, 1.0))
    left, right = condition.lift(x), condition.lift(y)
    out = right + condition * (left - right)
    either = left.bound.union(right.bound).widened(2.0**-8)
    out.bound = out.bound.clipped(either.low, either.high)
    return out


def sign(x: SharedTensor) -> SharedTensor:
    """-1, 0 or 1: 4 rounds. Its gradient is 0."""
    x = x.finite()

    def protocol() -> Rounds[Tensor]:
        bits = yield from comparison.at_least(x.party, x.share, (0, 1))
        return (yield from comparison.to_arithmetic(x.party, bits))

    share = x.run("sign", protocol()).sum(-1)
    return x.like(share - int(x.party.lead), 0, Bound(-1.0, 1.0))


def abs(x: SharedTensor) -> SharedTensor:
    """The magnitude: 4 rounds."""
    return x.relu() * 2 - x


def maximum(x: Any, y: Any) -> SharedTensor:
    """The larger of two: 4 rounds."""
    return (x - y).relu() + y  # type: ignore[no-any-return]


def minimum(x: Any, y: Any) -> SharedTensor:
    """The smaller of two: 4 rounds."""
    return x - (x - y).relu()  # type: ignore[no-any-return]


def leaky_relu(x: SharedTensor, negative_slope: float = 0.01) -> SharedTensor:
    """X, times a slope below 0: 4 rounds."""
    return x * negative_slope + x.relu() * (1 - negative_slope)


def hardtanh(x: SharedTensor, min_val: float = -1.0, max_val: float = 1.0) -> SharedTensor:
    """X limited to an interval: 4 rounds."""
    return clamp(x, min_val, max_val)


def relu6(x: SharedTensor) -> SharedTensor:
    """X limited to 0 to 6: 4 rounds."""
    return clamp(x, 0.0, 6.0)


def hardsigmoid(x: SharedTensor) -> SharedTensor:
    """(x + 3) / 6, limited to 0 to 1: 4 rounds."""
    return relu6(x + 3.0) * (1 / 6)


def hardswish(x: SharedTensor) -> SharedTensor:
    """X times its `hardsigmoid`: 5 rounds."""
    return x * hardsigmoid(x)


def clamp(x: SharedTensor, min: float | None = None, max: float | None = None) -> SharedTensor:
    """X limited to [min, max]: 4 rounds."""
    x.party.agree("clamp", min, max)
    high = math.inf if max is None else max
    low = -math.inf if min is None else builtins.min(min, high)
    if not low <= high:
        raise ring.invalid("end of clamp", math.nan, "a number")
    # Ends that the bound keeps anyway need no comparison.
    ends = [low] * (low > x.bound.low) + [high] * (high < x.bound.high)
    if not ends:
        return x
    over = list(stack([x - end for end in ends]).relu())
    out = over.pop(0) + low if low > x.bound.low else x
    out = out - over.pop() if over else out
    limits = x.bound.clipped(low, high).widened(2.0 ** (1 - out.keep))
    out.bound = out.bound.clipped(limits.low, limits.high)
    return out


def cat(tensors: Sequence[SharedTensor], dim: int = 0) -> SharedTensor:
    """Tensors joined along a dimension."""
    bound = reduce(Bound.union, (tensor.bound for tensor in tensors))
    parts = [tensor.with_room(bound.finite()) for tensor in tensors]
    scale = max(part.scale for part in parts)

    def joined(*shares: Tensor) -> Tensor:
        moves = zip(shares, parts, strict=True)
        return torch.cat([share << (scale - part.scale) for share, part in moves], dim=dim)

    out = parts[0].mapped(joined, *parts[1:], scale=scale, bound=bound)
    start, sources = 0, []
    for tensor in tensors:
        place = (dim, start, tensor.shape[dim])
        sources.append((tensor, lambda g, place=place: g.narrow(*place)))
        start += tensor.shape[dim]
    return out.recorded(*sources)


def stack(tensors: Sequence[SharedTensor], dim: int = 0) -> SharedTensor:
    """Tensors joined along a new dimension."""
    return cat([tensor.unsqueeze(dim) for tensor in tensors], dim)
