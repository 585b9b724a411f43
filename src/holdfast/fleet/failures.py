"""The failure rate and the MTTF of a log: what `FailureModel` needs, counted in the store.

r_f = (NODE_FAIL + FAILED with a HIGH check) / node-days, over attempts above a size (Kokolis et al.,
arXiv 2410.21680v2). A store of a node-failure log has no attempts: there every outage marked as a
failure counts, and the exposure is the time that the nodes were up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.answer import Answer, Figure, Section, Table, Unknown, Value
from holdfast.errors import InputError
from holdfast.fleet import outage_log
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.failure_model import FailureModel
from holdfast.fleet.job_sizes import bucket_bottom, bucket_label, bucket_top
from holdfast.fleet.log import DAY_S, SHORTEST_S, FleetLog, open_log
from holdfast.fleet.moments import minute
from holdfast.fleet.store import Store
from holdfast.fleet.timeline import larger_than
from holdfast.fleet.wording import RATE_UNIT, brief_interval, how, table
from holdfast.numbers import brief, duration, number
from holdfast.report.figures import lines

BEYOND = 32  # A projection reaches this many times the largest job


@dataclass(frozen=True)
class Mttf(Answer):
    """The failure model of a log."""

    model: FailureModel
    min_gpus: int  # Attempts with more GPUs than this were counted; 0: all
    gpus_per_node: int
    project: tuple[int, ...]  # Job sizes (GPUs) to project to
    source: str  # "attempts" or "node_outages"
    # False: nodes that never failed are not counted, so the rate is too high.
    nodes_known: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet mttf``."""
        return {
            **self.model.to_dict(self.project, self.gpus_per_node),
            "min_gpus": self.min_gpus,
            "gpus_per_node": self.gpus_per_node,
            "counted": self.source,
            "nodes_known": self.nodes_known,
        }

    def values(self) -> Sequence[Value]:
        """The failure rate with its exact interval."""
        name, rate = "failures_per_1000_node_days", self.model.rate_per_1000_node_days_
        how = "failures / node-days, exact Poisson interval"
        return [Value(name, rate, RATE_UNIT, self.model.ci95_, "lower", how)]

    def unknowns(self) -> Sequence[Unknown]:
        """Nodes that are not in a log of node failures."""
        return [] if self.nodes_known else [outage_log.NODES_UNKNOWN]

    def rate_text(self) -> str:
        """The rate as a finding begins: "Failure rate: 4.31 [3.2, 5.7] failures per ..."."""
        model = self.model
        low, high = model.ci95_
        scope = f" in attempts above {self.min_gpus:,} GPUs" if self.min_gpus else ""
        if not self.nodes_known:
            scope += " (too high: nodes that never failed are not counted)"
        if not model.failures_:
            at_most = f"at most {brief(high)} failures {RATE_UNIT}{scope} (95 %)"
            return f"Failure rate, an upper bound: {at_most}"
        rate = brief(model.rate_per_1000_node_days_)
        return f"Failure rate: {rate} {brief_interval(low, high)} failures {RATE_UNIT}{scope}"

    def sections(self) -> Sequence[Section]:
        """The rate by job size, and the projections that were asked for."""
        found = f"{self.model.failures_:,} in {number(self.model.node_days_)} node-days"
        text = f"{self.rate_text()}: {found}. {self.model.independence_}"
        return [replace(self.section(self.model, self.project), sentence=text)]

    def section(
        self,
        by_size: FailureModel,
        project: Sequence[int],
        *,
        largest: int | None = None,
        in_nodes: bool = False,
    ) -> Section:
        """How long does a job run before it fails?

        Args:
            by_size: the failure model of all attempts, with its job sizes.
            project: job sizes (GPUs) to project to.
            largest: GPUs of the largest job that ran, where that is known.
            in_nodes: give sizes in nodes, for a log without GPUs.
        """
        sentence = by_size.independence_
        if not self.model.failures_:
            bound = brief(self.model.ci95_[1])
            sentence = f"No failures: the rate is at most {bound} {RATE_UNIT} (95 %)."
        figure = self._figure(by_size, largest, in_nodes)
        tables = [_size_table(by_size)] if self.source == "attempts" else []
        if project:
            tables.append(self._projection_table(project, in_nodes))
        parameters = {
            f"r_f of the line, {RATE_UNIT}": brief(self.model.rate_per_1000_node_days_),
            "from attempts above, GPUs": self.min_gpus,
            "GPUs per node": self.gpus_per_node,
        }
        question, drawn = "How long does a job run before it fails?", [figure] if figure else []
        return Section("mttf", question, sentence, drawn, tables, how("mttf", parameters))

    def _projection_table(self, project: Sequence[int], in_nodes: bool) -> Table:
        """MTTF at job sizes."""
        rows = []
        for gpus in project:
            hours = self.model.mttf_hours(gpus, self.gpus_per_node)
            mttf, low, high = ("" if each is None else duration(3600 * each) for each in hours)
            nodes = math.ceil(gpus / self.gpus_per_node)
            rows.append({"nodes": nodes, "gpus": gpus, "mttf": mttf, "low": low, "high": high})
        sizes = "nodes" if in_nodes else "nodes gpus"
        caption = "Projections of the fitted rate, one row per job size."
        if not self.model.failures_:  # a lower bound is all there is
            at_least = {"label": "MTTF at least, 95 %"}
            return table(rows, f"{sizes} low", caption, low=at_least)
        return table(rows, f"{sizes} mttf low high", caption)

    def _figure(self, by_size: FailureModel, largest: int | None, in_nodes: bool) -> Figure | None:
        """MTTF of each job size with its interval, and the 1/N line of the fitted rate with its band.

        None without a failure.
        """
        if not self.model.failures_:
            return None
        per_node = self.gpus_per_node
        scale, unit = (per_node, "nodes") if in_nodes else (1, "GPUs")
        points = []
        for bucket in by_size.buckets_:
            if bucket.gpus_max and bucket.failures and bucket.ci95 is not None:
                nodes = max(1, math.ceil(bucket.gpus_max / per_node))
                rates = (bucket.rate_per_1000_node_days or math.nan, *reversed(bucket.ci95))
                points.append((bucket.gpus_max, *(24_000 / (rate * nodes) for rate in rates)))
        known = {per_node, *(point[0] for point in points), *([] if largest is None else [largest])}
        sizes = sorted({*known, BEYOND * max(known)})
        line = [(gpus, *self.model.mttf_hours(int(gpus), per_node)) for gpus in sizes]
        series: dict[str, list[Any]] = {"the fitted rate, 1/N": line, "each job size": points}
        rows = [
            {"from": name, "size": gpus / scale, "mttf": mttf, "low": low, "high": high}
            for name, each in series.items()
            for gpus, mttf, low, high in each
        ]
        colours = {"the fitted rate, 1/N": "model", "each job size": "hardware"}
        look: dict[str, Any] = {"points": True, "log_x": True, "log_y": True}
        look["meanings"] = {name: colour for name, colour in colours.items() if series[name]}
        titles = (f"Job size ({unit})", "Mean time to failure (hours)")
        bars = {"series": "from", "low": "low", "high": "high"}
        figure = lines(rows, "size", "mttf", *titles, **bars, **look)
        caption = "With 95 % intervals"
        if largest is not None:
            caption += f"; the largest job ran on {largest / scale:,.0f} {unit}"
        return replace(figure, caption=caption)


