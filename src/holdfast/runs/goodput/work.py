"""What a run got done: steps, tokens and samples, once and again, and how long a step takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.runs.goodput.ledger import PARTS, Ledger
from holdfast.runs.goodput.spans import NO_STEP, FloatArray


@dataclass(frozen=True)
class Replays:
    """The steps that one attempt made again."""

    attempt: int
    """1, 2, ..."""
    count: int
    """Different step numbers."""
    first_step: int
    last_step: int
    seconds: float
    """Mean over the ranks."""

    def to_dict(self) -> dict[str, Any]:
        """An entry of ``replayed_steps.by_attempt``."""
        return {
            "attempt": self.attempt,
            "count": self.count,
            "first": self.first_step,
            "last": self.last_step,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class LossNotFinite:
    """Steps of one attempt whose loss was NaN or infinite."""

    attempt: int
    """1, 2, ..."""
    first_step: int | None
    """The earliest of them on any rank; None: without a number."""
    ranks: tuple[int, ...]
    """Those on which it was so in that step."""
    steps: int
    """Different steps, on any rank."""


@dataclass(frozen=True)
class Work:
    """What got done."""

    steps: int
    """Different steps that were completed."""
    first_step: int | None
    last_step: int | None
    """The highest that was completed."""
    step_s_median: float | None
    """Time that a step has for itself, over all ranks and steps; None without any."""
    step_s_p99: float | None
    step_s_mean: float | None
    tokens: float | None
    """Sum over the ranks, each step once; None: not recorded."""
    tokens_per_s_goodput: float | None
    """`tokens` over the wall time."""
    tokens_per_s_raw: float | None
    """Tokens of all steps, also replayed ones, over the time in steps."""
    samples: float | None
    samples_per_s_goodput: float | None
    samples_per_s_raw: float | None


def work_of(ledger: Ledger) -> Work:
    """Measure what a run got done."""
    steps = ledger.steps()
    own = ledger.own_s[steps]
    numbers = np.unique(ledger.spans.step[steps])
    numbers = numbers[numbers != NO_STEP]
    tokens, samples = _amounts(ledger, "tokens"), _amounts(ledger, "samples")
    median, p99 = np.quantile(own, [0.5, 0.99]).tolist() if own.size else (None, None)
    return Work(
        steps=int(numbers.size),
        first_step=int(numbers[0]) if numbers.size else None,
        last_step=int(numbers[-1]) if numbers.size else None,
        step_s_median=median,
        step_s_p99=p99,
        step_s_mean=float(own.mean()) if own.size else None,
        tokens=tokens[0],
        tokens_per_s_goodput=tokens[1],
        tokens_per_s_raw=tokens[2],
        samples=samples[0],
        samples_per_s_goodput=samples[1],
        samples_per_s_raw=samples[2],
    )


def _amounts(ledger: Ledger, name: str) -> tuple[float | None, float | None, float | None]:
    """Amount of all steps once, a second of wall time, and of all steps a second of step time."""
    column = ledger.run.events[name]
    if column.null_count == len(column):
        return None, None, None
    steps = ledger.steps()
    amount: FloatArray = np.nan_to_num(column.to_numpy()[ledger.spans.row[steps]])
    once = float(amount[~ledger.replayed[steps]].sum())
    stepping = ledger.by_attempt[:, [PARTS.index("productive"), PARTS.index("replayed")]].sum()
    wall = ledger.window.wall_s
    return (
        once,
        once / wall if wall > 0 else None,
        float(amount.sum() / stepping) if stepping > 0 else None,
    )


def losses_not_finite(ledger: Ledger) -> tuple[LossNotFinite, ...]:
    """Where the recorded loss was NaN or infinite."""
    spans, of = ledger.spans, ledger.attempt_of()
    steps = ledger.steps()
    rows = pc.is_finite(ledger.run.events["loss"].take(pa.array(spans.row[steps])))
    wrong = steps[~rows.fill_null(True).to_numpy()]  # a loss that is not recorded is null
    losses = []
    for place in np.unique(of[spans.process[wrong]]).tolist():
        mine = wrong[of[spans.process[wrong]] == place]
        first = spans.step[mine].min()
        ranks = {
            ledger.run.processes[each].rank
            for each in spans.process[mine[spans.step[mine] == first]]
        }
        number = None if first == NO_STEP else int(first)
        count = int(np.unique(spans.step[mine]).size)
        losses.append(LossNotFinite(place + 1, number, tuple(sorted(ranks)), count))
    return tuple(losses)


def replays_of(ledger: Ledger) -> tuple[Replays, ...]:
    """What each attempt made again."""
    spans, of = ledger.spans, ledger.attempt_of()
    again = np.flatnonzero(ledger.replayed)
    attempt = of[spans.process[again]]
    replays = []
    for place in np.unique(attempt).tolist():
        numbers = np.unique(spans.step[again[attempt == place]])
        replays.append(
            Replays(
                attempt=place + 1,
                count=int(numbers.size),
                first_step=int(numbers[0]),
                last_step=int(numbers[-1]),
                seconds=float(ledger.by_attempt[place, PARTS.index("replayed")]),
            )
        )
    return tuple(replays)
