"""The search for the states of a composition, and the arrays it fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.composition import joining
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.matching import Side, planned
from holdfast.automata.composition.memory import left_of_addresses, refuse_memory
from holdfast.automata.composition.tables import first_table, wider_table
from holdfast.automata.fst import I32, Fst, Weights
from holdfast.errors import LimitError

# Small compositions stay in small arrays.
FIRST_ARCS = 1 << 14
FIRST_STATES = 1 << 11
# What 32 bits can number.
MOST_RESULT = (1 << 31) - 2


class Arcs(NamedTuple):
    """Arrays of arcs of the result, with room for more; memory is taken as they are written."""

    ilabel: I32
    olabel: I32
    nextstate: I32
    weight: Weights
    from_a: npt.NDArray[Any]
    """The arc of A, -1 for none; empty if nobody asked."""
    from_b: npt.NDArray[Any]


class Search:
    """Breadth-first searches through the states of a composition, one after the other, each from one start.

    No state is reached from two starts.

    Attributes:
        bounds: [starts + 1] the first state of each search, and how many there are.
        known: how many states have been found.
        done: how many of them have been expanded.
        keys: [known] what the states are made of, with room for more.
        offsets: [done + 1] where the arcs of the expanded ones begin, with room for more.
        arcs: their arcs, with room for more.
    """

    def __init__(
        self,
        a: Fst,
        b: Fst,
        starts: Sequence[tuple[int, int]],
        filter: FilterName,
        *,
        mapped: bool,
        max_states: int | None,
        memory: int,
    ) -> None:
        self.left, self.right, self.plan = planned(a, b, filter, mapped)
        self.max_states = MOST_RESULT if max_states is None else min(max_states, MOST_RESULT)
        self.memory = memory
        self.limited = left_of_addresses() is not None
        self.places = a.num_states * b.num_states * self.plan.filters
        self.table = first_table(b.num_states, self.plan.filters)
        self.keys = np.empty(FIRST_STATES + 1, np.int64)
        self.offsets = np.zeros(FIRST_STATES + 2, np.int64)
        self.arcs = _room(FIRST_ARCS, self.left, self.right, mapped)
        self.arc_bytes = sum(array[:1].nbytes for array in self.arcs)
        # Key, offset, final weight, and while it is trimmed, a mark, a number, another offset less the key.
        self.state_bytes = 21 + a.final.dtype.itemsize
        self.begun = self.done = self.known = 0
        keys = [
            (p << joining.A_SHIFT) | (q << joining.F_BITS) if min(p, q) >= 0 else -1
            for p, q in starts
        ]
        self.starts = np.array(keys, np.int64)
        self.bounds = np.zeros(len(keys) + 1, np.int64)

    def run(self) -> None:
        """Expand all states that the starts reach.

        Raises:
            LimitError: if that passes a limit.
        """
        why = None
        while why != kernels.DONE:
            before = (self.done, self.known)
            why, self.begun, self.done, self.known = kernels.explore(
                self.left,
                self.right,
                self.plan,
                self.table,
                self.keys,
                self.starts,
                self.bounds,
                self.begun,
                self.done,
                self.known,
                self._state_limit(),
                self._arc_limit(),
                self.offsets,
                self.arcs,
            )
            if why != kernels.DONE:
                self._make_room(why, stuck=before == (self.done, self.known))

    # --- limits ------------------------------------------------------------------------------------

    @property
    def _arcs_done(self) -> int:
        return int(self.offsets[self.done])

    @property
    def _used(self) -> int:
        """Bytes taken by what has been found."""
        arcs = self._arcs_done * self.arc_bytes
        return arcs + self.known * self.state_bytes + self.table.nbytes

    def _arc_limit(self) -> int:
        # Arcs may take half of what is left, so that states can grow as well until the next look.
        share = max(self.memory - self._used, 0) // 2 // self.arc_bytes
        return min(len(self.arcs.ilabel), self._arcs_done + share)

    def _state_limit(self) -> int:
        share = max(self.memory - self._used, 0) // 2 // self.state_bytes
        return min(len(self.keys) - 1, self.table.most_states, self.known + share, self.max_states)

    def _make_room(self, why: int, stuck: bool) -> None:
        """Enlarge the arrays so that a search that filled them can continue, within the limits."""
        room = len(self.arcs.ilabel)
        if why == kernels.FULL_ARCS and self._arc_limit() == room and self._room_allowed > room:
            self.arcs = Arcs(*self._longer(self.arcs, room + 1, self._room_allowed))
        elif why == kernels.FULL_STATES and self.known == self.max_states:
            self._check_states(self.known + 1)
        elif why == kernels.FULL_STATES and self.known >= min(
            len(self.keys) - 1, self.table.most_states
        ):
            self._make_room_for_states(self.known + 1)
        elif stuck:
            raise self._refusal()

    @property
    def _room_allowed(self) -> int:
        return self.memory // self.arc_bytes

    def _make_room_for_states(self, wanted: int) -> None:
        if wanted >= len(self.keys):
            allowed = min(self.memory // self.state_bytes, self.places)
            if wanted > max(allowed, self.known + 1):
                allowed = wanted  # an estimate from above; what is found will be checked
            # Offsets are one more than keys: one place of the keys is never used.
            self.keys, self.offsets = self._longer(
                (self.keys, self.offsets), wanted + 2, allowed + 2
            )
        if wanted > self.table.most_states:
            self.table = wider_table(
                self.table, self.places, self.keys, self.known, wanted, self.memory
            )
        if self._used > self.memory:
            raise self._refusal()

    def _longer(self, arrays: Sequence[Any], least: int, most: int) -> list[Any]:
        """Longer arrays, all of one length; empty ones stay empty.

        Room that is not written to costs nothing, unless addresses are limited or the system does not
        lend what it may not get back: then the arrays grow step by step.
        """
        longest = max(map(len, arrays))
        least = max(least, min(2 * longest, most))
        length = least if self.limited else max(least, most)
        while True:
            try:
                made = [np.empty(length, array.dtype) if len(array) else array for array in arrays]
            except MemoryError:
                if length <= least:
                    raise self._refusal() from None
                length = max(length // 2, least)
                continue
            for array, longer in zip(arrays, made, strict=True):
                longer[: len(array)] = array
            return made

    def _check_states(self, count: int) -> None:
        if count > self.max_states:
            raise LimitError(
                "the composition has too many states",
                needed=f"more than {self.max_states:,} states",
                allowed=f"{self.max_states:,} states",
                remedy="raise max_states, or compose with a beam or on demand",
            )

    def _refusal(self) -> LimitError:
        reached = f"{self.known:,} states found, {self.done:,} of them expanded"
        return refuse_memory("the composition", max(self._used, self.memory), self.memory, reached)


def _room(count: int, left: Side, right: Side, mapped: bool) -> Arcs:
    maps = count if mapped else 0
    return Arcs(
        np.empty(count, np.int32),
        np.empty(count, np.int32),
        np.empty(count, np.int32),
        np.empty(count, left.weight.dtype),
        np.empty(maps, left.arc.dtype),
        np.empty(maps, right.arc.dtype),
    )
