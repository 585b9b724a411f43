"""The charts of a run report on its steps: how long they take, and whether that changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from holdfast.fleet.moments import moment
from holdfast.numbers import counted
from holdfast.report import Figure, charts
from holdfast.report.theme import colour
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.figures import day_title
from holdfast.runs.goodput.ledger import Ledger
from holdfast.runs.goodput.spans import FloatArray

BARS = 48
MOST_BINS = 120
SHOWN = 0.995
"""The histogram ends a little beyond this quantile; its caption counts the rest."""


@dataclass(frozen=True)
class StepTimes:
    """The times that steps had for themselves, over all ranks."""

    own_s: FloatArray
    """[n] in the order of the ledger."""
    end_s: FloatArray
    """[n] run time."""
    by_attempt: pa.Table
    """attempt, steps (over all ranks), median_s, p90_s, p99_s, longest_s, longest_step, longest_rank."""


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


def histogram(times: StepTimes) -> Figure:
    """How many steps took how long."""
    scale, unit = _unit(times)
    top = 1.1 * float(np.quantile(times.own_s, SHOWN)) or 1e-6
    counts, edges = np.histogram(times.own_s, bins=BARS, range=(0.0, top))
    rows = [
        {"low": scale * low, "high": scale * high, "steps": int(count)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        if count
    ]
    x = alt.X("low", type="quantitative").scale(domain=[0, scale * top], nice=False)
    x = x.title(f"Time of a step ({unit})")
    y = alt.Y("steps", type="quantitative").title("Steps, over all ranks")
    bars = (
        alt.Chart(charts.data(rows))
        .mark_bar(color=colour("model"))
        .encode(
            x=x,
            x2="high:Q",
            y=y,
            y2=alt.datum(0),
            tooltip=charts.tooltip(
                {
                    "low": (f"from ({unit})", ",.3~r"),
                    "high": (f"to ({unit})", ",.3~r"),
                    "steps": ("steps", ",d"),
                }
            ),
        )
    )
    median, p99 = np.quantile(times.own_s, [0.5, 0.99]).tolist()
    marks = [
        {"at": scale * at, "text": text, "steps": int(counts.max())}
        for at, text in ((median, "median"), (p99, "99 %"))
    ]
    rules = (
        alt.Chart(charts.data(marks))
        .mark_rule(color=colour("ink"), strokeDash=[4, 3])
        .encode(x=charts.same_axis(x, "at"))
    )
    labels = charts.line_labels(marks, charts.same_axis(x, "at"), y, "text")
    beyond = int(np.sum(times.own_s > top))
    caption = "Time that a step has for itself, without what is nested in it"
    if beyond:
        caption += f"; {counted(beyond, 'longer step')} not drawn"
    return Figure(alt.layer(bars, rules, labels).properties(height=220), caption)


def over_time(times: StepTimes, made: Breakdown) -> Figure:
    """Median and 99th percentile of the steps that ended in each stretch of the run."""
    scale, unit = _unit(times)
    bins = max(min(MOST_BINS, times.own_s.size // 20), 1)
    place = np.minimum((times.end_s / made.wall_s * bins).astype(np.int64), bins - 1)
    order = np.lexsort((times.own_s, place))
    ordered = times.own_s[order]
    first = np.searchsorted(place[order], np.arange(bins + 1))
    rows = []
    for name, share in (("median", 0.5), ("99 %", 0.99)):
        for k in range(bins):
            count = int(first[k + 1] - first[k])
            at = moment(made.began_s + (k + 0.5) * made.wall_s / bins)
            at_rank = first[k] + int(share * (count - 1)) if count else 0
            value = scale * float(ordered[at_rank]) if count else None
            rows.append({"at": at, "what": name, "length": value, "steps": count})
    x = charts.time_axis("at", day_title(made))
    y = alt.Y("length", type="quantitative").scale(zero=True).title(f"Time of a step ({unit})")
    legend = {"median": "model", "99 %": "system"}
    lines: Any = (
        alt.Chart(charts.data(rows))
        .mark_line()
        .encode(
            x=x,
            y=y,
            color=charts.meaning_colour("what", legend),
            tooltip=charts.tooltip(
                {
                    "what": "quantile",
                    "at": ("around", "%Y-%m-%d %H:%M:%S"),
                    "length": (unit, ",.3~r"),
                    "steps": ("steps", ",d"),
                }
            ),
        )
        .properties(height=200)
    )
    return Figure(lines, "Over the run; a gap is a time without a step", legend)


def _unit(times: StepTimes) -> tuple[float, str]:
    return (1000.0, "ms") if float(np.median(times.own_s)) < 1 else (1.0, "s")
