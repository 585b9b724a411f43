"""Kubernetes: pods become attempts, nodes the inventory, outages and node health.

Input: JSON lines of objects or of watch events (``{"type": "MODIFIED", "object": {...}}``), or lists
(``kubectl get nodes,pods,jobs,events -A -o json``). A stream may be doubled, reordered or cut off: the
last resourceVersion of an object counts, and times are those that the objects state. Everything is held in
memory until the file ends.

**Pods.** An attempt for each run of a pod's main container, the one with the most GPUs. Pods of DaemonSets,
and services without GPUs, are no work of a batch system. The parts of a distributed job are named as Slurm
names those of a heterogeneous one, ``namespace/job+index``, by the labels of JobSet, Kubeflow, Volcano and
Job; the next pod of an index is the next attempt. The pods of a Job without indices are named as tasks of
an array, ``namespace/job_suffix``. `holdfast.fleet.gangs` makes jobs of them.

=================================================  =============
a run that                                         state
=================================================  =============
ended with phase Succeeded or exit code 0          COMPLETED
was preempted or evicted (also by Kueue)           PREEMPTED
was lost with its node                             NODE_FAIL
was killed for memory                              OUT_OF_MEMORY
passed the deadline of its pod or Job              TIMEOUT
ended after somebody deleted its pod               CANCELLED
ended in another way                               FAILED
=================================================  =============

**Nodes.** A health event for each condition that says that something is wrong, at the time of its last
transition: Ready (or another ``...Ready``, ``...Healthy``) that is not True, any other that is True:
pressures, the conditions of node-problem-detector (KernelDeadlock, ReadonlyFilesystem) and of NVSentinel
(GpuMemWatch, SysLogsXIDError). Events about nodes (NodeNotReady, warnings, the non-fatal ones of
NVSentinel) and NVSentinel's HealthEvent resources become health events too. A node that is not ready is
DOWN, or DOWN* if it went silent, and DRAIN while it is cordoned. No object tells when a cordon was lifted:
it ends with the last write of the first version without it (managedFields, which `kubectl get` hides), or
or with its last heartbeat.

**The end of the log** is the latest moment that an object states, mostly a heartbeat: what runs ran until
then.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions, latest_s
from holdfast.fleet.formats.columns import rows_table
from holdfast.fleet.formats.json_lines import filled_lines, first_objects, json_objects
from holdfast.fleet.formats.monitors import health_of, xid_of
from holdfast.fleet.formats.source import Rejects
from holdfast.fleet.schema import ATTEMPTS, HEALTH, NODE_OUTAGES, NODES, Row
from holdfast.opening import first_bytes, open_source

DELETED = "deleted"  # Key by which `_items` marks the last version of an object
_KIND = re.compile(
    rb'"kind"\s*:\s*"((Event|Node|Pod|Job|JobSet|Workload)(List)?|List|HealthEvent\w*)"'
)
_OF_KUBERNETES = re.compile(rb'"(apiVersion|involvedObject|regarding|items)"\s*:')
_ERROR_CODE = re.compile(r"ErrorCode:(\w+)")  # as NVSentinel writes it into a condition's message
# What a field of another type than Kubernetes writes can raise
_DAMAGED = (TypeError, ValueError, AttributeError, KeyError, OverflowError)

# Reason of a pod, of its condition DisruptionTarget or of its container -> how it ended
_ENDS = {
    **dict.fromkeys(("DeletionByTaintManager", "DeletionByPodGC", "NodeLost"), "NODE_FAIL"),
    **dict.fromkeys(("Evicted", "Preempting", "Preempted", "Shutdown", "Terminated"), "PREEMPTED"),
    **dict.fromkeys(("PreemptionByScheduler", "EvictionByEvictionAPI"), "PREEMPTED"),
    "TerminationByKubelet": "PREEMPTED",
    "DeadlineExceeded": "TIMEOUT",
    "OOMKilled": "OUT_OF_MEMORY",
}
# The same for a condition of a Job (Failed, FailureTarget) or of a workload (Evicted)
_OWNER_ENDS = {"DeadlineExceeded": "TIMEOUT", "Preempted": "PREEMPTED"}
# When something was so; deadlines and the ends of grace periods lie ahead
_MOMENTS = (
    *("lastHeartbeatTime", "lastTransitionTime", "creationTimestamp"),
    *("renewTime", "lastTimestamp", "eventTime"),
)
_SOON_S = 300  # within which a job that was stopped has its pods deleted

_JOB_NAMES = (  # labels, the outermost first
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "kueue.x-k8s.io/pod-group-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
_ROLE, _TYPE = "training.kubeflow.org/job-role", "training.kubeflow.org/replica-type"
_GROUPS = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    _TYPE,
    "volcano.sh/task-spec",
)
_INDICES = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
    "kueue.x-k8s.io/pod-group-pod-index",
    "apps.kubernetes.io/pod-index",
)
_QUEUE = "kueue.x-k8s.io/queue-name"
READ_LABELS = {*_JOB_NAMES, *_GROUPS, *_INDICES, _ROLE, _QUEUE}
"""The labels and annotations of a pod that tell its job."""


def _sniff(head: bytes, path: Path) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        and bool(_KIND.search(head))
        and bool(_OF_KUBERNETES.search(head))
        and b'"metadata"' in head
    )


class _Cluster:
    """The objects of a file, as rows; each with the version that says so."""

    def __init__(self) -> None:
        self.nodes: dict[object, tuple[int, Row]] = {}
        # By node and kind of outage: place in time, since when, state ("": in service), reason
        self.turns: dict[tuple[str, str], set[tuple[float, float, str, str]]] = {}
        # Each once: a watch repeats them. All stay, as a store that follows the file has the earlier ones.
        self.health: dict[str, Row] = {}
        self.runs: dict[object, tuple[int, Row]] = {}  # by pod and start
        # Of owners by uid: the owner's owners; when and how it was stopped
        self.owners: dict[object, list[object]] = {}
        self.stops: dict[object, set[tuple[float, str]]] = {}
        self.until_s = 0.0  # The latest moment that an object states

    def add(self, item: Row) -> str | None:
        """Take one object in; the reason if it cannot be used."""
        kind = item.get("kind")
        meta = item.get("metadata")
        if not isinstance(meta, dict) or "name" not in meta:
            return "no Kubernetes object (metadata.name)"
        version = 2 * int(meta.get("resourceVersion") or 0) + bool(item.get(DELETED))
        self.until_s = max(self.until_s, *moments(item))
        if kind == "Event":
            return self._add_event(item)
        if kind in ("Node", "Pod"):
            return (self._add_node if kind == "Node" else self._add_pod)(item, version)
        if kind in ("Job", "JobSet", "Workload", "Lease"):
            return self._add_owner(item)
        if str(kind).startswith("HealthEvent"):
            event = item["spec"].get("healthEvent") or item["spec"]
            return self._add_health(_first_time(event, meta), health_of(event))
        return "neither a node, a pod, its owner nor an event"

    # --- Pods --------------------------------------------------------------------------------------

    def _add_owner(self, item: Row) -> str | None:
        meta = item["metadata"]
        of = [meta.get("uid")]
        if item["kind"] == "Workload":  # it belongs to the job that it stops
            of = _owners(meta)
        else:
            self.owners[of[0]] = _owners(meta)
        for condition in (item.get("status") or {}).get("conditions") or ():
            state = _OWNER_ENDS.get(condition.get("reason"))
            time = _seconds(condition.get("lastTransitionTime"))
            if state and time is not None and condition["status"] == "True":
                for uid in of:
                    self.stops.setdefault(uid, set()).add((time, state))
        return None

    def _add_pod(self, pod: Row, version: int) -> str | None:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        gpus = sum(map(_gpus, spec["containers"]))
        kinds = {owner.get("kind") for owner in meta.get("ownerReferences") or ()}
        service = spec.get("restartPolicy") == "Always" and not gpus
        if service or not spec.get("nodeName") or kinds & {"DaemonSet", "Node"}:
            return None
        main = max(spec["containers"], key=_gpus)["name"]
        container = next(
            (c for c in status.get("containerStatuses") or () if c["name"] == main), {}
        )
        labels = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
        root, part = _names(str(meta["name"]), labels)
        space = meta.get("namespace") or "default"
        cpus = sum(_cpus(_asked(c).get("cpu")) for c in spec["containers"])
        common = {
            "job_id": f"{space}/{root}{part}",
            "name": root,
            "account": space,
            "partition": labels.get(_QUEUE),
            "qos": spec.get("priorityClassName"),
            "priority": spec.get("priority"),
            "submit_s": _second(meta.get("creationTimestamp")),
            "time_limit_s": spec.get("activeDeadlineSeconds"),
            "node_count": 1,
            "nodes": [str(spec["nodeName"])],
            "gpus": gpus,
            "cpus": math.ceil(cpus) or None,
            "above": _owners(meta),
        }
        uid = meta.get("uid") or common["job_id"]
        restarts = int(container.get("restartCount") or 0)
        now, last = container.get("state") or {}, container.get("lastState") or {}
        if ended := last.get("terminated"):
            self._add_run(uid, version, common | _end({}, ended), ended, restarts - 1)
        if run := now.get("terminated") or now.get("running"):
            started = {"startedAt": run.get("startedAt") or status.get("startTime")}
            self._add_run(uid, version, common | _end(pod, run), started, restarts)
        return None

    def _add_run(self, uid: object, version: int, row: Row, run: Row, restarts: int) -> None:
        start_s = _second(run.get("startedAt"))
        if start_s is not None:  # an attempt without a start did not run
            row |= {"start_s": start_s, "restarts": restarts}
            _keep(self.runs, (uid, start_s), version, row)

    def attempts(self) -> Iterator[Row]:
        """A row for each run, with what its owners tell."""
        for _, run in self.runs.values():
            row = dict(run)
            asked_s, above = row.pop("asked_s", None), row.pop("above")
            for uid in [*above, *(top for each in above for top in self.owners.get(each, ()))]:
                for time, state in sorted(self.stops.get(uid, ())):
                    if row["state"] == "CANCELLED" and abs(time - (asked_s or 0)) <= _SOON_S:
                        row["state"] = state
            yield row

    # --- Nodes -------------------------------------------------------------------------------------

    def _add_node(self, node: Row, version: int) -> str | None:
        name = node["metadata"]["name"]
        status, spec = node.get("status") or {}, node.get("spec") or {}
        capacity = status.get("capacity") or {}
        taints = {taint["key"]: taint.get("timeAdded") for taint in spec.get("taints") or ()}
        because = ", ".join(key for key in taints if not key.startswith("node.kubernetes.io/"))
        state, missing = "READY", None
        conditions = status.get("conditions") or ()
        stated = [*conditions, *(node["metadata"].get("managedFields") or ())]
        names = ("time", "lastTransitionTime", "lastHeartbeatTime")
        times = [_seconds(each.get(key)) or 0.0 for each in stated for key in names]
        for condition in conditions:
            kind, value = condition["type"], condition["status"]
            time = _seconds(condition.get("lastTransitionTime"))
            said = f"{condition.get('reason') or ''}: {condition.get('message') or ''}"
            if kind == "Ready" and time is not None:
                state = {"True": "READY", "Unknown": "DOWN*"}.get(value, "DOWN")
                self._turn(name, kind, time, time, state, said)
            good = "True" if kind.endswith(("Ready", "Healthy")) else "False"
            # A node that went silent has all its conditions unknown: that is one failure.
            if value == good or (value == "Unknown" and kind != "Ready"):
                continue
            row = _event(name, "NodeNotReady" if kind == "Ready" else kind, said)
            missing = self._add_health(time, row) and f"a condition {kind} without a time"
        cordoned = bool(spec.get("unschedulable"))
        since = _seconds(taints.get("node.kubernetes.io/unschedulable"))
        since = since if cordoned else max(times, default=0.0)
        if since is not None:
            self._turn(name, "cordon", version, since, "DRAIN" if cordoned else "READY", because)
        row = {
            "node": name,
            "gpus": sum(int(n) for key, n in capacity.items() if key.endswith("/gpu")),
            "cpus": int(_cpus(capacity.get("cpu"))) or None,
            "state": state + "+DRAIN" * cordoned,
            "reason": because or None,
            "inferred": False,
        }
        _keep(self.nodes, name, version, row)
        return missing

    def _turn(
        self, node: str, kind: str, place: float, since_s: float, state: str, reason: str
    ) -> None:
        self.turns.setdefault((node, kind), set()).add((place, since_s, state, reason))

    def outages(self) -> Iterator[Row]:
        """A row for each time at which a node was not ready, and for each cordon."""
        for (node, _), turns in self.turns.items():
            ordered = sorted(turns)
            for turn, after in zip(ordered, [*ordered[1:], None], strict=True):
                _, since_s, state, reason = turn
                if state == "READY" or (after and after[1:3] == (since_s, state)):
                    continue
                end_s = int(max(since_s, after[1])) if after else None
                times = {"start_s": int(since_s), "end_s": end_s}
                yield {"node": node, **times, "state": state, "reason": reason}

    def _add_event(self, event: Row) -> str | None:
        about = event.get("involvedObject") or event.get("regarding") or {}
        kind = str(event.get("type"))
        reason = str(event.get("reason", ""))
        if about.get("kind") != "Node" or (kind == "Normal" and reason != "NodeNotReady"):
            return None
        message = str(event.get("message") or event.get("note") or "")
        if kind in ("Normal", "Warning"):
            row = _event(about.get("name"), reason, message)
        else:  # NVSentinel writes its check there; what is fatal is a condition
            row = _event(about.get("name"), kind, message, "warn")
        return self._add_health(_first_time(event, {}), row)

    def _add_health(self, time: float | None, row: Row) -> str | None:
        if time is None:
            return "an event without a time"
        event = {"time_s": time, **row}
        self.health[repr(event)] = event
        return None


def _keep(known: dict[object, tuple[int, Row]], key: object, version: int, row: Row) -> None:
    """The row of the last version; of one version, the text that sorts last, in whatever order."""
    if key not in known or (version, repr(row)) >= (known[key][0], repr(known[key][1])):
        known[key] = (version, row)


def _event(node: object, check: str, message: str, result: str = "fail") -> Row:
    xid = xid_of(check, _ERROR_CODE.findall(message))
    return {
        "node": node,
        "check": check,
        "severity": "",
        "result": result if xid is None else "fail",
        "message": message,
        "xid": xid,
    }


def _names(pod: str, labels: Row) -> tuple[str, str]:
    """The job of a pod, and which part of it the pod is: "+workers-0-3", "_x7k2p", "" for all of it."""
    job = next((str(labels[key]) for key in _JOB_NAMES if labels.get(key)), pod)
    index = [str(labels[key]) for key in _INDICES if key in labels]
    if role := labels.get(
        _ROLE
    ):  # of the pod whose result counts, whichever its type; one without an index
        labels, index = labels | {_TYPE: role}, index or ["0"]
    if index:
        return job, "+" + "-".join(
            [str(labels[key]) for key in _GROUPS if key in labels] + index[:1]
        )
    suffix = pod.removeprefix(job).strip("-")
    return job, f"_{suffix}" if suffix else ""


def _end(pod: Row, run: Row) -> Row:
    """State, end and exit of a run; `asked_s` is when its pod was asked to end, if it was."""
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    wanted = ("DisruptionTarget", "True")
    conditions = status.get("conditions") or ()
    target = next((c for c in conditions if (c.get("type"), c.get("status")) == wanted), {})
    reasons = (status.get("reason"), target.get("reason"), run.get("reason"))
    state = next((_ENDS[reason] for reason in reasons if reason in _ENDS), None)
    gone_s, target_s = (
        _second(meta.get("deletionTimestamp")),
        _second(target.get("lastTransitionTime")),
    )
    asked_s = gone_s and gone_s - int(meta.get("deletionGracePeriodSeconds") or 0)
    phase, code, end_s = status.get("phase"), run.get("exitCode"), _second(run.get("finishedAt"))
    over = code is not None or phase in ("Succeeded", "Failed") or pod.get(DELETED)
    if not over and state != "NODE_FAIL":
        return {"state": "RUNNING", "out_of_memory": False, "sigterm": False}
    if end_s is None:
        end_s = target_s if target_s is not None else gone_s
    if phase == "Succeeded" or (state is None and code == 0):
        state = "COMPLETED"
    if state is None:
        late = asked_s is not None and (end_s is None or end_s >= asked_s)
        state = "CANCELLED" if late or code is None else "FAILED"
    signal = int(run.get("signal") or max((code or 0) - 128, 0))
    return {
        "state": state,
        "end_s": end_s,
        "asked_s": asked_s,
        "exit_code": 0 if signal else code,
        "exit_signal": None if code is None else signal,
        "out_of_memory": state == "OUT_OF_MEMORY",
        "sigterm": signal == 15,
        "reason": next((str(reason) for reason in reasons if reason), None),
    }


def _owners(meta: Row) -> list[object]:
    return [owner.get("uid") for owner in meta.get("ownerReferences") or ()]


def _asked(container: Row) -> Row:
    """Amounts of resources by name."""
    asked = container.get("resources") or {}
    return {**(asked.get("requests") or {}), **(asked.get("limits") or {})}


def _gpus(container: Row) -> int:
    return sum(int(n) for key, n in _asked(container).items() if key.endswith("/gpu"))


def _cpus(text: object) -> float:
    """An amount of CPUs: "1.5", "1500m"."""
    said = str(text or 0)
    return float(said[:-1]) / 1000 if said.endswith("m") else float(said)


def _seconds(text: object) -> float | None:
    """A time of Kubernetes in seconds since 1970; None if it is none."""
    if not isinstance(text, str):
        return None
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return stamp.timestamp() if stamp.tzinfo else None


def _second(text: object) -> int | None:
    seconds = _seconds(text)
    return None if seconds is None else int(seconds)


def _first_time(event: Row, meta: Row) -> float | None:
    """When something happened, by the first field that says so."""
    names = ("lastTimestamp", "eventTime", "firstTimestamp", "generatedTimestamp", "detectedAt")
    times = [*(event.get(name) for name in names), meta.get("creationTimestamp")]
    return next((time for time in map(_seconds, times) if time is not None), None)


def moments(item: Row) -> Iterator[float]:
    """The times that an object states, in seconds since 1970, 0 among them; of a wrong clock none."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    for part in (item, item["metadata"], item.get("spec") or {}, *conditions):
        times = (_seconds(part.get(name)) or 0.0 for name in _MOMENTS)
        yield from (time for time in times if time < latest_s())


