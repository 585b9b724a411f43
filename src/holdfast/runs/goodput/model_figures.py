"""The charts of a run report on what should have been: the expected ETTR, the checkpoint interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from holdfast.report import Figure, charts
from holdfast.report.theme import colour
from holdfast.runs.goodput.expected import Expected
from holdfast.runs.goodput.wording import seconds

CURVE_POINTS = 80
REACH = 8.0
"""The curve goes on by this factor beyond the intervals of interest."""


def interval_curve(expected: Expected) -> Figure | None:
    """The expected ETTR against the checkpoint interval; None where there is no curve."""
    if expected.rate is None or expected.ettr is None or not expected.interval_s:
        return None
    best = expected.best_interval_s or expected.best_interval_low_s
    if not best:
        return None
    lowest = min(best, expected.interval_s) / REACH
    highest = max(best, expected.interval_s) * REACH
    ratio = math.log(highest / lowest) / (CURVE_POINTS - 1)
    intervals = [lowest * math.exp(ratio * step) for step in range(CURVE_POINTS)]
    scale, unit = (1 / 60, "minutes") if expected.interval_s >= 120 else (1.0, "seconds")
    curve = [
        {"interval": scale * dt, "ettr": value, "low": low, "high": high}
        for dt, (value, low, high) in zip(intervals, expected.curve(intervals), strict=True)
    ]
    domain = [scale * lowest, scale * highest]
    x = charts.log_axis(
        alt.X, "interval", f"Step time between checkpoints ({unit})", domain=domain, nice=False
    )
    y = charts.percent_axis(alt.Y, "ettr", "Expected ETTR")
    marks = _marks(expected, scale)
    layers: list[Any] = [
        alt.Chart(charts.data(curve))
        .mark_area(opacity=0.2, line=False)
        .encode(x=x, y=charts.same_axis(y, "low"), y2="high:Q"),
        alt.Chart(charts.data(curve))
        .mark_line(color=colour("model"))
        .encode(
            x=x,
            y=y,
            tooltip=charts.tooltip({"interval": (unit, ",.3~r"), "ettr": ("expected ETTR", ".1%")}),
        ),
        alt.Chart(charts.data(marks))
        .mark_point(shape="diamond", size=110, opacity=1)
        .encode(x=x, y=y, tooltip=charts.tooltip({"text": "mark", "ettr": ("ETTR", ".1%")})),
    ]
    for mark in marks:
        left = mark["interval"] < math.sqrt(domain[0] * domain[1])
        style: dict[str, Any] = {"align": "right" if left else "left", "dx": -8 if left else 8}
        layers.append(charts.line_labels([mark], x, y, "text", fontWeight=600, **style))
    return Figure(alt.layer(*layers), "Line: at the failure rate; band: over its 95 % interval")


def _marks(expected: Expected, scale: float) -> list[dict[str, Any]]:
    marks = []
    if expected.interval_s and expected.ettr is not None:
        text = f"now {seconds(expected.interval_s)}"
        marks.append({"interval": scale * expected.interval_s, "ettr": expected.ettr, "text": text})
    if expected.best_interval_s and expected.best_interval_ettr is not None:
        text = f"best {seconds(expected.best_interval_s)}"
        at = {"interval": scale * expected.best_interval_s, "ettr": expected.best_interval_ettr}
        marks.append({**at, "text": text})
    return marks


def compared(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """ETTRs beside each other.

    Args:
        rows: name, ettr, low and high (null: no interval), colour.
    """
    names = [row["name"] for row in rows]
    x = charts.percent_axis(alt.X, "ettr", "ETTR")
    y = alt.Y("name:N").sort(names).title(None).axis(labelLimit=320)
    base = alt.Chart().encode(
        y=y,
        tooltip=charts.tooltip(
            {
                "name": "which",
                "ettr": ("ETTR", ".1%"),
                "low": ("from", ".1%"),
                "high": ("to", ".1%"),
            }
        ),
    )
    bars = base.mark_rule(color=colour("model"), strokeWidth=1.5).encode(
        x=charts.same_axis(x, "low"), x2=alt.X2("high")
    )
    points = base.mark_point(size=80, filled=True, opacity=1).encode(
        x=x, color=charts.meaning_colour("name", {row["name"]: row["colour"] for row in rows})
    )
    chart = alt.layer(bars, points, data=charts.data(rows)).properties(height={"step": 30})
    return Figure(chart)
