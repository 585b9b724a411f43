"""Work on several items at a time, with the results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Outcome = TypeVar("Outcome")


def in_order(
    work: Callable[[int], Outcome], count: int, threads: int
) -> Generator[Outcome, None, None]:
    """Results of `work` for 0..count - 1 in order; a few more than `threads` are held at a time."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Outcome]] = deque()
        try:
            for number in range(count):
                waiting.append(pool.submit(work, number))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()
