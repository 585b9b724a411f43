"""How fast a system is asked: concurrency that adapts, limits per minute, pauses, a budget.

The concurrency follows additive increase, multiplicative decrease over epochs of one round of requests.
An epoch shrinks it only if over a quarter of its requests were turned away: a server that turns away one in
ten at random, whatever the load, is not slowed down by.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable

from holdfast.lm.safety.systems import Failure

_EPOCH = 20
"""Fewest requests of an epoch."""
_TOLERATED, _DOWN, _UP = 0.25, 0.7, 1.05
_LONGEST_PAUSE_S = 60.0
_LONGEST_ASKED_S = 300.0


class Rate:
    """A limit per minute, kept by giving each request its moment (generic cell rate algorithm).

    Args:
        per_minute: units per minute; None: no limit.
        burst_s: seconds whose units may go at once after a quiet time.
    """

    def __init__(self, per_minute: float | None, burst_s: float = 1.0) -> None:
        self._unit_s = 60.0 / per_minute if per_minute else 0.0
        self._burst_s = burst_s
        self._next = float("-inf")

    def reserve(self, now: float, units: float) -> float:
        """The time at which a request of so many units may go."""
        at = max(self._next, now - self._burst_s)
        self._next = at + units * self._unit_s
        return max(now, at)

    def refund(self, units: float) -> None:
        """Give back what a request was thought to take and did not (or take more)."""
        self._next -= units * self._unit_s


class Budget:
    """Money that may be spent, in the currency of the prices.

    Args:
        most: the limit; None: none.
        spent: before.
    """

    def __init__(self, most: float | None, spent: float = 0.0) -> None:
        self._most, self._spent = most, spent
        self._reserved = 0.0  # the highest cost of the requests under way
        self._waiting: list[asyncio.Future[None]] = []

    async def reserve(self, cost: float) -> bool:
        """Set aside the highest cost of a request; False once the limit allows no further one.

        While requests are under way, it waits for them: they may cost less than was set aside.
        """
        while self._most is not None and self._spent + self._reserved + cost > self._most:
            if self._reserved <= 0:
                return False
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place
        self._reserved += cost
        return True

    def settle(self, reserved: float, cost: float) -> None:
        """Replace what was set aside by what was paid."""
        self._spent += cost
        self._reserved -= reserved
        if self._reserved < 1e-12:  # what rounding leaves
            self._reserved = 0.0
        waiting, self._waiting = self._waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(None)


class Pace:
    """When the next request may go.

    Args:
        most: highest concurrency, and the first one.
        rpm: requests per minute; None: no limit.
        tpm: tokens per minute; None: no limit.
        sleep: waits some seconds.
        seed: of the random part of pauses.
    """

    def __init__(
        self,
        most: int,
        rpm: float | None = None,
        tpm: float | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        seed: int = 0,
    ) -> None:
        self.most, self.limit, self.lowest = most, float(most), float(most)
        self.active = 0
        self._requests, self.tokens = Rate(rpm), Rate(tpm)
        self._sleep, self._random = sleep, random.Random(seed)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended = self._turned_away = 0  # of this epoch
        self._paused_until = 0.0

    async def enter(self, tokens: float) -> None:
        """Wait for a place among the requests under way, and for the limits per minute."""
        loop = asyncio.get_running_loop()
        while self.active >= int(self.limit):
            place = loop.create_future()
            self._waiting.append(place)
            await place
        self.active += 1
        now = loop.time()
        at = max(
            self._requests.reserve(now, 1), self.tokens.reserve(now, tokens), self._paused_until
        )
        if at > now:
            await self._sleep(at - now)

    def leave(self, failure: Failure | None) -> None:
        """A request ended: adapt the concurrency, and let others go."""
        self.active -= 1
        self._ended += 1
        if failure is not None and failure.congestion:
            self._turned_away += 1
            if failure.wait_s and self._turned_away > max(self._ended / 2, 2):
                # Most are turned away: the server means everybody, not this request.
                until = asyncio.get_running_loop().time() + min(failure.wait_s, _LONGEST_ASKED_S)
                self._paused_until = max(self._paused_until, until)
        if self._ended >= max(_EPOCH, self.limit):
            if self._turned_away > _TOLERATED * self._ended:
                self.limit = max(1.0, self.limit * _DOWN)
            else:
                self.limit = min(float(self.most), max(self.limit + 1, self.limit * _UP))
            self.lowest = min(self.lowest, self.limit)
            self._ended = self._turned_away = 0
        for _ in range(int(self.limit) - self.active):
            if self._waiting:
                place = self._waiting.popleft()
                if not place.done():
                    place.set_result(None)

    def pause(self, failures: int, failure: Failure) -> float:
        """Seconds until a request that failed n times is sent again.

        As the server asks, else 0.5 x 2^(n-1), at most 60, less up to half of it at random.
        """
        if failure.wait_s is not None:
            # Jitter: the server may have sent every client the same time.
            return min(failure.wait_s, _LONGEST_ASKED_S) + 0.1 * self._random.random()
        longest = min(_LONGEST_PAUSE_S, 0.5 * 2.0 ** (failures - 1))
        return longest * (1 - self._random.random() / 2)
