"""Charts of what happened: states, losses, nodes, the attempts of one job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
import pyarrow as pa

from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.losses import Goodput
from holdfast.fleet.moments import moment
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
ORDERS = {"first order": "first", "second order (preempted by a restart)": "second"}
MOST_LABELS = 4
LABEL_ROOM = 0.25
"""Share of the axis that a node's name takes."""


def status_mix(status: Status) -> Figure:
    """Shares of the states, by count and, where there is any, by GPU time."""
    kept = {s: c for s, c in STATE_COLOURS.items() if s in set(status.table["state"])}
    bases = {"attempts": "share_by_count", "GPU time": "share_by_gpu_time"}
    if not status.gpu_hours:
        del bases["GPU time"]
    rows = []
    for base, column in bases.items():
        shares = dict(zip(status.table["state"], status.table[column], strict=True))
        other = sum(share for state, share in shares.items() if state not in kept)
        parts = {**{state: shares[state] for state in kept}, OTHER_STATES: other}
        rows += [
            {"base": base, "state": state, "share": share, "order": order}
            for order, (state, share) in enumerate(parts.items())
        ]
    legend = dict(kept)
    if any(row["state"] == OTHER_STATES and row["share"] > 0 for row in rows):
        legend[OTHER_STATES] = "ramp1"
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=charts.percent_axis(alt.X, "share", "Share"),
            y=alt.Y("base:N").sort(list(bases)).title("Share of"),
            color=charts.meaning_colour("state", legend),
            order="order:Q",
            tooltip=charts.tooltip(
                {"base": "share of", "state": "state", "share": ("share", ".2%")}
            ),
        )
        .properties(height={"step": 34})
    )
    return Figure(chart, legend=legend)


def loss_by_size(goodput: Goodput) -> Figure | None:
    """GPU-hours lost in each job size, two orders; None without a loss."""
    table = goodput.by_job_size[goodput.by_job_size["gpus_max"] > 0]
    sizes = [bucket_label(int(top)) for top in table["gpus_max"]]
    return _losses(table, sizes, "Job size (GPUs)")


def loss_by_cause(goodput: Goodput) -> Figure | None:
    """GPU-hours lost to each cause, two orders; None without a loss."""
    return _losses(goodput.by_cause, list(goodput.by_cause["cause"]), "Likeliest cause")


def _losses(table: pd.DataFrame, names: Sequence[str], title: str) -> Figure | None:
    if not (table["first_order"] + table["second_order"]).sum():
        return None
    rows = [
        {"name": name, "order": order, "hours": hours, "rank": rank}
        for rank, (order, column) in enumerate(
            zip(ORDERS, ("first_order", "second_order"), strict=True)
        )
        for name, hours in zip(names, table[column], strict=True)
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("hours:Q").title("GPU-hours lost"),
            y=alt.Y("name:N").sort(list(names)).title(title),
            color=charts.meaning_colour("order", ORDERS),
            order="rank:Q",
            tooltip=charts.tooltip(
                {"name": title, "order": "order", "hours": ("GPU-hours", ",.3~r")}
            ),
        )
    )
    return Figure(chart, legend=ORDERS)


LEMON_SIGNALS = {
    "failures": ("failures to blame on it", "hardware"),
    "out_count": ("times out of service", "system"),
    "xid_cnt": ("distinct XIDs", "user"),
    "excl_jobid_count": ("jobs that exclude it", "good"),
    "tickets": ("tickets", "purple"),
}


def lemon_cdfs(nodes: pa.Table, lemons: Sequence[str]) -> Figure | None:
    """Share of the nodes at or below each value of the signals; None if no node has a sign."""
    frame = nodes.to_pandas()
    shown = {c: each for c, each in LEMON_SIGNALS.items() if frame[c].max() > 0}
    if not shown:
        return None
    largest = float(max(frame[column].max() for column in shown))
    rows = [
        row for column, (label, _) in shown.items() for row in _steps(frame[column], label, largest)
    ]
    x = (
        alt.X("value", type="quantitative")
        .scale(type="symlog", constant=1)
        .axis(values=_counts_to_label(largest))
        .title("Count, log scale from 1 on")
    )
    # Room above 100 % for the names of the nodes.
    y = charts.percent_axis(alt.Y, "share", "Share of nodes at or below", top=1.12)
    lines = (
        alt.Chart(charts.data(rows))
        .mark_line(interpolate="step-after")
        .encode(x=x, y=y, color=charts.meaning_colour("signal", dict(shown.values())))
    )
    layers: list[Any] = [lines]
    places = _named_nodes(frame, lemons)
    if places:
        dots = alt.Chart(charts.data(places)).mark_point(size=70).encode(x=x, y=y)
        labels = charts.line_labels(places, x, y, "nodes", align="right", dx=4, dy=-6)
        layers += [dots, labels]
    return Figure(alt.layer(*layers), legend=dict(shown.values()))


