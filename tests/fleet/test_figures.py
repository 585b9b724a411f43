"""The charts hold what the results say: sums, shares, intervals and formulas worked out again here."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2

from holdfast.fleet import FleetLog, figures, model_figures
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.wording import ettr_settings
from holdfast.report import Figure


@pytest.fixture(scope="module")
def analysis(testbed_log_told: FleetLog) -> Analysis:
    return Analysis(testbed_log_told)


def layers(figure: Figure | None) -> list[list[dict[str, Any]]]:
    """The rows of each layer that has its own."""
    assert figure is not None
    spec: Any = figure.chart() if callable(figure.chart) else figure.chart
    parts = [spec, *spec.get("layer", [])]
    return [part["data"]["values"] for part in parts if "data" in part]


def test_shares_of_states_add_up(analysis: Analysis) -> None:
    (rows,) = layers(figures.status_mix(analysis.status))
    for base in ("attempts", "GPU time"):
        assert sum(row["share"] for row in rows if row["base"] == base) == pytest.approx(100)


def test_losses_add_up(analysis: Analysis) -> None:
    for figure in (figures.loss_by_size(analysis.goodput), figures.loss_by_cause(analysis.goodput)):
        (rows,) = layers(figure)
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


def test_bars_stack_without_gaps_up_to_the_total_with_its_interval() -> None:
    figure = model_figures.rate_over_time(over_time(), "day", [])
    _, parts, totals = layers(figure)
    for total in totals:
        stack = [part for part in parts if part["begin"] == total["begin"]]
        assert stack[0]["low"] == 0
        assert all(below["high"] == pytest.approx(above["low"]) for below, above in pairwise(stack))
        assert stack[-1]["high"] == pytest.approx(total["rate"])
    first = totals[0]
    assert first["rate"] == pytest.approx(1000 * 6 / 50)
    assert first["low"] == pytest.approx(1000 * chi2.ppf(0.025, 12) / 2 / 50)
    assert first["high"] == pytest.approx(1000 * chi2.ppf(0.975, 14) / 2 / 50)
    assert figure is not None
    assert list(figure.legend) == ["b", "a", UNATTRIBUTED]
    # The colour of one cause is that of its legend; the order in a bar is that of the legend.
    assert [part["cause"] for part in parts[:3]] == ["b", "a", UNATTRIBUTED]


def test_many_causes_share_the_last_colour() -> None:
    causes = [f"cause {k}" for k in range(12)]
    rows = [
        {"begin_s": 0, "end_s": 10, "cause": cause, "failures": n, "node_days": 1.0}
        for n, cause in enumerate(causes, 1)
    ]
    figure = model_figures.rate_over_time(rows, "day", [])
    _, parts, _ = layers(figure)
    assert figure is not None
    assert len(set(figure.legend.values())) == len(figure.legend)
    assert len(figure.legend) == len(model_figures.CAUSE_COLOURS)
    shared = next(part for part in parts if part["cause"] == model_figures.ALL_OTHER)
    assert shared["failures"] == sum(range(1, 8))
    assert shared["rate"] == pytest.approx(1000 * 28)


def test_no_failures_no_figure() -> None:
    quiet = [{**row, "failures": 0, "cause": None} for row in over_time()]
    assert model_figures.rate_over_time(quiet, "day", []) is None


def test_new_checks_are_marked(analysis: Analysis) -> None:
    frame, unit = analysis.over_time
    figure = model_figures.rate_over_time(frame, unit, analysis.new_checks)
    assert figure is not None
    assert [note[:18] for note in figure.notes] == ["check “nccl-tests”"]


def test_the_line_is_one_over_n_and_the_points_are_the_rates_of_their_sizes(
    analysis: Analysis,
) -> None:
    assert analysis.mttf is not None
    assert analysis.mttf_all is not None
    figure = model_figures.mttf_by_size(analysis.mttf_all, analysis.mttf, 16)
    assert figure is not None
    model = analysis.mttf.model
    buckets = {b.gpus_max: b for b in analysis.mttf_all.model.buckets_ if b.failures}
    line, points = (
        [row for row in layers(figure)[0] if row["from"] == name] for name in figure.legend
    )
    for row in line:
        nodes = max(math.ceil(row["size"] / 8), 1)
        assert row["mttf"] == pytest.approx(24 * model.node_days_ / model.failures_ / nodes)
        assert row["low"] < row["mttf"] < row["high"]
    assert line[-1]["size"] == 16 * 8 * model_figures.BEYOND
    assert {point["size"] for point in points} == set(buckets)
    for point in points:
        bucket, nodes = buckets[point["size"]], math.ceil(point["size"] / 8)
        assert point["mttf"] == pytest.approx(24 * bucket.node_days / bucket.failures / nodes)
        assert point["low"] < point["mttf"] < point["high"]


def test_the_expected_curve_lies_in_its_band(analysis: Analysis) -> None:
    settings = ettr_settings(analysis)
    curve = layers(model_figures.expected_and_measured(analysis.measured, settings, 8))[0]
    for row in curve:
        assert 0 <= row["low"] <= row["ettr"] <= row["high"] <= 100


def test_distribution_functions_reach_one() -> None:
    rng = np.random.default_rng(1)
    failures = rng.poisson(1.0, 50).astype(float)
    nodes = pa.table(
        {
            "node": [f"n{k}" for k in range(50)],
            "failures": failures,
            **{name: rng.poisson(0.5, 50) for name in ("out_count", "xid_cnt")},
            **{name: np.zeros(50) for name in ("excl_jobid_count", "tickets")},
        }
    )
    figure = figures.lemon_cdfs(nodes)
    rows = layers(figure)[0]
    assert figure is not None
    assert len(figure.legend) == 3
    for label in figure.legend:
        assert max(row["share"] for row in rows if row["series"] == label) == pytest.approx(1)
    at_one = next(r for r in rows if r["value"] == 1 and r["series"].startswith("failures"))
    assert at_one["share"] == pytest.approx(float((failures <= 1).mean()))


def test_the_timeline_has_every_attempt_and_check(analysis: Analysis) -> None:
    attempts, causes = analysis.timeline
    bars, ticks = layers(figures.job_timeline(attempts, causes))
    assert len(bars) == len(attempts)
    assert len(ticks) == len(causes)
    alone = figures.job_timeline(attempts, [])
    assert "event" not in alone.legend
