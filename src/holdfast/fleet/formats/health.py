"""Health events out of a source's own columns: times, severities, results, XIDs.

Times are ISO 8601 with or without a zone, or seconds, milliseconds, microseconds or nanoseconds since
1970. An exit code is read as monitoring plugins mean it: 0 ok, 1 warn, 2 fail, else warn. Tickets are
events whose check is ``ticket``.
"""

from __future__ import annotations

from collections.abc import Mapping
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.clean import faults
from holdfast.fleet.formats.columns import Column, by_distinct, flat, table_of
from holdfast.fleet.formats.fields import is_blank, parse_instant
from holdfast.fleet.schema import HEALTH

_HIGH = {"high", "critical", "crit", "fatal", "error", "err", "emerg", "alert", "major", "p1", "p0"}
_LOW = {"low", "warn", "warning", "medium", "minor", "notice", "info", "p2", "p3", "p4", "p5"}
_OK = {"ok", "pass", "passed", "success", "healthy", "resolved", "good", "up", "0"}
_WARN = {"warn", "warning", "degraded", "unknown", "1", "3"}
_XID = r"(?i)\bxid\b(?:\s*\([^)]*\))?[\s:=#]*(?P<xid>[0-9]{1,4})\b"


def health_table(columns: Mapping[str, Column], zone: ZoneInfo) -> tuple[pa.Table, pa.Array]:
    """Health events from a source's own columns.

    Args:
        columns: some of the fields of ``health-csv`` in `formats.toml`, at least ``time_s``, ``node`` and
            ``check``, each of
            shape ``[n]``: strings or numbers.
        zone: of times without one.

    Returns:
        The usable rows in `schema.HEALTH`, and for each of the `n` records why it is not among
        them (null: it is).
    """
    length = len(columns["time_s"])
    instants = event_times(columns["time_s"], zone)
    nodes, checks = (pc.utf8_trim_whitespace(texts(columns[name])) for name in ("node", "check"))
    message = pc.fill_null(texts(columns.get("message", pa.nulls(length))), "")
    severity = by_distinct(_words(columns.get("severity"), length), severity_of, pa.string())
    result = by_distinct(_words(columns.get("result"), length), result_of, pa.string())
    reasons = pc.if_else(
        pc.is_null(instants),
        "no time that can be read",
        pc.if_else(is_blank(nodes), "no node", pc.if_else(is_blank(checks), "no check", None)),
    )
    for values in (nodes, checks):  # a quote that was never closed swallows the lines after it
        swallowed = pc.fill_null(pc.match_substring(values, "\n"), False)
        reasons = pc.if_else(swallowed, "a line break in node or check (an open quote?)", reasons)
    cluster = pc.utf8_trim_whitespace(texts(columns.get("cluster", pa.nulls(length))))
    table = table_of(
        HEALTH,
        {
            "cluster": pc.fill_null(cluster, ""),
            "time_s": instants,
            "node": nodes,
            "check": checks,
            "severity": severity,
            "result": result,
            "message": message,
            "xid": _xids(columns.get("xid"), checks, message),
        },
        length,
    )
    reasons = pc.coalesce(reasons, faults(table))
    return table.filter(pc.is_null(reasons)), reasons


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
    for limit in (1e17, 1e14, 1e11):  # nano-, micro-, milliseconds: years 1973 to 5138
        factor = {1e17: 1e9, 1e14: 1e6, 1e11: 1e3}[limit]
        numbers = pc.if_else(pc.greater(numbers, limit), pc.divide(numbers, factor), numbers)
    return numbers


def texts(values: Column) -> pa.Array:
    """Any column as strings; null where it holds lists or objects."""
    array = flat(values)
    if pa.types.is_nested(array.type):
        return pa.nulls(len(array), pa.string())
    return array.cast(pa.string())


def _words(values: Column | None, length: int) -> pa.Array:
    if values is None:
        return pa.array([""] * length)
    return pc.fill_null(pc.utf8_lower(pc.utf8_trim_whitespace(texts(values))), "")


def severity_of(word: str) -> str:
    """HIGH, LOW or "" (not said) for one severity in lower case."""
    return "HIGH" if word in _HIGH else "LOW" if word in _LOW else ""


def result_of(word: str) -> str:
    """``ok``, ``warn`` or ``fail`` for one result in lower case; none at all means ``fail``."""
    if word in _OK:
        return "ok"
    return "warn" if word in _WARN or (word.isdecimal() and word != "2") else "fail"


def _xids(given: Column | None, checks: pa.Array, message: pa.Array) -> pa.Array:
    found = pa.nulls(len(checks), pa.int32())
    if given is not None:
        array = flat(given)
        if pa.types.is_floating(array.type):
            array = array.cast(pa.int64(), safe=False)
        strings = pc.utf8_trim_whitespace(array.cast(pa.string()))
        number = pc.match_substring_regex(strings, r"^\d{1,4}$")
        found = pc.if_else(number, strings, pa.scalar(None, pa.string())).cast(pa.int32())
    for source in (checks, message):
        says = pc.match_substring(source, "xid", ignore_case=True)
        if pc.any(says).as_py():
            number = pc.struct_field(pc.extract_regex(source, _XID), "xid")
            found = pc.coalesce(found, number.cast(pa.int32()))
    return found
