"""The failure rate and the MTTF of a log: what `FailureModel` needs, counted in the store.

r_f = incidents behind NODE_FAIL, BOOT_FAIL, and FAILED with a HIGH check, / node-days in use, over
attempts above a size (Kokolis et al., arXiv 2410.21680v2, which counts attempts). An incident counts
for the largest attempt that it ended, as a node's time does for the largest job on it:
`holdfast.fleet.incidents`, `holdfast.fleet.node_time`. A store of a node-failure log has no attempts:
there the outages marked as failures are the incidents, and the exposure is the time that the nodes were up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.answer import Figure, Section, Table, Value
from holdfast.errors import InputError
from holdfast.fleet import outage_log
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.failure_model import MTTF, FailureModel, FloatArray, dispersion_test
from holdfast.fleet.gaps import Doubtful, one_sided, why_blind
from holdfast.fleet.incidents import incidents
from holdfast.fleet.job_sizes import bucket_bottom, bucket_label, bucket_top
from holdfast.fleet.log import DAY_S, SHORTEST_S, AnyLog, FleetLog, open_log
from holdfast.fleet.moments import minute
from holdfast.fleet.node_time import node_time, threshold
from holdfast.fleet.outage_log import outage_failures
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import RATE_UNIT, brief_interval, how, table
from holdfast.numbers import brief, counted, duration, number
from holdfast.report.figures import lines

BEYOND = 32  # A projection reaches this many times the largest job


@dataclass(frozen=True)
class Mttf(Doubtful):
    """The failure model of a log."""

    model: FailureModel
    min_gpus: int  # Attempts with more GPUs than this were counted; 0: all
    gpus_per_node: int
    project: tuple[int, ...]  # Job sizes (GPUs) to project to
    source: str  # "attempts" or "node_outages"
    failed_attempts: int  # That the counted failures ended
    # False: nodes that never failed are not counted, so the rate is too high.
    nodes_known: bool = True

    @cached_property
    def blind(self) -> str:
        """Why no rate can be told: states are missing, or no failure where the log could not show one."""
        blind = "" if self.model.failures_ else why_blind(self.log)
        return one_sided(self.log) or (blind and f"the log shows no failure, but {blind}")

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet mttf``."""
        fitted = self.model.to_dict(self.project, self.gpus_per_node)
        if self.blind:
            fitted |= dict.fromkeys(("rate_per_1000_node_days", "ci95", "projections", *MTTF))
        return {
            **fitted,
            "failed_attempts": self.failed_attempts,
            "verdict": "unknown" if self.blind else "measured",
            "min_gpus": self.min_gpus,
            "gpus_per_node": self.gpus_per_node,
            "counted": self.source,
            "nodes_known": self.nodes_known,
        }

    def values(self) -> Sequence[Value]:
        """The failure rate with its exact interval."""
        fitted = (self.model.rate_per_1000_node_days_, self.model.ci95_)
        rate, ends = (None, None) if self.blind else fitted
        return [
            Value(
                "failures_per_1000_node_days",
                rate,
                RATE_UNIT,
                ends,
                "lower",
                "incidents / node-days, interval over clusters",
            )
        ]

    def rate_text(self) -> str:
        """The rate as a finding begins: "Failure rate: 4.31 [3.2, 5.7] failures per ..."."""
        model = self.model
        low, high = model.ci95_
        scope = f" in attempts above {self.min_gpus:,} GPUs" if self.min_gpus else ""
        if not self.nodes_known:
            scope += " (too high: nodes that never failed are not counted)"
        if self.blind:
            return f"Cannot tell how often nodes fail: {self.blind}"
        if not model.failures_:
            at_most = f"at most {brief(high)} failures {RATE_UNIT}{scope} (95 %)"
            return f"Failure rate, an upper bound: {at_most}"
        rate = brief(model.rate_per_1000_node_days_)
        return f"Failure rate: {rate} {brief_interval(low, high)} failures {RATE_UNIT}{scope}"

    def sections(self) -> Sequence[Section]:
        """The rate by job size, and the projections that were asked for."""
        model = self.model
        found = f"{model.failures_:,} in {number(model.node_days_)} node-days"
        if self.failed_attempts > model.failures_:
            found += f", which ended {counted(self.failed_attempts, 'attempt')}"
        if model.clusters_ < model.failures_:
            stand = "stands" if model.clusters_ == 1 else "stand"
            found += f"; {counted(model.clusters_, 'independent event')} {stand} behind them"
        text = f"{self.rate_text()}: {found}. {model.independence_}"
        text = f"{self.rate_text()}." if self.blind else text
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
        if self.blind:
            sentence = f"{self.rate_text()}."
        elif not self.model.failures_:
            bound = brief(self.model.ci95_[1])
            sentence = f"No failures: the rate is at most {bound} {RATE_UNIT} (95 %)."
        figure = None if self.blind else self._figure(by_size, largest, in_nodes)
        tables = [_size_table(by_size)] if self.source == "attempts" and not self.blind else []
        if project and not self.blind:
            tables.append(self._projection_table(project, in_nodes))
        parameters = {
            f"r_f of the line, {RATE_UNIT}": brief(self.model.rate_per_1000_node_days_),
            "from attempts above, GPUs": self.min_gpus,
            "GPUs per node": self.gpus_per_node,
        }
        drawn = [figure] if figure else []
        return Section(
            "mttf",
            "How long does a job run before it fails?",
            sentence,
            drawn,
            tables,
            how("mttf", parameters),
        )

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
        series = {"the fitted rate, 1/N": line, "each job size": points}
        rows = [
            {"from": name, "size": gpus / scale, "mttf": mttf, "low": low, "high": high}
            for name, each in series.items()
            for gpus, mttf, low, high in each
        ]
        colours = {"the fitted rate, 1/N": "model", "each job size": "hardware"}
        figure = lines(
            rows,
            "size",
            "mttf",
            f"Job size ({unit})",
            "Mean time to failure (hours)",
            series="from",
            low="low",
            high="high",
            points=True,
            log_x=True,
            log_y=True,
            meanings={name: colour for name, colour in colours.items() if series[name]},
        )
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
    log: AnyLog,
    *,
    min_gpus: int | None = None,
    project: Sequence[int] = (),
) -> Mttf:
    """Fit the failure rate per node-day, overall and by job size, and project the MTTF.

    Args:
        log: a store or an open log.
        min_gpus: count attempts with more GPUs than this (0 in a log without GPUs: all); None: the
            assumption's, whose default of 128 becomes 0 where nothing larger ran.
        project: job sizes in GPUs.

    Returns:
        The fitted model with exact intervals.

    Raises:
        InputError: if nothing of that size ran.
    """
    log = open_log(log)
    above = log.assumptions.min_gpus if min_gpus is None else min_gpus
    if outage_log.only_outages(log):
        known = outage_log.all_nodes_known(log)
        return Mttf(
            _of_outages(log),
            0,
            log.gpus_per_node,
            tuple(project),
            "node_outages",
            len(log.rows(outage_failures(log))),
            known,
            log=log,
        )
    sizes = counts_by_size(log, above)
    usual = min_gpus is None and above == Assumptions.min_gpus
    if usual and not sum(row["node_days"] for row in sizes):
        above = 0
        sizes = counts_by_size(log, above)
    if not any(row["node_days"] for row in sizes):
        path = log.store.path
        ran = log.value(f"SELECT count(*) FROM {log.executions}")
        if any(row["failures"] for row in sizes) or (ran and not above):
            raise InputError(
                "there are no node-days to set failures against",
                code="missing-column",
                path=path,
                remedy="export the columns NNodes or NodeList, Start and End too",
            )
        if log.begin_s > log.end_s:
            raise InputError(
                "nothing ran in the window",
                code="no-data",
                path=path,
                place="--since",
                expected=f"a time before the end of the log, {minute(log.end_s)}",
            )
        largest = log.value(f"SELECT max(gpus) FROM {log.tallies} WHERE ran") or 0
        raise InputError(
            f"no attempt with more than {above:,} GPUs ran",
            code="no-data",
            path=path,
            found=f"at most {largest:,} GPUs",
            remedy="lower it with --min-gpus; --min-gpus 0 counts every attempt",
        )
    names = ("gpus_min", "gpus_max", "failures", "node_days", "clusters")
    columns = [[row[name] for row in sizes] for name in names]
    mine = f"gpus > {threshold(log, above)}"
    model = FailureModel().fit(sum(columns[2]), sum(columns[3]), clusters(log, mine))
    model.fit_buckets(*columns)
    ended = sum(row["attempts"] for row in sizes)
    return Mttf(model, above, log.gpus_per_node, tuple(project), "attempts", ended, log=log)


