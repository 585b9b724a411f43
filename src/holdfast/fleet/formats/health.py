"""What the columns of health events mean: severities, results, times, XIDs.

Times are ISO 8601 with or without a zone, or seconds, milliseconds, microseconds or nanoseconds since
1970. An exit code is read as monitoring plugins mean it: 0 ok, 1 warn, 2 fail, else warn. Tickets are
events whose check is ``ticket``.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.columns import Column, by_distinct, flat
from holdfast.fleet.formats.fields import parse_instant

_HIGH = {"high", "critical", "crit", "fatal", "error", "err", "emerg", "alert", "major", "p1", "p0"}
_LOW = {"low", "warn", "warning", "medium", "minor", "notice", "info", "p2", "p3", "p4", "p5"}
_OK = {"ok", "pass", "passed", "success", "healthy", "resolved", "good", "up", "0"}
_WARN = {"warn", "warning", "degraded", "unknown", "1", "3"}
_XID = r"(?i)\bxid\b(?:\s*\([^)]*\))?[\s:=#]*(?P<xid>[0-9]{1,4})\b"


def severities(values: Column) -> pa.Array:
    """HIGH, LOW or "" (not said)."""
    return by_distinct(
        _words(values),
        lambda word: "HIGH" if word in _HIGH else "LOW" if word in _LOW else "",
        pa.string(),
    )


def results(values: Column) -> pa.Array:
    """``ok``, ``warn`` or ``fail``; none at all means ``fail``."""
    return by_distinct(_words(values), _result, pa.string())


def _result(word: str) -> str:
    if word in _OK:
        return "ok"
    return "warn" if word in _WARN or (word.isdecimal() and word != "2") else "fail"


def _words(values: Column) -> pa.Array:
    return pc.fill_null(pc.utf8_lower(pc.utf8_trim_whitespace(texts(values))), "")


def event_times(values: Column, zone: ZoneInfo) -> pa.Array:
    """Times of events in seconds since 1970 UTC (float64); null where there is none.

    Args:
        values: strings in ISO 8601, or numbers (also as strings) in seconds, milliseconds,
            microseconds or nanoseconds since 1970.
        zone: of times without one.
    """
    array = flat(values)
    if pa.types.is_timestamp(array.type):
        if array.type.tz is None:
            array = pc.assume_timezone(array, zone.key, ambiguous="earliest", nonexistent="latest")
        stamps = array.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        seconds = pc.divide(stamps.cast(pa.float64(), safe=False), 1e6)  # the year 5 is inexact
    elif pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        seconds = _scaled(array.cast(pa.float64()))
    else:
        array = array.cast(pa.string())
        digits = pc.match_substring_regex(array, r"^\d{13,19}$")
        plain = pc.if_else(digits, pa.scalar(None, pa.string()), array)
        fine = pc.if_else(digits, array, pa.scalar(None, pa.string())).cast(pa.float64())
        seconds = pc.coalesce(parse_instant(plain, zone), _scaled(fine))
    real = pc.greater_equal(seconds, 31_536_000.0)  # 1969 and 1970 are clocks that were never set
    bounded = pc.min_element_wise(seconds, 1e12)  # fits whole seconds; `clean` rejects it
    return pc.if_else(real, bounded, pa.scalar(None, pa.float64()))


def _scaled(numbers: pa.Array) -> pa.Array:
    for limit, factor in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):  # the years 1973 to 5138
        numbers = pc.if_else(pc.greater(numbers, limit), pc.divide(numbers, factor), numbers)
    return numbers


def texts(values: Column) -> pa.Array:
    """Any column as strings; null where it holds lists or objects."""
    array = flat(values)
    if pa.types.is_nested(array.type):
        return pa.nulls(len(array), pa.string())
    return array.cast(pa.string())


def xids(given: Column, *said: pa.Array) -> pa.Array:
    """XIDs (int32) as given, else out of what the check or the message says."""
    array = flat(given)
    if pa.types.is_floating(array.type):
        array = array.cast(pa.int64(), safe=False)
    strings = pc.utf8_trim_whitespace(array.cast(pa.string()))
    number = pc.match_substring_regex(strings, r"^\d{1,4}$")
    found = pc.if_else(number, strings, pa.scalar(None, pa.string())).cast(pa.int32())
    for source in said:
        if pc.any(pc.match_substring(source, "xid", ignore_case=True)).as_py():
            number = pc.struct_field(pc.extract_regex(source, _XID), "xid")
            found = pc.coalesce(found, number.cast(pa.int32()))
    return found
