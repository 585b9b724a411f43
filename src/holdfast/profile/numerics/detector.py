"""Loss spikes as they happen: a robust z-score on a trailing window, and what becomes of each spike.

    z = (x - expected) / scale,   a spike where z > 6

`expected` is the median of the last 128 accepted values; while the loss falls, its trend is followed, so
that the scale (1.4826 MAD of the residuals) is that of the noise and not of the descent. Values of a spike
are not accepted into the window.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["spike", "recovered", "diverged", "nan"]

MIN_HISTORY = 32
"""Accepted values before the first spike can be told from noise."""
RECENT = 16
"""Values that follow a descent whose slope changes; also the steps within which a spike may return."""
NORMAL_Z = 3.0
"""Below it a value is normal again; two in a row end a spike."""
FLOOR = 0.002
"""Smallest scale, as a share of the expected value: curves without noise have no smaller spikes."""
LARGEST_SEEN = 1.5
"""A spike exceeds the largest accepted z so many times: noise may have heavy tails."""
MEMORY = 8
"""Windows over which the largest accepted z is remembered: tails show rarely."""


@dataclass
class Spike:
    """One spike, from its onset to its end."""

    step: int
    """The first step outside the noise."""
    signal: str
    """What showed it first: loss or grad_norm."""
    value: float
    expected: float
    z: float | None
    """When it was detected; None for NaN."""
    batch: int | None
    """The batch of the onset, where the caller numbers them."""
    layer: str | None
    """The parameter with the largest update relative to its size at the time of detection."""
    update_ratio: float | None
    state: State = "spike"
    detected_step: int = 0
    peak: float = 0.0
    peak_step: int = 0
    end_step: int | None = None
    """The first normal step; of a divergence the step at which it was given up."""


class SpikeDetector:
    """Find spikes in the loss and the gradient norm of a training run, one step at a time.

        detector = SpikeDetector()
        event = detector.update(step, loss, grad_norm, update_ratios=tracker.update_ratios)

    Args:
        window: accepted values that a new one is held against.
        threshold: z beyond which a value is a spike.
        patience: steps after which a spike that has not ended is a divergence; by default `window`.
    """

    def __init__(
        self, window: int = 128, threshold: float = 6.0, patience: int | None = None
    ) -> None:
        self.patience = patience or window
        self.threshold = threshold
        self.events: list[Spike] = []
        """All spikes so far, in order; the last may be open (state "spike")."""
        self.steps = 0
        """Values seen."""
        self.spike_steps = 0
        """Those beyond the threshold, or not finite."""
        # A gradient norm scatters by factors, so its logarithm is watched.
        self._signals = {"loss": _Window(window), "grad_norm": _Window(window)}
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
        self.steps += 1
        given = {"loss": loss} | ({} if grad_norm is None else {"grad_norm": grad_norm})
        if not all(math.isfinite(value) for value in given.values()):
            self.spike_steps += 1
            return self._not_finite(step, given, batch, update_ratios)
        scores = {}
        for name, value in given.items():
            if name == "grad_norm" and value > 0:
                value = math.log(value)  # noqa: PLW2901
            scores[name] = self._signals[name].score(value, step, batch)
        worst = max(scores, key=lambda name: scores[name].excess(self.threshold))
        beyond = scores[worst].excess(self.threshold) > 0
        self.spike_steps += beyond
        changed = None
        if self._open is not None:
            changed = self._continue(self._open, step, loss, scores)
        elif beyond:
            changed = self._begin(step, worst, given, scores[worst], batch, update_ratios)
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
        batch: int | None,
        ratios: Mapping[str, float] | None,
    ) -> Spike:
        last = self.events[-1] if self.events else None
        if last and last.state == "recovered" and last.end_step and step - last.end_step <= RECENT:
            last.state, last.end_step = "spike", None  # it had only paused
            self._open = last
        else:
            window = self._signals[signal]
            onset, at = window.onset(step, batch, NORMAL_Z)
            expected = score.expected if signal == "loss" else math.exp(score.expected)
            layer, ratio = _largest(ratios)
            self._open = Spike(onset, signal, given[signal], expected, score.z, at, layer, ratio)
            self._open.detected_step = step
            self._open.peak, self._open.peak_step = given["loss"], step
            self.events.append(self._open)
        self._normal = 0
        return self._open

    def _continue(
        self, spike: Spike, step: int, loss: float, scores: Mapping[str, _Score]
    ) -> Spike | None:
        if loss > spike.peak:
            spike.peak, spike.peak_step = loss, step
        self._normal = self._normal + 1 if all(s.z < NORMAL_Z for s in scores.values()) else 0
        if spike.state == "nan" and not self._signals["loss"].ready:
            self._normal = 2  # nothing to hold it against
        if self._normal >= 2:
            # One that had NaN stays on record as that; its end says when the loss was normal again.
            spike.state = "nan" if spike.state == "nan" else "recovered"
            spike.end_step = step - 1
            self._open = None
            return spike
        if step - spike.detected_step >= self.patience:
            spike.state = "nan" if spike.state == "nan" else "diverged"
            spike.end_step = step
            self._open = None
            for window in self._signals.values():
                window.clear()  # what follows is held against itself
            return spike
        return None

    def _not_finite(
        self,
        step: int,
        given: Mapping[str, float],
        batch: int | None,
        ratios: Mapping[str, float] | None,
    ) -> Spike | None:
        self._normal = 0
        if self._open is not None:
            changed = None if self._open.state == "nan" else self._open
            self._open.state = "nan"
            return changed
        signal = next(name for name, value in given.items() if not math.isfinite(value))
        layer, ratio = _largest(ratios)
        expected = self._signals[signal].band(self.threshold)[0]
        self._open = Spike(
            step, signal, given[signal], expected, None, batch, layer, ratio, "nan", step
        )
        self._open.peak, self._open.peak_step = given[signal], step
        self.events.append(self._open)
        return self._open

    def band(self) -> tuple[float, float]:
        """Expected loss, and the value beyond which it is a spike; NaN without enough history."""
        return self._signals["loss"].band(self.threshold)


@dataclass(frozen=True)
class _Score:
    """A value held against its window."""

    value: float
    expected: float
    z: float
    largest_z: float
    """Of the values accepted before."""
    step: int
    batch: int | None

    def excess(self, threshold: float) -> float:
        """How far beyond the threshold; positive is a spike."""
        return self.z - max(threshold, LARGEST_SEEN * self.largest_z)


class _Window:
    """The accepted values of one signal, with their expectation and scale."""

    def __init__(self, size: int) -> None:
        self._scores: deque[_Score] = deque(maxlen=size)
        self._largest: deque[float] = deque(maxlen=MEMORY * size)
        self._fitted: tuple[float, float] | None = None
        """Expected value and scale; fitted when the next value is scored."""

    @property
    def ready(self) -> bool:
        return len(self._scores) >= min(MIN_HISTORY, self._scores.maxlen or MIN_HISTORY)

    def band(self, threshold: float) -> tuple[float, float]:
        if not self.ready:
            return math.nan, math.nan
        expected, scale = self._fit()
        return expected, expected + scale * max(threshold, LARGEST_SEEN * max(self._largest))

    def score(self, value: float, step: int, batch: int | None) -> _Score:
        if not self.ready:
            return _Score(value, value, 0.0, 0.0, step, batch)
        expected, scale = self._fit()
        z = (value - expected) / scale
        largest = max(self._largest) if z > NORMAL_Z else 0.0  # looked up where it can matter
        return _Score(value, expected, z, largest, step, batch)

    def accept(self, score: _Score) -> None:
        self._scores.append(score)
        self._largest.append(score.z)
        self._fitted = None

    def clear(self) -> None:
        self._scores.clear()
        self._largest.clear()
        self._fitted = None

    def onset(self, step: int, batch: int | None, least_z: float) -> tuple[int, int | None]:
        """Step and batch at which a rise that is now detected began: its values before were large too."""
        for past in reversed(self._scores):
            if past.z < least_z:
                break
            step, batch = past.step, past.batch
        return step, batch

    def _fit(self) -> tuple[float, float]:
        if self._fitted is None:
            self._fitted = _fitted([score.value for score in self._scores])
        return self._fitted


def _fitted(values: Sequence[float]) -> tuple[float, float]:
    """Expected next value, and scale of the noise."""
    n = len(values)
    center, half = _median(values), n // 2
    # Slope by the medians of both halves. Only a descent is followed: a rise is what is looked for.
    slope = min(0.0, (_median(values[n - half :]) - _median(values[:half])) / (n - half))
    middle = (n - 1) / 2
    residuals = sorted(value - center - slope * (i - middle) for i, value in enumerate(values))
    shift = _middle(residuals)
    scale = 1.4826 * _median([abs(each - shift) for each in residuals])
    # The upper tail of skewed noise is wider than the MAD says; equal for normal noise.
    upper = residuals[min(n - 1, round(0.95 * (n - 1)))] - shift
    scale = max(scale, upper / 1.645)
    # A descent that levels off is above its trend: then the latest values are what to expect.
    recent = min(center, _median(values[-RECENT:]))
    expected = max(center + shift + slope * (n - middle), recent)
    return expected, max(scale, FLOOR * abs(expected), 1e-12)


def _median(values: Sequence[float]) -> float:
    return _middle(sorted(values))


def _middle(ordered: Sequence[float]) -> float:
    n = len(ordered)
    return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2


def _largest(ratios: Mapping[str, float] | None) -> tuple[str | None, float | None]:
    known = {name: ratio for name, ratio in (ratios or {}).items() if not math.isnan(ratio)}
    return max(known.items(), key=lambda item: item[1], default=(None, None))
