"""The API server of Kubernetes as a live source: lists once, then watches from where it was.

A poll asks for what has changed since the last resourceVersion and takes what comes within two seconds.
What the server has forgotten (410 Gone) is listed again, and a pod that is no longer there ended unseen. A
line of the spool is a watch event, as `kubectl get -w -o json --output-watch-events` prints it, without
what the reader does not use: specifications of containers hold secrets.
"""

from __future__ import annotations

import json
import re
from threading import Event
from typing import Any

from holdfast.fleet.formats.json_lines import parsed
from holdfast.fleet.formats.kubernetes import READ_LABELS, moments
from holdfast.fleet.live.asking import Server, Source, Trouble
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.schema import Row

WATCH_S = 2  # that a watch stays open
BEAT_S = 3600  # Of heartbeats that say nothing else, one of all nodes is written in so long a time
PAGE = 500  # Objects of one answer to a list
_EVERY = {  # Objects -> their group, "" for the first one; Jobs come before their pods
    "jobs": "batch",
    "jobsets": "jobset.x-k8s.io",
    "workloads": "kueue.x-k8s.io",
    "pods": "",
    "nodes": "",
    "events": "",
    "healthevents": "nvsentinel.nvidia.com",
}
_ONLY = {"/api/v1/events": {"fieldSelector": "involvedObject.kind=Node"}}
_KEPT = {
    "metadata": "name namespace uid resourceVersion creationTimestamp deletionTimestamp labels "
    "deletionGracePeriodSeconds ownerReferences",
    "spec": "nodeName restartPolicy priority priorityClassName activeDeadlineSeconds unschedulable taints "
    "containers",
    "status": "phase reason startTime conditions containerStatuses capacity",
}
_UNSAID = re.compile(r'"(lastHeartbeatTime|resourceVersion|time)": "[^"]*"')


class Kubernetes(Server[Source]):
    """Polls one API server."""

    def __init__(self, source: Source, halt: Event, first_s: float = 1.0) -> None:
        super().__init__(source, halt, first_s)
        self._said: dict[str, int] = {}  # Object -> what was last written of it
        self._until_s = 0.0  # The latest moment that was written

    def poll(self, spool: Spool) -> str:
        """Bring the spool up to date; arguments and errors as `Slurm.poll`."""
        groups = self.ask("/apis")["groups"]
        served = {each["name"]: each["preferredVersion"]["version"] for each in groups}
        troubles = []
        for name, group in _EVERY.items():
            path = f"/apis/{group}/{served.get(group)}/{name}" if group else f"/api/v1/{name}"
            try:
                if group in {"", *served}:
                    self._follow(path, spool)
            except Trouble as trouble:  # of one kind of object: the others go on
                if trouble.state in ("away", "half-written"):
                    raise
                # A group may serve other objects alone.
                if trouble.state != "unknown-version" or not group:
                    troubles.append(trouble)
        self.settle(self.now_s, troubles)
        return ""

    def _follow(self, path: str, spool: Spool) -> None:
        try:
            if path in spool.cursor:
                self._watch(path, spool)
        except Trouble as trouble:
            if trouble.state == "behind":
                self._list(path, spool)
            raise
        if path not in spool.cursor:
            self._list(path, spool)

    def _list(self, path: str, spool: Spool) -> None:
        page: dict[str, str] = {}
        there = set()
        while True:
            answer = self.ask(path, limit=PAGE, **_ONLY.get(path, {}), **page)
            kind, meta = str(answer["kind"]).removesuffix("List"), answer["metadata"]
            items: list[Row] = [{"kind": kind, **item} for item in answer.get("items") or ()]
            there |= {item["metadata"]["uid"] for item in items}
            self._write(spool, [("ADDED", item) for item in items])
            if not meta.get("continue"):
                break
            page = {"continue": meta["continue"]}
        known = spool.cursor.get("open", {}).items()
        gone = [item for uid, item in known if item["kind"] == kind and uid not in there]
        self._write(spool, [("DELETED", item) for item in gone])
        spool.commit(**{path: meta["resourceVersion"]})

    def _watch(self, path: str, spool: Spool) -> None:
        version = spool.cursor[path]
        events = []
        wanted = {"watch": "1", "allowWatchBookmarks": "true", **_ONLY.get(path, {})}
        wanted |= {"timeoutSeconds": str(WATCH_S), "resourceVersion": version}
        for event in self.ask(path, _lines, **wanted):
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                text = f"{path}: {item.get('message')} ({item.get('code')})"
                raise Trouble("behind" if item.get("code") == 410 else "bad-answer", text)
            version = item["metadata"]["resourceVersion"]
            if kind != "BOOKMARK":
                events.append((kind, item))
        self._write(spool, events)
        spool.commit(**{path: version})

    def _write(self, spool: Spool, events: list[tuple[str, Row]]) -> None:
        """Append what says something new; a state that it ends goes before it, into the same file."""
        known = spool.cursor.get("open", {})
        open_ = dict(known)
        lines = []
        for kind, whole in events:
            item = _trimmed(whole)
            uid = item["metadata"]["uid"]
            said = hash(_UNSAID.sub("", json.dumps((kind == "DELETED", item))))
            until_s = max(moments(item))
            if self._said.get(uid) == said and until_s < self._until_s + BEAT_S:
                continue
            self._said[uid], self._until_s = said, max(self._until_s, until_s)
            before = open_.pop(uid, None)
            if before and before != item:
                lines.append({"type": "MODIFIED", "object": before})
            lines.append({"type": kind, "object": item})
            if kind == "DELETED":
                del self._said[uid]
            elif _is_open(item):
                open_[uid] = item
        # What begins is noted first: a list that is asked again may no longer tell what was written.
        if open_.keys() - known:
            spool.commit(open=open_ | known)
        spool.append("objects", [json.dumps(line).encode() for line in lines], "jsonl")
        if lines:
            spool.commit(open=open_)


def _lines(text: str) -> list[Any]:
    return [parsed(line) for line in text.split("\n") if line.strip()]


def _trimmed(item: Row) -> Row:
    """An object as far as the reader of the format uses it."""
    if str(item["kind"]).startswith(("Event", "HealthEvent")):
        return item
    kept: Row = {"kind": item["kind"], "apiVersion": item.get("apiVersion", "v1")}
    for part, names in _KEPT.items():
        own = item.get(part) or {}
        kept[part] = {name: own[name] for name in names.split() if name in own}
    # An index was an annotation before it was a label; what a user notes there may be secret.
    noted = (item["metadata"].get("annotations") or {}).items()
    kept["metadata"]["annotations"] = {key: text for key, text in noted if key in READ_LABELS}
    if item["kind"] == "Node":  # when it was written: no other field tells when a cordon was lifted
        writes = item["metadata"].get("managedFields") or ()
        kept["metadata"]["managedFields"] = [{"time": each.get("time")} for each in writes]
    if containers := kept["spec"].get("containers"):
        kept["spec"]["containers"] = [
            {"name": each["name"], "resources": each.get("resources")} for each in containers
        ]
    return kept


def _is_open(item: Row) -> bool:
    """Whether something goes on that a later version will end: a pod runs, or a node is out."""
    if item["kind"] == "Pod":
        return bool(item["status"].get("phase") == "Running")
    conditions = item.get("status", {}).get("conditions") or ()
    ready = [each["status"] == "True" for each in conditions if each["type"] == "Ready"]
    return item["kind"] == "Node" and bool(item["spec"].get("unschedulable") or not all(ready))
