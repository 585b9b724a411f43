"""Compiled search for least costs inside a strongly connected component, and a heap."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled

EPSILON = 2.0**-52


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
            # Rounding on a cycle of cost zero is not an improvement.
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
def heap_push(keys: Any, items: Any, count: int, key: float, item: int) -> None:
    """Put an item into a heap of `count` items; the least key, then the least item, is on top.

    Every entry has four below it, which lie together in memory.
    """
    at = count
    while at:
        above = (at - 1) >> 2
        if keys[above] < key or (keys[above] == key and items[above] < item):
            break
        keys[at] = keys[above]
        items[at] = items[above]
        at = above
    keys[at] = key
    items[at] = item


@compiled
def heap_pop(keys: Any, items: Any, count: int) -> tuple[float, int]:
    """Take the first item out of a heap of `count` items."""
    key, item = keys[0], items[0]
    count -= 1
    moved_key, moved = keys[count], items[count]
    at = 0
    while 4 * at + 1 < count:
        first = 4 * at + 1
        least = first
        for below in range(first + 1, min(first + 4, count)):
            if keys[below] < keys[least] or (
                keys[below] == keys[least] and items[below] < items[least]
            ):
                least = below
        if moved_key < keys[least] or (moved_key == keys[least] and moved < items[least]):
            break
        keys[at] = keys[least]
        items[at] = items[least]
        at = least
    keys[at] = moved_key
    items[at] = moved
    return key, item
