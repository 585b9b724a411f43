"""Sums over all paths: from the start to each state, from each state to the finals, in total.

Without cycles one pass in topological order sums everything. Otherwise the strongly connected components
are summed in topological order: least costs by Dijkstra's or Bellman and Ford's algorithm in the tropical
semiring, and in the others the solution of x = A x + b, A being the weights of the component's arcs.
Source: M. Mohri, "Semiring frameworks and algorithms for shortest-distance problems", 2002, for the
algebra; sums there go over paths in the order of a queue until they change little, which stops early and
cannot tell a slow sum from one that diverges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata import _kernels as sorting
from holdfast.automata.fst import I32, I64, Fst
from holdfast.automata.path_sums import _kernels as kernels
from holdfast.automata.path_sums import system_kernels as systems
from holdfast.automata.path_sums.sparse_lu import solve
from holdfast.automata.semirings import BOOLEAN, PROBABILITY, SEMIRINGS, TROPICAL, converted
from holdfast.automata.structure import (
    Bools,
    accessible,
    coaccessible,
    incoming,
    strong_components,
    topological_order,
    with_arcs,
)
from holdfast.errors import InputError

F64 = npt.NDArray[np.float64]

NAMED_STATES = 10


class _Graph(NamedTuple):
    """Arcs to sum along."""

    offsets: I64
    """[V + 1]"""
    nextstate: I32
    """[E]"""
    weight: F64
    """[E] costs, or probabilities."""


def state_distances(f: Fst, reverse: bool = False) -> F64:
    """The semiring sum of all paths from the start to each state, or from each state to the finals.

    Args:
        f: any machine, with cycles or without.
        reverse: sum from the states to the finals (with the final weights) instead.

    Returns:
        float64 [V]: weights of the machine's semiring, in float64 so that they lose nothing of what is
        summed; the semiring's zero where there is no path.

    Raises:
        InputError: if the sum diverges, naming the states of the component: a cycle of negative cost
            (tropical), or cycles whose weights sum to infinity (log, probability).
    """
    if f.semiring.code == BOOLEAN:
        weight, final = costs_of(f)
        reached = _sums(f, TROPICAL, weight, final, reverse) < np.inf
        return reached.astype(np.float64)
    weight, final = f.weight.astype(np.float64), f.final.astype(np.float64)
    return _sums(f, f.semiring.code, weight, final, reverse)


def least_costs(f: Fst, reverse: bool = False) -> F64:
    """The least cost of a path from the start to each state, or from each state to the finals: f64[V].

    Weights of every semiring are read as costs (`costs_of`). A cycle on no path from the start to a final
    state makes no difference; what states on no such path have is without a meaning.

    Raises:
        InputError: if there is a cycle of negative cost on such a path.
    """
    return useful_sums(f, TROPICAL, *costs_of(f), reverse)


def useful_sums(f: Fst, code: int, weight: F64, final: F64, reverse: bool) -> F64:
    """The sums of the paths from the start to the finals: of their beginnings, or of their ends.

    Args:
        f: any machine; its own weights are not looked at.
        code: TROPICAL, LOG or PROBABILITY.
        weight: [E] weights in that semiring.
        final: [V] the same.
        reverse: sum from each state to the finals, instead of from the start to each state.

    Returns:
        [V] without a meaning for states on no path from the start to a final state.

    Raises:
        InputError: if the sum diverges.
    """
    try:
        return _sums(f, code, weight, final, reverse)
    except InputError:  # perhaps on a cycle that no path takes
        zero = 0.0 if code == PROBABILITY else np.inf
        useful = useful_states(f)
        on_paths = useful[f.source] & useful[f.nextstate]
        weight, final = np.where(on_paths, weight, zero), np.where(useful, final, zero)
        return _sums(f, code, weight, final, reverse)


def useful_states(f: Fst) -> Bools:
    """[V] whether a state lies on a path from the start to a final state, of arcs that are not zero."""
    walked = without_zero_arcs(f)
    useful = accessible(walked)
    useful &= coaccessible(walked)
    return useful


def costs_of(f: Fst) -> tuple[F64, F64]:
    """The weights of arcs f64[E] and of final states f64[V] as costs.

    A probability's cost is its negated logarithm; what the boolean semiring allows costs nothing.
    """
    weight, final = (
        converted(part, f.semiring, SEMIRINGS["log64"]) for part in (f.weight, f.final)
    )
    return weight, final


def shortest_distance(f: Fst) -> float:
    """The semiring sum of all paths from the start to the finals.

    What lies on no such path does not count: a cycle that never ends makes no sum diverge.

    Raises:
        InputError: if the sum diverges; see `state_distances`.
    """
    if f.semiring.code == BOOLEAN:
        return float(least_costs(f, reverse=True)[f.start] < np.inf) if f.num_states else 0.0
    weight, final = f.weight.astype(np.float64), f.final.astype(np.float64)
    sums = useful_sums(f, f.semiring.code, weight, final, reverse=True)
    return float(sums[f.start]) if f.num_states else f.semiring.zero


def forward_score(f: Fst) -> float:
    """The logarithm of the summed probability of all paths: larger is likelier, -inf if there is none.

    Weights are read as costs (-log of a probability) in the tropical semiring too; as probabilities in
    that semiring.

    Raises:
        InputError: if the sum diverges; see `state_distances`.
    """
    return -shortest_distance(f.as_semiring("log64"))


def without_zero_arcs(f: Fst) -> Fst:
    """The machine without the arcs whose weight is the semiring's zero: they carry no path."""
    return with_arcs(f, f.weight != f.semiring.zero)


