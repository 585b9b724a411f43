"""Pace, retries and the budget, on a clock that jumps: no test waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safety_world import problem, write_spec
from virtual_time import run_virtually

from holdfast import progress
from holdfast.lm import safety
from holdfast.lm.safety.asking import Tally, Task, ask_all, check_budget
from holdfast.lm.safety.journal import RESPONSE, Journal
from holdfast.lm.safety.pacing import Budget, Rate
from holdfast.lm.safety.systems import Failure, Limits, Messages, Reply


class Service:
    """A system whose answers take 0.1 s of virtual time.

    Args:
        limits: how it is asked.
        fault: (request number, item, time) -> what goes wrong.
    """

    name = "service"

    def __init__(
        self, limits: Limits, fault: Callable[[int, str, float], Failure | None] = lambda *_: None
    ) -> None:
        self.limits, self.fault = limits, fault
        self.active = self.most_active = 0
        self.items: list[str] = []
        self.times: list[float] = []

    async def fingerprint(self) -> str:
        return ""

    async def ask(self, messages: Messages, item: str = "") -> Reply:
        self.items.append(item)
        self.times.append(asyncio.get_running_loop().time())
        failure = self.fault(len(self.items), item, self.times[-1])
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            await asyncio.sleep(0.01 if failure and failure.kind == "rate-limit" else 0.1)
        finally:
            self.active -= 1
        if failure:
            raise failure
        return Reply("yes", "stop", 10, 5)

    async def close(self) -> None:
        pass


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    spec = write_spec(tmp_path, [{"hazard": "vcr", "prompt": "a"}])
    safety.run(spec, "python:json:dumps", tmp_path / "run")
    with Journal(tmp_path / "run", write=True) as opened:
        yield opened


def ask(
    journal: Journal, service: Service, count: int, budget: float | None = None, most: float = 0.0
) -> tuple[Tally, float]:
    """Ask so many things; the tally and the virtual seconds."""
    tasks = (
        Task(n + 10, str(n), [{"role": "user", "content": ""}], 15, most) for n in range(count)
    )

    def store(task: Task, reply: Reply) -> tuple[str, tuple[object, ...]]:
        return RESPONSE, (task.place, reply.text, False, reply.finish, "")

    async def main() -> Tally:
        with progress.track("", None) as bar:
            return await ask_all(tasks, service, journal, None, store, Budget(budget), bar)

    return run_virtually(main())


def test_everything_is_asked_once_at_full_concurrency(journal: Journal) -> None:
    service = Service(Limits(concurrency=64))
    tally, seconds = ask(journal, service, 1000)
    assert tally.attempts == {"ok": 1000}
    assert sorted(map(int, service.items)) == list(range(1000))
    assert service.most_active == 64
    assert seconds == pytest.approx(0.1 * 16, abs=0.01)


def test_one_request_in_ten_turned_away_at_random_slows_nothing_down(journal: Journal) -> None:
    draw = random.Random(1).random
    service = Service(
        Limits(concurrency=64), lambda *_: Failure("rate-limit") if draw() < 0.1 else None
    )
    tally, seconds = ask(journal, service, 3000)
    assert tally.attempts["ok"] == 3000
    assert tally.lowest > 45
    assert seconds < 1.2 * 3000 / 64 * 0.1 + 2  # the last retries wait a second or two


class Bucket:
    """A server's limit: so many requests per second, and a second's worth at once."""

    def __init__(self, rate: float, asks: bool) -> None:
        self.rate, self.asks, self.level, self.at = rate, asks, rate, 0.0

    def __call__(self, number: int, item: str, now: float) -> Failure | None:
        self.level = min(self.rate, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return None
        return Failure("rate-limit", wait_s=0.2 if self.asks else None)


@pytest.mark.parametrize("asks", [True, False])
def test_the_rate_of_a_server_is_found_and_used(journal: Journal, asks: bool) -> None:
    service = Service(Limits(concurrency=64), Bucket(100.0, asks))
    tally, seconds = ask(journal, service, 1500)
    assert tally.attempts["ok"] == 1500  # none failed
    assert tally.lowest < 30
    assert seconds < 1.2 * 1500 / 100
    assert tally.attempts["rate-limit"] < 750


def test_limits_per_minute_are_kept(journal: Journal) -> None:
    service = Service(Limits(concurrency=64, rpm=600))
    seconds = ask(journal, service, 300)[1]
    assert seconds == pytest.approx(30, rel=0.05)
    busiest = max(sum(t <= u < t + 10 for u in service.times) for t in service.times)
    assert busiest <= 600 / 6 + 12  # and what one second allows at once

    service = Service(Limits(concurrency=64, tpm=15 * 600))
    assert ask(journal, service, 300)[1] == pytest.approx(30, rel=0.1)


def test_unused_tokens_are_given_back() -> None:
    rate = Rate(60.0, burst_s=0.0)
    assert rate.reserve(0.0, 30) == 0
    rate.refund(20)
    assert rate.reserve(0.0, 1) == 10


def test_a_server_that_is_gone_stops_the_session_early(journal: Journal) -> None:
    service = Service(Limits(concurrency=8), lambda *_: Failure("network", "refused"))
    tally, seconds = ask(journal, service, 10_000)
    assert "failures in a row" in tally.stopped
    assert len(service.items) <= 48
    assert seconds < 30


def test_a_wrong_key_stops_the_session_at_once(journal: Journal) -> None:
    service = Service(
        Limits(concurrency=8), lambda *_: Failure("refused", "status 401", fatal=True)
    )
    tally, _ = ask(journal, service, 1000)
    assert tally.stopped == "status 401"
    assert len(service.items) == 8


def test_items_that_are_refused_are_passed_over_once_others_are_answered(journal: Journal) -> None:
    def fault(number: int, item: str, now: float) -> Failure | None:
        return Failure("refused", "filtered") if int(item) >= 20 else None

    tally, _ = ask(journal, Service(Limits(concurrency=4), fault), 500)
    assert tally.attempts == {"ok": 20, "refused": 480}
    assert not tally.stopped


def test_an_item_is_given_up_after_its_retries(journal: Journal) -> None:
    service = Service(
        Limits(concurrency=2, retries=3),
        lambda _, item, now: Failure("server", "status 500") if item == "7" else None,
    )
    tally, _ = ask(journal, service, 40)
    assert service.items.count("7") == 4
    assert tally.attempts == {"ok": 39, "server": 4}
    rows = list(journal.rows("SELECT outcome, detail FROM attempt WHERE place = 17"))
    assert rows == [("server", "status 500")] * 4  # every attempt is a row


def test_a_pause_that_the_server_asks_for_is_kept(journal: Journal) -> None:
    service = Service(
        Limits(concurrency=1),
        lambda number, *_: Failure("rate-limit", wait_s=40.0) if number == 3 else None,
    )
    ask(journal, service, 4)
    assert service.items == ["0", "1", "2", "3", "2"]
    assert 40 <= service.times[-1] - service.times[2] < 40.3


@pytest.mark.parametrize("budget", [0.0, 0.9, 1.0, 3.33, 10.0])
def test_a_budget_is_never_passed_and_used_up(journal: Journal, budget: float) -> None:
    limits = Limits(concurrency=8, price_in=4000.0, price_out=2000.0)  # 0.05 for an answer
    tally, _ = ask(journal, Service(limits), 150, budget, most=1.0)  # ... that may cost 1
    spent = journal.value("SELECT coalesce(sum(cost), 0) FROM attempt WHERE place >= 10")
    assert spent == pytest.approx(0.05 * tally.attempts["ok"])
    assert spent <= budget
    assert tally.attempts["ok"] == (
        150 if budget == 10 else int(max(0, budget - 1) / 0.05 + 1.001) * (budget >= 1)
    )
    assert bool(tally.stopped) == (budget < 10)


def test_an_answer_that_was_cut_off_is_paid(journal: Journal) -> None:
    limits = Limits(concurrency=1, retries=0, price_in=1.0)
    ask(journal, Service(limits, lambda *_: Failure("malformed")), 1, most=0.7)
    assert journal.value("SELECT cost FROM attempt WHERE place = 10") == 0.7


def test_a_budget_needs_prices() -> None:
    assert problem(lambda: check_budget(1.0, Service(Limits()))) == ("missing-key", "--budget")
