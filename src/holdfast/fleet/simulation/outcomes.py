"""What a simulated fleet achieved, as numbers that two scenarios can be compared by.

GPU time, losses and ends are counted in a window: from the end of the warm-up (the cluster begins empty)
to the end of the simulation. Time that an attempt spends in the window counts, whether or not it began or
ended there.

ETTR of a run = productive time that it keeps / its wall-clock time, from submission to its end:
R / (Q + R + U) (Kokolis et al., arXiv 2410.21680v2, on ETTR). Which runs are measured depends on nothing
that a change could alter: on when their jobs are submitted (after the warm-up, and not at the very end)
and on how much productive time their jobs need. So both sides of a comparison measure the same jobs. A
run that is unfinished at the end counts with what it has achieved so far; to leave it out would favour
fast ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast.config import parse_config
from holdfast.fleet.job_sizes import BUCKET_TOPS, bucket_label
from holdfast.fleet.simulation.engine import Run
from holdfast.fleet.simulation.injected_truth import second_order
from holdfast.fleet.simulation.records import Array, State
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.numbers import brief, duration, percent

HOUR_MS = 3_600_000.0
DAY_MS = 24 * HOUR_MS
WARM_UP_SHARE = 0.15
WARM_UP_DAYS = 7.0  # The warm-up is this share of the simulated time, and no longer than this
LAST_SHARE = 0.1
# Runs and waits that begin in this last part are not counted: most would not be over.
LAST_DAYS = 3.0
# A long run needs this many productive hours: the first for which there are enough runs.
LONG_RUN_HOURS = (24, 12, 6, 3, 1, 0)
FEWEST_LARGE_RUNS = 100  # Large runs, of all replicas together, that a length of long runs takes
FEWEST_RUNS = 30  # ... and that the ETTR of one size takes.
# Large jobs have this many GPUs or more; in a smaller fleet, half of the largest job's.
LARGE_GPUS = 512

TOPS = np.array([*BUCKET_TOPS, 2 * BUCKET_TOPS[-1]])

LOSSES = ("first_order", "second_order", "other_preemption")


@dataclass(frozen=True)
class Metric:
    """How a metric reads, wherever it is shown."""

    label: str
    unit: str  # ``"%"``: a share of one; ``"s"``: a duration
    better: Literal["higher", "lower", ""]

    @property
    def display_unit(self) -> str:
        """The unit of `scaled`."""
        return "min" if self.unit == "s" else self.unit

    def scaled(self, value: float) -> float:
        """In the unit in which tables and figures show it: per cent, minutes."""
        return value * {"%": 100.0, "s": 1 / 60}.get(self.unit, 1.0)

    def text(self, value: float) -> str:
        """With its unit: ``"63.2 %"``, ``"1 h 30 min"``."""
        if self.unit in ("%", "s"):
            return percent(value, 1) if self.unit == "%" else duration(value)
        return f"{brief(value)} {self.unit}"

    def difference(self, value: float, ends: tuple[float, float]) -> str:
        """With sign and 95 % interval: ``"+9.93 points [8.01, 11.8]"``."""
        unit = "points" if self.unit == "%" else self.display_unit
        text, low, high = (brief(self.scaled(each)) for each in (value, *ends))
        return f"{'+' if value > 0 else ''}{text} {unit} [{low}, {high}]"


# What `metrics` measures; N is the largest number of GPUs of a bucket of job sizes.
_WORDS = parse_config(Path(__file__).with_name("metrics.toml"), "the metrics of a what-if")
METRICS = {name: Metric(**words) for name, words in _WORDS.items()}


def metric(name: str) -> Metric:
    """How a metric of `metrics` reads."""
    top = re.search(r"(?<=_gpus_)\d+", name)
    if top is None:
        return METRICS[name]
    words = METRICS[name.replace(top[0], "N")]
    size = int(top[0])
    gpus = f"{bucket_label(size)} GPU{'s' if size > 1 else ''}"
    return replace(words, label=words.label.format(size=gpus, top=size))


RUN_SUMS = ("runs", "ettr", "run_productive_ms", "run_ms", "interruptions")


@dataclass(frozen=True)
class Outcome:
    """Sums over one run's window; small enough to be sent between machines."""

    days: float  # Length of the window
    capacity_gpu_ms: float  # GPUs in the cluster x the window
    busy_gpu_ms: float
    productive_gpu_ms: float  # Kept progress
    required_gpu_ms: float  # Productive time that the jobs submitted in the window need
    # By what took it, see `LOSSES`: progress lost, time hung, initialisation.
    lost_gpu_ms: dict[str, float]
    completed: int  # Jobs
    ended: Array  # int64 [sizes]: attempts that ended, of jobs of at least `TOPS` GPUs
    failed: Array  # int64 [sizes]: those of them that the infrastructure ended
    # float64 [sizes + 1, 3]: number, mean and 90 % quantile (seconds; NaN: none) of the waits
    # before a start; the last row is of all sizes.
    waits: Array
    # Sums over job runs of at least so many productive hours, by `RUN_SUMS`: their number, their
    # ETTR, kept progress, time that they ran, ends by the infrastructure or by preemption. float64
    # [classes, LONG_RUN_HOURS, sizes] each.
    runs: dict[str, Array]
    largest_gpus: int  # Of the largest job


