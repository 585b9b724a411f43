"""When jobs arrive in a log: the cohort of jobs that a calibration is made of, and its arrivals.

Only jobs that arrived inside the window count. A log begins with what was running then, and that is a
choice of long jobs; a job that arrived later is seen from its beginning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog
from holdfast.fleet.simulation.estimates import Findings, rounded
from holdfast.fleet.simulation.job_runs import JobRuns, job_runs
from holdfast.fleet.simulation.records import Array
from holdfast.numbers import brief, counted, duration
from holdfast.stats import gamma_prior, poisson_interval, shrink

FEWEST_JOBS = 20
FEWEST_COMPLETED = 5
DAYS_FOR_HOURS, DAYS_FOR_WEEK = 2.0, 14.0
"""Shorter logs tell no hours of the day, no days of the week."""
BURSTS = 3.0
"""Hourly arrivals that vary so many times more than a Poisson process are called bursts."""


@dataclass(frozen=True)
class Cohort:
    """The jobs that arrived inside the window, seen from their beginning."""

    runs: JobRuns
    every: JobRuns
    """All jobs of the log."""
    begin_s: float
    """The first end in the log: from here on it tells of every job."""
    end_s: float
    earlier: int
    """Jobs that arrived before, left out."""
    processors: bool
    """Whether processors stand in for GPUs."""

    @property
    def days(self) -> float:
        """Length of the window."""
        return (self.end_s - self.begin_s) / DAY_S


def cohort(log: FleetLog, *, processors: bool) -> Cohort:
    """The jobs that a calibration is made of.

    Raises:
        InputError: if they are too few, saying what is missing and how much is needed.
    """
    t = log.executions
    first = log.rows(t.agg(s=t.end_s.min()))[0]["s"]
    if first is None:
        ran = log.rows(t.agg(n=t.count()))[0]["n"]
        raise InputError(
            "no attempt ended: there is nothing to calibrate from",
            code="no-data",
            path=log.store.path,
            found=f"{counted(ran, 'attempt')} that started, none that ended"
            if log.count("attempts")
            else "no attempts" + (": a log of nodes only" if log.count("node_outages") else ""),
            expected=f"the scheduler's accounting of {FEWEST_JOBS} jobs or more",
            remedy="ingest sacct output beside it; for the failure rate alone use "
            "`holdfast fleet mttf`",
        )
    begin_s = max(float(first), log.begin_s)
    runs = job_runs(log, processors=processors)
    inside = (runs.arrival_s >= begin_s) & (runs.arrival_s <= log.end_s)
    made = Cohort(
        JobRuns(*(column[inside] for column in runs)),
        runs,
        begin_s,
        max(log.end_s, begin_s + 1),
        int((~inside).sum()),
        processors,
    )
    jobs, done = made.runs.gpus.size, int((made.runs.end == "COMPLETED").sum())
    if jobs < FEWEST_JOBS or done < FEWEST_COMPLETED:
        raise InputError(
            "the log is too short to calibrate from",
            code="no-data",
            path=log.store.path,
            found=f"{counted(jobs, 'job')} that arrived in {duration(made.end_s - begin_s)} and "
            f"asked for {'processors' if processors else 'GPUs'}, {done:,} of them completed",
            expected=f"{FEWEST_JOBS} jobs, {FEWEST_COMPLETED} of them completed",
            remedy="export a longer time, or write a scenario by hand beginning with a preset",
        )
    return made


def arrivals(
    those: Cohort, findings: Findings
) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Jobs per day, and the weights of the hours and of the days."""
    arrival_s, days = those.runs.arrival_s, those.days
    hour = np.arange(math.floor(those.begin_s / HOUR_S), math.floor(those.end_s / HOUR_S) + 1)
    begins = hour * HOUR_S
    open_h = np.minimum(begins + HOUR_S, those.end_s) - np.maximum(begins, those.begin_s)
    open_h = np.maximum(open_h / HOUR_S, 0.0)
    counts = np.bincount((arrival_s // HOUR_S).astype(np.int64) - hour[0], minlength=hour.size)
    by_hour: tuple[float, ...] = (1.0,) * 24
    by_day: tuple[float, ...] = (1.0,) * 7
    if days >= DAYS_FOR_HOURS:
        by_hour = _weights(hour % 24, counts, open_h, 24)
        findings.found(
            "workload.hour_weights",
            None,
            "arrivals by hour of the day (UTC) over their mean, shrunk to it",
            n=counts.sum(),
        )
    else:
        findings.assumed(
            "workload.hour_weights",
            f"the log covers {duration(days * DAY_S)}, too short to tell hours of the day apart "
            f"({DAYS_FOR_HOURS:g} days)",
        )
    if days >= DAYS_FOR_WEEK:
        by_day = _weights((hour // 24 + 3) % 7, counts, open_h, 7)  # 1970-01-01 was a Thursday
        findings.found(
            "workload.day_weights",
            None,
            "arrivals by day of the week over their mean, shrunk to it",
            n=counts.sum(),
        )
    else:
        findings.assumed(
            "workload.day_weights",
            f"the log covers {duration(days * DAY_S)}, too short to tell days of the week apart "
            f"({DAYS_FOR_WEEK:g} days)",
        )
    shape = np.array(by_hour)[hour % 24] * np.array(by_day)[(hour // 24 + 3) % 7]
    weight = float((shape * open_h).sum()) / (days * 24)  # the window may cover busy hours only
    rate = arrival_s.size / days / weight
    bursts = _bursts(those, by_hour, by_day)
    low, high = poisson_interval(arrival_s.size / bursts, days * weight / bursts)
    jobs_per_day = rounded(rate)
    findings.found(
        "workload.jobs_per_day",
        jobs_per_day,
        f"jobs that arrived in {duration(days * DAY_S)}",
        interval=(low, high),
        n=arrival_s.size,
        unit="a day",
    )
    if bursts > BURSTS:
        findings.note(
            f"Arrivals come in bursts: their counts vary {brief(bursts)} times as much as those of "
            "a Poisson process, which is what is simulated. Simulated waits are too short; a replay "
            '(workload.kind = "replay") keeps the bursts.'
        )
    return jobs_per_day, by_hour, by_day


def _bursts(those: Cohort, by_hour: tuple[float, ...], by_day: tuple[float, ...]) -> float:
    """How many times the counts in bins of an hour vary as much as a Poisson process would.

    A log of less than a day is cut into 24 bins.
    """
    width = min(HOUR_S, (those.end_s - those.begin_s) / 24)
    bins = int((those.end_s - those.begin_s) / width)  # the last one may be cut short: left out
    place = ((those.runs.arrival_s - those.begin_s) / width).astype(np.int64)
    counts = np.bincount(place[place < bins], minlength=bins)
    hour = ((those.begin_s + (np.arange(bins) + 0.5) * width) // HOUR_S).astype(np.int64)
    shape = np.array(by_hour)[hour % 24] * np.array(by_day)[(hour // 24 + 3) % 7]
    expected = counts.sum() * shape / shape.sum()
    firm = expected > 0.5
    if firm.sum() < 2:
        return 1.0
    excess = ((counts - expected) ** 2 / np.maximum(expected, 1e-9))[firm].sum()
    return max(float(excess) / (int(firm.sum()) - 1), 1.0)


def _weights(place: Array, counts: Array, open_h: Array, size: int) -> tuple[float, ...]:
    """Rates of the places over their mean, shrunk together by how much they truly differ."""
    seen = np.bincount(place, counts, minlength=size).astype(np.float64)
    exposure = np.bincount(place, open_h, minlength=size).astype(np.float64)
    rates = shrink(seen, exposure, gamma_prior(seen, exposure))[0]
    mean = float(rates.mean())
    return tuple(rounded(float(rate) / mean, 3) for rate in rates)
