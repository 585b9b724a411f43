"""Compiled parts that several constructions share: mixing of keys, arrays that grow, classes of labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled


@compiled
def mixed(key: Any) -> Any:
    """A hash u64 of a whole number: the finaliser of SplitMix64 (Steele, Lea, Flood, 2014)."""
    word = np.uint64(key) + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def grown(array: Any, needed: int) -> Any:
    """The array itself if it has room for so many entries, else a copy of at least twice the length."""
    if needed <= len(array):
        return array
    longer = np.zeros(max(needed, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


@compiled
def sort_in_place(values: Any, count: int) -> None:
    """Sort the first values, ascending; Numba's own sort costs microseconds before it begins."""
    if count > 32:
        values[:count].sort()
        return
    for begin in range(1, count):
        at = begin
        moved = values[at]
        while at > 0 and values[at - 1] > moved:
            values[at] = values[at - 1]
            at -= 1
        values[at] = moved


@compiled
def signatures(source: Any, label: Any, nextstate: Any, value: Any, labels: int) -> tuple[Any, Any]:
    """Two hashes u64[labels] of the set of arcs of each label, each arc as (source, nextstate, value).

    Sums of mixed keys, so the order of arcs does not matter.
    """
    first = np.zeros(labels, np.uint64)
    second = np.zeros(labels, np.uint64)
    for arc in range(len(label)):
        ends = np.int64(source[arc]) * 0x100000000 + np.int64(nextstate[arc])
        key = mixed(ends) + np.uint64(value[arc])
        first[label[arc]] += mixed(key)
        second[label[arc]] += mixed(key ^ np.uint64(0xD1B54A32D192ED03))
    return first, second


@compiled
def dense_labels(label: Any, highest: int) -> tuple[Any, Any]:
    """The labels that occur, ascending i32[L], and the place of each arc's label among them, i32[E]."""
    place = np.zeros(highest + 1, np.int32)
    for arc in range(len(label)):
        place[label[arc]] = 1
    count = 0
    for at in range(highest + 1):
        count += place[at]
    occurring = np.empty(count, np.int32)
    count = 0
    for at in range(highest + 1):
        if place[at]:
            occurring[count] = at
            place[at] = count
            count += 1
    places = np.empty(len(label), np.int32)
    for arc in range(len(label)):
        places[arc] = place[label[arc]]
    return occurring, places


@compiled
def expand(
    offsets: Any,
    group: Any,
    nextstate: Any,
    weight: Any,
    labels: Any,
    group_of: Any,
    member_offsets: Any,
    members: Any,
) -> tuple[Any, Any, Any, Any, Any]:
    """Arcs by group of labels become arcs by label, ascending in each state.

    Args:
        offsets: i64[V + 1].
        group: i32[E], different in each state.
        nextstate: i32[E].
        weight: [E].
        labels: [L] ascending.
        group_of: i32[L].
        member_offsets: i64[G + 1].
        members: i64[L] places in `labels`, by group.

    Returns:
        New offsets i64[V + 1]; of each new arc the label, the nextstate, the weight, and the arc it was,
        i64[*].
    """
    states = len(offsets) - 1
    made = np.zeros(states + 1, np.int64)
    for state in range(states):
        total = 0
        for arc in range(offsets[state], offsets[state + 1]):
            total += member_offsets[group[arc] + 1] - member_offsets[group[arc]]
        made[state + 1] = made[state] + total
    arcs = made[states]
    label = np.empty(arcs, labels.dtype)
    entered = np.empty(arcs, np.int32)
    carried = np.empty(arcs, weight.dtype)
    origin = np.empty(arcs, np.int64)
    arc_of = np.full(len(member_offsets) - 1, -1, np.int64)
    places = np.empty(len(labels), np.int64)
    for state in range(states):
        for arc in range(offsets[state], offsets[state + 1]):
            arc_of[group[arc]] = arc
        to = made[state]
        count = made[state + 1] - to
        few = 8 * count < len(labels)
        if few:
            listed = 0
            for arc in range(offsets[state], offsets[state + 1]):
                for at in range(member_offsets[group[arc]], member_offsets[group[arc] + 1]):
                    places[listed] = members[at]
                    listed += 1
            sort_in_place(places, count)
        for at in range(count if few else len(labels)):
            place = places[at] if few else at
            arc = arc_of[group_of[place]]
            if arc >= 0:
                label[to] = labels[place]
                entered[to] = nextstate[arc]
                carried[to] = weight[arc]
                origin[to] = arc
                to += 1
        for arc in range(offsets[state], offsets[state + 1]):
            arc_of[group[arc]] = -1
    return made, label, entered, carried, origin
