"""Simulations side by side: the same answers from any number of processes, and clean ends."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import counted
import pytest

from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.fleet.simulation.outcomes import Outcome
from holdfast.fleet.simulation.replicas import Task, play
from holdfast.fleet.simulation.scenario import scenario

SMALL = scenario("small")
TASKS = [Task(SMALL, 3.0, seed) for seed in range(5)]


def ettr(found: list[Outcome]) -> list[float]:
    return [each.runs["ettr"].sum() for each in found]


def test_processes_change_nothing() -> None:
    calls: list[tuple[int, int]] = []
    alone = play(TASKS, processes=1, work=counted.drawn)
    two = play(
        TASKS,
        processes=2,
        work=counted.drawn,
        on_progress=lambda done, total: calls.append((done, total)),
    )
    assert ettr(alone) == ettr(two)
    assert calls == [(done, 5) for done in range(6)]
    assert not multiprocessing.active_children()


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


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(HoldfastError, match="ended before its work was done"):
        play(TASKS, processes=2, work=counted.died)
    assert not multiprocessing.active_children()


def test_an_interruption_leaves_no_process() -> None:
    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(TASKS, processes=2, work=counted.drawn, on_progress=interrupt)
    assert not multiprocessing.active_children()


def test_what_is_sent_is_small() -> None:
    assert len(pickle.dumps(TASKS[0])) < 10_000
    assert len(pickle.dumps(counted.drawn(TASKS[0]))) < 50_000


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[ray\]"):
        play(TASKS, ray="local", work=counted.drawn)


def test_ray_gives_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    ray: Any = pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(Path(counted.__file__).parent), prepend=os.pathsep)
    found = play(TASKS, ray="local", work=counted.drawn)
    assert ettr(found) == ettr(play(TASKS, processes=1, work=counted.drawn))
    assert not ray.is_initialized()
