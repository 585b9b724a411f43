"""The charts hold what the results say: sums, shares, intervals and formulas worked out again here."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
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
    chart: Any = figure.chart
    spec = chart.to_dict(context={"pre_transform": False})
    parts = spec.get("layer", [spec])
    rows = spec.get("datasets", {})
    return [
        rows[part["data"]["name"]] if "name" in part["data"] else part["data"]["values"]
        for part in parts
        if "data" in part
    ]


def test_shares_of_states_add_up(analysis: Analysis) -> None:
    (rows,) = layers(figures.status_mix(analysis.status))
    for base in ("attempts", "GPU time"):
        assert sum(row["share"] for row in rows if row["base"] == base) == pytest.approx(1)


def test_losses_add_up(analysis: Analysis) -> None:
    for figure in (figures.loss_by_size(analysis.goodput), figures.loss_by_cause(analysis.goodput)):
        (rows,) = layers(figure)
        assert sum(row["hours"] for row in rows) == pytest.approx(analysis.goodput.lost_gpu_hours)


def over_time() -> pd.DataFrame:
    rows = [
        (0, 100, "a", 3, 50.0),
        (0, 100, "b", 1, 50.0),
        (0, 100, UNATTRIBUTED, 2, 50.0),
        (100, 200, None, 0, 40.0),
        (200, 300, "b", 5, 10.0),
        (300, 400, None, 0, 0.0),
    ]
    return pd.DataFrame(rows, columns=["begin_s", "end_s", "cause", "failures", "node_days"])


def test_bars_stack_without_gaps_up_to_the_total_with_its_interval() -> None:
    none = pd.DataFrame({"check": [], "first_s": []})
    figure = model_figures.rate_over_time(over_time(), "day", none)
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
    frame = pd.DataFrame(
        {"begin_s": 0, "end_s": 10, "cause": causes, "failures": range(1, 13), "node_days": 1.0}
    )
    none = pd.DataFrame({"check": [], "first_s": []})
    figure = model_figures.rate_over_time(frame, "day", none)
    _, parts, _ = layers(figure)
    assert figure is not None
    assert len(set(figure.legend.values())) == len(figure.legend)
    assert len(figure.legend) == len(model_figures.CAUSE_COLOURS)
    shared = next(part for part in parts if part["cause"] == model_figures.ALL_OTHER)
    assert shared["failures"] == sum(range(1, 8))
    assert shared["rate"] == pytest.approx(1000 * 28)


def test_no_failures_no_figure() -> None:
    none = pd.DataFrame({"check": [], "first_s": []})
    quiet = over_time().assign(failures=0, cause=None)
    assert model_figures.rate_over_time(quiet, "day", none) is None


def test_new_checks_are_marked(analysis: Analysis) -> None:
    frame, unit = analysis.over_time
    figure = model_figures.rate_over_time(frame, unit, analysis.new_checks)
    assert figure is not None
    assert [note[:18] for note in figure.notes] == ["check “nccl-tests”"]


def test_the_line_is_one_over_n(analysis: Analysis) -> None:
    assert analysis.mttf is not None
    assert analysis.mttf_all is not None
    figure = model_figures.mttf_by_size(analysis.mttf_all, analysis.mttf, 16)
    rows = layers(figure)[0]
    model = analysis.mttf.model
    for row in rows:
        nodes = max(math.ceil(row["size"] / 8), 1)
        assert row["mttf"] == pytest.approx(24 * model.node_days_ / model.failures_ / nodes)
        assert row["low"] < row["mttf"] < row["high"]
    assert rows[-1]["size"] == 16 * 8 * model_figures.BEYOND


def test_points_are_the_rates_of_their_sizes(analysis: Analysis) -> None:
    assert analysis.mttf is not None
    assert analysis.mttf_all is not None
    points = layers(model_figures.mttf_by_size(analysis.mttf_all, analysis.mttf, 16))[-1]
    buckets = {b.gpus_max: b for b in analysis.mttf_all.model.buckets_ if b.failures}
    assert {point["gpus"] for point in points} == set(buckets)
    for point in points:
        bucket = buckets[point["gpus"]]
        nodes = math.ceil(point["gpus"] / 8)
        assert point["mttf"] == pytest.approx(24 * bucket.node_days / bucket.failures / nodes)


def test_the_expected_curve_lies_in_its_band(analysis: Analysis) -> None:
    settings = ettr_settings(analysis)
    curve = layers(model_figures.expected_and_measured(analysis.measured, settings, 8))[0]
    for row in curve:
        assert 0 <= row["low"] <= row["ettr"] <= row["high"] <= 1


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
    figure = figures.lemon_cdfs(nodes, ["n3"])
    rows = layers(figure)[0]
    assert figure is not None
    assert len(figure.legend) == 3
    for label in figure.legend:
        assert max(row["share"] for row in rows if row["signal"] == label) == pytest.approx(1)
    at_one = next(r for r in rows if r["value"] == 1 and r["signal"].startswith("failures"))
    assert at_one["share"] == pytest.approx(float((failures <= 1).mean()))


def test_labels_of_close_nodes_are_joined() -> None:
    zero = {name: [0.0] * 4 for name in figures.LEMON_SIGNALS if name != "failures"}
    nodes = pa.table({"node": list("abcd"), "failures": [9.0, 8.0, 8.0, 1.0], **zero})
    labels = layers(figures.lemon_cdfs(nodes, ["a", "b", "c", "d"]))[-1]
    assert [row["nodes"] for row in labels] == ["a + 2", "d"]


def test_the_timeline_has_every_attempt_and_check(analysis: Analysis) -> None:
    attempts, causes = analysis.timeline
    bars, ticks = layers(figures.job_timeline(attempts, causes))
    assert len(bars) == len(attempts)
    assert len(ticks) == len(causes)
    alone = figures.job_timeline(attempts, [])
    assert "a failed check" not in alone.legend
