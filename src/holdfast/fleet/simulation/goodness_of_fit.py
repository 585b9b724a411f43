"""Does a calibrated scenario behave like the log that it was fitted to?

The scenario is simulated as long as the log, with several seeds, and each simulated log goes through the
same analyses as the real one. For each figure the replicas give a prediction of one more of them: with
n replicas of mean m and standard deviation s the range is m ± t s sqrt(1 + 1/n), t the 95 % quantile of
Student's distribution with n - 1 degrees of freedom. One in ten figures of a perfect scenario lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import pyarrow as pa

from holdfast.answer import ColumnFormat, How, Section, Table
from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.job_sizes import bucket_label, bucket_top
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog
from holdfast.fleet.moments import iso
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation.estimates import Interval
from holdfast.fleet.simulation.job_runs import sized, without_gpus
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.replicas import Task, play
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.numbers import counted, duration, number, percent
from holdfast.tables import literal

Key = tuple[str, str]
"""Group and name of a figure."""

STATES, STATES_TIME = "ends of attempts", "GPU time by end"
SIZES, SIZES_TIME = "jobs by size", "GPU time by size"
WAIT_MEDIAN, WAIT_P90 = "median wait by size", "90 % wait by size"
COUNTS = "counts"
SHARES = (STATES, STATES_TIME, SIZES, SIZES_TIME)
WAITS = (WAIT_MEDIAN, WAIT_P90)
UTILISATION = "utilisation"
FAILURES = "infrastructure failures"
PREEMPTIONS = "preemptions"
JOBS = "jobs that ran"

FEWEST_REPLICAS = 3
FEWEST_WAITS = 5
WARM_UP_S = 7 * DAY_S
BUSY_AT_ONCE = 0.5
"""A log that begins with this share of its mean use began on a busy cluster."""


@dataclass(frozen=True)
class Row:
    """One figure of the log beside the simulated ones."""

    group: str
    name: str
    real: float
    middle: float
    """Mean of the replicas (of waits the geometric mean)."""
    low: float
    high: float
    """Range for one more replica, 5 to 95 %; NaN: too few replicas had it."""

    @property
    def verdict(self) -> str:
        """Whether the log lies in the range: "fits", "off", or "unknown"."""
        if math.isnan(self.low) or math.isnan(self.real):
            return "unknown"
        slack = 1.0 if self.group in WAITS else 1e-9  # a log keeps whole seconds
        return "fits" if self.low - slack <= self.real <= self.high + slack else "off"

    def text(self, value: float) -> str:
        """A value in the unit of its group."""
        if self.group in SHARES or self.name == UTILISATION:
            return percent(value, 1)
        return duration(value) if self.group in WAITS else number(value, 0)


@dataclass(frozen=True)
class GoodnessOfFit:
    """A log and simulations of a scenario, side by side."""

    rows: list[Row]
    replicas: int
    seed: int
    days: float
    warm_up_days: float
    """Simulated before the counting begins, because the log begins on a busy cluster."""

    def count(self, verdict: str) -> int:
        """Figures with this verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def sentence(self) -> str:
        """How many figures fit."""
        told = counted(len(self.rows) - self.count("unknown"), "figure")
        return (
            f"{self.count('fits')} of {told} of the log lie in the range of {self.replicas} "
            "simulations; one in ten lies outside by chance."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "replicas": self.replicas,
            "seed": self.seed,
            "days": self.days,
            "warm_up_days": self.warm_up_days,
            "fits": self.count("fits"),
            "off": self.count("off"),
            "figures": [{**asdict(row), "verdict": row.verdict} for row in self.rows],
        }

    def section(self) -> Section:
        """One row per figure: the range of the simulations, the log, inside or not."""
        rows = [
            {
                "metric": f"{row.group}: {row.name}",
                "range": f"{row.text(row.low)} to {row.text(row.high)}",
                "log": row.text(row.real),
                "verdict": row.verdict,
            }
            for row in self.rows
        ]
        columns = {
            "metric": ColumnFormat("Metric"),
            "range": ColumnFormat("Simulated, 5 to 95 %", right=True),
            "log": ColumnFormat("Log", right=True),
            "verdict": ColumnFormat("Inside?"),
        }
        how = How("m ± t(0.95; n − 1) · s · √(1 + 1/n)", {"replicas n": self.replicas})
        table = Table(pa.Table.from_pylist(rows), columns, "One row per figure.")
        return Section("fit", "Does the scenario fit the log?", self.sentence, (), [table], how)


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
        raise InputError(
            "too few replicas to tell a range",
            code="no-data",
            found=str(replicas),
            expected=f"{FEWEST_REPLICAS} or more",
        )
    processors = without_gpus(log)
    since = FleetLog(log.store, log.assumptions)
    since.since_s = max(float(scenario.begin_s), log.begin_s)
    real = figures(since, scenario, days, processors)
    warm_up_s = min(WARM_UP_S, days * DAY_S) if _begins_busy(since, processors) else 0.0
    warm_up_s = math.ceil(warm_up_s)
    begin = iso(scenario.begin_s - warm_up_s)
    assert begin is not None
    earlier = replace(scenario, begin=begin)
    tasks = [Task(earlier, days + warm_up_s / DAY_S, seed + i) for i in range(replicas)]
    work = partial(_replica, days=days, warm_up_s=warm_up_s, assumptions=log.assumptions)
    found = cast("list[dict[Key, float]]", play(tasks, processes=processes, work=cast("Any", work)))
    return GoodnessOfFit(list(compared(real, found)), replicas, seed, days, warm_up_s / DAY_S)


