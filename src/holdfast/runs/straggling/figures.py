"""Charts: delays of ranks over steps, what ranks do in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from holdfast.fleet.moments import moment
from holdfast.report import Figure, figures
from holdfast.report.theme import colour
from holdfast.runs.straggling.matrix import Bar

if TYPE_CHECKING:
    from holdfast.runs.straggling.verdict import Stragglers

MOST_ROWS = 64
MOST_CELLS = 6_400
"""Maximum cells of the heat map (rows x columns); those below the first level are not drawn."""
LEVELS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Delays over a step at which the colour of the heat map changes."""
LEVEL_NAMES = ("below 1 %", "1 to 3 %", "3 to 10 %", "10 to 30 %", "30 to 100 %", "above 100 %")
LEVEL_COLOURS = ("grid", "ramp1", "ramp2", "ramp3", "ramp4", "ramp5")
MOST_TIMELINE_RANKS = 12
BAR_COLOURS = {"work": "user", "data": "system", "waiting": "line"}
BAR_NAMES = {"work": "own work", "data": "waiting for data", "waiting": "waiting for the others"}


def heat_map(found: Stragglers) -> Figure:
    """How late every rank was over the run, as a share of a step."""
    rows = _cells(found)
    title = "Step" if _is_line(found) else "Shared steps, in the order in which they were done"
    names = list(dict.fromkeys(row["ranks"] for row in rows))
    extent = [rows[0]["begin"], rows[-1]["end"]]

    def chart() -> dict[str, Any]:
        values = figures.plain_rows(row for row in rows if row["late"] >= LEVELS[0])
        ramp = [colour(name) for name in LEVEL_COLOURS]
        return {
            "data": {"values": values},
            "view": {"fill": ramp[0]},
            "mark": {"type": "rect", "strokeWidth": 0},
            "encoding": {
                "x": {
                    "field": "begin",
                    "type": "quantitative",
                    "title": title,
                    "scale": {"domain": extent, "nice": False},
                    "axis": {"format": ",d"},
                },
                "x2": {"field": "end"},
                "y": {
                    "field": "ranks",
                    "type": "nominal",
                    "title": "Rank" if len(names) == _ranks(found) else "Ranks",
                    "scale": {"domain": names},
                },
                "color": {
                    "field": "late",
                    "type": "quantitative",
                    "scale": {"type": "threshold", "domain": list(LEVELS), "range": ramp},
                    "legend": None,
                },
                "tooltip": figures.tooltip(values, ["ranks", "steps", "late", "late_s"]),
            },
            "height": {"step": max(6, min(24, 400 // len(names)))},
        }

    return Figure(
        chart,
        caption=_reading(found),
        legend=dict(zip(LEVEL_NAMES, LEVEL_COLOURS, strict=True)),
        description="How late every rank was over the steps of the run.",
    )


def _reading(found: Stragglers) -> str:
    """What a cell of the heat map is."""
    width, height = _cell_size(found)
    mean = f"the mean over {width:,} steps" if width > 1 else "one step"
    most = f", of the latest of {height} neighbouring ranks" if height > 1 else ""
    return f"Delay over the step's median rank, as a share of a step; a cell is {mean}{most}."


def _ranks(found: Stragglers) -> int:
    return int(found.matrix.ranks.size)


def _cell_size(found: Stragglers) -> tuple[int, int]:
    """Steps and ranks of a cell."""
    ranks, steps = found.delays.late_by_s.shape
    height = -(-ranks // MOST_ROWS)
    columns = max(1, MOST_CELLS // -(-ranks // height))
    return -(-steps // columns), height


def _cells(found: Stragglers) -> list[dict[str, Any]]:
    """Rows of the heat map: the mean delay over the steps of a cell, the greatest of its ranks."""
    width, height = _cell_size(found)
    matrix, late = found.matrix, found.delays.late_by_s
    steps = np.arange(0, matrix.steps.size, width)
    counts = np.diff(np.append(steps, matrix.steps.size))
    means = np.add.reduceat(late, steps, axis=1, dtype=np.float64) / counts  # [R, columns]
    greatest = np.maximum.reduceat(means, np.arange(0, means.shape[0], height), axis=0)
    usual = found.delays.usual_s or 1.0
    made = []
    for row, values in enumerate(greatest):
        members = matrix.ranks[row * height : (row + 1) * height]
        name = _span_name(members)
        for begin, count, value in zip(
            steps.tolist(), counts.tolist(), values.tolist(), strict=True
        ):
            first, last = int(matrix.steps[begin]), int(matrix.steps[begin + count - 1])
            low, high = (first, last + 1) if _is_line(found) else (begin, begin + count)
            made.append(
                {
                    "ranks": name,
                    "begin": low,
                    "end": high,
                    "steps": f"{first:,}" if first == last else f"{first:,} to {last:,}",
                    "late": value / usual,
                    "late_s": value,
                }
            )
    return made


def _span_name(members: npt.NDArray[np.int64]) -> str:
    first, last = int(members[0]), int(members[-1])
    return str(first) if first == last else f"{first}–{last}"


def _is_line(found: Stragglers) -> bool:
    """Whether step numbers only grow, so that they can be an axis."""
    return bool((np.diff(found.matrix.steps) > 0).all())


def timeline(found: Stragglers) -> Figure | None:
    """What some ranks did in a few steps; None if the source does not tell."""
    chosen = _timeline_ranks(found)
    bars = [bar for bar in found.matrix.timeline if bar.rank in chosen]
    if not bars:
        return None
    shift, note = _shifts(bars)
    origin = min(bar.begin_s + shift[bar.rank] for bar in bars)
    rows = [
        {
            "rank": chosen[bar.rank],
            "begin": moment(bar.begin_s + shift[bar.rank] - origin),
            "end": moment(bar.end_s + shift[bar.rank] - origin),
            "what": BAR_NAMES[bar.kind],
        }
        for bar in sorted(bars, key=lambda bar: bar.rank)
    ]
    kinds = {bar.kind for bar in bars}
    legend = {BAR_NAMES[kind]: name for kind, name in BAR_COLOURS.items() if kind in kinds}
    drawn = figures.timeline(rows, "rank", "begin", "end", "what", legend, lane_title="Rank")
    steps = sorted({bar.step for bar in bars})
    caption = f"Steps {steps[0]:,} to {steps[-1]:,}, from the first begin.{note}"
    return replace(drawn, caption=caption)


def _timeline_ranks(found: Stragglers) -> Mapping[int, str]:
    """The ranks of the time line and their names on it: the slowest, and others evenly chosen."""
    slow = [row["rank"] for row in found.persistent][: MOST_TIMELINE_RANKS // 2]
    others = [rank for rank in found.matrix.ranks.tolist() if rank not in slow]
    free = MOST_TIMELINE_RANKS - len(slow)
    every = max(1, -(-len(others) // free))
    return {rank: str(rank) for rank in sorted([*slow, *others[::every]])}


def _shifts(bars: Sequence[Bar]) -> tuple[dict[int, float], str]:
    """What to add to each rank's clock: nothing, or, where clocks disagree, what makes ends meet."""
    spans: dict[int, tuple[float, float]] = {}
    for bar in bars:
        low, high = spans.get(bar.rank, (bar.begin_s, bar.end_s))
        spans[bar.rank] = (min(low, bar.begin_s), max(high, bar.end_s))
    ends = [high for _, high in spans.values()]
    longest = max(high - low for low, high in spans.values())
    if max(ends) - min(ends) <= longest / 2:
        return dict.fromkeys(spans, 0.0), ""
    last = max(ends)
    note = " The clocks of the ranks disagree: they are drawn as if all had ended together."
    return {rank: last - high for rank, (_, high) in spans.items()}, note
