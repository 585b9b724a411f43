"""The figures of one generation of a store that Prometheus is told: taken once, written at each scrape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED, infrastructure_failures
from holdfast.fleet.console.rate_jump import RateJump, rate_jump
from holdfast.fleet.log import DAY_S

UNKNOWN_DOMAIN = "unknown"
RECENT_S = 28.0 * DAY_S
"""What the metrics named "recent" cover: this time before the end of the log."""

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float | None
    """None: only bounds are known."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Measures:
    """The figures of one generation of a store."""

    commits: int
    failures: Mapping[Labels, int]
    """(cause, domains) -> failures with this cause; those without any are in `unexplained_due_s`."""
    unexplained_due_s: tuple[float, ...]
    """When each failure without a cause is past any check that could explain it, ascending."""
    recent_failures: int
    recent_unexplained_due_s: tuple[float, ...]
    lost_gpu_hours: Mapping[Labels, float]
    """(order) -> GPU-hours."""
    gpu_hours: float
    rate_per_node_day: Estimate | None
    min_gpus: int
    node_days: float
    """Of the attempts that the rate counts."""
    mttf_hours: Mapping[Labels, Estimate]
    """(gpus) -> hours."""
    ettr: Mapping[Labels, Estimate]
    """(gpus: the largest of the bucket) -> measured mean."""
    ettr_runs: Mapping[Labels, int]
    ettr_expected: Mapping[Labels, float]
    """(gpus of the largest job) -> ETTR under the assumptions."""
    lemon_score: Mapping[Labels, float]
    """(node) -> its shrunk failure rate over the fleet's."""
    lemons: frozenset[str]
    crash_loops: Mapping[Labels, tuple[int, float]]
    """(job_id) -> (requeues, GPU-hours lost), of the loops that are still turning."""
    jump: RateJump | None
    first_seen_s: Mapping[Labels, float]
    """(check) -> first event, of the checks that began during the log."""
    last_event_s: Mapping[Labels, float]
    """(table) -> latest time in it."""
    counts: Mapping[str, int]
    """Of `store.json`: attempts, jobs, rejected, nodes, health_events."""
    hidden: bool
    """Whether earlier attempts are hidden: sacct ran without --duplicates."""

    def unattributed_share(self, now_s: float) -> float | None:
        """Failures without a cause over all that are decided; None without failures."""
        none = past(self.unexplained_due_s, now_s)
        decided = none + sum(self.failures.values())
        return none / decided if decided else None


def measure(analysis: Analysis) -> Measures:
    """Take the figures of a log.

    Args:
        analysis: of the log; it keeps what it computes for the console's pages.

    Raises:
        StoreError: if a file of the store is missing.
    """
    log, facts = analysis.log, analysis.log.store.facts
    known, due = _causes(analysis)
    since = log.end_s - RECENT_S
    late = [each for each in due if each >= since + log.assumptions.check_after_s]
    ran = bool(analysis.status.attempts)
    model = None if analysis.mttf is None else analysis.mttf.model
    rate = None
    if model is not None:
        low, high = model.ci95_
        rate = Estimate(
            model.rate_per_1000_node_days_ / 1000 if model.failures_ else 0.0,
            low / 1000,
            high / 1000,
        )
    lost = analysis.goodput if ran and not analysis.without_gpus else None
    return Measures(
        commits=int(facts.get("commits", 0)),
        failures={key: len(moments) for key, moments in known.items()},
        unexplained_due_s=tuple(due),
        recent_failures=sum(m >= since for moments in known.values() for m in moments),
        recent_unexplained_due_s=tuple(late),
        lost_gpu_hours={
            ("first",): lost.lost_first_order if lost else 0.0,
            ("second",): lost.lost_second_order if lost else 0.0,
        },
        gpu_hours=lost.total_gpu_hours if lost else 0.0,
        rate_per_node_day=rate,
        min_gpus=analysis.min_gpus,
        node_days=0.0 if model is None else model.node_days_,
        mttf_hours=_mttf(analysis),
        ettr=_ettr(analysis) if ran else {},
        ettr_runs=_ettr_runs(analysis) if ran else {},
        ettr_expected=_ettr_expected(analysis) if ran else {},
        lemon_score=_lemon_scores(analysis) if ran else {},
        lemons=frozenset(analysis.lemons.lemons) if ran else frozenset(),
        crash_loops=_crash_loops(analysis) if ran else {},
        jump=rate_jump(analysis),
        first_seen_s={(str(row["check"]),): float(row["first_s"]) for row in analysis.introduced},
        last_event_s=_last_events(analysis),
        counts={name: int(count) for name, count in facts.get("counts", {}).items()},
        hidden=facts.get("duplicates_flag") == "missing",
    )


