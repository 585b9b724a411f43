"""One state of a composition at a time: what searches that choose their own order stand on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.composition import joining
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.matching import Plan, Side, planned
from holdfast.automata.fst import I64, Fst, Weights
from holdfast.automata.path_sums.distances import F64, costs_of


class Steps(NamedTuple):
    """Two machines, prepared so that `joining.join` finds what any one state leads to.

    A state of the composition is a key (see `joining.A_SHIFT`). A step pairs a position in the arcs of one
    side with one of the other; positions from `num_arcs` on are the arcs of a machine that stays.
    """

    a: Side
    b: Side
    plan: Plan
    start: int
    """The key of the start."""


def steps(a: Fst, b: Fst, filter: FilterName) -> Steps:
    """Both machines, neither of them empty, prepared."""
    left, right, plan = planned(a, b, filter, mapped=True)
    start = (a.start << joining.A_SHIFT) | (b.start << joining.F_BITS)
    return Steps(left, right, plan, start)


def with_costs(steps: Steps, a: Fst, b: Fst) -> Steps:
    """The same with costs, float64, for weights, whatever the semiring; final weights are left out."""
    return steps._replace(
        a=_with_costs(steps.a, costs_of(a)[0]), b=_with_costs(steps.b, costs_of(b)[0])
    )


def without_weights(steps: Steps) -> Steps:
    """The same without weights, so that compiled code is that of one semiring."""
    none = np.empty(0, np.float64)
    return steps._replace(
        a=steps.a._replace(weight=none, final=none), b=steps.b._replace(weight=none, final=none)
    )


def _with_costs(side: Side, costs: F64) -> Side:
    stays = np.zeros(len(side.outer) - len(costs))
    cost = np.concatenate((costs[side.arc[: len(costs)]], stays))
    return side._replace(weight=cost, final=stays[:0])


def key_parts(key: int) -> tuple[int, int, int]:
    """State of A, state of B, filter state."""
    return (
        key >> joining.A_SHIFT,
        (key >> joining.F_BITS) & joining.B_MASK,
        key & joining.F_MASK,
    )


class StepArcs(NamedTuple):
    """The arcs of the composition that some steps are."""

    ilabel: npt.NDArray[np.int32]
    olabel: npt.NDArray[np.int32]
    weight: Weights
    arc_a: npt.NDArray[Any]
    """The arc of A, -1 where A stays."""
    arc_b: npt.NDArray[Any]
    """The arc of B, -1 where B stays."""


def step_arcs(steps: Steps, at_a: I64, at_b: I64, is_negative_log: bool) -> StepArcs:
    """The arcs of steps at these positions of both sides."""
    a, b = steps.a, steps.b
    return StepArcs(
        a.outer[at_a],
        b.outer[at_b],
        _times(a.weight[at_a], b.weight[at_b], is_negative_log),
        a.arc[at_a],
        b.arc[at_b],
    )


def final_weights(steps: Steps, keys: I64, is_negative_log: bool) -> Weights:
    """The final weights of states."""
    left = steps.a.final[keys >> joining.A_SHIFT]
    right = steps.b.final[(keys >> joining.F_BITS) & joining.B_MASK]
    return _times(left, right, is_negative_log)


def _times(x: Weights, y: Weights, is_negative_log: bool) -> Weights:
    product: Weights = x + y if is_negative_log else x * y
    return product