def _replica(
    task: Task, *, days: float, warm_up_s: float, assumptions: Assumptions
) -> dict[Key, float]:
    """The figures of one simulated log."""
    from holdfast.fleet.simulation.engine import run
    from holdfast.fleet.simulation.log_writing import write_log

    history = run(task.scenario, days=task.days, seed=task.seed)
    with TemporaryDirectory(prefix="holdfast-") as folder:
        log = FleetLog(write_log(history, Path(folder) / "store"), assumptions)
        log.since_s = task.scenario.begin_s + warm_up_s
        return figures(log, task.scenario, days, False)


# --- The figures of one log ----------------------------------------------------------------------


def figures(log: FleetLog, scenario: Scenario, days: float, processors: bool) -> dict[Key, float]:
    """What is compared, by group and name; shares of what did not occur are left out.

    Args:
        log: with `since_s` at the beginning of the window.
        scenario: its cluster is the base of the utilisation.
        days: length of the window.
        processors: take processors for GPUs.
    """
    # Slurm labels few of its preemptions so; a simulated log labels all of them.
    t = log.keep(
        f"compared_{processors}",
        f"""SELECT sized.*, exposed_s * size / {HOUR_S} AS gpu_h, {bucket_top("size")} AS top,
            CASE WHEN taken.key IS NOT NULL THEN 'PREEMPTED' ELSE sized.state END AS ended
        FROM ({sized(log.executions, processors)}) AS sized
        LEFT JOIN (SELECT DISTINCT key FROM {preemptions(log)}) AS taken ON sized.key = taken.key""",
    )
    states = log.rows(
        f"SELECT ended AS name, count(*) AS n, coalesce(sum(gpu_h), 0) AS h FROM {t} GROUP BY ended"
    )
    sizes = log.rows(
        f"SELECT top AS name, count(DISTINCT run) AS n, coalesce(sum(gpu_h), 0) AS h FROM {t} "
        "GROUP BY top ORDER BY top"
    )
    found: dict[Key, float] = {}
    for rows, by_count, by_time in ((states, STATES, STATES_TIME), (sizes, SIZES, SIZES_TIME)):
        for group, column in ((by_count, "n"), (by_time, "h")):
            whole = sum(row[column] for row in rows) or 1.0
            found |= {(group, _label(row["name"])): row[column] / whole for row in rows}
    waits = log.rows(
        f"""SELECT top, count(*) AS n, quantile_cont(waited_s, 0.5) AS half,
            quantile_cont(waited_s, 0.9) AS most FROM (
            SELECT top, ready_s, CAST(greatest(start_s - ready_s, 0) AS DOUBLE) AS waited_s FROM (
                SELECT top, start_s, coalesce(eligible_s, submit_s) AS ready_s FROM {t}
            ) AS started
        ) AS waits
        WHERE ready_s >= {int(log.begin_s)} GROUP BY top ORDER BY top"""
    )
    for row in waits:
        if row["n"] >= FEWEST_WAITS:
            found[WAIT_MEDIAN, _label(row["top"])] = float(row["half"])
            found[WAIT_P90, _label(row["top"])] = float(row["most"])
    cluster = scenario.cluster
    capacity = cluster.nodes * cluster.gpus_per_node * days * 24
    [ended] = log.rows(
        f"SELECT count(*) AS n, count(*) FILTER (WHERE state = 'NODE_FAIL') AS down "
        f"FROM {infrastructure_failures(log)} WHERE key IN (SELECT key FROM {t})"
    )
    by_state = {row["name"]: row["n"] for row in states}
    counts = {
        UTILISATION: sum(row["h"] for row in states) / capacity,
        JOBS: sum(row["n"] for row in sizes),
        "attempts": sum(by_state.values()),
        FAILURES: ended["n"],
        "failures as NODE_FAIL": ended["down"] or 0,
        PREEMPTIONS: by_state.get("PREEMPTED", 0),
    }
    return found | {(COUNTS, name): float(value) for name, value in counts.items()}


