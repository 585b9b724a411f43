"""Compiled sums over all paths, in topological order.

Weights are float64 here, whatever the machine holds: costs for the tropical (and boolean) and the log
semiring, plain numbers for the probability semiring. A sum that is being made stands in two arrays:
`low` f64[V], the least cost that came in, and `total` f64[V], the sum of exp(low - cost) (log) or of the
weights (probability). `settle` makes one number of the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled
from holdfast.automata.path_sums.relaxation_kernels import relax
from holdfast.automata.path_sums.system_kernels import DIVERGES, SOLVED, solve
from holdfast.automata.semirings import LOG, PROBABILITY, TROPICAL


@compiled
def settle(code: int, low: Any, total: Any, state: int) -> bool:
    """Make one number of a finished sum: in `low`, or `total` (probability). False if nothing came in."""
    if code == PROBABILITY:
        return total[state] > 0.0
    if low[state] == np.inf:
        return False
    if code == LOG and total[state] != 1.0:
        low[state] -= math.log(total[state])
        total[state] = 1.0
    return True


@compiled
def add_cost(low: Any, total: Any, state: int, cost: float) -> None:
    """Add a finite cost to a state's sum in the log semiring."""
    before = low[state]
    if cost < before:
        total[state] = total[state] * math.exp(cost - before) + 1.0
        low[state] = cost
    else:
        total[state] += math.exp(before - cost)


@compiled
def push_arcs(
    code: int,
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    low: Any,
    total: Any,
    state: int,
) -> None:
    """Add a settled state's sum, times each arc that leaves its component, to the arc's target."""
    inside = component[state]
    for arc in range(offsets[state], offsets[state + 1]):
        target = nextstate[arc]
        if component[target] == inside:
            continue
        if code == PROBABILITY:
            total[target] += total[state] * weight[arc]
            continue
        cost = low[state] + weight[arc]
        if code == TROPICAL:
            low[target] = min(low[target], cost)
        elif cost != np.inf:
            add_cost(low, total, target, cost)


@compiled
def sum_forward(
    code: int, offsets: Any, nextstate: Any, weight: Any, order: Any, low: Any, total: Any
) -> None:
    """Sums from the start in a machine without cycles: `low` and `total` hold the seeds, then the sums."""
    component = np.arange(len(low))  # every state is alone
    for state in order:
        if settle(code, low, total, state):
            push_arcs(code, offsets, nextstate, weight, component, low, total, state)


@compiled
def sum_backward(
    code: int, offsets: Any, nextstate: Any, weight: Any, order: Any, low: Any, total: Any
) -> None:
    """Sums to the finals in a machine without cycles: `low` and `total` hold the seeds, then the sums."""
    for at in range(len(order) - 1, -1, -1):
        state = order[at]
        for arc in range(offsets[state], offsets[state + 1]):
            target = nextstate[arc]
            if code == PROBABILITY:
                total[state] += weight[arc] * total[target]
                continue
            cost = weight[arc] + low[target]
            if code == TROPICAL:
                low[state] = min(low[state], cost)
            elif cost != np.inf:
                add_cost(low, total, state, cost)
        settle(code, low, total, state)


@compiled
def sum_components(
    code: int,
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    order: Any,
    bounds: Any,
    low: Any,
    total: Any,
    first: int,
    first_is_solved: bool,
) -> tuple[int, int]:
    """Sums from the seeds in any machine, one strongly connected component after the other.

    Args:
        code: TROPICAL, LOG or PROBABILITY.
        offsets: i64[V + 1], arcs of each state.
        nextstate: i32[E].
        weight: f64[E].
        component: i32[V], in topological order.
        order: i64[V], the states by component.
        bounds: i64[C + 1], where each component begins in `order`.
        low: f64[V], the seeds; then the sums.
        total: f64[V], the seeds; then the sums.
        first: the component to begin with.
        first_is_solved: whether the sums of that component are known already.

    Returns:
        SOLVED, or DIVERGES or UNDECIDED, and the component at which the walk stopped.
    """
    local = np.empty(len(low), np.int32)
    for c in range(first, len(bounds) - 1):
        members = order[bounds[c] : bounds[c + 1]]
        if not (first_is_solved and c == first):
            reached = False
            for at in range(len(members)):
                local[members[at]] = at
                reached |= settle(code, low, total, members[at])
            if not reached:
                continue
            if _has_inner_arc(offsets, nextstate, component, members):
                if code == TROPICAL:
                    if not relax(offsets, nextstate, weight, component, members, local, low):
                        return DIVERGES, c
                else:
                    status = solve(
                        code, offsets, nextstate, weight, component, members, local, low, total
                    )
                    if status != SOLVED:
                        return status, c
        for state in members:
            push_arcs(code, offsets, nextstate, weight, component, low, total, state)
    return SOLVED, len(bounds) - 1


@compiled
def _has_inner_arc(offsets: Any, nextstate: Any, component: Any, members: Any) -> bool:
    if len(members) > 1:
        return True
    state = members[0]
    return bool((nextstate[offsets[state] : offsets[state + 1]] == state).any())


@compiled
def within(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    final: Any,
    to: Any,
    onward: Any,
    limit: float,
    rounding: float,
) -> tuple[Any, Any]:
    """Which arcs, bool[E], and final weights, bool[V], lie on a path that costs no more than the limit.

    Args:
        offsets: i64[V + 1].
        nextstate: i32[E].
        weight: f64[E], costs.
        final: f64[V], costs.
        to: f64[V], least costs from the start.
        onward: f64[V], least costs to the finals.
        limit: a cost.
        rounding: by so much, relative to what is added up, sums may lie above the limit.
    """
    arcs = np.zeros(len(weight), np.bool_)
    finals = np.zeros(len(final), np.bool_)
    for state in range(len(final)):
        if to[state] == np.inf:
            continue
        slack = limit + rounding * (abs(to[state]) + abs(final[state]))
        finals[state] = final[state] < np.inf and to[state] + final[state] <= slack
        for arc in range(offsets[state], offsets[state + 1]):
            cost = weight[arc] + onward[nextstate[arc]]
            if cost < np.inf:
                size = abs(to[state]) + abs(weight[arc]) + abs(onward[nextstate[arc]])
                arcs[arc] = to[state] + cost <= limit + rounding * size
    return arcs, finals