def _steps(values: pd.Series, label: str, largest: float) -> list[dict[str, Any]]:
    """The steps of a distribution function from 0 to the end of the axis."""
    share = values.value_counts(normalize=True).sort_index().cumsum()
    steps = {
        0.0: 0.0,
        **dict(zip(share.index.to_list(), share.to_list(), strict=True)),
        largest: 1.0,
    }
    return [
        {"value": value, "share": part, "signal": label} for value, part in sorted(steps.items())
    ]


def _counts_to_label(largest: float) -> list[float]:
    values = [0.0]
    for power in range(8):
        values += [step * 10.0**power for step in (1, 2, 5)]
    return [value for value in values if value <= 1.2 * largest]


def _named_nodes(frame: pd.DataFrame, lemons: Sequence[str]) -> list[dict[str, Any]]:
    """The lemons (or else the two worst nodes), those with close values under one label."""
    named = set(lemons) or set(frame["node"].head(2))
    failures = dict(zip(frame["node"], frame["failures"].to_list(), strict=True))
    worst = sorted((-failures[node], node) for node in named if failures.get(node, 0) > 0)
    room = LABEL_ROOM * math.log1p(max(failures.values(), default=0.0))
    groups: list[tuple[float, list[str]]] = []
    for negative, node in worst:
        if groups and math.log1p(groups[-1][0]) - math.log1p(-negative) < room:
            groups[-1][1].append(node)  # too close for a label of its own
        else:
            groups.append((-negative, [node]))
    return [
        {
            "value": value,
            "nodes": f"{nodes[0]} + {len(nodes) - 1}" if len(nodes) > 1 else nodes[0],
            "share": sum(each <= value for each in failures.values()) / len(failures),
        }
        for value, nodes in groups[:MOST_LABELS]
    ]


def job_timeline(
    attempts: Sequence[Mapping[str, Any]], causes: Sequence[Mapping[str, Any]]
) -> Figure:
    """Attempts of one job as bars, and the checks near their ends as ticks."""
    states = {str(row["state"]) for row in attempts}
    legend = {state: name for state, name in STATE_COLOURS.items() if state in states}
    legend |= dict.fromkeys(sorted(states - set(legend)), "ramp1")
    attempt_of = {row["key"]: row["attempt"] for row in attempts}
    bars = [
        {
            "attempt": row["attempt"],
            "start": moment(row["start_s"]),
            "end": moment(row["stop_s"]),
            "state": row["state"],
        }
        for row in attempts
    ]
    signs = [
        {
            "attempt": attempt_of[row["key"]],
            "at": moment(row["time_s"]),
            "check": row["check"],
            "node": row["node"],
        }
        for row in causes
    ]
    y = alt.Y("attempt:O").title("Attempt")
    exact = "%Y-%m-%d %H:%M:%S"
    layers: list[Any] = [
        alt.Chart(charts.data(bars))
        .mark_bar(height={"band": 0.6})
        .encode(
            x=charts.time_axis("start", _day_title(bars)),
            x2="end:T",
            y=y,
            color=charts.meaning_colour("state", legend),
            tooltip=charts.tooltip(
                {
                    "attempt": "attempt",
                    "state": "state",
                    "start": ("start", exact),
                    "end": ("end", exact),
                }
            ),
        )
    ]
    if signs:
        legend["a failed check"] = "ink"
        layers.append(
            alt.Chart(charts.data(signs))
            .mark_tick(color=colour("ink"), thickness=3, height=20)
            .encode(
                x=alt.X("at", type="temporal").scale(type="utc"),
                y=y,
                tooltip=charts.tooltip({"check": "check", "node": "node", "at": ("at", exact)}),
            )
        )
    return Figure(alt.layer(*layers), legend=legend)


def _day_title(bars: Sequence[Mapping[str, Any]]) -> str:
    """An axis that shows hours only names the day."""
    first, last = min(bar["start"] for bar in bars), max(bar["end"] for bar in bars)
    return f"Time on {first:%Y-%m-%d}" if first.date() == last.date() else "Time"
