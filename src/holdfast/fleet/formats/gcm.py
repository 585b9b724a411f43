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

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.json_lines import flatten
from holdfast.fleet.formats.tabular import read_json, shipped

_GCM = shipped("gcm")


def _sniff(head: bytes, path: Path) -> bool:
    for line in head.splitlines()[:20]:
        if not line.strip():
            continue
        if b'"resourceLogs"' in line:
            return b'"health_check"' in head
        return line.lstrip()[:1] in (b"{", b"[") and b'"health_check"' in line and b'"node"' in line
    return False


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    return read_json(_GCM, path, options, _records)


def _records(value: Any) -> Iterator[dict[str, Any]]:
    """The records of one line: a list of them, one, or an OTLP export of many."""
    if isinstance(value, list):
        for item in value:
            yield from _records(item)
    elif "resourceLogs" in value:
        for resource in value["resourceLogs"]:
            for scope in resource.get("scopeLogs", ()):
                for record in scope.get("logRecords", ()):
                    attributes = record.get("attributes", ())
                    yield {item["key"]: _otlp_value(item["value"]) for item in attributes}
    else:
        yield dict(flatten(value))


def _otlp_value(value: dict[str, Any]) -> Any:
    """The one value of an OTLP ``AnyValue`` (its integers are strings in JSON)."""
    return next(iter(value.values()), None)


GCM = Format("gcm", _GCM.describes, _sniff, _read)
