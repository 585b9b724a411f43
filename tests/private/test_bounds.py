"""Intervals, plans and limbs against exact fractions: what a plan says stays inside the ring does."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from holdfast.private.mpc import bounds
from holdfast.private.mpc.bounds import Bound, ProductPlan, plan_product

LIMIT = 2**62
sizes = st.one_of(
    st.floats(-(2.0**50), 2.0**50),
    st.floats(-(2.0**-30), 2.0**-30),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1024.0, 5e-324, 2.0**46, -(2.0**61)]),
)
intervals = st.tuples(sizes, sizes).map(sorted).map(lambda pair: Bound(*pair))
shares = st.fractions(0, 1)


def inside(bound: Bound, share: Fraction) -> Fraction:
    """A value of an interval, exactly."""
    low, high = Fraction(bound.low), Fraction(bound.high)
    return low + (high - low) * share


def contains(bound: Bound, value: Fraction) -> bool:
    """Whether a value is inside, but for the rounding of the ends in float64."""
    slack = (abs(value) + Fraction(bound.magnitude)) / 2**50 + Fraction(5e-324)
    return Fraction(bound.low) - slack <= value <= Fraction(bound.high) + slack


@given(intervals, intervals, shares, shares, st.integers(1, 1000), sizes)
@pytest.mark.examples(60)
def test_values_stay_in_the_intervals_of_their_operations(
    a: Bound, b: Bound, s: Fraction, t: Fraction, count: int, factor: float
) -> None:
    x, y = inside(a, s), inside(b, t)
    assert contains(a + b, x + y)
    assert contains(-a, -x)
    assert contains(a.product(b), x * y)
    assert contains(a.product(b, count), count * x * y)
    assert contains(a.times(factor), Fraction(factor) * x)
    assert contains(a.union(b), x)
    assert contains(a.union(b), y)
    assert contains(a.widened(0.5), x - Fraction(1, 2))
    low, high = sorted((b.low, b.high))
    assert contains(a.clipped(low, high), min(max(x, Fraction(low)), Fraction(high)))


@given(intervals, st.integers(-10, 62))
@pytest.mark.examples(60)
@example(Bound(0.0, 0.0), 62)
@example(Bound(-(2.0**62), 2.0**62), 0)
@example(Bound(0.0, math.nextafter(2.0**62, 0)), 0)
@example(Bound(-math.nextafter(2.0**46, 0), 0.0), 16)
def test_what_fits_is_below_2_62_with_all_its_bits(bound: Bound, scale: int) -> None:
    largest = Fraction(bound.magnitude) * Fraction(2) ** scale
    # Within 2^-30 bits of the limit it may be refused.
    if bound.fits(scale):
        assert largest < LIMIT
    else:
        assert largest > LIMIT * (1 - Fraction(1, 2**29))
    assert bound.fits(min(bound.room, 1000))
    assert bound.room > 1000 or not bound.fits(bound.room + 1)


@given(intervals, st.integers(8, 26))
def test_small_numbers_keep_more_bits_and_no_more_than_fit(bound: Bound, bits: int) -> None:
    scale = bound.scale(bits)
    assert bits <= scale <= bounds.LARGEST_SCALE
    if scale > bits:
        assert Fraction(bound.magnitude) * Fraction(2) ** (scale - bits) <= 1
        assert bound.fits(scale)
    if scale < bounds.LARGEST_SCALE and bound.magnitude:
        assert Fraction(bound.magnitude) * Fraction(2) ** (scale + 1 - bits) > 1


def test_masked_bounds_stay_masked_and_tell_what_is_stored() -> None:
    masked, plain = Bound(-math.inf, 3.0, -2.0), Bound(-5.0, 1.0)
    assert masked.finite() == Bound(-2.0, 3.0)
    for either in (
        masked + plain,
        plain + masked,
        masked.union(plain),
        masked.clipped(-math.inf, 1),
    ):
        assert either.low == -math.inf
        assert math.isfinite(either.floor)
    assert masked + plain == Bound(-math.inf, 4.0, -7.0)
    assert masked.union(plain) == Bound(-math.inf, 3.0, -5.0)
    assert masked.clipped(-1.0, 2.0) == Bound(-1.0, 2.0)
    assert masked.room == -1100
    assert masked.widened(1.0).floor == -3.0
    assert Bound(-math.inf, math.inf).times(0.0) == Bound(0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "bound"),
    [
        ([], Bound(0, 0)),
        ([-0.0], Bound(0, 0)),
        ([3, -7], Bound(-7, 3)),
        ([True], Bound(1, 1)),
        ([2**62], Bound(2.0**62, 2.0**62)),
        ([5e-324, 1e300], Bound(5e-324, 1e300)),
    ],
)
def test_the_bound_around_values_is_their_smallest_interval(values: Any, bound: Bound) -> None:
    kind = None if values and isinstance(values[0], int) else torch.float64
    assert Bound.around(torch.tensor(values, dtype=kind)) == bound


# --- Products --------------------------------------------------------------------------------------


def holds(plan: ProductPlan, x: Fraction, y: Fraction, sums: tuple[Fraction, Fraction]) -> None:
    """Every number that the plan makes on the way is below 2^62, at the extreme values.

    Args:
        plan: as `plan_product` gives it.
        x: largest magnitude of the product's left operand.
        y: of the right one.
        sums: of the operands' magnitudes in one entry of the product.
    """
    left, right = Fraction(2) ** plan.left, Fraction(2) ** plan.right
    total = plan.left + plan.right
    result = min(sums[0] * y, sums[1] * x)
    assert result * Fraction(2) ** plan.scale <= LIMIT
    if plan.split is None:
        assert plan.scale == total
        return
    # high = operand / 2^limb, low < 2^limb: both products are truncated, so both must fit.
    other = sums[1] * right if plan.split == "left" else sums[0] * left
    assert result * left * right / 2**plan.limb < LIMIT
    assert other * 2**plan.limb <= LIMIT
    assert 0 <= plan.scale <= total


@given(
    st.integers(-20, 60), st.integers(-20, 60), st.integers(0, 20), st.integers(0, 46),
    st.integers(0, 46), st.sampled_from(["left", "right", "either"]), st.integers(8, 26),
)  # fmt: skip
@pytest.mark.examples(300)
def test_a_planned_product_stays_inside_the_ring(
    x: int, y: int, count: int, left: int, right: int, split: str, bits: int
) -> None:
    assume(x + left <= 61)
    assume(y + right <= 61)
    largest, other = Fraction(2) ** x, Fraction(2) ** y
    sums = (largest * 2**count, other * 2**count)
    result = Bound.of(float(largest * other * 2**count))
    kept = result.scale(bits)
    plan = plan_product((left, right), result, tuple(map(float, sums)), kept, split=split)
    if plan is None:
        return
    holds(plan, largest, other, sums)
    assert plan.left <= left
    assert plan.right <= right
    if plan.split is not None:
        assert split in (plan.split, "either")
        assert plan.scale <= kept
        # What is lost for room is lost beyond 10 fractional bits alone.
        assert plan.scale >= min(kept, bounds.LEAST_BITS)
    for side, own, mine in (("left", left, plan.left), ("right", right, plan.right)):
        assert mine == own or mine >= bounds.LEAST_BITS
        if split not in (side, "either"):
            assert mine == own


def test_products_that_no_plan_holds_are_none() -> None:
    assert plan_product((16, 16), Bound.of(2.0**60), (2.0**30, 2.0**30), 16) is None
    assert plan_product((0, 0), Bound.of(2.0**63), (2.0**32, 2.0**31), 0) is None
    assert plan_product((0, 0), Bound.of(2.0**61), (2.0**31, 2.0**30), 0) is not None


# --- Public factors and weights --------------------------------------------------------------------


@given(st.lists(st.integers(-(2**62), 2**62), max_size=5), st.integers(2, 62))
@pytest.mark.examples(80)
def test_limbs_add_up_to_their_integers(values: list[int], width: int) -> None:
    limbs = bounds.public_limbs(torch.tensor(values, dtype=torch.int64), width)
    for n, value in enumerate(values):
        digits = [int(limb[n]) for limb in limbs]
        assert sum(digit << width * place for place, digit in enumerate(digits)) == value
        assert all(abs(digit) <= 1 << width - 1 for digit in digits)


factors = st.lists(
    st.floats(-(2.0**20), 2.0**20).filter(lambda x: x == 0 or abs(x) > 2.0**-40), min_size=1, max_size=4
)  # fmt: skip


@given(factors, st.integers(8, 26))
@pytest.mark.examples(80)
def test_a_public_factor_keeps_the_bits_of_its_smallest_line(
    values: list[float], bits: int
) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    scale = bounds.factor_scale(tensor, bits)
    factor = bounds.public_factor(tensor, scale, 0)
    largest = max(map(abs, values))
    for value, encoded in zip(values, factor.encoded.tolist(), strict=True):
        exact = Fraction(encoded) / Fraction(2) ** factor.scale
        error = abs(exact - Fraction(value))
        # Rounded at `scale`; and relative to itself where that is not more than the ring holds.
        assert error <= Fraction(2) ** -scale / 2
        if scale < bounds.LARGEST_SCALE and abs(value) > largest * 2.0**-30:
            assert error <= abs(Fraction(value)) / 2**bits
        assert abs(encoded) < LIMIT
    if any(values) and factor.scale > 0:  # no bit that all of them lack
        assert any(encoded & 1 for encoded in factor.encoded.tolist())


@pytest.mark.parametrize(
    ("values", "encoded", "scale"),
    [
        ([0.5, -0.25], [2, -1], 2),
        ([4.0, 8.0], [4, 8], 0),
        ([0.0], [0], 0),
        ([1.5], [3], 1),
        (torch.tensor([3, -5]), [3, -5], 0),
        (torch.tensor([True, False]), [1, 0], 0),
        ([], [], 0),
    ],
)
def test_round_factors_take_few_bits(values: Any, encoded: list[int], scale: int) -> None:
    tensor = (
        values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=torch.float64)
    )
    scale_of = bounds.factor_scale(tensor.double(), 16)
    factor = bounds.public_factor(tensor, scale_of, 0)
    assert (factor.encoded.tolist(), factor.scale) == (encoded, scale)
    assert factor.values.tolist() == tensor.double().tolist()


OPS = [
    ("mul", (3, 4), (3, 4), False),
    ("matmul", (2, 3), (3, 4), False),
    ("matmul", (3, 2), (2, 5), True),
    ("linear", (2, 3), (5, 3), False),
]


@pytest.mark.parametrize(("op", "secret", "public", "left"), OPS)
@pytest.mark.parametrize("bound", [(-2.0, 3.0), (0.0, 5.0), (-4.0, -1.0)])
def test_the_bound_with_a_factor_is_reached_at_the_corners(
    op: str, secret: Any, public: Any, left: bool, bound: tuple[float, float]
) -> None:
    rng = np.random.default_rng(len(op))
    factor = torch.from_numpy(rng.integers(-4, 5, public).astype(float))
    got, sums = bounds.bound_with_factor(Bound(*bound), factor, op, left=left)
    if op == "mul":
        corners = [float(f) * end for f in factor.flatten() for end in bound]
        count = 1
    else:
        # Each entry of the product takes, of every factor on its way, the end that helps it most.
        lines = factor if left or op == "linear" else factor.T
        highest = [sum(max(f * end for end in bound) for f in line.tolist()) for line in lines]
        lowest = [sum(min(f * end for end in bound) for f in line.tolist()) for line in lines]
        corners, count = highest + lowest, lines.shape[1]
    assert (got.low, got.high) == (min(corners), max(corners))
    assert sums == count * max(map(abs, bound))


@given(st.lists(st.lists(sizes, min_size=3, max_size=3), min_size=1, max_size=4))
@pytest.mark.examples(40)
def test_an_owner_declares_powers_of_two_above_its_weight(rows: list[list[float]]) -> None:
    weight = torch.tensor(rows, dtype=torch.float64)
    facts = bounds.weight_facts(weight, 16, role="weight")
    entries = [abs(Fraction(each)) for row in rows for each in row]
    sums = [sum(abs(Fraction(each)) for each in row) for row in rows]
    largest = max(entries)
    assume(largest == 0 or largest > Fraction(2) ** -900)
    if largest:
        slack = 1 + Fraction(1, 2**44)  # of sums and logarithms in float64
        assert Fraction(2) ** (facts.bits - 1) <= largest * slack
        assert largest < Fraction(2) ** facts.bits
        assert Fraction(2) ** (facts.row_bits - 1) <= max(sums) * slack
        assert max(sums) < Fraction(2) ** facts.row_bits * slack
    assert facts.scale >= 16
    assert facts.scale + max(facts.bits, 0) <= max(bounds.LARGEST_SCALE, 16 + facts.bits)
