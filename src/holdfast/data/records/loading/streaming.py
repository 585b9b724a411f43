"""From an order of images to made items: records are read ahead, items are made on threads, order is kept.

    stretches -> reads (a record at a fidelity; several at once) -> chunks of images -> items, in order

A stretch is planned when its first record is to be read, so a change of fidelity takes effect with the
next stretch that is not being read yet. All records of the present stretch may be read at once; of later
ones as many as fit into `prefetch` bytes.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

_FIRST_READS = 2
"""Records that are asked for at first; with each that arrives one more may be under way."""
_PATIENCE_S = 2.0
"""How long an early end waits for a request in flight, before it leaves it to end by itself."""


_running: WeakSet[Stream] = WeakSet()


@atexit.register
def _close_all() -> None:
    # Later, modules are torn down and threads do not run any more: waiting for one would never end.
    for stream in list(_running):
        stream.close()
        stream.owner = 0


class Plan(NamedTuple):
    """What is to be read for one stretch."""

    records: npt.NDArray[np.int64]
    """[n] the record of each image."""
    indexes: npt.NDArray[np.int64]
    """[n] its number in the record."""
    fidelities: npt.NDArray[np.int64]
    """[n] at which it is to be served; a record is read up to the highest of its images here."""


@dataclass(slots=True, eq=False)
class Read:
    """One record of one stretch: asked for, under way, or here."""

    record: int
    fidelity: int
    size: int
    """Bytes of the prefix."""
    stretch: int
    uses: int
    """Images of the stretch that are still to be made from it."""
    data: Any = None
    """What `fetch` gave."""
    error: BaseException | None = None
    """What it raised."""
    arrived_at: float = 0.0
    """When it was here, on the clock of `perf_counter`; 0 before."""


@dataclass(slots=True, eq=False)
class Chunk:
    """Images that follow one another, made into items together."""

    stretch: int
    images: list[tuple[Read, int, int]]
    """[n] its read, number in the record, and fidelity."""
    items: list[Any] = field(default_factory=list)
    """[n] what `make` gave."""
    error: BaseException | None = None
    arrived_at: float = 0.0
    """When the last of its reads was here."""
    is_ready: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is done at once.

    Args:
        threads: that make items; 0 makes them where they are asked for.
        connections: records that are read at once.
        prefetch: bytes of later stretches that may be read, or be held, ahead of the present one; one
            record is, whatever its size.
        chunk: images that are made into items together.
        ahead: chunks that may be made before they are asked for.
    """

    threads: int
    connections: int
    prefetch: int
    chunk: int
    ahead: int