def _of_outages(log: FleetLog) -> FailureModel:
    """The model of a log of node failures. Nodes that do not fail alike are each a cluster of their own.

    A node that fails a hundred times while most fail once may have one reason for all of them.
    """
    nodes = outage_log.outage_exposure(log, incidents(log))
    counts, days = ([row[name] for row in nodes] for name in ("failures", "node_days"))
    model = FailureModel()
    model.dispersion_ = replace(dispersion_test(counts, days), between="nodes")
    weights = clusters(log)
    p_value = model.dispersion_.p_value
    if p_value is not None and p_value >= 0.05 and not outage_log.all_nodes_known(log):
        # Nodes that fail once are alike where those that do not fail are not counted.
        model.dispersion_ = replace(model.dispersion_, p_value=None)
    if p_value is not None and p_value < 0.05:
        apart = np.asarray(counts, np.float64)[np.asarray(counts) > 0]
        # Whichever scatters more: the nodes, or the moments.
        weights = max((apart, weights), key=lambda each: float((each**2).sum()))
    return model.fit(sum(counts), sum(days), weights)


def clusters(log: FleetLog, where: str = "TRUE") -> FloatArray:
    """Incidents of each cluster, shape [n].

    Args:
        log: the open log.
        where: SQL: which incidents count.
    """
    counts = log.arrow(
        f"SELECT count(*) AS n FROM {incidents(log)} WHERE {where} GROUP BY cluster ORDER BY n"
    )
    return counts["n"].to_numpy().astype(np.float64)


