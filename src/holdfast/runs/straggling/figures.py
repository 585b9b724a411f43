"""The chart of stragglers: delays of ranks over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from holdfast.report import Figure, figures
from holdfast.report.theme import colour

if TYPE_CHECKING:
    from holdfast.runs.straggling.verdict import Stragglers

MOST_ROWS = 64
MOST_CELLS = 6_400
"""Maximum cells of the heat map (rows x columns); those below the first level are not drawn."""
LEVELS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Delays over a step at which the colour of the heat map changes."""
LEVEL_NAMES = ("below 1 %", "1 to 3 %", "3 to 10 %", "10 to 30 %", "30 to 100 %", "above 100 %")
LEVEL_COLOURS = ("grid", "ramp1", "ramp2", "ramp3", "ramp4", "ramp5")


def heat_map(stragglers: Stragglers) -> Figure:
    """How late every rank was over the run, as a share of a step."""
    rows = _cells(stragglers)
    title = "Step" if _is_line(stragglers) else "Shared steps, in the order in which they were done"
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
                    "title": "Rank" if len(names) == _ranks(stragglers) else "Ranks",
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
        caption=_reading(stragglers),
        legend=dict(zip(LEVEL_NAMES, LEVEL_COLOURS, strict=True)),
        description="How late every rank was over the steps of the run.",
    )


def _reading(stragglers: Stragglers) -> str:
    """What a cell of the heat map is."""
    width, height = _cell_size(stragglers)
    mean = f"the mean over {width:,} steps" if width > 1 else "one step"
    most = f", of the latest of {height} neighbouring ranks" if height > 1 else ""
    return f"Delay over the step's median rank, as a share of a step; a cell is {mean}{most}."


def _ranks(stragglers: Stragglers) -> int:
    return int(stragglers.matrix.ranks.size)


def _cell_size(stragglers: Stragglers) -> tuple[int, int]:
    """Steps and ranks of a cell."""
    ranks, steps = stragglers.delays.late_by_s.shape
    height = -(-ranks // MOST_ROWS)
    columns = max(1, MOST_CELLS // -(-ranks // height))
    return -(-steps // columns), height


def _cells(stragglers: Stragglers) -> list[dict[str, Any]]:
    """Rows of the heat map: the mean delay over the steps of a cell, the greatest of its ranks."""
    width, height = _cell_size(stragglers)
    matrix, late = stragglers.matrix, stragglers.delays.late_by_s
    steps = np.arange(0, matrix.steps.size, width)
    counts = np.diff(np.append(steps, matrix.steps.size))
    means = np.add.reduceat(late, steps, axis=1, dtype=np.float64) / counts  # [R, columns]
    greatest = np.maximum.reduceat(means, np.arange(0, means.shape[0], height), axis=0)
    usual = stragglers.delays.usual_s or 1.0
    cells = []
    for row, values in enumerate(greatest):
        members = matrix.ranks[row * height : (row + 1) * height]
        name = _span_name(members)
        for begin, count, value in zip(
            steps.tolist(), counts.tolist(), values.tolist(), strict=True
        ):
            first, last = int(matrix.steps[begin]), int(matrix.steps[begin + count - 1])
            low, high = (first, last + 1) if _is_line(stragglers) else (begin, begin + count)
            cells.append(
                {
                    "ranks": name,
                    "begin": low,
                    "end": high,
                    "steps": f"{first:,}" if first == last else f"{first:,} to {last:,}",
                    "late": value / usual,
                    "late_s": value,
                }
            )
    return cells


def _span_name(members: npt.NDArray[np.int64]) -> str:
    first, last = int(members[0]), int(members[-1])
    return str(first) if first == last else f"{first}–{last}"


def _is_line(stragglers: Stragglers) -> bool:
    """Whether step numbers only grow, so that they can be an axis."""
    return bool((np.diff(stragglers.matrix.steps) > 0).all())
