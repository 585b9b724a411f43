"""What users submit: jobs drawn from a scenario.

Arrivals are a Poisson process whose rate follows the hours of the day and the days of the week; each job
draws its size, class, work, limit and way to end from a stream of its own.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from holdfast.fleet.simulation import portable as draw
from holdfast.fleet.simulation.records import JOBS, Array, Records, State, table
from holdfast.fleet.simulation.scenario import Scenario

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def draw_jobs(scenario: Scenario, days: float, seed: int) -> Records:
    """The jobs of a synthetic workload.

    Args:
        scenario: its `workload` says what to draw.
        days: for how long jobs arrive.
        seed: of the random numbers.

    Returns:
        The jobs in order of submission.
    """
    workload = scenario.workload
    submit = _arrivals(_expected(scenario, days), round(days * DAY_MS), seed)
    jobs = table(JOBS, len(submit), submit_ms=submit)
    sizes = workload.sizes
    ends = [e for e in workload.ends if e.state != State.REQUEUED.name]
    qos = [[size.qos.get(each.name, 0.0) for each in scenario.qos] for size in sizes]
    for row in qos:
        row[0] += not any(row)
    checkpoint = scenario.checkpoint
    stopped = checkpoint.write_s if checkpoint.mode == "sync" else 0.0
    limits = (workload.short_limits, workload.limit_factor, 1.0 + stopped / checkpoint.interval_s)
    hazards = [(State[end.state], end.scale_hours, end.shape) for end in ends]
    _draw(
        jobs.view(np.ndarray),
        seed,
        np.array([(size.gpus, size.hours, size.spread) for size in sizes], np.float64),
        _cumulated([[size.share for size in sizes]])[0],
        _cumulated(qos),
        np.array(hazards, np.float64).reshape(-1, 3),
        workload.users,
        limits,
        round(checkpoint.init_s * 1e3),
        round(scenario.scheduler.time_limit_s * 1e3),
    )
    return jobs


def _expected(scenario: Scenario, days: float) -> Array:
    """Arrivals expected in each hour, shape [hours]."""
    workload = scenario.workload
    hours = np.arange(math.ceil(days * 24)) + scenario.begin_s // 3600
    by_hour = np.array(workload.hour_weights) / sum(workload.hour_weights)
    by_day = np.array(workload.day_weights) / sum(workload.day_weights) * 7
    weekday = (hours // 24 + 3) % 7  # 1970-01-01 was a Thursday
    return workload.jobs_per_day * by_hour[hours % 24] * by_day[weekday]


def _cumulated(shares: list[list[float]]) -> Array:
    sums = np.cumsum(np.array(shares, np.float64), axis=1)
    return sums / sums[:, -1:]


@njit(cache=True)
def _arrivals(expected: Array, end_ms: int, seed: int) -> Array:
    """Times of a Poisson process with the given number of arrivals expected in each hour."""
    times = np.empty(int(expected.sum() * 1.05) + 1_000, np.int64)
    of = draw.stream(seed, draw.ARRIVALS, 0)
    count = hour = 0
    before = 0.0  # expected arrivals up to the current hour
    at = 0.0
    while True:
        at += draw.exponential(of, count)
        while hour < expected.size and before + expected[hour] <= at:
            before += expected[hour]
            hour += 1
        if hour == expected.size:
            break
        time = int((hour + (at - before) / expected[hour]) * HOUR_MS)
        if time >= end_ms:
            break
        if count == times.size:
            longer = np.empty(2 * times.size, np.int64)
            longer[:count] = times
            times = longer
        times[count] = time // 1000 * 1000  # a scheduler keeps whole seconds
        count += 1
    return times[:count].copy()


@njit(cache=True)
def _draw(
    jobs: Array,
    seed: int,
    sizes: Array,  # [sizes, 3]: GPUs, hours, sigma
    size_shares: Array,
    qos_shares: Array,
    ends: Array,  # [ends, 3]: state, Weibull scale in hours, shape
    users: int,
    limits: tuple[float, float, float],  # share of short ones, largest factor, time over work
    init_ms: int,
    most_ms: int,
) -> None:
    """Fill in everything but the submissions."""
    short_limits, limit_factor, stretch = limits
    for j in range(jobs.size):
        of = draw.stream(seed, draw.JOB, j)
        size = np.searchsorted(size_shares, draw.uniform(of, 0), "right")
        gpus, hours, sigma = sizes[size]
        jobs[j].gpus = int(gpus)
        jobs[j].qos = np.searchsorted(qos_shares[size], draw.uniform(of, 1), "right")
        work = hours * HOUR_MS * draw.exp(sigma * draw.normal(of, 2) - sigma * sigma / 2)
        work = max(work, 1_000.0)
        needed = init_ms + work * stretch
        if draw.uniform(of, 3) < short_limits:
            limit = needed * (0.2 + 0.7 * draw.uniform(of, 4))
        else:
            limit = needed * (1.1 + (limit_factor - 1.1) * draw.uniform(of, 4))
        limit = min(limit, 4e15)
        jobs[j].limit_ms = min((int(limit) // 60_000 + 1) * 60_000, most_ms)
        jobs[j].user = int(users * draw.uniform(of, 5) ** 2)  # some users submit most of the jobs
        jobs[j].end_state = 0
        for e in range(len(ends)):
            until = draw.weibull(of, 6 + e, ends[e, 1] * HOUR_MS, ends[e, 2])
            if until < work:
                work = max(until, 1_000.0)
                jobs[j].end_state = int(ends[e, 0])
        jobs[j].work_ms = int(min(work, 4e15))