def _label(name: str | int) -> str:
    """A state as it is; a bucket of sizes by its range."""
    return name if isinstance(name, str) else f"{bucket_label(name)} GPU{'s' if name > 1 else ''}"


def _begins_busy(log: FleetLog, processors: bool) -> bool:
    """Whether the cluster was in use when the window began."""
    begin, end = literal(log.begin_s), log.end_s
    [row] = log.rows(
        f"SELECT sum(CASE WHEN start_s <= {begin} AND stop_s > {begin} THEN size END) AS running, "
        f"sum(exposed_s * size) AS total FROM ({sized(log.executions, processors)}) AS sized"
    )
    mean = (row["total"] or 0) / max(end - log.begin_s, 1.0)
    return bool((row["running"] or 0) > BUSY_AT_ONCE * mean)


# --- The comparison ------------------------------------------------------------------------------


def compared(real: Mapping[Key, float], simulated: Sequence[Mapping[Key, float]]) -> Iterator[Row]:
    """Each figure beside its simulated range; what one side lacks counts as zero, but for waits."""
    keys = dict.fromkeys(real) | dict.fromkeys(key for each in simulated for key in each)
    order = [*SHARES, *WAITS, COUNTS]
    for group, name in sorted(keys, key=lambda key: order.index(key[0])):
        missing = math.nan if group in WAITS else 0.0
        values = np.array([each.get((group, name), missing) for each in simulated])
        values = values[~np.isnan(values)]
        middle = float(values.mean()) if values.size else math.nan
        low = high = math.nan
        if values.size >= FEWEST_REPLICAS:
            middle, (low, high) = prediction(values, group in WAITS)
        yield Row(group, name, real.get((group, name), missing), middle, low, high)


def prediction(values: Array, skewed: bool) -> tuple[float, Interval]:
    """Mean of the replicas and the 5 to 95 % range of one more; not below zero.

    Args:
        values: shape [replicas], at least two.
        skewed: computed in log(1 + value).
    """
    from scipy.special import stdtrit

    seen = np.log1p(values) if skewed else values
    back = math.expm1 if skewed else float
    n, mean, spread = seen.size, float(seen.mean()), float(seen.std(ddof=1))
    half = float(stdtrit(n - 1, 0.95)) * spread * math.sqrt(1 + 1 / n)
    return back(mean), (max(back(mean - half), 0.0), back(mean + half))
