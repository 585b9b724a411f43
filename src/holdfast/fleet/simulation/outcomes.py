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
from typing import Literal

import numpy as np

from holdfast.fleet.job_sizes import BUCKET_TOPS, bucket_label
from holdfast.fleet.simulation.engine import Run
from holdfast.fleet.simulation.injected_truth import second_order
from holdfast.fleet.simulation.records import Array, State
from holdfast.numbers import brief, duration, percent

HOUR_MS = 3_600_000.0
DAY_MS = 24 * HOUR_MS
WARM_UP_SHARE = 0.15
WARM_UP_DAYS = 7.0
"""The warm-up is this share of the simulated time, and no longer than this."""
LAST_SHARE = 0.1
LAST_DAYS = 3.0
"""Runs and waits that begin in this last part are not counted: most would not be over."""
LONG_RUN_HOURS = (24, 12, 6, 3, 1, 0)
"""A long run needs this many productive hours: the first for which there are enough runs."""
FEWEST_LARGE_RUNS = 100
"""Large runs, of all replicas together, that a length of long runs takes."""
FEWEST_RUNS = 30
"""... and that the ETTR of one size takes."""
LARGE_GPUS = 512
"""Large jobs have this many GPUs or more; in a smaller fleet, half of the largest job's."""

TOPS = np.array([*BUCKET_TOPS, 2 * BUCKET_TOPS[-1]])

LOSSES = ("first_order", "second_order", "other_preemption")


@dataclass(frozen=True)
class Metric:
    """How a metric reads, wherever it is shown."""

    label: str
    unit: str
    """``"%"``: a share of one; ``"s"``: a duration."""
    better: Literal["higher", "lower", ""]

    @property
    def shown_unit(self) -> str:
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
        unit = "points" if self.unit == "%" else self.shown_unit
        shown, low, high = (brief(self.scaled(each)) for each in (value, *ends))
        return f"{'+' if value > 0 else ''}{shown} {unit} [{low}, {high}]"


_A_DAY = "GPU-hours a day"
METRICS = {
    "ettr_large_runs": Metric("simulated ETTR of large runs", "%", "higher"),
    "ettr_gpus_N": Metric("simulated ETTR of runs of {size}", "%", "higher"),
    "productive_share_of_large_runs": Metric("productive share of large runs", "%", "higher"),
    "interruptions_per_large_run": Metric("interruptions", "a large run", "lower"),
    "goodput_share_of_capacity": Metric("share of all GPU time that is productive", "%", "higher"),
    "goodput_share_of_busy_time": Metric(
        "share of busy GPU time that is productive", "%", "higher"
    ),
    "goodput_gpu_hours_per_day": Metric("productive GPU-hours", "a day", "higher"),
    "utilisation": Metric("utilisation", "%", ""),
    "lost_first_order_gpu_hours_per_day": Metric("loss to failures", _A_DAY, "lower"),
    "lost_second_order_gpu_hours_per_day": Metric(
        "loss to preemption by jobs that had failed", _A_DAY, "lower"
    ),
    "lost_other_preemption_gpu_hours_per_day": Metric("loss to other preemption", _A_DAY, "lower"),
    "failed_share_of_attempts_gpus_N_up": Metric(
        "failures among attempts of {top:,} or more GPUs", "%", "lower"
    ),
    "completed_jobs_per_day": Metric("completed jobs", "a day", "higher"),
    "queue_wait_mean_s": Metric("mean wait before a start", "s", "lower"),
    "queue_wait_p90_s": Metric("90 % quantile of waits before a start", "s", "lower"),
    "queue_wait_mean_s_gpus_N": Metric("mean wait of jobs of {size}", "s", "lower"),
    "queue_wait_p90_s_gpus_N": Metric("90 % quantile of waits of {size}", "s", "lower"),
}
"""What `metrics` measures; N is the largest number of GPUs of a bucket of job sizes."""


def metric(name: str) -> Metric:
    """How a metric of `metrics` reads."""
    found = METRICS[re.sub(r"(?<=_gpus_)\d+", "N", name)]
    if top := re.search(r"(?<=_gpus_)\d+", name):
        size = int(top[0])
        gpus = f"{bucket_label(size)} GPU{'s' if size > 1 else ''}"
        return replace(found, label=found.label.format(size=gpus, top=size))
    return found


