"""Files with grid signals: of EIA-930, ENTSO-E, Electricity Maps, WattTime and others, or a typed table.

`layouts.toml` says which columns of each format hold what. `read_signal` finds the format by its columns,
checks the times, converts the unit to gCO2/kWh and averages what is finer than an hour.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from holdfast.carbon.signals import (
    HOUR_S,
    FloatArray,
    IntArray,
    Kind,
    Signal,
    mix_intensity,
    refused,
    utc,
)
from holdfast.numbers import counted
from holdfast.opening import open_source

DAY_S = 24 * HOUR_S
GRAMS_PER_POUND = 453.59237
# Name of a mass -> grams, name of an energy -> kWh.
MASSES = {"g": 1.0, "kg": 1e3, "t": 1e6, "lb": GRAMS_PER_POUND, "lbs": GRAMS_PER_POUND}
ENERGIES = {"kwh": 1.0, "mwh": 1e3}
KINDS: Mapping[str, Kind] = {
    "average": "average",
    "marginal": "marginal",
    "price": "price",
    "co2_aoer": "average",
    "co2_moer": "marginal",
}
"""Kinds of signals, as files name them."""
CLOCKS = {"(utc)": "UTC", "(cet/cest)": "Europe/Brussels"}
"""Time zones, as the column of times or its first cell names them."""
ZONES = ("balancing authority", "area", "bzn", "zone id", "zone name", "zone", "meta.region")
"""Columns of grid zones, in lower case; the first that a file has counts."""
LONG = ("MTU.*", "Production Type", r"Generation [(\[]MW[)\]]")
"""Columns of ENTSO-E's export with one row per time and type."""
ESTIMATED = "(?i)data estimated|isEstimated"
NO_VALUE = ("", "N/A", "NA", "n/e", "-")
LARGEST = 1e100
"""Numbers whose sums stay within the range of a float."""


@dataclass(frozen=True)
class Layout:
    """One format of `layouts.toml`; columns are regular expressions of their whole names.

    Attributes:
        name: of the format.
        needs: columns that such a file has.
        time: the column of times.
        forms: of times that are not ISO 8601, for `strptime`.
        ends: times are those at which an hour ends.
        values: columns of the value; the first that has one in a row counts.
        generation: columns of MW; their group 1 is the fuel.
        fuels: such a fuel -> fuel code, or "" for storage.
        split: such a fuel -> fuels into which newer rows split it.
        zone_in_name: group 1 is the zone, in the name of the file.
        facts: what the format says of all its files: kind, basis, scope, zone, clock.
        stated: columns that say more of these, the same in every row.
        step_s: seconds that a value holds, at most.
        step: a column of them.
        key: a field by which JSON of this format is recognized.
    """

    name: str
    needs: Sequence[str]
    time: str
    forms: Sequence[str] = ()
    ends: bool = False
    values: Sequence[str] = ()
    generation: str = ""
    fuels: Mapping[str, str] = field(default_factory=dict)
    split: Mapping[str, str] = field(default_factory=dict)
    zone_in_name: str = "()"
    facts: Mapping[str, str] = field(default_factory=dict)
    stated: Mapping[str, str] = field(default_factory=dict)
    step_s: int = HOUR_S
    step: str = ""
    key: str = ""


_TABLES = tomllib.loads((files("holdfast.carbon") / "layouts.toml").read_text())["layout"]
LAYOUTS = [Layout(**each) for each in _TABLES]


def _matching(columns: Sequence[str], pattern: str) -> list[str]:
    return [name for name in columns if re.fullmatch(pattern, name)]


def _layouts_of(columns: Sequence[str]) -> list[Layout]:
    """The formats that such columns have."""
    return [one for one in LAYOUTS if all(_matching(columns, name) for name in one.needs)]


