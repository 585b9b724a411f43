"""Loss spikes as they happen: a robust z-score on a trailing window, and what becomes of each spike.

    z = (x - expected) / scale,   a spike where z > 6

`expected` is the median of the last 128 accepted values; while the loss falls, the trend through the
medians of their quarters is followed, so that the scale (1.4826 MAD of the residuals) is that of the noise
and not of the descent. Values of a spike are not accepted into the window.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.profile.numerics.formats import FloatArray

State = Literal["spike", "recovered", "diverged", "nan"]

# Accepted values before the first spike can be told from noise.
MIN_HISTORY = 32
# Values that follow a descent whose slope changes; also the steps within which a spike may return.
RECENT = 16
# Below it a value is normal again; two in a row end a spike.
NORMAL_Z = 3.0
# Smallest scale, as a share of the expected value: curves without noise have no smaller spikes.
FLOOR = 0.0005
# A spike exceeds the third largest accepted z of the last 8 windows so many times: tails may be heavy.
TAIL_FACTOR, TAIL_RANK, TAIL_WINDOWS = 2.0, 3, 8


@dataclass
class Spike:
    """One spike, from its onset to its end.

    Attributes:
        step: The first step outside the noise.
        signal: What showed it first: loss or grad_norm.
        z: When it was detected; None for NaN.
        batch: The batch of the onset, where the caller numbers them.
        layer: The parameter with the largest update relative to its size at the time of detection.
        end_step: The first normal step; of a divergence the step at which it was given up.
    """

    step: int
    signal: str
    value: float
    expected: float
    z: float | None
    batch: int | None
    layer: str | None
    update_ratio: float | None
    state: State
    detected_step: int
    peak: float
    peak_step: int
    end_step: int | None = None


class SpikeDetector:
    """Find spikes in the loss and the gradient norm of a training run, one step at a time.

        detector = SpikeDetector()
        event = detector.update(step, loss, grad_norm, update_ratios=tracker.update_ratios)

    Args:
        window: accepted values that a new one is held against.
        threshold: z beyond which a value is a spike.
    """

    def __init__(self, window: int = 128, threshold: float = 6.0) -> None:
        self.patience = window
        self.threshold = threshold
        # All spikes so far, in order; the last may be open (state "spike").
        self.events: list[Spike] = []
        # Values beyond the threshold, or not finite.
        self.spike_steps = 0
        # Expected loss of the last step, and the value beyond which it was a spike; NaN: little history.
        self.band = (math.nan, math.nan)
        self._signals = _windows(window)
        self._open: Spike | None = None
        self._normal = 0

    def update(
        self,
        step: int,
        loss: float,
        grad_norm: float | None = None,
        *,
        batch: int | None = None,
        update_ratios: Mapping[str, float] | None = None,
    ) -> Spike | None:
        """Take the values of a step.

        Args:
            step: its number.
            loss: NaN and infinities are events of their own.
            grad_norm: of all gradients.
            batch: the number of the batch.
            update_ratios: parameter -> size of its update over its size.

        Returns:
            A spike that begins at this step or ends with it (see its `state`); else None.
        """
        given = {"loss": loss} | ({} if grad_norm is None else {"grad_norm": grad_norm})
        scores = {}
        for name, value in given.items():
            # A gradient norm scatters by factors, so its logarithm is watched.
            watched = math.log(value) if name == "grad_norm" and value > 0 else value
            scores[name] = self._signals[name].score(watched, step, batch)
        self.band = scores["loss"].band(self.threshold)
        worst = max(scores, key=lambda name: scores[name].excess(self.threshold))
        beyond = scores[worst].excess(self.threshold) > 0
        self.spike_steps += beyond
        changed = None
        if self._open is not None:
            changed = self._continue(self._open, step, loss, scores)
        elif beyond:
            changed = self._begin(step, worst, given, scores[worst], update_ratios)
        if self._open is None and not beyond:
            for name in given:
                self._signals[name].accept(scores[name])
        return changed

    def _begin(
        self,
        step: int,
        signal: str,
        given: Mapping[str, float],
        score: _Score,
        ratios: Mapping[str, float] | None,
    ) -> Spike:
        state: State = "spike" if math.isfinite(score.z) else "nan"
        self._normal = 0
        last = self.events[-1] if self.events else None
        if last and last.state == "recovered" and last.end_step and step - last.end_step <= RECENT:
            last.state, last.end_step = state, None  # it had only paused
            self._open = last
            return last
        onset = self._signals[signal].onset(score)
        known = {name: ratio for name, ratio in (ratios or {}).items() if not math.isnan(ratio)}
        self._open = Spike(
            step=onset.step,
            signal=signal,
            value=given[signal],
            expected=score.expected if signal == "loss" else math.exp(score.expected),
            z=score.z if state == "spike" else None,
            batch=onset.batch,
            layer=max(known, key=known.__getitem__, default=None),
            update_ratio=max(known.values(), default=None),
            state=state,
            detected_step=step,
            peak=given["loss"],
            peak_step=step,
        )
        self.events.append(self._open)
        return self._open

    def _continue(
        self, spike: Spike, step: int, loss: float, scores: Mapping[str, _Score]
    ) -> Spike | None:
        if loss > spike.peak:
            spike.peak, spike.peak_step = loss, step
        if spike.state != "nan" and any(math.isinf(score.z) for score in scores.values()):
            spike.state, self._normal = "nan", 0
            return spike
        self._normal = self._normal + 1 if all(s.z < NORMAL_Z for s in scores.values()) else 0
        given_up = step - spike.detected_step >= self.patience
        if self._normal < 2 and not given_up:
            return None
        spike.end_step = step - 1 if self._normal >= 2 else step
        # One that had NaN stays on record as that; its end says when the loss was normal again.
        if spike.state != "nan":
            spike.state = "recovered" if self._normal >= 2 else "diverged"
        if self._normal < 2:
            self._signals = _windows(self.patience)  # what follows is held against itself
        self._open = None
        return spike


@dataclass(frozen=True)
class _Score:
    """A value held against its window.

    Attributes:
        expected: NaN without enough history.
        scale: Of the noise.
        z: 0 without enough history; infinite for what is not finite.
        tail: Where the tail of the noise ends, in z.
    """

    value: float
    expected: float
    scale: float
    z: float
    tail: float
    step: int
    batch: int | None

    def excess(self, threshold: float) -> float:
        """How far beyond the threshold; positive is a spike."""
        return self.z - max(threshold, self.tail)

    def band(self, threshold: float) -> tuple[float, float]:
        """The expected value, and the one where `excess` begins."""
        return self.expected, self.expected + self.scale * max(threshold, self.tail)


class _Window:
    """The accepted values of one signal, with their expectation and scale."""

    def __init__(self, size: int) -> None:
        self._scores: deque[_Score] = deque(maxlen=size)
        self._largest: deque[float] = deque(maxlen=TAIL_WINDOWS * size)
        self._pending: list[_Score] = []
        self._enough = min(MIN_HISTORY, size)

    def score(self, value: float, step: int, batch: int | None) -> _Score:
        expected, scale, z, tail = math.nan, math.nan, 0.0, 0.0
        if len(self._scores) >= self._enough:
            expected, scale = _fitted(np.array([score.value for score in self._scores]))
            z = (value - expected) / scale
            tail = TAIL_FACTOR * sorted(self._largest)[-TAIL_RANK]
        z = z if math.isfinite(value) else math.inf
        return _Score(value, expected, scale, z, tail, step, batch)

    def accept(self, score: _Score) -> None:
        """Take a value into the window: large ones once a normal one follows, or when they stay."""
        self._pending.append(score)
        if score.z < NORMAL_Z or len(self._pending) >= RECENT:
            self._scores.extend(self._pending)
            self._largest.extend(each.z for each in self._pending)
            self._pending.clear()

    def onset(self, score: _Score) -> _Score:
        """Where a rise that is now detected began: the first of the large values before it."""
        first = self._pending[0] if self._pending else score
        self._pending.clear()
        return first


def _windows(size: int) -> dict[str, _Window]:
    return {"loss": _Window(size), "grad_norm": _Window(size)}


def _fitted(values: FloatArray) -> tuple[float, float]:
    """Expected next value, and scale of the noise; [n], n >= 8."""
    quarter = len(values) // 4
    values = values[-4 * quarter :]
    expected = center = _median(values)
    trend = np.full(len(values), center)
    medians = np.sort(values.reshape(4, quarter))[:, quarter // 2]
    if medians[3] < medians[0]:  # a descent is followed; a rise is what is looked for
        places = np.arange(len(values) + 1)
        middles = (np.arange(4) + 0.5) * quarter - 0.5
        slopes = np.diff(medians) / quarter
        line = np.interp(places, middles, medians)
        line += slopes[0] * np.minimum(places - middles[0], 0)  # interp ends at the outer medians
        line += min(0.0, slopes[2]) * np.maximum(places - middles[3], 0)
        trend = line[:-1]
        # A descent that levels off is above its trend: then the latest values are what to expect.
        expected = max(float(line[-1]), min(center, _median(values[-RECENT:])))
    residuals = np.sort(values - trend)
    residuals -= residuals[len(residuals) // 2]
    # The upper tail of skewed noise is wider than the MAD says; equal for normal noise.
    upper = float(residuals[int(0.95 * len(residuals))]) / 1.645
    scale = max(1.4826 * _median(np.abs(residuals)), upper)
    return expected, max(scale, FLOOR * abs(expected), 1e-12)


def _median(values: FloatArray) -> float:
    # Of an even number the upper middle value: np.median takes ten times as long for so few.
    return float(np.sort(values)[len(values) // 2])
