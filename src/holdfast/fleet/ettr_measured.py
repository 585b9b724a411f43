"""ETTR as it was: productive time over wall-clock time of the long job runs of a log.

W = Q + R + U: time queued while eligible, productive time, unproductive time (initialisation after
each start, replay since the last checkpoint, checkpoint writes); ETTR = R / W (Kokolis et al., arXiv
2410.21680v2, section on ETTR). A log has Q and R + U; U follows from the assumed initialisation time,
checkpoint interval and write time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ibis
import numpy as np
import pandas as pd

from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.job_sizes import bucket_bottom, bucket_top
from holdfast.fleet.log import FleetLog, open_log
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.store import Store

BOOTSTRAP_REPLICAS = 1_000
BOOTSTRAP_SEED = 20_241


@dataclass(frozen=True)
class MeasuredEttr:
    """The ETTR of the long job runs."""

    runs: int
    """Job runs of at least `long_run_s` on their nodes."""
    by_size: pd.DataFrame
    """gpus_min, gpus_max, runs, gpus (mean), ettr (mean), lo, hi (95 %, bootstrap over runs),
    queue_s (mean per start), interruptions (mean per run)."""

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return {"runs": self.runs, "by_size": self.by_size.to_dict("records")}


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
    frame = log.frame(_runs(log))
    if frame["priority"].notna().any():
        by_class = frame.groupby("qos")["priority"].mean()
        frame = frame[frame["qos"] == by_class.idxmax()]
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    rows = []
    for top in sorted(set(frame["gpus_max"])):
        group = frame[frame["gpus_max"] == top].sort_values("run")
        values = group["ettr"].to_numpy()
        draws = values[generator.integers(0, len(values), (BOOTSTRAP_REPLICAS, len(values)))]
        lo, hi = np.quantile(draws.mean(axis=1), [0.025, 0.975])
        rows.append(
            {
                "gpus_min": bucket_bottom(top),
                "gpus_max": top,
                "runs": len(group),
                "gpus": float(group["gpus"].mean()),
                "ettr": float(values.mean()),
                "lo": float(lo),
                "hi": float(hi),
                "queue_s": float(group["queued_s"].sum() / group["starts"].sum()),
                "interruptions": float(group["interruptions"].mean()),
            }
        )
    columns = ["gpus_min", "gpus_max", "runs", "gpus", "ettr", "lo", "hi", "queue_s"]
    return MeasuredEttr(len(frame), pd.DataFrame(rows, columns=[*columns, "interruptions"]))


def _runs(log: FleetLog) -> ibis.Table:
    """Long job runs: run, qos, priority, gpus, gpus_max, starts, interruptions, queued_s, ettr."""
    assumed = log.assumptions
    t = log.executions
    long_enough = t.group_by("run").agg(on_nodes_s=t.runtime_s.sum())
    long_enough = long_enough.filter(long_enough.on_nodes_s >= assumed.long_run_s)
    t = t.semi_join(long_enough, "run")
    cut = infrastructure_failures(log).select("key").union(preemptions(log).select("key"))
    t = t.left_join(cut.distinct().mutate(cut=True), "key").drop("key_right")
    ran = t.runtime_s.cast("float64")
    write_share = assumed.write_s / (assumed.checkpoint_interval_s + assumed.write_s)
    init = ibis.least(ran, float(assumed.init_s))
    replay = ibis.ifelse(
        t.cut.fill_null(False), ibis.least(ran - init, assumed.checkpoint_interval_s / 2), 0.0
    )
    waited = ibis.greatest(t.start_s - ibis.coalesce(t.eligible_s, t.submit_s, t.start_s), 0)
    t = t.mutate(
        waited=waited, productive=(ran - init - replay) * (1 - write_share), cut=t.cut.notnull()
    )
    runs = t.group_by("run").agg(
        qos=t.qos.max(),
        priority=t.priority.max(),
        gpus=t.gpus.max().fill_null(0),
        starts=t.count(),
        interruptions=t.cut.sum(),
        queued_s=t.waited.sum(),
        runtime_s=t.runtime_s.sum(),
        productive_s=t.productive.sum(),
    )
    return runs.mutate(
        gpus_max=bucket_top(runs.gpus), ettr=runs.productive_s / (runs.queued_s + runs.runtime_s)
    )
