"""How fast the training goes, and whether that, the loss or the gradient has shifted for the worse."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from holdfast.numbers import duration, number
from holdfast.runs.watching.alarms import Finding
from holdfast.runs.watching.level_shift import SHORT, LevelShift, SortedWindow
from holdfast.runs.watching.step_summaries import StepSummary
from holdfast.runs.watching.thresholds import Thresholds

Unit = Literal["tokens", "samples", "steps"]
LEAST_STEPS = 8
"""Before the time between two steps is known well enough to say that one is overdue."""


@dataclass(frozen=True)
class Rates:
    """The pace over the last steps, without checkpoints and other spans."""

    steps_per_s: float
    step_s: float
    """Median length of a step without the spans inside."""
    period_s: float
    """Median time from step to step."""
    data_wait_share: float
    """Share of that time spent waiting for data."""
    tokens_per_s: float | None
    """Throughput of all ranks."""
    samples_per_s: float | None


class Pace:
    """Follows the steps of one attempt.

    Slow steps are judged by the step's own time; more work in a step (a longer sequence, a larger batch)
    excuses as much more time. Throughput is judged by the time from step to step for each unit of work
    (tokens, else samples, else steps); what slow steps explain is taken out of it, so that one cause makes
    one alarm.
    """

    def __init__(self, limits: Thresholds) -> None:
        self._limits = limits
        self._recent: deque[StepSummary] = deque(maxlen=SHORT)
        self._unit: Unit | None = None
        self._usual_work = SortedWindow(limits.baseline_steps)
        self._steps = LevelShift(limits, limits.slow_factor)
        self._costs = LevelShift(limits, limits.slow_factor)
        self._losses = LevelShift(limits, limits.loss_factor)
        self._grad_norms = LevelShift(limits, limits.grad_norm_factor)

    def take(self, summary: StepSummary) -> None:
        """Take a step that all ranks have completed."""
        if summary.period_s is None or summary.period_s <= 0:
            return  # the first of an attempt: when it began is not known
        self._recent.append(summary)
        period_s, step = summary.period_s, summary.step
        for shift, value in ((self._losses, summary.loss), (self._grad_norms, summary.grad_norm)):
            if value is not None and 0 < value < math.inf:
                shift.add(value, period_s, step)
        work = self._work(summary)
        if work is None:
            return
        self._usual_work.add(work)
        excess = max(1.0, work / self._usual_work.median())
        own_s = summary.own_s / excess
        was_open = self._steps.open
        self._steps.add(own_s, period_s, step)
        usual_s = self._steps.usual
        if was_open and usual_s is None:
            # The new length of a step has become the usual one; so has what it costs.
            self._costs = LevelShift(self._limits, self._limits.slow_factor)
        slowness_s = 0.0 if usual_s is None else max(0.0, own_s - usual_s) * excess
        self._costs.add((period_s - slowness_s) / work, period_s, step)

    def usual_period_s(self) -> float | None:
        """Median time from step to step of the last steps; None: too few yet."""
        if len(self._recent) < LEAST_STEPS:
            return None
        return median(summary.period_s or 0.0 for summary in self._recent)

    def rates(self, ranks: int) -> Rates | None:
        """The pace of the last steps, of `ranks` ranks together; None before there are two."""
        recent = list(self._recent)
        if not recent:
            return None
        periods = [summary.period_s or 0.0 for summary in recent]
        total = sum(periods)

        def per_second(work: list[float | None]) -> float | None:
            known = [value for value in work if value is not None]
            return ranks * fmean(known) * len(periods) / total if known else None

        return Rates(
            steps_per_s=len(periods) / total,
            step_s=median(summary.own_s for summary in recent),
            period_s=median(periods),
            data_wait_share=min(1.0, sum(summary.data_wait_s for summary in recent) / total),
            tokens_per_s=per_second([summary.tokens for summary in recent]),
            samples_per_s=per_second([summary.samples for summary in recent]),
        )

    def slow_steps(self) -> Finding | None:
        """Steps take longer than they did."""
        shift, usual = self._steps, self._steps.usual
        if not shift.open or usual is None:
            return None
        return Finding(
            "warning",
            self._slow_ranks(),
            f"steps take {duration(shift.level)}, usually {duration(usual)} "
            f"({number(shift.level / usual, 1)} times) {_lasting(shift)}",
            _figures(shift, usual, "step_s"),
        )

    def plunge(self, ranks: int) -> Finding | None:
        """Less work is done in a second than was, and slow steps are not why."""
        shift, usual = self._costs, self._costs.usual
        if not shift.open or usual is None or self._unit is None:
            return None
        many = 1 if self._unit == "steps" else ranks
        level, before = many / shift.level, many / usual
        rates = self.rates(ranks)
        waiting = "" if rates is None else f"; {100 * rates.data_wait_share:.0f} % waits for data"
        return Finding(
            "warning",
            (),
            f"throughput is {number(level)} {self._unit}/s, usually {number(before)} "
            f"({100 * level / before:.0f} %) {_lasting(shift)}{waiting}",
            {
                "unit": self._unit,
                "per_s": round(level, 6),
                "usual_per_s": round(before, 6),
                "ratio": round(level / before, 4),
                "since_step": shift.since,
                "data_wait_share": None if rates is None else round(rates.data_wait_share, 4),
            },
        )

    def _slow_ranks(self) -> tuple[int, ...]:
        """Ranks whose own work takes longer than the others'; all where none stands out."""
        works: dict[int, list[float]] = {}
        for summary in self._recent:
            for rank, work_s in summary.work_s.items():
                works.setdefault(rank, []).append(work_s)
        typical = {rank: median(each) for rank, each in works.items()}
        least, most = min(typical.values()), max(typical.values())
        if most <= self._limits.slow_factor * least:
            return tuple(sorted(typical))
        return tuple(sorted(r for r, work_s in typical.items() if 2 * work_s > least + most))

    def loss_spike(self) -> Finding | None:
        """The loss has risen."""
        return _spike("the loss", self._losses)

    def grad_norm_spike(self) -> Finding | None:
        """The norm of the gradient has risen."""
        return _spike("the gradient's norm", self._grad_norms)

    def _work(self, summary: StepSummary) -> float | None:
        """Units of work of a rank in a step; the first step decides which unit."""
        if self._unit is None:
            if summary.tokens:
                self._unit = "tokens"
            else:
                self._unit = "samples" if summary.samples else "steps"
        work = 1.0 if self._unit == "steps" else getattr(summary, self._unit)
        return work if work is not None and work > 0 else None


def _spike(what: str, shift: LevelShift) -> Finding | None:
    usual = shift.usual
    if not shift.open or usual is None:
        return None
    return Finding(
        "warning",
        (),
        f"{what} is {number(shift.level)}, usually {number(usual)} "
        f"({number(shift.level / usual, 1)} times) {_lasting(shift)}",
        _figures(shift, usual, "value"),
    )


def _lasting(shift: LevelShift) -> str:
    since = "" if shift.since is None else f", since about step {shift.since:,}"
    return f"for {duration(shift.lasted_s)}{since}"


def _figures(shift: LevelShift, usual: float, name: str) -> dict[str, float | int | None]:
    return {
        name: round(shift.level, 6),
        f"usual_{name}": round(usual, 6),
        "ratio": round(shift.level / usual, 4),
        "since_step": shift.since,
    }
