"""Health events of NVIDIA's NVSentinel, one JSON object per line.

Two forms: CloudEvents of its event exporter (``"type": "com.nvidia.nvsentinel.health.v1"``, the event in
``data.healthEvent``), and documents of its MongoDB collection (``mongoexport``; the event in
``healthevent``, its keys in lower case).

===============================  ========  ==================
event                            result    severity
===============================  ========  ==================
isHealthy                        ok
isFatal (the node is cordoned)   fail      HIGH
not fatal, with an XID           fail      LOW
not fatal, else                  warn      LOW
===============================  ========  ==================

Source: event-exporter/pkg/transformer/cloudevents.go and docs/DATA_FLOW.md of github.com/NVIDIA/NVSentinel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.tabular import read_json, shipped

_LAYOUT = shipped("health-csv")
_CODE = re.compile(r"(?:XID[ _]?)?(\d{1,4})", re.IGNORECASE)
_EVENT = re.compile(rb'"healthevent"\s*:\s*\{', re.IGNORECASE)


def xid_of(check: str, codes: list[str]) -> int | None:
    """The XID among the error codes of a check; SXIDs are numbers of switches."""
    if "XID" not in check.upper() or "SXID" in check:  # SysLogsXIDError is none
        return None
    return next((int(code[1]) for code in map(_CODE.fullmatch, codes) if code), None)


def _sniff(head: bytes, path: Path) -> bool:
    return b"com.nvidia.nvsentinel.health" in head or (
        bool(_EVENT.search(head)) and b'"checkname"' in head.lower()
    )


def _unwrap(value: Any) -> Iterator[dict[str, Any]]:
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


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    return read_json(_LAYOUT, path, options, _unwrap)


NVSENTINEL = Format(
    "nvsentinel",
    "health events of NVIDIA's NVSentinel (CloudEvents or MongoDB documents)",
    _sniff,
    _read,
)