@dataclass
class Records:
    """The rows of a CSV file.

    Attributes:
        path: the file.
        columns: names in the header.
        rows: place ("line 17") and cells of each row that is not empty.
        zone: that of the rows, where a column names it.
    """

    path: Path
    columns: list[str]
    rows: list[tuple[str, dict[str, str]]]
    zone: str = ""

    @property
    def places(self) -> list[str]:
        """Places of the rows."""
        return [place for place, _ in self.rows]

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        return [cells[name] for _, cells in self.rows]

    def numbers(self, name: str) -> list[float]:
        """The cells of a column as numbers; NaN where one is empty."""
        numbers = []
        for place, text in zip(self.places, self.column(name), strict=True):
            try:
                value = np.nan if text in NO_VALUE else float(text.replace(",", ""))
            except ValueError:
                value = np.inf
            if abs(value) > LARGEST:
                raise refused("not a number", "invalid-value", self.path, place, text)
            numbers.append(value)
        return numbers

    def stated(self, name: str) -> str:
        """The one cell that all rows of a column have.

        Raises:
            InputError: ``conflict`` where they differ, with the place.
        """
        cells = self.column(name)
        for place, cell in zip(self.places, cells, strict=True):
            if cell != cells[0]:
                raise refused(
                    f"rows of different {name}",
                    "conflict",
                    self.path,
                    f"{place}, {name}",
                    cell,
                    cells[0],
                )
        return cells[0]


def read_records(path: Path, *, zones: Sequence[str] = (), zone: str = "") -> Records:
    """The rows of a CSV file, plain or compressed, or of the JSON of an API.

    Args:
        path: the file.
        zones: columns of grid zones, in lower case: only rows of one zone are kept, by the first.
        zone: which; it may be left out where the file has one.

    Raises:
        InputError: ``damaged`` for a row of another length, with the line; ``empty-input``; ``no-match``
            and ``conflict`` for the zone.
    """
    with open_source(path) as source:
        text = source.read().decode("utf-8-sig", errors="replace")
    rows = _json_rows(path, text) if text.lstrip()[:1] in ("{", "[") else _csv_rows(path, text)
    _, header = next(rows, ("", []))
    records = Records(path, [" ".join(name.split()) for name in header], [])
    lowered = [name.lower() for name in records.columns]
    zoned = next((lowered.index(name) for name in zones if name in lowered), None)
    there: dict[str, None] = {}
    for place, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(records.columns):
            expected = counted(len(records.columns), "cell")
            raise refused("damaged row", "damaged", path, place, f"{len(row)}", expected)
        if zoned is not None:  # all zones of a large file would fill the memory
            there[row[zoned]] = None
            records.zone = zone or next(iter(there))
            if row[zoned] != records.zone:
                continue
        records.rows.append((place, dict(zip(records.columns, map(str.strip, row), strict=True))))
    if there and (records.zone not in there or (len(there) > 1 and not zone)):
        column, names = records.columns[zoned or 0], ", ".join([*there][:20])
        problem, code = ("no such zone", "no-match") if zone else ("several zones", "conflict")
        remedy = "name one with --zone"
        raise refused(problem, code, path, column, zone or None, names, remedy)
    if not records.rows:
        raise refused("no rows", "empty-input", path)
    return records


def _by_type(records: Records) -> Records:
    """One row per time, as in ENTSO-E's wide export, of its long one: one row per time and type."""
    long = [_matching(records.columns, name) for name in LONG]
    if not all(long):
        return records
    [[time, *_], [kind, *_], [value, *_]] = long
    rows: dict[tuple[str, int], tuple[str, dict[str, str]]] = {}
    again: Counter[tuple[str, str]] = Counter()
    columns = {time: ""}
    for place, cells in records.rows:
        # A time that a type has twice is one of the two hours at the end of summer time.
        same = cells[time], cells[kind]
        name = f"{cells[kind]} - Actual Aggregated [MW]"
        row = rows.setdefault((cells[time], again[same]), (place, {time: cells[time]}))[1]
        again[same] += 1
        columns[name] = row[name] = cells[value]
    filled = [(place, dict.fromkeys(columns, "") | row) for place, row in rows.values()]
    return Records(records.path, list(columns), filled, records.zone)


