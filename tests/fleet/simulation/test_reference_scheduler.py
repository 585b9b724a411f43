"""The reference scheduler on schedules that were worked out by hand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from reference_scheduler import Job, start_times

from swf_workload import Workload, random_workload, write_swf


class Case(NamedTuple):
    name: str
    jobs: list[Job]
    fcfs: list[int]
    easy: list[int]


CASES = [
    Case("an idle machine", [Job(5, 4, 10, 10)], [5], [5]),
    Case(
        "what does not fit waits for the end, and starts at that moment",
        [Job(0, 3, 10, 10), Job(0, 3, 10, 10)],
        [0, 10],
        [0, 10],
    ),
    Case(
        "a short job goes before the head, a longer one does not",
        [Job(0, 3, 10, 10), Job(1, 4, 5, 5), Job(2, 1, 8, 8), Job(2, 1, 9, 9)],
        [0, 10, 15, 15],
        [0, 10, 2, 15],
    ),
    Case(
        "a long job takes what the head leaves over, and no more than that",
        [Job(0, 3, 10, 10), Job(1, 3, 5, 5), Job(2, 1, 50, 50), Job(2, 1, 50, 50)],
        [0, 10, 10, 15],
        [0, 10, 2, 15],
    ),
    Case(
        "the head counts with limits; an early end brings it forward",
        [Job(0, 4, 3, 10), Job(1, 4, 2, 2)],
        [0, 3],
        [0, 3],
    ),
    Case(
        "a candidate counts with its limit, though it would have ended in time",
        [Job(0, 3, 10, 10), Job(1, 4, 5, 5), Job(2, 1, 3, 9)],
        [0, 10, 15],
        [0, 10, 15],
    ),
    Case(
        "a job is stopped at its limit",
        [Job(0, 4, 100, 10), Job(1, 4, 1, 1)],
        [0, 10],
        [0, 10],
    ),
    Case(
        "two ends at one moment are one moment: the head gets both",
        [Job(0, 2, 10, 20), Job(0, 2, 10, 20), Job(1, 4, 5, 5), Job(2, 2, 5, 5)],
        [0, 0, 10, 15],
        [0, 0, 10, 15],
    ),
    Case(
        "ties of submission go by position, in whatever order the list is",
        [Job(3, 4, 2, 2), Job(0, 4, 5, 5), Job(3, 4, 2, 2)],
        [5, 0, 7],
        [5, 0, 7],
    ),
    Case(
        "only the head has a reservation: the second in the queue can be overtaken",
        [Job(0, 3, 10, 10), Job(1, 4, 5, 5), Job(2, 2, 5, 5), Job(3, 1, 7, 7)],
        [0, 10, 15, 15],
        [0, 10, 15, 3],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_worked_out_by_hand(case: Case) -> None:
    assert start_times(case.jobs, 4, backfill=False) == case.fcfs
    assert start_times(case.jobs, 4, backfill=True) == case.easy


@pytest.mark.parametrize("job", [Job(0, 5, 1, 1), Job(0, 0, 1, 1), Job(0, 1, 0, 1)])
def test_impossible_jobs(job: Job) -> None:
    with pytest.raises(ValueError, match="processors"):
        start_times([job], 4, backfill=True)


def test_random_workloads_have_what_is_hard() -> None:
    workload = random_workload(2_000, 64, 0.9, seed=1)
    assert (np.diff(workload.submit) >= 0).all()
    assert (np.diff(workload.submit) == 0).sum() > 200
    assert workload.submit[0] == 0
    assert workload.size.min() == 1
    assert (workload.size == 64).sum() > 10
    assert (workload.size <= 64).all()
    assert (workload.runtime >= 1).all()
    assert (workload.limit >= workload.runtime).all()
    assert 0.15 < (workload.limit == workload.runtime).mean() < 0.4
    work = (workload.size * workload.runtime).sum()
    assert work / (64 * workload.submit[-1]) == pytest.approx(0.9, rel=0.01)


def test_swf_says_the_same(tmp_path) -> None:
    workload = random_workload(50, 16, 0.9, seed=1)
    write_swf(workload, tmp_path / "jobs.swf")
    rows = np.loadtxt(tmp_path / "jobs.swf", comments=";", dtype=np.int64)
    assert rows.shape == (50, 18)
    read = Workload(16, rows[:, 1], rows[:, 7], rows[:, 3], rows[:, 8])
    for name in ("submit", "size", "runtime", "limit"):
        assert (getattr(read, name) == getattr(workload, name)).all(), name
