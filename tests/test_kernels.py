"""Kernels that are called with constants are compiled once, and compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.kernels import kernel


def compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A kernel, and one that calls it with constants, variables, and what a loop starts with."""

    @kernel(nogil=True)
    def power(x: Any, exponent: Any, negated: Any) -> Any:
        result = 1.0
        for _ in range(exponent):
            result *= x
        return -result if negated else result

    @kernel()
    def polynomial(x: Any, degree: Any) -> Any:
        total = power(x, 0, False) + power(x, 1, negated=True)
        exponent = 2
        while exponent <= degree:
            total += power(x, exponent, exponent % 2 == 1)
            exponent += 1
        return total

    return power, polynomial


def test_one_compilation_for_constants_and_variables() -> None:
    power, polynomial = compiled()
    assert polynomial(0.5, 7) == np.polyval([-1, 1] * 4, 0.5)
    assert len(power.signatures) == 1  # type: ignore[attr-defined]
    assert power(2.0, 3, True) == -8.0
    assert len(power.signatures) == 1  # type: ignore[attr-defined]