@dataclass(frozen=True)
class Outcome:
    """Sums over one run's window; small enough to be sent between machines."""

    days: float
    """Length of the window."""
    capacity_gpu_ms: float
    """GPUs in the cluster x the window."""
    busy_gpu_ms: float
    productive_gpu_ms: float
    """Kept progress."""
    wanted_gpu_ms: float
    """Productive time that the jobs submitted in the window need."""
    lost_gpu_ms: dict[str, float]
    """By what took it, see `LOSSES`: progress lost, time hung, initialisation."""
    completed: int
    """Jobs."""
    ended: Array
    """float64 [sizes]: attempts that ended, of jobs of at least `TOPS` GPUs."""
    failed: Array
    """float64 [sizes]: those of them that the infrastructure ended."""
    wait_mean_s: Array
    """float64 [sizes]: wait before a start; NaN: nothing of this size waited."""
    wait_p90_s: Array
    waits: Array
    """float64 [sizes]: how many."""
    runs: Array
    """float64 [classes, LONG_RUN_HOURS, sizes]: job runs of at least so many productive hours."""
    ettr: Array
    """float64, as `runs`: sums of the ETTR of each."""
    run_productive_ms: Array
    """float64, as `runs`: kept progress."""
    run_ms: Array
    """float64, as `runs`: the time that they ran."""
    interruptions: Array
    """float64, as `runs`: ends by the infrastructure or by preemption."""
    smallest_gpus: Array
    largest_gpus: Array
    """float64 [sizes]: of the jobs in each bucket; 0 where there is none."""
    priorities: tuple[int, ...]
    """Of the classes."""


@dataclass(frozen=True)
class Scope:
    """Which runs stand for the fleet: the same in every scenario that is compared."""

    classes: tuple[int, ...]
    """Places in `Scenario.qos`: the class that waits least if it has enough runs, else all."""
    long_run_hours: int
    """One of `LONG_RUN_HOURS`."""
    large_gpus: int
    """A large run has this many GPUs or more."""
    sizes: tuple[int, ...]
    """Buckets (places in `TOPS`) with enough runs to tell the ETTR of each."""
    waits: tuple[int, ...]
    """Buckets whose jobs waited, if only for a moment."""


def outcome(run: Run) -> Outcome:
    """Count what happened in a run's window."""
    a = run.attempts
    begin, end = window_ms(run.days)
    started = a.start_ms >= 0
    stop = np.where(a.end_ms >= 0, a.end_ms, run.end_ms)
    start = np.where(started, a.start_ms, run.end_ms)
    ran_ms = _within(start, stop, begin, end)  # [attempts]
    # An attempt across the edge of the window: its progress is spread over its time.
    share = np.divide(ran_ms, stop - start, out=np.zeros(len(stop)), where=stop > start)
    productive_ms = a.productive_ms * share
    gpus = a.gpus.astype(np.float64)
    over = (a.end_ms >= begin) & (a.end_ms <= end)
    failed = over & (a.failure >= 0)
    scenario, cluster = run.scenario, run.scenario.cluster
    working = (cluster.nodes - len(cluster.without)) * cluster.gpus_per_node
    last = end - min(LAST_SHARE * run.days, LAST_DAYS) * DAY_MS
    sizes = np.searchsorted(TOPS, run.jobs.gpus)
    submitted = run.jobs.submit_ms >= begin
    return Outcome(
        days=(end - begin) / DAY_MS,
        capacity_gpu_ms=(end - begin) * working,
        busy_gpu_ms=float((gpus * ran_ms).sum()),
        productive_gpu_ms=float((gpus * productive_ms).sum()),
        wanted_gpu_ms=float((run.jobs.work_ms * (run.jobs.gpus * 1.0))[submitted].sum()),
        lost_gpu_ms=_losses(run, over),
        completed=int((over & (a.state == State.COMPLETED)).sum()),
        ended=_at_least(a.gpus[over]),
        failed=_at_least(a.gpus[failed]),
        **_queue_waits(run, begin, last),
        **_runs(run, begin, last),
        smallest_gpus=_extreme(np.minimum, sizes, run.jobs.gpus),
        largest_gpus=_extreme(np.maximum, sizes, run.jobs.gpus),
        priorities=tuple(each.priority for each in scenario.qos),
    )


