"""The charts of a run report on where the time went: the waterfall, the attempts, the rolling ETTR."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from holdfast.fleet.moments import moment
from holdfast.numbers import percent
from holdfast.report import Figure, charts
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
EXACT = "%Y-%m-%d %H:%M:%S"


def waterfall(made: Breakdown) -> Figure:
    """From the wall time down to the productive time, one step a loss."""
    unit = gpu_unit(made)
    total = sum(made.gpu_hours.values()) * unit.per_hour
    rows = [_bar("wall time", "measured", 0.0, total, made.wall_s, 1.0)]
    left = total
    for part in WATERFALL:
        amount = made.gpu_hours[part] * unit.per_hour
        if not amount:
            continue
        words = PARTS_IN_WORDS[part]
        share = made.parts[part] / made.wall_s
        rows.append(_bar(words.name, words.colour, left - amount, left, made.parts[part], share))
        left -= amount
    words = PARTS_IN_WORDS["productive"]
    rows.append(_bar(words.name, words.colour, 0.0, left, made.parts["productive"], made.ettr))
    names = [row["name"] for row in rows]
    x = alt.X("low", type="quantitative").scale(domain=[0, 1.16 * total], nice=False)
    x = x.title(unit.name[0].upper() + unit.name[1:])
    y = alt.Y("name:N").sort(names).title(None)
    meanings = {row["name"]: row["colour"] for row in rows}
    bars = (
        alt.Chart()
        .mark_bar()
        .encode(
            x=x,
            x2="high:Q",
            y=y,
            color=charts.meaning_colour("name", meanings),
            tooltip=charts.tooltip(
                {
                    "name": "part",
                    "amount": (unit.name, ",.3~r"),
                    "seconds": ("seconds of wall time", ",.1f"),
                    "share": ("share of the wall time", ".2%"),
                }
            ),
        )
    )
    labels = (
        alt.Chart()
        .mark_text(align="left", dx=5, color=colour("ink"))
        .encode(x=charts.same_axis(x, "high"), y=y, text=alt.Text("text", type="nominal"))
    )
    chart = alt.layer(bars, labels, data=charts.data(rows)).properties(height={"step": 26})
    return Figure(chart)


def _bar(
    name: str, colour_name: str, low: float, high: float, length_s: float, share: float
) -> dict[str, Any]:
    return {
        "name": name,
        "colour": colour_name,
        "low": max(low, 0.0),
        "high": high,
        "amount": high - low,
        "seconds": length_s,
        "share": share,
        "text": percent(share),
    }


def time_line(ledger: Ledger, made: Breakdown) -> Figure:
    """What the ranks of each attempt did over time: one lane an attempt, its height the ranks."""
    lanes = len(made.attempts) <= MOST_LANES
    rows = _stretches(ledger, made, lanes)
    shown = {PARTS_IN_WORDS[row["key"]].name: PARTS_IN_WORDS[row["key"]].colour for row in rows}
    order = [words.name for words in PARTS_IN_WORDS.values()]
    legend = {name: shown[name] for name in order if name in shown}
    count = len(made.attempts) if lanes else 1
    labels = [f"{each.attempt} {ending(each)}" for each in made.attempts] if lanes else ["all"]
    y = (
        alt.Y("top", type="quantitative")
        .scale(domain=[0, count], reverse=True, nice=False)
        .axis(
            values=[lane + 0.5 for lane in range(count)],
            labelExpr=f"{labels!r}[floor(datum.value)]",
            grid=False,
        )
        .title("Attempt, and how it ended")
    )
    x = charts.time_axis("from", day_title(made))
    layers: list[Any] = [
        alt.Chart(charts.data(rows))
        .mark_rect(strokeWidth=0)
        .encode(
            x=x,
            x2="drawn:T",
            y=y,
            y2="bottom:Q",
            color=charts.meaning_colour("part", legend),
            tooltip=charts.tooltip(
                {
                    "attempt": "attempt",
                    "part": "part",
                    "share": ("of the ranks' time", ".0%"),
                    "from": ("from", EXACT),
                    "to": ("to", EXACT),
                }
            ),
        )
    ]
    caption = []
    for marks, name, shape in (
        (_published(ledger, made, lanes), "▼ a checkpoint became complete", "triangle-down"),
        (_cuts(made, lanes), "✚ the attempt was cut off", "cross"),
    ):
        if marks:
            caption.append(name)
            layers.append(
                alt.Chart(charts.data(marks))
                .mark_point(shape=shape, filled=True, size=50, opacity=1, color=colour("ink"))
                .encode(
                    x=alt.X("at", type="temporal").scale(type="utc"),
                    y=charts.same_axis(y, "lane"),
                    tooltip=charts.tooltip({"text": "mark", "at": ("at", EXACT)}),
                )
            )
    chart = alt.layer(*layers).properties(height=max(34 * count, 60))
    return Figure(chart, "; ".join(caption), legend)


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
    """The ETTR of a window that moves over the run, and that of the whole run."""
    rows = [
        {"at": moment(made.began_s + end), "ettr": value}
        for end, value in zip(made.rolling.end_s, made.rolling.ettr, strict=True)
    ]
    whole = [{"at": rows[place]["at"], "ettr": made.ettr, "text": "whole run"} for place in (0, -1)]
    x = charts.time_axis("at", day_title(made))
    y = charts.percent_axis(alt.Y, "ettr", f"ETTR of the last {seconds(made.rolling.window_s)}")
    line = (
        alt.Chart(charts.data(rows))
        .mark_line(color=colour("model"))
        .encode(
            x=x,
            y=y,
            tooltip=charts.tooltip({"at": ("window ends", EXACT), "ettr": ("ETTR", ".1%")}),
        )
    )
    flat = (
        alt.Chart(charts.data(whole))
        .mark_line(color=colour("reference"), strokeDash=[5, 4], strokeWidth=1.5)
        .encode(x=x, y=y)
    )
    layers: list[Any] = [flat, line]
    layers.append(charts.line_labels(whole[1:], x, y, "text", align="right", dx=0))
    return Figure(alt.layer(*layers))


def day_title(made: Breakdown) -> str:
    """An axis that shows hours only names the day."""
    first, last = moment(made.began_s), moment(made.began_s + made.wall_s)
    return f"Time on {first:%Y-%m-%d}" if first.date() == last.date() else "Time"
