"""Hourly grid signals that carry what they mean, and intensities computed from generation.

An average intensity says what a grid emitted per kWh; a marginal one what one more kWh would have
emitted. They differ by factors, so every signal names its kind, and two kinds never meet in one figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.answer import Answer, Section, Table, Unknown
from holdfast.errors import InputError
from holdfast.numbers import brief, counted
from holdfast.report import figures

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Kind = Literal["average", "marginal", "price"]

HOUR_S = 3600
# A whole day would be invented.
LONGEST_GAP_H = 24
DECILES = 10
# The plants that follow load; the sun and the wind do not answer a demand.
FOSSIL = ("COL", "NG", "OIL")
# gCO2e/kWh by EIA-930 fuel code: the life-cycle factors of HewlettPackard/dc-rl, which follow the medians
# of IPCC AR5 WG III, annex III, table A.III.2 (oil: 650).
LIFECYCLE_FACTORS: Mapping[str, float] = {
    "WND": 11.0,
    "SUN": 41.0,
    "WAT": 24.0,
    "OIL": 650.0,
    "NG": 490.0,
    "COL": 820.0,
    "NUC": 12.0,
    "OTH": 230.0,
}


@dataclass(frozen=True)
class Signal:
    """One value per hour of a zone, and what it means.

    Attributes:
        values: [H], in `unit`; NaN where the source has none.
        start_s: start of the first hour, seconds since 1970-01-01 UTC.
        kind: ``"average"``, ``"marginal"`` or ``"price"``.
        zone: name of the grid zone.
        unit: ``"gCO2/kWh"``; of a price its own.
        basis: ``"production"`` or ``"consumption"`` (imports counted); empty if the source does not say.
        scope: ``"direct"`` (combustion only) or ``"lifecycle"``; empty if the source does not say.
        source: the file.
        notes: what the reader of the file changed or left out, in sentences.
        generation: fuel code -> [H] MW, of a fuel mix.
    """

    values: FloatArray
    start_s: int
    kind: Kind
    zone: str = ""
    unit: str = "gCO2/kWh"
    basis: str = ""
    scope: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    generation: Mapping[str, FloatArray] = field(default_factory=dict)

    @property
    def hours(self) -> int:
        """Number of hours, with those that have no value."""
        return len(self.values)

    @property
    def end_s(self) -> int:
        """End of the last hour."""
        return self.start_s + HOUR_S * self.hours

    @property
    def missing(self) -> int:
        """Hours without a value."""
        return int(np.isnan(self.values).sum())

    def inputs(self) -> list[tuple[str, str]]:
        """What a page says of it: type, file, hours."""
        hours = f"{utc(self.start_s)} to {utc(self.end_s)}, {self.missing} without a value"
        kind = " ".join(filter(None, (self.kind, self.scope, self.basis)))
        label = f"{self.zone or 'zone not stated'}, {kind}, {self.unit}, {self.source}"
        return [("Signal", label), ("Its hours", hours)]

    def to_dict(self) -> dict[str, Any]:
        """What the values mean and cover, without the values."""
        names = ("kind", "unit", "zone", "basis", "scope", "source", "start_s", "end_s", "hours")
        facts = {name: getattr(self, name) for name in names}
        return {**facts, "time_zone": "UTC", "hours_missing": self.missing}

    def interpolated(self) -> Signal:
        """The signal with gaps of up to a day filled by straight lines.

        Raises:
            InputError: ``no-data`` where a gap is longer.
        """
        bad = np.isnan(self.values)
        if not bad.any():
            return self
        edges = np.flatnonzero(np.diff(np.concatenate([[0], bad.view(np.int8), [0]])))
        lengths = edges[1::2] - edges[::2]
        worst = int(np.argmax(lengths))
        if lengths[worst] > LONGEST_GAP_H or bad.all():
            place = utc(self.start_s + HOUR_S * int(edges[2 * worst]))
            found = f"{counted(int(lengths[worst]), 'hour')} without a value"
            problem = "the signal has a gap that is too long to interpolate"
            raise refused(problem, "no-data", self.source, place, found, f"{LONGEST_GAP_H} at most")
        hours = np.arange(self.hours)
        values = np.interp(hours, hours[~bad], self.values[~bad])
        note = f"{counted(int(bad.sum()), 'hour')} without a value interpolated."
        return replace(self, values=values, notes=(*self.notes, note))


def utc(time_s: float) -> str:
    """A time as ISO text, in UTC to the second."""
    return f"{np.datetime64(int(time_s), 's')}Z"


def refused(
    problem: str,
    code: str,
    path: str | Path | None = None,
    place: str | None = None,
    found: str | None = None,
    expected: str | None = None,
    remedy: str | None = None,
) -> InputError:
    """The error of input that cannot be used; arguments as of `InputError`."""
    about = {"place": place, "found": found, "expected": expected, "remedy": remedy}
    return InputError(problem, code=code, path=path or None, **about)


def mix_intensity(
    generation: Mapping[str, npt.ArrayLike], factors: Mapping[str, float] = LIFECYCLE_FACTORS
) -> tuple[FloatArray, int]:
    """The average intensity of a fuel mix: sum of generation x factor over the sum of generation.

    Negative generation (pumps, batteries that charge, a plant's own use at night) is consumption: it
    counts as zero. An hour in which a fuel is missing, or nothing is generated, has no intensity.

    Args:
        generation: fuel code -> [H] MW.
        factors: fuel code -> gCO2/kWh.

    Returns:
        [H] gCO2/kWh, and the number of negative values.

    Raises:
        InputError: ``unknown-name`` for a fuel without a factor.
    """
    unknown = [fuel for fuel in generation if fuel not in factors]
    if unknown:
        problem = "no emission factor for a fuel"
        raise refused(problem, "unknown-name", found=unknown[0], expected=", ".join(factors))
    stacked = np.array([np.asarray(mw, np.float64) for mw in generation.values()])  # [fuel, H]
    weights = np.array([factors[fuel] for fuel in generation])
    negative = int((stacked < 0).sum())
    stacked = np.where(stacked < 0, 0.0, stacked)  # a NaN stays NaN
    total = stacked.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, weights @ stacked / total, np.nan), negative


def marginal_intensity(average: Signal) -> tuple[Signal, list[dict[str, float]]]:
    """Estimate the marginal intensity: hourly changes of fossil emissions over those of generation.

    One slope per decile of fossil generation, as in Siler-Evans, Azevedo and Morgan, "Marginal emissions
    factors for the U.S. electricity system" (Environ. Sci. Technol. 46, 2012). It describes the plants
    that followed load in the sample, not those that a flexible load of the future would call.

    Args:
        average: the average intensity of a fuel mix.

    Returns:
        The marginal signal, and per decile: generation_max_mw, g_per_kwh, low, high (95 %), hours.

    Raises:
        InputError: ``no-data`` with fewer than 300 hourly changes.
    """
    fuels = [fuel for fuel in average.generation if fuel in FOSSIL]
    stacked = np.array([average.generation[fuel] for fuel in fuels], np.float64)  # [fuel, H]
    stacked = np.where(stacked < 0, 0.0, stacked).reshape(len(fuels), average.hours)
    load = stacked.sum(axis=0)
    emitted = np.array([LIFECYCLE_FACTORS[fuel] for fuel in fuels]) @ stacked  # MW x g/kWh = kg/h
    change, rise = np.diff(load), np.diff(emitted)
    usable = ~np.isnan(rise) & (load[1:] > 0)
    if usable.sum() < 30 * DECILES:
        problem = "too few hours with fossil generation to estimate a marginal intensity"
        found = f"{usable.sum()} hourly changes"
        raise refused(problem, "no-data", average.source, None, found, f"{30 * DECILES}")
    edges = np.nanquantile(load, np.linspace(0, 1, DECILES + 1))
    decile = np.clip(np.searchsorted(edges, load, side="right") - 1, 0, DECILES - 1)
    slopes, rows = np.full(DECILES, np.nan), []
    for place in np.unique(decile[1:][usable]):
        chosen = usable & (decile[1:] == place)
        x = change[chosen] - change[chosen].mean()
        y = rise[chosen] - rise[chosen].mean()
        slopes[place] = slope = x @ y / (x @ x)
        # White's standard error: the scatter grows with the size of the change.
        error = 1.96 * np.sqrt(((x * (y - slope * x)) ** 2).sum()) / (x @ x)
        row = {"generation_max_mw": edges[place + 1], "g_per_kwh": slope}
        rows.append(row | {"low": slope - error, "high": slope + error, "hours": len(x)})
    values = np.where(np.isnan(average.values), np.nan, slopes[decile])
    note = "Marginal intensity estimated by regression of hourly changes of fossil generation."
    return replace(average, values=values, kind="marginal", notes=(*average.notes, note)), rows


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
    def title(self) -> str:
        """The heading of the page."""
        return f"Grid signal: {self.signal.kind}, {self.signal.zone or 'zone not stated'}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast carbon intensity``."""
        values = self.signal.values
        return {
            "signal": self.signal.to_dict(),
            "mean": np.nanmean(values),
            "min": np.nanmin(values),
            "max": np.nanmax(values),
            "by_hour_utc": self.by_hour,
            "marginal_by_decile": self.deciles,
            "notes": list(self.signal.notes),
        }

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The type of the signal and its hours."""
        return self.signal.inputs()

    def unknowns(self) -> Sequence[Unknown]:
        """What the reader changed."""
        return [Unknown(note) for note in self.signal.notes]

    def sections(self) -> Sequence[Section]:
        """By hour of day; with a fit, by generation."""
        signal, unit, rows = self.signal, self.signal.unit, self.by_hour
        clean, dirty = (pick(rows, key=lambda row: row["mean"]) for pick in (min, max))
        sentence = (
            f"{signal.kind.capitalize()}, {signal.zone or 'zone not stated'}: mean "
            f"{brief(float(np.nanmean(signal.values)))} {unit}, lowest around {clean['hour']:02.0f}:00 "
            f"UTC ({brief(clean['mean'])}), highest around {dirty['hour']:02.0f}:00 UTC "
            f"({brief(dirty['mean'])})."
        )
        drawn = figures.lines(rows, "hour", "mean", "Hour, UTC", unit, low="low", high="high")
        table = Table(pa.Table.from_pylist(rows), caption="low, high: 5 and 95 % of the days.")
        found = [Section("hours", "Which hours are clean?", sentence, [drawn], [table])]
        if self.deciles:
            ends = " to ".join(brief(self.deciles[n]["g_per_kwh"]) for n in (0, -1))
            sentence = f"{ends} {unit} from the least to the most fossil generation."
            table = Table(pa.Table.from_pylist(self.deciles), caption="Imports are left out.")
            question = "What would one more kWh emit?"
            found.append(Section("marginal", question, sentence, tables=[table]))
        return found


def intensity(signal: Signal, *, marginal: bool = False) -> Intensity:
    """Summarize a signal; estimate the marginal intensity from a fuel mix.

    Args:
        signal: of any kind.
        marginal: estimate the marginal intensity from the fuel mix.

    Raises:
        InputError: ``no-data`` for `marginal` without a fuel mix, or a signal without values.
    """
    deciles: list[dict[str, float]] = []
    if signal.missing == signal.hours:
        raise refused("no hour has a value", "no-data", signal.source)
    if marginal:
        if not signal.generation:
            problem, expected = "a marginal intensity needs a fuel mix", "an EIA-930 file"
            raise refused(problem, "no-data", signal.source, "--marginal", signal.kind, expected)
        signal, deciles = marginal_intensity(signal)
    hour = (signal.start_s // HOUR_S + np.arange(signal.hours)) % 24
    rows = []
    for each in range(24):
        values = signal.values[(hour == each) & ~np.isnan(signal.values)]
        if len(values):
            low, high = np.quantile(values, [0.05, 0.95])
            rows.append({"hour": each, "mean": values.mean(), "low": low, "high": high})
    return Intensity(signal, rows, deciles)
