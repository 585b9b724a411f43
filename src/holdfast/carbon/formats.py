"""Files with grid signals: of EIA-930, ENTSO-E, Electricity Maps, WattTime and others, or a typed table.

Every reader yields samples of (time, value) with what they mean; `read_signal` checks the times, converts
the unit to gCO2/kWh and averages what is finer than an hour.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from holdfast.carbon.api_answers import ANSWERS, of_json
from holdfast.carbon.samples import Samples, kind_of
from holdfast.carbon.signals import (
    HOUR_S,
    LIFECYCLE_FACTORS,
    FloatArray,
    IntArray,
    Signal,
    mix_intensity,
    refused,
)
from holdfast.numbers import counted
from holdfast.opening import open_source

GRAMS_PER_POUND = 453.59237
# Name of a mass -> grams, name of an energy -> kWh.
MASSES = {"g": 1.0, "kg": 1e3, "t": 1e6, "lb": GRAMS_PER_POUND, "lbs": GRAMS_PER_POUND}
ENERGIES = {"kwh": 1.0, "mwh": 1e3}
# Columns of generation -> fuel codes: of EIA-930's balance files before and since July 2024 (split by
# storage, with one misspelled name), and of ENTSO-E. What storage delivers was generated earlier.
_FUELS = tomllib.loads((files("holdfast.carbon") / "fuels.toml").read_text())
BALANCE, UNSPLIT, ENTSOE = (_FUELS[name] for name in ("balance", "unsplit", "entsoe"))
PRICE = "Day-ahead Price"
MADE = " - Actual Aggregated [MW]"
BALANCE_END = "UTC Time at End of Hour"
AUTHORITY = "Balancing Authority"
NO_VALUE = ("", "N/A", "NA", "n/e", "-")


@dataclass
class Records:
    """The rows of a CSV file.

    Attributes:
        path: the file.
        columns: names in the header.
        rows: place ("line 17") and cells of each row that is not empty.
    """

    path: Path
    columns: list[str]
    rows: list[tuple[str, dict[str, str]]]

    @property
    def places(self) -> list[str]:
        """Places of the rows."""
        return [place for place, _ in self.rows]

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        return [cells[name] for _, cells in self.rows]

    def numbers(self, name: str) -> list[float]:
        """The cells of a column as numbers; NaN where one is empty."""
        found = []
        for place, cells in self.rows:
            text = cells[name]
            try:
                found.append(np.nan if text in NO_VALUE else float(text.replace(",", "")))
            except ValueError:
                problem = "not a number"
                raise refused(problem, "invalid-value", self.path, place, text) from None
        return found

    def of_zone(self, column: str, zone: str) -> str:
        """Keep the rows of the zone that was asked for, or of the only one; return it."""
        zones = list(dict.fromkeys(self.column(column)))
        names = ", ".join(zones[:20])
        if zone and zone not in zones:
            raise refused("no such zone", "no-match", self.path, column, zone, names)
        if not zone and len(zones) > 1:
            remedy = "name one with --zone"
            raise refused("several zones", "conflict", self.path, column, names, remedy=remedy)
        chosen = zone or zones[0]
        self.rows = [row for row in self.rows if row[1][column] == chosen]
        return chosen


def read_records(path: Path, text: str | None = None, zone: str = "") -> Records:
    """The rows of a CSV file, plain or compressed; of a balance file with all zones those of one.

    Raises:
        InputError: ``damaged`` for a row of another length, with the line; ``empty-input``.
    """
    rows = _rows(path, read_text(path) if text is None else text)
    _, header = next(rows, (1, []))
    found = Records(path, [" ".join(name.split()) for name in header], [])
    column = found.columns.index(AUTHORITY) if AUTHORITY in found.columns else None
    zones = set()
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        place = f"line {line}"
        if len(row) != len(found.columns):
            expected = counted(len(found.columns), "cell")
            raise refused("damaged row", "damaged", path, place, f"{len(row)}", expected)
        if column is not None:  # of other zones one row, which names them
            zone = zone or row[column]
            if zone != row[column] in zones:
                continue
            zones.add(row[column])
        found.rows.append((place, dict(zip(found.columns, map(str.strip, row), strict=True))))
    if not found.rows:
        raise refused("no rows", "empty-input", path)
    return found


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of every row, whatever ends its lines."""
    bars = text.partition("\n")[0].count("|") > 0
    rows = csv.reader(io.StringIO(text, newline=""), delimiter="|" if bars else ",")
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        place = f"line {rows.line_num}"
        raise refused("damaged row", "damaged", path, place, str(error)) from error


