"""Weights as costs in float64: the form in which machines are simplified, whatever their semiring.

The probability semiring is the log semiring under -log, and the boolean one the tropical semiring with
weights 0 and infinity. So the kernels of this package know two sums, and no semiring loses precision in
them.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.automata.fst import Fst, Weights
from holdfast.automata.path_sums import distances
from holdfast.automata.path_sums.distances import F64
from holdfast.automata.semirings import LOG, SEMIRINGS, TROPICAL, Semiring, converted


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
    return converted(costs, SEMIRINGS["log64"], semiring)