def _objects(path: Path, rejects: Rejects) -> Iterator[tuple[Row, int, str]]:
    """Every object with its line and text; those of objects over several lines stand on line 1."""
    with open_source(path) as file:
        first = file.readline()
    try:
        json.loads(first)
    except ValueError:
        if not first_objects(first_bytes(path)):
            yield from _over_lines(path, rejects)
            return
    for texts, lines in filled_lines(path):
        yield from json_objects(texts, lines, rejects, _items)


def _over_lines(path: Path, rejects: Rejects) -> Iterator[tuple[Row, int, str]]:
    """The objects that `kubectl get -o json` prints over several lines."""
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
    except (ijson.JSONError, TypeError, AttributeError) as error:
        rejects.add(1, f"the JSON breaks off, or has no object there ({error})", "")


def _items(value: Any) -> Iterator[Row]:
    """The objects of a line: of a list, of a watch event, or itself; what marks a place is none."""
    if isinstance(value.get("object"), dict):
        if value.get("type") in ("BOOKMARK", "ERROR"):
            return
        value = {**value["object"], DELETED: value.get("type") == "DELETED"}
    kind = str(value.get("kind")).removesuffix("List")  # the API server leaves it out of items
    yield from ({"kind": kind, **item} for item in value.get("items") or [value])


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    cluster = _Cluster()
    for item, line, text in _objects(path, rejects):
        try:
            reason = cluster.add(item)
        except _DAMAGED as error:
            reason = f"a field of an unexpected type ({error})"
        if reason:
            rejects.add(line, reason, text)
    attempts = sorted(cluster.attempts(), key=lambda row: (row["start_s"], row["job_id"]))
    yield Batch(
        {
            "attempts": rows_table(ATTEMPTS, attempts),
            "nodes": rows_table(NODES, [row for _, row in cluster.nodes.values()]),
            "node_outages": rows_table(NODE_OUTAGES, list(cluster.outages())),
            "health": rows_table(HEALTH, list(cluster.health.values())),
            "rejects": rejects.table(),
        },
        facts={"until_s": cluster.until_s},
    )


KUBERNETES = Format("kubernetes", "Kubernetes pods, nodes and events (JSON)", _sniff, _read)