def read_text(path: Path) -> str:
    """The text of a file, plain or compressed."""
    with open_source(path) as source:
        return source.read().decode("utf-8-sig", errors="replace")


def read_signal(path: str | Path, *, zone: str = "", timezone: str = "", scope: str = "") -> Signal:
    """An hourly signal from a file; the format is detected.

    Args:
        path: the file, plain or compressed.
        zone: the zone to read; needed where the file has several. A file that names none gets this one.
        timezone: IANA name of the zone of times that state none.
        scope: ``"direct"`` (combustion only) or ``"lifecycle"``; where a file has both, the default is
            the latter.

    Raises:
        InputError: ``unknown-format``, ``naive-time``, ``invalid-value`` and more, with the line.
    """
    path = Path(path)
    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        found = of_json(path, text)
    else:
        records = read_records(path, text, zone)
        read = next((read for _, fits, read in _TABLES if fits(records.columns)), None)
        if read is None:
            columns = ", ".join(records.columns)[:200]
            known = ", ".join(dict.fromkeys(name for name, _, _ in _TABLES))
            expected = f"{known} (timestamp,value,unit,kind), or JSON of {', '.join(ANSWERS)}"
            raise refused("not a grid signal", "unknown-format", path, None, columns, expected)
        found = read(records, zone, scope)
    if not found.values:
        raise refused("no values", "empty-input", path)
    if zone and found.zone and zone != found.zone:
        raise refused("no such zone", "no-match", path, "--zone", zone, found.zone)
    if scope and scope != found.scope:
        there = found.scope or "it says none"
        raise refused("no such scope", "no-match", path, "--scope", scope, there)
    times = instants(path, found.times, found.places, found.clock or timezone)
    unique, counts = np.unique(times, return_counts=True)
    if len(unique) < len(times) and not found.repeats:
        again = int(np.flatnonzero(np.isin(times, unique[counts > 1]))[1])
        place, when = found.places[again], str(found.times[again])
        raise refused("duplicate time", "duplicate", path, place, when)
    if len(unique) > 1:  # samples of five minutes are averaged
        found.step_s = min(found.step_s, int(np.bincount(np.diff(unique)).argmax()))
    # Samples count in each hour of UTC by the seconds that they have in it: some zones are half hours off.
    start = int(unique[0]) // HOUR_S * HOUR_S
    hours = int(unique[-1] + found.step_s - 1 - start) // HOUR_S + 1
    given = np.array(found.values)
    filled = ~np.isnan(given)
    slots, own = (
        (times[filled] - start) // HOUR_S,
        np.minimum(found.step_s, HOUR_S - times[filled] % HOUR_S),
    )
    weights, slots = np.r_[own, found.step_s - own], np.minimum(np.r_[slots, slots + 1], hours - 1)
    seconds = np.bincount(slots, weights, hours)
    totals = np.bincount(slots, weights * np.tile(given[filled], 2), hours)
    # An hour of which less than half is known has no value.
    values = np.where(seconds >= HOUR_S / 2, totals / np.maximum(seconds, 1), np.nan)
    price = found.kind == "price"
    factor = 1.0 if price else _grams_per_kwh(path, found.unit)
    unit = found.unit if price else "gCO2/kWh"
    typed = (found.kind, found.zone or zone, unit, found.basis, found.scope)
    return Signal(values * factor, start, *typed, str(path), tuple(found.notes))


def recognize(head: bytes) -> str:
    """The name of the signal format that the first bytes of a file show; empty if none."""
    text = head.decode("utf-8-sig", errors="replace")
    if text.lstrip()[:1] in ("{", "["):
        return next((name for name, (mark, _) in ANSWERS.items() if f'"{mark}"' in text), "")
    header = next(csv.reader(io.StringIO(text.lstrip(), newline="")), [])
    columns = [" ".join(name.split()) for name in header]
    return next((name for name, fits, _ in _TABLES if fits(columns)), "")