def _csv_rows(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    """Place and cells of every row, whatever ends its lines."""
    header = re.sub(r'"[^"]*"', "", text.partition("\n")[0])  # such as "BZN|DE-LU"
    rows = csv.reader(io.StringIO(text, newline=""), delimiter="|" if "|" in header else ",")
    try:
        for row in rows:
            yield f"line {rows.line_num}", row
    except csv.Error as error:
        place = f"line {rows.line_num}"
        raise refused("damaged row", "damaged", path, place, str(error)) from error


def _json_rows(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of an API's answer: a list, the list of a field with what stands beside it, or one row."""
    try:
        content = json.loads(text)
        beside: dict[str, str] = {}
        if isinstance(content, dict):
            key = next((each for each in ("data", "history", "forecast") if each in content), "")
            content, beside = content.get(key, [content]), _flat(content)
        rows = [beside | _flat(dict(row)) for row in content]
        columns = list(rows[0] | {name: "" for row in rows for name in row})
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        found, expected = f"{type(error).__name__}: {error}", "a list of rows, in JSON"
        raise refused(
            "not an answer of an API", "unknown-format", path, None, found, expected
        ) from error
    yield "", columns
    for n, row in enumerate(rows):
        yield f"row {n}", [row.get(name, "") for name in columns]


def _flat(row: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """The fields of a row and of the rows in it, by their path, as texts."""
    found: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{name}.")
        elif not isinstance(value, list):
            found[above + name] = "" if value is None else str(value)
    return found


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
    records = _by_type(read_records(path, zones=ZONES, zone=zone))
    fitting = _layouts_of(records.columns)
    if not fitting:
        columns = ", ".join(records.columns)[:200]
        known = ", ".join(dict.fromkeys(each.name for each in LAYOUTS))
        expected = f"{known} (timestamp,value,unit,kind)"
        raise refused("not a grid signal", "unknown-format", path, None, columns, expected)
    layout = next((each for each in fitting if each.facts.get("scope") == scope), fitting[0])
    values, facts, notes = _values(records, layout)
    for option, asked in (("zone", zone), ("scope", scope)):
        there = facts[option] or ("it says none" if option == "scope" else asked)
        if asked and asked != there:
            raise refused(f"no such {option}", "no-match", path, f"--{option}", asked, there)
    if facts["kind"] not in KINDS:
        raise refused(
            "unknown kind of signal",
            "invalid-value",
            path,
            place=layout.stated["kind"],
            found=facts["kind"],
            expected=", ".join(KINDS),
        )
    if np.isnan(values).all():
        raise refused("no values", "empty-input", path)
    times = _times(records, layout, facts["clock"] or timezone)
    for n in _again(times)[:1]:
        raise refused("duplicate time", "duplicate", path, records.places[n], utc(times[n]))
    most_s = layout.step_s
    if layout.step and layout.step in records.columns:
        longest = np.nan_to_num(np.fmax.reduce(records.numbers(layout.step)), nan=most_s)
        if not 1 <= longest <= DAY_S:
            expected = f"seconds, from 1 to {DAY_S}"
            raise refused(
                "not a span of time", "invalid-value", path, layout.step, f"{longest:g}", expected
            )
        most_s = int(longest)
    order = np.argsort(times)
    hourly, start = _hourly(times[order], values[order], most_s)
    kind = KINDS[facts["kind"]]
    factor, unit = _standard(path, facts["unit"], kind)
    typed = (kind, facts["zone"] or zone, unit, facts["basis"], facts["scope"])
    return Signal(hourly * factor, start, *typed, str(path), tuple(notes))


def _hourly(times: IntArray, values: FloatArray, most_s: int) -> tuple[FloatArray, int]:
    """Means of full hours of UTC, and the start of the first.

    Samples count in each hour by the seconds that they have in it: some zones are half hours off, and
    markets change from hours to quarters within a file. Two equal gaps show a sample's own step; beside
    a hole the shortest counts, the file's usual step included.
    """
    gaps = np.diff(times, prepend=times[0] - most_s, append=times[-1] + most_s)
    least = np.minimum(gaps[:-1], gaps[1:])
    usual = np.bincount(gaps).argmax()
    steps = np.where(gaps[:-1] == gaps[1:], least, np.minimum(least, usual))
    ends = times + np.minimum(steps, most_s)
    start = int(times[0]) // HOUR_S * HOUR_S
    hours = -((start - ends[-1]) // HOUR_S)  # the last is a full one, too
    cuts = np.unique(np.r_[times, ends, start + HOUR_S * np.arange(1, hours)])
    begins, spans = cuts[:-1], np.diff(cuts)  # each within one hour, and in one sample or in none
    sample = np.searchsorted(times, begins, "right") - 1
    within = (begins < ends[sample]) & ~np.isnan(values[sample])
    slots = (begins[within] - start) // HOUR_S
    seconds = np.bincount(slots, spans[within], hours)
    totals = np.bincount(slots, (spans * values[sample])[within], hours)
    # An hour of which less than half is known has no value.
    return np.where(seconds >= HOUR_S / 2, totals / np.maximum(seconds, 1), np.nan), start


def _values(records: Records, layout: Layout) -> tuple[FloatArray, dict[str, str], list[str]]:
    """The value of every row, what the file says of them, and notes."""
    facts = dict.fromkeys(("zone", "basis", "scope", "clock", "unit"), "")
    facts |= {"kind": "average", **layout.facts}
    for fact, column in layout.stated.items():
        if column in records.columns:
            facts[fact] = records.stated(column)
    named = re.match(layout.zone_in_name, records.path.name)
    facts["zone"] = records.zone or facts["zone"] or (named[1] if named else "")
    if layout.generation:
        values, notes = _mixed(records, layout)
    else:
        names = [name for each in layout.values for name in _matching(records.columns, each)]
        values, notes = np.array(records.numbers(names[0])), []
        for name in names[1:]:
            others = np.array(records.numbers(name))
            filled = int((np.isnan(values) & ~np.isnan(others)).sum())
            values = np.where(np.isnan(values), others, values)
            notes += [f"{counted(filled, 'value')} of {name}, not {names[0]}."] if filled else []
        # A price has its unit in the name of its column, such as [EUR/MWh].
        facts["unit"] = facts["unit"] or "".join(
            re.findall(r"[\[(]([^/()[\]]+/\w+)[\])]", names[0])
        )
    for name in _matching(records.columns, ESTIMATED):
        rows = sum(cell.lower() == "true" for cell in records.column(name))
        notes += [f"{counted(rows, 'value')} estimated by {layout.name}."] if rows else []
    return values, facts, notes


def _mixed(records: Records, layout: Layout) -> tuple[FloatArray, list[str]]:
    """Intensities of a fuel mix, and notes."""
    by_fuel: dict[str, FloatArray] = {}
    for column in _matching(records.columns, layout.generation):
        mw, fuel = np.array(records.numbers(column)), re.sub(layout.generation, r"\1", column)
        # Adjusted values, where there are any, are EIA's correction of the reported ones.
        for name in (column, column.replace("with I", "witho I")):
            if (better := f"{name} (Adjusted)") in records.columns:
                adjusted = np.array(records.numbers(better))
                mw = np.where(np.isnan(adjusted), mw, adjusted)
        if fuel not in layout.fuels:
            expected = ", ".join(layout.fuels)
            raise refused("unknown fuel", "unknown-name", records.path, column, fuel, expected)
        by_fuel[fuel] = mw
    for whole, split in layout.split.items():  # a row with both counts once
        for fuel in set(by_fuel) if whole in by_fuel else ():
            if re.fullmatch(split, fuel):
                by_fuel[whole] = np.where(np.isnan(by_fuel[fuel]), by_fuel[whole], np.nan)
    parts: dict[str, list[FloatArray]] = {}
    for fuel, mw in by_fuel.items():
        # A fuel that a zone does not have is empty in every row, and no gap.
        if not np.isnan(mw).all():
            parts.setdefault(layout.fuels[fuel], []).append(mw)
    notes = []
    if np.nansum(np.maximum(parts.pop("", [np.zeros(1)]), 0.0)) > 0:
        notes.append("What storage delivered was generated before: it is not counted.")
    if not parts:
        return np.full(len(records.rows), np.nan), notes
    intensity, negative = mix_intensity({fuel: _summed(mw) for fuel, mw in parts.items()})
    if negative:
        notes.append(f"{counted(negative, 'value')} of negative generation counted as zero.")
    return intensity, notes


def _summed(columns: Sequence[FloatArray]) -> FloatArray:
    """Sums of columns; what some of them lack counts as zero, what all lack is a gap."""
    stacked = np.array(columns)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))


def _times(records: Records, layout: Layout, timezone: str) -> IntArray:
    """Seconds since 1970 at which the samples start."""
    column = _matching(records.columns, layout.time)[0]
    cells = records.column(column)
    said = (column + cells[0]).lower()
    clock = next((zone for text, zone in CLOCKS.items() if text in said), timezone)
    # Of a span, such as "01.02.2024 00:00 - 01.02.2024 01:00 (CET/CEST)", the start.
    texts = [text.partition(" - ")[0].partition(" (")[0] for text in cells]
    times: list[str | datetime] = [_in_form(text, layout.forms) for text in texts]
    return instants(records.path, times, records.places, clock) - HOUR_S * layout.ends


def _in_form(text: str, forms: Sequence[str]) -> str | datetime:
    """A time in the first form that it has; as it is where it has none."""
    for form in forms:
        with suppress(ValueError):
            return datetime.strptime(text, form)
    return text


def recognize(head: bytes) -> str:
    """The name of the signal format that the first bytes of a file show; empty if none."""
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    if text[:1] in ("{", "["):
        keys = (each.name for each in LAYOUTS if each.key and f'"{each.key}"' in text)
        return next(keys, "")
    header = next(csv.reader(io.StringIO(text, newline="")), [])
    layouts = _layouts_of([" ".join(name.split()) for name in header])
    return layouts[0].name if layouts else ""


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
    row is the later one, or the earlier one in a file that has the newest row first; a time that no clock
    showed is an error.

    Raises:
        InputError: ``naive-time``, ``invalid-value`` or ``unknown-name``, with the place.
    """
    try:
        zone = ZoneInfo(timezone) if timezone else None
    except (ZoneInfoNotFoundError, ValueError):
        raise refused(
            "unknown time zone",
            "unknown-name",
            None,
            "--timezone",
            timezone,
            expected="an IANA name such as America/Los_Angeles",
        ) from None
    moments = []
    for text, place in zip(texts, places, strict=True):
        moment = text if isinstance(text, datetime) else _parsed(path, place, text)
        if moment.tzinfo is None and zone is None:
            raise refused(
                "a time without a time zone",
                "naive-time",
                path,
                place,
                str(text),
                remedy="name the zone of the file with --timezone, such as UTC",
            )
        if moment.tzinfo is None:
            shown, moment = moment, moment.replace(tzinfo=zone)
            if moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != shown:
                raise refused(
                    "a time that does not exist: clocks were put forward",
                    "invalid-value",
                    path,
                    place,
                    str(text),
                    expected=f"a time that clocks in {timezone} showed",
                )
        moments += [int(moment.replace(fold=fold).timestamp()) for fold in (0, 1)]
    times = np.array(moments, np.int64).reshape(-1, 2)  # [row, first or second time of a clock]
    order = -1 if times[0, 0] > times[-1, 0] else 1  # the newest row may be the first
    found, second = times[::order, 0].copy(), times[::order, 1]
    again = _again(found)
    doubled = again[second[again] > found[again]]
    found[again] = second[again]
    if (np.diff(found) < 0).any():  # then nothing says which of two is the later one
        for n in doubled[:1]:
            raise refused(
                "a local time that clocks showed twice",
                "naive-time",
                path,
                place=places[::order][n],
                found=str(texts[::order][n]),
                expected="rows in the order of time",
                remedy="sort the rows, or give times with their offset from UTC",
            )
    return found[::order]


def _again(times: IntArray) -> IntArray:
    """Rows whose time an earlier row has."""
    return np.setdiff1d(np.arange(len(times)), np.unique(times, return_index=True)[1])


def _standard(path: Path, unit: str, kind: Kind) -> tuple[float, str]:
    """The factor by which values are converted to gCO2/kWh, of prices to money/MWh; that unit."""
    amount, _, energy = unit.replace("₂", "2").replace("_per_", "/").partition("/")
    amount, kwh = amount.strip(), ENERGIES.get(energy.strip().lower())
    if kind == "price":  # cents of which currency, nobody says
        money = re.fullmatch("[A-Z]{3}|[€$£¥]", amount)
        factor, standard, expected = (1e3 if money else None), f"{amount}/MWh", "EUR/MWh, USD/kWh"
    else:
        mass = re.sub(r"[\s_]|co2(eq?)?", "", amount.lower())
        factor, standard, expected = MASSES.get(mass), "gCO2/kWh", "gCO2/kWh, kg/MWh, lb/MWh"
        if not unit:
            return 1.0, standard
    if factor is None or kwh is None:
        raise refused("unknown unit", "invalid-value", path, "unit", unit, f"such as {expected}")
    return factor / kwh, standard