@dataclass(frozen=True)
class Scope:
    """Which runs stand for the fleet: the same in every scenario that is compared."""

    # Places in `Scenario.qos`: the class that waits least if it has enough runs, else all.
    classes: tuple[int, ...]
    long_run_hours: int  # One of `LONG_RUN_HOURS`
    large_gpus: int  # A large run has this many GPUs or more
    sizes: tuple[int, ...]  # Buckets (places in `TOPS`) with enough runs to tell the ETTR of each
    waits: tuple[int, ...]  # Buckets whose jobs waited, if only for a moment


def outcome(run: Run) -> Outcome:
    """Count what happened in a run's window."""
    a = run.attempts
    cluster = run.scenario.cluster
    begin, end = window_ms(run.days)
    last = end - min(LAST_SHARE * run.days, LAST_DAYS) * DAY_MS
    start, stop = run.times_ms
    ran_ms = np.maximum(np.minimum(stop, end) - np.maximum(start, begin), 0.0)  # [attempts]
    # An attempt across the edge of the window: its progress is spread over its time.
    share = np.divide(ran_ms, stop - start, out=np.zeros(len(stop)), where=stop > start)
    gpus = a.gpus.astype(np.float64)
    over = (a.end_ms >= begin) & (a.end_ms <= end)
    submitted = run.jobs.submit_ms >= begin
    working = (cluster.nodes - len(cluster.without)) * cluster.gpus_per_node
    return Outcome(
        days=(end - begin) / DAY_MS,
        capacity_gpu_ms=(end - begin) * working,
        busy_gpu_ms=float((gpus * ran_ms).sum()),
        productive_gpu_ms=float((gpus * a.productive_ms * share).sum()),
        required_gpu_ms=float((run.jobs.work_ms * (run.jobs.gpus * 1.0))[submitted].sum()),
        lost_gpu_ms=_losses(run, over),
        completed=int((over & (a.state == State.COMPLETED)).sum()),
        ended=(a.gpus[over] >= TOPS[:, None]).sum(axis=1),
        failed=(a.gpus[over & (a.failure >= 0)] >= TOPS[:, None]).sum(axis=1),
        waits=_waits(run, begin, last),
        runs=_runs(run, begin, last),
        largest_gpus=int(run.jobs.gpus.max(initial=0)),
    )


def window_ms(days: float) -> tuple[float, float]:
    """From when to when outcomes are counted."""
    return min(WARM_UP_SHARE * days, WARM_UP_DAYS) * DAY_MS, days * DAY_MS


def scope(outcomes: Sequence[Outcome], scenario: Scenario) -> Scope:
    """What can be told from the replicas of one scenario.

    Args:
        outcomes: of the same scenario with different seeds, one or more.
        scenario: of all of them.
    """
    runs = np.sum([each.runs["runs"] for each in outcomes], axis=0)  # [classes, hours, sizes]
    waits = np.sum([each.waits[:-1, 0] for each in outcomes], axis=0)  # [sizes]
    large = large_gpus(max(each.largest_gpus for each in outcomes))
    everything = tuple(range(len(runs)))
    highest = max(everything, key=lambda place: scenario.qos[place].priority)
    enough = [
        (classes, hours)
        for classes in ((highest,), everything)
        for row, hours in enumerate(LONG_RUN_HOURS)
        if runs[list(classes), row][:, large <= TOPS].sum() >= FEWEST_LARGE_RUNS
    ]
    classes, hours = enough[0] if enough else (everything, LONG_RUN_HOURS[-1])
    by_size = runs[list(classes), LONG_RUN_HOURS.index(hours)].sum(axis=0)
    return Scope(classes, hours, large, _places(by_size >= FEWEST_RUNS), _places(waits > 0))


