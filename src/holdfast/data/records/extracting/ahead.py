"""Records read while those before them are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from holdfast.data.records.reading.prefixes import Damaged, Prefix


class Ahead:
    """Gives the records of these numbers in order; a few are read ahead."""

    def __init__(self, read: Callable[[int], Prefix | Damaged], numbers: Sequence[int]) -> None:
        self._read = read
        self._numbers = iter(numbers)
        self._pending: list[Future[Prefix | Damaged]] = []

    def __enter__(self) -> Iterator[Prefix | Damaged]:
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="export")
        return self._results()

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _results(self) -> Iterator[Prefix | Damaged]:
        while True:
            while len(self._pending) < 3 and (number := next(self._numbers, None)) is not None:
                self._pending.append(self._pool.submit(self._read, number))
            if not self._pending:
                return
            yield self._pending.pop(0).result()
