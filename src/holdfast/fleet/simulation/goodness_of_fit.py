"""Does a calibrated scenario behave like the log that it was fitted to?

The scenario is simulated as long as the log, with several seeds, and each simulated log goes through the
same analyses as the real one. For each figure the replicas give a prediction of one more of them: with
n replicas of mean m and standard deviation s the range is m ± t s sqrt(1 + 1/n), t the 95 % quantile of
Student's distribution with n - 1 degrees of freedom. One in ten figures of a perfect scenario lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Section
from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.job_sizes import bucket_label, bucket_top
from holdfast.fleet.log import HOUR_S, FleetLog
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation.job_runs import sized, without_gpus
from holdfast.fleet.simulation.replicas import Task, play
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.wording import how, table
from holdfast.numbers import counted

# What is compared, and of which state or job size; the second is empty for the whole log.
Key = tuple[str, str]

BY_STATE = ("ends of attempts", "GPU time by end")
BY_SIZE = ("jobs by size", "GPU time by size")
WAITS = ("median wait (s)", "90 % wait (s)")
UTILISATION = "utilisation"
FAILURES = "infrastructure failures"
JOBS = "jobs that ran"

FEWEST_REPLICAS = 3
FEWEST_WAITS = 5


@dataclass(frozen=True)
class GoodnessOfFit:
    """A log and simulations of a scenario, side by side."""

    # One row per figure: metric, of (a state or a job size), log, low and high (range for one more
    # replica, 5 to 95 %; NaN: too few replicas had it), verdict ("fits", "off" or "unknown").
    figures: pa.Table
    replicas: int
    seed: int
    days: float

    def count(self, verdict: str) -> int:
        """Figures with this verdict."""
        return self.figures["verdict"].to_pylist().count(verdict)

    @property
    def sentence(self) -> str:
        """How many figures fit."""
        figures = counted(self.figures.num_rows - self.count("unknown"), "figure")
        return (
            f"{self.count('fits')} of {figures} of the log lie in the range of {self.replicas} "
            "simulations; one in ten lies outside by chance."
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields, and how many figures fit."""
        counts = {verdict: self.count(verdict) for verdict in ("fits", "off")}
        return {**vars(self), "figures": self.figures.to_pylist(), **counts}

    def section(self) -> Section:
        """One row per figure: the range of the simulations, the log, inside or not."""
        computed = how("fit", {"replicas n": self.replicas})
        caption = "One row per figure; shares between 0 and 1."
        bounds = {"low": "Simulated, 5 %", "high": "95 %"}
        shown = table(
            self.figures, "metric of log low high verdict", caption, metric="Metric", **bounds
        )
        return Section(
            "fit", "Does the scenario fit the log?", self.sentence, (), [shown], computed
        )


def goodness_of_fit(
    log: FleetLog,
    scenario: Scenario,
    days: float,
    *,
    replicas: int = 8,
    seed: int = 1,
    processes: int | None = None,
) -> GoodnessOfFit:
    """Simulate a scenario and hold it against the log that it was fitted to.

    Args:
        log: the log.
        scenario: of `calibrate`; it may have been edited since.
        days: the length of the window that was fitted.
        replicas: simulations, with the seeds `seed`, `seed` + 1, ...
        seed: the first one.
        processes: that simulate side by side; None: one for each processor.

    Raises:
        InputError: with fewer than three replicas.
    """
    if replicas < FEWEST_REPLICAS:
        problem, expected = "too few replicas to tell a range", f"{FEWEST_REPLICAS} or more"
        raise InputError(problem, code="no-data", found=str(replicas), expected=expected)
    processors = without_gpus(log)
    since = FleetLog(log.store, log.assumptions)
    since.since_s = max(float(scenario.begin_s), log.begin_s)
    real = figures(since, scenario, days, processors)
    tasks = [Task(scenario, days, seed + i) for i in range(replicas)]
    work = partial(_replica, assumptions=log.assumptions)
    rows = [*compared(real, play(tasks, processes=processes, work=work))]
    return GoodnessOfFit(pa.Table.from_pylist(rows), replicas, seed, days)


def _replica(task: Task, *, assumptions: Assumptions) -> dict[Key, float]:
    """The figures of one simulated log."""
    from holdfast.fleet.simulation.engine import run
    from holdfast.fleet.simulation.log_writing import write_log

    history = run(task.scenario, days=task.days, seed=task.seed)
    with TemporaryDirectory(prefix="holdfast-") as folder:
        log = FleetLog(write_log(history, Path(folder) / "store"), assumptions)
        log.since_s = float(task.scenario.begin_s)
        return figures(log, task.scenario, task.days, False)


