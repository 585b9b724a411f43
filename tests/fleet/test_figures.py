"""The charts hold what the results say: sums, shares, intervals and formulas worked out again here."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest
from scipy.stats import chi2

import holdfast.fleet as fleet
from holdfast.answer import Figure
from holdfast.fleet import FleetLog, ettr_outlook, failures, timeline
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.wording import ettr_settings


@pytest.fixture(scope="module")
def analysis(testbed_log_told: FleetLog) -> Analysis:
    return Analysis(testbed_log_told)


def layers(figure: Figure | None) -> list[list[dict[str, Any]]]:
    """The rows of each layer that has its own."""
    assert figure is not None
    spec: Any = figure.chart() if callable(figure.chart) else figure.chart
    parts = [spec, *spec.get("layer", [])]
    return [part["data"]["values"] for part in parts if "data" in part]


def test_losses_add_up(analysis: Analysis) -> None:
    for section in analysis.goodput.sections()[:2]:
        (rows,) = layers(section.figures[0])
        assert sum(row["hours"] for row in rows) == pytest.approx(analysis.goodput.lost_gpu_hours)


def over_time() -> list[dict[str, Any]]:
    rows = [
        (0, 100, "a", 3, 50.0),
        (0, 100, "b", 1, 50.0),
        (0, 100, UNATTRIBUTED, 2, 50.0),
        (100, 200, None, 0, 40.0),
        (200, 300, "b", 5, 10.0),
        (300, 400, None, 0, 0.0),
    ]
    names = ("begin_s", "end_s", "cause", "failures", "node_days")
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_causes_add_up_to_the_total_with_its_interval() -> None:
    figure = timeline.rate_figure(over_time(), "day", [])
    rows = layers(figure)[0]
    totals = [row for row in rows if row["cause"] == timeline.EVERY]
    assert [row["failures"] for row in totals] == [6, 0, 5]
    for total in totals:
        parts = [r for r in rows if r["time"] == total["time"] and r["cause"] != timeline.EVERY]
        assert sum(part["failures"] for part in parts) == total["failures"]
        assert sum(part["rate"] for part in parts) == pytest.approx(total["rate"])
    first = totals[0]
    assert first["rate"] == pytest.approx(1000 * 6 / 50)
    assert first["low"] == pytest.approx(1000 * chi2.ppf(0.025, 12) / 2 / 50)
    assert first["high"] == pytest.approx(1000 * chi2.ppf(0.975, 14) / 2 / 50)
    assert figure is not None
    assert list(figure.legend) == [timeline.EVERY, "b", "a", UNATTRIBUTED]


def test_many_causes_share_the_last_colour() -> None:
    causes = [f"cause {k}" for k in range(12)]
    rows = [
        {"begin_s": 0, "end_s": 10, "cause": cause, "failures": n, "node_days": 1.0}
        for n, cause in enumerate(causes, 1)
    ]
    figure = timeline.rate_figure(rows, "day", [])
    assert figure is not None
    assert len(set(figure.legend.values())) == len(figure.legend)
    assert len(figure.legend) == len(timeline.CAUSE_COLOURS) + 1
    shared = next(r for r in layers(figure)[0] if r["cause"] == timeline.ALL_OTHER)
    assert shared["failures"] == sum(range(1, 8))
    assert shared["rate"] == pytest.approx(1000 * 28)


def test_no_failures_no_figure() -> None:
    quiet = [{**row, "failures": 0, "cause": None} for row in over_time()]
    assert timeline.rate_figure(quiet, "day", []) is None


def test_new_checks_are_marked(analysis: Analysis) -> None:
    frame, unit = analysis.over_time
    figure = timeline.rate_figure(frame, unit, analysis.new_checks)
    assert figure is not None
    assert [note[:18] for note in figure.notes] == ["check “nccl-tests”"]


def test_the_line_is_one_over_n_and_the_points_are_the_rates_of_their_sizes(
    analysis: Analysis,
) -> None:
    assert analysis.mttf is not None
    assert analysis.mttf_all is not None
    (figure,) = analysis.mttf.section(analysis.mttf_all.model, [], largest=128).figures
    model = analysis.mttf.model
    buckets = {b.gpus_max: b for b in analysis.mttf_all.model.buckets_ if b.failures}
    line, points = (
        [row for row in layers(figure)[0] if row["from"] == name] for name in figure.legend
    )
    for row in line:
        nodes = max(math.ceil(row["size"] / 8), 1)
        assert row["mttf"] == pytest.approx(24 * model.node_days_ / model.failures_ / nodes)
        assert row["low"] < row["mttf"] < row["high"]
    assert line[-1]["size"] == 16 * 8 * failures.BEYOND
    assert {point["size"] for point in points} == set(buckets)
    for point in points:
        bucket, nodes = buckets[point["size"]], math.ceil(point["size"] / 8)
        assert point["mttf"] == pytest.approx(24 * bucket.node_days / bucket.failures / nodes)
        assert point["low"] < point["mttf"] < point["high"]


def test_the_expected_curve_lies_in_its_band(analysis: Analysis) -> None:
    settings = ettr_settings(analysis)
    curve = layers(ettr_outlook.expected_and_measured(analysis.measured, settings, 8))[0]
    for row in curve:
        assert 0 <= row["low"] <= row["ettr"] <= row["high"] <= 100


def test_the_timeline_has_every_attempt_and_check(testbed_log_told: FleetLog) -> None:
    found = fleet.attribute(testbed_log_told, "93")
    bars, ticks = layers(found.figures()[0])
    assert len(bars) == len(found.attempts)
    assert len(ticks) == sum(len(each["causes"]) for each in found.attempts)
    for bar, row in zip(bars, found.attempts, strict=True):
        assert bar["start"] == 1000 * datetime.fromisoformat(row["start"]).timestamp()
        assert bar["end"] == 1000 * datetime.fromisoformat(row["end"]).timestamp()
