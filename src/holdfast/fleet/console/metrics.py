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
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.config import parse_config
from holdfast.errors import MissingExtraError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED, infrastructure_failures
from holdfast.fleet.log import DAY_S

if TYPE_CHECKING:
    from prometheus_client import Metric

    from holdfast.fleet.console.watching import WatchStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN_DOMAIN = "unknown"
# What the metrics named "recent" cover: this time before the end of the log
RECENT_S = 28.0 * DAY_S

Labels = tuple[str, ...]
Values = dict[Labels, float]

METRICS = parse_config(Path(__file__).with_name("metrics.toml"), "the metrics")


@dataclass(frozen=True)
class Measures:
    """The figures of one generation of a store."""

    commits: int
    # Metric -> labels -> value, of all that do not depend on the time of the scrape
    values: Mapping[str, Values]
    # When each failure without a cause is past any check that could explain it, ascending
    unexplained_due_s: tuple[float, ...]
    recent_due_s: tuple[float, ...]  # The same of the recent ones


def measure(analysis: Analysis) -> Measures:
    """Take the figures of a log.

    Args:
        analysis: of the log; it keeps what it computes for the console's pages.

    Raises:
        StoreError: if a file of the store is missing.
    """
    log, facts = analysis.log, analysis.log.store.facts
    counts = facts.get("counts", {})
    known, due = _causes(analysis)
    since, introduced = log.end_s - RECENT_S, analysis.introduced
    values: dict[str, Values] = {
        "build_info": {(__version__,): 1},
        "node_failures": {labels: len(moments) for labels, moments in known.items()},
        "recent_failures": {(): sum(m >= since for each in known.values() for m in each)},
        "failure_rate_min_gpus": {(): analysis.min_gpus},
        "node_days": {(): 0.0 if analysis.mttf is None else analysis.mttf.model.node_days_},
        "check_first_seen_timestamp_seconds": {(r["check"],): r["first_s"] for r in introduced},
        "store_last_event_timestamp_seconds": _last_events(analysis),
        "store_commits": {(): facts.get("commits", 0)},
        "store_attempts": {(): counts.get("attempts", 0)},
        "store_rejected_records": {(): counts.get("rejected", 0)},
        "store_attempts_hidden": {(): facts.get("duplicates_flag") == "missing"},
        **_rates(analysis),
        **(_of_attempts(analysis) if analysis.status.attempts else {"gpu_hours": {(): 0.0}}),
    }
    late = (each for each in due if each >= since + log.assumptions.check_after_s)
    return Measures(int(facts.get("commits", 0)), values, tuple(due), tuple(late))


def _causes(analysis: Analysis) -> tuple[dict[Labels, list[float]], list[float]]:
    """Ends of the failures by (cause, domains); due times of those without a cause, ascending."""
    log = analysis.log
    by_cause: dict[Labels, list[float]] = {}
    due = []
    for row in [] if analysis.outages is None else analysis.outages.rows:
        if row["label"] != UNATTRIBUTED:
            by_cause.setdefault((row["label"], UNKNOWN_DOMAIN), []).append(row["stop_s"])
        else:
            due.append(row["stop_s"])
    if analysis.outages is None:
        for row in log.rows(f"SELECT symptom, label, stop_s FROM {infrastructure_failures(log)}"):
            if row["symptom"] == UNATTRIBUTED:
                due.append(row["stop_s"] + log.assumptions.check_after_s)
            else:
                domains = ",".join(log.taxonomy.symptoms[row["symptom"]].domains)
                by_cause.setdefault((row["label"], domains), []).append(row["stop_s"])
    return dict(sorted(by_cause.items())), sorted(due)


def _rates(analysis: Analysis) -> dict[str, Values]:
    """The failure rate, and the MTTF at the job sizes that ran on whole nodes."""
    fitted, every = analysis.mttf, analysis.mttf_all
    if fitted is None or fitted.blind:
        return {}
    model, per_node = fitted.model, fitted.gpus_per_node
    rates = (model.rate_per_1000_node_days_ if model.failures_ else 0.0, *model.ci95_)
    values = _estimates("failure_rate_per_node_day", {(): tuple(each / 1000 for each in rates)})
    if every is not None:
        tops = {bucket.gpus_max or 0 for bucket in every.model.buckets_}
        sizes = sorted(top for top in tops if top >= per_node)
        hours: dict[Labels, tuple[float | None, ...]] = {}
        for gpus in sizes or [max(analysis.largest_job_nodes, 1) * per_node]:
            value, low, high = model.mttf_hours(gpus, per_node)
            hours[str(gpus),] = (value, low, math.inf if high is None else high)
        values |= _estimates("mttf_hours", hours)
    return values


