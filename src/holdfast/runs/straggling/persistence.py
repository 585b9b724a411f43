"""Which ranks are slow all the time, with a stated rate of false alarms.

Null hypothesis: in every step the ranks are exchangeable, and steps are independent. If k_s of the R
ranks are late in step s, then each of them is one of those with probability k_s / R, so that the number of
steps in which a given rank is late is Poisson-binomial with these probabilities. No shape of the noise
is assumed: the k_s are observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.runs.straggling.delays import FAR, MAD_TO_SIGMA, MEAN_TO_SIGMA, Delays, independent
from holdfast.runs.straggling.matrix import FloatMatrix, Floats, Ints
from holdfast.stats import benjamini_hochberg

Bools = npt.NDArray[np.bool_]

RECENT_SHARE = 0.25
"""The last part of the run, looked at by itself: who became slow late in the run is slow now."""
LEAST_RECENT_STEPS = 16
LEAST_SIDE = 8
THRESHOLDS = ("late", "far behind", "the slowest")


@dataclass(frozen=True)
class Persistence:
    """The verdict on every rank."""

    late_share: Floats
    """[R] share of the steps in which the rank was late by more than the least slowdown."""
    q_value: Floats
    """[R] the false discovery rate at which "late no more often than others" is rejected."""
    persistent: Bools
    """[R] late in most steps, significantly more often than others, and an outlier among the ranks."""
    since: Ints
    """[R] the step (index) since which a persistent rank is slow; 0: all the time."""
    block: int
    """Steps that were taken together because neighbours are not independent; 1: none were."""


def persistence(delays: Delays, *, alpha: float, least_delay_s: float) -> Persistence:
    """Tell who is slow in most steps, of the whole run or of its last quarter.

    A rank is persistently slow in a window of steps if all of these hold:

    1. it is late by more than `least_delay_s` in more than half of the steps;
    2. it is so, or is beyond three standard deviations, or is the slowest, in more steps than chance
       gives (exact Poisson-binomial tail, three times the least of the three; Benjamini-Hochberg over
       all ranks and windows at `alpha`);
    3. its typical delay is an outlier among those of all ranks: beyond 3 x 1.4826 MAD (not asked of
       two ranks, of which neither can be one).

    Where no rank is slow, 2 alone keeps the share of runs with any false alarm at `alpha` or less. A
    step here is a block of steps where single ones are not independent (`delays.independent`).
    """
    # 1. Steps that are not independent are taken together; all that follows is per block.
    blocks, length = independent(delays)
    steps = blocks.late_by_s.shape[1]
    late = blocks.late_by_s > np.float32(least_delay_s)
    slowest = blocks.late_by_s == blocks.late_by_s.max(axis=0)
    # 2. Three marks per rank and step [R, S]: late, far behind, the slowest.
    marks = (late, late & blocks.far(), late & slowest)
    # 3. Two windows: the whole run, and its last quarter for ranks that became slow.
    recent = round(RECENT_SHARE * steps)
    begins = [0, steps - recent] if recent >= LEAST_RECENT_STEPS else [0]  # [W] of the windows
    # 4. Exact tails under exchangeable ranks; Benjamini-Hochberg over ranks and windows together.
    p = np.array([_p_value([mark[:, begin:] for mark in marks]) for begin in begins])  # [W, R]
    q = benjamini_hochberg(p.ravel()).reshape(p.shape)
    often = np.array([late[:, begin:].mean(axis=1) > 0.5 for begin in begins])
    outlying = np.array([_is_outlier(blocks, begin) for begin in begins])
    # 5. All three conditions in one window.
    lasting = often & (q <= alpha) & outlying
    chosen = np.where(lasting[0] | ~lasting[-1], 0, len(begins) - 1)  # the window that convicts
    persistent: Bools = np.logical_or.reduce(lasting)
    since = [
        onset(own) if slow else 0 for own, slow in zip(delays.late_by_s, persistent, strict=True)
    ]
    return Persistence(
        late_share=(delays.late_by_s > np.float32(least_delay_s)).mean(axis=1),
        q_value=q[chosen, np.arange(persistent.size)],
        persistent=persistent,
        since=np.array(since),
        block=length,
    )


def onset(late_by: FloatMatrix) -> int:
    """The step (index) since which a rank is slow, given its delays [S]; 0: all the time.

    The change of mean that explains most (where the cumulative sum of delays over their mean is least),
    if there are 8 steps on both sides and the typical delay before was less than half of that behind.
    """
    typical = float(np.median(late_by))
    limit = FAR * MAD_TO_SIGMA * float(np.median(np.abs(late_by - typical)))
    calm = np.clip(late_by.astype(np.float64), typical - limit, typical + limit)
    sums = np.cumsum(calm - calm.mean())[LEAST_SIDE - 1 : -LEAST_SIDE]
    if not sums.size:
        return 0
    change = LEAST_SIDE + int(sums.argmin())
    before, after = np.median(late_by[:change]), np.median(late_by[change:])
    return change if before < 0.5 * after else 0


def least_steps(ranks: int, alpha: float) -> int:
    """Steps below which no rank can be called persistently slow.

    One that is the slowest in all S steps has p = 3 R^-S, and R ranks are tested.
    """
    return math.ceil(math.log(len(THRESHOLDS) * ranks / alpha) / math.log(ranks))


def _p_value(marks: Sequence[Bools]) -> Floats:
    least: Floats = np.minimum.reduce([_tail(mark) for mark in marks])
    p_value: Floats = np.minimum(1.0, len(marks) * least)
    return p_value


def _tail(marked: Bools) -> Floats:
    """P(at least as many marks as each rank has), shape [R], given the marks of every step."""
    ranks = marked.shape[0]
    chance = poisson_binomial(marked.sum(axis=0), ranks)
    survival: Floats = np.minimum(np.cumsum(chance[::-1])[::-1], 1.0)  # [c]: P(count >= c)
    p_value: Floats = survival[marked.sum(axis=1)]
    return p_value


def poisson_binomial(marks: npt.ArrayLike, ranks: int) -> Floats:
    """P(a rank is marked in c steps), c = 0..S, if each step marks `marks[s]` of `ranks` at random.

    Steps with equal marks form a binomial; the binomials are convolved. All terms are positive, so that
    small tails keep their digits.
    """
    from scipy.stats import binom

    distinct, times = np.unique(np.asarray(marks), return_counts=True)
    chance: Floats = np.ones(1)
    for k, count in zip(distinct.tolist(), times.tolist(), strict=True):
        chance = np.convolve(chance, binom.pmf(np.arange(count + 1), count, k / ranks))
    return chance


def _is_outlier(delays: Delays, begin: int) -> Bools:
    """[R] whether the typical delay from a step on is far from those of the other ranks."""
    window = delays.late_by_s[:, begin:]
    typical = np.median(window, axis=1)
    if typical.size < 3:
        return np.ones(typical.size, dtype=bool)
    above = typical - np.median(typical)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(above)))
    chance = MEAN_TO_SIGMA * delays.noise_s / math.sqrt(window.shape[1])
    far: Bools = above > FAR * max(spread, chance)
    return far
