"""The charts of a fleet report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import altair as alt
import pandas as pd
import pyarrow as pa

from holdfast.fleet.attribution import UNATTRIBUTED
from holdfast.fleet.ettr_forms import long_run_ettr
from holdfast.fleet.ettr_solve import contours as ettr_contours
from holdfast.fleet.failures import Mttf
from holdfast.fleet.losses import Goodput
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.ettr_measured import MeasuredEttr
from holdfast.fleet.state_mix import Status
from holdfast.report import Figure, charts
from holdfast.report.theme import colour

STATE_COLOURS = {
    "COMPLETED": "good",
    "FAILED": "user",
    "NODE_FAIL": "hardware",
    "PREEMPTED": "sky",
    "REQUEUED": "purple",
    "TIMEOUT": "yellow",
    "OUT_OF_MEMORY": "system",
    "CANCELLED": "unattributed",
}
OTHER_STATES = "other"

# Causes are drawn in the order of their counts; the colour says hardware, system or user only where
# a figure is about domains, so that here each cause gets one of its own.
CAUSE_COLOURS = ("hardware", "user", "system", "good", "sky", "purple", "yellow")
ALL_OTHER = "all other causes"
ORDERS = {"first order": "first", "second order (preempted by a restart)": "second"}
CURVE_POINTS = 60
PERCENT = ".0%"


def status_mix(status: Status) -> Figure:
    """Shares of the states, by count and by GPU time."""
    kept = {s: c for s, c in STATE_COLOURS.items() if s in set(status.table["state"])}
    bases = {"by attempts": "share_by_count", "by GPU time": "share_by_gpu_time"}
    legend = dict(kept)
    rows = []
    for base, column in bases.items():
        shares = dict(zip(status.table["state"], status.table[column], strict=True))
        other = sum(share for state, share in shares.items() if state not in kept)
        parts = {**{state: shares[state] for state in kept}, OTHER_STATES: other}
        rows += [
            {"base": base, "state": state, "share": share, "order": order}
            for order, (state, share) in enumerate(parts.items())
        ]
    if any(row["state"] == OTHER_STATES and row["share"] > 0 for row in rows):
        legend[OTHER_STATES] = "ramp1"
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("share:Q").axis(format=PERCENT).title("Share").scale(domain=[0, 1]),
            y=alt.Y("base:N").title(None),
            color=charts.meaning_colour("state", legend),
            order="order:Q",
            tooltip=charts.tooltip({"base": "base", "state": "state", "share": ("share", ".2%")}),
        )
        .properties(height={"step": 34})
    )
    return Figure(chart, legend=legend)


def rate_over_time(over_time: pd.DataFrame, unit: str, introduced: pd.DataFrame) -> Figure:
    """Failures per 1,000 node-days in each bin of time, stacked by cause."""
    totals = over_time.groupby("cause")["failures"].sum().sort_values(ascending=False)
    named = [cause for cause in totals.index if cause != UNATTRIBUTED][: len(CAUSE_COLOURS)]
    legend = dict(zip(named, CAUSE_COLOURS, strict=False))
    if len(named) + (UNATTRIBUTED in totals.index) < len(totals):
        legend[ALL_OTHER] = "ramp1"
    if UNATTRIBUTED in totals.index:
        legend[UNATTRIBUTED] = "unattributed"
    shown = over_time[over_time["node_days"] > 0].copy()
    shown["cause"] = [
        None if cause is None else cause if cause in legend else ALL_OTHER
        for cause in shown["cause"]
    ]
    rows = [
        {
            "begin": _moment(row.begin_s),
            "end": _moment(row.end_s),
            "cause": row.cause,
            "failures": row.failures,
            "rate": 1000 * row.failures / row.node_days,
            "order": list(legend).index(row.cause),
        }
        for row in shown.groupby(["begin_s", "end_s", "cause"], as_index=False)
        .agg(failures=("failures", "sum"), node_days=("node_days", "first"))
        .itertuples()
    ]
    axis = charts.time_axis("begin", f"Time, one bar a {unit}")
    if len(over_time):
        span = [_moment(over_time["begin_s"].min()), _moment(over_time["end_s"].max())]
        axis = axis.scale(type="utc", domain=[_millis(at) for at in span])
    bars = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=axis,
            x2="end:T",
            y=alt.Y("rate:Q").title("Failures per 1,000 node-days"),
            color=charts.meaning_colour("cause", legend),
            order="order:Q",
            tooltip=charts.tooltip(
                {
                    "begin": ("from", "%Y-%m-%d %H:%M"),
                    "cause": "cause",
                    "failures": ("failures", ",d"),
                    "rate": ("per 1,000 node-days", ",.3~r"),
                }
            ),
        )
    )
    events = [
        (_moment(first_s), f"check “{check}” first seen ({_moment(first_s):%Y-%m-%d %H:%M})")
        for check, first_s in zip(introduced["check"], introduced["first_s"], strict=True)
    ]
    if not events:
        return Figure(bars, legend=legend)
    marks, notes = charts.event_marks(events)
    return Figure(bars + marks, legend=legend, notes=notes)


def mttf_by_size(by_size: Mttf, fitted: Mttf) -> Figure:
    """MTTF of each job size with its interval, and the 1/N line of the fitted rate."""
    per_node = by_size.gpus_per_node
    points = []
    for bucket in by_size.model.buckets_:
        if not bucket.gpus_max or not bucket.failures or bucket.ci95 is None:
            continue
        nodes = max(1, math.ceil(bucket.gpus_max / per_node))
        low, high = bucket.ci95
        rate = bucket.rate_per_1000_node_days or math.nan
        points.append(
            {
                "gpus": bucket.gpus_max,
                "size": bucket_label(bucket.gpus_max),
                "failures": bucket.failures,
                "mttf": 24_000 / (rate * nodes),
                "low": 24_000 / (high * nodes),
                "high": 24_000 / (low * nodes),
            }
        )
    if not points:
        return Figure(_nothing("No failures: there is no MTTF to draw."))
    sizes = [point["gpus"] for point in points]
    ends = sorted({per_node, *sizes, *fitted.project, 8 * max(sizes)})
    line = [{"gpus": gpus, "mttf": fitted.model.mttf_hours(gpus, per_node)[0]} for gpus in ends]
    x = charts.log_axis(alt.X, "gpus", "Job size (GPUs)", domain=[min(ends[0], sizes[0]), ends[-1]])
    y = charts.log_axis(alt.Y, "mttf", "Mean time to failure (hours)")
    shown = charts.tooltip(
        {"size": "GPUs", "failures": ("failures", ",d"), "mttf": ("MTTF (hours)", ",.3~r")}
    )
    layers: list[Any] = [
        charts.interval_points(x, y, "low", "high", shown).properties(data=charts.data(points))
    ]
    if fitted.model.failures_:
        place = line[-2] if len(line) > 2 else line[0]
        layers = [
            alt.Chart(charts.data(line)).mark_line(color=colour("model")).encode(x=x, y=y),
            *layers,
            charts.line_labels(
                [{**place, "text": "1/N with the fitted rate"}],
                x,
                y,
                "text",
                align="right",
                dx=-8,
                dy=16,
            ),
        ]
    return Figure(alt.layer(*layers))


def loss_by_size(goodput: Goodput) -> Figure:
    """GPU-hours lost in each job size, two orders."""
    table = goodput.by_job_size[goodput.by_job_size["gpus_max"] > 0]
    sizes = [bucket_label(int(top)) for top in table["gpus_max"]]
    rows = [
        {"size": size, "order": order, "hours": hours, "rank": rank}
        for rank, (order, column) in enumerate(
            zip(ORDERS, ("first_order", "second_order"), strict=True)
        )
        for size, hours in zip(sizes, table[column], strict=True)
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("hours:Q").title("GPU-hours lost"),
            y=alt.Y("size:N").sort(sizes).title("Job size (GPUs)"),
            color=charts.meaning_colour("order", ORDERS),
            order="rank:Q",
            tooltip=charts.tooltip(
                {"size": "GPUs", "order": "order", "hours": ("GPU-hours", ",.3~r")}
            ),
        )
    )
    return Figure(chart, legend=ORDERS)


def expected_and_measured(
    measured: MeasuredEttr, setting: Mapping[str, float], gpus_per_node: int
) -> Figure:
    """Expected ETTR against job size, with what the long runs had."""
    largest = max([float(setting["nodes"]), *(measured.by_size["gpus"] / gpus_per_node), 2.0])
    nodes = [
        math.exp(math.log(4 * largest) * step / (CURVE_POINTS - 1)) for step in range(CURVE_POINTS)
    ]
    per_s = setting["rate_per_node_day"] / 86_400
    values = long_run_ettr(
        [n * per_s for n in nodes],
        setting["checkpoint_interval_s"],
        setting["init_s"],
        setting["write_s"],
        setting["queue_s"],
    )
    curve = [
        {"gpus": n * gpus_per_node, "ettr": float(value)}
        for n, value in zip(nodes, values, strict=True)
    ]
    x = charts.log_axis(alt.X, "gpus", "Job size (GPUs)")
    y = alt.Y("ettr", type="quantitative").scale(domain=[0, 1]).axis(format=PERCENT).title("ETTR")
    layers: list[Any] = [
        alt.Chart(charts.data(curve)).mark_line(color=colour("model")).encode(x=x, y=y),
        charts.line_labels(
            [{**curve[CURVE_POINTS // 3], "text": "expected (exact form)"}], x, y, "text"
        ),
    ]
    if measured.runs:
        points = [
            {**row, "size": bucket_label(int(row["gpus_max"])), "gpus": max(row["gpus"], 1.0)}
            for row in measured.by_size.to_dict("records")
        ]
        shown = charts.tooltip(
            {
                "size": "GPUs",
                "runs": ("runs", ",d"),
                "ettr": ("measured ETTR", ".1%"),
                "lo": ("from", ".1%"),
                "hi": ("to", ".1%"),
            }
        )
        layers.append(
            charts.interval_points(x, y, "lo", "hi", shown).properties(data=charts.data(points))
        )
    return Figure(alt.layer(*layers), "Expected (line) and measured (points, 95 % interval)")


def contours(setting: Mapping[str, float], gpus: int) -> Figure:
    """Failure rate against checkpoint interval at given ETTR, with the present setting."""
    here = {
        "interval": setting["checkpoint_interval_s"] / 60,
        "rate": 1000 * setting["rate_per_node_day"],
        "text": "now",
    }
    table = ettr_contours(
        setting["nodes"],
        init_s=setting["init_s"],
        write_s=setting["write_s"],
        queue_s=setting["queue_s"],
        checkpoint_interval_s=[
            setting["checkpoint_interval_s"] * 10 ** (step / 15 - 2) for step in range(46)
        ],
    ).to_pylist()
    near = [
        row
        for row in table
        if here["rate"] / 1000 < 1000 * row["rate_per_node_day"] < here["rate"] * 1000
    ]
    rows = [
        {
            "interval": row["checkpoint_interval_s"] / 60,
            "rate": 1000 * row["rate_per_node_day"],
            "ettr": f"{row['ettr']:.0%}",
        }
        for row in near
    ]
    if not rows:
        return Figure(_nothing("No contour lies near the fitted rate."))
    x = charts.log_axis(alt.X, "interval", "Checkpoint interval (minutes)")
    y = charts.log_axis(alt.Y, "rate", "Failures per 1,000 node-days")
    ends = {}
    for row in rows:
        ends.setdefault(row["ettr"], {**row, "text": f"ETTR {row['ettr']}"})
    lines = (
        alt.Chart(charts.data(rows))
        .mark_line()
        .encode(
            x=x,
            y=y,
            color=alt.Color("ettr", type="ordinal").legend(None),
            tooltip=charts.tooltip(
                {"ettr": "ETTR", "interval": ("minutes", ",.3~r"), "rate": ("rate", ",.3~r")}
            ),
        )
    )
    point = alt.Chart(charts.data([here])).mark_point(shape="diamond", size=90).encode(x=x, y=y)
    return Figure(
        alt.layer(
            lines,
            charts.line_labels(ends.values(), x, y, "text"),
            point,
            charts.line_labels([here], x, y, "text"),
        ),
        f"ETTR of a job on {gpus:,} GPUs, by failure rate and checkpoint interval",
    )


LEMON_SIGNALS = {
    "failures": ("failures to blame on it", "hardware"),
    "out_count": ("times out of service", "system"),
    "xid_cnt": ("distinct XIDs", "user"),
    "excl_jobid_count": ("jobs that exclude it", "good"),
}


def lemon_cdfs(nodes: pa.Table, lemons: Sequence[str]) -> Figure:
    """Share of the nodes at or below each value of four signals; the worst nodes by name."""
    frame = nodes.to_pandas()
    rows, legend = [], {}
    for column, (label, name) in LEMON_SIGNALS.items():
        if frame[column].max() <= 0:
            continue
        legend[label] = name
        counts = frame[column].value_counts().sort_index()
        share = counts.cumsum() / counts.sum()
        if share.index[0] > 0:
            rows.append({"value": 0.0, "share": 0.0, "signal": label})
        rows += [
            {"value": float(value), "share": float(part), "signal": label}
            for value, part in share.items()
        ]
    if not rows:
        return Figure(_nothing("No node has a failure or another sign."))
    named = set(lemons) or set(frame["node"].head(2))
    worst = frame[frame["node"].isin(named)].head(6)
    places = [
        {
            "value": float(row.failures),
            "share": float((frame["failures"] <= row.failures).mean()),
            "node": row.node,
        }
        for row in worst.itertuples()
        if row.failures > 0
    ]
    x = alt.X("value", type="quantitative").title("Value of the signal")
    y = (
        alt.Y("share", type="quantitative")
        .axis(format=PERCENT)
        .title("Share of nodes at or below")
        .scale(domain=[0, 1])
    )
    lines = (
        alt.Chart(charts.data(rows))
        .mark_line(interpolate="step-after")
        .encode(x=x, y=y, color=charts.meaning_colour("signal", legend))
    )
    dots = alt.Chart(charts.data(places)).mark_point(size=70).encode(x=x, y=y)
    labels = charts.line_labels(places, x, y, "node", align="right", dx=-4, dy=16)
    return Figure(alt.layer(lines, dots, labels), legend=legend)


def survival(curve: pa.Table) -> Figure:
    """Kaplan-Meier curve of one node's time to failure while a job runs."""
    rows = [{**row, "hours": row["time_s"] / 3600} for row in curve.to_pylist()]
    x = alt.X("hours", type="quantitative").title("Running time (hours)")
    y = (
        alt.Y("survival", type="quantitative")
        .scale(zero=False)
        .axis(format=".1%")
        .title("Nodes without a failure so far")
    )
    base = alt.Chart(charts.data(rows))
    band = base.mark_area(opacity=0.25, interpolate="step-after", stroke=None).encode(
        x=x, y=alt.Y("low", type="quantitative").title(None), y2="high:Q"
    )
    line = base.mark_line(interpolate="step-after").encode(x=x, y=y)
    return Figure(alt.layer(band, line), "Kaplan-Meier estimate with its 95 % interval")


