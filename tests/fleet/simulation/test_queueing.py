"""The M/M/c queue: its exact recursion job by job, and Erlang's formula for the mean wait."""

from __future__ import annotations

import heapq
import math

import numpy as np
import numpy.typing as npt
import pytest

from holdfast.fleet.simulation.engine import run
from swf_workload import Workload, days_for, jobs_of, machine, starts_of

Numbers = npt.NDArray[np.float64]

SERVICE_MS = 20_000.0  # mean; whole milliseconds are fine enough
BATCHES = 100


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival waits in M/M/c; load is the offered load in servers."""
    # Erlang B by its recursion, then C from B (Cooper, Introduction to Queueing Theory).
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return servers * blocked / (servers - load * (1 - blocked))


def mean_wait(servers: int, load: float) -> float:
    """Of an arrival in the steady state, in mean service times."""
    return erlang_c(servers, load) / (servers - load)


def poisson_jobs(count: int, servers: int, load: float, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.exponential(SERVICE_MS / load, count)).astype(np.int64)
    runtime = np.maximum(1, np.rint(rng.exponential(SERVICE_MS, count))).astype(np.int64)
    one = np.ones(count, np.int64)
    return Workload(servers, submit, one, runtime, runtime)


def simulated_waits(workload: Workload, *, backfill: bool = False) -> Numbers:
    made = run(
        machine(workload.processors, backfill=backfill),
        days=days_for(workload),
        seed=1,
        jobs=jobs_of(workload),
    )
    return (starts_of(made) - workload.submit).astype(np.float64)


def relative_error(waits: Numbers, expected: float) -> tuple[float, float]:
    """Of the mean wait after a warm-up of a hundredth, and its standard error by batch means."""
    settled = waits[len(waits) // BATCHES :] / SERVICE_MS
    settled = settled[: len(settled) // BATCHES * BATCHES]
    means = settled.reshape(BATCHES, -1).mean(axis=1)
    return means.mean() / expected - 1, means.std(ddof=1) / math.sqrt(BATCHES) / expected


def test_erlang_c_is_the_published_one() -> None:
    assert erlang_c(1, 0.5) == pytest.approx(0.5)  # M/M/1: the load itself
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    by_sum = 8**10 / math.factorial(10) * 10 / 2
    total = sum(8**k / math.factorial(k) for k in range(10)) + by_sum
    assert erlang_c(10, 8.0) == pytest.approx(by_sum / total)


@pytest.mark.parametrize("backfill", [False, True], ids=["fcfs", "easy"])
@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (3, 2.4), (40, 38.0)])
def test_every_wait_is_that_of_the_recursion(servers: int, load: float, backfill: bool) -> None:
    # Kiefer and Wolfowitz (1955): each job takes the server that is free first.
    workload = poisson_jobs(20_000, servers, load, seed=servers)
    free = [0] * servers
    expected = []
    for submit, runtime in zip(workload.submit.tolist(), workload.runtime.tolist(), strict=True):
        start = max(submit, free[0])
        heapq.heapreplace(free, start + runtime)
        expected.append(start - submit)
    np.testing.assert_array_equal(simulated_waits(workload, backfill=backfill), expected)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 2.4)])
def test_mean_wait_is_erlangs(servers: int, load: float) -> None:
    waits = simulated_waits(poisson_jobs(200_000, servers, load, seed=1))
    off, error = relative_error(waits, mean_wait(servers, load))
    # At this number of jobs the mean is known to about 2 %.
    assert error < 0.03
    assert abs(off) < 3 * error


@pytest.mark.full
def test_mean_wait_is_erlangs_within_one_percent() -> None:
    servers, load = 2, 1.0
    waits = [simulated_waits(poisson_jobs(2_000_000, servers, load, seed)) for seed in range(5)]
    off, error = relative_error(np.concatenate(waits), mean_wait(servers, load))
    assert error < 0.003
    assert abs(off) < 0.01
