"""What `TensorFst` differentiates: arcs gathered from a machine, and the sum over its paths.

The score of a machine is z = log(sum over paths of p), p the product of the path's weights. With the sums
alpha[s] of all paths from the start to s and beta[s] of all from s to the finals, the probability that a
path passes an arc e from s to t is g[e] = alpha[s] w[e] beta[t] / sum(p). So dz / d(cost of e) = -g[e] and
dz / dw[e] = g[e] / w[e]. (With cycles g[e] is how often a path passes e on average.)

The second derivative needs d(log alpha) and d(log beta) along a direction: sums are linear in their terms,
so these solve two sparse linear systems whose entries are the shares of the arcs in the sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import spsolve

from holdfast.automata.composition.device_transfers import sent
from holdfast.automata.fst import Fst
from holdfast.automata.path_sums.distances import useful_sums
from holdfast.automata.semirings import LOG, check_weights
from holdfast.errors import MissingExtraError

try:
    import torch
    from torch import Tensor
    from torch.autograd.function import once_differentiable
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error

F64 = npt.NDArray[np.float64]


def gathered(values: Tensor, index: Tensor, absent: float) -> Tensor:
    """values[index], and `absent` where the index is -1; the gradient is summed in a fixed order.

    Args:
        values: [N].
        index: i64[n], on the device of `values`.
        absent: a constant.
    """
    made: Tensor = _Gathered.apply(values, index, absent)
    return made


def forward_score(structure: Fst, weight: Tensor, final: Tensor) -> Tensor:
    """The logarithm of the summed probability of all paths; differentiable twice.

    Args:
        structure: states and arcs; of its own weights only the semiring counts.
        weight: [E] of the arcs.
        final: [V] of the states.

    Raises:
        InputError: if the sum diverges, or a weight is NaN.
    """
    made: Tensor = _ForwardScore.apply(weight, final, structure)
    return made


class _Gathered(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, absent: float) -> Tensor:
        ctx.save_for_backward(index)
        ctx.length = len(values)
        padded = torch.cat([values, values.new_full((1,), absent)])
        return padded[index]  # -1 is the last

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Scattered.apply(grad, *ctx.saved_tensors, ctx.length), None, None


class _Scattered(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, grad: Tensor, index: Tensor, length: int) -> Tensor:
        ctx.save_for_backward(index)
        total = grad.new_zeros(length + 1)
        at = torch.where(index < 0, length, index)
        # Each adds in a fixed order on its device, and atomically on the other.
        if grad.is_cuda:
            total.index_put_((at,), grad, accumulate=True)
        else:
            total.index_add_(0, at, grad)
        return total[:length]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return gathered(grad, index, 0.0), None, None


class _ForwardScore(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, weight: Tensor, final: Tensor, structure: Fst) -> Tensor:
        sums = _sums(structure, weight, final)
        ctx.save_for_backward(weight, final)
        ctx.structure, ctx.sums = structure, sums
        return weight.new_full((), -sums.total)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        weight, final = ctx.saved_tensors
        by_weight, by_final = _Slopes.apply(weight, final, ctx.structure, ctx.sums)
        return grad * by_weight, grad * by_final, None


class _Slopes(torch.autograd.Function):  # type: ignore[misc]
    """The derivative of the score by every weight."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, final: Tensor, structure: Fst, sums: _Sums
    ) -> tuple[Tensor, Tensor]:
        slopes = _slopes(structure, sums)
        ctx.structure, ctx.sums, ctx.slopes = structure, sums, slopes
        return _like(weight, slopes[0]), _like(weight, slopes[1])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, along_weight: Tensor, along_final: Tensor) -> tuple[Any, ...]:
        curved = _curvature(
            ctx.structure, ctx.sums, ctx.slopes, _array(along_weight), _array(along_final)
        )
        return *(_like(along_weight, values) for values in curved), None, None


