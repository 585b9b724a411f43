"""Compiled best-first search.

What the search orders by is the regret of a prefix: how much more than the best path the best path costs
that begins with it. An arc from s to t of cost w adds w + ahead[t] - ahead[s] to it, where ahead is the
least cost to a final state; on a best path that is exactly 0, so rounding piles up nowhere, and every
prefix is known to lead to a path of exactly its regret. That path is the prefix's own, and no other's: so
n best paths need no prefix whose regret is that of n known ones, and the search of one path is a walk.
Among equal regrets the prefix with the fewest arcs to go comes first (`steps`), so that cycles that cost
nothing end too, then the one made last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled
from holdfast.automata.path_sums.relaxation_kernels import heap_pop, heap_push

# How an advance ends.
ENOUGH, EXHAUSTED, FULL = 0, 1, 2
# Counters of a search.
ITEMS, HEAP, FOUND, KNOWN = 0, 1, 2, 3

SERIAL_BITS = 40
SERIAL = (1 << SERIAL_BITS) - 1
MOST_STEPS = (1 << 22) - 1


@compiled
def tie(steps: int, item: int) -> int:
    """What orders items of equal regret; `item_of` takes the item out again."""
    return (min(steps, MOST_STEPS) << SERIAL_BITS) | (SERIAL - item)


@compiled
def item_of(order: int) -> int:
    """The item in a `tie`."""
    return SERIAL - (order & SERIAL)


@compiled
def regret_of(cost: float, here: float) -> float:
    """What a step adds to the regret; rounding never makes it negative."""
    return max(cost - here, 0.0)


@compiled
def steps_to_go(offsets: Any, source: Any, arc: Any, weight: Any, final: Any, ahead: Any) -> Any:
    """The fewest arcs of a best path to a final state, i32[V], by a walk along incoming arcs."""
    states = len(final)
    steps = np.full(states, MOST_STEPS, np.int32)
    queue = np.empty(states, np.int32)
    count = 0
    for state in range(states):
        if final[state] < np.inf and final[state] <= ahead[state]:
            steps[state] = 0
            queue[count] = state
            count += 1
    done = 0
    while done < count:
        target = queue[done]
        done += 1
        for at in range(offsets[target], offsets[target + 1]):
            state = source[arc[at]]
            if (
                steps[state] == MOST_STEPS
                and weight[arc[at]] < np.inf
                and weight[arc[at]] + ahead[target] <= ahead[state]
            ):
                steps[state] = steps[target] + 1
                queue[count] = state
                count += 1
    return steps


@compiled
def is_needed(known: Any, spare: Any, counters: Any, regret: float) -> bool:
    """Whether one more path, of that regret, can be among the best; it is remembered if so.

    `known` is a heap of the regrets of the best paths known, negated so that the worst is on top, with
    room for as many as are wanted; empty if all are.
    """
    room = len(known)
    if room == 0:
        return True
    if counters[KNOWN] == room:
        if regret >= -known[0]:
            return False
        heap_pop(known, spare, room)
        counters[KNOWN] -= 1
    heap_push(known, spare, counters[KNOWN], -regret, 0)
    counters[KNOWN] += 1
    return True


@compiled
def advance(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    final: Any,
    ahead: Any,
    steps: Any,
    keys: Any,
    ties: Any,
    state_of: Any,
    parent: Any,
    arc_of: Any,
    known: Any,
    spare: Any,
    counters: Any,
    complete: Any,
) -> int:
    """Go on until `complete` is full of items, each the end of a complete path, best first.

    Args:
        offsets: i64[V + 1], arcs of each state.
        nextstate: i32[E].
        weight: f64[E], costs.
        final: f64[V], costs.
        ahead: f64[V], least cost to a final state.
        steps: i32[V], the fewest arcs of a best path to a final state.
        keys: f64[C], heap of regrets.
        ties: i64[C], heap of items.
        state_of: i32[C], the state an item has come to; -1 for a complete path.
        parent: i64[C], the item it continues.
        arc_of: i64[C], its last arc.
        known: f64[n], see `is_needed`.
        spare: i64[n].
        counters: i64[4].
        complete: i64[n], complete items.

    Returns:
        ENOUGH, EXHAUSTED, or FULL if there is no room for more items: give more and call again.
    """
    while counters[FOUND] < len(complete):
        # 1. The prefix with the least regret (its cost over the best path's) is next; at equal regret the
        # one with the fewest arcs to go.
        if counters[HEAP] == 0:
            return EXHAUSTED
        item = item_of(ties[0])
        state = state_of[item]
        if state >= 0 and counters[ITEMS] + offsets[state + 1] - offsets[state] + 1 > len(keys):
            return FULL
        regret, _ = heap_pop(keys, ties, counters[HEAP])
        counters[HEAP] -= 1
        # 2. One that has ended is the next path: nothing open can be better.
        if state < 0:
            complete[counters[FOUND]] = item
            counters[FOUND] += 1
            continue
        # One of the next prefixes carries on this one's path; only the others are new ones.
        heir = _heir(offsets, nextstate, weight, final, ahead, steps, state)
        for arc in range(offsets[state + 1] - 1, offsets[state] - 2, -1):
            if arc >= offsets[state]:
                target = nextstate[arc]
                cost = weight[arc] + ahead[target]
                to_go = steps[target]
            else:  # the state is final: the path ends
                target, arc, to_go = -1, -1, -1
                cost = final[state]
            if cost == np.inf:
                continue
            # 3. Each other continuation is a deviation: its regret grows by what the arc costs more than
            # the best way on. It is kept only if it can still be among the best.
            after = regret + regret_of(cost, ahead[state])
            if arc != heir and not is_needed(known, spare, counters, after):
                continue
            child = counters[ITEMS]
            state_of[child], parent[child], arc_of[child] = target, item, arc
            heap_push(keys, ties, counters[HEAP], after, tie(to_go + 1, child))
            counters[ITEMS] += 1
            counters[HEAP] += 1
    return ENOUGH


@compiled
def _heir(
    offsets: Any, nextstate: Any, weight: Any, final: Any, ahead: Any, steps: Any, state: int
) -> int:
    """The next arc of a best path, the one with the fewest arcs to the end; -1 if the path ends."""
    best, fewest, heir = np.inf, MOST_STEPS, -1
    for arc in range(offsets[state], offsets[state + 1]):
        target = nextstate[arc]
        cost = weight[arc] + ahead[target]
        if cost == np.inf:
            continue
        more = regret_of(cost, ahead[state])
        if more < best or (more == best and steps[target] < fewest):
            best, fewest, heir = more, steps[target], arc
    if final[state] < np.inf and regret_of(final[state], ahead[state]) <= best:
        return -1
    return heir


@compiled
def trace(parent: Any, arc_of: Any, ends: Any, most: int) -> tuple[Any, Any]:
    """The arcs of complete paths: bounds i64[n + 1] and arcs i64[*], none if they are more than `most`."""
    bounds = np.zeros(len(ends) + 1, np.int64)
    for path in range(len(ends)):
        count = 0
        item = ends[path]
        while item >= 0:
            count += arc_of[item] >= 0
            item = parent[item]
        bounds[path + 1] = bounds[path] + count
    if bounds[-1] > most:
        return bounds, np.empty(0, np.int64)
    arcs = np.empty(bounds[-1], np.int64)
    for path in range(len(ends)):
        at = bounds[path + 1]
        item = ends[path]
        while item >= 0:
            if arc_of[item] >= 0:
                at -= 1
                arcs[at] = arc_of[item]
            item = parent[item]
    return bounds, arcs
