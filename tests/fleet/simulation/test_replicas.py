"""Simulations side by side: equal ones are played once, and little is sent (see tests/test_fanout.py)."""

from __future__ import annotations

import pickle
from dataclasses import replace

import counted
import pytest

from holdfast.fleet.simulation import replicas
from holdfast.fleet.simulation.outcomes import Outcome
from holdfast.fleet.simulation.replicas import Task, play
from holdfast.fleet.simulation.scenario import scenario

SMALL = scenario("small")
TASKS = [Task(SMALL, 3.0, seed) for seed in range(5)]


def ettr(found: list[Outcome]) -> list[float]:
    return [each.runs["ettr"].sum() for each in found]


def test_equal_tasks_are_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Task] = []

    def work(task: Task) -> Outcome:
        played.append(task)
        return counted.drawn(task)

    monkeypatch.setattr(replicas, "simulated", work)
    again = [Task(replace(SMALL), 3.0, seed) for seed in range(5)]
    found = play([*TASKS, *again], processes=1)
    assert len(played) == 5
    assert ettr(found[:5]) == ettr(found[5:])


def test_what_is_sent_is_small() -> None:
    assert len(pickle.dumps(TASKS[0])) < 10_000
    assert len(pickle.dumps(counted.drawn(TASKS[0]))) < 50_000