def _causes(analysis: Analysis) -> tuple[dict[Labels, list[float]], list[float]]:
    """Ends of the failures by (cause, domains); due times of those without a cause, ascending."""
    log = analysis.log
    if analysis.outages is not None:
        found = [(row["cause"], row["start_s"]) for row in analysis.outages.rows]
        named: dict[Labels, list[float]] = {}
        none: list[float] = []
        for cause, start in found:
            if isinstance(cause, str) and cause:
                named.setdefault((cause, UNKNOWN_DOMAIN), []).append(float(start))
            else:
                none.append(float(start))
        return named, sorted(none)
    failures = infrastructure_failures(log)
    rows = log.rows(f"SELECT symptom, label, stop_s FROM {failures} ORDER BY stop_s, label")
    after = log.assumptions.check_after_s
    by_cause: dict[Labels, list[float]] = {}
    due = []
    for row in rows:
        if row["symptom"] == UNATTRIBUTED:
            due.append(row["stop_s"] + after)
            continue
        symptom = log.taxonomy.symptoms[row["symptom"]]
        by_cause.setdefault((row["label"], ",".join(symptom.domains)), []).append(row["stop_s"])
    return dict(sorted(by_cause.items())), due


def _mttf(analysis: Analysis) -> dict[Labels, Estimate]:
    """The MTTF at the job sizes that ran on whole nodes, by the pooled rate."""
    if analysis.mttf is None or analysis.mttf_all is None:
        return {}
    model, per_node = analysis.mttf.model, analysis.mttf.gpus_per_node
    tops = {bucket.gpus_max for bucket in analysis.mttf_all.model.buckets_}
    sizes = sorted(top for top in tops if top is not None and top >= per_node)
    if not sizes:
        sizes = [max(analysis.largest_job_nodes, 1) * per_node]
    found: dict[Labels, Estimate] = {}
    for gpus in sizes:
        value, low, high = model.mttf_hours(gpus, per_node)
        found[(str(gpus),)] = Estimate(value, low, math.inf if high is None else high)
    return found


def _ettr(analysis: Analysis) -> dict[Labels, Estimate]:
    rows = analysis.measured.by_size.to_pylist()
    return {(_size(row),): Estimate(row["ettr"], row["lo"], row["hi"]) for row in rows}


def _ettr_runs(analysis: Analysis) -> dict[Labels, int]:
    rows = analysis.measured.by_size.to_pylist()
    return {(_size(row),): int(row["runs"]) for row in rows}


def _size(row: Mapping[Any, Any]) -> str:
    return str(int(row["gpus_max"]))


def _ettr_expected(analysis: Analysis) -> dict[Labels, float]:
    expected = analysis.expected_ettr
    if expected is None or analysis.mttf is None:
        return {}
    gpus = analysis.largest_job_nodes * analysis.mttf.gpus_per_node
    return {(str(gpus),): expected}


def _lemon_scores(analysis: Analysis) -> dict[Labels, float]:
    fleet = analysis.lemons.detector.fleet_rate_per_1000_node_days_
    rows = analysis.lemons.nodes.select(["node", "shrunk_rate"]).to_pylist()
    if fleet <= 0:
        return {}
    return {(row["node"],): row["shrunk_rate"] / fleet for row in rows}


def _crash_loops(analysis: Analysis) -> dict[Labels, tuple[int, float]]:
    """Loops whose last requeue is younger than the time in which a loop is looked for."""
    loops = analysis.goodput.crash_loops
    since = analysis.log.end_s - analysis.log.assumptions.crash_loop_window_s
    return {
        (str(row["job_id"]),): (int(row["requeues"]), float(row["gpu_hours_lost"]))
        for row in loops.to_pylist()
        if row["last_s"] >= since
    }


def _last_events(analysis: Analysis) -> dict[Labels, float]:
    log = analysis.log
    span = log.store.facts.get("time_range")
    found: dict[Labels, float] = {}
    if span is not None:
        found[("attempts",)] = float(span[1])
    for name, column in (("health", "time_s"), ("node_outages", "start_s")):
        last = log.value(f"SELECT max(CAST({column} AS DOUBLE)) FROM {log.table(name)}")
        if last is not None:
            found[(name,)] = last
    return found


def past(due_s: tuple[float, ...], now_s: float) -> int:
    """How many of the ascending moments are not after now."""
    return int(np.searchsorted(np.asarray(due_s), now_s, side="right"))
