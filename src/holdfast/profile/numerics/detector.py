"""Loss spikes as they happen: a robust z-score on a trailing window, and what becomes of each spike.

    z = (x - expected) / scale,   a spike where z > 6

`expected` is the median of the last 128 accepted values; while the loss falls, the trend through the
medians of their quarters is followed, so that the scale (1.4826 MAD of the residuals) is that of the noise
and not of the descent. Values of a spike are not accepted into the window.

A rise that is too slow for that window is found against the lowest level so far, where the level is the
median of the last 128 values:

    level - lowest > max(2 x threshold x least scale of the window before the lowest, 10 % of the lowest)

It began where the level was last the lowest one, up to a 36th of that: on a plateau noise decides which is.

A spike or rise that does not return is a divergence; one whose loss does return later, as after a warm
restart of the learning rate, has recovered.
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
# Values that follow a descent whose slope changes; also those within which a spike may return.
RECENT = 16
# Rise of the level over its minimum, as a share of it, below which no slow divergence is seen.
RISE = 0.1
# Share of such a rise that is noise of the level: of 12 scales, three errors of a median of 128 values.
BLUR = 1 / 36
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
        state: spike: still open; recovered; diverged: it lasts, or rises slowly; nan.
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
        # Lowest level of the loss so far, and the level now; NaN: fewer values than a window.
        self.lowest = self.level = math.nan
        self._signals = _windows(window)
        self._open: Spike | None = None
        self._normal = 0
        # Values so far, and how many there were when the last spike opened or closed.
        self._seen = self._since = 0
        # Where the open spike has recovered: signal, value; and those of divergences that have not.
        self._baseline = ("loss", math.nan)
        self._lost: list[tuple[Spike, tuple[str, float]]] = []
        self._recent = {name: deque[float](maxlen=window) for name in self._signals}
        # The last step of a level that was the lowest one but for noise; beyond the limit it has risen.
        self._lowest_step, self._limit = 0, math.inf
        # Levels are taken every quarter of a window: the steps of the last three, and the noise of the last
        # five, as a window that holds a turn says more than the noise is.
        self._taken, self._noise = deque([0], 3), deque([math.inf], 5)

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
        # A training loop has tensors, each with the graph of its gradient.
        given = {name: getattr(value, "item", value.__float__)() for name, value in given.items()}
        loss = given["loss"]
        scores = {}
        self._seen += 1
        for name, value in given.items():
            # A gradient norm scatters by factors, so its logarithm is watched.
            watched = math.log(value) if name == "grad_norm" and value > 0 else value
            scores[name] = self._signals[name].score(watched, step, batch)
            if math.isfinite(watched):
                self._recent[name].append(watched)
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
        return changed or self._returned(step, loss) or self._risen(step, loss)

    def _returned(self, step: int, loss: float) -> Spike | None:
        """A divergence whose signal is back where it was before."""
        for place, (spike, (signal, level)) in enumerate(self._lost):
            if loss > spike.peak:
                spike.peak, spike.peak_step = loss, step
            if _median(np.array(self._recent[signal])[-RECENT:]) <= level:
                del self._lost[place]
                spike.state, spike.end_step = "recovered", step
                self._lowest_step = step  # a further rise begins after it
                self._recent["loss"].clear()
                return spike
        return None

    def _risen(self, step: int, loss: float) -> Spike | None:
        """A rise of the level over its minimum that no window has shown."""
        losses = self._recent["loss"]
        if self._open or len(losses) < self.patience or self._seen % (self.patience // 4):
            return None
        self.level = _median(np.array(losses))
        self._taken.append(step)
        low, high = self.band
        if high > low:
            self._noise.append(high - low)
        if not self.level >= self.lowest:
            self.lowest = self.level
            self._limit = self.level + max(2 * min(self._noise), RISE * abs(self.level))
        width = self._limit - self.lowest
        if self.level <= self.lowest + BLUR * width:
            self._lowest_step = self._taken[0]  # the middle of the window
        if self.level <= self._limit or self._lost:
            return None
        rise = Spike(
            step=self._lowest_step,
            signal="loss",
            value=loss,
            expected=self.lowest,
            z=2 * self.threshold * (self.level - self.lowest) / width,
            batch=None,
            layer=None,
            update_ratio=None,
            state="diverged",
            detected_step=step,
            peak=loss,
            peak_step=step,
            end_step=step,
        )
        self.events.append(rise)
        self._since = self._seen
        self._lost.append((rise, ("loss", self.lowest + width / 2)))
        return rise

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
        paused, self._since = self._seen - self._since, self._seen
        last = self.events[-1] if self.events else None
        if last and paused <= (self.patience if last.state == "diverged" else RECENT):
            # It had only paused, or diverges further.
            kept = (baseline for spike, baseline in self._lost if spike is last)
            self._baseline = next(kept, self._baseline)
            self._lost = [each for each in self._lost if each[0] is not last]
            last.state, last.end_step = "nan" if last.state == "nan" else state, None
            self._open = last
            return last
        self._baseline = signal, score.expected + NORMAL_Z * score.scale
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
        if any(math.isinf(score.z) for score in scores.values()):
            before, spike.state = spike.state, "nan"
            self._normal, self._since = 0, self._seen  # a stretch of NaN is one event, however long
            return spike if before != "nan" else None
        self._normal = self._normal + 1 if all(s.z < NORMAL_Z for s in scores.values()) else 0
        given_up = self._seen - self._since >= self.patience
        if self._normal < 2 and not given_up:
            return None
        spike.end_step = step - 1 if self._normal >= 2 else step
        # One that had NaN stays on record as that; its end says when the loss was normal again.
        if spike.state != "nan":
            spike.state = "recovered" if self._normal >= 2 else "diverged"
        if self._normal < 2:
            self._signals = _windows(self.patience)  # what follows is held against itself
            if spike.state == "diverged":
                self._lost.append((spike, self._baseline))
        self._open, self._since = None, self._seen
        self._recent["loss"].clear()  # the level of what follows
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