def start_sums(f: Fst, code: int, weight: F64) -> F64:
    """[V] the sums of all paths from the start to each state, as costs; of the arcs with these weights.

    Raises:
        InputError: if the sum diverges.
    """
    return _sums(f, code, weight, np.empty(0), reverse=False)


def _sums(f: Fst, code: int, weight: F64, final: F64, reverse: bool) -> F64:
    """[V] the sums in the semiring of that code, whatever the machine's own is."""
    if not f.num_states:
        return np.zeros(0)
    # A sum is kept as (low, total): low is its least cost, total the sum of exp(low - cost), [V] each.
    seed = final if reverse else _start_seed(f, code)
    low, total = seed.copy(), np.where(seed < np.inf, 1.0, 0.0)
    if code == PROBABILITY:
        total = seed.copy()
    graph = _Graph(f.offsets, f.nextstate, weight)
    # 1. Without cycles: one pass in topological order.
    order = topological_order(f)
    if order is not None:
        walk = kernels.sum_backward if reverse else kernels.sum_forward
        walk(code, *graph, order, low, total)
    else:
        # 2. With cycles: component by component, each a linear system of its own.
        _sum_cyclic(f, code, _reversed(f, graph) if reverse else graph, reverse, low, total)
    return total if code == PROBABILITY else low


def _start_seed(f: Fst, code: int) -> F64:
    seed = np.full(f.num_states, 0.0 if code == PROBABILITY else np.inf)
    seed[f.start] = 1.0 if code == PROBABILITY else 0.0
    return seed


def _reversed(f: Fst, graph: _Graph) -> _Graph:
    entering = incoming(f)
    return _Graph(entering.offsets, f.source[entering.arc], graph.weight[entering.arc])


def _sum_cyclic(f: Fst, code: int, graph: _Graph, reverse: bool, low: F64, total: F64) -> None:
    """Sum component by component into `low` and `total`, which hold the seeds."""
    components = strong_components(f)
    component = (
        (components.number - 1 - components.of).astype(np.int32) if reverse else components.of
    )
    # 1. Components in topological order (reversed if sums run backwards), members together.
    bounds, order = sorting.counting_order(component, components.number)
    at, solved = 0, False
    while True:
        # 2. Sweeps inside each component until they converge; one at which they do not is handed back.
        status, at = kernels.sum_components(
            code, *graph, component, order, bounds, low, total, at, solved
        )
        if status == systems.SOLVED:
            return
        members = order[bounds[at] : bounds[at + 1]]
        # 3. That one by sparse LU: a solution without negative entries exists only if the sum converges.
        solved = status == systems.UNDECIDED and solve(code, *graph, component, members, low, total)
        if not solved:
            raise divergence(members, code)


def divergence(members: I64, code: int) -> InputError:
    """The error for a sum that diverges around the cycles of a component."""
    named = ", ".join(map(str, members[:NAMED_STATES].tolist()))
    if len(members) > NAMED_STATES:
        named += f", ... ({len(members)} states)"
    found = "cycles whose weights sum to infinity"
    expected = "a matrix of the component's weights with a spectral radius below 1"
    if code == TROPICAL:
        found, expected = "a cycle of negative cost", "cycles of cost 0 or more"
    problem = f"sum diverges in component {{{named}}}"
    return InputError(problem, code="divergent-sum", found=found, expected=expected)
