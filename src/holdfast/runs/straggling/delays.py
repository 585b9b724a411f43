"""How much later than the others: delays, the noise they are held against, robust scores.

x[r, s] is the own time of rank r in step s. Everything starts from the delay over the step's median,
d[r, s] = x[r, s] - median over ranks of x[., s], so a step in which everybody is slow (compilation, a
checkpoint, a long batch) delays nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.runs.straggling.matrix import FloatMatrix, Floats, StepMatrix

MAD_TO_SIGMA = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""
MEAN_TO_SIGMA = 1.2533
"""The same over its mean absolute deviation; also: of a median of n values over that of their mean."""
FAR = 3.0
"""Robust standard deviations beyond which a delay is not noise."""
LEAST_BLOCKS = 6
LEAST_CORRELATION = 0.1
"""Smaller correlations are ignored."""
_SAMPLE = 4_000_000


@dataclass(frozen=True)
class Delays:
    """Delays of R ranks in S steps."""

    late_by_s: FloatMatrix
    """[R, S] d, seconds over the step's median; negative for the faster half."""
    step_s: Floats
    """[S] the median own time of each step, seconds."""
    usual_s: float
    """What slowdowns are shares of: the median own time, or `StepMatrix.usual_s`."""
    typical_s: Floats
    """[R] the median over steps of d."""
    noise_s: float
    """Standard deviation of d within ranks, estimated robustly over all cells."""
    scale_s: Floats
    """[S] what d is measured in: the spread between ranks in the step, at least `noise_s`."""
    score: Floats
    """[R] the median over steps of z = d / scale: how many standard deviations a rank is late in its
    typical step."""

    def far(self) -> npt.NDArray[np.bool_]:
        """[R, S] whether z > 3."""
        limit = np.where(self.scale_s > 0, FAR * self.scale_s, np.inf).astype(np.float32)
        return self.late_by_s > limit


def delays(matrix: StepMatrix) -> Delays:
    """Delays and robust scores of every rank.

    The scale of a step is 1.4826 MAD over its ranks, but not less than the noise that ranks have from
    step to step (few ranks agree by chance); where both are zero (rounded times), 1.2533 times the mean
    absolute delay; where that is zero too nobody is late and every z is 0.
    """
    return _over_medians(matrix.own_s, matrix.usual_s)


def independent(delays: Delays) -> tuple[Delays, int]:
    """The delays over blocks of steps that are long enough to be independent, and their length.

    A slow minute makes many late steps that are one event. Delays are taken over blocks of 1, 2, 4, ...
    steps (their median) until those of neighbouring blocks correlate no more than independent ones
    may, in the typical rank. Independent steps stay single.
    """
    late_by, length = delays.late_by_s, 1
    while late_by.shape[1] >= 2 * LEAST_BLOCKS and _neighbours_correlate(late_by):
        length *= 2
        whole = delays.late_by_s.shape[1] // length
        shape = (late_by.shape[0], whole, length)
        late_by = np.median(delays.late_by_s[:, : whole * length].reshape(shape), axis=2)
    return (delays if length == 1 else _over_medians(late_by, delays.usual_s)), length


def _neighbours_correlate(late_by: FloatMatrix) -> bool:
    residual = late_by - np.median(late_by, axis=1, keepdims=True)
    limit = FAR * MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    np.clip(residual, -limit, limit, out=residual)  # single disasters say nothing about the rest
    power = np.square(residual).sum(axis=1, dtype=np.float64)
    shared = (residual[:, 1:] * residual[:, :-1]).sum(axis=1, dtype=np.float64)
    ranks, blocks = late_by.shape
    allowed = LEAST_CORRELATION + 2 / np.sqrt(blocks * max(1, ranks - 1))
    return bool(np.median(shared / np.where(power > 0, power, 1.0)) > allowed)


def _over_medians(own: FloatMatrix, usual_s: float | None) -> Delays:
    times = own.T.astype(np.float64)  # [S, R]: a row is contiguous
    # 1. The step's median is its usual time: a step slow for everybody delays nobody.
    step_s = np.median(times, axis=1)
    times -= step_s[:, None]
    # 2. Spread between ranks per step by 1.4826 MAD [S], and noise within ranks over all cells.
    spread = MAD_TO_SIGMA * np.median(np.abs(times), axis=1)
    late_by = np.ascontiguousarray(times.T, dtype=np.float32)
    typical = np.median(late_by, axis=1).astype(np.float64)
    noise = _noise(late_by, typical)
    # 3. Few ranks may agree by chance: the scale is never below the noise.
    scale = np.maximum(spread, noise)
    if not noise:
        mean = MEAN_TO_SIGMA * float(np.abs(late_by).mean(dtype=np.float64))
        scale = np.where(scale > 0, scale, mean)
    usual = float(np.median(step_s)) if usual_s is None else usual_s
    return Delays(late_by, step_s, usual, typical, noise, scale, _scores(late_by, scale))


def _noise(late_by: FloatMatrix, typical: Floats) -> float:
    """1.4826 times the median of |d - typical| over all cells, of a sample where there are many."""
    every = max(1, late_by.size // _SAMPLE)
    residual = np.abs(late_by[:, ::every] - typical[:, None].astype(np.float32))
    return MAD_TO_SIGMA * float(np.median(residual))


def _scores(late_by: FloatMatrix, scale: Floats) -> Floats:
    if not (scale > 0).all():
        scale = np.where(scale > 0, scale, np.inf)
    z = late_by / scale.astype(np.float32)
    return np.median(z, axis=1).astype(np.float64)
