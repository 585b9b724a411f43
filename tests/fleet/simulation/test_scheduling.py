"""Start times under FCFS and EASY are those of the reference scheduler, to the millisecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_scheduler import Job, start_times

from holdfast.fleet.simulation.engine import run
from holdfast.fleet.simulation.records import State
from swf_workload import Workload, days_for, jobs_of, machine, random_workload, starts_of

POLICIES = pytest.mark.parametrize("backfill", [False, True], ids=["fcfs", "easy"])


def assert_same_schedule(workload: Workload, backfill: bool) -> None:
    columns = (workload.submit, workload.size, workload.runtime, workload.limit)
    jobs = [Job(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    expected = start_times(jobs, workload.processors, backfill=backfill)
    made = run(
        machine(workload.processors, backfill=backfill),
        days=days_for(workload),
        seed=1,
        jobs=jobs_of(workload),
    )
    np.testing.assert_array_equal(starts_of(made), expected)
    ran = made.attempts.end_ms - made.attempts.start_ms
    cut = np.minimum(workload.runtime, workload.limit)[made.attempts.job]
    np.testing.assert_array_equal(ran, cut)
    too_long = (workload.runtime > workload.limit)[made.attempts.job]
    assert (made.attempts.state[too_long] == State.TIMEOUT).all()
    assert (made.attempts.state[~too_long] == State.COMPLETED).all()


@POLICIES
@pytest.mark.parametrize("load", [0.5, 0.8, 1.1])
@pytest.mark.parametrize("seed", range(8))
def test_random_workloads(seed: int, load: float, backfill: bool) -> None:
    processors = (1, 7, 64, 200)[seed % 4]
    # Few moments for many ends and submissions in half of them, hardly any tie in the others.
    unit = (20.0, 3.6e6)[seed // 4]
    workload = random_workload(300, processors, load, seed, mean_runtime=unit)
    assert_same_schedule(workload, backfill)


@POLICIES
def test_jobs_that_reach_their_limits(backfill: bool) -> None:
    workload = random_workload(500, 32, 0.9, seed=5, mean_runtime=1000.0)
    # Half of the limits are cut below the runtimes.
    cut = np.maximum(1, workload.runtime * np.where(np.arange(500) % 2, 1, 2) // 3)
    limit = np.where(np.arange(500) % 4 < 2, cut, workload.limit)
    assert_same_schedule(replace(workload, limit=limit), backfill)


@POLICIES
@pytest.mark.parametrize("exact", [0.0, 1.0])
def test_everything_is_submitted_at_once(backfill: bool, exact: float) -> None:
    workload = random_workload(300, 50, 1.0, seed=9, exact_limits=exact)
    assert_same_schedule(replace(workload, submit=np.zeros(300, np.int64)), backfill)


@st.composite
def small_workloads(draw: st.DrawFn) -> Workload:
    processors = draw(st.integers(1, 6))
    job = st.tuples(
        st.integers(0, 12),
        st.integers(1, processors),
        st.integers(1, 9),
        st.integers(1, 12),
    )
    rows = sorted(draw(st.lists(job, min_size=1, max_size=14)), key=lambda row: row[0])
    submit, size, runtime, limit = (
        np.array(column, np.int64) for column in zip(*rows, strict=True)
    )
    return Workload(processors, submit, size, runtime, limit)


@given(workload=small_workloads(), backfill=st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_small_workloads_full_of_ties(workload: Workload, backfill: bool) -> None:
    assert_same_schedule(workload, backfill)


@pytest.mark.full
@POLICIES
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_large_workloads(seed: int, backfill: bool) -> None:
    rng = np.random.default_rng(seed)
    processors = int(rng.integers(2, 600))
    workload = random_workload(
        4_000,
        processors,
        float(rng.uniform(0.5, 1.1)),
        seed,
        exact_limits=float(rng.uniform(0, 1)),
        ties=float(rng.uniform(0, 0.6)),
        mean_runtime=float(10 ** rng.uniform(1, 7)),
    )
    assert_same_schedule(workload, backfill)
