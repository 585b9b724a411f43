"""Kubernetes nodes and events about them -> inventory and node health.

Input: JSON lines of objects or of watch events (``{"type": "MODIFIED", "object": {...}}``), or one list
(``kubectl get nodes,events -A -o json``). Pods are not read: they leave the API server within hours, so
that a list of them is not a log of jobs.

A node gives a health event for each condition that says that something is wrong, at the time of its last
transition: Ready (or another ``...Ready``, ``...Healthy``) that is not True, any other that is True:
pressures, the conditions of node-problem-detector (KernelDeadlock, ReadonlyFilesystem) and of NVSentinel
(GpuMemWatch, SysLogsXIDError). Events about nodes (NodeNotReady, warnings, the non-fatal ones of
NVSentinel) become health events too. Everything is held in memory until the file ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import rows_table
from holdfast.fleet.formats.monitors import xid_of
from holdfast.fleet.formats.source import Rejects, blocks
from holdfast.fleet.schema import HEALTH, NODES
from holdfast.opening import open_source

_KIND = re.compile(rb'"kind"\s*:\s*"(Event|Node|List|EventList|NodeList)"')
_OF_KUBERNETES = re.compile(rb'"(apiVersion|involvedObject|regarding|items)"\s*:')
_ERROR_CODE = re.compile(r"ErrorCode:(\w+)")  # as NVSentinel writes it into a condition's message
# What a field of another type than Kubernetes writes can raise
_DAMAGED = (TypeError, ValueError, AttributeError, KeyError, OverflowError)

Object = dict[str, Any]


def _sniff(head: bytes, path: Path) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        and bool(_KIND.search(head))
        and bool(_OF_KUBERNETES.search(head))
        and b'"metadata"' in head
    )


class _Cluster:
    """The nodes, and what is wrong with them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        # By node, check and time: a watch repeats a node's conditions.
        self.health: dict[tuple[object, ...], Object] = {}

    def add(self, item: Object) -> str | None:
        """Take one object in; the reason if it cannot be used."""
        kind, meta = item.get("kind"), item.get("metadata")
        if not isinstance(meta, dict) or "name" not in meta:
            return "no Kubernetes object (metadata.name)"
        if kind == "Event":
            return self._add_event(item)
        if kind == "Node":
            return self._add_node(item)
        return "neither a node nor an event"

    def _add_node(self, node: Object) -> str | None:
        name, status = node["metadata"]["name"], node.get("status") or {}
        capacity = status.get("capacity") or {}
        self.nodes[name] = {
            "node": name,
            "gpus": sum(int(n) for key, n in capacity.items() if key.endswith("/gpu")),
            "cpus": int(capacity["cpu"]) if str(capacity.get("cpu")).isdecimal() else None,
            "inferred": False,
        }
        for condition in status.get("conditions") or ():
            kind, value = condition["type"], condition["status"]
            good = "True" if kind.endswith(("Ready", "Healthy")) else "False"
            # A node that went silent has all its conditions unknown: that is one failure.
            if value == good or (value == "Unknown" and kind != "Ready"):
                continue
            time = _seconds(condition.get("lastTransitionTime"))
            if time is None:
                return f"a condition {kind} without a time"
            message = f"{condition.get('reason') or ''}: {condition.get('message') or ''}"
            self._add_health(time, name, "NodeNotReady" if kind == "Ready" else kind, message)
        return None

    def _add_event(self, event: Object) -> str | None:
        about = event.get("involvedObject") or event.get("regarding") or {}
        kind, reason = str(event.get("type")), str(event.get("reason", ""))
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


def _objects(path: Path, rejects: Rejects) -> Iterator[tuple[int, Object]]:
    """(line, object) of every object; all of one list stand on line 1."""
    with open_source(path) as file:
        first = file.readline().strip()
    try:
        whole = json.loads(first)
    except ValueError:
        whole = None
    if whole is None:  # an object over several lines: the output of `kubectl get -o json`
        import ijson

        try:
            with open_source(path) as file:
                for item in ijson.items(file, "items.item", use_float=True):
                    yield 1, item
        except ijson.JSONError as error:
            rejects.add(1, f"the list breaks off ({error})", "")
        return
    for block in blocks(path):
        for line, text in enumerate(block.lines().to_pylist(), start=block.first_line):
            if not text.strip():
                continue
            try:
                value = json.loads(text)
            except ValueError:
                rejects.add(line, "not JSON", text)
                continue
            if not isinstance(value, dict):
                rejects.add(line, "not a JSON object", text)
                continue
            value = value["object"] if isinstance(value.get("object"), dict) else value
            for item in value.get("items") or [value]:
                yield line, item


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    cluster = _Cluster()
    for line, item in _objects(path, rejects):
        try:
            reason = cluster.add(item)
        except _DAMAGED as error:
            reason = f"a field of an unexpected type ({error})"
        if reason:
            rejects.add(line, reason, json.dumps(item))
    yield Batch(
        {
            "nodes": rows_table(NODES, list(cluster.nodes.values())),
            "health": rows_table(HEALTH, list(cluster.health.values())),
            "rejects": rejects.table(),
        }
    )


KUBERNETES = Format("kubernetes", "Kubernetes nodes and events (JSON)", _sniff, _read)