def _size_table(by_size: FailureModel) -> Table:
    rows = [
        {"size": bucket_label(bucket.gpus_max or 0), "rate": bucket.rate_per_1000_node_days}
        | {"failures": bucket.failures, "node_days": bucket.node_days}
        | dict(zip(("low", "high"), bucket.ci95 or (None, None), strict=True))
        for bucket in by_size.buckets_
    ]
    return table(rows, "size failures node_days rate", "One row per job size, by failure rate.")


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
    if outage_log.only_outages(log):
        nodes = outage_log.outage_exposure(log)
        failed = sum(row["failures"] for row in nodes)
        model = FailureModel().fit(failed, sum(row["node_days"] for row in nodes))
        known = outage_log.all_nodes_known(log)
        return Mttf(model, 0, log.gpus_per_node, tuple(project), "node_outages", known)
    sizes = counts_by_size(log, threshold)
    usual = min_gpus is None and threshold == Assumptions.min_gpus
    if usual and not any(row["node_days"] for row in sizes):
        threshold = 0
        sizes = counts_by_size(log, threshold)
    if not any(row["node_days"] for row in sizes):
        path = log.store.path
        if any(row["failures"] for row in sizes):
            problem = "there are failures but no node-days to set them against"
            remedy = "export the column NNodes or NodeList too"
            raise InputError(problem, code="missing-column", path=path, remedy=remedy)
        if log.begin_s > log.end_s:
            problem = "nothing ran in the window"
            expected = f"a time before the end of the log, {minute(log.end_s)}"
            raise InputError(problem, code="no-data", path=path, place="--since", expected=expected)
        largest = log.value(f"SELECT max(gpus) FROM {log.usage}") or 0
        problem = f"no attempt with more than {threshold:,} GPUs ran"
        found = f"at most {largest:,} GPUs"
        remedy = "lower it with --min-gpus; --min-gpus 0 counts every attempt"
        raise InputError(problem, code="no-data", path=path, found=found, remedy=remedy)
    names = ("gpus_min", "gpus_max", "failures", "node_days")
    model = FailureModel().fit_buckets(*([row[name] for row in sizes] for name in names))
    return Mttf(model, threshold, log.gpus_per_node, tuple(project), "attempts")


def counts_by_size(log: FleetLog, min_gpus: int) -> list[dict[str, Any]]:
    """Failures and node-days by job size: gpus_min, gpus_max, failures, node_days."""
    above = larger_than(min_gpus)
    rows = log.rows(
        f"""SELECT gpus_max, sum(failures) AS failures, sum(node_days) AS node_days FROM (
            SELECT {bucket_top()} AS gpus_max, 0 AS failures, node_days
            FROM {log.usage} WHERE {above}
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