def _mixed(samples: Samples, places: list[str], mix: Mapping[str, list[float]]) -> Samples:
    """Fill samples from a fuel mix: fuel code -> MW per sample."""
    # A fuel that a zone does not have is empty in every row, and no gap.
    there = {fuel: mw for fuel, mw in mix.items() if len(mw) == 1 or not np.isnan(mw).all()}
    if not there:
        return samples
    intensity, negative = mix_intensity(there)
    samples.values, samples.places = intensity.tolist(), places
    samples.basis, samples.scope = "production", "lifecycle"
    if negative:
        note = f"{counted(negative, 'value')} of negative generation counted as zero."
        samples.notes.append(note)
    return samples


def _summed(columns: Sequence[npt.ArrayLike]) -> FloatArray:
    """Sums of columns; what some of them lack counts as zero, what all lack is a gap."""
    stacked = np.array(columns)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))


def _eia_codes(records: Records, zone: str, _scope: str) -> Samples:
    """One row per hour, one column per EIA-930 fuel code, as HewlettPackard/dc-rl publishes them."""
    found = re.match(r"([A-Z]+)_", records.path.name)
    samples = Samples(records.column("timestamp"), zone=found[1] if found else zone)
    names = [name for name in records.columns if name in LIFECYCLE_FACTORS]
    return _mixed(samples, records.places, {name: records.numbers(name) for name in names})


def _eia_balance(records: Records, zone: str, _scope: str) -> Samples:
    """EIA-930's own balance files, also since the split of July 2024; hours are named by their end."""
    samples = Samples(zone=records.of_zone(AUTHORITY, zone), clock="UTC")
    times = []
    for place, cells in records.rows:
        try:
            end = datetime.strptime(cells[BALANCE_END], "%m/%d/%Y %I:%M:%S %p")
        except ValueError:
            end = _parsed(records.path, place, cells[BALANCE_END])
        times.append(end - timedelta(hours=1))
    samples.times = times
    parts: dict[str, list[FloatArray]] = {}
    whole: dict[str, FloatArray] = {}
    pattern = r"Net Generation \(MW\) from ((?!.*\((?:Imputed|Adjusted)\)).+)"
    for column in records.columns:
        if not (match := re.fullmatch(pattern, column)):
            continue
        mw, fuel = np.array(records.numbers(column)), match[1]
        # Adjusted values, where there are any, are EIA's correction of the reported ones.
        for name in (fuel, fuel.replace("with I", "witho I")):
            if (better := f"Net Generation (MW) from {name} (Adjusted)") in records.columns:
                adjusted = np.array(records.numbers(better))
                mw = np.where(np.isnan(adjusted), mw, adjusted)
        if fuel in UNSPLIT:
            whole[UNSPLIT[fuel]] = mw
        elif fuel in BALANCE:
            parts.setdefault(BALANCE[fuel], []).append(mw)
        else:
            problem, expected = "unknown fuel", ", ".join({*BALANCE, *UNSPLIT})
            raise refused(problem, "unknown-name", records.path, column, fuel, expected)
    if np.nansum(np.maximum(parts.pop("", [np.zeros(1)]), 0.0)) > 0:
        samples.notes.append("What batteries delivered was generated before: it is not counted.")
    mix = {fuel: _summed(columns) for fuel, columns in parts.items()}
    for fuel, mw in whole.items():
        split = mix.get(fuel, np.full(len(mw), np.nan))
        mix[fuel] = np.where(np.isnan(split), mw, split)
    return _mixed(samples, records.places, {fuel: mw.tolist() for fuel, mw in mix.items()})


