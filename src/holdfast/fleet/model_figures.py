"""Charts of estimates and of what they predict: the failure rate, MTTF, ETTR, survival."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd
import pyarrow as pa

from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.ettr_forms import long_run_ettr
from holdfast.fleet.ettr_measured import MeasuredEttr
from holdfast.fleet.ettr_solve import contours as ettr_contours
from holdfast.fleet.failure_model import garwood_interval
from holdfast.fleet.failures import Mttf
from holdfast.fleet.figures import nothing
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.moments import moment
from holdfast.fleet.summary import FEWEST_RUNS
from holdfast.fleet.wording import RateUnit
from holdfast.report import Figure, charts
from holdfast.report.theme import colour

# Most causes are of hardware, so blue, orange and vermilion, which mean user, system and hardware, would
# mislead here.
CAUSE_COLOURS = ("first", "sky", "good", "yellow", "ramp5", "purple", "raised")
ALL_OTHER = "all other causes"
CURVE_POINTS = 60
BEYOND = 32
"""A projection reaches this many times the largest job."""
CONTOUR_COLOURS = ("ramp1", "ramp2", "ramp3", "ramp4", "ramp5", "ink")


def rate_over_time(
    over_time: pd.DataFrame, unit: str, introduced: pd.DataFrame, rate: RateUnit
) -> Figure:
    """Failures per exposure in each bin of time, stacked by cause, with the total's interval."""
    legend = _cause_legend(over_time)
    bars, totals = _stacked(over_time[over_time["node_days"] > 0], legend, rate)
    if not bars:
        return Figure(nothing("No failures."))
    span = [1000 * over_time["begin_s"].min(), 1000 * over_time["end_s"].max()]
    axis = charts.time_axis("begin", f"Time, one bar a {unit}" * (not unit[0].isdigit()) or "Time")
    axis = axis.scale(type="utc", domain=span)
    highest = max(row["rate"] for row in totals)
    y = alt.Y("low", type="quantitative").scale(domain=[0, 1.5 * highest])
    y = y.title(f"Failures {rate.text}")
    layers: list[Any] = [
        alt.Chart(charts.data(bars))
        .mark_bar()
        .encode(
            x=axis,
            x2="end:T",
            y=y,
            y2="high:Q",
            color=charts.meaning_colour("cause", legend),
            tooltip=charts.tooltip(
                {
                    "begin": ("from", "%Y-%m-%d %H:%M"),
                    "cause": "cause",
                    "failures": ("failures", ",d"),
                    "rate": (rate.text, ",.3~r"),
                }
            ),
        ),
        alt.Chart(charts.data(totals))
        .mark_rule(clip=True, color=colour("measured"), strokeWidth=1.2)
        .encode(
            x=alt.X("middle", type="temporal"),
            y=y,
            y2="high:Q",
            tooltip=charts.tooltip(
                {
                    "begin": ("from", "%Y-%m-%d %H:%M"),
                    "failures": ("failures", ",d"),
                    "rate": (f"all, {rate.text}", ",.3~r"),
                    "low": ("from", ",.3~r"),
                    "high": ("to", ",.3~r"),
                }
            ),
        ),
    ]
    events = [
        (moment(first_s), f"check “{check}” first seen ({moment(first_s):%Y-%m-%d %H:%M})")
        for check, first_s in zip(introduced["check"], introduced["first_s"], strict=True)
    ]
    caption = "Failure rate by cause, with the 95 % interval of the total"
    if not events:
        return Figure(alt.layer(*layers), caption, legend=legend)
    marks, notes = charts.event_marks(events)
    return Figure(alt.layer(*layers, marks), caption, legend=legend, notes=notes)


def _cause_legend(over_time: pd.DataFrame) -> dict[str, str]:
    """A colour for each of the most frequent causes; the rest share one."""
    totals = over_time.groupby("cause")["failures"].sum().sort_values(ascending=False)
    named = [str(cause) for cause in totals.index if cause != UNATTRIBUTED]
    if len(named) > len(CAUSE_COLOURS):
        named = [*named[: len(CAUSE_COLOURS) - 1], ALL_OTHER]
    legend = dict(zip(named, CAUSE_COLOURS, strict=False))
    if UNATTRIBUTED in totals.index:
        legend[UNATTRIBUTED] = "unattributed"
    return legend


