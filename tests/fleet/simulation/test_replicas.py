"""Simulations side by side: little is sent (see tests/test_fanout.py)."""

from __future__ import annotations

import pickle

import counted

from holdfast.fleet.simulation.outcomes import Outcome
from holdfast.fleet.simulation.replicas import Task
from holdfast.fleet.simulation.scenario import scenario

SMALL = scenario("small")
TASKS = [Task(SMALL, 3.0, seed) for seed in range(5)]


def ettr(found: list[Outcome]) -> list[float]:
    return [each.runs["ettr"].sum() for each in found]


def test_what_is_sent_is_small() -> None:
    assert len(pickle.dumps(TASKS[0])) < 10_000
    assert len(pickle.dumps(counted.drawn(TASKS[0]))) < 50_000
