"""The six figures under the findings."""

from __future__ import annotations

from holdfast.fleet.analysis import Analysis
from holdfast.fleet.ettr_forms import expected_ettr
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.summary import FEWEST_RUNS, largest_measured, reference_nodes
from holdfast.fleet.wording import RATE_UNIT, brief_interval, duration_interval, ettr_settings, size
from holdfast.numbers import brief, counted, duration, percent
from holdfast.report import Tile
from holdfast.report.page import Trend


def tiles(analysis: Analysis) -> list[Tile]:
    """At most six."""
    if not analysis.status.attempts:
        return [] if analysis.mttf is None else [_failures(analysis), *_rate(analysis)]
    return [
        _loss(analysis),
        *_rate(analysis),
        _lemons(analysis),
        _causes(analysis),
        *_ettr(analysis),
    ]


def _failures(analysis: Analysis) -> Tile:
    assert analysis.outages is not None
    nodes = analysis.outages.frame["node"].nunique()
    return Tile(
        "Node failures",
        f"{len(analysis.outages.frame):,}",
        note=f"on {nodes:,} of {counted(analysis.outages.nodes, 'node')}",
        section_id="causes",
    )


def _loss(analysis: Analysis) -> Tile:
    goodput = analysis.goodput
    if not goodput.total_gpu_hours:
        return Tile("Infrastructure failures", f"{goodput.failures:,}", section_id="causes")
    share = percent(goodput.lost_gpu_hours / goodput.total_gpu_hours)
    return Tile(
        "Lost to failures",
        brief(goodput.lost_gpu_hours),
        "GPU-hours",
        note=f"{share} of {brief(goodput.total_gpu_hours)}",
        section_id="loss",
    )


def _rate(analysis: Analysis) -> list[Tile]:
    if analysis.mttf is None:
        return []
    model = analysis.mttf.model
    nodes, per_node = reference_nodes(analysis), analysis.mttf.gpus_per_node
    hours = model.mttf_hours(nodes * per_node, per_node)
    value, low, high = (None if each is None else 3600 * each for each in hours)
    bound = "" if model.failures_ else "≤ "
    least = "" if model.failures_ else "≥ "
    low_rate, high_rate = (each for each in model.ci95_)
    rate = model.rate_per_1000_node_days_ if model.failures_ else high_rate
    return [
        Tile(
            "Failure rate",
            f"{bound}{brief(rate)}",
            RATE_UNIT,
            f"{brief_interval(low_rate, high_rate)} at 95 %" if model.failures_ else "at 95 %",
            trend=_trend(analysis),
            section_id="rate",
        ),
        Tile(
            f"MTTF at {size(analysis, nodes)}",
            f"{least}{duration(low if value is None else value)}",
            interval="at 95 %" if value is None else f"{duration_interval(low, high)} at 95 %",
            section_id="mttf",
        ),
    ]


def _trend(analysis: Analysis) -> Trend | None:
    drift = analysis.trend
    if drift.p_value is None or drift.rate_ratio is None:
        return None
    if drift.p_value >= 0.05:
        return "steady"
    return "rising" if drift.rate_ratio > 1 else "falling"


def _lemons(analysis: Analysis) -> Tile:
    named = analysis.lemons.lemons
    if not analysis.nodes_known:
        return Tile("Lemon nodes", "unknown", note="no NodeList in the log", section_id="lemons")
    return Tile(
        "Lemon nodes",
        f"{len(named):,}",
        f"of {analysis.log.count('nodes'):,}",
        note=", ".join(named[:3]) + (" …" if len(named) > 3 else ""),
        section_id="lemons",
    )


def _causes(analysis: Analysis) -> Tile:
    none, failures = analysis.unattributed
    return Tile(
        "Failures without a cause",
        percent(none / failures) if failures else "–",
        note=f"{none:,} of {failures:,}" if failures else "no failures",
        section_id="causes",
    )


def _ettr(analysis: Analysis) -> list[Tile]:
    if analysis.expected_ettr is None:
        return []
    bound = analysis.mttf is not None and not analysis.mttf.model.failures_
    value = percent(expected_ettr(**ettr_settings(analysis)[0]), 1)
    row = largest_measured(analysis.measured.by_size)
    note, between = "", ""
    if row is not None:
        between = f"measured {percent(row['ettr'], 1)}"
        if row["runs"] >= FEWEST_RUNS:
            between += f" [{percent(row['lo'], 1)}, {percent(row['hi'], 1)}]"
        note = f"at {bucket_label(int(row['gpus_max']))} GPUs"
    return [
        Tile(
            f"Expected ETTR at {size(analysis, analysis.largest_job_nodes)}",
            f"≥ {value}" if bound else value,
            interval=between,
            note=note,
            section_id="ettr",
        )
    ]
