"""Loss spikes of a recorded run: where they began, what became of them, which layer moved most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.numbers import brief, counted, percent
from holdfast.profile.numerics.curves import Curve, finite, read_curve
from holdfast.profile.numerics.detector import MIN_HISTORY, SpikeDetector
from holdfast.profile.numerics.tracker import STATISTICS, load, sketch_files
from holdfast.report import figures
from holdfast.report.page import Unknown

POINTS = 1500
"""Points of the figure: of each stretch the largest loss is drawn."""


@dataclass(frozen=True)
class Spikes(Answer):
    """Spikes of a loss curve.

    Attributes:
        path: the file.
        columns: which columns were read.
        steps: values of the loss.
        first_step, last_step: of the curve.
        events: step, signal, value, expected, z, batch, layer, update_ratio, state (spike: still open,
            recovered, diverged, nan), detected_step, peak, peak_step, end_step.
        spike_score: share of steps beyond the threshold.
        window, threshold: as of `spikes`.
        rejected, replayed, without_loss: rows set aside.
    """

    path: Path
    columns: dict[str, str]
    steps: int
    first_step: int
    last_step: int
    events: list[dict[str, Any]]
    spike_score: float
    window: int
    threshold: float
    rejected: int
    replayed: int
    without_loss: int
    curve: Curve
    bands: list[tuple[float, float] | None]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Loss spikes"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the curve itself."""
        return {
            name: getattr(self, name)
            for name in (
                *("path", "columns", "steps", "first_step", "last_step", "events", "spike_score"),
                *("window", "threshold", "rejected", "replayed", "without_loss"),
            )
        }

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The file."""
        columns = ", ".join(f"{name}: {column}" for name, column in self.columns.items())
        return [("file", str(self.path)), ("columns", columns)]

    def values(self) -> Sequence[Value]:
        """Counts of events."""
        states = ("recovered", "diverged", "nan", "spike")
        made = [
            Value(f"{state}_events", sum(e["state"] == state for e in self.events), better="lower")
            for state in states
        ]
        return [*made, Value("spike_score", self.spike_score, better="lower")]

    def unknowns(self) -> Sequence[Unknown]:
        """What was not looked at."""
        found = []
        if self.steps < MIN_HISTORY:
            text = f"{self.steps} values are too few to tell a spike from noise ({MIN_HISTORY} are needed)."
            found.append(Unknown(text, "log the loss at every step"))
        if self.rejected:
            found.append(Unknown(f"{counted(self.rejected, 'row')} without a number set aside."))
        if self.replayed:
            found.append(
                Unknown(f"{counted(self.replayed, 'row')} replaced: the run was resumed from an earlier step.")
            )
        return found

    def sections(self) -> Sequence[Section]:
        """The curve, and a row per spike."""
        states = [event["state"] for event in self.events]
        parts = [
            f"{states.count(state)} {label}"
            for state, label in (
                *(("recovered", "recovered"), ("diverged", "diverged")),
                *(("nan", "NaN or infinite"), ("spike", "still open")),
            )
            if state in states
        ]
        sentence = f"No spikes in {self.steps:,} steps."
        if self.events:
            sentence = (
                f"{counted(len(self.events), 'spike')} in {self.steps:,} steps: {', '.join(parts)}; "
                f"{percent(self.spike_score)} of the steps are outside the noise."
            )
            first = self.events[0]
            where = "" if first["batch"] is None else f", batch {first['batch']}"
            layer = f"; {first['layer']} moved most" if first["layer"] else ""
            sentence += f" The first begins at step {first['step']:,}{where}{layer}."
        columns = {
            "step": ColumnFormat("Step"),
            "state": ColumnFormat("State"),
            "signal": ColumnFormat("Signal"),
            "value": ColumnFormat("Value"),
            "expected": ColumnFormat("Expected"),
            "z": ColumnFormat("z", digits=1),
            "peak": ColumnFormat("Peak loss"),
            "end_step": ColumnFormat("End"),
            "batch": ColumnFormat("Batch"),
            "layer": ColumnFormat("Largest update"),
            "update_ratio": ColumnFormat("Update / weight", detail=True),
        }
        empty = {name: pa.array([], pa.float64()) for name in columns}
        data = pa.Table.from_pylist(self.events) if self.events else pa.table(empty)
        kept = {
            name: form
            for name, form in columns.items()
            if name in ("step", "state", "end_step") or data[name].null_count < data.num_rows
        }
        table = Table(data, kept, "One row per spike, in order.", empty="No spikes.")
        how = How(
            [
                "z = (x - expected) / scale; a spike where z > threshold",
                "scale = 1.4826 MAD of the accepted values, or their upper 5 % tail where that is wider",
            ],
            {"window, steps": self.window, "threshold": self.threshold, "needed history": MIN_HISTORY},
            notes="A spike ends when two values in a row are below z = 3. One that does not end within a "
            "window of steps is a divergence, and what follows is held against itself.",
        )
        return [
            Section("spikes", "Where did the loss spike?", sentence, [self._figure()], [table], how)
        ]

    def _figure(self) -> Any:
        rows = []
        count = -(-len(self.curve.steps) // POINTS)
        for first in range(0, len(self.curve.steps), count):
            part = range(first, min(first + count, len(self.curve.steps)))
            known = [n for n in part if finite(self.curve.loss[n]) is not None]
            if known:
                n = max(known, key=self.curve.loss.__getitem__)
                low, high = self.bands[n] or (None, None)
                rows.append({"step": self.curve.steps[n], "loss": self.curve.loss[n], "low": low, "high": high})
        marks = [
            {"at": event["step"], "text": f"step {event['step']}: {event['state']}"}
            for event in self.events[:30]
        ]
        return figures.lines(
            rows, "step", "loss", "Step", "Loss; band: expected to threshold",
            low="low", high="high", marks=marks, zero=False,
        )  # fmt: skip


def spikes(
    curve: str | Path,
    *,
    loss: str | None = None,
    grad_norm: str | None = None,
    step: str | None = None,
    batch: str | None = None,
    track: str | Path | None = None,
    window: int = 128,
    threshold: float = 6.0,
) -> Spikes:
    """Find the spikes of a recorded loss curve.

    Args:
        curve: file, as of `curves.read_curve`.
        loss: column of the loss.
        grad_norm: column of the gradient norm.
        step: column of the step.
        batch: column of the number of the batch.
        track: folder of a `WeightTracker` of the run: the layer comes from the nearest sketch from the
            spike on.
        window: accepted values that a new one is held against.
        threshold: z beyond which a value is a spike.

    Raises:
        InputError: as `read_curve`.
    """
    read = read_curve(curve, loss=loss, grad_norm=grad_norm, step=step, batch=batch)
    detector = SpikeDetector(window, threshold)
    bands = []
    with progress.track("looking for spikes", len(read.steps), "steps") as bar:
        for n, (at, value) in enumerate(zip(read.steps, read.loss, strict=True)):
            bands.append(detector.band())
            detector.update(at, value, read.grad_norm[n], batch=read.batch[n])
            if n % 1000 == 999:
                bar.advance(1000)
    events = [asdict(event) for event in detector.events]
    if track is not None:
        _name_layers(events, Path(track))
    return Spikes(
        read.path, read.columns, len(read.steps), read.steps[0], read.steps[-1], events,
        detector.spike_steps / detector.steps, window, threshold, read.rejected, read.replayed,
        read.without_loss, read, bands,
    )  # fmt: skip


def _name_layers(events: list[dict[str, Any]], folder: Path) -> None:
    """Put in the parameter with the largest update at the first sketch from each spike on."""
    files = sketch_files(folder)
    for event in events:
        step = next((n for n in files if n >= event["step"]), None)
        if step is None:
            continue
        sketch = load(files[step])
        ratios = sketch.statistics[:, STATISTICS.index("update_ratio")]
        if np.isnan(ratios).all():
            continue
        row = int(np.nanargmax(ratios))
        event["layer"], event["update_ratio"] = sketch.names[row], float(ratios[row])
