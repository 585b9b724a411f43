"""Products of shared tensors, planned by their bounds: in one piece, or by limbs where that would wrap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holdfast.private.mpc import arithmetic, bounds, ring
from holdfast.private.mpc.bounds import Bound
from holdfast.private.mpc.rounds import Rounds, parallel

if TYPE_CHECKING:
    from holdfast.private.mpc.tensor import SharedTensor

_LEAST_WIDTH = 2  # bits of a limb of a public factor


def shared_product(
    x: SharedTensor,
    y: SharedTensor,
    op: str,
    options: arithmetic.Options,
    name: str,
    declared: Bound | None,
) -> SharedTensor:
    """A bilinear product of two shared tensors: one round, three where it takes two limbs.

    Args:
        x: left operand.
        y: right operand; where it is fixed, its masked value is opened once.
        op: as `ring.BILINEAR` names it.
        options: of the product.
        name: what costs and messages call it.
        declared: bound of the result where more is known than the operands' bounds say.

    Raises:
        RangeError: if no way stays inside the ring.
    """
    count = bounds.count_of(y.shape, bounds.summed(op))
    if op == "conv2d_input":
        count //= dict(options).get("groups", 1)
    sums = (count * x.bound.magnitude, count * y.bound.magnitude)
    result = x.bound.product(y.bound, count)
    if y.row_sum is not None and op in ("matmul", "linear", "conv2d"):
        sums = (sums[0], y.row_sum)
        largest = x.bound.magnitude * y.row_sum
        result = result.clipped(-largest, largest)
    if declared is not None:
        result = declared
    fixed = None
    if y.fixed is not None and x.party.group is None:
        fixed = y.fixed.setdefault(op, arithmetic.Fixed())
    scales = (x.target(), y.target())
    split = "left" if fixed is not None else "either"
    with x.scope(name):
        bits = result.scale(x.party.fraction_bits)
        plan = bounds.plan_product(scales, result, sums, bits, split=split)
        if plan is None:
            raise x.refused(result, bits, y)
        share = x.party.run(_planned(x, y, op, options, fixed, plan))
        if plan.split is not None:
            result = result.widened(2.0**-plan.scale)
        return x.like(share, plan.scale, result, others=[y])


def _planned(
    x: SharedTensor,
    y: SharedTensor,
    op: str,
    options: arithmetic.Options,
    fixed: arithmetic.Fixed | None,
    plan: bounds.ProductPlan,
) -> Rounds[Tensor]:
    party = x.party
    if plan.split is None:
        left, right = yield from parallel(x.operand(plan.left), y.operand(plan.right))
        return (yield from arithmetic.product(party, op, left, right, options, fixed))
    left, right = yield from parallel(x.narrowing(plan.left), y.narrowing(plan.right))
    # operand = high 2^limb + low; the two products are truncated apart, and then fit together.
    operand = left if plan.split == "left" else right
    high = yield from arithmetic.truncate(party, operand, plan.limb)
    low = operand - (high << plan.limb)
    pairs = [(part, right) if plan.split == "left" else (left, part) for part in (high, low)]
    if fixed is not None and fixed.label is None:
        yield from fixed.open(party, right)
    products = yield from parallel(
        *(arithmetic.product(party, op, *pair, options, fixed) for pair in pairs)
    )
    total = plan.left + plan.right
    scales = (total - plan.limb, total)
    parts = yield from parallel(
        *(
            arithmetic.truncate(party, part, at - plan.scale)
            for part, at in zip(products, scales, strict=True)
        )
    )
    return parts[0] + parts[1]


def public_product(
    x: SharedTensor,
    value: Any,
    op: str,
    options: arithmetic.Options = (),
    *,
    left: bool = False,
    name: str = "",
) -> SharedTensor:
    """A bilinear product with a public factor: free; a round of truncations where it takes limbs.

    Args:
        x: the secret operand.
        value: the public one.
        op: as `ring.BILINEAR` names it.
        options: of the product.
        left: whether the factor is the left operand.
        name: what costs and messages call it.

    Raises:
        RangeError: if no way stays inside the ring.
    """
    values = ring.numbers(value, "operand")
    ring.check_finite(values, "operand")
    exact = values.to(torch.float64)
    call = ring.bilinear(op, options)

    def multiply(share: Tensor, factor: Tensor) -> Tensor:
        return call(factor, share) if left else call(share, factor)

    result, sums = bounds.bound_with_factor(x.bound, exact, op, left=left)
    bits = result.scale(x.party.fraction_bits)
    scale = bounds.factor_scale(exact, bits, sums)
    factor = bounds.public_factor(values, scale, int(x.scale == 0))
    x.party.agree(factor.encoded.numpy().tobytes(), factor.scale)
    result, _ = bounds.bound_with_factor(x.bound, factor.values, op, left=left)
    x = x.narrowed()
    scale = x.scale + factor.scale
    if result.fits(scale):
        return x.mapped(lambda t: multiply(t, factor.encoded), scale=scale, bound=result)
    with x.scope(name or op):
        width = bounds.Bound.of(sums).room - x.scale
        if width < _LEAST_WIDTH:
            x = x.narrowed(x.scale + width - _LEAST_WIDTH)
            width = _LEAST_WIDTH
        scale = x.scale + factor.scale
        wanted = min(bits if scale > 0 else 0, result.room)
        if wanted < min(bits, bounds.LEAST_BITS, scale):
            raise x.refused(result, bits)
        limbs = bounds.public_limbs(factor.encoded, width)
        parts = x.party.run(
            parallel(
                *(
                    arithmetic.truncate(
                        x.party, multiply(x.share, limb), scale - wanted - place * width
                    )
                    for place, limb in enumerate(limbs)
                )
            )
        )
        return x.like(sum(parts), wanted, result.widened(len(limbs) * 2.0**-wanted))