def _entsoe(records: Records, zone: str, _scope: str) -> Samples:
    """ENTSO-E's day-ahead prices, or generation by type; times are spans such as 01.02.2024 00:00 - ..."""
    [span] = [name for name in records.columns if name.startswith("MTU")]
    column = next((n for n in records.columns if n in ("Area", "BZN")), None)
    samples = Samples(zone=records.of_zone(column, zone) if column else zone)
    said = span + records.column(span)[0]  # in the header, or behind every span
    zones = {"(UTC)": "UTC", "(CET/CEST)": "Europe/Brussels"}
    samples.clock = next((clock for text, clock in zones.items() if text in said), "")
    times = []
    for place, cells in records.rows:
        start = cells[span].partition(" - ")[0].replace("/", ".")
        try:
            times.append(datetime.strptime(start[:16], "%d.%m.%Y %H:%M"))
        except ValueError:
            times.append(_parsed(records.path, place, start))
    samples.times, samples.places = times, records.places
    price = next((n for n in records.columns if n.startswith(PRICE)), None)
    if price is not None:
        samples.kind, samples.unit = "price", price.partition("[")[2].rstrip("]")
        samples.values = records.numbers(price)
        return samples
    mix: dict[str, list[FloatArray]] = {}
    for name in (name for name in records.columns if name.endswith(MADE)):
        fuel = name.removesuffix(MADE)
        if fuel not in ENTSOE:
            problem, expected = "unknown fuel", ", ".join(ENTSOE)
            raise refused(problem, "unknown-name", records.path, name, fuel, expected)
        if ENTSOE[fuel]:
            mix.setdefault(ENTSOE[fuel], []).append(np.array(records.numbers(name)))
    summed = {fuel: _summed(columns).tolist() for fuel, columns in mix.items()}
    return _mixed(samples, records.places, summed)


def _electricity_maps(records: Records, zone: str, scope: str) -> Samples:
    """Electricity Maps' CSV: consumption-based averages, over the life of a plant or direct."""
    columns = {name.lower(): name for name in records.columns}
    ends = {"lifecycle": ("(life cycle)", "(lca)"), "direct": ("(direct)",)}[scope or "lifecycle"]
    values = [n for n in columns if n.startswith("carbon intensity") and n.endswith(ends)]
    if not values:
        problem, expected = "no such intensity", f"carbon intensity {ends[0]}"
        remedy = "name what the file has with --scope direct or lifecycle"
        raise refused(problem, "missing-column", records.path, None, None, expected, remedy)
    where = next((columns[n] for n in ("zone id", "zone name", "zone") if n in columns), "")
    time = next(name for name in columns if name.startswith("datetime"))
    chosen = records.of_zone(where, zone) if where else zone
    estimated = columns.get("data estimated")
    rows = sum(t.lower() == "true" for t in records.column(estimated)) if estimated else 0
    notes = [f"{counted(rows, 'value')} estimated by Electricity Maps."] if rows else []
    return Samples(
        records.column(columns[time]),
        records.numbers(columns[values[0]]),
        records.places,
        zone=chosen,
        basis="consumption",
        scope=scope or "lifecycle",
        clock="UTC" if "utc" in time else "",
        notes=notes,
    )


def _codecarbon(records: Records, zone: str, _scope: str) -> Samples:
    """The intensity that codecarbon used: emissions over energy, in the hours of each run."""
    column = "region" if any(cells.get("region") for _, cells in records.rows) else ""
    column = column or ("country_iso_code" if "country_iso_code" in records.columns else "")
    samples = Samples(zone=records.of_zone(column, zone) if column else zone, repeats=True)
    times: list[str] = []
    energy, mass, lengths = map(records.numbers, ("energy_consumed", "emissions", "duration"))
    rows = zip(records.rows, energy, mass, lengths, strict=True)
    for (place, cells), kwh, kg, seconds in rows:
        end = _parsed(records.path, place, cells["timestamp"])
        hour = (end - timedelta(seconds=seconds)).replace(minute=0, second=0, microsecond=0)
        while hour < end and kwh > 0:
            times.append(hour.isoformat())
            samples.values.append(1000 * kg / kwh)
            samples.places.append(place)
            hour += timedelta(hours=1)
    samples.times = times
    return samples