class Stream:
    """Items in the order of the stretches; iterate once, and `close` to end early.

    Args:
        plans: plans of the stretches, created on demand.
        size: (record, fidelity) -> bytes to read.
        fetch: (record, fidelity) -> the data of items; called on separate threads.
        make: (read, number in the record, fidelity) -> item; called on the threads that make items. It
            decides how to handle a failed read.
        pace: how much is done at once.
    """

    def __init__(
        self,
        plans: Iterator[Plan],
        *,
        size: Callable[[int, int], int],
        fetch: Callable[[int, int], Any],
        make: Callable[[Read, int, int], Any],
        pace: Pace,
    ) -> None:
        self.storage_s = 0.0
        """Seconds that the consumer waited because bytes had not arrived."""
        self.decode_s = 0.0
        """Seconds that it waited because items were not made yet."""
        self._plans, self._size, self._fetch, self._make = plans, size, fetch, make
        self._pace = pace
        self._lock = threading.Lock()
        self._wanted = threading.Condition(self._lock)  # a read may be begun
        self._arrived = threading.Condition(self._lock)  # a read is here
        self._room = threading.Condition(self._lock)  # a chunk was taken by the consumer
        self._ready = threading.Condition(self._lock)  # a chunk was made
        self._pending: deque[Read] = deque()  # reads not begun
        self._unmade: deque[Chunk] = deque()  # chunks nobody has begun to make
        self._line: deque[Chunk] = deque()  # chunks begun or made, in order
        self._ahead: dict[int, int] = {}  # stretch -> bytes of it begun or held
        self._reading = 0  # records that are asked for
        self._read = 0  # records that are here
        self._stretch = 0  # that the latest begun chunk is of
        self._planned = 0  # stretches
        self._all_planned = False
        self._stopped = False
        self._error: BaseException | None = None
        self._readers: list[threading.Thread] = []
        self._makers: list[threading.Thread] = []
        self.owner = os.getpid()
        """The process that has its threads; 0 once that is about to end."""
        _running.add(self)

    def __iter__(self) -> Iterator[list[Any]]:
        """The items, chunk by chunk."""
        self._readers = _started(self._read_on, self._pace.connections, "records-read")
        self._makers = _started(self._make_on, self._pace.threads, "records-make")
        try:
            while True:
                chunk = self._next_made() if self._makers else self._next_made_here()
                if chunk is None:
                    return
                yield chunk.items
        finally:
            self.close()

    def close(self) -> bool:
        """End all threads: workers after their current item, readers after their current request.

        Returns:
            Whether the threads were ended. A forked process does not have them, and cannot take the lock,
            as its holder may not exist there.
        """
        if not self.owner or self.owner != os.getpid():
            return False
        with self._lock:
            self._stopped = True
            self._pending.clear()
            self._unmade.clear()
            for condition in (self._wanted, self._arrived, self._room, self._ready):
                condition.notify_all()
        for thread in self._makers:
            thread.join()
        until = perf_counter() + _PATIENCE_S
        for thread in self._readers:
            thread.join(max(0.0, until - perf_counter()))
        return True

    # --- planning (the lock is held) ---------------------------------------------------------------

    def _plan_next(self) -> bool:
        """Plan one stretch more; whether there was one."""
        if self._all_planned or self._stopped:
            return False
        try:
            plan = next(self._plans, None)
        except BaseException as error:
            self._error, plan = error, None
        if plan is None:
            self._all_planned = True
            for condition in (self._wanted, self._room, self._ready):
                condition.notify_all()
            return False
        self._planned += 1
        reads, homes = self._reads(plan)
        self._pending.extend(reads)
        images = list(
            zip(
                [reads[home] for home in homes.tolist()],
                plan.indexes.tolist(),
                plan.fidelities.tolist(),
                strict=True,
            )
        )
        step = self._pace.chunk
        self._unmade.extend(
            Chunk(self._planned, images[i : i + step]) for i in range(0, len(images), step)
        )
        self._wanted.notify_all()
        return True

    def _reads(self, plan: Plan) -> tuple[list[Read], npt.NDArray[np.int64]]:
        """The reads of a stretch in the order in which they are needed, and which one each image needs."""
        records, first, home, uses = np.unique(
            plan.records, return_index=True, return_inverse=True, return_counts=True
        )
        highest = np.zeros(len(records), np.int64)
        np.maximum.at(highest, home, plan.fidelities)
        turn = np.argsort(first)
        reads = [
            Read(record, fidelity, self._size(record, fidelity), self._planned, count)
            for record, fidelity, count in zip(
                records[turn].tolist(), highest[turn].tolist(), uses[turn].tolist(), strict=True
            )
        ]
        place = np.empty(len(turn), np.int64)
        place[turn] = np.arange(len(turn))
        return reads, place[home]

    # --- reading -----------------------------------------------------------------------------------

    def _read_on(self) -> None:
        while True:
            with self._lock:
                read = self._next_read()
                while read is None:
                    if self._stopped or (self._all_planned and not self._pending):
                        return
                    self._wanted.wait()
                    read = self._next_read()
            held, error = None, None
            try:
                held = self._fetch(read.record, read.fidelity)
            except BaseException as problem:
                error = problem
            with self._lock:
                read.data, read.error, read.arrived_at = held, error, perf_counter()
                self._reading, self._read = self._reading - 1, self._read + 1
                self._arrived.notify_all()
                self._wanted.notify_all()

    def _next_read(self) -> Read | None:
        # Requests share what the store gives: begun all together, the first would end as late as the last.
        if self._reading >= _FIRST_READS + self._read:
            return None
        begun = sum(self._ahead.values())
        if not self._pending:
            if begun and begun >= self._pace.prefetch:
                return None  # planned as late as can be, for the fidelity may change
            if not self._plan_next():
                return None
        read = self._pending[0]
        if read.stretch > self._stretch:
            if begun and begun + read.size > self._pace.prefetch:
                return None
            self._ahead[read.stretch] = self._ahead.get(read.stretch, 0) + read.size
        self._reading += 1
        return self._pending.popleft()

    # --- making ------------------------------------------------------------------------------------

    def _take(self) -> Chunk | None:
        """Begin the next chunk (the lock is held); None at the end."""
        while not self._unmade:
            if not self._plan_next():
                return None
        chunk = self._unmade.popleft()
        self._line.append(chunk)
        if chunk.stretch > self._stretch:
            self._stretch = chunk.stretch
            self._ahead = {
                stretch: size for stretch, size in self._ahead.items() if stretch > chunk.stretch
            }
            self._wanted.notify_all()
        return chunk

    def _wait_for_reads(self, chunk: Chunk) -> bool:
        """Wait for what a chunk is made from (the lock is held); False if the stream is closed."""
        for read, _, _ in chunk.images:
            while not read.arrived_at:
                if self._stopped:
                    return False
                self._arrived.wait()
        chunk.arrived_at = max(read.arrived_at for read, _, _ in chunk.images)
        return not self._stopped

    def _fill(self, chunk: Chunk) -> None:
        """Make the items of a chunk, and let go of what nobody else needs."""
        try:
            for read, index, fidelity in chunk.images:
                chunk.items.append(self._make(read, index, fidelity))
                if self._stopped:
                    return
        except BaseException as error:
            chunk.error = error

    def _filled(self, chunk: Chunk) -> None:
        for read, _, _ in chunk.images:
            read.uses -= 1
            if not read.uses:
                read.data = None
        chunk.images = []
        chunk.is_ready = True

    def _make_on(self) -> None:
        while True:
            with self._lock:
                while not self._stopped and len(self._line) >= self._pace.ahead:
                    self._room.wait()
                chunk = None if self._stopped else self._take()
                if chunk is None:
                    return
                if not self._wait_for_reads(chunk):
                    return
            self._fill(chunk)
            with self._lock:
                self._filled(chunk)
                if self._line and self._line[0].is_ready:
                    self._ready.notify_all()

    # --- delivering --------------------------------------------------------------------------------

    def _next_made(self) -> Chunk | None:
        with self._lock:
            begin = perf_counter()
            while not (self._line and self._line[0].is_ready):
                if self._error is not None:
                    raise self._error
                if not self._line and self._all_planned and not self._unmade:
                    return None
                self._ready.wait()
            chunk = self._line.popleft()
            self._room.notify()
        waited = perf_counter() - begin
        storage = min(max(chunk.arrived_at - begin, 0.0), waited)
        self.storage_s += storage
        self.decode_s += waited - storage
        return _sound(chunk)

    def _next_made_here(self) -> Chunk | None:
        begin = perf_counter()
        with self._lock:
            chunk = self._take()
            if chunk is None:
                if self._error is not None:
                    raise self._error
                return None
            self._line.clear()
            self._wait_for_reads(chunk)
        begun = perf_counter()
        self._fill(chunk)
        self._filled(chunk)
        self.storage_s += begun - begin
        self.decode_s += perf_counter() - begun
        return _sound(chunk)


def _sound(chunk: Chunk) -> Chunk:
    if chunk.error is not None:
        raise chunk.error
    return chunk


def _started(target: Callable[[], None], count: int, name: str) -> list[threading.Thread]:
    # Daemons, so that a request that never ends does not keep the interpreter alive.
    threads = [
        threading.Thread(target=target, name=f"{name}-{number}", daemon=True)
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    return threads
