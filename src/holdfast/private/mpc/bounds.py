"""Where secret numbers can be, and how their products stay inside the ring.

Every shared tensor carries a public `Bound`. Bounds follow from what is public: declarations of an input's
owner, sizes, public operands, ranges of functions. They go through every operation by interval arithmetic,
before the operation sends anything, and choose fractional bits so that

    |value| * 2^scale <= 2^62

holds for every tensor: exact truncation and comparison need the two top bits. Where one product would leave
that range it is split into limbs (`plan_product`, `public_limbs`), which costs bytes instead of precision;
then fractional bits go, down to `LEAST_BITS`; what is left is refused (`ring.RangeError`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc.ring import LIMIT_BITS, encode, invalid

DEFAULT = 1024 - 2.0**-10
"""Largest magnitude of inputs without a declared bound."""
DEFAULT_INTEGER = 2.0**31 - 1
LEAST_BITS = 10
"""Fractional bits that an operation may not go below: 2^-10 is 1e-3 of one."""
MOST_BITS = 26
"""Fractional bits that functions take."""
LARGEST_SCALE = 46
"""Fractional bits of public factors, weights, and numbers that are all small."""
MASKED_BELOW = 64.0
"""Distance of masked values from all others: e^-64 is 0."""
_LIMIT = LIMIT_BITS - 2.0**-30  # 2^62 itself is outside

Limits = float | Sequence[float]
"""A largest magnitude, or (lowest, highest)."""


@dataclass(frozen=True)
class Bound:
    """An interval in which all values of a tensor lie; public.

    Args:
        low: lower end; minus infinity where values are masked.
        high: upper end.
        floor: lower end of the numbers that are stored, those under masks too, where `low` is infinite.
    """

    low: float
    high: float
    floor: float | None = None

    @staticmethod
    def of(limits: Limits | Bound) -> Bound:
        """The bound that a caller declares: a magnitude, or (low, high)."""
        if isinstance(limits, Bound):
            return limits
        if isinstance(limits, (int, float)):
            limits = (-limits, limits)
        low, high = map(float, limits)
        if not low <= high:
            raise invalid("bound", limits, "a magnitude, or (lowest, highest)")
        return Bound(low, high)

    @staticmethod
    def around(values: Tensor) -> Bound:
        """The smallest bound of public values."""
        if not values.numel():
            return ZERO
        low, high = torch.aminmax(values.to(torch.float64))
        return Bound(float(low), float(high))

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def bits(self) -> float:
        """Binary logarithm of the magnitude."""
        return _log2(self.magnitude)

    @property
    def room(self) -> int:
        """The largest scale at which the values fit into the ring."""
        return math.floor(_LIMIT - self.bits) if self.magnitude < math.inf else -1100

    def fits(self, scale: int) -> bool:
        """Whether the values fit into the ring with so many fractional bits."""
        return self.bits + scale <= _LIMIT

    def scale(self, bits: int) -> int:
        """Fractional bits to keep of the values: `bits`, and more where all of them are small."""
        more = math.floor(max(0.0, -self.bits)) if self.magnitude else 0
        return min(bits + more, LARGEST_SCALE)

    def finite(self) -> Bound:
        """The bound of what is stored, as if nothing was masked."""
        return self if self.floor is None else Bound(self.floor, self.high)

    def clipped(self, low: float, high: float) -> Bound:
        """The bound of the values limited to an interval."""
        ends = min(max(self.low, low), high), max(min(self.high, high), low)
        masked = self.floor is not None and low == -math.inf
        return Bound(*ends, min(self.finite().low, high) if masked else None)

    def times(self, factor: float) -> Bound:
        """The bound of multiples, and of sums of so many values."""
        ends = (_times(self.low, factor), _times(self.high, factor))
        return Bound(min(ends), max(ends))

    def product(self, other: Bound, count: int = 1) -> Bound:
        """The bound of a sum of `count` products."""
        corners = [_times(x, y) for x in (self.low, self.high) for y in (other.low, other.high)]
        return Bound(min(corners), max(corners)).times(count)

    def union(self, other: Bound) -> Bound:
        """The bound of values of either."""
        low = min(self.finite().low, other.finite().low)
        return self._masked_as(other, low, max(self.high, other.high))

    def widened(self, by: float) -> Bound:
        """The bound where each value is off by less than `by`."""
        return Bound(self.low - by, self.high + by, None if self.floor is None else self.floor - by)

    def __add__(self, other: Bound) -> Bound:
        low = self.finite().low + other.finite().low
        return self._masked_as(other, low, self.high + other.high)

    def _masked_as(self, other: Bound, low: float, high: float) -> Bound:
        """A bound of numbers that are masked where those of either are."""
        if self.floor is None and other.floor is None:
            return Bound(low, high)
        return Bound(-math.inf, high, low)

    def __neg__(self) -> Bound:
        return Bound(-self.high, -self.low)


ZERO = Bound(0.0, 0.0)
"""Of zeros."""


def _log2(magnitude: float) -> float:
    return math.log2(magnitude) if magnitude > 2.0**-1000 else -1000.0


def _times(x: float, y: float) -> float:
    return 0.0 if x == 0.0 or y == 0.0 else x * y  # an infinite bound times nothing is nothing


def summed(op: str, *, left: bool = False) -> tuple[int, ...]:
    """The dimensions of an operand that one entry of a bilinear product sums over.

    Args:
        op: as `ring.BILINEAR` names it.
        left: whether it is the left operand, which only ``matmul`` has.
    """
    dims = {
        "matmul": (-1 if left else -2,),
        "linear": (1,),
        "conv2d": (1, 2, 3),
        "conv2d_input": (0, 2, 3),
        "conv2d_weight": (0, 2, 3),
    }
    return dims.get(op, ())


def count_of(shape: Sequence[int], dims: Sequence[int]) -> int:
    """How many entries there are along some dimensions."""
    return math.prod(shape[dim] for dim in dims)


# --- Products of two shared tensors --------------------------------------------------------------


@dataclass(frozen=True)
class ProductPlan:
    """How to multiply two shared tensors.

    Args:
        left: fractional bits of the left operand.
        right: those of the right one.
        split: operand that is split into two limbs; None: one product does.
        limb: bits of the low limb.
        scale: fractional bits of the result.
    """

    left: int
    right: int
    split: str | None
    limb: int
    scale: int


def plan_product(
    scales: tuple[int, int],
    result: Bound,
    sums: tuple[float, float],
    fraction_bits: int,
    *,
    split: str = "either",
) -> ProductPlan | None:
    """The cheapest way to a product that stays inside the ring; None: there is none.

    Args:
        scales: fractional bits of the operands.
        result: bound of the product.
        sums: bound of the sum of the magnitudes of each operand's entries in one entry of the product.
        fraction_bits: fractional bits wanted of a product by limbs.
        split: the operand that may be split or lose bits: ``left``, ``right``, ``either``.
    """
    left, right = scales
    scale = min(fraction_bits, result.room)
    while True:
        total = left + right
        if result.fits(total):
            return ProductPlan(left, right, None, 0, total)
        if scale < min(fraction_bits, LEAST_BITS):
            return None
        # x = high 2^limb + low: high * y must fit, and so must low * y, |low| < 2^limb.
        bits = {"left": left + _log2(sums[0]), "right": right + _log2(sums[1])}
        for side in sorted(bits, key=lambda each: -bits[each]):
            other = bits["right" if side == "left" else "left"]
            least = math.ceil(result.bits + total - LIMIT_BITS + 1)
            most = math.floor(LIMIT_BITS - 1 - other)
            if split in (side, "either") and least <= most:
                limb = min(most, max(least, total - scale))
                return ProductPlan(left, right, side, limb, scale)
        # Fractional bits that no limb can hold go, of the operand that has more.
        if split != "right" and left > LEAST_BITS and (left >= right or split == "left"):
            left -= 1
        elif split != "left" and right > LEAST_BITS:
            right -= 1
        elif split == "either" and left > LEAST_BITS:
            left -= 1
        else:
            return None


# --- Products with public factors ----------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """A public factor as integers: encoded = factor * 2^scale."""

    encoded: Tensor
    scale: int

    @property
    def values(self) -> Tensor:
        """The numbers that are multiplied with, float64."""
        return self.encoded.to(torch.float64) * 2.0**-self.scale


def factor_scale(values: Tensor, fraction_bits: int, largest: float = math.inf) -> int:
    """Fractional bits at which the smallest row and column keep their bits, or err below the last place.

    Args:
        values: float64.
        fraction_bits: bits that a row whose largest entry is 1 gets.
        largest: sum of the magnitudes that an error of one entry is multiplied with.
    """
    sizes = values.abs()
    top = float(sizes.max()) if sizes.numel() else 0.0
    if top == 0.0:
        return 0
    axes = [axis for axis, size in enumerate(sizes.shape) if size > 1]
    others = [[each for each in range(sizes.ndim) if each != axis] for axis in axes]
    lines = [sizes.amax(dims) if dims else sizes for dims in others] or [sizes]
    # A row 2^-30 times as large as the largest is dead: it changes nothing.
    alive = (line[line > top * 2.0**-30] for line in lines)
    relative = math.ceil(-_log2(min(float(line.min()) for line in alive)))
    absolute = math.ceil(min(_log2(largest), 1000.0)) + 1
    fits = LIMIT_BITS - 1 - math.ceil(_log2(top))
    return min(max(0, min(relative, absolute)) + fraction_bits, LARGEST_SCALE, fits)


def public_factor(values: Tensor, scale: int, least: int) -> Factor:
    """A factor as integers, without the zeros that all entries end in: 0.5 is 1, of one fractional bit.

    Args:
        values: any shape.
        scale: fractional bits to round to.
        least: fractional bits that are left at least.
    """
    if not values.is_floating_point():
        return Factor(encode(values, 0, "factor"), 0)
    encoded = encode(values, scale, "factor")
    together = int(np.bitwise_or.reduce(encoded.numpy(), axis=None)) if encoded.numel() else 0
    zeros = (together & -together).bit_length() - 1 if together else scale
    zeros = max(0, min(zeros, scale - least))
    return Factor(encoded >> zeros, scale - zeros)


def bound_with_factor(bound: Bound, factor: Tensor, op: str, *, left: bool) -> tuple[Bound, float]:
    """The bound of a product with a public factor, and that of the sum of the other operand's magnitudes.

    Args:
        bound: of the secret operand.
        factor: float64.
        op: as `ring.BILINEAR` names it.
        left: whether the factor is the left operand.
    """
    dims = summed(op, left=left)
    if not factor.numel():
        return ZERO, 0.0
    positive, negative = factor.clamp(min=0), (-factor).clamp(min=0)
    if dims:
        positive, negative = positive.sum(dims), negative.sum(dims)
    if math.isinf(bound.low):
        return Bound(-math.inf, math.inf), math.inf
    ends = [
        positive * at - negative * other
        for at, other in ((bound.low, bound.high), (bound.high, bound.low))
    ]
    return Bound(float(ends[0].min()), float(ends[1].max())), bound.magnitude * count_of(
        factor.shape, dims
    )


def public_limbs(encoded: Tensor, width: int) -> list[Tensor]:
    """Integers as limbs of `width` bits, lowest first, each at most 2^(width - 1) in magnitude."""
    limbs = []
    half = 1 << (width - 1)
    while bool((encoded != 0).any()):
        low = ((encoded + half) & ((1 << width) - 1)) - half
        limbs.append(low)
        encoded = (encoded - low) >> width
    return limbs or [encoded]


# --- Weights -------------------------------------------------------------------------------------


class WeightFacts(NamedTuple):
    """What the owner of a weight declares of it; powers of two, and public.

    Args:
        scale: fractional bits at which its smallest row and column keep the party's bits.
        bits: magnitudes are below 2^bits.
        row_bits: sums of magnitudes over an output's inputs are below 2^row_bits.
    """

    scale: int
    bits: int
    row_bits: int


Role = Literal["weight", "factor", "term"]


def weight_facts(weight: Tensor, fraction_bits: int, *, role: Role) -> WeightFacts:
    """The facts of a weight ``[outputs, inputs, ...]``.

    Args:
        weight: any shape.
        fraction_bits: of the party.
        role: the right operand of a layer's product, another factor, or a term of a sum.
    """
    values = weight.detach().to(torch.float64)
    sizes = values.abs()
    largest = float(sizes.max()) if sizes.numel() else 0.0
    rows = float(sizes.flatten(1).sum(1).max()) if role == "weight" and largest else largest
    bits, row_bits = (math.floor(_log2(each)) + 1 if each else 0 for each in (largest, rows))
    scale = fraction_bits if role == "term" else factor_scale(values, fraction_bits)
    return WeightFacts(max(fraction_bits, min(scale, LARGEST_SCALE - max(bits, 0))), bits, row_bits)
