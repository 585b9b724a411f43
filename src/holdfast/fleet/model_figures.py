"""Charts of estimates and of what they predict: the failure rate, MTTF, ETTR."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.ettr_forms import long_run_ettr
from holdfast.fleet.ettr_measured import MeasuredEttr
from holdfast.fleet.failures import Mttf
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.moments import moment
from holdfast.fleet.summary import FEWEST_RUNS
from holdfast.fleet.wording import RATE_UNIT
from holdfast.report import Figure, charts
from holdfast.report.theme import colour
from holdfast.stats import poisson_interval

# Most causes are of hardware, so blue, orange and vermilion, which mean user, system and hardware, would
# mislead here.
CAUSE_COLOURS = ("purple", "sky", "good", "yellow", "ramp5", "ramp1")  # "first" is a loss
ALL_OTHER = "all other causes"
CURVE_POINTS = 60
BEYOND = 32
"""A projection reaches this many times the largest job."""


def rate_over_time(over_time: pd.DataFrame, unit: str, introduced: pd.DataFrame) -> Figure | None:
    """Failures per exposure in each bin of time, stacked by cause, with the total's interval.

    None without a failure.
    """
    legend = _cause_legend(over_time)
    bars, totals = _stacked(over_time[over_time["node_days"] > 0], legend)
    if not bars:
        return None
    axis = charts.time_axis("begin", f"Time, one bar a {unit}" * (not unit[0].isdigit()) or "Time")
    # The whole log is in view, also where nothing failed at its ends. (A domain of times is compiled
    # to what Vega warns of.)
    span = [
        {"begin": moment(over_time["begin_s"].min())},
        {"begin": moment(over_time["end_s"].max())},
    ]
    highest = max(row["rate"] for row in totals)
    y = alt.Y("low", type="quantitative").scale(domain=[0, 1.5 * highest])
    y = y.title(f"Failures {RATE_UNIT}")
    layers: list[Any] = [
        alt.Chart(charts.data(span)).mark_rule(opacity=0).encode(x=axis),
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
                    "rate": (RATE_UNIT, ",.3~r"),
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
                    "rate": (f"all, {RATE_UNIT}", ",.3~r"),
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
    over_time: pd.DataFrame, legend: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(the part of each cause in each bar, from `low` to `high`; the total of each bar)."""
    place = {cause: order for order, cause in enumerate(legend)}
    parts, totals = [], []
    for _, rows in over_time.groupby("begin_s"):
        begin_s, end_s = float(rows["begin_s"].iloc[0]), float(rows["end_s"].iloc[0])
        ends = {"begin": moment(begin_s), "end": moment(end_s)}
        per_failure = 1000 / rows["node_days"].iloc[0]
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
        if not below:
            continue  # an upper bound alone would hide the bars beside it
        low, high = poisson_interval(below, 1.0)
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


def mttf_by_size(
    by_size: Mttf, fitted: Mttf, largest_nodes: int, in_nodes: bool = False
) -> Figure | None:
    """MTTF of each job size with its interval, and the 1/N line of the fitted rate with its band.

    Args:
        by_size: the failure model of all attempts, with its job sizes.
        fitted: the failure model of the line.
        largest_nodes: nodes of the largest job that ran; the line is dashed beyond.
        in_nodes: give sizes in nodes, for a log without GPUs.

    Returns:
        None without a failure.
    """
    if not fitted.model.failures_:
        return None
    per_node = fitted.gpus_per_node
    scale, unit = (per_node, "nodes") if in_nodes else (1, "GPUs")
    points = _mttf_points(by_size)
    largest = largest_nodes * per_node
    least = min([per_node, *(point["gpus"] for point in points)])
    line = []
    for gpus in sorted({least, per_node, largest, BEYOND * largest}):
        mttf, low, high = fitted.model.mttf_hours(gpus, per_node)
        line.append({"size": gpus / scale, "mttf": mttf, "low": low, "high": high})
    ran = [row for row in line if row["size"] <= largest / scale]
    domain = [line[0]["size"], line[-1]["size"]]
    x = charts.log_axis(alt.X, "size", f"Job size ({unit})", domain=domain, nice=False)
    y = charts.log_axis(alt.Y, "mttf", "Mean time to failure (hours)")
    band = (
        alt.Chart(charts.data(line))
        .mark_area(opacity=0.2, line=False)
        .encode(x=x, y=charts.same_axis(y, "low"), y2="high:Q")
    )
    dashed = alt.Chart(charts.data(line[len(ran) - 1 :])).mark_line(strokeDash=[4, 4])
    label = {**line[-1], "text": "1/N with the fitted rate"}
    layers: list[Any] = [
        band,
        dashed.encode(x=x, y=y),
        alt.Chart(charts.data(ran)).mark_line().encode(x=x, y=y),
        charts.line_labels([label], x, y, "text", align="right", dx=-60, dy=4),
    ]
    if points:
        shown = charts.tooltip(
            {
                "bucket": "GPUs",
                "failures": ("failures", ",d"),
                "mttf": ("MTTF (hours)", ",.3~r"),
                "low": ("from", ",.3~r"),
                "high": ("to", ",.3~r"),
            }
        )
        drawn = [{**point, "size": point["gpus"] / scale} for point in points]
        layers.append(
            charts.interval_points(x, y, "low", "high", shown).properties(data=charts.data(drawn))
        )
    caption = "The fitted rate with its 95 % interval, dashed beyond the largest job"
    return Figure(alt.layer(*layers), f"{caption}{'; points: each job size' if points else ''}")


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
                "bucket": bucket_label(bucket.gpus_max),
                "failures": bucket.failures,
                "mttf": 24_000 / ((bucket.rate_per_1000_node_days or math.nan) * nodes),
                "low": 24_000 / (high * nodes),
                "high": 24_000 / (low * nodes),
            }
        )
    return points


