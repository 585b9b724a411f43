"""Does a calibrated scenario behave like the log that it was fitted to?

The scenario is simulated as long as the log, with several seeds, and each simulated log goes through the
same analyses as the real one. For each figure the replicas give a prediction of one more of them: with
n replicas of mean m and standard deviation s the range is m ± t s sqrt(1 + 1/n), t the 95 % quantile of
Student's distribution with n - 1 degrees of freedom. One in ten figures of a perfect scenario lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.job_sizes import bucket_label, bucket_top
from holdfast.fleet.log import DAY_S, HOUR_S, FleetLog, open_log
from holdfast.fleet.moments import iso
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation.calibration import Calibration
from holdfast.fleet.simulation.estimates import Interval
from holdfast.fleet.simulation.job_runs import sized, without_gpus
from holdfast.fleet.simulation.records import Array
from holdfast.fleet.simulation.replicas import OnProgress, Task, play
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.fleet.store import Store
from holdfast.progress import track
from holdfast.tables import literal

Verdict = Literal["fits", "close", "off", "unknown"]
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

CLOSE = {"%": (0.01, 0.0), "s": (60.0, 0.1), "": (1.0, 0.1)}
"""Unit -> how far outside of its range a figure is still close: so much, or this share of its end."""
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
    """Range for one more replica, 5 to 95 %."""
    verdict: Verdict
    """Inside the range; outside but close; outside; too few replicas had it."""

    @property
    def unit(self) -> str:
        """``"%"`` of shares, ``"s"`` of waits, empty of counts."""
        if self.group in SHARES or self.name == UTILISATION:
            return "%"
        return "s" if self.group in WAITS else ""


@dataclass(frozen=True)
class GoodnessOfFit:
    """A log and simulations of a scenario, side by side."""

    calibration: Calibration
    rows: list[Row]
    replicas: int
    seed: int
    warm_up_days: float
    """Simulated before the counting begins, because the log begins on a busy cluster."""

    def count(self, verdict: Verdict) -> int:
        """Figures with this verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def of(self, group: str) -> list[Row]:
        """The figures of one group."""
        return [row for row in self.rows if row.group == group]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "replicas": self.replicas,
            "seed": self.seed,
            "days": self.calibration.days,
            "warm_up_days": self.warm_up_days,
            "fits": self.count("fits"),
            "close": self.count("close"),
            "off": self.count("off"),
            "figures": [asdict(row) for row in self.rows],
        }


