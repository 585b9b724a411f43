"""Simulations side by side: equal ones are played once, and little is sent (see tests/test_fanout.py)."""

from __future__ import annotations

import pickle
from dataclasses import replace

import counted

from holdfast.fleet.simulation.outcomes import Outcome
from holdfast.fleet.simulation.replicas import Task, play
from holdfast.fleet.simulation.scenario import scenario

SMALL = scenario("small")
TASKS = [Task(SMALL, 3.0, seed) for seed in range(5)]


def ettr(found: list[Outcome]) -> list[float]:
    return [each.runs["ettr"].sum() for each in found]


def test_equal_tasks_are_played_once() -> None:
    again = [Task(replace(SMALL), 3.0, seed) for seed in range(5)]
    totals = []
    found = play(
        [*TASKS, *again],
        processes=1,
        work=counted.drawn,
        on_progress=lambda done, total: totals.append(total),
    )
    assert set(totals) == {5}
    assert ettr(found[:5]) == ettr(found[5:])


def test_what_is_sent_is_small() -> None:
    assert len(pickle.dumps(TASKS[0])) < 10_000
    assert len(pickle.dumps(counted.drawn(TASKS[0]))) < 50_000
