"""An event loop whose clock jumps to the next timer: hours of waiting take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting, moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing to do, and no timer: a deadlock"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Jumping()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def run_virtually(main: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """What a coroutine gives, and the virtual seconds that it took."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(main)
        return result, runner.get_loop().time()