def _stacked(
    over_time: pd.DataFrame, legend: Mapping[str, str], rate: RateUnit
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(the part of each cause in each bar, from `low` to `high`; the total of each bar)."""
    place = {cause: order for order, cause in enumerate(legend)}
    parts, totals = [], []
    for _, rows in over_time.groupby("begin_s"):
        begin_s, end_s = float(rows["begin_s"].iloc[0]), float(rows["end_s"].iloc[0])
        ends = {"begin": moment(begin_s), "end": moment(end_s)}
        per_failure = rate.of(1000 / rows["node_days"].iloc[0])
        counts: dict[str, int] = {}
        for cause, failures in zip(rows["cause"], rows["failures"], strict=True):
            if failures:
                name = cause if cause in legend else ALL_OTHER
                counts[name] = counts.get(name, 0) + int(failures)
        below = 0
        for cause in sorted(counts, key=lambda name: place[name]):
            failures, begin = counts[cause], below
            below += failures
            parts.append(
                {
                    **ends,
                    "cause": cause,
                    "failures": failures,
                    "rate": failures * per_failure,
                    "low": begin * per_failure,
                    "high": below * per_failure,
                }
            )
        low, high = garwood_interval(below, 1.0)
        totals.append(
            {
                **ends,
                "middle": moment((begin_s + end_s) / 2),
                "failures": below,
                "rate": below * per_failure,
                "low": low * per_failure,
                "high": high * per_failure,
            }
        )
    return parts, totals


def mttf_by_size(by_size: Mttf, fitted: Mttf) -> Figure:
    """MTTF of each job size with its interval, and the 1/N line of the fitted rate with its band."""
    points = _mttf_points(by_size)
    if not fitted.model.failures_:
        return Figure(nothing("No failures: there is no MTTF to draw."))
    per_node = fitted.gpus_per_node
    sizes = [point["gpus"] for point in points] or [per_node]
    line = [
        {"gpus": gpus, **dict(zip(("mttf", "low", "high"), hours, strict=True))}
        for gpus in sorted({min(1, *sizes), per_node, *sizes, BEYOND * max(sizes)})
        if (hours := fitted.model.mttf_hours(gpus, per_node))
    ]
    measured = [row for row in line if row["gpus"] <= max(sizes)]
    domain = [line[0]["gpus"], line[-1]["gpus"]]
    x = charts.log_axis(alt.X, "gpus", "Job size (GPUs)", domain=domain, nice=False)
    y = charts.log_axis(alt.Y, "mttf", "Mean time to failure (hours)")
    band = (
        alt.Chart(charts.data(line))
        .mark_area(opacity=0.2, line=False)
        .encode(x=x, y=charts.same_axis(y, "low"), y2="high:Q")
    )
    dashed = alt.Chart(charts.data(line)).mark_line(strokeDash=[4, 4]).encode(x=x, y=y)
    solid = alt.Chart(charts.data(measured)).mark_line().encode(x=x, y=y)
    label = charts.line_labels(
        [{**line[-1], "text": "1/N with the fitted rate"}],
        x,
        y,
        "text",
        align="right",
        dx=-60,
        dy=4,
    )
    layers: list[Any] = [band, dashed, solid, label]
    if points:
        shown = charts.tooltip(
            {
                "size": "GPUs",
                "failures": ("failures", ",d"),
                "mttf": ("MTTF (hours)", ",.3~r"),
                "low": ("from", ",.3~r"),
                "high": ("to", ",.3~r"),
            }
        )
        layers.append(
            charts.interval_points(x, y, "low", "high", shown).properties(data=charts.data(points))
        )
    return Figure(
        alt.layer(*layers),
        "Each job size with its 95 % interval (points); the fitted rate, dashed where no job ran",
    )


def _mttf_points(by_size: Mttf) -> list[dict[str, Any]]:
    points = []
    for bucket in by_size.model.buckets_:
        if not bucket.gpus_max or not bucket.failures or bucket.ci95 is None:
            continue
        nodes = max(1, math.ceil(bucket.gpus_max / by_size.gpus_per_node))
        low, high = bucket.ci95
        points.append(
            {
                "gpus": bucket.gpus_max,
                "size": bucket_label(bucket.gpus_max),
                "failures": bucket.failures,
                "mttf": 24_000 / ((bucket.rate_per_1000_node_days or math.nan) * nodes),
                "low": 24_000 / (high * nodes),
                "high": 24_000 / (low * nodes),
            }
        )
    return points


def expected_and_measured(
    measured: MeasuredEttr, setting: Mapping[str, float], gpus_per_node: int
) -> Figure:
    """Expected ETTR against job size, with what the long runs had."""
    points = [
        {
            **row,
            "size": bucket_label(int(row["gpus_max"])),
            "low": row["lo"] if row["runs"] >= FEWEST_RUNS else None,
            "high": row["hi"] if row["runs"] >= FEWEST_RUNS else None,
        }
        for row in measured.by_size.to_dict("records")
        if row["gpus"] > 0
    ]
    sizes = [point["gpus"] for point in points]
    largest = 4 * max([float(setting["nodes"]) * gpus_per_node, *sizes, 2.0 * gpus_per_node])
    smallest = min([*sizes, float(gpus_per_node)])
    curve = _expected(setting, gpus_per_node, smallest, largest)
    x = charts.log_axis(alt.X, "gpus", "Job size (GPUs)", domain=[smallest, largest], nice=False)
    y = charts.percent_axis(alt.Y, "ettr", "ETTR")
    # The label stands beside the fall of the curve, to its left where there are no points.
    middle = (curve[0]["ettr"] + curve[-1]["ettr"]) / 2
    place = min(curve, key=lambda row: abs(row["ettr"] - middle))
    layers: list[Any] = [
        alt.Chart(charts.data(curve)).mark_line(color=colour("model")).encode(x=x, y=y),
        charts.line_labels(
            [{**place, "text": "expected (exact form)"}], x, y, "text", align="right", dx=-8, dy=4
        ),
    ]
    if points:
        shown = charts.tooltip(
            {
                "size": "GPUs",
                "runs": ("runs", ",d"),
                "ettr": ("measured ETTR", ".1%"),
                "low": ("from", ".1%"),
                "high": ("to", ".1%"),
            }
        )
        layers.append(
            charts.interval_points(x, y, "low", "high", shown).properties(data=charts.data(points))
        )
    caption = "Expected (line)"
    if points:
        caption += f" and measured (points; 95 % interval from {FEWEST_RUNS} runs on)"
    return Figure(alt.layer(*layers), caption)


def _expected(
    setting: Mapping[str, float], gpus_per_node: int, smallest: float, largest: float
) -> list[dict[str, float]]:
    """Points of the exact form over job size; a job of part of a node fails with its node."""
    ratio = math.log(largest / smallest) / (CURVE_POINTS - 1)
    sizes = [smallest * math.exp(ratio * step) for step in range(CURVE_POINTS)]
    per_s = setting["rate_per_node_day"] / 86_400
    values = long_run_ettr(
        [max(gpus / gpus_per_node, 1.0) * per_s for gpus in sizes],
        setting["checkpoint_interval_s"],
        setting["init_s"],
        setting["write_s"],
        setting["queue_s"],
    )
    return [{"gpus": g, "ettr": float(value)} for g, value in zip(sizes, values, strict=True)]


def contours(setting: Mapping[str, float], job: str, rate: RateUnit) -> Figure:
    """Failure rate against checkpoint interval at given ETTR, with the present setting."""
    now_s = setting["checkpoint_interval_s"]
    scale, unit = (60, "minutes") if now_s >= 60 else (1, "seconds")
    here = {
        "interval": now_s / scale,
        "rate": rate.of(1000 * setting["rate_per_node_day"]),
        "text": "now",
    }
    table = ettr_contours(
        setting["nodes"],
        init_s=setting["init_s"],
        write_s=setting["write_s"],
        queue_s=setting["queue_s"],
        checkpoint_interval_s=[now_s * 10 ** (step / 15 - 2) for step in range(46)],
    ).to_pylist()
    rows = [
        {
            "interval": row["checkpoint_interval_s"] / scale,
            "rate": rate.of(1000 * row["rate_per_node_day"]),
            "ettr": f"{row['ettr']:.0%}".replace("%", " %"),
        }
        for row in table
    ]
    rows = [row for row in rows if here["rate"] / 1000 < row["rate"] < here["rate"] * 1000]
    if not rows:
        return Figure(nothing("No contour lies near the fitted rate."))
    ends = [min(row["interval"] for row in rows), max(row["interval"] for row in rows)]
    x = charts.log_axis(alt.X, "interval", f"Checkpoint interval ({unit})", domain=ends, nice=False)
    y = charts.log_axis(alt.Y, "rate", f"Failures {rate.text}")
    tops: dict[str, dict[str, Any]] = {}
    for row in rows:  # a label stands above the highest point of its line
        if row["ettr"] not in tops or row["rate"] > tops[row["ettr"]]["rate"]:
            tops[row["ettr"]] = {**row, "text": f"ETTR {row['ettr']}"}
    lines = (
        alt.Chart(charts.data(rows))
        .mark_line()
        .encode(
            x=x,
            y=y,
            color=charts.meaning_colour("ettr", dict(zip(tops, CONTOUR_COLOURS, strict=False))),
            tooltip=charts.tooltip(
                {"ettr": "ETTR", "interval": (unit, ",.3~r"), "rate": (rate.text, ",.3~r")}
            ),
        )
    )
    point = alt.Chart(charts.data([here])).mark_point(shape="diamond", size=110).encode(x=x, y=y)
    return Figure(
        alt.layer(
            lines,
            charts.line_labels(tops.values(), x, y, "text", dx=0),
            point,
            charts.line_labels([here], x, y, "text", fontWeight=600),
        ),
        f"ETTR of a job on {job}, by failure rate and checkpoint interval",
    )


def survival(curve: pa.Table) -> Figure:
    """Kaplan-Meier curve of one node's time to failure while a job runs."""
    steps: list[dict[str, Any]] = curve.to_pylist()
    longest_s = max((step["time_s"] for step in steps), default=0.0)
    scale, unit = (3600, "hours") if longest_s >= 7200 else (60, "minutes")
    rows = [{**step, "time": step["time_s"] / scale} for step in steps]
    x = alt.X("time", type="quantitative").title(f"Running time ({unit})")
    y = charts.percent_axis(alt.Y, "survival", "Nodes without a failure so far", zero=False)
    base = alt.Chart(charts.data(rows))
    band = base.mark_area(opacity=0.25, interpolate="step-after").encode(
        x=x, y=charts.same_axis(y, "low"), y2="high:Q"
    )
    line = base.mark_line(interpolate="step-after").encode(x=x, y=y)
    return Figure(alt.layer(band, line), "Kaplan-Meier estimate with its 95 % interval")
