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
    made = np.zeros(max(needed, 2 * len(array)), array.dtype)
    made[: len(array)] = array
    return made


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
    offsets: Any, group: Any, member_offsets: Any, members: Any, labels: int
) -> tuple[Any, Any, Any]:
    """Arcs by group of labels become arcs by label, ascending in each state.

    Returns:
        New offsets i64[V + 1]; for each new arc the place of its label, i32[*], and the arc that it was,
        i64[*].
    """
    states = len(offsets) - 1
    made = np.zeros(states + 1, np.int64)
    for state in range(states):
        total = 0
        for arc in range(offsets[state], offsets[state + 1]):
            total += member_offsets[group[arc] + 1] - member_offsets[group[arc]]
        made[state + 1] = made[state] + total
    label = np.empty(made[states], np.int32)
    origin = np.empty(made[states], np.int64)
    arc_of = np.full(labels, -1, np.int64)
    for state in range(states):
        to = made[state]
        for arc in range(offsets[state], offsets[state + 1]):
            for at in range(member_offsets[group[arc]], member_offsets[group[arc] + 1]):
                arc_of[members[at]] = arc
                label[to] = members[at]
                to += 1
        listed = label[made[state] : made[state + 1]]
        if 8 * len(listed) < labels:
            listed.sort()
        else:
            to = 0
            for place in range(labels):
                if arc_of[place] >= 0:
                    listed[to] = place
                    to += 1
        for at in range(made[state], made[state + 1]):
            origin[at] = arc_of[label[at]]
            arc_of[label[at]] = -1
    return made, label, origin
