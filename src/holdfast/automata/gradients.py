"""What `TensorFst` differentiates: arcs gathered from a machine, and the sum over its paths.

The score of a machine is z = log(sum over paths of p), p the product of the path's weights. With the sums
alpha[s] of all paths from the start to s and beta[s] of all from s to the finals, the probability that a
path passes an arc e from s to t is g[e] = alpha[s] w[e] beta[t] / sum(p). So dz / d(cost of e) = -g[e] and
dz / dw[e] = g[e] / w[e]. (With cycles g[e] is how often a path passes e on average.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.fst import Fst
from holdfast.automata.path_sums.distances import useful_sums
from holdfast.automata.semirings import LOG, SEMIRINGS, check_weights, converted
from holdfast.errors import MissingExtraError

try:
    import torch
    from torch import Tensor
    from torch.autograd.function import once_differentiable
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error

F64 = npt.NDArray[np.float64]


def sent(array: npt.NDArray[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """An array as a tensor on the device, never to be written to: on the CPU it may share the memory."""
    here = np.ascontiguousarray(array)
    if not here.flags.writeable:  # torch warns of what could be written through the tensor
        here = here.copy()
    return torch.from_numpy(here).to(device=device, dtype=dtype)


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
    """The logarithm of the summed probability of all paths; differentiable once.

    Args:
        structure: states, arcs and semiring; its weights are ignored.
        weight: [E] weights of the arcs.
        final: [V] final weights of the states.

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
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        total = grad.new_zeros(ctx.length + 1)
        at = torch.where(index < 0, ctx.length, index)
        # Each adds in a fixed order on its device, and atomically on the other.
        if grad.is_cuda:
            total.index_put_((at,), grad, accumulate=True)
        else:
            total.index_add_(0, at, grad)
        return total[: ctx.length], None, None


class _ForwardScore(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, weight: Tensor, final: Tensor, structure: Fst) -> Tensor:
        sums = _sums(structure, weight, final)
        ctx.save_for_backward(weight, final)
        ctx.structure, ctx.sums = structure, sums
        return weight.new_full((), -sums.total)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        slopes = zip(ctx.saved_tensors, _slopes(ctx.structure, ctx.sums), strict=True)
        by_weight, by_final = (grad * _like(tensor, values) for tensor, values in slopes)
        return by_weight, by_final, None


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
    arcs, finals = (
        converted(part, structure.semiring, SEMIRINGS["log64"]) for part in (arcs, finals)
    )
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


def _array(values: Tensor) -> F64:
    made: F64 = values.detach().to("cpu", torch.float64).numpy()
    return made


def _like(tensor: Tensor, values: F64) -> Tensor:
    return sent(values, tensor.device, tensor.dtype)
