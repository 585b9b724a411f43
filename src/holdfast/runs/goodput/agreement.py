"""Silent corruption: a rank whose weights, gradient norm or loss leave those that they must be equal to.

Replicas of a model have the same weights, and after a reduction the same gradients. Which ranks are
replicas nobody says, and a loss may be each rank's own; so only values that ranks have had in common before
are compared, and ranks that never agreed (shards, stages, losses of their own) are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from holdfast.runs.goodput.ledger import Ledger
from holdfast.runs.goodput.spans import NO_STEP, BoolArray, FloatArray, IntArray
from holdfast.runs.ranks import named, ranges

SAME = 1e-6
"""Relative difference up to which values are equal: rounding of different devices adds up to less."""
LEAST_AGREED = {"weight_norm": 1, "grad_norm": 10, "loss": 10}
"""Steps in which ranks had a value in common before one that leaves it is told; replicas begin alike, while
values of their own may be alike for a few steps."""
_NAMES = {"weight_norm": "weights", "grad_norm": "gradient norm", "loss": "loss"}


@dataclass(frozen=True)
class Disagreement:
    """Ranks that had a value in common, and no longer have."""

    attempt: int
    """1, 2, ..."""
    value: str
    """``weight_norm``, ``grad_norm`` or ``loss``."""
    ranks: tuple[int, ...]
    """Those that left the value of most others; of two or halves, all: which is wrong is not known."""
    others: tuple[int, ...]
    """Those that still agree."""
    last_equal_step: int
    first_step: int
    """The first recorded one in which they differ."""

    @property
    def sentence(self) -> str:
        """Who differs from whom, since when."""
        name = f"The {_NAMES[self.value]} of {named(self.ranks)}"
        since = (
            f"in step {self.first_step:,}, after being equal until step {self.last_equal_step:,}"
        )
        if self.others:
            return f"{name} differ from those of {ranges(self.others)} {since}: silent corruption there."
        return f"{name} differ {since}: silent corruption; on which rank cannot be told."


def disagreements(ledger: Ledger) -> tuple[Disagreement, ...]:
    """The first disagreement about each value in each attempt."""
    spans, steps = ledger.spans, ledger.steps()
    steps = steps[spans.step[steps] != NO_STEP]
    of = ledger.attempt_of()[spans.process[steps]]
    rank = np.array([each.rank for each in ledger.run.processes])[spans.process[steps]]
    found: list[Disagreement] = []
    for name in LEAST_AGREED:
        column = ledger.run.events[name]
        if column.null_count == len(column):
            continue
        values = column.to_numpy()[spans.row[steps]]
        for attempt in np.unique(of).tolist():
            mine = (of == attempt) & np.isfinite(values)
            found += _of_attempt(
                attempt + 1, name, rank[mine], spans.step[steps[mine]], values[mine]
            )
    return tuple(found)


def _of_attempt(
    attempt: int, name: str, rank: IntArray, step: IntArray, value: FloatArray
) -> Iterator[Disagreement]:
    """The first disagreement within each set of ranks that began alike."""
    ranks, row = np.unique(rank, return_inverse=True)
    steps, column = np.unique(step, return_inverse=True)
    table = np.full((ranks.size, steps.size), np.nan)  # [R, S]
    table[row, column] = value
    shared = np.isfinite(table).all(axis=0)
    table, steps = table[:, shared], steps[shared]
    left = [*range(ranks.size)] if steps.size else []
    while left:
        group = [each for each in left if _same(table[each, 0], table[left[0], 0])]
        left = [each for each in left if each not in group]
        usual = np.median(table[group], axis=0)
        away = ~_same(table[group], usual)  # [members, S]
        if len(group) < 2 or not away.any():
            continue
        at = int(away.any(axis=0).argmax())
        if at < LEAST_AGREED[name]:
            continue
        most = 2 * away[:, at].sum() < len(group)
        wrong = [
            each for each, differs in zip(group, away[:, at], strict=True) if differs or not most
        ]
        rest = [each for each in group if each not in wrong]
        yield Disagreement(
            attempt,
            name,
            tuple(ranks[wrong].tolist()),
            tuple(ranks[rest].tolist()),
            int(steps[at - 1]),
            int(steps[at]),
        )


def _same(one: FloatArray, other: FloatArray) -> BoolArray:
    """Where values are equal but for rounding."""
    same: BoolArray = np.abs(one - other) <= SAME * np.abs(other)
    return same