def _of_attempts(analysis: Analysis) -> dict[str, Values]:
    """Losses, lemon nodes, crash loops and ETTR: what only a scheduler's log has."""
    lost, lemons, measured = analysis.goodput, analysis.lemons, analysis.measured
    by_size = {(str(int(row["gpus_max"])),): row for row in measured.by_size.to_pylist()}
    fleet = lemons.detector.fleet_rate_per_1000_node_days_
    nodes = lemons.nodes.select(["node", "shrunk_rate"]).to_pylist() if fleet > 0 else []
    # A loop still turns if its last requeue is younger than the time in which a loop is looked for.
    since = analysis.log.end_s - analysis.log.assumptions.crash_loop_window_s
    loops = [row for row in lost.crash_loops.to_pylist() if row["last_s"] >= since]
    expected: Values = {}
    if analysis.expected_ettr is not None and analysis.mttf is not None:
        gpus = analysis.largest_job_nodes * analysis.mttf.gpus_per_node
        expected[str(gpus),] = analysis.expected_ettr
    in_gpus = 0.0 if analysis.without_gpus else 1.0
    orders = {"first": lost.lost_first_order, "second": lost.lost_second_order}
    return {
        "goodput_lost_gpu_hours": {(k,): v * in_gpus for k, v in orders.items()},
        "gpu_hours": {(): lost.total_gpu_hours},
        "lemon_score": {(row["node"],): row["shrunk_rate"] / fleet for row in nodes},
        "lemon": {(row["node"],): row["node"] in lemons.lemons for row in nodes},
        "crash_loop_requeues": {(row["job_id"],): row["requeues"] for row in loops},
        "crash_loop_lost_gpu_hours": {(r["job_id"],): r["gpu_hours_lost"] * in_gpus for r in loops},
        **_estimates(
            "ettr", {k: (row["ettr"], row["lo"], row["hi"]) for k, row in by_size.items()}
        ),
        "ettr_runs": {key: row["runs"] for key, row in by_size.items()},
        "ettr_expected": expected,
    }


def _estimates(name: str, found: Mapping[Labels, tuple[float | None, ...]]) -> dict[str, Values]:
    """The values (none where only bounds are known) and the ends of their intervals."""
    return {
        f"{name}{suffix}": {
            key: value for key, each in found.items() if (value := each[place]) is not None
        }
        for place, suffix in enumerate(("", "_lower", "_upper"))
    }


def _last_events(analysis: Analysis) -> Values:
    log = analysis.log
    span = log.store.facts.get("time_range")
    found: Values = {} if span is None else {("attempts",): float(span[1])}
    for name, column in (("health", "time_s"), ("node_outages", "start_s")):
        last = log.value(f"SELECT max(CAST({column} AS DOUBLE)) FROM {log.table(name)}")
        if last is not None:
            found[name,] = last
    return found


@dataclass
class Exporter:
    """Writes the metrics of the snapshots of one console; keeps what its counters have shown."""

    clock: Callable[[], float] = time.time  # Epoch seconds now
    _shown: dict[tuple[str, Labels], float] = field(default_factory=dict)
    _commits: int = 0
    _lock: Lock = field(default_factory=Lock)

    def text(self, measures: Measures, status: WatchStatus | None = None) -> bytes:
        """The metrics in Prometheus' text format 0.0.4.

        Args:
            measures: of the generation of the store to show.
            status: how the watching of the logs goes; None: nothing is watched.

        Raises:
            MissingExtraError: if prometheus-client is not installed.
        """
        try:
            from prometheus_client.exposition import generate_latest
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "console") from error
        values = {**measures.values, **_decided(measures, self.clock())}
        if status is not None:
            polled: Values = {} if status.last_poll_s is None else {(): status.last_poll_s}
            values["watch_last_poll_timestamp_seconds"] = polled
            values["watch_rows"] = {(): status.rows}
            values["watch_problems"] = {(): len(status.problems)}
        with self._lock:
            if measures.commits < self._commits:
                self._shown.clear()
            self._commits = measures.commits
            families = list(self._families(values, status is not None))
        registry: Any = SimpleNamespace(collect=lambda: families)  # all that is asked of one
        return bytes(generate_latest(registry))

    def _families(self, values: Mapping[str, Values], watched: bool) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, about in METRICS.items():
            if name.startswith("watch_") and not watched:
                continue
            helps = {name: about["help"]}
            for end in ("lower", "upper") if about["type"] == "estimate" else ():
                helps[f"{name}_{end}"] = (
                    f"{end.title()} end of the 95 % interval of holdfast_{name}."
                )
            counts = about["type"] == "counter"
            for each, text in helps.items():
                family = CounterMetricFamily if counts else GaugeMetricFamily
                made = family(f"holdfast_{each}", text, labels=about["labels"])
                for key, value in values.get(each, {}).items():
                    made.add_metric(key, float(self._grow(each, key, value) if counts else value))
                yield made

    def _grow(self, name: str, labels: Labels, value: float) -> float:
        """The value of a counter: never less than it was."""
        grown = max(value, self._shown.get((name, labels), 0.0))
        self._shown[name, labels] = grown
        return grown


def _decided(m: Measures, now_s: float) -> dict[str, Values]:
    """What depends on the time: failures that no check can explain any more."""
    none, recent = (bisect_right(due, now_s) for due in (m.unexplained_due_s, m.recent_due_s))
    failures = m.values["node_failures"]
    decided = none + sum(failures.values())
    return {
        "node_failures": {**failures, (UNATTRIBUTED, UNKNOWN_DOMAIN): none},
        "node_failures_undecided": {(): len(m.unexplained_due_s) - none},
        "unattributed_share": {(): none / decided} if decided else {},
        "recent_failures": {(): m.values["recent_failures"][()] + recent},
        "recent_unattributed_failures": {(): recent},
    }