def expected_and_measured(
    measured: MeasuredEttr,
    settings: Sequence[Mapping[str, float]],
    gpus_per_node: int,
    in_nodes: bool = False,
) -> Figure:
    """Expected ETTR against job size, with what the long runs had.

    Args:
        measured: the long runs by job size.
        settings: the parameters of the expected ETTR with the fitted failure rate and with the two
            ends of its interval.
        gpus_per_node: GPUs of a node.
        in_nodes: give sizes in nodes, for a log without GPUs.
    """
    scale, unit = (gpus_per_node, "nodes") if in_nodes else (1, "GPUs")
    points = _ettr_points(measured)
    sizes = [point["gpus"] for point in points]
    largest = 4 * max([settings[0]["nodes"] * gpus_per_node, *sizes, 2.0 * gpus_per_node])
    smallest = min([*sizes, float(gpus_per_node)])
    ratio = math.log(largest / smallest) / (CURVE_POINTS - 1)
    steps = [smallest * math.exp(ratio * step) for step in range(CURVE_POINTS)]
    # A job on a part of a node fails with its node.
    nodes = [max(gpus / gpus_per_node, 1.0) for gpus in steps]
    values, high, low = (_long_run(setting, nodes) for setting in settings)
    curve = [
        {"size": gpus / scale, "ettr": value, "low": bottom, "high": top}
        for gpus, value, bottom, top in zip(steps, values, low, high, strict=True)
    ]
    domain = [smallest / scale, largest / scale]
    x = charts.log_axis(alt.X, "size", f"Job size ({unit})", domain=domain, nice=False)
    y = charts.percent_axis(alt.Y, "ettr", "ETTR")
    band = (
        alt.Chart(charts.data(curve))
        .mark_area(opacity=0.2, line=False)
        .encode(x=x, y=charts.same_axis(y, "low"), y2="high:Q")
    )
    layers: list[Any] = [
        band,
        alt.Chart(charts.data(curve)).mark_line(color=colour("model")).encode(x=x, y=y),
        _curve_label(curve, x, y),
    ]
    if points:
        shown = charts.tooltip(
            {
                "bucket": "GPUs",
                "runs": ("runs", ",d"),
                "ettr": ("measured ETTR", ".1%"),
                "low": ("from", ".1%"),
                "high": ("to", ".1%"),
            }
        )
        drawn = [{**point, "size": point["gpus"] / scale} for point in points]
        layers.append(
            charts.interval_points(x, y, "low", "high", shown).properties(data=charts.data(drawn))
        )
    caption = "Expected (line, with the 95 % interval of the failure rate)"
    if points:
        caption += f" and measured (points; interval from {FEWEST_RUNS} runs on)"
    return Figure(alt.layer(*layers), caption)


def _ettr_points(measured: MeasuredEttr) -> list[dict[str, Any]]:
    rows: list[dict[Any, Any]] = measured.by_size.to_dict("records")
    return [
        {
            **row,
            "bucket": bucket_label(int(row["gpus_max"])),
            "low": row["lo"] if row["runs"] >= FEWEST_RUNS else None,
            "high": row["hi"] if row["runs"] >= FEWEST_RUNS else None,
        }
        for row in rows
        if row["gpus"] > 0
    ]


def _long_run(setting: Mapping[str, float], nodes: Sequence[float]) -> list[float]:
    """The exact form at each number of nodes."""
    values: list[float] = long_run_ettr(
        [each * setting["rate_per_node_day"] / 86_400 for each in nodes],
        setting["checkpoint_interval_s"],
        setting["init_s"],
        setting["write_s"],
        setting["queue_s"],
    ).tolist()
    return values


def _curve_label(curve: Sequence[Mapping[str, float]], x: alt.X, y: alt.Y) -> alt.Chart:
    """The name of the expected curve: left of its fall, or below it where it is flat."""
    begin, end = curve[0]["ettr"], curve[-1]["ettr"]
    text = {"text": "expected (exact form)"}
    if begin - end < 0.4:
        return charts.line_labels(
            [{**curve[-1], **text}], x, y, "text", align="right", dx=-8, baseline="top", dy=12
        )
    place = min(curve, key=lambda row: abs(row["ettr"] - (begin + end) / 2))
    return charts.line_labels([{**place, **text}], x, y, "text", align="right", dx=-14, dy=8)
