"""The charts of a run report on its steps: how long they take, and whether that changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.fleet.moments import moment
from holdfast.report import Figure, figures
from holdfast.runs.goodput.accounting import Breakdown
from holdfast.runs.goodput.figures import day_title
from holdfast.runs.goodput.ledger import Ledger
from holdfast.runs.goodput.spans import FloatArray

MOST_BINS = 120
MOST_POINTS = 400
"""Quantiles of the distribution."""


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


def distribution(times: StepTimes) -> Figure:
    """The share of the steps that took at most so long."""
    scale, unit = _unit(times)
    shares = np.linspace(0, 1, min(times.own_s.size, MOST_POINTS))
    quantiles = (scale * np.quantile(times.own_s, shares)).tolist()
    drawn = figures.ecdf({"steps": quantiles}, f"Time of a step ({unit})", log=True)
    caption = "Time that a step has for itself, without what is nested in it, over all ranks"
    return replace(drawn, caption=caption)


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
    drawn = figures.lines(
        rows,
        "at",
        "length",
        day_title(made),
        f"Time of a step ({unit})",
        series="what",
        meanings={"median": "model", "99 %": "system"},
        zone="UTC",
    )
    return replace(drawn, caption="Over the run; a gap is a time without a step")


def _unit(times: StepTimes) -> tuple[float, str]:
    return (1000.0, "ms") if float(np.median(times.own_s)) < 1 else (1.0, "s")
