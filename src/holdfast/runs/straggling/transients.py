"""Spells: some steps in a row in which a rank that is otherwise sound was far behind."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.runs.straggling.costs import Costs
from holdfast.runs.straggling.delays import Delays
from holdfast.runs.straggling.matrix import StepMatrix

GAUSSIAN_TAIL = 0.00135
"""P(z > 3) of a normal distribution: the minimum probability assumed for one step."""
LARGEST_CHANCE = 0.3
"""Probability above which no length of a spell is significant."""
LEAST_LENGTH = 2


@dataclass(frozen=True)
class Spell:
    """A rank that was far behind for some steps in a row."""

    rank: int
    attempt: int
    first_step: int
    last_step: int
    steps: int
    """Number of steps, among those that all ranks share."""
    delay_s: float
    """Mean delay over the step's median."""
    cost_gpu_hours: float
    """Cost of the steps in which it was the slowest rank."""
    ongoing: bool
    """Whether it lasted to the last step that all ranks share."""


@dataclass(frozen=True)
class Spells:
    """What `spells` found."""

    spells: tuple[Spell, ...]
    """The costliest first."""
    least_length: int
    """Steps in a row that make a spell, chosen so that chance makes one in at most alpha of the runs."""

    @property
    def ranks(self) -> frozenset[int]:
        """Who had any."""
        return frozenset(spell.rank for spell in self.spells)


def spells(
    matrix: StepMatrix,
    delays: Delays,
    costs: Costs,
    ignored: npt.NDArray[np.bool_],
    *,
    alpha: float,
    least_delay_s: float,
) -> Spells:
    """Find the spells of the ranks that are not slow all the time.

    A step counts if the rank is late by more than `least_delay_s` and beyond three standard deviations.
    With p the share of such cells (at least that of a normal distribution), n steps in a row begin by
    chance at most R S p^n times, so n is the least number for which that is at most `alpha`.

    Args:
        matrix: the own times.
        delays: their delays.
        costs: their costs.
        ignored: [R] the ranks that are slow all the time.
        alpha: the chance of any false spell in a run of independent steps.
        least_delay_s: shorter delays do not matter.
    """
    far = delays.far() & (delays.late_by_s > np.float32(least_delay_s))
    far[ignored] = False
    length = least_length(
        float(far[~ignored].mean()) if not ignored.all() else 0.0, far.size, alpha
    )
    rank, begin, end = _streaks(far, length)
    order = np.lexsort((matrix.steps[begin], rank))
    made = [
        _spell(matrix, delays, costs, int(rank[i]), int(begin[i]), int(end[i]))
        for i in order.tolist()
    ]
    return Spells(tuple(sorted(made, key=lambda spell: -spell.cost_gpu_hours)), length)


def least_length(chance: float, cells: int, alpha: float) -> int:
    """Number of consecutive steps from which a spell is significant."""
    p = min(max(chance, GAUSSIAN_TAIL), LARGEST_CHANCE)
    return max(LEAST_LENGTH, math.ceil(math.log(alpha / cells) / math.log(p)))


def _streaks(
    far: npt.NDArray[np.bool_], length: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rank, begin and end (exclusive) of the runs of at least `length` true cells in a row."""
    edges = np.diff(far.astype(np.int8), axis=1, prepend=0, append=0)
    rank, begin = np.nonzero(edges == 1)
    _, end = np.nonzero(edges == -1)
    long = end - begin >= length
    return rank[long], begin[long], end[long]


def _spell(
    matrix: StepMatrix, delays: Delays, costs: Costs, rank: int, begin: int, end: int
) -> Spell:
    steps = slice(begin, end)
    slowest = costs.slowest[steps] == rank
    return Spell(
        rank=int(matrix.ranks[rank]),
        attempt=int(matrix.attempts[begin]),
        first_step=int(matrix.steps[begin]),
        last_step=int(matrix.steps[end - 1]),
        steps=end - begin,
        delay_s=float(delays.late_by_s[rank, steps].mean(dtype=np.float64)),
        cost_gpu_hours=float(costs.by_step[steps][slowest].sum()),
        ongoing=end == matrix.steps.size,
    )