def large_gpus(largest: int) -> int:
    """From how many GPUs on a job is large: `LARGE_GPUS`, or the power of two below half of the largest."""
    if largest >= LARGE_GPUS:
        return LARGE_GPUS
    return 1 << max((largest // 2).bit_length() - 1, 0)


def metrics(outcome: Outcome, chosen: Scope) -> dict[str, float]:
    """One run's outcome by the names of `METRICS`; NaN: nothing to measure in this run.

    ETTRs and waits come for each bucket of sizes in the scope, too. Losses of the first order are in
    attempts that the infrastructure ended, those of the second in attempts preempted by a job that had
    failed so.
    """
    hours = LONG_RUN_HOURS.index(chosen.long_run_hours)
    of_runs = {
        name: outcome.runs[name][list(chosen.classes), hours].sum(axis=0) for name in RUN_SUMS
    }
    large = chosen.large_gpus <= TOPS
    sums = {name: by_size[large].sum() for name, by_size in of_runs.items()}
    at = int(np.searchsorted(TOPS, chosen.large_gpus))
    day = outcome.days * HOUR_MS  # a sum in GPU-ms / this: GPU-hours a day
    values = {
        "ettr_large_runs": _ratio(sums["ettr"], sums["runs"]),
        "productive_share_of_large_runs": _ratio(sums["run_productive_ms"], sums["run_ms"]),
        "interruptions_per_large_run": _ratio(sums["interruptions"], sums["runs"]),
        "goodput_share_of_capacity": _ratio(outcome.productive_gpu_ms, outcome.capacity_gpu_ms),
        "goodput_share_of_busy_time": _ratio(outcome.productive_gpu_ms, outcome.busy_gpu_ms),
        "goodput_gpu_hours_per_day": outcome.productive_gpu_ms / day,
        "utilisation": _ratio(outcome.busy_gpu_ms, outcome.capacity_gpu_ms),
    }
    values |= {f"lost_{k}_gpu_hours_per_day": v / day for k, v in outcome.lost_gpu_ms.items()}
    failed = _ratio(outcome.failed[at], outcome.ended[at])
    values[f"failed_share_of_attempts_gpus_{chosen.large_gpus}_up"] = failed
    values["completed_jobs_per_day"] = outcome.completed / outcome.days
    for size in chosen.sizes:
        values[f"ettr_gpus_{TOPS[size]}"] = _ratio(of_runs["ettr"][size], of_runs["runs"][size])
    for column, name in ((1, "queue_wait_mean_s"), (2, "queue_wait_p90_s")):
        values[name] = float(outcome.waits[-1, column])
        for size in chosen.waits:
            values[f"{name}_gpus_{TOPS[size]}"] = float(outcome.waits[size, column])
    return values


# --- Parts ---------------------------------------------------------------------------------------


def _runs(run: Run, begin: float, last: float) -> dict[str, Array]:
    """`Outcome.runs` of the jobs submitted between two times."""
    a = run.attempts
    jobs = run.jobs
    start, stop = run.times_ms
    cut = (a.end_ms >= 0) & ((a.failure >= 0) | (a.state == State.PREEMPTED))
    gone = np.zeros(len(jobs.gpus))
    np.maximum.at(gone, a.job, stop)
    wall = gone - jobs.submit_ms
    productive, ran, cuts = (
        np.bincount(a.job, each, len(wall)) for each in (a.productive_ms, stop - start, cut)
    )
    ettr = np.divide(productive, wall, out=np.zeros(len(wall)), where=wall > 0)
    values = (np.ones(len(wall)), ettr, productive, ran, cuts)
    measured = (jobs.submit_ms >= begin) & (jobs.submit_ms <= last) & (wall > 0)
    shape = (len(run.scenario.qos), len(LONG_RUN_HOURS), len(TOPS))
    sums = {name: np.zeros(shape) for name in RUN_SUMS}
    for row, hours in enumerate(LONG_RUN_HOURS):
        long = np.flatnonzero(measured & (jobs.work_ms >= hours * HOUR_MS))
        place = (jobs.qos[long], np.searchsorted(TOPS, jobs.gpus[long]))
        for name, each in zip(RUN_SUMS, values, strict=True):
            np.add.at(sums[name][:, row], place, each[long])
    return sums


def _losses(run: Run, over: Array) -> dict[str, float]:
    """GPU time that ended attempts lost, by what took it, milliseconds."""
    a = run.attempts
    lost = (a.lost_ms + a.init_ms) * a.gpus.astype(np.float64)
    failed = a.failure >= 0
    preempted = over & ~failed & (a.state == State.PREEMPTED)
    second = preempted & second_order(run)
    rows = (over & failed, second, preempted & ~second)
    return {name: float(lost[each].sum()) for name, each in zip(LOSSES, rows, strict=True)}


def _waits(run: Run, begin: float, end: float) -> Array:
    """`Outcome.waits` of those that began between two times; one that is not over counts as it stands."""
    a = run.attempts
    picked = (a.eligible_ms >= begin) & (a.eligible_ms <= end)
    waited_s = (run.times_ms[0] - a.eligible_ms)[picked] / 1e3
    size = np.searchsorted(TOPS, a.gpus[picked])
    table = np.full((len(TOPS) + 1, 3), np.nan)
    for row, part in enumerate([*(waited_s[size == each] for each in range(len(TOPS))), waited_s]):
        table[row, 0] = len(part)
        if len(part):
            table[row, 1:] = part.mean(), np.quantile(part, 0.9)
    return table


def _places(chosen: Array) -> tuple[int, ...]:
    return tuple(int(place) for place in np.flatnonzero(chosen))


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
