"""Sums inside a large strongly connected component: a sparse system of linear equations."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from holdfast.automata.fst import I32, I64
from holdfast.automata.paths import _kernels as kernels

F64 = npt.NDArray[np.float64]


def solve(
    is_log: bool,
    offsets: I64,
    nextstate: I32,
    weight: F64,
    component: I32,
    members: I64,
    low: F64,
    total: F64,
) -> bool:
    """Sum inside one component, from the sums that enter it: x = A x + b.

    A strongly connected component has a solution without negative entries only if the sum converges, so
    the solution itself shows whether it does. In the log semiring x is scaled by the best paths, as in
    `_kernels._solve`.

    Args:
        is_log: weights are costs of the log semiring, else probabilities.
        offsets: [V + 1] arcs of each state.
        nextstate: [E]
        weight: [E]
        component: [V]
        members: the component's states.
        low: [V] in the log semiring the costs that enter each state; then the sums.
        total: [V] the same of probabilities.

    Returns:
        Whether the sums converge.
    """
    local = np.empty(len(component), np.int32)
    local[members] = np.arange(len(members))
    count = offsets[members + 1] - offsets[members]
    source = np.repeat(members, count)
    first = np.repeat(offsets[members] - (np.cumsum(count) - count), count)
    arc = first + np.arange(len(source))
    inner = component[nextstate[arc]] == component[members[0]]
    arc, source = arc[inner], source[inner]
    target = nextstate[arc]
    if is_log:
        entering = low[members]
        if not kernels.relax(offsets, nextstate, weight, component, members, local, low):
            return False
        b = np.exp(low[members] - entering)
        a = np.exp(low[target] - low[source] - weight[arc])
    else:
        b = total[members]
        a = weight[arc]
    x = _solution(a, local[target], local[source], b)
    if x is None:
        return False
    if is_log:
        low[members] -= np.log(x)
    else:
        total[members] = x
    return True


def _solution(a: F64, row: I32, column: I32, b: F64) -> F64 | None:
    """The solution of x = A x + b by a sparse LU decomposition; None if it has negative entries."""
    from scipy import sparse
    from scipy.sparse import linalg

    size = len(b)
    system = sparse.identity(size, format="csc") - sparse.csc_array(
        (a, (row, column)), (size, size)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", linalg.MatrixRankWarning)
        try:
            x = linalg.splu(sparse.csc_matrix(system), diag_pivot_thresh=0.0).solve(b)
        except (RuntimeError, linalg.MatrixRankWarning):  # exactly singular
            return None
    return x if np.isfinite(x).all() and (x >= 0).all() else None
