"""Compiled arithmetic of the semirings, the counting sorts of every part, and how kernels are compiled."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, TypeVar, cast

import numpy as np

from holdfast.automata.semirings import LOG, TROPICAL
from holdfast.kernels import kernel

Function = TypeVar("Function", bound=Callable[..., Any])

SMALL = 1 << 14
"""Entries of all arrays together up to which an interpreted graph walk is faster than loading Numba."""

_announce: list[Callable[[], None]] = []


def announce_compilation(announce: Callable[[], None]) -> None:
    """Call a function once, when the first kernel is compiled rather than loaded from Numba's cache."""
    _announce[:] = [announce]


class Kernel:
    """A function that Numba compiles at its first call, or loads from its cache; it runs without the GIL.

    Numba itself takes half a second to import, so that waits for the first call too. Other kernels may call
    this one. Locked arrays (those of an `Fst`) are passed as writable aliases: Numba would compile every
    kernel a second time for read-only ones. So a kernel never writes to an array of a machine.
    """

    def __init__(self, function: Callable[..., Any], small_uncompiled: bool) -> None:
        self.function = function
        self._small_uncompiled = small_uncompiled
        update_wrapper(self, function)

    @cached_property
    def dispatcher(self) -> Any:
        """What Numba made of the function."""
        _watch_compiler()
        return kernel(nogil=True)(self.function)

    @property
    def _numba_type_(self) -> Any:
        """The type by which Numba knows a kernel that another one calls."""
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        arrays = (value.size for value in arguments if isinstance(value, np.ndarray))
        if self._small_uncompiled and "numba" not in sys.modules and sum(arrays) <= SMALL:
            return self.function(*arguments, **named)
        named = {name: writable(value) for name, value in named.items()}
        return self.dispatcher(*map(writable, arguments), **named)


def writable(value: Any) -> Any:
    """The same memory as a writable array, if it is a locked one; anything else as it is."""
    if type(value) is not np.ndarray or value.flags.writeable:
        return value
    alias = value.view()
    try:
        alias.flags.writeable = True
    except ValueError:  # memory that nobody may write to, such as a mapped file
        return value
    return alias


def compiled(function: Function) -> Function:
    """Make a kernel; see `Kernel`."""
    return cast(Function, Kernel(function, small_uncompiled=False))


def graph_walk(function: Function) -> Function:
    """Make a kernel that is interpreted for small machines as long as Numba has not been imported.

    For whole numbers only, where both give the same answer.
    """
    return cast(Function, Kernel(function, small_uncompiled=True))


def _watch_compiler() -> None:
    """Announce the first compilation, if anybody wants to know."""
    if not _announce:
        return
    from numba.core import event

    announce = _announce.pop()

    class Listener(event.Listener):
        # Not unregistered: Numba would skip the listener after it, in the list that it walks.
        announced = False

        def on_start(self, _: Any) -> None:
            if not self.announced:
                self.announced = True
                announce()

        def on_end(self, _: Any) -> None:
            pass

    event.register("numba:compile", Listener())


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


@graph_walk
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


@graph_walk
def sources_of_arcs(offsets: Any, arcs: int) -> Any:
    """The state that each arc leaves: i32[E]."""
    source = np.empty(arcs, np.int32)
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state], offsets[state + 1]):
            source[arc] = state
    return source


@graph_walk
def order_by_label(offsets: Any, label: Any) -> Any:
    """The order i64[E] that sorts the arcs of each state by label, equal labels as they stood."""
    order = np.arange(len(label))
    for state in range(len(offsets) - 1):
        begin, end = offsets[state], offsets[state + 1]
        # Stable insertion sorts of 32 arcs, then merges of twice as many. NumPy's sort would take Numba
        # four seconds to compile.
        for first in range(begin, end, 32):
            for at in range(first + 1, min(first + 32, end)):
                moved = order[at]
                key = label[moved]
                while at > first and label[order[at - 1]] > key:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = moved
        width = 32
        while width < end - begin:
            for first in range(begin, end - width, 2 * width):
                last = min(first + 2 * width, end)
                left, right = order[first : first + width].copy(), first + width
                taken = 0
                for at in range(first, last):
                    if taken == len(left):
                        break
                    if right == last or label[left[taken]] <= label[order[right]]:
                        order[at] = left[taken]
                        taken += 1
                    else:
                        order[at] = order[right]
                        right += 1
            width *= 2
    return order


@graph_walk
def is_sorted(offsets: Any, label: Any) -> bool:
    """Whether the arcs of every state stand in ascending order of the label."""
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state] + 1, offsets[state + 1]):
            if label[arc] < label[arc - 1]:
                return False
    return True


@graph_walk
def zeros_by_state(offsets: Any, label: Any) -> Any:
    """How many of a state's arcs have label 0: i32[V]."""
    count = np.zeros(len(offsets) - 1, np.int32)
    for state in range(len(offsets) - 1):
        for arc in range(offsets[state], offsets[state + 1]):
            count[state] += label[arc] == 0
    return count