def _typed_table(records: Records, zone: str, _scope: str) -> Samples:
    """A table that says what it holds: timestamp, value, unit, kind, and perhaps zone."""
    samples = Samples(zone=records.of_zone("zone", zone) if "zone" in records.columns else zone)
    first = records.rows[0][1]
    for place, cells in records.rows:
        for column in ("kind", "unit"):
            if (found := cells[column]) != first[column]:
                where, problem = f"{place}, {column}", f"rows of different {column}"
                raise refused(problem, "conflict", records.path, where, found, first[column])
    samples.times, samples.places = records.column("timestamp"), records.places
    samples.values = records.numbers("value")
    samples.kind, samples.unit = kind_of(records.path, "kind", first["kind"]), first["unit"]
    return samples


def _has(*names: str) -> Callable[[Sequence[str]], bool]:
    return lambda columns: set(names) <= set(columns)


def _starting(names: Sequence[str], text: str) -> bool:
    return any(name.lower().startswith(text) for name in names)


Reader = Callable[[Records, str, str], Samples]
_TABLES: tuple[tuple[str, Callable[[Sequence[str]], bool], Reader], ...] = (
    ("EIA-930", _has("timestamp", "COL", "NG"), _eia_codes),
    ("EIA-930", _has(AUTHORITY, BALANCE_END), _eia_balance),
    ("ENTSO-E", lambda n: _starting(n, "mtu") and any(c.endswith(MADE) for c in n), _entsoe),
    ("ENTSO-E", lambda n: _starting(n, "mtu") and _starting(n, PRICE.lower()), _entsoe),
    (
        "Electricity Maps",
        lambda names: _starting(names, "datetime") and _starting(names, "carbon intensity"),
        _electricity_maps,
    ),
    ("codecarbon", _has("timestamp", "duration", "emissions", "energy_consumed"), _codecarbon),
    ("signal table", _has("timestamp", "value", "unit", "kind"), _typed_table),
)


def _parsed(path: Path | None, place: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        expected = "for example 2022-01-01T00:00:00+00:00"
        raise refused("not a time", "invalid-value", path, place, text, expected) from None


def instants(
    path: Path | None, texts: Sequence[str | datetime], places: Sequence[str], timezone: str
) -> IntArray:
    """Times as seconds since 1970 UTC.

    Local times need `timezone`. Of an hour that a clock shows twice (the end of summer time) the second
    row is the later one; a time that no clock showed is an error.

    Raises:
        InputError: ``naive-time``, ``invalid-value`` or ``unknown-name``, with the place.
    """
    try:
        zone = ZoneInfo(timezone) if timezone else None
    except (ZoneInfoNotFoundError, ValueError):
        expected = "an IANA name such as America/Los_Angeles"
        problem = "unknown time zone"
        raise refused(problem, "unknown-name", None, "--timezone", timezone, expected) from None
    seconds: dict[int, None] = {}
    found = []
    for text, place in zip(texts, places, strict=True):
        moment = text if isinstance(text, datetime) else _parsed(path, place, text)
        if moment.tzinfo is None and zone is None:
            remedy = "name the zone of the file with --timezone, such as UTC"
            problem = "a time without a time zone"
            raise refused(problem, "naive-time", path, place, str(text), remedy=remedy)
        if moment.tzinfo is None:
            local = moment.replace(tzinfo=zone)
            if local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment:
                problem = "a time that does not exist: clocks were put forward"
                expected = f"a time that clocks in {timezone} showed"
                raise refused(problem, "invalid-value", path, place, str(text), expected)
            moment = local.replace(fold=int(int(local.timestamp()) in seconds))
        found.append(int(moment.timestamp()))
        seconds[found[-1]] = None
    return np.array(found, np.int64)


def _grams_per_kwh(path: Path, unit: str) -> float:
    """The factor by which values are converted to gCO2/kWh."""
    mass, _, energy = unit.lower().replace("₂", "2").partition("/")
    mass, energy = re.sub(r"[\s_]|co2(eq?)?", "", mass), energy.strip()
    if mass not in MASSES or energy not in ENERGIES:
        expected = "such as gCO2/kWh, kg/MWh, lb/MWh"
        raise refused("unknown unit", "invalid-value", path, "unit", unit, expected)
    return MASSES[mass] / ENERGIES[energy]
