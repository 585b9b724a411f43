"""Compiled closures over epsilon arcs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from holdfast.automata._kernels import compiled, plus
from holdfast.automata.path_sums.relaxation_kernels import relax
from holdfast.automata.path_sums.system_kernels import DIVERGES, SOLVED, solve
from holdfast.automata.semirings import TROPICAL
from holdfast.automata.simplifying._kernels import mixed, sort_in_place


class Arcs(NamedTuple):
    """The arcs that are not epsilons, by state, and final costs."""

    offsets: Any
    """i64[V + 1]"""
    ilabel: Any
    """i32[E]"""
    olabel: Any
    """i32[E]"""
    nextstate: Any
    """i32[E]"""
    weight: Any
    """f64[E] costs."""
    final: Any
    """f64[V] costs."""


class Epsilons(NamedTuple):
    """The epsilon arcs by state, their strongly connected components, and scratch."""

    offsets: Any
    """i64[V + 1]"""
    nextstate: Any
    """i32[*]"""
    weight: Any
    """f64[*] costs."""
    component: Any
    """i32[V] in topological order."""
    bounds: Any
    """i64[C + 1]"""
    order: Any
    """i64[V] the members of component c are order[bounds[c]:bounds[c + 1]]."""
    local: Any
    """i32[V] the place of each state among the members of its component."""
    cyclic: Any
    """bool[C] whether a component has arcs inside."""
    stamp: Any
    """i64[V] the last source that reached each state."""
    members: Any
    """i64[V] the states of a closure."""
    cost: Any
    """f64[V] the sums of the paths to them."""


FULL = 3  # beside SOLVED, DIVERGES and UNDECIDED: the arrays of the result are too short


@compiled
def _closure(code: int, source: int, is_summed: bool, epsilons: Epsilons) -> tuple[int, int, int]:
    """The states that epsilon arcs reach from a state, and the sum of the paths to each as a cost.

    Args:
        code: how costs add.
        source: the state.
        is_summed: whether the costs are known already.
        epsilons: its `members` are set to the states, the first `count` of them, and `cost` to their sums.

    Returns:
        SOLVED, DIVERGES or UNDECIDED; the component where the sum stopped; the count.
    """
    offsets, nextstate, weight, component, bounds, order, local, cyclic, stamp, members, cost = (
        epsilons
    )
    count = 1
    members[0] = source
    stamp[source] = source
    at = 0
    while at < count:
        state = members[at]
        at += 1
        if not is_summed:
            cost[state] = np.inf
        for arc in range(offsets[state], offsets[state + 1]):
            if stamp[nextstate[arc]] != source:
                stamp[nextstate[arc]] = source
                members[count] = nextstate[arc]
                count += 1
    if is_summed:
        return SOLVED, -1, count
    cost[source] = 0.0
    if count == 1 and not cyclic[component[source]]:
        return SOLVED, -1, count
    closure = np.empty(count, np.int64)
    for at in range(count):
        closure[at] = component[members[at]]
    sort_in_place(closure, count)
    for at in range(count):
        c = closure[at]
        if at and c == closure[at - 1]:
            continue
        inside = order[bounds[c] : bounds[c + 1]]
        if cyclic[c]:
            status = SOLVED
            if code != TROPICAL:
                status = solve(
                    code, offsets, nextstate, weight, component, inside, local, cost, cost
                )
            elif not relax(offsets, nextstate, weight, component, inside, local, cost):
                status = DIVERGES
            if status != SOLVED:
                return status, c, count
        for state in inside:
            for arc in range(offsets[state], offsets[state + 1]):
                target = nextstate[arc]
                if component[target] != c:
                    cost[target] = plus(code, cost[target], cost[state] + weight[arc])
    return SOLVED, -1, count


@compiled
def without_epsilons(
    code: int,
    arcs_of: Arcs,
    keep: Any,
    epsilons: Epsilons,
    first: int,
    is_summed: bool,
    out_offsets: Any,
    out_arc: Any,
    out_cost: Any,
    out_final: Any,
) -> tuple[int, int, int]:
    """Every wanted state gets the arcs and the final weight of the states in its closure.

    Arcs with the same labels and nextstate are summed.

    Args:
        code: how costs add.
        arcs_of: the other arcs.
        keep: bool[V].
        epsilons: the epsilon arcs.
        first: the state to begin with.
        is_summed: whether the sums of its closure are known already.
        out_offsets: i64[V + 1] is set to the offsets of the result.
        out_arc: i64[*] is set to an arc with the labels and the nextstate of each of its arcs.
        out_cost: f64[*] is set to their costs.
        out_final: f64[V] is set to the final costs; infinite before.

    Returns:
        How it ended: SOLVED, FULL, DIVERGES or UNDECIDED; at which state; and the component of the latter
        two, or the number of arcs that FULL asks for.
    """
    offsets, ilabel, olabel, nextstate, weight, final = arcs_of
    members, cost = epsilons.members, epsilons.cost
    slots = np.full(64, -1, np.int64)
    for state in range(first, len(keep)):
        arcs = out_offsets[state]
        out_offsets[state + 1] = arcs
        if not keep[state]:
            continue
        status, c, count = _closure(code, state, is_summed and state == first, epsilons)
        if status != SOLVED:
            return status, state, c
        gathered = 0
        for at in range(count):
            gathered += offsets[members[at] + 1] - offsets[members[at]]
        if arcs + gathered > len(out_arc):
            return FULL, state, arcs + gathered
        size = 64
        while size < 2 * gathered:
            size *= 2
        if size > len(slots):
            slots = np.full(size, -1, np.int64)
        total = np.inf
        for at in range(count):
            member = members[at]
            if final[member] != np.inf:
                total = plus(code, total, cost[member] + final[member])
            for arc in range(offsets[member], offsets[member + 1]):
                summed = cost[member] + weight[arc]
                # A slot holds where an arc was written; what an earlier state wrote does not count.
                key = mixed(np.int64(ilabel[arc]) * 0x100000000 + olabel[arc])
                slot = np.int64(mixed(key + np.uint64(nextstate[arc])) & np.uint64(size - 1))
                while slots[slot] >= out_offsets[state]:
                    same = out_arc[slots[slot]]
                    if (
                        ilabel[same] == ilabel[arc]
                        and olabel[same] == olabel[arc]
                        and nextstate[same] == nextstate[arc]
                    ):
                        break
                    slot = (slot + 1) & (size - 1)
                if slots[slot] >= out_offsets[state]:
                    out_cost[slots[slot]] = plus(code, out_cost[slots[slot]], summed)
                    continue
                slots[slot] = arcs
                out_arc[arcs] = arc
                out_cost[arcs] = summed
                arcs += 1
        out_final[state] = total
        out_offsets[state + 1] = arcs
    return SOLVED, len(keep), -1
