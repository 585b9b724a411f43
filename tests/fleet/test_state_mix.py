"""Shares of states by count and by GPU time, against a loop."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from logs import Attempt, Log

import holdfast.fleet as fleet
from conftest import RandomFleet


def test_shares(random_fleet: RandomFleet) -> None:
    attempts = random_fleet.rows.attempts
    by_count = Counter(a.state for a in attempts)
    gpu_s: Counter[str] = Counter()
    for a in attempts:
        gpu_s[a.state] += a.gpu_count * a.ran_s
    answer = fleet.status(random_fleet.log).to_dict()
    assert answer["by_count"] == pytest.approx({s: n / len(attempts) for s, n in by_count.items()})
    assert answer["by_gpu_time"] == pytest.approx(
        {state: gpu_s[state] / gpu_s.total() for state in by_count}
    )
    assert answer["attempts"] == len(attempts)
    assert answer["gpu_hours"] == pytest.approx(gpu_s.total() / 3600)
    order = list(answer["by_count"])  # type: ignore[call-overload]
    assert order == sorted(by_count, key=lambda state: (-by_count[state], state))


def test_attempts_are_not_merged_into_their_last_one(tmp_path: Path) -> None:
    """A requeued job that completes in the end has failed before."""
    attempts = [
        Attempt(1, ("n1",), 1000 * i, 1000 * i + 900, state)
        for i, state in enumerate(["NODE_FAIL", "NODE_FAIL", "COMPLETED"])
    ]
    log = Log(attempts).open(tmp_path)
    assert fleet.status(log).to_dict()["by_count"] == pytest.approx(
        {"NODE_FAIL": 2 / 3, "COMPLETED": 1 / 3}
    )
    assert fleet.goodput(log).failures == 2


def test_a_user_is_not_a_state_and_what_never_ran_takes_no_time(tmp_path: Path) -> None:
    attempts = [
        Attempt(1, ("n1",), 0, 100, "CANCELLED by 1001"),
        Attempt(2, ("n1",), 0, 100, "CANCELLED"),
        Attempt(3, (), None, None, "PENDING", gpus=800, submit=5),
        Attempt(4, (), None, 50, "CANCELLED by 0", gpus=800, submit=5),
    ]
    answer = fleet.status(Log(attempts).store(tmp_path)).to_dict()
    assert answer["by_count"] == {"CANCELLED": 0.75, "PENDING": 0.25}
    assert answer["by_gpu_time"] == {"CANCELLED": 1.0, "PENDING": 0.0}


def test_no_gpu_time_at_all(tmp_path: Path) -> None:
    answer = fleet.status(Log([Attempt(1, ("n1",), 0, 100, gpus=0)]).store(tmp_path)).to_dict()
    assert answer["by_gpu_time"] == {"COMPLETED": 0.0}
