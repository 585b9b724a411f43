"""What a signal says: its type, its range, its hours of the day, and an estimate of the marginal one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.carbon.signals import HOUR_S, Signal, marginal_intensity, refused, utc
from holdfast.numbers import brief
from holdfast.report import figures


@dataclass(frozen=True)
class Intensity(Answer):
    """A signal and its summary.

    Attributes:
        signal: as read, or the marginal one that was estimated.
        by_hour: hour (UTC), mean, low, high (5 % and 95 % of the days).
        deciles: of a marginal fit, as of `marginal_intensity`.
    """

    signal: Signal
    by_hour: list[dict[str, float]]
    deciles: list[dict[str, float]]

    @property
    def mean(self) -> float:
        """Of the hours with a value."""
        return float(np.nanmean(self.signal.values))

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Grid signal"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast carbon intensity``."""
        values = self.signal.values
        return {
            "signal": self.signal.to_dict(),
            "mean": self.mean,
            "min": np.nanmin(values),
            "max": np.nanmax(values),
            "by_hour_utc": self.by_hour,
            "marginal_by_decile": self.deciles,
            "notes": list(self.signal.notes),
        }

    def values(self) -> Sequence[Value]:
        """The mean and the gaps."""
        missing = Value("hours_missing", self.signal.missing, better="lower")
        return [Value("mean", self.mean, self.signal.unit), missing]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The type of the signal and its hours."""
        signal = self.signal
        hours = f"{utc(signal.start_s)} to {utc(signal.end_s)}, {signal.missing} without a value"
        return [("Signal", signal.label), ("Hours", hours)]

    def unknowns(self) -> Sequence[Unknown]:
        """What the reader changed."""
        return [Unknown(note) for note in self.signal.notes]

    def sections(self) -> Sequence[Section]:
        """By hour of day; with a fit, by generation."""
        signal, unit, rows = self.signal, self.signal.unit, self.by_hour
        clean, dirty = (pick(rows, key=lambda row: row["mean"]) for pick in (min, max))
        sentence = (
            f"{signal.kind.capitalize()}, {signal.zone or 'zone not stated'}: mean {brief(self.mean)} "
            f"{unit}, lowest around {clean['hour']:02.0f}:00 UTC ({brief(clean['mean'])}), highest "
            f"around {dirty['hour']:02.0f}:00 UTC ({brief(dirty['mean'])})."
        )
        title = "Hour of day, UTC"
        drawn = figures.lines(rows, "hour", "mean", title, unit, low="low", high="high")
        columns = {
            "hour": ColumnFormat("Hour (UTC)"),
            "mean": ColumnFormat("Mean, 5 to 95 % of the days", unit, interval=("low", "high")),
        }
        table = Table(pa.Table.from_pylist(rows), columns)
        found = [Section("hours", "Which hours are clean?", sentence, [drawn], [table])]
        if self.deciles:
            first, last = self.deciles[0]["g_per_kwh"], self.deciles[-1]["g_per_kwh"]
            sentence = (
                f"{brief(first)} {unit} in the tenth of hours with least fossil generation, "
                f"{brief(last)} in that with most."
            )
            how = How(
                "slope of hourly changes of fossil emissions on those of fossil generation",
                source="Siler-Evans, Azevedo and Morgan, Environ. Sci. Technol. 46 (2012)",
                notes="Generation of the zone only: imports are left out. Intervals: White's errors.",
            )
            table = Table(pa.Table.from_pylist(self.deciles))
            question = "What would one more kWh emit?"
            found.append(Section("marginal", question, sentence, tables=[table], how=how))
        return found


def intensity(
    signal: Signal,
    *,
    generation: Mapping[str, npt.ArrayLike] | None = None,
    marginal: bool = False,
) -> Intensity:
    """Summarize a signal; estimate the marginal intensity from a fuel mix.

    Args:
        signal: of any kind.
        generation: fuel code -> [H] MW of the same hours.
        marginal: estimate the marginal intensity from `generation`.

    Raises:
        InputError: ``no-data`` for `marginal` without a fuel mix, or a signal without values.
    """
    deciles: list[dict[str, float]] = []
    if marginal and not generation:
        problem, expected = "a marginal intensity needs a fuel mix", "an EIA-930 file"
        raise refused(problem, "no-data", signal.source, "--marginal", signal.kind, expected)
    if signal.missing == signal.hours:
        raise refused("no hour has a value", "no-data", signal.source)
    if marginal and generation:
        signal, deciles = marginal_intensity(generation, signal)
    hour = (signal.start_s // HOUR_S + np.arange(signal.hours)) % 24
    rows = []
    for each in range(24):
        values = signal.values[(hour == each) & ~np.isnan(signal.values)]
        if len(values):
            low, high = np.quantile(values, [0.05, 0.95])
            rows.append({"hour": each, "mean": values.mean(), "low": low, "high": high})
    return Intensity(signal, rows, deciles)
