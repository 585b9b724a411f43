"""Compiled best-first search over strings: the machine is determinized where the search goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled
from holdfast.automata.path_sums.relaxation_kernels import heap_pop, heap_push
from holdfast.automata.path_sums.search_kernels import (
    KNOWN,
    is_needed,
    item_of,
    regret_of,
    tie,
    trace,
)

# Of the three numbers of an element.
STATE, PARENT, ARC = 0, 1, 2


@compiled
def grown(array: Any, size: int) -> Any:
    """The array with room for at least `size` entries."""
    if size <= len(array):
        return array
    longer = np.empty(max(size, 2 * len(array)), array.dtype)
    for at in range(len(array)):
        longer[at] = array[at]
    return longer


@compiled
def close(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    label: Any,
    ahead: Any,
    first: int,
    last: int,
    count: int,
    element: Any,
    regret_at: Any,
    limit: float,
    seen: Any,
) -> tuple[Any, int, Any, Any]:
    """Follow the epsilon arcs from the elements first:last, nearest first.

    Args:
        offsets: i64[V + 1], arcs of each state.
        nextstate: i32[E].
        weight: f64[E], costs.
        label: i32[E], 0 is epsilon.
        ahead: f64[V], least cost to a final state.
        first: of the elements.
        last: of the elements, plus one.
        count: how many elements there are in all; new ones are put behind them.
        element: i64[3 C], a STATE, PARENT and ARC each.
        regret_at: f64[C].
        limit: elements of a greater regret are left out.
        seen: bool[V], all false, before and after.

    Returns:
        The elements of the closure, one a state, nearest first; `count`, `element` and `regret_at`.
    """
    keys = np.empty(last - first, np.float64)
    items = np.empty(last - first, np.int64)
    closed = np.empty(last - first, np.int64)
    waiting = reached = 0
    for at in range(first, last):
        heap_push(keys, items, waiting, regret_at[at], at)
        waiting += 1
    while waiting:
        regret, at = heap_pop(keys, items, waiting)
        waiting -= 1
        state: Any = element[STATE + 3 * at]
        if seen[state]:
            continue
        seen[state] = True
        closed = grown(closed, reached + 1)
        closed[reached] = at
        reached += 1
        for arc in range(offsets[state], offsets[state + 1]):
            cost = weight[arc] + ahead[nextstate[arc]]
            after = regret + regret_of(cost, ahead[state])
            if label[arc] != 0 or seen[nextstate[arc]] or cost == np.inf or after > limit:
                continue
            element, regret_at = grown(element, 3 * count + 3), grown(regret_at, count + 1)
            element[STATE + 3 * count] = nextstate[arc]
            element[PARENT + 3 * count], element[ARC + 3 * count] = at, arc
            regret_at[count] = after
            keys, items = grown(keys, waiting + 1), grown(items, waiting + 1)
            heap_push(keys, items, waiting, regret_at[count], count)
            waiting += 1
            count += 1
    closed = closed[:reached]
    for member in closed:
        seen[element[STATE + 3 * member]] = False
    return closed, count, element, regret_at


@compiled
def leaving(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    label: Any,
    ahead: Any,
    closed: Any,
    element: Any,
    regret_at: Any,
    limit: float,
) -> tuple[Any, Any, Any]:
    """The arcs with a label that leave a closure, sorted by label, then target, then nearness.

    Arcs after which the regret is above the limit are left out.

    Returns:
        The element that each comes from, i64[n], the arc, i64[n], and the regret after it, f64[n].
    """
    count = 0
    for at in closed:
        count += offsets[element[STATE + 3 * at] + 1] - offsets[element[STATE + 3 * at]]
    before = np.empty(count, np.int64)
    arcs = np.empty(count, np.int64)
    regrets = np.empty(count, np.float64)
    keys = np.empty(count, np.float64)
    items = np.empty(count, np.int64)
    space = count  # of the positions within a target's items
    count = 0
    for at in closed:
        state = element[STATE + 3 * at]
        for arc in range(offsets[state], offsets[state + 1]):
            cost = weight[arc] + ahead[nextstate[arc]]
            after = regret_at[at] + regret_of(cost, ahead[state])
            if label[arc] == 0 or cost == np.inf or after > limit:
                continue
            before[count], arcs[count], regrets[count] = at, arc, after
            heap_push(keys, items, count, float(label[arc]), nextstate[arc] * space + count)
            count += 1
    sorted_before = np.empty(count, np.int64)
    sorted_arcs = np.empty(count, np.int64)
    sorted_regrets = np.empty(count, np.float64)
    for at in range(count):
        _, item = heap_pop(keys, items, count - at)
        sorted_before[at] = before[item % space]
        sorted_arcs[at] = arcs[item % space]
        sorted_regrets[at] = regrets[item % space]
    return sorted_before, sorted_arcs, sorted_regrets


@compiled
def group_by_label(
    nextstate: Any, label: Any, steps: Any, arcs: Any, regrets: Any
) -> tuple[Any, Any, Any]:
    """Sorted arcs by label: where each begins i64[G + 1], its least regret f64[G], steps to go i64[G]."""
    bounds = np.empty(len(arcs) + 1, np.int64)
    least = np.empty(len(arcs), np.float64)
    to_go = np.empty(len(arcs), np.int64)
    groups = 0
    for at in range(len(arcs)):
        if at == 0 or label[arcs[at]] != label[arcs[at - 1]]:
            bounds[groups] = at
            least[groups] = np.inf
            groups += 1
        steps_here = steps[nextstate[arcs[at]]]
        if regrets[at] < least[groups - 1] or (
            regrets[at] == least[groups - 1] and steps_here < to_go[groups - 1]
        ):
            least[groups - 1], to_go[groups - 1] = regrets[at], steps_here
    bounds[groups] = len(arcs)
    return bounds[: groups + 1], least[:groups], to_go[:groups]


@compiled
def best_strings(
    offsets: Any,
    nextstate: Any,
    weight: Any,
    final: Any,
    label: Any,
    ahead: Any,
    steps: Any,
    start: int,
    wanted: int,
    bound: float,
) -> tuple[Any, Any]:
    """The best path of each of the best strings of labels: bounds i64[n + 1] and arcs i64[*].

    A prefix is a string; it stands for all states it leads to with their least regrets (its elements),
    and its own regret is the least of these. Elements whose regret is above `bound`, or above that of as
    many strings as are wanted, are on no best path of a wanted string.
    """
    keys, ties = np.empty(64, np.float64), np.empty(64, np.int64)
    # The elements of an item; of a whole string: -1 and its last element.
    first, last = np.empty(64, np.int64), np.empty(64, np.int64)
    element, regret_at = np.empty(192, np.int64), np.empty(64, np.float64)
    seen = np.zeros(len(ahead), np.bool_)
    counters = np.zeros(4, np.int64)
    known, spare = np.empty(wanted, np.float64), np.empty(wanted, np.int64)
    found = np.empty(wanted, np.int64)
    element[STATE + 3 * 0], element[PARENT + 3 * 0], element[ARC + 3 * 0] = start, -1, -1
    regret_at[0] = 0.0
    first[0], last[0] = 0, 1
    heap_push(keys, ties, 0, 0.0, tie(steps[start], 0))
    is_needed(known, spare, counters, 0.0)
    items = elements = waiting = 1
    strings = 0
    while waiting and strings < wanted:
        _, order = heap_pop(keys, ties, waiting)
        waiting -= 1
        item = item_of(order)
        if first[item] < 0:
            found[strings] = last[item]
            strings += 1
            continue
        limit = min(bound, -known[0]) if counters[KNOWN] == wanted else bound
        closed, elements, element, regret_at = close(
            offsets, nextstate, weight, label, ahead,
            first[item], last[item], elements, element, regret_at, limit, seen,
        )  # fmt: skip
        before, arcs, regrets = leaving(
            offsets, nextstate, weight, label, ahead, closed, element, regret_at, limit
        )
        bounds, least, to_go = group_by_label(nextstate, label, steps, arcs, regrets)
        ending, end = np.inf, -1
        for at in closed:
            state = element[STATE + 3 * at]
            if final[state] < np.inf:
                regret = regret_at[at] + regret_of(final[state], ahead[state])
                if regret < ending:
                    ending, end = regret, at
        # One of the next prefixes carries on this one's string; only the others are new ones.
        heir = len(least)
        lowest, fewest = ending, -1
        for group in range(len(least)):
            if least[group] < lowest or (least[group] == lowest and to_go[group] < fewest):
                lowest, fewest, heir = least[group], to_go[group], group
        keys = grown(keys, waiting + len(least) + 1)
        ties = grown(ties, waiting + len(least) + 1)
        first = grown(first, items + len(least) + 1)
        last = grown(last, items + len(least) + 1)
        for group in range(len(least) - 1, -1, -1):
            if group != heir and not is_needed(known, spare, counters, least[group]):
                continue
            first[items] = elements
            for at in range(bounds[group], bounds[group + 1]):
                target = nextstate[arcs[at]]
                if elements > first[items] and element[STATE + 3 * (elements - 1)] == target:
                    if regrets[at] < regret_at[elements - 1]:
                        elements -= 1
                    else:
                        continue
                element, regret_at = (
                    grown(element, 3 * elements + 3),
                    grown(regret_at, elements + 1),
                )
                element[STATE + 3 * elements] = target
                element[PARENT + 3 * elements], element[ARC + 3 * elements] = before[at], arcs[at]
                regret_at[elements] = regrets[at]
                elements += 1
            last[items] = elements
            heap_push(keys, ties, waiting, least[group], tie(to_go[group] + 1, items))
            items += 1
            waiting += 1
        if end >= 0 and (heir == len(least) or is_needed(known, spare, counters, ending)):
            first[items], last[items] = -1, end
            heap_push(keys, ties, waiting, ending, tie(0, items))
            items += 1
            waiting += 1
    parent, arc_of = np.empty(elements, np.int64), np.empty(elements, np.int64)
    for at in range(elements):
        parent[at], arc_of[at] = element[PARENT + 3 * at], element[ARC + 3 * at]
    return trace(parent, arc_of, found[:strings], np.iinfo(np.int64).max)
