"""Compiled arithmetic of the semirings, and the counting sorts that every part stands on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

from holdfast.automata.semirings import LOG, TROPICAL

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile with Numba; the machine code is kept between processes, and runs without the GIL."""
    made: Any = njit(cache=True, nogil=True)(function)
    return cast(Function, made)


@compiled
def plus(code: int, x: float, y: float) -> float:
    """The sum of two weights in the semiring of that code."""
    if code == LOG:
        low, high = (x, y) if x < y else (y, x)
        if high == np.inf:
            return low
        return low - math.log1p(math.exp(low - high))
    if code == TROPICAL:
        return min(x, y)
    if code == 2:
        return x + y
    return max(x, y)


@compiled
def times(code: int, x: float, y: float) -> float:
    """The product of two weights in the semiring of that code."""
    if code <= LOG:
        return x + y
    return x * y


@compiled
def counting_order(keys: Any, groups: int) -> tuple[Any, Any]:
    """A stable sort by small whole numbers: offsets i64[groups + 1] and the order i64[n].

    `order[offsets[k]:offsets[k + 1]]` are the positions of key k, ascending.
    """
    offsets = np.zeros(groups + 1, np.int64)
    for key in keys:
        offsets[key + 1] += 1
    for group in range(groups):
        offsets[group + 1] += offsets[group]
    slot = offsets[:-1].copy()
    order = np.empty(len(keys), np.int64)
    for position in range(len(keys)):
        key = keys[position]
        order[slot[key]] = position
        slot[key] += 1
    return offsets, order


@compiled
def sources_of_arcs(offsets: Any, arcs: int) -> Any:
    """The state that each arc leaves: i32[E]."""
    source = np.empty(arcs, np.int32)
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state], offsets[state + 1]):
            source[arc] = state
    return source


@compiled
def order_by_label(offsets: Any, label: Any) -> Any:
    """The order i64[E] that sorts the arcs of each state by label, equal labels as they stood."""
    order = np.arange(len(label))
    for state in range(len(offsets) - 1):
        begin, end = offsets[state], offsets[state + 1]
        if end - begin <= 32:
            for at in range(begin + 1, end):
                moved = order[at]
                key = label[moved]
                while at > begin and label[order[at - 1]] > key:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = moved
        else:
            # The position breaks ties, so that an unstable sort sorts stably.
            key = label[begin:end].astype(np.int64) * (end - begin) + np.arange(end - begin)
            order[begin:end] = begin + np.argsort(key)
    return order


@compiled
def is_sorted(offsets: Any, label: Any) -> bool:
    """Whether the arcs of every state stand in ascending order of the label."""
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state] + 1, offsets[state + 1]):
            if label[arc] < label[arc - 1]:
                return False
    return True


@compiled
def zeros_by_state(offsets: Any, label: Any) -> Any:
    """How many of a state's arcs have label 0: i32[V]."""
    count = np.zeros(len(offsets) - 1, np.int32)
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state], offsets[state + 1]):
            count[state] += label[arc] == 0
    return count
