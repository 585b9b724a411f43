"""Charts of what happened: states, losses, nodes, the attempts of one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.losses import Goodput
from holdfast.fleet.moments import moment
from holdfast.fleet.state_mix import Status
from holdfast.report import Figure
from holdfast.report import figures as standard

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


def status_mix(status: Status) -> Figure:
    """Shares of the states, by count and, where there is any, by GPU time."""
    states = status.table.to_pylist()
    kept = {s: c for s, c in STATE_COLOURS.items() if s in {row["state"] for row in states}}
    bases = {"attempts": "share_by_count", "GPU time": "share_by_gpu_time"}
    if not status.gpu_hours:
        del bases["GPU time"]
    rows: list[dict[str, Any]] = []
    for base, column in bases.items():
        parts = dict.fromkeys([*kept, OTHER_STATES], 0.0)
        for row in states:
            parts[row["state"] if row["state"] in kept else OTHER_STATES] += 100 * row[column]
        rows += [{"base": base, "state": state, "share": share} for state, share in parts.items()]
    legend = dict(kept)
    if any(row["state"] == OTHER_STATES and row["share"] > 0 for row in rows):
        legend[OTHER_STATES] = "ramp1"
    return standard.bars(
        rows, "base", "share", "Share (%)", label_title="Share of", part="state", meanings=legend
    )


def loss_by_size(goodput: Goodput) -> Figure | None:
    """GPU-hours lost in each job size, two orders; None without a loss."""
    rows = [row for row in goodput.by_job_size.to_pylist() if row["gpus_max"] > 0]
    return _losses(rows, [bucket_label(row["gpus_max"]) for row in rows], "Job size (GPUs)")


def loss_by_cause(goodput: Goodput) -> Figure | None:
    """GPU-hours lost to each cause, two orders; None without a loss."""
    rows = goodput.by_cause.to_pylist()
    return _losses(rows, [row["cause"] for row in rows], "Likeliest cause")


def _losses(losses: Sequence[Mapping[str, Any]], names: Sequence[str], title: str) -> Figure | None:
    if not sum(row["first_order"] + row["second_order"] for row in losses):
        return None
    rows = [
        {"name": name, "order": order, "hours": row[column]}
        for order, column in zip(ORDERS, ("first_order", "second_order"), strict=True)
        for name, row in zip(names, losses, strict=True)
    ]
    return standard.bars(
        rows, "name", "hours", "GPU-hours lost", label_title=title, part="order", meanings=ORDERS
    )


LEMON_SIGNALS = {
    "failures": ("failures to blame on it", "hardware"),
    "out_count": ("times out of service", "system"),
    "xid_cnt": ("distinct XIDs", "user"),
    "excl_jobid_count": ("jobs that exclude it", "good"),
    "tickets": ("tickets", "purple"),
}


def lemon_cdfs(nodes: pa.Table) -> Figure | None:
    """Share of the nodes at or below each value of the signals; None if no node has a sign."""
    counts = {column: nodes[column].to_pylist() for column in LEMON_SIGNALS}
    shown = {c: each for c, each in LEMON_SIGNALS.items() if max(counts[c], default=0) > 0}
    if not shown:
        return None
    series = {label: counts[column] for column, (label, _) in shown.items()}
    made = standard.ecdf(
        series, "Count per node, log scale from 1 on", meanings=dict(shown.values())
    )
    largest = max(max(values) for values in series.values())
    ticks = [0, *(step * 10**power for power in range(8) for step in (1, 2, 5))]
    axis = {"values": [tick for tick in ticks if tick <= largest]}
    return with_axis(made, "x", scale={"type": "symlog"}, axis=axis)


def with_axis(figure: Figure, channel: str, **changes: Any) -> Figure:
    """A standard figure with another scale or other labels on one of its axes."""

    def chart() -> Mapping[str, Any]:
        assert callable(figure.chart)
        spec: Any = figure.chart()
        for part in spec.get("layer", [spec]):
            part["encoding"][channel] = {**part["encoding"][channel], **changes}
        return cast("Mapping[str, Any]", spec)

    return replace(figure, chart=chart)


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
            "text": f"{row['check']} on {row['node']}",
        }
        for row in causes
    ]
    # An axis that shows hours only names the day.
    days = {f"{bar[end]:%Y-%m-%d}" for bar in bars for end in ("start", "end")}
    zone = f"{days.pop()}, UTC" if len(days) == 1 else "UTC"
    return standard.timeline(
        bars,
        "attempt",
        "start",
        "end",
        "state",
        legend,
        lane_title="Attempt",
        zone=zone,
        marks=signs,
    )
