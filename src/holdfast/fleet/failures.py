"""The failure rate and the MTTF of a log: what `FailureModel` needs, counted in the store.

r_f = (NODE_FAIL + FAILED with a HIGH check) / node-days, over attempts above a size (Kokolis et al.,
arXiv 2410.21680v2). A store of a node-failure log has no attempts: there every outage marked as a
failure counts, and the exposure is the time that the nodes were up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis
import pandas as pd

from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.failure_model import FailureModel
from holdfast.fleet.failure_trend import Trend, trend
from holdfast.fleet.job_sizes import bucket_bottom, bucket_top
from holdfast.fleet.log import DAY_S, SHORTEST_S, FleetLog, open_log
from holdfast.fleet.outage_log import all_nodes_known, only_outages, outage_exposure
from holdfast.fleet.store import Store
from holdfast.fleet.timeline import larger_than


@dataclass(frozen=True)
class Mttf:
    """The failure model of a log."""

    model: FailureModel
    min_gpus: int
    """Attempts with more GPUs than this were counted; 0: all."""
    gpus_per_node: int
    project: tuple[int, ...]
    """Job sizes (GPUs) to project to."""
    source: str
    """"attempts" or "node_outages"."""
    nodes_known: bool = True
    """False: nodes that never failed are not counted, so the rate is too high."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet mttf``."""
        return {
            **self.model.to_dict(self.project, self.gpus_per_node),
            "min_gpus": self.min_gpus,
            "gpus_per_node": self.gpus_per_node,
            "counted": self.source,
            "nodes_known": self.nodes_known,
        }


def mttf(
    log: str | Path | Store | FleetLog,
    *,
    min_gpus: int | None = None,
    project: Sequence[int] = (),
) -> Mttf:
    """Fit the failure rate per node-day, overall and by job size, and project the MTTF.

    Args:
        log: a store or an open log.
        min_gpus: count attempts with more GPUs than this; 0: all; None: the assumption's, whose
            default of 128 becomes 0 where nothing larger ran.
        project: job sizes in GPUs.

    Returns:
        The fitted model with exact intervals.

    Raises:
        InputError: if nothing of that size ran.
    """
    log = open_log(log)
    threshold = log.assumptions.min_gpus if min_gpus is None else min_gpus
    if only_outages(log):
        nodes = outage_exposure(log)
        model = FailureModel().fit(int(nodes["failures"].sum()), float(nodes["node_days"].sum()))
        known = all_nodes_known(log)
        return Mttf(model, 0, log.gpus_per_node, tuple(project), "node_outages", known)
    frame = counts_by_size(log, threshold)
    usual = min_gpus is None and threshold == Assumptions.min_gpus
    if usual and frame["node_days"].sum() == 0:
        threshold = 0
        frame = counts_by_size(log, threshold)
    if frame["node_days"].sum() == 0:
        if frame["failures"].sum() > 0:
            raise InputError(
                "there are failures but no node-days to set them against",
                code="missing-column",
                path=log.store.path,
                expected="attempts that ran for some time on a known number of nodes",
                remedy="export the column NNodes or NodeList too",
            )
        raise InputError(
            f"no attempt with more than {threshold:,} GPUs ran",
            code="no-data",
            path=log.store.path,
            found=f"largest attempt: {_largest(log):,} GPUs",
            expected="attempts above the threshold, or a lower one",
            remedy="lower it with --min-gpus; --min-gpus 0 counts every attempt",
        )
    model = FailureModel().fit_buckets(
        frame["gpus_min"], list(frame["gpus_max"]), frame["failures"], frame["node_days"]
    )
    return Mttf(model, threshold, log.gpus_per_node, tuple(project), "attempts")


def counts_by_size(log: FleetLog, min_gpus: int) -> pd.DataFrame:
    """Failures and node-days by job size: gpus_min, gpus_max, failures, node_days."""
    ran = larger_than(log.executions, min_gpus)
    failed = larger_than(infrastructure_failures(log), min_gpus)
    exposure = ran.select(
        gpus_max=bucket_top(ran.gpus), failures=ibis.literal(0, "int64"), node_days="node_days"
    )
    counts = failed.select(
        gpus_max=bucket_top(failed.gpus),
        failures=ibis.literal(1, "int64"),
        node_days=ibis.literal(0.0),
    )
    both = exposure.union(counts)
    frame = log.frame(
        both.group_by("gpus_max").agg(failures=both.failures.sum(), node_days=both.node_days.sum())
    ).sort_values("gpus_max", ignore_index=True)
    if frame["node_days"].sum() > 0:
        at_least = frame["failures"] * SHORTEST_S / DAY_S
        frame["node_days"] = frame["node_days"].clip(lower=at_least)
    bottoms = [max(bucket_bottom(int(top)), min_gpus + 1) for top in frame["gpus_max"]]
    if min_gpus == 0:
        bottoms = [bucket_bottom(int(top)) for top in frame["gpus_max"]]
    frame.insert(0, "gpus_min", bottoms)
    return frame


def failure_trend(over_time: pd.DataFrame, unit: str) -> Trend:
    """The change of the rate from bin to bin of `timeline.rate_over_time`."""
    bins = over_time.groupby("begin_s").agg(
        failures=("failures", "sum"), node_days=("node_days", "first")
    )
    at_least = bins["failures"] * SHORTEST_S / DAY_S
    return trend(range(len(bins)), bins["failures"], bins["node_days"].clip(lower=at_least), unit)


def _largest(log: FleetLog) -> int:
    return log.rows(log.executions.agg(gpus=log.executions.gpus.max()))[0]["gpus"] or 0
