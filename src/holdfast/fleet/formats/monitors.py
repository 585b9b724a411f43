"""Health events as monitoring systems write them: facebookresearch/gcm, NVSentinel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Format
from holdfast.fleet.formats.json_lines import flatten
from holdfast.fleet.formats.tabular import read_json, shipped
from holdfast.fleet.schema import Row

# --- facebookresearch/gcm --------------------------------------------------------------------------
#
# Results of the health checks of facebookresearch/gcm, as its sinks write them.
#
# One record a line: flat (``{"node": ..., "health_check": ..., "result": 2, "_msg": ...}``), nested by
# type (``{"int": {...}, "normal": {...}}``), a list of records (its stdout sink), or OpenTelemetry log
# records as JSON (``resourceLogs`` of an OTLP file exporter). A record's time is ``end_time``, else
# ``time``, else ``start_time``. Results are the exit codes of monitoring plugins:
#
# ======  ========  ======
# result  name      here
# ======  ========  ======
# 0       OK        ok
# 1       WARN      warn
# 2       CRITICAL  fail
# 3       UNKNOWN   warn
# ======  ========  ======
#
# The records do not say how severe a check is; the taxonomy does.

_GCM = shipped("gcm")


def _sniff_gcm(head: bytes, path: Path) -> bool:
    for line in head.splitlines()[:20]:
        if not line.strip():
            continue
        if b'"resourceLogs"' in line:
            return b'"health_check"' in head
        return line.lstrip()[:1] in (b"{", b"[") and b'"health_check"' in line and b'"node"' in line
    return False


def _gcm_records(value: Any) -> Iterator[Row]:
    """The records of one line: a list of them, one, or an OTLP export of many."""
    if isinstance(value, list):
        for item in value:
            yield from _gcm_records(item)
    elif "resourceLogs" in value:
        for resource in value["resourceLogs"]:
            for scope in resource.get("scopeLogs", ()):
                for record in scope.get("logRecords", ()):
                    attributes = record.get("attributes", ())
                    # An OTLP ``AnyValue`` has one value (its integers are strings in JSON).
                    yield {at["key"]: next(iter(at["value"].values()), None) for at in attributes}
    else:
        yield dict(flatten(value))


GCM = Format("gcm", _GCM.describes, _sniff_gcm, partial(read_json, _GCM, unwrap=_gcm_records))


# --- NVSentinel ------------------------------------------------------------------------------------
#
# Health events of NVIDIA's NVSentinel, one JSON object per line.
#
# CloudEvents of its event exporter: ``"type": "com.nvidia.nvsentinel.health.v1"``, the event in
# ``data.healthEvent``.
#
# ===============================  ========  ==================
# event                            result    severity
# ===============================  ========  ==================
# isHealthy                        ok
# isFatal (the node is cordoned)   fail      HIGH
# not fatal, with an XID           fail      LOW
# not fatal, else                  warn      LOW
# ===============================  ========  ==================
#
# Source: event-exporter/pkg/transformer/cloudevents.go and docs/DATA_FLOW.md of NVIDIA/NVSentinel.

_EVENT_KEYS = shipped("health-csv")
_CODE = re.compile(r"(?:XID[ _]?)?(\d{1,4})", re.IGNORECASE)


def xid_of(check: str, codes: list[str]) -> int | None:
    """The XID among the error codes of a check; SXIDs are numbers of switches."""
    if "XID" not in check.upper() or "SXID" in check:  # SysLogsXIDError is none
        return None
    return next((int(code[1]) for code in map(_CODE.fullmatch, codes) if code), None)


def _sniff_nvsentinel(head: bytes, path: Path) -> bool:
    return b"com.nvidia.nvsentinel.health" in head


def _nvsentinel_event(value: Any) -> Iterator[Row]:
    data = value["data"]
    event = data["healthEvent"]
    yield {
        "time": event.get("generatedTimestamp") or value.get("time"),
        **health_of(event),
        "cluster": (data.get("metadata") or {}).get("cluster"),
    }


def health_of(event: Row) -> Row:
    """What a health event of NVSentinel says, without its time."""
    check = str(event["checkName"])
    codes = [str(code) for code in event.get("errorCode") or ()]
    xid, fatal, healthy = xid_of(check, codes), event.get("isFatal"), event.get("isHealthy")
    result = "fail" if fatal or xid is not None else "warn"
    said = [str(event.get("message") or ""), *codes]
    return {
        "node": event.get("nodeName"),
        "check": check,
        "severity": "" if healthy else "HIGH" if fatal else "LOW",
        "result": "ok" if healthy else result,
        "message": " ".join(text for text in said if text),
        "xid": xid,
    }


NVSENTINEL = Format(
    "nvsentinel",
    "health events of NVIDIA's NVSentinel (CloudEvents)",
    _sniff_nvsentinel,
    partial(read_json, _EVENT_KEYS, unwrap=_nvsentinel_event),
)
