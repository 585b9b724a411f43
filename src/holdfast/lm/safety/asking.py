"""Asking a system many things: workers, retries and the journal, whatever the answers are for."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.errors import InputError
from holdfast.lm.safety.journal import ATTEMPT, Journal, Statement
from holdfast.lm.safety.pacing import Budget, Pace
from holdfast.lm.safety.systems import Failure, Messages, Reply, System
from holdfast.progress import Tracker

_MOST_IN_A_ROW = 25
"""Failures in a row, per system of few workers, after which no more is sent."""
_HELD = 10
"""Requests that wait to be sent again, per worker, before new ones are held back."""


class Task(NamedTuple):
    """One thing to ask."""

    place: int
    """Place of the item."""
    item: str
    messages: Messages
    tokens: int
    """At most, of the prompt and the answer together."""
    most: float
    """What it costs at most."""


@dataclass
class Tally:
    """What a session did."""

    attempts: Counter[str] = field(default_factory=Counter)
    stopped: str = ""
    """Why nothing more was sent; empty: everything was asked."""
    lowest: float = 0.0
    """The lowest concurrency."""


async def ask_all(
    tasks: Iterator[Task],
    system: System,
    journal: Journal,
    annotator: int | None,
    store: Callable[[Task, Reply], Statement],
    budget: Budget,
    bar: Tracker,
) -> Tally:
    """Ask everything, at the pace that the system allows, and commit each answer before the next is asked.

    Args:
        tasks: what to ask; read as it is needed.
        system: who is asked.
        journal: where answers and attempts are written.
        annotator: whose attempts these are; None: of the system under test.
        store: makes the row of an answer.
        budget: no request goes out that could pass it.
        bar: shows the progress.
    """
    asking = _Asking(tasks, system, journal, annotator, store, budget, bar)
    workers = [asyncio.ensure_future(asking.work()) for _ in range(system.limits.concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    asking.tally.lowest = asking.pace.lowest
    return asking.tally


@dataclass
class _Asking:
    """The state that the workers of one session share."""

    tasks: Iterator[Task]
    system: System
    journal: Journal
    annotator: int | None
    store: Callable[[Task, Reply], Statement]
    budget: Budget
    bar: Tracker

    def __post_init__(self) -> None:
        limits = self.system.limits
        self.pace = Pace(limits.concurrency, limits.rpm, limits.tpm, self._sleep)
        self.tally = Tally()
        self._stopping = asyncio.Event()
        self._again: list[tuple[float, int, Task, list[Failure]]] = []  # a heap by when it is due
        self._sequence = 0  # breaks ties in the heap
        self._in_a_row = 0
        self._ended = False  # no more tasks

    async def work(self) -> None:
        """Ask one thing after another until there is nothing left."""
        while not self.tally.stopped and (job := await self._next()) is not None:
            task, failures = job
            if await self.budget.reserve(task.most):
                await self._attempt(task, failures)
            else:
                self._stop("the budget is spent")

    async def _next(self) -> tuple[Task, list[Failure]] | None:
        """What is to be asked next: what is due again, else something new, else what will be due."""
        now = asyncio.get_running_loop().time()
        due = self._again and self._again[0][0] <= now
        backlog = len(self._again) >= _HELD * self.system.limits.concurrency
        if not (due or self._ended or backlog):
            task = next(self.tasks, None)
            if task is not None:
                return task, []
            self._ended = True
        if not self._again:
            return None  # a worker whose request fails takes it up again by itself
        at, _, task, failures = heapq.heappop(self._again)
        if at > now:
            await self._sleep(at - now)
        return task, failures

    async def _sleep(self, seconds: float) -> None:
        """Wait, at most until the session stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _attempt(self, task: Task, failures: list[Failure]) -> None:
        await self.pace.enter(task.tokens)
        at, begin = time.time(), time.perf_counter()
        reply = failure = None
        answer: list[Statement] = []
        try:
            if not self.tally.stopped:
                reply = await self.system.ask(task.messages, task.item)
                answer = [self.store(task, reply)]
        except Failure as error:
            failure = error
        except Exception as error:  # whatever a system does: its item ends, the others go on
            failure = Failure("error", f"{type(error).__name__}: {error}"[:300])
        finally:
            self.pace.leave(failure)
        if reply is None and failure is None:
            self.budget.settle(task.most, 0.0)
            return
        seconds, cost = time.perf_counter() - begin, self._cost(task, reply, failure)
        self.budget.settle(task.most, cost)
        outcome, detail = (failure.kind, failure.detail) if failure else ("ok", None)
        self.tally.attempts[outcome] += 1
        used = (reply.prompt_tokens, reply.completion_tokens) if reply else (None, None)
        row = (task.place, self.annotator, at, seconds, outcome, detail, *used, cost)
        await self.journal.commit([(ATTEMPT, row), *answer])
        self._count(task, failures, failure)

    def _cost(self, task: Task, reply: Reply | None, failure: Failure | None) -> float:
        """What an attempt cost, or at most: an answer that was cut off is paid, too."""
        if failure is not None:
            return task.most if failure.kind in ("timeout", "malformed", "error") else 0.0
        if reply is None or reply.prompt_tokens is None or reply.completion_tokens is None:
            return task.most
        used = reply.prompt_tokens + reply.completion_tokens
        self.pace.tokens.refund(task.tokens - used)
        return self.system.limits.cost(reply.prompt_tokens, reply.completion_tokens)

    def _count(self, task: Task, failures: list[Failure], failure: Failure | None) -> None:
        """What follows from an attempt: the item is done, asked again, or given up."""
        limits = self.system.limits
        if failure is None:
            self._in_a_row = 0
            self.bar.advance(1)
            return
        # An item that is refused says nothing of the others, once one was answered.
        alone = failure.kind == "missing" or (
            failure.kind == "refused" and self.tally.attempts["ok"]
        )
        self._in_a_row += not alone
        if failure.fatal:
            self._stop(failure.detail)
        elif self._in_a_row >= max(_MOST_IN_A_ROW, 4 * limits.concurrency):
            self._stop(f"{self._in_a_row} failures in a row, the last: {failure}")
        failures = [*failures, failure]
        limited = sum(failure.kind == "rate-limit" for failure in failures)
        most = max(len(failures) - limited, limited / 4)
        if failure.again and most <= limits.retries:
            due = asyncio.get_running_loop().time() + self.pace.pause(len(failures), failure)
            self._sequence += 1
            heapq.heappush(self._again, (due, self._sequence, task, failures))

    def _stop(self, reason: str) -> None:
        self.tally.stopped = self.tally.stopped or reason
        self._stopping.set()


def longest(messages: Messages) -> int:
    """Tokens that a prompt has at most: a token stands for a byte or more, a message for a few more."""
    return sum(len(message["content"].encode()) + 16 for message in messages)


def check_budget(budget: float | None, system: System) -> None:
    """Refuse a budget for a system without prices.

    Raises:
        InputError: if there is a budget and no price.
    """
    limits = system.limits
    if budget is not None and not (limits.price_in or limits.price_out):
        raise InputError(
            "a budget needs prices",
            code="missing-key",
            place="--budget",
            found=system.name,
            remedy="add ?price_in=X&price_out=Y (per million tokens) to the name of the system",
        )
