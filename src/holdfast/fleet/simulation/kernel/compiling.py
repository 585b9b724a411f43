"""How the functions of the kernel are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

from holdfast.fleet.simulation.records import Array
from holdfast.kernels import kernel

Function = TypeVar("Function", bound=Callable[..., Any])

_UNCOUNTED: dict[str, Any] = {"_nrt": False}


def compiled(function: Function) -> Function:
    """Compile a function of the kernel, once for all processes.

    Numba counts the references to every array of a tuple that a function is given: 36 calls where a
    `Simulation` is handed on, several times the work of a small function. The caller keeps the arrays
    alive, so nothing is counted here; in turn such a function cannot ask for memory.
    """
    return kernel(**_UNCOUNTED)(function)


# With a signature it is compiled by itself: within a function that counts nothing it could not ask for
# memory.
@njit("void(int64[::1], int64)", cache=True)
def sort(values: Array, count: int) -> None:
    """Sort the first values in place."""
    values[:count].sort()
