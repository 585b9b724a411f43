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

from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.failure_model import FailureModel
from holdfast.fleet.failure_trend import Trend, trend
from holdfast.fleet.job_sizes import bucket_bottom, bucket_top
from holdfast.fleet.log import DAY_S, SHORTEST_S, FleetLog, open_log
from holdfast.fleet.moments import minute
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
        failed = sum(row["failures"] for row in nodes)
        model = FailureModel().fit(failed, sum(row["node_days"] for row in nodes))
        known = all_nodes_known(log)
        return Mttf(model, 0, log.gpus_per_node, tuple(project), "node_outages", known)
    sizes = counts_by_size(log, threshold)
    usual = min_gpus is None and threshold == Assumptions.min_gpus
    if usual and not any(row["node_days"] for row in sizes):
        threshold = 0
        sizes = counts_by_size(log, threshold)
    if not any(row["node_days"] for row in sizes):
        if any(row["failures"] for row in sizes):
            raise InputError(
                "there are failures but no node-days to set them against",
                code="missing-column",
                path=log.store.path,
                expected="attempts that ran for some time on a known number of nodes",
                remedy="export the column NNodes or NodeList too",
            )
        if log.begin_s > log.end_s:
            raise InputError(
                "nothing ran in the window",
                code="no-data",
                path=log.store.path,
                place="--since",
                expected=f"a time before the end of the log, {minute(log.end_s)}",
            )
        raise InputError(
            f"no attempt with more than {threshold:,} GPUs ran",
            code="no-data",
            path=log.store.path,
            found=f"largest attempt: {log.value(f'SELECT max(gpus) FROM {log.exposure}') or 0:,} GPUs",
            expected="attempts above the threshold, or a lower one",
            remedy="lower it with --min-gpus; --min-gpus 0 counts every attempt",
        )
    model = FailureModel().fit_buckets(
        *(
            [row[name] for row in sizes]
            for name in ("gpus_min", "gpus_max", "failures", "node_days")
        )
    )
    return Mttf(model, threshold, log.gpus_per_node, tuple(project), "attempts")


def counts_by_size(log: FleetLog, min_gpus: int) -> list[dict[str, Any]]:
    """Failures and node-days by job size: gpus_min, gpus_max, failures, node_days."""
    above = larger_than(min_gpus)
    rows = log.rows(
        f"""SELECT gpus_max, sum(failures) AS failures, sum(node_days) AS node_days FROM (
            SELECT {bucket_top()} AS gpus_max, 0 AS failures, node_days
            FROM {log.exposure} WHERE {above}
            UNION ALL
            SELECT {bucket_top()}, 1, CAST(0 AS DOUBLE)
            FROM {infrastructure_failures(log)} WHERE {above}
        ) AS counted
        GROUP BY gpus_max ORDER BY gpus_max"""
    )
    some = any(row["node_days"] for row in rows)
    for row in rows:
        bottom = bucket_bottom(row["gpus_max"])
        row["gpus_min"] = max(bottom, min_gpus + 1) if min_gpus else bottom
        if some:
            row["node_days"] = max(row["node_days"], row["failures"] * SHORTEST_S / DAY_S)
    return rows


def failure_trend(over_time: Sequence[dict[str, Any]], unit: str) -> Trend:
    """The change of the rate from bin to bin of `timeline.rate_over_time`."""
    failures: dict[float, int] = {}
    node_days: dict[float, float] = {}
    for row in over_time:
        begin_s = row["begin_s"]
        failures[begin_s] = failures.get(begin_s, 0) + row["failures"]
        node_days[begin_s] = max(row["node_days"], failures[begin_s] * SHORTEST_S / DAY_S)
    return trend(range(len(failures)), [*failures.values()], [*node_days.values()], unit)
