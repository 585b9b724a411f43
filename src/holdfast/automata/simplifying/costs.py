"""Weights as costs in float64: the form in which machines are simplified, whatever their semiring.

The probability semiring is the log semiring under -log, and the boolean one the tropical semiring with
weights 0 and infinity. So the kernels of this package know two sums, and no semiring loses precision in
them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.fst import Fst, Weights
from holdfast.automata.path_sums import distances
from holdfast.automata.path_sums.distances import F64
from holdfast.automata.semirings import LOG, TROPICAL, Semiring


class Costs(NamedTuple):
    """The weights of a machine as costs; infinite where a weight is zero."""

    arc: F64
    """[E]"""
    final: F64
    """[V]"""
    code: int
    """How costs of several paths add: TROPICAL or LOG."""


def costs_of(f: Fst) -> Costs:
    """The weights of a machine as costs: copies, to be changed at will."""
    return Costs(*distances.costs_of(f), TROPICAL if f.semiring.is_idempotent else LOG)


def weights_of(costs: Weights, semiring: Semiring) -> Weights:
    """Costs as weights of a semiring."""
    weights: npt.NDArray[Any] = costs
    if not semiring.is_negative_log:
        weights = costs != np.inf if semiring.is_idempotent else np.exp(-costs)
    made: Weights = weights.astype(semiring.dtype)
    return made
