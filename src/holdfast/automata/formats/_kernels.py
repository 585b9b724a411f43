"""Compiled: where the records of states stand in a file, and what the labels of arcs are like."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import graph_walk


@graph_walk
def records(words: Any, states: int, header: int, per_arc: int) -> Any:
    """The word at which the record of each state begins, i64[states + 1], the last the end of all.

    A record is `header` words, the last two of which are the number of its arcs, and `per_arc` words for
    each arc. Fewer numbers come back when a record goes beyond the words: it begins at the last.
    """
    begin = np.empty(states + 1, np.int64)
    at = np.int64(0)
    for state in range(states):
        begin[state] = at
        if at + header > len(words):
            return begin[: state + 1]
        low, high = np.int64(words[at + header - 2]), np.int64(words[at + header - 1])
        arcs = (high << 32) | (low & 0xFFFFFFFF)
        if arcs < 0 or arcs > (len(words) - at - header) // per_arc:
            return begin[: state + 1]
        at += header + arcs * per_arc
    begin[states] = at
    return begin


@graph_walk
def label_facts(offsets: Any, label: Any) -> tuple[bool, bool]:
    """Whether the labels of each state are sorted, and whether a state has equal ones side by side."""
    in_order, repeated = True, False
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state] + 1, offsets[state + 1]):
            in_order &= label[arc] >= label[arc - 1]
            repeated |= label[arc] == label[arc - 1]
    return bool(in_order), bool(repeated)
