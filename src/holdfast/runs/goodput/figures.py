"""The charts of a run report: the waterfall of its time, the attempts, the lengths of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.fleet.moments import moment
from holdfast.report import Figure, figures
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.ledger import PARTS, Ledger
from holdfast.runs.goodput.spans import FloatArray

WATERFALL = ("queue", "down", "init", "idle", "replayed", "checkpoint", "data_wait", "evaluation")
"""The losses, from outside the attempts to inside the training."""
MOST_LANES = 40
MOST_MARKS = 2_000
MOST_BINS = 120


@dataclass(frozen=True)
class PartWords:
    """A part of the wall time, in words."""

    name: str
    colour: str
    """A name in `holdfast.report.theme.COLOURS`."""
    meaning: str


PARTS_IN_WORDS: Mapping[str, PartWords] = {
    "productive": PartWords(
        "productive steps", "good", "steps done for the first time, without what is nested in them"
    ),
    "replayed": PartWords(
        "replayed steps", "hardware", "steps done again after a restart from an older checkpoint"
    ),
    "data_wait": PartWords("waiting for data", "user", "the training waited for its next batch"),
    "checkpoint": PartWords(
        "checkpoints", "system", "the part of a checkpoint that stops the training"
    ),
    "init": PartWords(
        "initialisation", "sky", "from the start of a process until it can make a step"
    ),
    "evaluation": PartWords("evaluation", "purple", "evaluations of the model"),
    "idle": PartWords(
        "idle or hung",
        "unattributed",
        "nothing of the above: hangs, pauses, steps cut off, ranks that ended before the others",
    ),
    "down": PartWords("down", "first", "between two attempts, outside of any known queue"),
    "queue": PartWords("in the queue", "yellow", "submitted and not yet started"),
}
_COLOURS = {words.name: words.colour for words in PARTS_IN_WORDS.values()}


def waterfall(breakdown: Breakdown) -> Figure:
    """From the wall time down to the productive time, one step a loss."""
    unit, per_hour = breakdown.gpu_unit
    losses = [
        (PARTS_IN_WORDS[part].name, -breakdown.gpu_hours[part] * per_hour)
        for part in WATERFALL
        if breakdown.gpu_hours[part]
    ]
    return figures.waterfall(
        [("wall time", sum(breakdown.gpu_hours.values()) * per_hour), *losses],
        unit[0].upper() + unit[1:],
        total=PARTS_IN_WORDS["productive"].name,
        meanings={"wall time": "measured", **_COLOURS},
    )


def time_line(ledger: Ledger, breakdown: Breakdown) -> Figure:
    """What the ranks of each attempt did over time: the largest part of each moment."""
    lanes = len(breakdown.attempts) <= MOST_LANES
    binned = ledger.binned if lanes else ledger.binned.sum(axis=0, keepdims=True)
    names = [f"{each.attempt} {each.ending}" for each in breakdown.attempts] if lanes else ["all"]
    rows: list[dict[str, Any]] = []
    for lane, seconds in zip(names, binned, strict=True):
        largest = np.where(seconds.sum(axis=0) > 0, seconds.argmax(axis=0), -1)  # [bins]
        edges = np.flatnonzero(np.diff(largest, prepend=-2, append=-2))
        for first, behind in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if largest[first] >= 0:
                rows.append(
                    {
                        "attempt": lane,
                        "part": PARTS_IN_WORDS[PARTS[largest[first]]].name,
                        "from": moment(breakdown.began_s + first * ledger.bin_s),
                        "to": moment(breakdown.began_s + behind * ledger.bin_s),
                    }
                )
    of = ledger.attempt_of()
    marks = [
        {
            "attempt": names[int(of[process]) if lanes else 0],
            "at": moment(breakdown.began_s + at_s),
            "text": f"checkpoint of step {step:,} complete",
        }
        for process, step, at_s in ledger.published()
    ]
    shown = {row["part"] for row in rows}
    colours = {name: colour for name, colour in _COLOURS.items() if name in shown}
    columns = ("attempt", "from", "to", "part")
    few = marks[:: max(len(marks) // MOST_MARKS, 1)]
    return figures.timeline(rows, *columns, colours, lane_title="Attempt", marks=few)


@dataclass(frozen=True)
class StepTimes:
    """The times that steps had for themselves, over all ranks."""

    own_s: FloatArray
    """[n] in the order of the ledger."""
    end_s: FloatArray
    """[n] run time."""
    by_attempt: pa.Table
    """attempt, steps (over all ranks), median_s, p90_s, p99_s, longest_s, longest_step, longest_rank."""

    @property
    def unit(self) -> tuple[float, str]:
        """What seconds are multiplied by, and its name."""
        return (1000.0, "ms") if float(np.median(self.own_s)) < 1 else (1.0, "s")


def step_times(ledger: Ledger) -> StepTimes | None:
    """Measure the steps; None without any."""
    steps = ledger.steps()
    if not steps.size:
        return None
    own, spans = ledger.own_s[steps], ledger.spans
    attempt = ledger.attempt_of()[spans.process[steps]]
    rows = []
    for place in np.unique(attempt).tolist():
        mine = np.flatnonzero(attempt == place)
        longest = steps[mine[own[mine].argmax()]]
        median, p90, p99 = np.quantile(own[mine], [0.5, 0.9, 0.99]).tolist()
        rows.append(
            {
                "attempt": place + 1,
                "steps": int(mine.size),
                "median_s": median,
                "p90_s": p90,
                "p99_s": p99,
                "longest_s": float(ledger.own_s[longest]),
                "longest_step": int(spans.step[longest]),
                "longest_rank": ledger.run.processes[int(spans.process[longest])].rank,
            }
        )
    return StepTimes(own, spans.end_s[steps], pa.Table.from_pylist(rows))


def over_time(times: StepTimes, breakdown: Breakdown) -> Figure:
    """Median and 99th percentile of the steps that ended in each stretch of the run."""
    scale, unit = times.unit
    bins = max(min(MOST_BINS, times.own_s.size // 20), 1)
    place = np.minimum((times.end_s / breakdown.wall_s * bins).astype(np.int64), bins - 1)
    rows: list[dict[str, Any]] = []
    for k in range(bins):
        inside = scale * times.own_s[place == k]
        at = moment(breakdown.began_s + (k + 0.5) * breakdown.wall_s / bins)
        lengths = np.quantile(inside, [0.5, 0.99]).tolist() if inside.size else (None, None)
        for what, length in zip(("median", "99 %"), lengths, strict=True):
            rows.append({"at": at, "what": what, "length": length, "steps": inside.size})
    colours = {"median": "model", "99 %": "system"}
    title = f"Time of a step ({unit})"
    drawn = figures.lines(
        rows, "at", "length", "Time", title, series="what", meanings=colours, zone="UTC"
    )
    return replace(drawn, caption="Over the run; a gap is a time without a step")
