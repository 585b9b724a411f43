"""What a log's users submitted, as a `Workload`: arrivals, sizes, durations, ends, time limits.

Only jobs that arrived inside the window count. A log begins with what was running then, and that is a
choice of long jobs; a job that arrived later is seen from its beginning. What had not completed by the
end of the log, or was cut off by a failure, a limit or its user, is censored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.lemon_statistics import gamma_prior, shrink
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog
from holdfast.fleet.simulation.durations import LEAST, Fit, Prior, fit
from holdfast.fleet.simulation.estimates import Findings, rounded
from holdfast.fleet.simulation.job_runs import executions, job_runs
from holdfast.fleet.simulation.records import Array, Records
from holdfast.fleet.simulation.scenario import Cluster, End, Qos, Size, Workload
from holdfast.numbers import counted, duration, percent
from holdfast.stats import clopper_pearson_interval, poisson_interval

FEWEST_JOBS = 20
FEWEST_COMPLETED = 5
# Shorter logs tell no hours of the day, no days of the week.
DAYS_FOR_HOURS = 2.0
DAYS_FOR_WEEK = 14.0
# A size with as many completed jobs stands alone; one with fewer leans on the other sizes.
FIRM_EVENTS = 20
WIDEST = 5.0  # Spread of log t beyond which a mean, exp(12) medians, is no estimate
FEWEST_FOR_SHAPE = 5  # Ends seen fewer times get a constant hazard
# A size keeps its number of GPUs with this share of the jobs and so many of them, or with this
# share of the GPU time; others are merged to the nearest power of two.
KEPT_SHARE, KEPT_JOBS, KEPT_TIME = 0.01, 5, 0.02


# --- Who counts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cohort:
    """The jobs that arrived inside the window, seen from their beginning."""

    runs: Records
    every: Records  # All jobs of the log
    begin_s: float  # The first end in the log: from here on it tells of every job
    end_s: float

    @property
    def days(self) -> float:
        """Length of the window."""
        return (self.end_s - self.begin_s) / DAY_S


def cohort(log: FleetLog) -> Cohort:
    """The jobs that a calibration is made of.

    Raises:
        InputError: if they are too few, saying what is missing and how much is needed.
    """
    [row] = log.rows(f"SELECT min(end_s) AS first, count(*) AS ran FROM {log.executions}")
    if row["first"] is None:
        of_nodes = ": a log of nodes only" if log.count("node_outages") else ""
        raise InputError(
            "no attempt ended: there is nothing to calibrate from",
            code="no-data",
            path=log.store.path,
            found=f"{counted(row['ran'], 'attempt')} that started, none that ended"
            if log.count("attempts")
            else f"no attempts{of_nodes}",
            expected=f"the scheduler's accounting of {FEWEST_JOBS} jobs or more",
            remedy="ingest sacct output beside it; `holdfast fleet mttf` gives the failure rate",
        )
    begin_s = max(float(row["first"]), log.begin_s)
    runs = job_runs(log)
    inside = (runs.arrival_s >= begin_s) & (runs.arrival_s <= log.end_s)
    mine = runs[inside]
    members = Cohort(mine, runs, begin_s, max(log.end_s, begin_s + 1))
    jobs = mine.gpus.size
    done = int((mine.end == "COMPLETED").sum())
    if jobs < FEWEST_JOBS or done < FEWEST_COMPLETED:
        raise InputError(
            "the log is too short to calibrate from",
            code="no-data",
            path=log.store.path,
            found=f"{counted(jobs, 'job')} that arrived in {duration(members.end_s - begin_s)} and "
            f"asked for GPUs, {done:,} of them completed",
            expected=f"{FEWEST_JOBS} jobs, {FEWEST_COMPLETED} of them completed",
            remedy="export a longer time, or write a scenario by hand beginning with a preset",
        )
    return members


def workload(
    log: FleetLog, those: Cohort, cluster: Cluster, classes: Sequence[Qos], findings: Findings
) -> Workload:
    """Fit everything that users decide.

    Args:
        log: the open log.
        those: of `cohort`.
        cluster: sizes are fitted into it.
        classes: of the scenario.
        findings: where estimates and assumptions are recorded.
    """
    jobs_per_day, hours, days = _arrivals(those, findings)
    users = max(len(set(those.runs.user.tolist())), 1)
    findings.record("workload.users", users, those.runs.gpus.size)
    sizes = _sizes(log, those, cluster, classes, findings)
    ends = _ends(log, those, findings)
    short = _short_limits(those, ends, findings)
    return Workload(jobs_per_day, users, hours, days, sizes, ends, short)


# --- Arrivals ------------------------------------------------------------------------------------


def _arrivals(
    those: Cohort, findings: Findings
) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Jobs per day, and the weights of the hours and of the days."""
    arrival_s = those.runs.arrival_s
    days = those.days
    hour = np.arange(math.floor(those.begin_s / HOUR_S), math.floor(those.end_s / HOUR_S) + 1)
    begins = hour * HOUR_S
    open_h = np.minimum(begins + HOUR_S, those.end_s) - np.maximum(begins, those.begin_s)
    open_h = np.maximum(open_h / HOUR_S, 0.0)
    counts = np.bincount((arrival_s // HOUR_S).astype(np.int64) - hour[0], minlength=hour.size)
    weights: list[tuple[float, ...]] = []
    for what, size, least in (("hour", 24, DAYS_FOR_HOURS), ("day", 7, DAYS_FOR_WEEK)):
        key = f"workload.{what}_weights"
        place = _place(hour, size)
        if days < least:
            weights.append((1.0,) * size)
            findings.assumed(key, f"the log covers {duration(days * DAY_S)}, less than {least:g} d")
        else:
            weights.append(_weights(place, counts, open_h, size))
            findings.record(key, None, counts.sum())
    by_hour, by_day = weights
    shape = np.array(by_hour)[_place(hour, 24)] * np.array(by_day)[_place(hour, 7)]
    weight = float((shape * open_h).sum()) / (days * 24)  # the window may cover busy hours only
    interval = poisson_interval(arrival_s.size, days * weight)
    rate = rounded(arrival_s.size / days / weight)
    jobs_per_day = findings.record("workload.jobs_per_day", rate, arrival_s.size, interval)
    return jobs_per_day, by_hour, by_day


def _place(hour: Array, size: int) -> Array:
    """The hour of the day (24) or the day of the week (7) of hours since 1970, a Thursday."""
    return hour % 24 if size == 24 else (hour // 24 + 3) % 7


def _weights(place: Array, counts: Array, open_h: Array, size: int) -> tuple[float, ...]:
    """Rates of the places over their mean, shrunk together by how much they truly differ."""
    arrivals = np.bincount(place, counts, minlength=size).astype(np.float64)
    exposure = np.bincount(place, open_h, minlength=size).astype(np.float64)
    rates = shrink(arrivals, exposure, gamma_prior(arrivals, exposure))[0]
    return tuple(rounded(float(rate) / float(rates.mean()), 3) for rate in rates)


# --- Sizes and durations -------------------------------------------------------------------------


def _sizes(
    log: FleetLog, those: Cohort, cluster: Cluster, classes: Sequence[Qos], findings: Findings
) -> tuple[Size, ...]:
    """The size mix with the work of each size."""
    runs = those.runs
    gpus = merged_sizes(runs.gpus, runs.held_s, cluster)
    done = runs.end == "COMPLETED"
    total = gpus.size
    if moved := int((gpus != on_nodes(runs.gpus, cluster.gpus_per_node)).sum()):
        findings.note(
            f"{counted(moved, 'job')} ({percent(moved / total)}) of rare sizes are merged to the "
            "nearest power of two."
        )
    firm, prior = _prior(runs.made_s, done, gpus)
    names = [each.name for each in classes]
    sizes = []
    for place, size in enumerate(np.unique(gpus).tolist()):
        mine = gpus == size
        count = int(mine.sum())
        completed = int((mine & done).sum())
        work = firm.get(size) or fit("lognormal", runs.made_s[mine], done[mine], prior=prior)
        if work.sigma > WIDEST:
            short = int((runs.made_s[done] <= LEAST).sum())
            raise InputError(
                "the log does not tell how long jobs compute",
                code="no-data",
                path=log.store.path,
                found=f"{short:,} of {counted(int(done.sum()), 'completed job')} left at most "
                f"{LEAST:.0f} s to compute beside their start and their checkpoints",
                remedy="state a shorter checkpoint.write or checkpoint.init, as such jobs have",
            )
        hours = rounded(max(work.mean / HOUR_S, 1e-4))
        spread = rounded(work.sigma, 3)
        key = f"workload.sizes[{place}]"
        low, high = (each / HOUR_S for each in work.mean_ci95)
        interval = clopper_pearson_interval(count, total)
        share = findings.record(f"{key}.share", rounded(count / total), count, interval)
        findings.record(f"{key}.hours", hours, count, (low, high))
        findings.record(f"{key}.spread", spread, completed, work.sigma_ci95)
        sizes.append(Size(size, share, hours, spread, _shares(runs.job_class[mine], names)))
    return tuple(sizes)


def on_nodes(gpus: Array, gpus_per_node: int) -> Array:
    """GPUs as gangs take them: a part of one node, or whole nodes."""
    return np.where(gpus > gpus_per_node, -(-gpus // gpus_per_node) * gpus_per_node, gpus)


def merged_sizes(gpus: Array, occupied_s: Array, cluster: Cluster) -> Array:
    """The sizes that are simulated: those that matter as they are, others the nearest power of two.

    Args:
        gpus: of each job, shape [jobs].
        occupied_s: time that each job was on its nodes, shape [jobs].
        cluster: that they have to fit on.
    """
    per_node = cluster.gpus_per_node
    most = cluster.nodes * cluster.gpus_per_node
    gpus = np.minimum(on_nodes(gpus, per_node), most)
    values, place, counts = np.unique(gpus, return_inverse=True, return_counts=True)
    gpu_time = np.bincount(place, gpus * occupied_s)
    few = (counts < KEPT_SHARE * gpus.size) | (counts < KEPT_JOBS)
    rare = few & (gpu_time <= KEPT_TIME * gpu_time.sum())
    within = np.minimum(2 ** np.round(np.log2(values)), per_node)
    nodes = 2 ** np.round(np.log2(np.maximum(values / per_node, 1.0)))
    nodes = np.where(nodes > cluster.nodes, nodes / 2, nodes)
    nearest = np.where(values > per_node, nodes * per_node, within).astype(np.int64)
    return np.where(rare, nearest, values)[place]


def _prior(made_s: Array, done: Array, gpus: Array) -> tuple[dict[int, Fit], Prior]:
    """The fits of sizes that stand alone, and what they let expect of the others."""
    firm = {}
    for size in np.unique(gpus).tolist():
        mine = gpus == size
        if (mine & done).sum() >= FIRM_EVENTS:
            found = fit("lognormal", made_s[mine], done[mine])
            firm |= {size: found} if found.sigma <= WIDEST else {}
    overall = fit("lognormal", made_s, done)
    places = [each.mu for each in firm.values()]
    apart = max(float(np.std(places, ddof=1)), 0.5) if len(places) > 1 else 1.0
    center = float(np.mean(places)) if places else overall.mu
    return firm, Prior(center, apart, math.log(max(overall.sigma, 0.05)), 0.5)


def _shares(values: Array, names: Sequence[str]) -> Mapping[str, float]:
    """Shares of the classes of service among some jobs."""
    shares = {name: rounded(float((values == name).mean())) for name in names}
    return {name: share for name, share in shares.items() if share and len(names) > 1}


# --- Ends ----------------------------------------------------------------------------------------


def _ends(log: FleetLog, those: Cohort, findings: Findings) -> tuple[End, ...]:
    """Hazards of the ends that are no completion, and of requeues."""
    runs = those.runs
    ran = runs.starts > 0
    ends = []
    absent = []
    for state in ("FAILED", "CANCELLED", "OUT_OF_MEMORY", "REQUEUED"):
        seconds = runs.made_s[ran]
        ended = runs.end[ran] == state
        if state == "REQUEUED":  # of every attempt, its productive time
            ran_s = executions(log)
            again = log.arrow(f"SELECT made_s, cut = 'requeue' AS again FROM {ran_s}")
            seconds, ended = (column.to_numpy() for column in again.columns)
        events = int(ended.sum())
        if not events:
            absent.append(state)
            continue
        key = f"workload.ends[{len(ends)}]"
        firm = events >= FEWEST_FOR_SHAPE
        hazard = fit("weibull", seconds, ended, sigma=None if firm else 1.0)
        scale = rounded(hazard.scale / HOUR_S)
        shape = rounded(hazard.shape, 3) if firm else 1.0
        low, high = (each / HOUR_S for each in hazard.scale_ci95)
        findings.record(f"{key}.scale_hours", scale, events, (low, high))
        if firm:
            findings.record(f"{key}.shape", shape, events, hazard.shape_ci95)
        else:
            findings.assumed(
                f"{key}.shape",
                f"{counted(events, state + ' end')}, too few to tell whether the hazard changes",
            )
        ends.append(End(state, scale, shape))
    if absent:
        findings.note(f"No job ended {', '.join(absent)}: not simulated.")
    return tuple(ends)


# --- Time limits ---------------------------------------------------------------------------------


def _short_limits(those: Cohort, ends: Sequence[End], findings: Findings) -> float:
    """The share of limits that are too short: TIMEOUT among jobs that nothing else ended before.

    A job with a short limit has less time in which to fail, so each end is weighted by the inverse of
    its chance to get so far.
    """
    runs = those.runs
    late = runs.end == "TIMEOUT"
    done = runs.end == "COMPLETED"
    own = [end for end in ends if end.state != "REQUEUED"]
    hours = runs.made_s / HOUR_S
    hazard = sum(((hours / end.scale_hours) ** end.shape for end in own), np.zeros(hours.size))
    weight = np.exp(np.minimum(hazard, 10.0))
    count = int(late.sum())
    total = int(late.sum() + done.sum())
    short = float(weight[late].sum() / weight[late | done].sum())
    bias = short / (count / total) if count else 1.0
    low, high = clopper_pearson_interval(count, total)
    interval = (low * bias, min(high * bias, 1.0))
    return findings.record("workload.short_limits", rounded(short, 3), total, interval)