def counts_by_size(log: FleetLog, min_gpus: int) -> list[Row]:
    """Incidents and node-days by size of the largest job, of jobs above one (`node_time.threshold`).

    Returns:
        gpus_min, gpus_max, failures, attempts (that they ended), clusters (incidents of each, array),
        node_days; the smallest size first.
    """
    above = threshold(log, min_gpus)
    days = node_time(log, above).by_size
    counted = log.rows(
        f"""SELECT gpus_max, sum(n) AS failures, sum(attempts) AS attempts, array_agg(n) AS clusters
        FROM (
            SELECT {bucket_top()} AS gpus_max, count(*) AS n, sum(attempts) AS attempts
            FROM {incidents(log)} WHERE gpus > {above} GROUP BY 1, cluster ORDER BY n
        ) AS of_clusters GROUP BY gpus_max"""
    )
    none = {"failures": 0, "attempts": 0, "clusters": []}
    found = dict.fromkeys(days, none) | {row["gpus_max"]: row for row in counted}
    # A failed attempt takes time, also one that accounting gives none.
    shortest = SHORTEST_S / DAY_S if any(days.values()) else 0.0
    return [
        {
            **row,
            "gpus_min": max(bucket_bottom(top), above + 1),
            "gpus_max": top,
            "node_days": max(days.get(top, 0.0), row["failures"] * shortest),
        }
        for top, row in sorted(found.items())
    ]
