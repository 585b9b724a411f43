"""Results of the health checks of facebookresearch/gcm, as its sinks write them.

One record a line: flat (``{"node": ..., "health_check": ..., "result": 2, "_msg": ...}``), nested by
type (``{"int": {...}, "normal": {...}}``), a list of records (its stdout sink), or OpenTelemetry log
records as JSON (``resourceLogs`` of an OTLP file exporter). A record's time is ``end_time``, else
``time``, else ``start_time``. Results are the exit codes of monitoring plugins:

======  ========  ======
result  name      here
======  ========  ======
0       OK        ok
1       WARN      warn
2       CRITICAL  fail
3       UNKNOWN   warn
======  ========  ======

The records do not say how severe a check is; the taxonomy does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.health import aliases_in, health_table, pick
from holdfast.fleet.formats.json_lines import read_json_lines
from holdfast.fleet.formats.source import Rejects, blocks

_FIELDS = {
    "time_s": ("end_time", "time", "start_time"),
    "node": ("node",),
    "check": ("health_check",),
    "result": ("result",),
    "message": ("_msg", "msg"),
}
_SECTIONS = ("", "int.", "normal.", "double.")  # of a record nested by type
_KEYS = {
    field: tuple(section + name for name in names for section in _SECTIONS)
    for field, names in _FIELDS.items()
}


def _sniff(head: bytes, path: Path) -> bool:
    for line in head.splitlines()[:20]:
        if not line.strip():
            continue
        if b'"resourceLogs"' in line:
            return b'"health_check"' in head
        return line.lstrip()[:1] in (b"{", b"[") and b'"health_check"' in line and b'"node"' in line
    return False


def _is_flat(path: Path) -> bool:
    """Whether the first record stands alone on its line: then the file is read as columns."""
    for block in blocks(path, size=1 << 16):
        for line in block.data.splitlines():
            if line.strip():
                return line.lstrip().startswith(b"{") and b'"resourceLogs"' not in line
    return True


def _read(path: Path, options: ReadOptions, offset: int) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    if not _is_flat(path):
        yield from _read_wrapped(path, options, offset, rejects)
        return
    for records in read_json_lines(path, offset, rejects):
        keys = aliases_in(records.columns.column_names, _KEYS)
        columns = pick(keys, records.columns, options.timezone)
        table, reasons = health_table(columns, options.timezone)
        rejects.add_all(reasons, records.lines, records.texts)
        yield Batch({"health": table, "rejects": rejects.table()}, records.end)
    if rejects.rows:
        yield Batch({"rejects": rejects.table()}, offset)


def _read_wrapped(
    path: Path, options: ReadOptions, offset: int, rejects: Rejects
) -> Iterator[Batch]:
    for block in blocks(path, offset):
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        for number, text in enumerate(block.lines().to_pylist(), start=block.first_line):
            if not text.strip():
                continue
            try:
                found = [_flat(record) for record in _unwrap(json.loads(text))]
            except (ValueError, TypeError, AttributeError):
                rejects.add(number, "not a result of a health check", text)
                continue
            rows.extend(found)
            places.extend([number] * len(found))
        if not rows:
            continue
        raw = pa.array([json.dumps(row) for row in rows], pa.string())
        table = pa.table(
            {
                name: pa.array([_text(row.get(name)) for row in rows], pa.string())
                for name in dict.fromkeys(key for row in rows for key in row)
            }
        )
        columns = pick(aliases_in(table.column_names, _KEYS), table, options.timezone)
        health, reasons = health_table(columns, options.timezone)
        rejects.add_all(reasons, pa.array(places), raw)
        yield Batch({"health": health, "rejects": rejects.table()}, block.end)
    if rejects.rows:
        yield Batch({"rejects": rejects.table()}, offset)


def _unwrap(value: Any) -> Iterator[dict[str, Any]]:
    """The records of one line: a list of them, one, or an OTLP export of many."""
    if isinstance(value, list):
        for item in value:
            yield from _unwrap(item)
    elif "resourceLogs" in value:
        for resource in value["resourceLogs"]:
            for scope in resource.get("scopeLogs", ()):
                for record in scope.get("logRecords", ()):
                    attributes = record.get("attributes", ())
                    yield {item["key"]: _otlp_value(item["value"]) for item in attributes}
    else:
        yield value


def _otlp_value(value: dict[str, Any]) -> Any:
    """The one value of an OTLP ``AnyValue`` (its integers are strings in JSON)."""
    return next(iter(value.values()), None)


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat.update((f"{key}.{name}", item) for name, item in value.items())
        else:
            flat[key] = value
    return flat


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else str(value)


GCM = Format("gcm", "check results of facebookresearch/gcm (JSON lines, OTLP JSON)", _sniff, _read)
