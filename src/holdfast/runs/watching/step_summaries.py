"""What all ranks say of one step, summed up once they have said it: medians over the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.runs.recording.lines import Event

MOST_AHEAD = 2
"""Once a rank is so many steps ahead, a step waits for no more ranks."""


@dataclass(slots=True)
class RankStep:
    """One step of one rank."""

    rank: int
    event: Event
    period_s: float | None
    """Time since the previous step's end without checkpoints, evaluations, pauses; None: first step."""
    data_wait_s: float
    """Time of the period spent waiting for data."""

    @property
    def step(self) -> int:
        """Its number."""
        return self.event.step or 0

    @property
    def work_s(self) -> float:
        """Its own time without waiting for the other ranks, if that is recorded."""
        return max(0.0, self.event.own_s - (self.event.sync_s or 0.0))


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One step of the run."""

    step: int
    ranks: int
    """How many reported it in time."""
    own_s: float
    """Median over the ranks, as the other times."""
    period_s: float | None
    data_wait_s: float
    tokens: float | None
    """Mean of a rank."""
    samples: float | None
    loss: float | None
    """Median of the ranks; not finite if that of any rank is not."""
    grad_norm: float | None
    not_finite: tuple[int, ...]
    """Ranks whose loss is not finite."""
    work_s: Mapping[int, float]
    """Rank -> its own work in the step."""


@dataclass
class StepSummaries:
    """Gathers the ranks' steps and hands each step out once, in order."""

    _waiting: dict[int, list[RankStep]] = field(default_factory=dict)
    _newest: int = -1
    _done: int = -1

    def add(self, step: RankStep) -> None:
        """Take what one rank says; too late for a step that was handed out, it is left out."""
        if step.step > self._done:
            self._waiting.setdefault(step.step, []).append(step)
            self._newest = max(self._newest, step.step)

    def start_again(self) -> None:
        """The steps count from a smaller number again: the training went back within its process."""
        self._waiting.clear()
        self._newest = self._done = -1

    def due(self, ranks: int) -> Iterator[StepSummary]:
        """The steps that `ranks` ranks have reported, or that waited long enough."""
        overdue = self._newest - MOST_AHEAD
        for step in sorted(self._waiting):
            steps = self._waiting[step]
            if len(steps) < ranks and step > overdue:
                return
            del self._waiting[step]
            self._done = step
            yield _summed_up(steps)


def _summed_up(steps: list[RankStep]) -> StepSummary:
    periods = [one.period_s for one in steps if one.period_s is not None]
    return StepSummary(
        steps[0].step,
        len(steps),
        median(one.event.own_s for one in steps),
        median(periods) if periods else None,
        median(one.data_wait_s for one in steps),
        _mean([one.event.tokens for one in steps]),
        _mean([one.event.samples for one in steps]),
        _middle([one.event.loss for one in steps]),
        _middle([one.event.grad_norm for one in steps]),
        tuple(sorted(one.rank for one in steps if _is_odd(one.event.loss))),
        {one.rank: one.work_s for one in steps},
    )


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _middle(values: list[Any]) -> float | None:
    """The median; a value that is not finite takes precedence."""
    known = [value for value in values if value is not None]
    odd = [value for value in known if _is_odd(value)]
    return odd[0] if odd else median(known) if known else None


def _is_odd(value: Any) -> bool:
    """Whether a value is recorded, and no number."""
    return value is not None and not isfinite(value)
