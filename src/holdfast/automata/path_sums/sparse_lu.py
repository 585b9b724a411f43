"""Sums inside a large component by a sparse LU decomposition: where sweeps converge too slowly."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from holdfast.automata.fst import I32, I64
from holdfast.automata.path_sums import system_kernels as kernels

F64 = npt.NDArray[np.float64]


def solve(
    code: int,
    offsets: I64,
    nextstate: I32,
    weight: F64,
    component: I32,
    members: I64,
    low: F64,
    total: F64,
) -> bool:
    """Sum inside one component, from the sums that enter it; the arguments are those of `_kernels.solve`.

    Returns:
        Whether the sums converge: a strongly connected component has a solution without negative entries
        only if they do.
    """
    local = np.empty(len(component), np.int32)
    local[members] = np.arange(len(members))
    converges, best, row, column, a, b = kernels.system(
        code, offsets, nextstate, weight, component, members, local, low, total
    )
    x = _solution(row, column, a, b) if converges else None
    if x is None:
        return False
    kernels.store(code, members, best, x, low, total)
    return True


def _solution(row: I64, column: I64, a: F64, b: F64) -> F64 | None:
    """The solution of x = A x + b; None if it has negative entries."""
    from scipy import sparse
    from scipy.sparse import linalg

    size = len(b)
    system = sparse.identity(size, format="csc") - sparse.csr_array((a, column, row), (size, size))
    with warnings.catch_warnings():
        warnings.simplefilter("error", linalg.MatrixRankWarning)
        try:
            x = linalg.splu(sparse.csc_matrix(system), diag_pivot_thresh=0.0).solve(b)
        except (RuntimeError, linalg.MatrixRankWarning):  # exactly singular
            return None
    return x if np.isfinite(x).all() and (x >= 0).all() else None
