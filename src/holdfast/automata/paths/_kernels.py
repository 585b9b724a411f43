"""Compiled sums over paths, and the heap of the searches.

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
from holdfast.automata.semirings import LOG, PROBABILITY, TROPICAL

# How a walk over components ends.
DONE, DIVERGES, LARGE = 0, 1, 2

EPSILON = 2.0**-52


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
    """Add a settled state's sum, times each arc, to the arc's target; arcs inside a component are left out.

    `component` may be empty: then no arc is.
    """
    inside = component[state] if len(component) else -1
    for arc in range(offsets[state], offsets[state + 1]):
        target = nextstate[arc]
        if inside >= 0 and component[target] == inside:
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
    everywhere = np.empty(0, np.int32)
    for state in order:
        if settle(code, low, total, state):
            push_arcs(code, offsets, nextstate, weight, everywhere, low, total, state)


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
    dense: int,
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
        dense: components with more states are left to the caller (not in the tropical semiring).

    Returns:
        DONE, DIVERGES or LARGE, and the component at which the walk stopped.
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
                elif len(members) > dense:
                    return LARGE, c
                elif not _solve(
                    code, offsets, nextstate, weight, component, members, local, low, total
                ):
                    return DIVERGES, c
        for state in members:
            push_arcs(code, offsets, nextstate, weight, component, low, total, state)
    return DONE, len(bounds) - 1


@compiled
def _has_inner_arc(offsets: Any, nextstate: Any, component: Any, members: Any) -> bool:
    if len(members) > 1:
        return True
    state = members[0]
    return bool((nextstate[offsets[state] : offsets[state + 1]] == state).any())


@compiled
def relax(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    members: Any,
    local: Any,
    low: Any,
) -> bool:
    """Least costs inside one component, from those in `low`; False if a cycle has a negative cost."""
    inside = component[members[0]]
    inner = 0
    negative = False
    for state in members:
        for arc in range(offsets[state], offsets[state + 1]):
            if component[nextstate[arc]] == inside:
                inner += 1
                negative |= weight[arc] < 0.0
    if negative:
        return _relax_in_turn(offsets, nextstate, weight, component, members, local, low)
    _relax_nearest_first(offsets, nextstate, weight, component, members, inner, low)
    return True


@compiled
def _relax_nearest_first(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    members: Any,
    inner: int,
    low: Any,
) -> None:
    """Dijkstra's algorithm: no cost is negative."""
    inside = component[members[0]]
    keys = np.empty(inner + len(members), np.float64)
    items = np.empty(inner + len(members), np.int64)
    count = 0
    for state in members:
        if low[state] != np.inf:
            heap_push(keys, items, count, low[state], state)
            count += 1
    while count:
        cost, state = heap_pop(keys, items, count)
        count -= 1
        if cost > low[state]:
            continue
        for arc in range(offsets[state], offsets[state + 1]):
            target = nextstate[arc]
            if component[target] == inside and cost + weight[arc] < low[target]:
                low[target] = cost + weight[arc]
                heap_push(keys, items, count, low[target], target)
                count += 1


@compiled
def _relax_in_turn(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    members: Any,
    local: Any,
    low: Any,
) -> bool:
    """Bellman and Ford's algorithm with a queue; a cycle of predecessors is one of negative cost."""
    inside = component[members[0]]
    size = len(members)
    queue = members.copy()  # a ring: each state stands in it once at most
    queued = np.zeros(size, np.bool_)
    parent = np.full(size, -1, np.int32)
    head = count = 0
    for state in members:
        if low[state] != np.inf:
            queue[count] = state
            queued[local[state]] = True
            count += 1
    until_check = size
    while count:
        state = queue[head]
        head = head + 1 if head + 1 < size else 0
        count -= 1
        queued[local[state]] = False
        for arc in range(offsets[state], offsets[state + 1]):
            target = nextstate[arc]
            if component[target] != inside:
                continue
            cost = low[state] + weight[arc]
            # Rounding on a cycle of cost zero is no improvement.
            slack = 4 * EPSILON * (abs(cost) + abs(weight[arc]))
            if low[target] == np.inf or cost < low[target] - slack:
                if cost == np.inf:
                    continue
                low[target] = cost
                parent[local[target]] = local[state]
                if not queued[local[target]]:
                    queued[local[target]] = True
                    queue[(head + count) % size] = target
                    count += 1
        until_check -= 1
        if until_check == 0:
            if _has_cycle(parent):
                return False
            until_check = size
    return True


