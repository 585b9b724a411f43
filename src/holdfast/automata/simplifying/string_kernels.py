"""Compiled handling of strings of labels.

Strings are rows of a tree, i32[N, 3]: parent, last label, length; string 0 is the empty one. A table of
open addressing, i32[power of two], finds a string by its parent and its last label.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled
from holdfast.automata.simplifying._kernels import mixed

LONGEST = 10_000  # labels that an output may lag behind its input


@compiled
def appended(strings: Any, slots: Any, count: Any, string: int, label: int) -> int:
    """The string that is `string` and one label more; -1 if there is no room for another one."""
    slot = np.int64(mixed(np.int64(string) * 0x100000000 + label) & np.uint64(len(slots) - 1))
    while slots[slot]:
        node = slots[slot]
        if strings[node, 0] == string and strings[node, 1] == label:
            return node
        slot = (slot + 1) & (len(slots) - 1)
    node = count[0]
    if node == len(strings):
        return -1
    count[0] += 1
    strings[node, 0] = string
    strings[node, 1] = label
    strings[node, 2] = strings[string, 2] + 1
    slots[slot] = node
    return node


@compiled
def slots_of_strings(strings: Any, count: int, size: int) -> Any:
    """The table of open addressing for strings 1 to count - 1."""
    slots = np.zeros(size, np.int32)
    for node in range(1, count):
        key = np.int64(strings[node, 0]) * 0x100000000 + strings[node, 1]
        slot = np.int64(mixed(key) & np.uint64(size - 1))
        while slots[slot]:
            slot = (slot + 1) & (size - 1)
        slots[slot] = node
    return slots


@compiled
def common_prefix(strings: Any, first: int, second: int) -> int:
    """The longest string with which both begin."""
    while first != second:
        if strings[first, 2] >= strings[second, 2]:
            first = strings[first, 0]
        else:
            second = strings[second, 0]
    return first


@compiled
def spelled(strings: Any, string: int, prefix: int) -> Any:
    """The labels i32[*] of a string after its prefix."""
    labels = np.empty(strings[string, 2] - strings[prefix, 2], np.int32)
    for at in range(len(labels) - 1, -1, -1):
        labels[at] = strings[string, 1]
        string = strings[string, 0]
    return labels


@compiled
def without_prefix(strings: Any, slots: Any, count: Any, string: int, prefix: int) -> int:
    """The string that is left of a string when a prefix is taken away; -1 if there is no room."""
    node = 0
    for label in spelled(strings, string, prefix):
        if node >= 0:
            node = appended(strings, slots, count, node, label)
    return node