def window_ms(days: float) -> tuple[float, float]:
    """From when to when outcomes are counted."""
    return min(WARM_UP_SHARE * days, WARM_UP_DAYS) * DAY_MS, days * DAY_MS


def scope(outcomes: Sequence[Outcome]) -> Scope:
    """What can be told from the replicas of one scenario.

    Args:
        outcomes: of the same scenario with different seeds, one or more.
    """
    runs = np.sum([each.runs for each in outcomes], axis=0)  # [classes, hours, sizes]
    waits = np.sum([each.waits for each in outcomes], axis=0)[:-1]
    large = _large(np.max([each.largest_gpus for each in outcomes], axis=0))
    highest = int(np.argmax(outcomes[0].priorities))
    everything = tuple(range(len(runs)))
    enough = [
        (classes, hours)
        for classes in ((highest,), everything)
        for row, hours in enumerate(LONG_RUN_HOURS)
        if runs[list(classes), row][:, large <= TOPS].sum() >= FEWEST_LARGE_RUNS
    ]
    classes, hours = enough[0] if enough else (everything, LONG_RUN_HOURS[-1])
    by_size = runs[list(classes), LONG_RUN_HOURS.index(hours)].sum(axis=0)
    return Scope(classes, hours, large, _places(by_size >= FEWEST_RUNS), _places(waits > 0))


def metrics(found: Outcome, chosen: Scope) -> dict[str, float]:
    """One run's outcome by the names of `METRICS`; NaN: nothing to measure in this run.

    ETTRs and waits come for each bucket of sizes in the scope, too. Losses of the first order are in
    attempts that the infrastructure ended, those of the second in attempts preempted by a job that had
    failed so.
    """
    hours = LONG_RUN_HOURS.index(chosen.long_run_hours)

    def of_runs(sums: Array) -> Array:
        picked: Array = sums[list(chosen.classes), hours].sum(axis=0)  # [sizes]
        return picked

    runs, ettr = of_runs(found.runs), of_runs(found.ettr)
    large = chosen.large_gpus <= TOPS
    at = int(np.searchsorted(TOPS, chosen.large_gpus))
    day = found.days * HOUR_MS  # a sum in GPU-ms / this: GPU-hours a day
    values = {
        "ettr_large_runs": _ratio(ettr[large].sum(), runs[large].sum()),
        "productive_share_of_large_runs": _ratio(
            of_runs(found.run_productive_ms)[large].sum(), of_runs(found.run_ms)[large].sum()
        ),
        "interruptions_per_large_run": _ratio(
            of_runs(found.interruptions)[large].sum(), runs[large].sum()
        ),
        "goodput_share_of_capacity": _ratio(found.productive_gpu_ms, found.capacity_gpu_ms),
        "goodput_share_of_busy_time": _ratio(found.productive_gpu_ms, found.busy_gpu_ms),
        "goodput_gpu_hours_per_day": found.productive_gpu_ms / day,
        "utilisation": _ratio(found.busy_gpu_ms, found.capacity_gpu_ms),
    }
    values |= {f"lost_{k}_gpu_hours_per_day": v / day for k, v in found.lost_gpu_ms.items()}
    failed = _ratio(found.failed[at], found.ended[at])
    values[f"failed_share_of_attempts_gpus_{chosen.large_gpus}_up"] = failed
    values["completed_jobs_per_day"] = found.completed / found.days
    for size in chosen.sizes:
        values[f"ettr_gpus_{TOPS[size]}"] = _ratio(ettr[size], runs[size])
    for name, by_size in (("mean", found.wait_mean_s), ("p90", found.wait_p90_s)):
        values[f"queue_wait_{name}_s"] = float(by_size[-1])
        for size in chosen.waits:
            values[f"queue_wait_{name}_s_gpus_{TOPS[size]}"] = float(by_size[size])
    return values


# --- Parts ---------------------------------------------------------------------------------------


def _within(start: Array, stop: Array, begin: float, end: float) -> Array:
    """Time of each interval that lies in the window, milliseconds."""
    inside: Array = np.maximum(np.minimum(stop, end) - np.maximum(start, begin), 0.0)
    return inside


