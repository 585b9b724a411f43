"""Hourly grid signals that carry what they mean, and intensities computed from generation.

An average intensity says what a grid emitted per kWh; a marginal one what one more kWh would have
emitted. They differ by factors, so every signal names its kind, and two kinds never meet in one figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.numbers import counted

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Kind = Literal["average", "marginal", "price"]

HOUR_S = 3600
# A whole day would be invented.
LONGEST_GAP_H = 24
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
        kind: ``"average"`` or ``"marginal"`` intensity, or the ``"price"`` of energy.
        zone: name of the grid zone.
        unit: ``"gCO2/kWh"``; of a price the source's, money per MWh.
        basis: ``"production"`` or ``"consumption"`` (imports counted); empty if the source does not say.
        scope: ``"direct"`` (combustion only) or ``"lifecycle"``; empty if the source does not say.
        source: the file.
        notes: what the reader of the file changed or left out, in sentences.
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

    def __post_init__(self) -> None:
        """Make floats of whole numbers, which would be cut down or wrap around."""
        object.__setattr__(self, "values", np.asarray(self.values, np.float64))

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

    def between(self, first_s: int, end_s: int) -> FloatArray:
        """The values of the hours from one to another, which it has."""
        first, end = ((each - self.start_s) // HOUR_S for each in (first_s, end_s))
        return self.values[first:end]

    def at_minute_of(self, time_s: int) -> Signal:
        """Its means over the hours that start at the minute of a time, such as half past.

        They are exact, as a value holds for all of its hour; the last hour is no longer whole.
        """
        shift = (time_s - self.start_s) % HOUR_S
        if not shift:
            return self
        values = self.values[:-1] + shift / HOUR_S * np.diff(self.values)
        return replace(self, values=values, start_s=self.start_s + shift)

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


def mix_intensity(generation: Mapping[str, npt.ArrayLike]) -> tuple[FloatArray, int]:
    """The average intensity of a fuel mix: sum of generation x factor over the sum of generation.

    Negative generation (pumps, batteries that charge, a plant's own use at night) is consumption: it
    counts as zero. An hour in which a fuel is missing, or nothing is generated, has no intensity.

    Args:
        generation: fuel code of `LIFECYCLE_FACTORS` -> [H] MW.

    Returns:
        [H] gCO2/kWh, and the number of negative values.
    """
    stacked = np.array([*generation.values()], np.float64)  # [fuel, H]
    weights = np.array([LIFECYCLE_FACTORS[fuel] for fuel in generation])
    negative = int((stacked < 0).sum())
    stacked = np.maximum(stacked, 0.0)  # a NaN stays NaN
    total = stacked.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, weights @ stacked / total, np.nan), negative
