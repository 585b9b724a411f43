"""The figures of a fleet in Prometheus' text format, for `/metrics`.

`measures.measure` takes the figures from an analysis, once a generation of the store; an `Exporter`
writes them at each scrape into a registry of its own.

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

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.errors import MissingExtraError
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.console.measures import (
    UNKNOWN_DOMAIN,
    Estimate,
    Labels,
    Measures,
    measure,
    past,
)
from holdfast.fleet.console.rate_jump import THRESHOLD, RateJump

if TYPE_CHECKING:
    from prometheus_client import Metric

    from holdfast.fleet.console.snapshots import Snapshot
    from holdfast.fleet.console.watching import WatchStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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


def _families(
    m: Measures, now_s: float, grow: Callable[[str, Labels, float], float]
) -> Iterator[Metric]:
    make = _Maker(grow)
    none = past(m.unexplained_due_s, now_s)
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
    recent_none = past(m.recent_unexplained_due_s, now_s)
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
        "attempts, second order in attempts preempted by jobs restarting after a failure.",
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
        one(lambda _: THRESHOLD),
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
        "watch_problems",
        "Watched files with trouble; the foot of every page names them.",
        {(): len(status.problems)},
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
