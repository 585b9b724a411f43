"""Health events as monitoring systems write them: facebookresearch/gcm, NVSentinel, Kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import rows_table
from holdfast.fleet.formats.json_lines import filled_lines, flatten, json_objects
from holdfast.fleet.formats.source import Rejects
from holdfast.fleet.formats.tabular import read_json, shipped
from holdfast.fleet.schema import HEALTH, NODES, Row
from holdfast.opening import open_source

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
    check = str(event["checkName"])
    codes = [str(code) for code in event.get("errorCode") or ()]
    xid, fatal, healthy = xid_of(check, codes), event.get("isFatal"), event.get("isHealthy")
    result = "fail" if fatal or xid is not None else "warn"
    said = [str(event.get("message") or ""), *codes]
    yield {
        "time": event.get("generatedTimestamp") or value.get("time"),
        "node": event.get("nodeName"),
        "check": check,
        "severity": "" if healthy else "HIGH" if fatal else "LOW",
        "result": "ok" if healthy else result,
        "message": " ".join(text for text in said if text),
        "xid": xid,
        "cluster": (data.get("metadata") or {}).get("cluster"),
    }


NVSENTINEL = Format(
    "nvsentinel",
    "health events of NVIDIA's NVSentinel (CloudEvents)",
    _sniff_nvsentinel,
    partial(read_json, _EVENT_KEYS, unwrap=_nvsentinel_event),
)


# --- Kubernetes ------------------------------------------------------------------------------------
#
# Kubernetes nodes and events about them -> inventory and node health.
#
# Input: JSON lines of objects or of watch events (``{"type": "MODIFIED", "object": {...}}``), or one list
# (``kubectl get nodes,events -A -o json``). Pods are not read: they leave the API server within hours, so
# that a list of them is not a log of jobs.
#
# A node gives a health event for each condition that says that something is wrong, at the time of its last
# transition: Ready (or another ``...Ready``, ``...Healthy``) that is not True, any other that is True:
# pressures, the conditions of node-problem-detector (KernelDeadlock, ReadonlyFilesystem) and of NVSentinel
# (GpuMemWatch, SysLogsXIDError). Events about nodes (NodeNotReady, warnings, the non-fatal ones of
# NVSentinel) become health events too. Everything is held in memory until the file ends.

_KIND = re.compile(rb'"kind"\s*:\s*"(Event|Node|List|EventList|NodeList)"')
_OF_KUBERNETES = re.compile(rb'"(apiVersion|involvedObject|regarding|items)"\s*:')
_ERROR_CODE = re.compile(r"ErrorCode:(\w+)")  # as NVSentinel writes it into a condition's message
# What a field of another type than Kubernetes writes can raise
_DAMAGED = (TypeError, ValueError, AttributeError, KeyError, OverflowError)


def _sniff_kubernetes(head: bytes, path: Path) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        and bool(_KIND.search(head))
        and bool(_OF_KUBERNETES.search(head))
        and b'"metadata"' in head
    )


class _Cluster:
    """The nodes, and what is wrong with them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Row] = {}
        # By node, check and time: a watch repeats a node's conditions.
        self.health: dict[tuple[object, ...], Row] = {}

    def add(self, item: Row) -> str | None:
        """Take one object in; the reason if it cannot be used."""
        kind = item.get("kind")
        meta = item.get("metadata")
        if not isinstance(meta, dict) or "name" not in meta:
            return "no Kubernetes object (metadata.name)"
        if kind == "Event":
            return self._add_event(item)
        if kind == "Node":
            return self._add_node(item)
        return "neither a node nor an event"

    def _add_node(self, node: Row) -> str | None:
        name = node["metadata"]["name"]
        status = node.get("status") or {}
        capacity = status.get("capacity") or {}
        self.nodes[name] = {
            "node": name,
            "gpus": sum(int(n) for key, n in capacity.items() if key.endswith("/gpu")),
            "cpus": int(capacity["cpu"]) if str(capacity.get("cpu")).isdecimal() else None,
            "inferred": False,
        }
        for condition in status.get("conditions") or ():
            kind = condition["type"]
            value = condition["status"]
            good = "True" if kind.endswith(("Ready", "Healthy")) else "False"
            # A node that went silent has all its conditions unknown: that is one failure.
            if value == good or (value == "Unknown" and kind != "Ready"):
                continue
            time = _seconds(condition.get("lastTransitionTime"))
            if time is None:
                return f"a condition {kind} without a time"
            self._add_health(
                time,
                name,
                "NodeNotReady" if kind == "Ready" else kind,
                f"{condition.get('reason') or ''}: {condition.get('message') or ''}",
            )
        return None

    def _add_event(self, event: Row) -> str | None:
        about = event.get("involvedObject") or event.get("regarding") or {}
        kind = str(event.get("type"))
        reason = str(event.get("reason", ""))
        if about.get("kind") != "Node" or (kind == "Normal" and reason != "NodeNotReady"):
            return None
        times = (event.get(key) for key in ("lastTimestamp", "eventTime", "firstTimestamp"))
        time = next((t for t in map(_seconds, times) if t is not None), None)
        if time is None:
            return "an event without a time"
        message = str(event.get("message") or event.get("note") or "")
        if kind in ("Normal", "Warning"):
            self._add_health(time, about.get("name"), reason, message)
        else:  # NVSentinel writes its check there; what is fatal is a condition
            self._add_health(time, about.get("name"), kind, message, "warn")
        return None

    def _add_health(
        self, time: float, node: object, check: str, message: str, result: str = "fail"
    ) -> None:
        xid = xid_of(check, _ERROR_CODE.findall(message))
        self.health[node, check, time] = {
            "time_s": time,
            "node": node,
            "check": check,
            "severity": "",
            "result": result if xid is None else "fail",
            "message": message,
            "xid": xid,
        }


