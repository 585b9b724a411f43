"""The search for the states of a composition, and the arrays it fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata.composition import _kernels as kernels
from holdfast.automata.composition import joining
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.composition.matching import Side, planned
from holdfast.automata.composition.memory import left_of_addresses, refuse_memory
from holdfast.automata.composition.tables import first_table, wider_table
from holdfast.automata.fst import I32, I64, Fst, Weights
from holdfast.errors import LimitError

# Threads share a wave where about so many arcs wait to be found, or a range of at least so many states;
# waves have about so many arcs, and everything is cut into so many parts for each thread.
WIDE_ARCS = 1 << 15
WIDE_STATES = 1 << 13
WAVE_ARCS = 1 << 19
PARTS = 2
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


class Workers:
    """Threads that work on parts of a range; one thread works without a pool."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown()

    def each(self, work: Callable[..., Any], *given: Iterable[Any]) -> list[Any]:
        """What `work` makes of each."""
        together = list(zip(*given, strict=False))
        if not self._pool or len(together) == 1:
            return [work(*one) for one in together]
        # Threads take what is far apart: those that write new pages side by side wait for each other.
        apart = -(-len(together) // self.threads)
        order = sorted(range(len(together)), key=lambda at: at % apart)
        begun = {at: self._pool.submit(work, *together[at]) for at in order}
        return [begun[at].result() for at in range(len(together))]

    def parts(self, begin: int, end: int, least: int | None = None) -> list[tuple[int, int]]:
        """A range cut into parts of equal length; one part, if it is shorter than `least`."""
        wide = end - begin >= (WIDE_STATES if least is None else least)
        count = PARTS * self.threads if self._pool and wide else 1
        return list(pairwise(begin + (end - begin) * part // count for part in range(count + 1)))


class Search:
    """A breadth-first search through the states of a composition.

    Attributes:
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
        self.done = self.known = 0
        self._spare: list[Spare] = []
        if a.num_states and b.num_states:
            start = np.array([(a.start << joining.A_SHIFT) | (b.start << joining.F_BITS)])
            none = np.empty(1, np.int32)
            self.known = kernels.number(self.table, start, 1, self.keys, 0, 1, none, 0)
            self._check_states(self.known)

    def run(self, workers: Workers) -> None:
        """Expand all states that the start reaches.

        Raises:
            LimitError: if that passes a limit.
        """
        while self.done < self.known:
            before = (self.done, self.known)
            wide = max(WIDE_ARCS // self._arcs_a_state, 2) if workers.threads > 1 else 2**62
            why = self._expand(wide)
            if why == kernels.WIDE:
                self._expand_wave(workers)
            elif why != kernels.DONE:
                self._make_room(why, stuck=before == (self.done, self.known))

    def _expand(self, wide: int) -> int:
        why, self.done, self.known = kernels.explore(
            self.left,
            self.right,
            self.plan,
            self.table,
            self.keys,
            self.done,
            self.known,
            wide,
            self._state_limit(),
            self._arc_limit(),
            self.offsets,
            self.arcs,
        )
        return int(why)

    # --- one wave, shared by threads ---------------------------------------------------------------

    def _expand_wave(self, workers: Workers) -> None:
        """Expand many states at once; the same arcs and numbers as one after the other."""
        joined = self._join_wave(workers)
        ends = list(accumulate((part.arcs for part in joined), initial=self._arcs_done))
        if ends[-1] > self._arc_limit():
            self._make_room(kernels.FULL_ARCS, stuck=True)
            return
        unknown = workers.each(self._write_part, range(len(joined)), joined, ends)
        # One thread numbers them: that takes it less than it takes several to agree.
        self._make_room_for_states(self.known + sum(len(keys) for keys, _ in unknown))
        for keys, places in unknown:
            self.known = kernels.settle(
                self.table, keys, places, self.keys, self.known, self.arcs.nextstate
            )
        self._check_states(self.known)
        self.done = joined[-1].last

    def _join_wave(self, workers: Workers) -> list[JoinedPart]:
        """The next states in parts, as many as make about `WAVE_ARCS` arcs."""
        last = min(self.known, self.done + max(WAVE_ARCS // self._arcs_a_state, workers.threads))
        parts = workers.parts(self.done, last, least=1)
        while len(self._spare) < len(parts):
            segments = np.empty((self.plan.longest, 5), self.left.span.dtype)
            self._spare.append(Spare(segments, np.empty(0, np.int64), np.empty(0, np.int64)))
        joined = workers.each(self._join_part, range(len(parts)), parts)
        kept = joined[:1]
        for part in joined[1:]:  # the guess may have been far too low
            if sum(one.arcs for one in kept) > 4 * WAVE_ARCS:
                break
            kept.append(part)
        return kept

    def _join_part(self, at: int, part: tuple[int, int]) -> JoinedPart:
        first, last = part
        segments, count, offsets = kernels.join_part(
            self.left, self.right, self.plan, self.keys, first, last, self._spare[at].segments
        )
        self._spare[at] = self._spare[at]._replace(segments=segments)
        return JoinedPart(first, last, segments, count, offsets)

    def _write_part(self, at: int, part: JoinedPart, begin: int) -> tuple[I64, I64]:
        """Write a part's arcs: the keys of states not known yet, and the arcs that enter them."""
        self.offsets[part.first + 1 : part.last + 1] = begin + part.offsets[1:]
        spare = self._spare[at]
        if len(spare.unknown) <= part.arcs:
            longer = np.empty((2, part.arcs + 1), np.int64)
            spare = self._spare[at] = spare._replace(unknown=longer[0], places=longer[1])
        count = kernels.write_part(
            self.left,
            self.right,
            self.plan,
            self.table,
            part.segments,
            part.made,
            begin,
            self.arcs,
            spare.unknown,
            spare.places,
        )
        return spare.unknown[:count], spare.places[:count]

    # --- limits ------------------------------------------------------------------------------------

    @property
    def _arcs_done(self) -> int:
        return int(self.offsets[self.done])

    @property
    def _arcs_a_state(self) -> int:
        """How many arcs the expanded states have on average, at least one."""
        return max(self._arcs_done // max(self.done, 1), 1)

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


class Spare(NamedTuple):
    """Arrays that the parts of one wave leave to those of the next: fresh memory is slow."""

    segments: npt.NDArray[Any]
    unknown: I64
    places: I64


class JoinedPart(NamedTuple):
    """What a part of the states of a wave pairs."""

    first: int
    last: int
    segments: npt.NDArray[Any]
    """[>= made, 5] see `joining.join`."""
    made: int
    offsets: I64
    """[last - first + 1] from 0."""

    @property
    def arcs(self) -> int:
        """How many arcs leave these states."""
        return int(self.offsets[-1])


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
