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
from holdfast.automata.paths import _kernels as kernels
from holdfast.automata.paths.large_components import solve
from holdfast.automata.semirings import BOOLEAN, LOG, PROBABILITY, TROPICAL
from holdfast.automata.structure.components import strong_components, topological_order
from holdfast.automata.structure.connecting import connect
from holdfast.automata.structure.reachability import incoming
from holdfast.errors import InputError

F64 = npt.NDArray[np.float64]

DENSE = 256
"""Components with more states are solved as sparse systems."""
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
    if not f.num_states:
        return np.zeros(0)
    code = f.semiring.code
    seed = _numbers(f.final, code) if reverse else _start_seed(f)
    low, total = seed.copy(), np.where(seed < np.inf, 1.0, 0.0)
    if code == PROBABILITY:
        total = seed.copy()
    walked = TROPICAL if code == BOOLEAN else code
    graph = _Graph(f.offsets, f.nextstate, _numbers(f.weight, code))
    order = topological_order(f)
    if order is not None:
        walk = kernels.sum_backward if reverse else kernels.sum_forward
        walk(walked, *graph, order, low, total)
    else:
        _sum_cyclic(f, walked, _reversed(f, graph) if reverse else graph, reverse, low, total)
    if code == BOOLEAN:
        return (low < np.inf).astype(np.float64)
    return total if code == PROBABILITY else low


def shortest_distance(f: Fst) -> float:
    """The semiring sum of all paths from the start to the finals.

    What lies on no such path does not count: a cycle that never ends makes no sum diverge.

    Raises:
        InputError: if the sum diverges; see `state_distances`.
    """
    useful = connect(without_zero_arcs(f))
    if not useful.num_states:
        return f.semiring.zero
    return float(state_distances(useful, reverse=True)[useful.start])


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
    zero = f.weight == f.semiring.zero
    if not zero.any():
        return f
    kept = np.flatnonzero(~zero)
    before = np.concatenate(([0], np.cumsum(~zero)))
    return f.with_(
        offsets=before[f.offsets],
        ilabel=f.ilabel[kept],
        olabel=f.olabel[kept],
        nextstate=f.nextstate[kept],
        weight=f.weight[kept],
    )


def _numbers(weights: npt.NDArray[np.floating], code: int) -> F64:
    """Weights as the kernels take them: costs, or probabilities."""
    if code == BOOLEAN:
        return np.where(weights != 0, 0.0, np.inf)
    return weights.astype(np.float64)


def _start_seed(f: Fst) -> F64:
    seed = np.full(f.num_states, 0.0 if f.semiring.code == PROBABILITY else np.inf)
    if f.start >= 0:
        seed[f.start] = 1.0 if f.semiring.code == PROBABILITY else 0.0
    return seed


def _reversed(f: Fst, graph: _Graph) -> _Graph:
    entering = incoming(f)
    return _Graph(entering.offsets, f.source[entering.arc], graph.weight[entering.arc])


def _sum_cyclic(f: Fst, code: int, graph: _Graph, reverse: bool, low: F64, total: F64) -> None:
    """Sum component by component into `low` and `total`, which hold the seeds."""
    found = strong_components(f)
    component = (found.number - 1 - found.of).astype(np.int32) if reverse else found.of
    bounds, order = sorting.counting_order(component, found.number)
    at, solved = 0, False
    while True:
        status, at = kernels.sum_components(
            code, *graph, component, order, bounds, low, total, at, solved, DENSE
        )
        if status == kernels.DONE:
            return
        members = order[bounds[at] : bounds[at + 1]]
        solved = status == kernels.LARGE and solve(
            code == LOG, *graph, component, members, low, total
        )
        if not solved:
            raise _divergence(members, code)


def _divergence(members: I64, code: int) -> InputError:
    named = ", ".join(map(str, members[:NAMED_STATES].tolist()))
    if len(members) > NAMED_STATES:
        named += f", ... ({len(members)} states)"
    return InputError(
        f"sum diverges in component {{{named}}}",
        found="a cycle of negative cost"
        if code == TROPICAL
        else "cycles whose weights sum to infinity",
        expected="cycles of cost 0 or more"
        if code == TROPICAL
        else "a matrix of the component's weights with a spectral radius below 1",
    )
