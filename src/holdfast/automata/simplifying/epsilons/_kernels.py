"""Compiled closures over epsilon arcs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, plus
from holdfast.automata.semirings import TROPICAL
from holdfast.automata.simplifying._kernels import grown, mixed, sort_in_place


@compiled
def star(code: int, cost: float, slack: float) -> float:
    """The sum of no, one, two, ... rounds of a cycle; -inf if it diverges.

    A least cost may be below zero by `slack`: that much is rounding.
    """
    if cost == np.inf:
        return 0.0
    if code == TROPICAL:
        return 0.0 if cost >= -slack else -np.inf
    if cost <= 0.0:
        return -np.inf
    return math.log(-math.expm1(-cost))  # -log(1 / (1 - exp(-cost)))


@compiled
def component_stars(
    code: int, offsets: Any, nextstate: Any, weight: Any, component: Any, bounds: Any, order: Any
) -> tuple[Any, Any, int]:
    """The sums of all paths between any two states of each component that has a cycle.

    The members of component c are order[bounds[c]:bounds[c + 1]]. Kleene's elimination in place, one state
    after the other, solves X = A X + I: nothing is subtracted but in `star`, so the sums are exact to
    rounding, and a sum diverges if and only if one star does.

    Returns:
        f64[*] the matrices, row by row; i64[C + 1] where that of each component begins (no room for one
        without a cycle); and a component whose sum diverges, or -1.
    """
    components = len(bounds) - 1
    begin = np.zeros(components + 1, np.int64)
    local = np.empty(len(component), np.int64)
    for c in range(components):
        size = bounds[c + 1] - bounds[c]
        cyclic = size > 1
        for at in range(bounds[c], bounds[c + 1]):
            local[order[at]] = at - bounds[c]
        if size == 1:
            state = order[bounds[c]]
            for arc in range(offsets[state], offsets[state + 1]):
                cyclic |= nextstate[arc] == state
        begin[c + 1] = begin[c] + (size * size if cyclic else 0)
    sums = np.full(begin[components], np.inf)
    for c in range(components):
        if begin[c + 1] == begin[c]:
            continue
        size = bounds[c + 1] - bounds[c]
        matrix = sums[begin[c] : begin[c + 1]].reshape((size, size))
        highest = 1.0
        for at in range(bounds[c], bounds[c + 1]):
            state = order[at]
            for arc in range(offsets[state], offsets[state + 1]):
                if component[nextstate[arc]] == c:
                    row, column = local[state], local[nextstate[arc]]
                    matrix[row, column] = plus(code, matrix[row, column], weight[arc])
                    highest = max(highest, abs(weight[arc]))
        for middle in range(size):
            around = star(code, matrix[middle, middle], 1e-6 * highest)
            if around == -np.inf:
                return sums, begin, c
            for row in range(size):
                if row == middle or matrix[row, middle] == np.inf:
                    continue
                head = matrix[row, middle] + around
                for column in range(size):
                    if column != middle and matrix[middle, column] != np.inf:
                        matrix[row, column] = plus(
                            code, matrix[row, column], head + matrix[middle, column]
                        )
                matrix[row, middle] = head
            for column in range(size):
                if column != middle:
                    matrix[middle, column] += around
            matrix[middle, middle] = around
    return sums, begin, -1


@compiled
def _closure(
    code: int,
    source: int,
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    bounds: Any,
    order: Any,
    sums: Any,
    begin: Any,
    stamp: Any,
    members: Any,
    cost: Any,
    waiting: Any,
) -> int:
    """The states that epsilon arcs reach from a state, in members[:count], and the cost of each."""
    count = 1
    members[0] = source
    stamp[source] = source
    at = 0
    while at < count:
        state = members[at]
        at += 1
        cost[state] = np.inf
        for arc in range(offsets[state], offsets[state + 1]):
            if stamp[nextstate[arc]] != source:
                stamp[nextstate[arc]] = source
                members[count] = nextstate[arc]
                count += 1
    cost[source] = 0.0
    if count == 1 and begin[component[source] + 1] == begin[component[source]]:
        return count
    found = np.empty(count, np.int64)
    for at in range(count):
        found[at] = component[members[at]]
    sort_in_place(found, count)
    for at in range(count):
        c = found[at]
        if at and c == found[at - 1]:
            continue
        first, end = bounds[c], bounds[c + 1]
        if begin[c + 1] > begin[c]:
            size = end - first
            for column in range(size):
                total = np.inf
                for row in range(size):
                    before = cost[order[first + row]]
                    if before != np.inf:
                        total = plus(code, total, before + sums[begin[c] + row * size + column])
                waiting[column] = total
            for column in range(size):
                cost[order[first + column]] = waiting[column]
        for position in range(first, end):
            state = order[position]
            for arc in range(offsets[state], offsets[state + 1]):
                target = nextstate[arc]
                if component[target] != c:
                    cost[target] = plus(code, cost[target], cost[state] + weight[arc])
    return count


@compiled
def without_epsilons(
    code: int,
    offsets: Any,
    ilabel: Any,
    olabel: Any,
    nextstate: Any,
    weight: Any,
    final: Any,
    start: int,
    epsilon_offsets: Any,
    epsilon_next: Any,
    epsilon_weight: Any,
    component: Any,
    bounds: Any,
    order: Any,
    sums: Any,
    begin: Any,
) -> tuple[Any, Any, Any, Any]:
    """Every state gets the arcs and the final weight of the states in its closure; arcs alike are summed.

    Only the start and the states that other arcs enter: no path comes to the others any more.

    Args:
        code: how costs add.
        offsets: i64[V + 1], of the arcs that are no epsilons; then those of
        ilabel: i32[E],
        olabel: i32[E],
        nextstate: i32[E],
        weight: f64[E].
        final: f64[V] costs.
        start: the start state.
        epsilon_offsets: i64[V + 1], of the epsilon arcs; then those of
        epsilon_next: i32[*],
        epsilon_weight: f64[*].
        component: i32[V] of the epsilon arcs, in topological order.
        bounds: i64[C + 1],
        order: i64[V]: the members of component c are order[bounds[c]:bounds[c + 1]].
        sums: from `component_stars`.
        begin: from `component_stars`.

    Returns:
        i64[V + 1] offsets; i64[*] an arc with the labels and the nextstate of each; f64[*] its cost; f64[V]
        final costs.
    """
    states = len(offsets) - 1
    wanted = np.zeros(states, np.bool_)
    wanted[start] = True
    for arc in range(len(nextstate)):
        wanted[nextstate[arc]] = True
    stamp = np.full(states, -1, np.int64)
    members = np.empty(states, np.int64)
    cost = np.empty(states, np.float64)
    waiting = np.empty(states, np.float64)
    made_offsets = np.zeros(states + 1, np.int64)
    made_arc = np.empty(max(len(nextstate), 16), np.int64)
    made_cost = np.empty(max(len(nextstate), 16), np.float64)
    made_final = np.full(states, np.inf)
    slots = np.full(64, -1, np.int64)
    arcs = 0
    for state in range(states):
        if not wanted[state]:
            made_offsets[state + 1] = arcs
            continue
        count = _closure(
            code,
            state,
            epsilon_offsets,
            epsilon_next,
            epsilon_weight,
            component,
            bounds,
            order,
            sums,
            begin,
            stamp,
            members,
            cost,
            waiting,
        )
        gathered = 0
        for at in range(count):
            gathered += offsets[members[at] + 1] - offsets[members[at]]
        made_arc = grown(made_arc, arcs + gathered)
        made_cost = grown(made_cost, arcs + gathered)
        size = 64
        while size < 2 * gathered:
            size *= 2
        if size > len(slots):
            slots = np.full(size, -1, np.int64)
        first = arcs
        for at in range(count):
            member = members[at]
            if final[member] != np.inf:
                made_final[state] = plus(code, made_final[state], cost[member] + final[member])
            for arc in range(offsets[member], offsets[member + 1]):
                total = cost[member] + weight[arc]
                # A slot holds where an arc was written; what an earlier state wrote does not count.
                key = mixed(np.int64(ilabel[arc]) * 0x100000000 + olabel[arc])
                slot = np.int64(mixed(key + np.uint64(nextstate[arc])) & np.uint64(size - 1))
                while slots[slot] >= first:
                    same = made_arc[slots[slot]]
                    if (
                        ilabel[same] == ilabel[arc]
                        and olabel[same] == olabel[arc]
                        and nextstate[same] == nextstate[arc]
                    ):
                        break
                    slot = (slot + 1) & (size - 1)
                if slots[slot] >= first:
                    made_cost[slots[slot]] = plus(code, made_cost[slots[slot]], total)
                    continue
                slots[slot] = arcs
                made_arc[arcs] = arc
                made_cost[arcs] = total
                arcs += 1
        made_offsets[state + 1] = arcs
    return made_offsets, made_arc[:arcs], made_cost[:arcs], made_final
