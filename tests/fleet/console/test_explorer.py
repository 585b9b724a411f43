"""The ETTR explorer: its curve is the exact form, its state is in the URL, no ETTR leaves [0, 1]."""

from __future__ import annotations

import math
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from holdfast.durations import duration_text, parse_duration
from holdfast.errors import InputError
from holdfast.fleet import expected_ettr
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.explorer import (
    FIELDS,
    Setting,
    at,
    curve,
    default_setting,
    drawn,
    outcome,
    read_setting,
)

MINUTE = 60.0
PAPER = Setting(2000, 6.5, 60 * MINUTE, 0.0, 5 * MINUTE, 0.0)
settings = st.builds(
    Setting,
    st.floats(1, 1e6),
    st.floats(0, 1e8),
    st.floats(0.001, 3e7),
    st.floats(0, 2e6),
    st.floats(0, 2e6),
    st.floats(0, 2e6),
)


@pytest.mark.parametrize(
    ("setting", "exact"),
    [
        (PAPER, 0.7202),
        (Setting(2000, 6.5, 5 * MINUTE, 0, 5 * MINUTE, 0), 0.9345),
        (Setting(1000, 6.5, 30 * MINUTE, 0, 5 * MINUTE, MINUTE), 0.9089),
        (Setting(12_500, 2.34, 2 * MINUTE, 0, 2 * MINUTE, 0), 0.9408),
        (Setting(1500, 6.5, 38.431 * MINUTE, 5 * MINUTE, 5 * MINUTE, 0), 0.7358),
    ],
)
def test_published_settings(setting: Setting, exact: float) -> None:
    """The vectors of the specification."""
    assert at(setting).exact == pytest.approx(exact, abs=5e-5)


def formula(setting: Setting, minutes: float) -> float:
    """dt / [(1/L + q) e^{L u0} (e^{L(dt+w)} - 1)], written out."""
    failures = setting.nodes * setting.failures_per_1000_node_days / 1000 / 86_400
    dt = 60 * minutes
    grown = math.exp(failures * (dt + setting.write)) - 1
    return dt / ((1 / failures + setting.queue) * math.exp(failures * setting.init) * grown)


def test_the_curve_is_the_exact_form() -> None:
    setting = Setting(1500, 6.5, 3600, 5 * MINUTE, 5 * MINUTE, 10 * MINUTE)
    rows = curve(setting)
    assert (rows[0]["minutes"], rows[-1]["minutes"]) == pytest.approx((1 / 6, 1440))
    for row in rows:
        assert row["ettr"] == pytest.approx(formula(setting, row["minutes"]), rel=1e-9)


def test_the_best_interval_is_marked_at_the_top_of_the_curve() -> None:
    setting = Setting(1500, 6.5, 3600, 5 * MINUTE, 5 * MINUTE, 0)
    now, best = (
        next(row for row in drawn(setting, PAPER) if row["line"] == name)
        for name in ("this interval", "the best interval")
    )
    failures = 1500 * 6.5e-3 / 86_400
    root = (1 + lambertw(-math.exp(-1 - failures * 300)).real) / failures
    assert best["minutes"] == pytest.approx(root / 60)
    assert best["minutes"] == pytest.approx(35.172, abs=1e-3)
    assert best["ettr"] == pytest.approx(73.649, abs=1e-3)
    assert best["ettr"] >= 100 * max(row["ettr"] for row in curve(setting))
    assert now["ettr"] == pytest.approx(100 * formula(setting, 60))


@given(settings)
def test_no_ettr_leaves_its_range(setting: Setting) -> None:
    assert all(0 <= row["ettr"] <= 100 for row in drawn(setting, PAPER))
    words = outcome(setting, PAPER, 8)
    assert all("nan" not in text and "inf" not in text for text in words.values())


@given(settings)
def test_the_query_gives_the_setting_back(setting: Setting) -> None:
    again = read_setting(dict(parse_qsl(setting.query())), PAPER)
    for name in FIELDS:
        assert getattr(again, name) == pytest.approx(getattr(setting, name), rel=0.01, abs=1e-3)
    assert again.query() == read_setting(dict(parse_qsl(again.query())), PAPER).query()


@given(st.floats(0, 3e7))
def test_durations_are_written_as_they_are_read(seconds: float) -> None:
    text = duration_text(seconds)
    assert parse_duration(text) == pytest.approx(seconds, rel=0.01, abs=1e-6)
    assert duration_text(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (7.5, "7.5s"), (60, "1m"), (5400, "1h30m"), (90_061, "1d1h1m1s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"nodes": "many"}, "“Nodes of the job” is not a number"),
        ({"nodes": "0"}, "out of range"),
        ({"nodes": "nan"}, "is not finite"),
        ({"nodes": "1e999"}, "is not finite"),
        ({"failures_per_1000_node_days": "-1"}, "out of range"),
        ({"checkpoint": "0s"}, "out of range"),
        ({"checkpoint": "soon"}, "is not a duration"),
        ({"write": "9999d"}, "expected: 0s to 30d"),
        ({"init": "1" * 400}, "out of range"),
    ],
)
def test_what_makes_no_sense_is_named(query: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_setting(query, PAPER)


def test_what_a_query_does_not_name_is_as_before() -> None:
    assert read_setting({"nodes": "1,024", "write": " ", "x": "1"}, PAPER) == Setting(
        1024, 6.5, 3600, 0, 300, 0
    )


def test_it_begins_where_the_log_is(testbed_analysis: Analysis) -> None:
    setting = default_setting(testbed_analysis)
    known = testbed_analysis.ettr_setting
    assert setting.nodes == known["nodes"] == 16
    rate = 1000 * known["rate_per_node_day"]
    assert setting.failures_per_1000_node_days == pytest.approx(rate, rel=1e-3)
    assert setting.checkpoint == 60
    assert setting.queue == pytest.approx(known["queue_s"], rel=1e-3)


def test_the_endpoint_answers_as_the_functions_do(
    console: TestClient, testbed_analysis: Analysis
) -> None:
    query = "nodes=1500&failures_per_1000_node_days=6.5&checkpoint=1h&write=5m&init=300&queue=0"
    answer = console.get(f"/ettr/curve?{query}").json()
    setting = Setting(1500, 6.5, 3600, 300, 300, 0)
    assert answer["curve"] == drawn(setting, default_setting(testbed_analysis))
    assert answer["query"] == setting.query()
    assert answer["fields"]["write"] == {"value": 300.0, "text": "5m"}
    exact = expected_ettr(1500, 6.5e-3, 3600, init_s=300, write_s=300)
    assert answer["out"]["ettr"] == f"{100 * exact:.1f} %"
    assert answer["out"]["best_interval"] == "35 min 10 s"


def test_the_page_shows_what_its_address_says(console: TestClient) -> None:
    page = console.get("/ettr?nodes=1500&checkpoint=90m").text
    assert 'name="nodes" value="1500"' in page
    assert 'name="checkpoint" value="1h30m"' in page
    wrong = console.get("/ettr?nodes=-4")
    assert wrong.status_code == 400
    assert "“Nodes of the job” is out of range" in wrong.text
    assert console.get("/ettr/curve?nodes=-4").status_code == 400
