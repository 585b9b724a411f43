"""Health events as monitoring systems write them: facebookresearch/gcm and NVSentinel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.json_lines import flatten
from holdfast.fleet.formats.tabular import read_json, shipped

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


def _read_gcm(path: Path, options: ReadOptions) -> Iterator[Batch]:
    return read_json(_GCM, path, options, _gcm_records)


def _gcm_records(value: Any) -> Iterator[dict[str, Any]]:
    """The records of one line: a list of them, one, or an OTLP export of many."""
    if isinstance(value, list):
        for item in value:
            yield from _gcm_records(item)
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


GCM = Format("gcm", _GCM.describes, _sniff_gcm, _read_gcm)


# --- NVSentinel ------------------------------------------------------------------------------------
#
# Health events of NVIDIA's NVSentinel, one JSON object per line.
#
# Two forms: CloudEvents of its event exporter (``"type": "com.nvidia.nvsentinel.health.v1"``, the event in
# ``data.healthEvent``), and documents of its MongoDB collection (``mongoexport``; the event in
# ``healthevent``, its keys in lower case).
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
_EVENT = re.compile(rb'"healthevent"\s*:\s*\{', re.IGNORECASE)


def xid_of(check: str, codes: list[str]) -> int | None:
    """The XID among the error codes of a check; SXIDs are numbers of switches."""
    if "XID" not in check.upper() or "SXID" in check:  # SysLogsXIDError is none
        return None
    return next((int(code[1]) for code in map(_CODE.fullmatch, codes) if code), None)


def _sniff_nvsentinel(head: bytes, path: Path) -> bool:
    return b"com.nvidia.nvsentinel.health" in head or (
        bool(_EVENT.search(head)) and b'"checkname"' in head.lower()
    )


def _nvsentinel_event(value: Any) -> Iterator[dict[str, Any]]:
    data = value.get("data", value)
    event = {
        key.lower(): item for key, item in (data.get("healthEvent") or data["healthevent"]).items()
    }
    check = str(event["checkname"])
    codes = [str(code) for code in event.get("errorcode") or ()]
    xid = xid_of(check, codes)
    result = "fail" if event.get("isfatal") or xid is not None else "warn"
    said = [str(event.get("message") or ""), *codes]
    yield {
        "time": _time(
            event.get("generatedtimestamp") or value.get("time") or value.get("createdAt")
        ),
        "node": event.get("nodename"),
        "check": check,
        "severity": "" if event.get("ishealthy") else "HIGH" if event.get("isfatal") else "LOW",
        "result": "ok" if event.get("ishealthy") else result,
        "message": " ".join(text for text in said if text),
        "xid": xid,
        "cluster": (data.get("metadata") or {}).get("cluster"),
    }


def _time(value: Any) -> Any:
    """As text or seconds; MongoDB has ``{"seconds", "nanos"}``, and wraps dates and long numbers."""
    if not isinstance(value, dict):
        return value
    if "seconds" in value:
        return float(_time(value["seconds"])) + float(_time(value.get("nanos") or 0)) / 1e9
    return _time(next(iter(value.values()), None))


def _read_nvsentinel(path: Path, options: ReadOptions) -> Iterator[Batch]:
    return read_json(_EVENT_KEYS, path, options, _nvsentinel_event)


NVSENTINEL = Format(
    "nvsentinel",
    "health events of NVIDIA's NVSentinel (CloudEvents or MongoDB documents)",
    _sniff_nvsentinel,
    _read_nvsentinel,
)