def _runs(run: Run, begin: float, last: float) -> dict[str, Array]:
    """Sums over the runs submitted between two times, [classes, LONG_RUN_HOURS, sizes] each."""
    a, jobs = run.attempts, run.jobs
    stop = np.where(a.end_ms >= 0, a.end_ms, run.end_ms)
    start = np.where(a.start_ms >= 0, a.start_ms, run.end_ms)
    cut = (a.end_ms >= 0) & ((a.failure >= 0) | (a.state == State.PREEMPTED))

    def per_job(values: Array) -> Array:
        summed: Array = np.bincount(a.job, values, len(jobs.gpus))
        return summed

    gone = np.zeros(len(jobs.gpus))
    np.maximum.at(gone, a.job, stop)
    wall = gone - jobs.submit_ms
    productive = per_job(a.productive_ms)
    sums = {
        "runs": np.ones(len(wall)),
        "ettr": np.divide(productive, wall, out=np.zeros(len(wall)), where=wall > 0),
        "run_productive_ms": productive,
        "run_ms": per_job(stop - start),
        "interruptions": per_job(cut),
    }
    measured = (jobs.submit_ms >= begin) & (jobs.submit_ms <= last) & (wall > 0)
    shape = (len(run.scenario.qos), len(TOPS))
    cell = jobs.qos.astype(np.int64) * len(TOPS) + np.searchsorted(TOPS, jobs.gpus)
    found = {name: np.zeros((shape[0], len(LONG_RUN_HOURS), shape[1])) for name in sums}
    for row, hours in enumerate(LONG_RUN_HOURS):
        long = np.flatnonzero(measured & (jobs.work_ms >= hours * HOUR_MS))
        for name, values in sums.items():
            table = np.bincount(cell[long], values[long], shape[0] * shape[1])
            found[name][:, row] = table.reshape(shape)
    return found


def _losses(run: Run, over: Array) -> dict[str, float]:
    """GPU time that ended attempts lost, by what took it, milliseconds."""
    a = run.attempts
    lost = (a.lost_ms + a.init_ms) * a.gpus.astype(np.float64)
    failed = a.failure >= 0
    preempted = over & ~failed & (a.state == State.PREEMPTED)
    second = preempted & second_order(run)
    return {
        "first_order": float(lost[over & failed].sum()),
        "second_order": float(lost[second].sum()),
        "other_preemption": float(lost[preempted & ~second].sum()),
    }


def _queue_waits(run: Run, begin: float, end: float) -> dict[str, Array]:
    """Waits that began between two times, by size; the last entry is of all sizes."""
    a = run.attempts
    picked = (a.eligible_ms >= begin) & (a.eligible_ms <= end)
    until = np.where(a.start_ms >= 0, a.start_ms, run.end_ms)
    waited_s = ((until - a.eligible_ms)[picked]) / 1e3
    size = np.searchsorted(TOPS, a.gpus[picked])
    rows = len(TOPS) + 1
    found = {"wait_mean_s": np.full(rows, np.nan), "wait_p90_s": np.full(rows, np.nan)}
    counts = np.zeros(rows)
    order = np.argsort(size, kind="stable")
    ends = np.searchsorted(size[order], np.arange(len(TOPS)), side="right")
    for row, part in enumerate([*np.split(waited_s[order], ends)[: len(TOPS)], waited_s]):
        if len(part):
            counts[row] = len(part)
            found["wait_mean_s"][row] = part.mean()
            found["wait_p90_s"][row] = np.quantile(part, 0.9)
    return {**found, "waits": counts}


def _at_least(gpus: Array) -> Array:
    """How many are at least as large as each of `TOPS`."""
    ordered = np.sort(gpus)
    below: Array = np.searchsorted(ordered, TOPS)
    return (len(ordered) - below).astype(np.float64)


def _places(chosen: Array) -> tuple[int, ...]:
    return tuple(int(place) for place in np.flatnonzero(chosen))


def _extreme(pick: np.ufunc, sizes: Array, gpus: Array) -> Array:
    found = np.full(len(TOPS), np.inf if pick is np.minimum else 0.0)
    pick.at(found, sizes, gpus)
    return np.where(np.isfinite(found), found, 0.0)


def _large(largest_gpus: Array) -> int:
    """From how many GPUs on a job is large: a power of two."""
    most = int(largest_gpus.max())
    if most >= LARGE_GPUS:
        return LARGE_GPUS
    return 2 ** max((most // 2).bit_length() - 1, 0) if most > 1 else 1


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