@compiled
def _has_cycle(parent: Any) -> bool:
    """Whether following predecessors (-1: none) ever comes back."""
    seen = np.zeros(len(parent), np.int32)
    for begin in range(len(parent)):
        at = begin
        while at >= 0 and seen[at] == 0:
            seen[at] = begin + 1
            at = parent[at]
        if at >= 0 and seen[at] == begin + 1:
            return True
    return False


@compiled
def _solve(
    code: int,
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    members: Any,
    local: Any,
    low: Any,
    total: Any,
) -> bool:
    """Sums inside one component: x = A x + b by elimination; False if they diverge.

    In the log semiring x is scaled by the best paths, so no entry of A or b exceeds 1 and none of x is
    below 1: costs of any size neither overflow nor vanish. Nothing is subtracted but A[k, k] from 1, and
    the sums converge exactly if each of these differences is positive (I - A is then a nonsingular
    M-matrix; Berman and Plemmons, "Nonnegative matrices in the mathematical sciences", chapter 6).
    """
    size = len(members)
    x = np.empty(size, np.float64)
    for at in range(size):
        x[at] = low[members[at]] if code == LOG else total[members[at]]
    if code == LOG:
        if not relax(offsets, nextstate, weight, component, members, local, low):
            return False
        for at in range(size):
            x[at] = math.exp(low[members[at]] - x[at])
    a = np.zeros((size, size), np.float64)
    for at in range(size):
        state = members[at]
        for arc in range(offsets[state], offsets[state + 1]):
            target = nextstate[arc]
            if component[target] == component[state]:
                if code == LOG:
                    a[local[target], at] += math.exp(low[target] - low[state] - weight[arc])
                else:
                    a[local[target], at] += weight[arc]
    if not _eliminate(a, x):
        return False
    for at in range(size):
        if code == LOG:
            low[members[at]] -= math.log(x[at])
        else:
            total[members[at]] = x[at]
    return True


@compiled
def _eliminate(a: Any, x: Any) -> bool:
    """Solve x = A x + b in place, b given in x, A and b not negative; False if the sum diverges."""
    size = len(x)
    for k in range(size):
        left = 1.0 - a[k, k]
        if not left > 4 * size * EPSILON:
            return False
        for i in range(k + 1, size):
            if a[i, k] != 0.0:
                factor = a[i, k] / left
                for j in range(k + 1, size):
                    a[i, j] += factor * a[k, j]
                x[i] += factor * x[k]
    for k in range(size - 1, -1, -1):
        known = x[k]
        for j in range(k + 1, size):
            known += a[k, j] * x[j]
        x[k] = known / (1.0 - a[k, k])
    return True


@compiled
def heap_push(keys: Any, items: Any, count: int, key: float, item: int) -> None:
    """Put an item into a binary heap of `count` items; the least key, then the least item, is on top."""
    at = count
    while at:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and items[above] < item):
            break
        keys[at] = keys[above]
        items[at] = items[above]
        at = above
    keys[at] = key
    items[at] = item


@compiled
def heap_pop(keys: Any, items: Any, count: int) -> tuple[float, int]:
    """Take the first item out of a binary heap of `count` items."""
    key, item = keys[0], items[0]
    count -= 1
    moved_key, moved = keys[count], items[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        right = below + 1
        if right < count and (
            keys[right] < keys[below]
            or (keys[right] == keys[below] and items[right] < items[below])
        ):
            below = right
        if moved_key < keys[below] or (moved_key == keys[below] and moved < items[below]):
            break
        keys[at] = keys[below]
        items[at] = items[below]
        at = below
    keys[at] = moved_key
    items[at] = moved
    return key, item