def job_timeline(
    attempts: Sequence[Mapping[str, Any]], causes: Sequence[Mapping[str, Any]]
) -> Figure:
    """Attempts of one job as bars, and the checks near their ends as ticks."""
    states = {str(row["state"]) for row in attempts}
    legend = {state: name for state, name in STATE_COLOURS.items() if state in states}
    legend |= dict.fromkeys(sorted(states - set(legend)), "ramp1")
    number = {row["key"]: row["attempt"] for row in attempts}
    bars = [
        {
            "attempt": row["attempt"],
            "start": _moment(row["start_s"]),
            "end": _moment(row["stop_s"]),
            "state": row["state"],
        }
        for row in attempts
    ]
    signs = [
        {
            "attempt": number[row["key"]],
            "at": _moment(row["time_s"]),
            "check": row["check"],
            "node": row["node"],
        }
        for row in causes
    ]
    y = alt.Y("attempt:O").title("Attempt")
    chart = (
        alt.Chart(charts.data(bars))
        .mark_bar(height={"band": 0.6})
        .encode(
            x=charts.time_axis("start", "Time"),
            x2="end:T",
            y=y,
            color=charts.meaning_colour("state", legend),
            tooltip=charts.tooltip(
                {
                    "attempt": "attempt",
                    "state": "state",
                    "start": ("start", "%Y-%m-%d %H:%M:%S"),
                    "end": ("end", "%Y-%m-%d %H:%M:%S"),
                }
            ),
        )
    )
    ticks = (
        alt.Chart(charts.data(signs))
        .mark_tick(color=colour("ink"), thickness=3, height=20)
        .encode(
            x=alt.X("at", type="temporal").scale(type="utc"),
            y=y,
            tooltip=charts.tooltip(
                {"check": "check", "node": "node", "at": ("at", "%Y-%m-%d %H:%M:%S")}
            ),
        )
    )
    return Figure(alt.layer(chart, ticks), legend={**legend, "a failed check": "ink"})


def _nothing(text: str) -> alt.Chart:
    """A figure that says why there is none."""
    return (
        alt.Chart(charts.data([{"text": text}]))
        .mark_text(color=colour("muted"), fontSize=14)
        .encode(text="text:N")
        .properties(height=60)
    )


def _moment(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(float(epoch_s), UTC)


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