def _seconds(text: object) -> float | None:
    """A time of Kubernetes in seconds since 1970; None if it is none."""
    if not isinstance(text, str):
        return None
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return stamp.timestamp() if stamp.tzinfo else None


def _objects(path: Path, rejects: Rejects) -> Iterator[tuple[Row, int, str]]:
    """Every object with its line and text; those of objects over several lines stand on line 1."""
    with open_source(path) as file:
        first = file.readline()
    try:
        json.loads(first)
    except ValueError:  # objects over several lines: the output of `kubectl get -o json`
        import ijson

        several = {"use_float": True, "multiple_values": True}  # a watch, or lists one by one
        try:
            with open_source(path) as file:
                kinds = set(ijson.items(file, "kind", **several))
            # Of a list each item, so that a large one is never in memory.
            are_lists = kinds and all(str(kind).endswith("List") for kind in kinds)
            with open_source(path) as file:
                for value in ijson.items(file, "items.item" if are_lists else "", **several):
                    for item in _items(value):
                        yield item, 1, json.dumps(item)
        except ijson.JSONError as error:
            rejects.add(1, f"the JSON breaks off ({error})", "")
        return
    for texts, lines in filled_lines(path):
        yield from json_objects(texts, lines, rejects, _items)


def _items(value: Any) -> Iterator[Row]:
    """The objects of a line: of a list, of a watch event, or itself."""
    value = value["object"] if isinstance(value.get("object"), dict) else value
    yield from value.get("items") or [value]


def _read_kubernetes(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    cluster = _Cluster()
    for item, line, text in _objects(path, rejects):
        try:
            reason = cluster.add(item)
        except _DAMAGED as error:
            reason = f"a field of an unexpected type ({error})"
        if reason:
            rejects.add(line, reason, text)
    yield Batch(
        {
            "nodes": rows_table(NODES, list(cluster.nodes.values())),
            "health": rows_table(HEALTH, list(cluster.health.values())),
            "rejects": rejects.table(),
        }
    )


KUBERNETES = Format(
    "kubernetes", "Kubernetes nodes and events (JSON)", _sniff_kubernetes, _read_kubernetes
)
