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
    query,
    read_setting,
)

MINUTE = 60.0


def made(*values: float) -> Setting:
    return dict(zip(FIELDS, values, strict=True))


PAPER = made(2000, 6.5, 60 * MINUTE, 0.0, 5 * MINUTE, 0.0)
settings = st.builds(
    made,
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
        (made(2000, 6.5, 5 * MINUTE, 0, 5 * MINUTE, 0), 0.9345),
        (made(1000, 6.5, 30 * MINUTE, 0, 5 * MINUTE, MINUTE), 0.9089),
        (made(12_500, 2.34, 2 * MINUTE, 0, 2 * MINUTE, 0), 0.9408),
        (made(1500, 6.5, 38.431 * MINUTE, 5 * MINUTE, 5 * MINUTE, 0), 0.7358),
    ],
)
def test_published_settings(setting: Setting, exact: float) -> None:
    """The vectors of the specification."""
    assert at(setting).exact == pytest.approx(exact, abs=5e-5)


def formula(setting: Setting, minutes: float) -> float:
    """dt / [(1/L + q) e^{L u0} (e^{L(dt+w)} - 1)], written out."""
    failures = setting["nodes"] * setting["failures_per_1000_node_days"] / 1000 / 86_400
    dt = 60 * minutes
    grown = math.exp(failures * (dt + setting["write"])) - 1
    return dt / ((1 / failures + setting["queue"]) * math.exp(failures * setting["init"]) * grown)


def test_the_curve_is_the_exact_form() -> None:
    setting = made(1500, 6.5, 3600, 5 * MINUTE, 5 * MINUTE, 10 * MINUTE)
    rows = [row for row in curve(setting, PAPER) if row["line"] == "these settings"]
    assert (rows[0]["minutes"], rows[-1]["minutes"]) == pytest.approx((1 / 6, 1440))
    for row in rows:
        assert row["ettr"] == pytest.approx(100 * formula(setting, row["minutes"]), rel=1e-9)


def test_the_best_interval_is_marked_at_the_top_of_the_curve() -> None:
    setting = made(1500, 6.5, 3600, 5 * MINUTE, 5 * MINUTE, 0)
    rows = curve(setting, PAPER)
    now, best = (
        next(row for row in rows if row["line"] == name)
        for name in ("this interval", "the best interval")
    )
    failures = 1500 * 6.5e-3 / 86_400
    root = (1 + lambertw(-math.exp(-1 - failures * 300)).real) / failures
    assert best["minutes"] == pytest.approx(root / 60)
    assert best["minutes"] == pytest.approx(35.172, abs=1e-3)
    assert best["ettr"] == pytest.approx(73.649, abs=1e-3)
    assert best["ettr"] >= max(row["ettr"] for row in rows if row["line"] == "these settings")
    assert now["ettr"] == pytest.approx(100 * formula(setting, 60))


@given(settings)
def test_no_ettr_leaves_its_range(setting: Setting) -> None:
    assert all(0 <= row["ettr"] <= 100 for row in curve(setting, PAPER))


@given(settings)
def test_the_query_gives_the_setting_back(setting: Setting) -> None:
    again = read_setting(dict(parse_qsl(query(setting))), PAPER)
    for name in FIELDS:
        assert again[name] == pytest.approx(setting[name], rel=0.01, abs=1e-3)
    assert query(again) == query(read_setting(dict(parse_qsl(query(again))), PAPER))


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
    ("given", "message"),
    [
        ({"nodes": "many"}, "“Nodes of the job” is not a number"),
        ({"nodes": "0"}, "out of range"),
        ({"nodes": "nan"}, "out of range"),
        ({"nodes": "1e999"}, "out of range"),
        ({"failures_per_1000_node_days": "-1"}, "out of range"),
        ({"checkpoint": "0s"}, "out of range"),
        ({"checkpoint": "soon"}, "is not a duration"),
        ({"write": "9999d"}, "expected: 0s to 30d"),
        ({"init": "1" * 400}, "out of range"),
    ],
)
def test_what_makes_no_sense_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_setting(given, PAPER)


def test_what_a_query_does_not_name_is_as_before() -> None:
    assert read_setting({"nodes": "1,024", "write": " ", "x": "1"}, PAPER) == made(
        1024, 6.5, 3600, 0, 300, 0
    )


def test_it_begins_where_the_log_is(testbed_analysis: Analysis) -> None:
    setting = default_setting(testbed_analysis)
    known = testbed_analysis.ettr_setting
    assert setting["nodes"] == known["nodes"] == 16
    rate = 1000 * known["rate_per_node_day"]
    assert setting["failures_per_1000_node_days"] == pytest.approx(rate, rel=1e-3)
    assert setting["checkpoint"] == 60
    assert setting["queue"] == pytest.approx(known["queue_s"], rel=1e-3)


def test_the_endpoint_answers_as_the_functions_do(
    console: TestClient, testbed_analysis: Analysis
) -> None:
    asked = "nodes=1500&failures_per_1000_node_days=6.5&checkpoint=1h&write=5m&init=300&queue=0"
    answer = console.get(f"/ettr/curve?{asked}").json()
    setting = made(1500, 6.5, 3600, 300, 300, 0)
    assert answer["curve"] == curve(setting, default_setting(testbed_analysis))
    assert answer["query"] == query(setting)
    assert answer["fields"]["write"] == {"value": 300.0, "text": "5m"}
    exact = expected_ettr(1500, 6.5e-3, 3600, init_s=300, write_s=300)
    assert f"{exact:.4f}" in answer["answer"]
    assert "35 min 10 s" in answer["answer"].replace("\u00a0", " ")


def test_the_page_shows_what_its_address_says(console: TestClient) -> None:
    page = console.get("/ettr?nodes=1500&checkpoint=90m").text
    assert 'name="nodes" value="1500"' in page
    assert 'name="checkpoint" value="1h30m"' in page
    wrong = console.get("/ettr?nodes=-4")
    assert wrong.status_code == 400
    assert "“Nodes of the job” is out of range" in wrong.text
    assert console.get("/ettr/curve?nodes=-4").status_code == 400
