"""The search for the states of compositions, one after the other, and the arrays it fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.composition import joining
from holdfast.automata.composition._kernels import BATCH_ARCS, STEP, Arcs
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.matching import planned
from holdfast.automata.composition.memory import left_of_addresses, refuse_memory
from holdfast.automata.composition.tables import table_for
from holdfast.automata.fst import I64, Fst
from holdfast.errors import LimitError

# Small compositions stay in small arrays.
FIRST_ARCS = 1 << 14
FIRST_STATES = 1 << 13
# What 32 bits can number.
MOST_RESULT = (1 << 31) - 2


class Row:
    """Machines side by side as one; the same machine in every composition is itself.

    Attributes:
        machines: the machine of each composition.
        whole: all of them.
        first_state: i64[machines] where the states of each begin in it.
        first_arc: i64[machines]
        widest: the most states of one.
    """

    def __init__(self, machines: Sequence[Fst]) -> None:
        self.machines = machines
        self.first_state = self.first_arc = np.zeros(len(machines), np.int64)
        self.whole, self.widest = machines[0], machines[0].num_states
        if all(one is machines[0] for one in machines):
            return
        states, arcs = (
            np.array([getattr(one, name) for one in machines])
            for name in ("num_states", "num_arcs")
        )
        self.first_state, self.first_arc = np.cumsum(states) - states, np.cumsum(arcs) - arcs
        self.widest = int(states.max())
        columns = {
            name: np.concatenate([getattr(one, name) for one in machines])
            for name in ("ilabel", "olabel", "nextstate", "weight", "final")
        }
        columns["nextstate"] += np.repeat(self.first_state, arcs).astype(np.int32)
        offsets = np.concatenate([one.offsets[:-1] for one in machines] + [[arcs.sum()]])
        offsets[:-1] += np.repeat(self.first_arc, states)
        self.whole = machines[0].with_trusted(offsets=offsets, **columns)

    @property
    def starts(self) -> I64:
        """The start state of each machine in the whole; negative for one without states."""
        starts = np.array([one.start for one in self.machines], np.int64)
        return np.where(starts < 0, starts, starts + self.first_state)

    def origin(self, k: int, arcs: Any) -> Any:
        """Positions of arcs of the whole as those of machine k, in place; -1 stays."""
        if self.first_arc[k]:
            arcs[arcs >= 0] -= self.first_arc[k]
        return arcs


class Search:
    """Breadth-first searches through the states of compositions, one after the other.

    Attributes:
        rows: i64[compositions + 1] where the states of each begin; its last row is spare.
        firsts: i64[compositions + 1] where its arcs begin.
        offsets: [rows] where the arcs of each state begin, counted from the first of its machine.
        final: [rows] final weights.
        arcs: the arcs, with room for more.
        begun: how many compositions are made.
        known: how many states of the next one have been found.
        done: how many of them have been expanded.
        keys: [known] what they are made of, with room for more.
    """

    def __init__(
        self,
        a: Row,
        b: Row,
        connect: bool,
        filter: FilterName,
        *,
        mapped: bool,
        max_states: int | None,
        memory: int,
    ) -> None:
        self.left, self.right, self.plan = planned(a.whole, b.whole, filter, mapped)
        self.connect = connect
        self.max_states = MOST_RESULT if max_states is None else min(max_states, MOST_RESULT)
        self.memory = memory
        self.limited = left_of_addresses() is not None
        left, right = a.starts, b.starts
        keys = (left << joining.A_SHIFT) | (right << joining.F_BITS)
        self.starts = np.where(np.minimum(left, right) < 0, -1, keys)
        self.bases = (a.first_state * b.widest + b.first_state) * self.plan.filters
        self.places = a.widest * b.widest * self.plan.filters
        self.begun = self.done = self.known = 0
        self.states_b = b.widest
        self.table = self._table()
        self.rows, self.firsts = (np.zeros(len(keys) + 1, np.int64) for _ in range(2))
        self.keys = np.empty(FIRST_STATES, np.int64)
        self.offsets = np.empty(FIRST_STATES, np.int64)
        self.final = np.empty(FIRST_STATES, self.left.final.dtype)
        real, maps = self.left.weight.dtype, FIRST_ARCS if mapped else 0
        dtypes = (np.int32, np.int32, np.int32, real)
        self.arcs = Arcs(
            *(np.empty(FIRST_ARCS, dtype) for dtype in dtypes),
            *(np.empty(maps, side.arc.dtype) for side in (self.left, self.right)),
        )
        self.arc_bytes = sum(array[:1].nbytes for array in self.arcs)
        # Key, offset, final weight, and while it is trimmed a mark and a number.
        self.state_bytes = 21 + self.final.itemsize

    def run(self) -> None:
        """Make all compositions.

        Raises:
            LimitError: if that passes a limit.
        """
        while True:
            before = (self.begun, self.done, self.known)
            why, self.begun, self.done, self.known = kernels.explore(
                self.left,
                self.right,
                self.plan,
                self.connect,
                self.table,
                self.keys,
                self.starts,
                self.bases,
                self.rows,
                self.firsts,
                *before,
                self.max_states,
                self._row_limit(),
                self._arc_limit(),
                self.offsets,
                self.final,
                self.arcs,
            )
            if why == kernels.DONE:
                break
            stuck = before == (self.begun, self.done, self.known)
            self._make_room(why, stuck)
        rows, arcs = int(self.rows[-1]), int(self.firsts[-1])
        # The room for more is given back.
        for array in (self.offsets, self.final):
            array.resize(rows, refcheck=False)
        for array in self.arcs:
            array.resize(min(arcs, len(array)), refcheck=False)

    # --- limits ------------------------------------------------------------------------------------

    @property
    def _rows_used(self) -> int:
        return int(self.rows[self.begun]) + self.known

    @property
    def _arcs_done(self) -> int:
        own = int(self.offsets[self.rows[self.begun] + self.done]) if self.done else 0
        return int(self.firsts[self.begun]) + own

    @property
    def _used(self) -> int:
        """Bytes taken by what has been found."""
        arcs = self._arcs_done * self.arc_bytes
        return int(arcs + self._rows_used * self.state_bytes + self.table.nbytes)

    def _arc_limit(self) -> int:
        # Arcs may take half of what is left, so that states can grow as well until the next look.
        share = max(self.memory - self._used, 0) // 2 // self.arc_bytes
        return min(len(self.arcs.ilabel) - STEP, self._arcs_done + share)

    def _row_limit(self) -> int:
        share = max(self.memory - self._used, 0) // 2 // self.state_bytes
        # A batch of arcs may always be numbered: the next look is soon enough.
        return min(len(self.keys) - 1, self._rows_used + share + 2 * BATCH_ARCS)

    def _make_room(self, why: int, stuck: bool) -> None:
        """Enlarge the arrays so that a search that filled them can continue, within the limits."""
        room = len(self.arcs.ilabel)
        room_allowed = self.memory // self.arc_bytes
        needed = self._rows_used + 2 * BATCH_ARCS
        if self.known > self.max_states:
            raise LimitError(
                "the composition has too many states",
                needed=f"more than {self.max_states:,} states",
                allowed=f"{self.max_states:,} states",
                remedy="raise max_states, or compose with a beam or on demand",
            )
        if self._used > self.memory:
            raise self._refusal()
        if why == kernels.FULL_ARCS and self._arc_limit() == room - STEP and room_allowed > room:
            self.arcs = Arcs(*self._longer(self.arcs, room + 1, room_allowed))
        elif why == kernels.FULL_STATES and self.known + BATCH_ARCS > self.table.most:
            self.table = self._table()
            kernels.enter(self.table, self.bases[self.begun], self.keys, self.known)
        elif why == kernels.FULL_STATES and needed >= len(self.keys):
            allowed = min(self.memory // self.state_bytes, len(self.starts) * (self.places + 1))
            most = allowed + 2 * BATCH_ARCS
            self.keys, self.offsets, self.final = self._longer(
                (self.keys, self.offsets, self.final), needed + 1, most + 1
            )
        elif stuck:
            raise self._refusal()

    def _table(self) -> Any:
        """A table with room for twice the states known, and a batch."""
        entries = 2 * self.known + BATCH_ARCS
        return table_for(
            self.states_b, self.plan.filters, self.places, self.known, entries, self.memory
        )

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

    def _refusal(self) -> LimitError:
        reached = f"{self.known:,} states found, {self.done:,} of them expanded"
        return refuse_memory("the composition", max(self._used, self.memory), self.memory, reached)