def figures(log: FleetLog, scenario: Scenario, days: float, processors: bool) -> dict[Key, float]:
    """What is compared; shares of what did not occur are left out.

    Args:
        log: with `since_s` at the beginning of the window.
        scenario: its cluster is the base of the utilisation.
        days: length of the window.
        processors: take processors for GPUs.
    """
    # Slurm labels few of its preemptions so; a simulated log labels all of them.
    attempts = log.keep(
        f"compared_{processors}",
        f"""SELECT sized.*, exposed_s * size / {HOUR_S} AS gpu_h, {bucket_top("size")} AS top,
            coalesce(eligible_s, submit_s) AS ready_s,
            CASE WHEN taken.key IS NOT NULL THEN 'PREEMPTED' ELSE sized.state END AS ended
        FROM ({sized(log.executions, processors)}) AS sized
        LEFT JOIN (SELECT DISTINCT key FROM {preemptions(log)}) AS taken ON sized.key = taken.key""",
    )
    values: dict[Key, float] = {}
    for names, column, what in (
        (BY_STATE, "ended", "count(*)"),
        (BY_SIZE, "top", "count(DISTINCT run)"),
    ):
        rows = log.rows(
            f"""SELECT {column} AS name, n / sum(n) OVER () AS n,
                coalesce(h / nullif(sum(h) OVER (), 0), 0) AS h
            FROM (SELECT {column}, CAST({what} AS DOUBLE) AS n, sum(gpu_h) AS h
                FROM {attempts} GROUP BY {column}) AS groups
            ORDER BY name"""
        )
        for metric, part in zip(names, ("n", "h"), strict=True):
            values |= {(metric, _label(row["name"])): row[part] for row in rows}
    waited = "CAST(greatest(start_s - ready_s, 0) AS DOUBLE)"
    half, most = (f'quantile_cont({waited}, {q}) AS "{n}"' for q, n in zip((0.5, 0.9), WAITS))  # noqa: B905
    for row in log.rows(
        f"""SELECT top, {half}, {most} FROM {attempts} WHERE ready_s >= {int(log.begin_s)}
        GROUP BY top HAVING count(*) >= {FEWEST_WAITS} ORDER BY top"""
    ):
        values |= {(name, _label(row["top"])): row[name] for name in WAITS}
    capacity = scenario.cluster.nodes * scenario.cluster.gpus_per_node * days * 24
    [total] = log.rows(
        f"""SELECT coalesce(sum(gpu_h), 0) / {capacity} AS "{UTILISATION}",
            count(DISTINCT run) AS "{JOBS}", count(*) AS attempts,
            count(*) FILTER (WHERE key IN (
                SELECT key FROM {infrastructure_failures(log)} AS failed)) AS "{FAILURES}",
            count(*) FILTER (WHERE ended = 'PREEMPTED') AS preemptions
        FROM {attempts}"""
    )
    return values | {(name, ""): float(value) for name, value in total.items()}


def _label(name: str | int) -> str:
    """A state as it is; a bucket of sizes by its range."""
    return name if isinstance(name, str) else f"{bucket_label(name)} GPU{'s' if name > 1 else ''}"


def compared(
    real: Mapping[Key, float], simulated: Sequence[Mapping[Key, float]]
) -> Iterator[dict[str, Any]]:
    """`GoodnessOfFit.figures`; what one side lacks counts as zero, but for waits."""
    for metric, of in dict.fromkeys([*real, *(key for each in simulated for key in each)]):
        waits = metric in WAITS
        missing = math.nan if waits else 0.0
        measured = real.get((metric, of), missing)
        values = [each.get((metric, of), missing) for each in simulated]
        values = [value for value in values if not math.isnan(value)]
        enough = len(values) >= FEWEST_REPLICAS
        low, high = prediction(values, waits) if enough else (math.nan, math.nan)
        slack = 1.0 if waits else 1e-9  # a log keeps whole seconds
        verdict = "fits" if low - slack <= measured <= high + slack else "off"
        verdict = "unknown" if math.isnan(low + measured) else verdict
        data = {"log": measured, "low": low, "high": high, "verdict": verdict}
        yield {"metric": metric, "of": of, **data}


def prediction(values: Sequence[float], skewed: bool) -> tuple[float, float]:
    """The 5 to 95 % range of one more replica; not below zero.

    Args:
        values: of the replicas, at least two.
        skewed: computed in log(1 + value).
    """
    from scipy.special import stdtrit

    sample = np.log1p(values) if skewed else np.array(values)
    back = math.expm1 if skewed else float
    n, mean, spread = sample.size, float(sample.mean()), float(sample.std(ddof=1))
    half = float(stdtrit(n - 1, 0.95)) * spread * math.sqrt(1 + 1 / n)
    return max(back(mean - half), 0.0), back(mean + half)
