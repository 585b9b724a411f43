"""ETTR as it was: productive time over wall-clock time of the long job runs of a log.

W = Q + R + U: time queued while eligible, productive time, unproductive time (initialisation after
each start, replay since the last checkpoint, checkpoint writes); ETTR = R / W (Kokolis et al., arXiv
2410.21680v2, section on ETTR). A log has Q, the wait before the first start included, and R + U; U
follows from the assumptions, see `productive_time`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import ibis
import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast.fleet.job_sizes import bucket_bottom, bucket_top
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.productive_time import with_productive_time
from holdfast.fleet.store import Store

BOOTSTRAP_REPLICAS = 1_000
BOOTSTRAP_SEED = 20_241
BOOTSTRAP_UP_TO = 500
"""Runs of one size; the mean of more is as good as normal."""


@dataclass(frozen=True)
class MeasuredEttr:
    """The ETTR of the long job runs."""

    runs: int
    """Job runs of at least `long_run_s` on their nodes."""
    by_size: pd.DataFrame
    """gpus_min, gpus_max, runs, gpus (mean), ettr (mean), lo, hi (95 %, bootstrap over runs),
    queue_s (mean per start), interruptions (mean per run)."""
    qos: str | None
    """The only class of service that is measured; None: all of them."""
    assumptions: dict[str, float | bool]
    """checkpoint_interval_s, init_s (as used), write_s, long_run_s, save_on_signal."""

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return {**asdict(self), "by_size": self.by_size.to_dict("records")}

    def mean(self, gpus_from: int, gpus_to: float = float("inf")) -> float | None:
        """Mean ETTR of the runs in the buckets whose largest size lies in a range; None: no run."""
        f = self.by_size[self.by_size["gpus_max"].between(gpus_from, gpus_to)]
        if len(f) <= 1:  # as it stands: an average of one would round
            return float(f["ettr"].iloc[0]) if len(f) else None
        return float(np.average(f["ettr"], weights=f["runs"]))


def measured_ettr(log: str | Path | Store | FleetLog) -> MeasuredEttr:
    """Measure the ETTR of the job runs that spent a day or more on their nodes.

    Only runs of the classes that wait least (highest priority) show what failures cost; the mean
    over all classes is dominated by queueing. So where a log has several qualities of service, the
    runs of the one with the highest mean priority are used if it has any.

    Args:
        log: a store or an open log.

    Returns:
        The mean by job size with bootstrap intervals.
    """
    log = open_log(log)
    runs = log.keep("long_runs", lambda: _runs(log))
    sums = runs.group_by("qos").agg(priority=runs.priority.mean())
    classes = [row for row in log.rows(sums) if row["priority"] is not None]
    highest = None
    if classes:
        highest = max(classes, key=lambda row: (row["priority"], row["qos"]))["qos"]
        runs = runs.filter(runs.qos == highest)
    by_size = runs.group_by("gpus_max").agg(
        runs=runs.count(),
        gpus=runs.gpus.mean(),
        ettr=runs.ettr.mean(),
        deviation=runs.ettr.std(how="sample"),
        queue_s=runs.queued_s.sum() / runs.starts.sum(),
        interruptions=runs.interruptions.mean(),
    )
    rows = []
    for row in log.rows(by_size.order_by("gpus_max")):
        if row["runs"] > BOOTSTRAP_UP_TO:
            half = 1.96 * row["deviation"] / row["runs"] ** 0.5
            lo, hi = max(row["ettr"] - half, 0.0), min(row["ettr"] + half, 1.0)
        else:
            few = runs.filter(runs.gpus_max == row["gpus_max"]).order_by("run").select("ettr")
            lo, hi = bootstrap_interval(log.frame(few)["ettr"].to_numpy())
        rows.append({**row, "gpus_min": bucket_bottom(row["gpus_max"]), "lo": lo, "hi": hi})
    columns = ["gpus_min", "gpus_max", "runs", "gpus", "ettr", "lo", "hi", "queue_s"]
    frame = pd.DataFrame(rows, columns=[*columns, "interruptions"])
    assumed = log.assumptions
    used = {
        "checkpoint_interval_s": assumed.checkpoint_interval_s,
        "init_s": log.init_s,
        "write_s": assumed.write_s,
        "long_run_s": assumed.long_run_s,
        "save_on_signal": assumed.save_on_signal,
    }
    return MeasuredEttr(int(frame["runs"].sum()), frame, highest, used)


def bootstrap_interval(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval of a mean: percentile bootstrap with a fixed seed.

    Args:
        values: shape [n], at least one.
    """
    n = len(values)
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    means = values[generator.integers(0, n, (BOOTSTRAP_REPLICAS, n))].mean(axis=1)
    lo, hi = np.quantile(means, [0.025, 0.975])
    return float(lo), float(hi)


def _runs(log: FleetLog) -> ibis.Table:
    """Long job runs: run, qos, priority, gpus, gpus_max, starts, interruptions, queued_s, ettr."""
    assumed = log.assumptions
    t = log.executions
    if not assumed.chain_by_name:
        # Most runs are one short attempt: set them aside before grouping.
        again = t.filter(t.attempt > 1).select("run").distinct()
        t = t.filter(t.runtime_s >= assumed.long_run_s).union(
            t.filter(t.runtime_s < assumed.long_run_s).semi_join(again, "run")
        )
    t = with_productive_time(log, t)
    waited = ibis.greatest(t.start_s - ibis.coalesce(t.eligible_s, t.submit_s, t.start_s), 0)
    t = t.mutate(waited=waited, cut=t.cut.isin(["failure", "preemption"]))
    runs = t.group_by("run").agg(
        qos=t.qos.max(),
        priority=t.priority.max(),
        gpus=t.gpus.max().fill_null(0),
        starts=t.count(),
        interruptions=t.cut.sum(),
        queued_s=t.waited.sum(),
        runtime_s=t.runtime_s.sum(),
        productive_s=t.kept_s.sum(),
    )
    runs = runs.filter(runs.runtime_s >= assumed.long_run_s)
    return runs.mutate(
        gpus_max=bucket_top(runs.gpus), ettr=runs.productive_s / (runs.queued_s + runs.runtime_s)
    )
