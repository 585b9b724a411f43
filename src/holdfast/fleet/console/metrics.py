"""The figures of a fleet in Prometheus' text format, for `/metrics`.

`measure` takes the figures from an analysis, once a generation of the store; `exposition` writes them at
each scrape.

Names, units and types follow Prometheus' conventions, with one exception: times that an operator
thinks of in hours (`holdfast_mttf_hours`, GPU-hours) stay in hours. Bounds of an estimate are metrics
of their own (`..._lower`, `..._upper`), because a sum over a label `bound` would mean nothing.

Counts of the log are **gauges**, not counters: a failure without a cause finds one when its health event is
read later, and then moves from one label to another. Prometheus would take the smaller number for a restart
and count everything again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.config import parse_config
from holdfast.errors import MissingExtraError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED, infrastructure_failures
from holdfast.fleet.log import DAY_S
from holdfast.rooms import ROOMS

if TYPE_CHECKING:
    from prometheus_client import Metric

    from holdfast.fleet.console.watching import WatchStatus
    from holdfast.fleet.live.sources import SourceState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN_DOMAIN = "unknown"
# What the metrics named "recent" cover: this time before the end of the log
RECENT_S = 28.0 * DAY_S

Labels = tuple[str, ...]
Values = dict[Labels, float]

METRICS = parse_config(Path(__file__).with_name("metrics.toml"), "the metrics")


def measure(analysis: Analysis, runs: Sequence[str | Path] = ()) -> dict[str, Values]:
    """Take the figures of a log.

    Args:
        analysis: of the log; it keeps what it computes for the console's pages.
        runs: folders with the records of its runs, or around them.

    Returns:
        Metric -> labels -> value.

    Raises:
        StoreError: if a file of the store is missing.
    """
    log = analysis.log
    facts = analysis.log.store.facts
    counts = facts.get("counts", {})
    known = _causes(analysis)
    introduced = analysis.introduced
    since = log.end_s - RECENT_S
    recent = {labels: sum(s >= since for s in ends) for labels, ends in known.items()}
    failures = sum(map(len, known.values()))
    none = (UNATTRIBUTED, UNKNOWN_DOMAIN)
    return {
        "build_info": {(__version__,): 1},
        "node_failures": {labels: len(moments) for labels, moments in known.items()},
        "unattributed_share": {(): len(known[none]) / failures} if failures else {},
        "recent_failures": {(): sum(recent.values())},
        "recent_unattributed_failures": {(): recent[none]},
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
        **_of_other_rooms(analysis, runs),
    }


def _causes(analysis: Analysis) -> dict[Labels, list[float]]:
    """Ends of the failures by (cause, domains), those without a cause first."""
    log = analysis.log
    by_cause: dict[Labels, list[float]] = {(UNATTRIBUTED, UNKNOWN_DOMAIN): []}
    rows = [] if analysis.outages is None else analysis.outages.rows
    if analysis.outages is None:
        rows = log.rows(f"SELECT symptom, label, stop_s FROM {infrastructure_failures(log)}")
    for row in rows:
        symptom = log.taxonomy.symptoms.get(row.get("symptom", UNATTRIBUTED))
        domains = ",".join(symptom.domains) if symptom else UNKNOWN_DOMAIN
        by_cause.setdefault((row["label"], domains), []).append(row["stop_s"])
    return by_cause


def _rates(analysis: Analysis) -> dict[str, Values]:
    """The failure rate, and the MTTF at the job sizes that ran on whole nodes."""
    fitted = analysis.mttf
    every = analysis.mttf_all
    if fitted is None or fitted.blind:
        return {}
    model = fitted.model
    per_node = fitted.gpus_per_node
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
    nodes = lemons.nodes.to_pylist() if fleet > 0 else []
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
        "lemon_score": {(row["node"],): row["shrunk_rate"] / row["usual_rate"] for row in nodes},
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


def _of_other_rooms(analysis: Analysis, runs: Sequence[str | Path]) -> dict[str, Values]:
    """What rooms above this one add; they are named, as this one does not import them."""
    found: dict[str, Values] = {}
    for room in ROOMS if analysis.status.attempts else ():
        if room.gauges:
            module, _, name = room.gauges.partition(":")
            for metric, values in getattr(import_module(module), name)(analysis.log, runs).items():
                found |= _estimates(metric, values)
    return found


def _last_events(analysis: Analysis) -> Values:
    log = analysis.log
    span = log.store.facts.get("time_range")
    found: Values = {} if span is None else {("attempts",): float(span[1])}
    for name, column in (("health", "time_s"), ("node_outages", "start_s")):
        last = log.value(f"SELECT max(CAST({column} AS DOUBLE)) FROM {log.table(name)}")
        if last is not None:
            found[name,] = last
    return found


def exposition(
    values: Mapping[str, Values],
    status: WatchStatus | None = None,
    sources: Sequence[SourceState] = (),
) -> bytes:
    """The metrics in Prometheus' text format 0.0.4.

    Args:
        values: of `measure`.
        status: how the watching of the logs goes; None: nothing is watched.
        sources: how the live sources do.

    Raises:
        MissingExtraError: if prometheus-client is not installed.
    """
    try:
        from prometheus_client.exposition import generate_latest
    except ImportError as error:
        raise MissingExtraError("prometheus-client", "console") from error
    if status is not None:
        polled = status.last_poll_s
        values = {
            **values,
            "watch_last_poll_timestamp_seconds": {} if polled is None else {(): polled},
            "watch_rows": {(): status.rows},
            "watch_problems": {(): len(status.problems)},
            "watch_source_state": {(s.name, s.kind, s.state): 1 for s in sources},
            "watch_source_last_success_timestamp_seconds": {
                (s.name, s.kind): s.last_success_s for s in sources if s.last_success_s is not None
            },
        }
    families = list(_families(values, status is not None))
    registry: Any = SimpleNamespace(collect=lambda: families)  # all that is asked of one
    return bytes(generate_latest(registry))


def _families(values: Mapping[str, Values], watched: bool) -> Iterable[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, about in METRICS.items():
        if name.startswith("watch_") and not watched:
            continue
        helps = {name: about["help"]}
        for end in ("lower", "upper") if about["type"] == "estimate" else ():
            helps[f"{name}_{end}"] = f"{end.title()} end of the 95 % interval of holdfast_{name}."
        family = CounterMetricFamily if about["type"] == "counter" else GaugeMetricFamily
        for each, text in helps.items():
            made = family(f"holdfast_{each}", text, labels=about["labels"])
            for key, value in values.get(each, {}).items():
                made.add_metric(key, float(value))
            yield made
