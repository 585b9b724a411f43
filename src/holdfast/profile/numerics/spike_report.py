"""Loss spikes of a recorded run: where they began and what became of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from holdfast.answer import Answer, ColumnFormat, Figure, Section, Unknown, Value
from holdfast.command import option
from holdfast.numbers import counted, percent
from holdfast.plain import plain
from holdfast.profile.numerics.curves import Curve, read_curve
from holdfast.profile.numerics.detector import MIN_HISTORY, SpikeDetector
from holdfast.profile.ops.sections import section
from holdfast.report import figures

# Points of the figure: of each stretch the largest loss is drawn.
POINTS = 1500
STATES = {
    "recovered": "recovered",
    "diverged": "did not return",
    "nan": "NaN or infinite",
    "spike": "still open",
}


@dataclass(frozen=True)
class Spikes(Answer):
    """Spikes of a loss curve.

    Attributes:
        curve: the file, the columns that were read, and the rows that were not.
        events: step, signal, value, expected, z, batch, layer, update_ratio, state (spike: still open,
            recovered, diverged, nan), detected_step, peak, peak_step, end_step.
        spike_score: share of steps beyond the threshold.
        window: accepted values that a new one is held against.
        threshold: z beyond which a value is a spike.
        drawn: the curve, thinned: step, loss, low (expected), high (threshold).
        lowest: lowest level of the loss: the median of a window; None: fewer values than a window.
        level: that of the last window.
    """

    curve: Curve = field(repr=False)
    events: list[dict[str, Any]]
    spike_score: float
    window: int
    threshold: float
    drawn: list[dict[str, Any]] = field(repr=False)
    lowest: float | None = None
    level: float | None = None

    title = "Loss spikes"

    @property
    def steps(self) -> int:
        """Values of the loss."""
        return len(self.curve.points)

    def to_dict(self) -> Any:
        """Everything but the curve itself."""
        both = vars(self) | vars(self.curve) | {"steps": self.steps}
        return plain({key: both[key] for key in both if key not in ("curve", "drawn", "points")})

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The file."""
        columns = ", ".join(f"{name}: {column}" for name, column in self.curve.columns.items())
        return [("file", str(self.curve.path)), ("columns", columns)]

    def values(self) -> Sequence[Value]:
        """Counts of events."""
        counts = {state: sum(e["state"] == state for e in self.events) for state in STATES}
        counts["spike_score"] = self.spike_score
        return [Value(name, count, better="lower") for name, count in counts.items()]

    def unknowns(self) -> Sequence[Unknown]:
        """What was not looked at."""
        texts = {
            f"Only {self.steps} values: spikes are looked for after {MIN_HISTORY}.": self.steps
            <= MIN_HISTORY,
            f"{counted(self.curve.rejected, 'row')} without a number set aside.": self.curve.rejected,
            f"{counted(self.curve.replayed, 'row')} replaced by a resumed run.": self.curve.replayed,
            "No column of steps (--step): rows are counted from 1.": "step"
            not in self.curve.columns,
        }
        return [Unknown(text) for text, holds in texts.items() if holds]

    def sections(self) -> Sequence[Section]:
        """The curve, and a row per spike."""
        sentence = f"No spikes in {self.steps:,} steps."
        if self.steps <= MIN_HISTORY:
            sentence = f"Too few values to find spikes: {self.steps:,}."
        if self.events:
            states = [event["state"] for event in self.events]
            parts = [f"{states.count(key)} {text}" for key, text in STATES.items() if key in states]
            first = self.events[0]
            sentence = (
                f"{counted(len(self.events), 'spike')} in {self.steps:,} steps: {', '.join(parts)}; "
                f"{percent(self.spike_score)} of the steps are beyond the threshold. The first begins at "
                f"step {first['step']:,}."
            )
            if "diverged" in states and self.level is not None:
                sentence += (
                    f" The loss ends at {self.level:.4g}; its lowest level is {self.lowest:.4g}."
                )
        return [
            section(
                "spikes",
                "Where did the loss spike?",
                sentence,
                self.events,
                "step state signal value expected z peak end_step",
                [self._figure()],
                forms={"z": ColumnFormat("z", digits=1)},
                formula=(
                    "z = (x - expected) / scale; a spike where z > threshold",
                    "level: median of a window; a divergence where it exceeds its minimum by "
                    "2 x threshold x scale and by 10 %",
                ),
                parameters={"window, steps": self.window, "threshold": self.threshold},
                notes="A spike ends when two values in a row are below z = 3. One that does not end within "
                "a window of values has not returned, and what follows is held against itself; once the "
                "loss is back where it was, it has recovered.",
            )
        ]

    def _figure(self) -> Figure:
        marks = [
            {"at": event["step"], "text": f"step {event['step']}: {STATES[event['state']]}"}
            for event in self.events[:30]
        ]
        title = "Loss; band: expected to threshold"
        band: dict[str, Any] = {"low": "low", "high": "high", "marks": marks, "zero": False}
        return figures.lines(self.drawn, "step", "loss", "Step", title, **band)


def spikes(
    curve: str | Path,
    /,
    *,
    loss: str | None = None,
    grad_norm: str | None = None,
    step: str | None = None,
    window: Annotated[int, option(at_least=32, metavar="N")] = 128,
    threshold: Annotated[float, option(at_least=1)] = 6.0,
) -> Spikes:
    """Find loss spikes in a recorded curve, and whether the run recovered.

    Args:
        curve: CSV of TensorBoard, of W&B, or any with a step and a loss.
        loss: Column of the loss (default: one with a usual name, as for all columns).
        grad_norm: Column of the gradient norm.
        step: Column of the step.
        window: Accepted values that a new one is compared with.
        threshold: Robust z-score beyond which a value is a spike.

    Raises:
        InputError: as `curves.read_curve`.
    """
    read = read_curve(curve, loss=loss, grad_norm=grad_norm, step=step)
    detector = SpikeDetector(window, threshold)
    stretch = -(-len(read.points) // POINTS)
    drawn: list[dict[str, Any]] = []
    for n, (at, value, norm) in enumerate(read.points):
        detector.update(at, value, norm)
        low, high = detector.band
        row = {"step": at, "loss": value, "low": low, "high": high}
        if n % stretch == 0:
            drawn.append(row)
        elif math.isfinite(value) and not drawn[-1]["loss"] >= value:
            drawn[-1] = row
    events = [asdict(event) for event in detector.events]
    score = detector.spike_steps / len(read.points)
    levels = [None if math.isnan(each) else each for each in (detector.lowest, detector.level)]
    return Spikes(read, events, score, window, threshold, drawn, *levels)