class _Sums(NamedTuple):
    """Costs, infinite where there is no path."""

    weight: F64
    """[E] of the arcs."""
    final: F64
    """[V] of the final states."""
    ahead: F64
    """[V] of all paths from the start."""
    behind: F64
    """[V] of all paths to the finals."""
    total: float


def _sums(structure: Fst, weight: Tensor, final: Tensor) -> _Sums:
    arcs, finals = _array(weight), _array(final)
    check_weights(arcs, structure.semiring, "arc")
    check_weights(finals, structure.semiring, "final weight of state")
    if not structure.semiring.is_negative_log:
        with np.errstate(divide="ignore"):
            arcs, finals = -np.log(arcs), -np.log(finals)
    if not structure.num_states:
        return _Sums(arcs, finals, np.zeros(0), np.zeros(0), np.inf)
    ahead, behind = (
        useful_sums(structure, LOG, arcs, finals, reverse) for reverse in (False, True)
    )
    return _Sums(arcs, finals, ahead, behind, float(behind[structure.start]))


def _slopes(structure: Fst, sums: _Sums) -> tuple[F64, F64]:
    if sums.total == np.inf:
        return np.zeros(structure.num_arcs), np.zeros(structure.num_states)
    around = sums.ahead[structure.source] + sums.behind[structure.nextstate] - sums.total
    if structure.semiring.is_negative_log:
        return -np.exp(-(around + sums.weight)), -np.exp(-(sums.ahead - sums.total + sums.final))
    return np.exp(-around), np.exp(-(sums.ahead - sums.total))


def _curvature(
    structure: Fst, sums: _Sums, slopes: tuple[F64, F64], along: F64, along_final: F64
) -> tuple[F64, F64]:
    """The derivative of the slopes along a direction of the weights."""
    if sums.total == np.inf:
        return np.zeros_like(along), np.zeros_like(along_final)
    source, target = structure.source, structure.nextstate
    costs = structure.semiring.is_negative_log
    # How a small change of a weight changes the logarithm of a sum that the weight has a share in.
    share_ahead, rate_ahead = _shares(sums.ahead[source], sums.weight, sums.ahead[target], costs)
    share_behind, rate_behind = _shares(
        sums.behind[target], sums.weight, sums.behind[source], costs
    )
    _, rate_final = _shares(np.zeros_like(sums.final), sums.final, sums.behind, costs)
    count = structure.num_states
    change_ahead: F64 = np.bincount(target, rate_ahead * along, minlength=count).astype(np.float64)
    change_behind = np.bincount(source, rate_behind * along, minlength=count)
    ahead = _solved(target, source, share_ahead, change_ahead)
    behind = _solved(source, target, share_behind, change_behind + rate_final * along_final)
    total = behind[structure.start]
    by_weight = ahead[source] + behind[target] - total
    by_final = ahead - total
    if costs:
        by_weight, by_final = by_weight - along, by_final - along_final
    return slopes[0] * by_weight, slopes[1] * by_final


def _shares(part: F64, weight: F64, whole: F64, costs: bool) -> tuple[F64, F64]:
    """The share of weight x part in a sum, and how fast the sum's logarithm grows with the weight."""
    on_a_path = np.isfinite(part) & np.isfinite(whole)
    with np.errstate(invalid="ignore"):
        rest = np.where(on_a_path, part - whole, np.inf)
    share = np.exp(-(weight + rest))
    return share, -share if costs else np.exp(-rest)


def _solved(row: Any, column: Any, share: F64, change: F64) -> F64:
    """The solution of x = S x + change, S the shares of the arcs."""
    count = len(change)
    shares = csc_array((share, (row, column)), shape=(count, count))
    made: F64 = spsolve(csc_array(eye_array(count) - shares), change)
    return made


def _array(values: Tensor) -> F64:
    made: F64 = values.detach().to("cpu", torch.float64).numpy()
    return made


def _like(tensor: Tensor, values: F64) -> Tensor:
    return sent(values, tensor.device, tensor.dtype)
