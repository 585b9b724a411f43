"""The charts of a run report on where the time went: the waterfall, the attempts, the rolling ETTR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.fleet.moments import moment
from holdfast.report import Figure, figures
from holdfast.report.theme import colour
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.ledger import PARTS, Ledger
from holdfast.runs.goodput.wording import PARTS_IN_WORDS, ending, gpu_unit, seconds

WATERFALL = (
    *("queue", "down", "init", "idle", "replayed", "checkpoint", "data_wait", "evaluation"),
)
"""The losses, from outside the attempts to inside the training."""
MOST_LANES = 40
MOST_MARKS = 2_000
SEAM = 0.4
"""Bins that a rectangle is drawn too far."""
WHOLE = 0.999
"""A part with a larger share of a bin fills it."""


def waterfall(made: Breakdown) -> Figure:
    """From the wall time down to the productive time, one step a loss."""
    unit = gpu_unit(made)
    losses = {part: made.gpu_hours[part] * unit.per_hour for part in WATERFALL}
    words = {part: PARTS_IN_WORDS[part] for part in (*WATERFALL, "productive")}
    return figures.waterfall(
        [
            ("wall time", sum(made.gpu_hours.values()) * unit.per_hour),
            *((words[part].name, -amount) for part, amount in losses.items() if amount),
        ],
        unit.name[0].upper() + unit.name[1:],
        total=words["productive"].name,
        meanings={"wall time": "measured", **{each.name: each.colour for each in words.values()}},
    )


def time_line(ledger: Ledger, made: Breakdown) -> Figure:
    """What the ranks of each attempt did over time: one lane an attempt, its height the ranks."""
    lanes = len(made.attempts) <= MOST_LANES
    rows = _stretches(ledger, made, lanes)
    shown = {PARTS_IN_WORDS[row["key"]].name: PARTS_IN_WORDS[row["key"]].colour for row in rows}
    order = [words.name for words in PARTS_IN_WORDS.values()]
    legend = {name: shown[name] for name in order if name in shown}
    labels = [f"{each.attempt} {ending(each)}" for each in made.attempts] if lanes else ["all"]
    marked = [
        (marks, name, shape)
        for marks, name, shape in (
            (_published(ledger, made, lanes), "▼ a checkpoint became complete", "triangle-down"),
            (_cuts(made, lanes), "✚ the attempt was cut off", "cross"),
        )
        if marks
    ]
    caption = "; ".join(name for _, name, _ in marked)
    return Figure(lambda: _lanes(rows, labels, legend, marked, day_title(made)), caption, legend)


def _lanes(
    rows: list[dict[str, Any]],
    labels: list[str],
    legend: Mapping[str, str],
    marked: Sequence[tuple[list[dict[str, Any]], str, str]],
    title: str,
) -> dict[str, Any]:
    """A lane per label: rectangles, and marks over them."""
    count = len(labels)
    y = {
        "type": "quantitative",
        "title": "Attempt, and how it ended",
        "scale": {"domain": [0, count], "reverse": True, "nice": False},
        "axis": {
            "values": [lane + 0.5 for lane in range(count)],
            "labelExpr": f"{labels!r}[floor(datum.value)]",
            "grid": False,
        },
    }
    values = figures.plain_rows(rows)
    bars = {
        "data": {"values": values},
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": figures.time_axis("from", title, "UTC"),
            "x2": {"field": "drawn"},
            "y": {"field": "top", **y},
            "y2": {"field": "bottom"},
            "color": figures.meanings_colour("part", legend),
            "tooltip": figures.tooltip(
                values, ["attempt", "part", "share", "from", "to"], times={"from", "to"}
            ),
        },
    }
    layers: list[dict[str, Any]] = [bars]
    for marks, _, shape in marked:
        points = figures.plain_rows(marks)
        mark = {"type": "point", "shape": shape, "filled": True, "size": 50, "opacity": 1}
        layers.append(
            {
                "data": {"values": points},
                "mark": {**mark, "color": colour("ink")},
                "encoding": {
                    "x": figures.time_axis("at", title, "UTC"),
                    "y": {"field": "lane", **y},
                    "tooltip": figures.tooltip(points, ["text", "at"], times={"at"}),
                },
            }
        )
    return {"layer": layers, "height": max(34 * count, 60)}


def _stretches(ledger: Ledger, made: Breakdown, lanes: bool) -> list[dict[str, Any]]:
    """Rectangles: a bin of time, and the share of a part in it, stacked."""
    binned = ledger.binned if lanes else ledger.binned.sum(axis=0, keepdims=True)
    rows: list[dict[str, Any]] = []
    for lane, seconds_of in enumerate(binned):
        begin, end = 0.0, made.wall_s
        if lanes:
            window = ledger.window.attempts[lane]
            begin, end = window.begin_s - window.down_s - window.queue_s, window.end_s
        filled = seconds_of.sum(axis=0)
        for place in np.flatnonzero(filled > 0).tolist():
            low = max(place * ledger.bin_s, begin)
            high = min((place + 1) * ledger.bin_s, end)
            bottom = lane + 0.14
            shares = seconds_of[:, place] / filled[place]
            if shares.max() > WHOLE:
                shares = np.where(shares == shares.max(), 1.0, 0.0)
            for key in (*WATERFALL[::-1], "productive"):
                share = float(shares[PARTS.index(key)])
                if share <= 0:
                    continue
                row = {
                    "key": key,
                    "part": PARTS_IN_WORDS[key].name,
                    "attempt": str(lane + 1) if lanes else "all",
                    "share": share,
                    "top": bottom,
                    "bottom": bottom + 0.72 * share,
                    "from": low,
                    "to": high,
                    "until": end,
                }
                bottom += 0.72 * share
                if not _joined(rows, row):
                    rows.append(row)
    return [
        {
            **row,
            "from": moment(made.began_s + row["from"]),
            "to": moment(made.began_s + row["to"]),
            # No seam between neighbours: the next one is drawn over it.
            "drawn": moment(made.began_s + min(row["to"] + SEAM * ledger.bin_s, row["until"])),
        }
        for row in rows
    ]


def _joined(rows: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    """Whether the last rectangle could be drawn out to cover this one."""
    if not rows or row["share"] < 1 or rows[-1]["to"] < row["from"] - 1e-9:
        return False
    if any(rows[-1][name] != row[name] for name in ("key", "attempt", "share")):
        return False
    rows[-1]["to"] = row["to"]
    return True


def _published(ledger: Ledger, made: Breakdown, lanes: bool) -> list[dict[str, Any]]:
    """When each checkpoint was complete, where that was recorded; else when its writing ended."""
    of = ledger.attempt_of()
    told = [
        {
            "at": moment(made.began_s + at_s),
            "lane": (int(of[process]) if lanes else 0) + 0.14,
            "text": f"checkpoint of step {step:,} complete",
        }
        for process, step, at_s in ledger.published()
    ]
    return told[:: max(len(told) // MOST_MARKS, 1)]


def _cuts(made: Breakdown, lanes: bool) -> list[dict[str, Any]]:
    """The ends of attempts that did not end by themselves."""
    return [
        {
            "at": moment(made.began_s + each.end_s),
            "lane": (each.attempt - 1 if lanes else 0) + 0.5,
            "text": ending(each)
            + ("" if each.first_rank_gone is None else f", rank {each.first_rank_gone} first"),
        }
        for each in made.attempts
        if each.interrupted
    ][:MOST_MARKS]


def rolling(made: Breakdown) -> Figure:
    """The ETTR of a window that moves over the run; the dashed line is that of the whole run."""
    rows = [
        {"at": moment(made.began_s + end), "ettr": 100 * value}
        for end, value in zip(made.rolling.end_s, made.rolling.ettr, strict=True)
    ]
    title = f"ETTR of the last {seconds(made.rolling.window_s)} (%)"
    drawn = figures.lines(
        rows, "at", "ettr", day_title(made), title, zone="UTC", reference=100 * made.ettr
    )
    return replace(drawn, caption="Dashed: the whole run")


def day_title(made: Breakdown) -> str:
    """An axis that shows hours only names the day."""
    first, last = moment(made.began_s), moment(made.began_s + made.wall_s)
    return f"Time on {first:%Y-%m-%d}" if first.date() == last.date() else "Time"
