"""The shared parts of charts, checked on what Vega-Lite is given."""

from __future__ import annotations

import datetime
import math
from datetime import UTC
from decimal import Decimal
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from holdfast.report import charts

DAY = datetime.datetime(2026, 3, 1, tzinfo=UTC)


def values(data: alt.InlineData) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = data.to_dict()["values"]
    return rows


def test_data_is_json() -> None:
    rows = [
        {
            "at": DAY,
            "wall": DAY.replace(tzinfo=None),
            "day": DAY.date(),
            "nan": math.nan,
            "decimal": Decimal("1.5"),
            "numpy": np.float32(0.5),
            "span": datetime.timedelta(minutes=1),
            "text": "x",
            "none": None,
        }
    ]
    milliseconds = 1772323200000  # date -u -d 2026-03-01 +%s
    assert values(charts.data(rows)) == [
        {
            "at": milliseconds,
            "wall": milliseconds,
            "day": milliseconds,
            "nan": None,
            "decimal": 1.5,
            "numpy": 0.5,
            "span": 60.0,
            "text": "x",
            "none": None,
        }
    ]
    table = pa.table({"at": pa.array([DAY], pa.timestamp("us", "UTC")), "n": [1]})
    assert values(charts.data(table)) == [{"at": milliseconds, "n": 1}]


def test_axes_tell_zone_and_scale() -> None:
    chart = (
        alt.Chart(charts.data([{"at": DAY, "n": 1}]))
        .mark_point()
        .encode(
            x=charts.time_axis("at", "End", "Europe/Vienna"),
            y=charts.log_axis(alt.Y, "n", "GPUs", domain=[1, 100]),
        )
    ).to_dict()
    x, y = chart["encoding"]["x"], chart["encoding"]["y"]
    assert (x["title"], x["scale"]) == ("End (Europe/Vienna)", {"type": "utc"})
    assert (y["title"], y["scale"]) == ("GPUs, log scale", {"type": "log", "domain": [1, 100]})
    assert "domain('y')" in y["axis"]["labelExpr"]


def test_meanings_are_colours_in_order() -> None:
    channel = charts.meaning_colour("cause", {"hardware": "hardware", "no check": "unattributed"})
    chart = alt.Chart(charts.data([])).mark_bar().encode(color=channel).to_dict()
    assert chart["encoding"]["color"]["scale"] == {
        "domain": ["hardware", "no check"],
        "range": ["var(--hardware)", "var(--unattributed)"],
    }


def test_events_are_numbered_by_time_and_do_not_hide_each_other() -> None:
    hours = (100, 0, 1, 2, 50)
    events = [(DAY + datetime.timedelta(hours=hour), f"at {hour}") for hour in hours]
    layer, notes = charts.event_marks(events)
    assert notes == ["at 0", "at 1", "at 2", "at 50", "at 100"]
    made = layer.to_dict()
    heights = {}
    for part in made["layer"]:
        if part["mark"]["type"] == "text":
            for row in made["datasets"][part["data"]["name"]]:
                heights[row["number"]] = part["encoding"]["y"]["value"]
    assert heights == {"1": 9, "2": 28, "3": 47, "4": 9, "5": 9}
    assert charts.event_marks([])[1] == []


def test_interval_points_share_one_axis() -> None:
    x, y = alt.X("n:Q"), charts.log_axis(alt.Y, "rate", "Rate")
    layer = charts.interval_points(x, y, "low", "high").properties(
        data=charts.data([{"n": 1, "rate": 2, "low": 1, "high": 3}])
    )
    rule, point = layer.to_dict()["layer"]
    assert rule["encoding"]["y"] == {**point["encoding"]["y"], "field": "low"}
    assert rule["encoding"]["y2"] == {"field": "high"}
    assert point["encoding"]["y"]["field"] == "rate"