def goodness_of_fit(
    log: str | Path | Store | FleetLog,
    made: Calibration,
    *,
    replicas: int = 8,
    seed: int = 1,
    processes: int | None = None,
    on_progress: OnProgress | None = None,
) -> GoodnessOfFit:
    """Simulate a scenario and hold it against the log that it was fitted to.

    Args:
        log: the log.
        made: of `calibrate`; its scenario may have been edited since.
        replicas: simulations, with the seeds `seed`, `seed` + 1, ...
        seed: the first one.
        processes: that simulate side by side; None: one for each processor.
        on_progress: called with the replicas done and their number.

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
    log = open_log(log)
    scenario, days = made.scenario, made.days
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
    with track("simulating replicas", replicas, "replicas") as bar:
        shown = 0

        def advance(done: int, total: int) -> None:
            nonlocal shown
            bar.advance(done - shown)
            shown = done
            if on_progress is not None:
                on_progress(done, total)

        found = cast(
            "list[dict[Key, float]]",
            play(tasks, processes=processes, on_progress=advance, work=cast("Any", work)),
        )
    return GoodnessOfFit(made, list(compared(real, found)), replicas, seed, warm_up_s / DAY_S)


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
    found: dict[Key, float] = {}
    states = log.rows(
        f"SELECT ended AS state, count(*) AS n, sum(gpu_h) AS h FROM {t} GROUP BY ended"
    )
    found |= _shares(STATES, STATES_TIME, [(row["state"], row["n"], row["h"]) for row in states])
    sizes = log.rows(f"SELECT top, count(DISTINCT run) AS n, sum(gpu_h) AS h FROM {t} GROUP BY top")
    labels = [(_label(row["top"]), row["n"], row["h"]) for row in sorted(sizes, key=_top)]
    found |= _shares(SIZES, SIZES_TIME, labels)
    found |= _waits(log, t)
    gpu_hours = sum(row["h"] or 0.0 for row in states)
    cluster = scenario.cluster
    capacity = cluster.nodes * cluster.gpus_per_node * days * 24
    [ended] = log.rows(
        f"SELECT count(*) AS n, count(*) FILTER (WHERE state = 'NODE_FAIL') AS down "
        f"FROM {infrastructure_failures(log)} WHERE key IN (SELECT key FROM {t})"
    )
    found |= {
        (COUNTS, UTILISATION): gpu_hours / capacity,
        (COUNTS, JOBS): float(sum(row["n"] for row in sizes)),
        (COUNTS, "attempts"): float(sum(row["n"] for row in states)),
        (COUNTS, FAILURES): float(ended["n"]),
        (COUNTS, "failures as NODE_FAIL"): float(ended["down"] or 0),
        (COUNTS, PREEMPTIONS): float(
            sum(row["n"] for row in states if row["state"] == "PREEMPTED")
        ),
    }
    return found


def _top(row: Mapping[str, Any]) -> int:
    return int(row["top"])


def _label(top: int) -> str:
    return f"{bucket_label(top)} GPU{'s' if top > 1 else ''}"


def _shares(
    by_count: str, by_time: str, rows: Sequence[tuple[str, float, float]]
) -> dict[Key, float]:
    count = sum(row[1] for row in rows) or 1.0
    hours = sum(row[2] or 0.0 for row in rows) or 1.0
    return {
        **{(by_count, name): n / count for name, n, _ in rows},
        **{(by_time, name): (h or 0.0) / hours for name, _, h in rows},
    }


def _waits(log: FleetLog, attempts: str) -> dict[Key, float]:
    """Quantiles of the wait before a start, by size, of attempts that became ready in the window."""
    half, most = (f"quantile_cont(waited_s, {share})" for share in (0.5, 0.9))
    rows = log.rows(
        f"""SELECT top, count(*) AS n, {half} AS half, {most} AS most FROM (
            SELECT top, ready_s, CAST(greatest(start_s - ready_s, 0) AS DOUBLE) AS waited_s FROM (
                SELECT top, start_s, coalesce(eligible_s, submit_s) AS ready_s FROM {attempts}
            ) AS started
        ) AS waits
        WHERE ready_s >= {int(log.begin_s)} GROUP BY top"""
    )
    found = {}
    for row in sorted(rows, key=_top):
        if row["n"] >= FEWEST_WAITS:
            found[WAIT_MEDIAN, _label(row["top"])] = float(row["half"])
            found[WAIT_P90, _label(row["top"])] = float(row["most"])
    return found


def _begins_busy(log: FleetLog, processors: bool) -> bool:
    """Whether the cluster was in use when the window began."""
    begin, end = literal(log.begin_s), log.end_s
    [row] = log.rows(
        f"SELECT sum(CASE WHEN start_s <= {begin} AND stop_s > {begin} THEN size END) AS running, "
        f"sum(exposed_s * size) AS total FROM ({sized(log.executions, processors)}) AS sized"
    )
    at_once, total = row["running"] or 0, row["total"] or 0
    mean = total / max(end - log.begin_s, 1.0)
    return bool(at_once > BUSY_AT_ONCE * mean)


# --- The comparison ------------------------------------------------------------------------------


def compared(real: Mapping[Key, float], simulated: Sequence[Mapping[Key, float]]) -> Iterator[Row]:
    """Each figure beside its simulated range; what one side lacks counts as zero, but for waits."""
    keys = dict.fromkeys(real) | dict.fromkeys(key for each in simulated for key in each)
    order = [*SHARES, *WAITS, COUNTS]
    for group, name in sorted(keys, key=lambda key: order.index(key[0])):
        key = (group, name)
        missing = math.nan if group in WAITS else 0.0
        values = np.array([each.get(key, missing) for each in simulated])
        values = values[~np.isnan(values)]
        value = real.get(key, missing)
        if values.size < FEWEST_REPLICAS or math.isnan(value):
            middle = float(values.mean()) if values.size else math.nan
            yield Row(group, name, value, middle, math.nan, math.nan, "unknown")
            continue
        middle, (low, high) = prediction(values, group in WAITS)
        row = Row(group, name, value, middle, low, high, "fits")
        if row.unit == "%":
            row = replace(row, high=min(high, 1.0))
        yield replace(row, verdict=_verdict(row))


def prediction(values: Array, skewed: bool) -> tuple[float, Interval]:
    """Mean of the replicas and the 5 to 95 % range of one more; not below zero.

    Args:
        values: shape [replicas], at least two.
        skewed: computed in log(1 + value).
    """
    from scipy.special import stdtrit

    forward: Callable[[Array], Array] = np.log1p if skewed else lambda x: x
    back: Callable[[float], float] = math.expm1 if skewed else lambda x: x
    seen = forward(values)
    n, mean, spread = seen.size, float(seen.mean()), float(seen.std(ddof=1))
    half = float(stdtrit(n - 1, 0.95)) * spread * math.sqrt(1 + 1 / n)
    return back(mean), (max(back(mean - half), 0.0), back(mean + half))


def _verdict(row: Row) -> Verdict:
    """From how far the log's figure lies outside of the range."""
    least, share = CLOSE[row.unit]
    outside, end = max((row.low - row.real, row.low), (row.real - row.high, row.high))
    if outside <= (1.0 if row.unit == "s" else 1e-9):  # a log keeps whole seconds
        return "fits"
    return "close" if outside <= max(least, share * end) else "off"
