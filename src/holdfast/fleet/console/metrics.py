"""The figures of a fleet in Prometheus' text format, for `/metrics`.

`measure` takes the figures from an analysis, once a generation of the store; an `Exporter` writes them
at each scrape into a registry of its own.

Names, units and types follow Prometheus' conventions, with one exception: times that an operator
thinks of in hours (`holdfast_mttf_hours`, GPU-hours) stay in hours. Bounds of an estimate are metrics
of their own (`..._lower`, `..._upper`), because a sum over a label `bound` would mean nothing.

**Counters** count from the beginning of the store and only grow, which the store by itself does not
promise: a failure without a cause finds one when its health event is read later, and then moves from
one label to another. Prometheus would take the smaller number for a restart and count everything
again. So

- a failure with a cause counts at once, one without a cause only when no check can explain it any more
  (`check_after_s` after its end); until then it counts in `holdfast_node_failures_undecided`;
- an exporter never shows less than it has shown; a count that was shown and moved stays until the
  store has caught up. It begins anew with a store that has fewer commits than before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import __version__
from holdfast.errors import MissingExtraError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED, infrastructure_failures
from holdfast.fleet.console.rate_jump import RateJump, rate_jump
from holdfast.fleet.log import DAY_S

if TYPE_CHECKING:
    from prometheus_client import Metric

    from holdfast.fleet.console.snapshots import Snapshot
    from holdfast.fleet.console.watching import WatchStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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
        none = _past(self.unexplained_due_s, now_s)
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
    lost = analysis.goodput if ran else None
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
        first_seen_s={
            (str(check),): float(first)
            for check, first in zip(
                analysis.introduced["check"], analysis.introduced["first_s"], strict=True
            )
        },
        last_event_s=_last_events(analysis),
        counts={name: int(count) for name, count in facts.get("counts", {}).items()},
        hidden=facts.get("duplicates_flag") == "missing",
    )


def _causes(analysis: Analysis) -> tuple[dict[Labels, list[float]], list[float]]:
    """Ends of the failures by (cause, domains); due times of those without a cause, ascending."""
    log = analysis.log
    if analysis.outages is not None:
        frame = analysis.outages.frame
        found = zip(frame["cause"], frame["start_s"], strict=True)
        named: dict[Labels, list[float]] = {}
        none: list[float] = []
        for cause, start in found:
            if isinstance(cause, str) and cause:
                named.setdefault((cause, UNKNOWN_DOMAIN), []).append(float(start))
            else:
                none.append(float(start))
        return named, sorted(none)
    failures = infrastructure_failures(log)
    rows = log.rows(failures.select("symptom", "label", "stop_s").order_by("stop_s", "label"))
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
    rows = analysis.measured.by_size.to_dict("records")
    return {(_size(row),): Estimate(row["ettr"], row["lo"], row["hi"]) for row in rows}


def _ettr_runs(analysis: Analysis) -> dict[Labels, int]:
    rows = analysis.measured.by_size.to_dict("records")
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
    turning = loops[loops["last_s"] >= since] if len(loops) else loops
    return {
        (str(row["job_id"]),): (int(row["requeues"]), float(row["gpu_hours_lost"]))
        for row in turning.to_dict("records")
    }


def _last_events(analysis: Analysis) -> dict[Labels, float]:
    log = analysis.log
    span = log.store.facts.get("time_range")
    found: dict[Labels, float] = {}
    if span is not None:
        found[("attempts",)] = float(span[1])
    for name, column in (("health", "time_s"), ("node_outages", "start_s")):
        t = log.table(name)
        last = log.rows(t.agg(last=t[column].cast("float64").max()))[0]["last"]
        if last is not None:
            found[(name,)] = last
    return found


def _past(due_s: tuple[float, ...], now_s: float) -> int:
    return int(np.searchsorted(np.asarray(due_s), now_s, side="right"))


# --- Exposition ----------------------------------------------------------------------------------


@dataclass
class Exporter:
    """Writes the metrics of the snapshots of one console; keeps what its counters have shown."""

    clock: Callable[[], float] = time.time
    """Epoch seconds now."""
    _shown: dict[tuple[str, Labels], float] = field(default_factory=dict)
    _commits: int = 0
    _lock: Lock = field(default_factory=Lock)

    def exposition(self, snapshot: Snapshot, status: WatchStatus | None = None) -> bytes:
        """The metrics in Prometheus' text format 0.0.4.

        Args:
            snapshot: the generation of the store to show.
            status: how the watching of the logs goes; None: nothing is watched.

        Raises:
            MissingExtraError: if prometheus-client is not installed.
            StoreError: if a file of the store vanished.
        """
        return self.text(snapshot.kept("metrics", measure), status)

    def text(self, measures: Measures, status: WatchStatus | None = None) -> bytes:
        """The metrics of measures that are there already."""
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import generate_latest
            from prometheus_client.registry import Collector
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "console") from error
        with self._lock:
            if measures.commits < self._commits:
                self._shown.clear()
            self._commits = measures.commits
            families = [*_families(measures, self.clock(), self._grow), *_watch_families(status)]

        class Once(Collector):
            def collect(self) -> Iterable[Metric]:
                return families

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Once())
        return bytes(generate_latest(registry))

    def _grow(self, name: str, labels: Labels, value: float) -> float:
        """The value of a counter: never less than it was."""
        grown = max(value, self._shown.get((name, labels), 0.0))
        self._shown[name, labels] = grown
        return grown


def exposition(snapshot: Snapshot) -> bytes:
    """The metrics of a snapshot, by an exporter that remembers nothing; see `Exporter`."""
    return Exporter().exposition(snapshot)


def _families(
    m: Measures, now_s: float, grow: Callable[[str, Labels, float], float]
) -> Iterator[Metric]:
    make = _Maker(grow)
    none = _past(m.unexplained_due_s, now_s)
    undecided = len(m.unexplained_due_s) - none
    yield make.gauge(
        "build_info", "The holdfast that serves these metrics.", {(__version__,): 1}, "version"
    )
    yield make.counter(
        "node_failures",
        "Attempts that the infrastructure ended, since the beginning of the store; cause is the "
        "likeliest symptom, domain who may be at fault.",
        {**m.failures, (UNATTRIBUTED, UNKNOWN_DOMAIN): none},
        "cause",
        "domain",
    )
    yield make.gauge(
        "node_failures_undecided",
        "Failures without a cause that a health check may still explain; not yet counted.",
        {(): undecided},
    )
    yield make.gauge(
        "unattributed_share",
        "Share of the failures of the store that no health check explains.",
        _one(m.unattributed_share(now_s)),
    )
    recent_none = _past(m.recent_unexplained_due_s, now_s)
    yield make.gauge(
        "recent_failures",
        "Attempts that the infrastructure ended in the last 28 days of the log.",
        {(): m.recent_failures + recent_none},
    )
    yield make.gauge(
        "recent_unattributed_failures",
        "Those of them that no health check explains.",
        {(): recent_none},
    )
    yield from _rates(m, make)
    yield from _jump(m, make)
    yield from _ettrs(m, make)
    yield make.counter(
        "goodput_lost_gpu_hours",
        "GPU-hours lost to failures since the beginning of the store: first order in the failed "
        "attempts, second order in attempts that failed jobs preempted when they came back.",
        m.lost_gpu_hours,
        "order",
    )
    yield make.counter(
        "gpu_hours",
        "GPU-hours of all attempts since the beginning of the store.",
        {(): m.gpu_hours},
    )
    yield make.gauge(
        "lemon_score",
        "Failure rate of a node over that of the fleet, shrunk towards 1 by the evidence.",
        m.lemon_score,
        "node",
    )
    yield make.gauge(
        "lemon",
        "1: the node fails more than chance and exposure explain.",
        {labels: int(labels[0] in m.lemons) for labels in m.lemon_score},
        "node",
    )
    yield make.gauge(
        "crash_loop_requeues",
        "Requeues after infrastructure failures of each job that loops, if the last is younger "
        "than a day.",
        {labels: requeues for labels, (requeues, _) in m.crash_loops.items()},
        "job_id",
    )
    yield make.gauge(
        "crash_loop_lost_gpu_hours",
        "GPU-hours that each of these loops has lost.",
        {labels: hours for labels, (_, hours) in m.crash_loops.items()},
        "job_id",
    )
    yield from _store(m, make)


def _rates(m: Measures, make: _Maker) -> Iterator[Metric]:
    scope = "in attempts above holdfast_failure_rate_min_gpus GPUs"
    yield from make.estimates(
        "failure_rate_per_node_day",
        f"Infrastructure failures per node and day, {scope}.",
        {} if m.rate_per_node_day is None else {(): m.rate_per_node_day},
    )
    yield make.gauge(
        "failure_rate_min_gpus",
        "The failure rate counts attempts with more GPUs than this.",
        {(): m.min_gpus},
    )
    yield make.counter(
        "node_days", f"Exposure of the failure rate, {scope}, in node-days.", {(): m.node_days}
    )
    yield from make.estimates(
        "mttf_hours",
        "Mean time to failure of a job on so many GPUs, by the failure rate, in hours.",
        m.mttf_hours,
        "gpus",
    )


def _jump(m: Measures, make: _Maker) -> Iterator[Metric]:
    jump = m.jump

    def one(value: Callable[[RateJump], float]) -> dict[Labels, float]:
        return {} if jump is None else {(): value(jump)}

    yield make.gauge(
        "failure_rate_cusum",
        "Poisson CUSUM of the failures of the last 28 days against the 16 weeks before.",
        one(lambda j: j.statistic),
    )
    yield make.gauge(
        "failure_rate_cusum_threshold",
        "The failure rate has jumped if holdfast_failure_rate_cusum reaches this.",
        one(lambda j: j.threshold),
    )
    yield make.gauge(
        "failure_rate_in_control_per_node_day",
        "The rate that counts as unchanged: the upper end of the 95 % interval of the baseline.",
        one(lambda j: j.in_control_per_node_day),
    )
    yield make.gauge(
        "failure_rate_recent_per_node_day",
        "Infrastructure failures per node and day in the last 28 days, without those set aside.",
        one(lambda j: j.watched_failures / j.watched_node_days),
    )
    yield make.gauge(
        "failures_only_new_checks_show",
        "Failures of the last 28 days that only health checks younger than the baseline show; set "
        "aside by the CUSUM.",
        one(lambda j: j.set_aside),
    )
    yield make.gauge(
        "check_first_seen_timestamp_seconds",
        "First event of each health check that began during the log.",
        m.first_seen_s,
        "check",
    )


def _ettrs(m: Measures, make: _Maker) -> Iterator[Metric]:
    yield from make.estimates(
        "ettr",
        "Measured ETTR (productive over wall-clock time) of long runs; gpus is the largest size "
        "of the bucket.",
        m.ettr,
        "gpus",
    )
    yield make.gauge("ettr_runs", "Long runs behind holdfast_ettr.", m.ettr_runs, "gpus")
    yield make.gauge(
        "ettr_expected",
        "Expected ETTR of the largest job that ran, under the assumptions.",
        m.ettr_expected,
        "gpus",
    )


def _store(m: Measures, make: _Maker) -> Iterator[Metric]:
    yield make.gauge(
        "store_last_event_timestamp_seconds",
        "Latest time in a table of the store.",
        m.last_event_s,
        "table",
    )
    yield make.counter(
        "store_commits", "Ingests that changed the store since it was made.", {(): m.commits}
    )
    yield make.gauge("store_attempts", "Attempts in the store.", {(): m.counts.get("attempts", 0)})
    yield make.counter(
        "store_rejected_records",
        "Records of the logs that could not be used.",
        {(): m.counts.get("rejected", 0)},
    )
    yield make.gauge(
        "store_attempts_hidden",
        "1: sacct ran without --duplicates, so earlier attempts are hidden and rates too low.",
        {(): int(m.hidden)},
    )


def _watch_families(status: WatchStatus | None) -> Iterator[Metric]:
    if status is None:
        return
    make = _Maker(lambda name, labels, value: value)
    yield make.gauge(
        "watch_last_poll_timestamp_seconds",
        "When the watched logs were last looked at.",
        _one(status.last_poll_s),
    )
    yield make.counter(
        "watch_rows", "Rows read from the watched logs since the start.", {(): status.rows}
    )
    yield make.gauge(
        "watch_problems", "Watched files that cannot be read.", {(): len(status.problems)}
    )


def _one(value: float | None) -> dict[Labels, float]:
    return {} if value is None else {(): value}


@dataclass(frozen=True)
class _Maker:
    """Makes metric families from values by label."""

    grow: Callable[[str, Labels, float], float]

    def gauge(self, name: str, text: str, values: Mapping[Labels, float], *labels: str) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(f"holdfast_{name}", text, labels=labels)
        for key, value in values.items():
            family.add_metric(key, float(value))
        return family

    def counter(self, name: str, text: str, values: Mapping[Labels, float], *labels: str) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(f"holdfast_{name}", text, labels=labels)
        for key, value in values.items():
            family.add_metric(key, self.grow(name, key, float(value)))
        return family

    def estimates(
        self, name: str, text: str, values: Mapping[Labels, Estimate], *labels: str
    ) -> Iterator[Metric]:
        """The value and its bounds, each a metric of its own."""
        of = f"end of the 95 % interval of holdfast_{name}."
        for suffix, what, figure in (
            ("", text, "value"),
            ("_lower", f"Lower {of}", "low"),
            ("_upper", f"Upper {of}", "high"),
        ):
            found = {key: getattr(estimate, figure) for key, estimate in values.items()}
            shown = {key: value for key, value in found.items() if value is not None}
            yield self.gauge(f"{name}{suffix}", what, shown, *labels)
