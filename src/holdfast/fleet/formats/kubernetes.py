"""Kubernetes objects and events -> attempts and node health.

Input: JSON lines of objects or of watch events (``{"type": "MODIFIED", "object": {...}}``, the last
version of an object counts), or one list (``kubectl get pods,jobs,events,workloads -A -o json``).

A job is what owns the pods: a JobSet, a Kubeflow or Volcano job, a Kueue pod group, a batch Job, else the
pod itself; pods of Deployments, DaemonSets and StatefulSets are services and left out. The pods of a job
in order of creation form its attempts: a new attempt starts when a replica's index comes again, or, for
pods without an index, when every pod of the attempt has ended. Where a container was restarted in place,
its last termination is an attempt of its own. A Job or Kueue workload tells why its pods were ended.

===========================================================================  =============
what Kubernetes says                                                         state here
===========================================================================  =============
status.reason NodeLost, NodeShutdown, Shutdown, Terminated; DisruptionTarget
by DeletionByTaintManager, DeletionByPodGC or TerminationByKubelet; event
TaintManagerEviction; Kueue eviction NodeFailures                            NODE_FAIL
status.reason Preempting, Preempted; DisruptionTarget PreemptionByScheduler;
event Preempted; Kueue eviction Preempted                                    PREEMPTED
container reason OOMKilled                                                   OUT_OF_MEMORY
DeadlineExceeded (pod or Job); Kueue MaximumExecutionTimeExceeded            TIMEOUT
DisruptionTarget EvictionByEvictionAPI (a drain); other Kueue evictions      REQUEUED
phase Failed, any other reason                                               FAILED
phase Succeeded                                                              COMPLETED
deleted while it ran, no reason given                                        CANCELLED
phase Running; Pending                                                       RUNNING; PENDING
===========================================================================  =============

An attempt takes the state of its pods that stands highest in this table. Everything is held in memory
until the file ends.

Nodes (``kubectl get nodes -o json``) give the inventory, and a health event for each condition that says
that something is wrong, at the time of its last transition: Ready (or another ``...Ready``, ``...Healthy``)
that is not True, any other that is True: pressures, the conditions of node-problem-detector
(KernelDeadlock, ReadonlyFilesystem) and of NVSentinel (GpuMemWatch, SysLogsXIDError). Events about nodes
(NodeNotReady, warnings, the non-fatal ones of NVSentinel) become health events too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import rows_table, text_key
from holdfast.fleet.formats.monitors import xid_of
from holdfast.fleet.formats.source import Rejects, blocks
from holdfast.fleet.schema import ATTEMPTS, HEALTH, NODES
from holdfast.opening import open_source

_KIND = re.compile(
    rb'"kind"\s*:\s*"(Pod|Job|Workload|Event|Node|List|PodList|JobList|EventList|WorkloadList|NodeList)"'
)
_OF_KUBERNETES = re.compile(rb'"(apiVersion|involvedObject|regarding|containerStatuses|items)"\s*:')

_ERROR_CODE = re.compile(r"ErrorCode:(\w+)")  # as NVSentinel writes it into a condition's message

_DAMAGED = (TypeError, ValueError, AttributeError, KeyError, OverflowError)
"""What a field of another type than Kubernetes writes can raise."""

Object = dict[str, Any]

_RANK = (
    "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "TIMEOUT", "REQUEUED", "FAILED", "CANCELLED",
    "RUNNING", "PENDING", "COMPLETED",
)  # fmt: skip
"""States of pods: the first of them is the state of their attempt."""

_POD_REASONS = {
    "NodeLost": "NODE_FAIL",
    "NodeShutdown": "NODE_FAIL",
    "Shutdown": "NODE_FAIL",
    "Terminated": "NODE_FAIL",
    "DeletionByTaintManager": "NODE_FAIL",
    "DeletionByPodGC": "NODE_FAIL",
    "TerminationByKubelet": "NODE_FAIL",
    "TaintManagerEviction": "NODE_FAIL",
    "Preempting": "PREEMPTED",
    "Preempted": "PREEMPTED",
    "PreemptionByScheduler": "PREEMPTED",
    "OOMKilled": "OUT_OF_MEMORY",
    "DeadlineExceeded": "TIMEOUT",
    "EvictionByEvictionAPI": "REQUEUED",
}
_EVICTIONS = {
    "Preempted": "PREEMPTED",
    "NodeFailures": "NODE_FAIL",
    "MaximumExecutionTimeExceeded": "TIMEOUT",
    "DeadlineExceeded": "TIMEOUT",
}
_PHASES = {"Succeeded": "COMPLETED", "Failed": "FAILED", "Running": "RUNNING", "Unknown": "RUNNING"}
_JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "kueue.x-k8s.io/pod-group-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
_INDEX_LABELS = (
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-spec",
    "volcano.sh/task-index",
    "batch.kubernetes.io/job-completion-index",
)
_SERVICES = {"ReplicaSet", "DaemonSet", "StatefulSet", "Deployment", "Node"}
_QUEUES = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")


@dataclass(frozen=True)
class Run:
    """One execution as far as one object knows it; times in seconds since 1970."""

    job: str
    index: str | None = None
    created: float | None = None
    start: float | None = None
    end: float | None = None
    node: str | None = None
    gpus: int = 0
    state: str = "PENDING"
    reason: str | None = None
    exit_code: int | None = None
    queue: str | None = None
    priority_class: str | None = None
    priority: int | None = None
    earlier: Run | None = None
    """The same container before it was restarted in place."""


def time_of(text: object) -> float | None:
    """A Kubernetes time in seconds since 1970; None if it is none."""
    if not isinstance(text, str):
        return None
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return stamp.timestamp() if stamp.tzinfo else None


def _gpus(spec: Object) -> int:
    """GPUs that the containers of a pod's spec ask for."""
    total = 0
    for container in spec.get("containers") or ():
        asked = container.get("resources") or {}
        amounts = {**(asked.get("requests") or {}), **(asked.get("limits") or {})}
        total += sum(
            int(amount)
            for name, amount in amounts.items()
            if name.endswith("/gpu") and str(amount).isdecimal()
        )
    return total


def _job_of(pod: Object) -> str | None:
    """``namespace/name`` of what owns the pod; None for a service."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    name = next((labels[label] for label in _JOB_LABELS if labels.get(label)), None)
    if name is None:
        owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
        if owner is not None and owner["kind"] in _SERVICES:
            return None
        name = owner["name"] if owner else meta["name"]
    return f"{meta.get('namespace', 'default')}/{name}"


def pod_run(pod: Object, deleted: bool, hint: str | None) -> Run | None:
    """What a pod says; None if it belongs to a service.

    Args:
        pod: the object.
        deleted: whether this is its last version before it was deleted.
        hint: the reason of an event about it.
    """
    job = _job_of(pod)
    if job is None:
        return None
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels = meta.get("labels") or {}
    states = [s.get("state") or {} for s in status.get("containerStatuses") or ()]
    ended = [state["terminated"] for state in states if state.get("terminated")]
    starts = [time_of(s.get("startedAt")) for state in states for s in state.values() if s]
    ends = [time_of(s.get("finishedAt")) for s in ended]
    reasons = [status.get("reason"), hint]
    disrupted = condition(status, "DisruptionTarget")
    reasons += [disrupted.get("reason")] if disrupted else []
    reasons += [s.get("reason") for s in ended]
    found = [_POD_REASONS[reason] for reason in reasons if reason in _POD_REASONS]
    state = (
        min(found, key=_RANK.index) if found else _PHASES.get(status.get("phase", ""), "PENDING")
    )
    gone = time_of(meta.get("deletionTimestamp"))
    if deleted and state in ("RUNNING", "PENDING"):
        state = "CANCELLED"
    over = state not in ("RUNNING", "PENDING")
    start = min((s for s in starts if s is not None), default=time_of(status.get("startTime")))
    end = max((e for e in ends if e is not None), default=None)
    if over and end is None:
        end = gone or (time_of(disrupted.get("lastTransitionTime")) if disrupted else None)
    run = Run(
        job,
        "/".join(labels[name] for name in _INDEX_LABELS if name in labels) or None,
        time_of(meta.get("creationTimestamp")),
        start,
        end if over else None,
        spec.get("nodeName"),
        _gpus(spec),
        state,
        next((reason for reason in reasons if reason), None),
        max((int(s.get("exitCode", 0)) for s in ended), default=None),
        next((labels[name] for name in _QUEUES if name in labels), None),
        spec.get("priorityClassName"),
        spec.get("priority"),
    )
    last = [
        (s.get("lastState") or {}).get("terminated") for s in status.get("containerStatuses") or ()
    ]
    before = next((s for s in last if s), None)
    if before is None:
        return run
    reason = before.get("reason")
    earlier = replace(
        run,
        start=time_of(before.get("startedAt")),
        end=time_of(before.get("finishedAt")),
        state=_POD_REASONS.get(reason, "FAILED" if before.get("exitCode") else "COMPLETED"),
        reason=reason,
        exit_code=before.get("exitCode"),
    )
    return replace(run, created=earlier.end or run.created, earlier=earlier)


def condition(status: Object, kind: str) -> Object | None:
    """The condition of this type that is true."""
    return next(
        (
            each
            for each in status.get("conditions") or ()
            if each.get("type") == kind and each.get("status") == "True"
        ),
        None,
    )


def _good_status(kind: str) -> str:
    """The status of a node's condition when nothing is wrong."""
    return "True" if kind.endswith(("Ready", "Healthy")) else "False"


def owner_of(item: Object) -> str:
    """``namespace/name`` of the controller of an object, else of itself."""
    meta = item["metadata"]
    name = next((o["name"] for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    return f"{meta.get('namespace', 'default')}/{name or meta['name']}"


# --- The file ------------------------------------------------------------------------------------


def _sniff(head: bytes, path: Path) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        and bool(_KIND.search(head))
        and bool(_OF_KUBERNETES.search(head))
        and b'"metadata"' in head
    )


@dataclass
class _Cluster:
    """Everything that the file says, the last word of each object."""

    pods: dict[str, tuple[Object, bool]] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    evictions: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    health: dict[tuple[object, ...], Object] = field(default_factory=dict)
    """By node, check and time: a watch repeats a node's conditions."""
    nodes: dict[str, Object] = field(default_factory=dict)

    def add(self, item: Object, deleted: bool) -> str | None:
        """Take one object in; the reason if it cannot be used."""
        kind, meta = item.get("kind"), item.get("metadata")
        if not isinstance(meta, dict) or "name" not in meta:
            return "no Kubernetes object (metadata.name)"
        if kind == "Pod":
            pod_run(item, deleted, None)  # it raises where the pod is damaged
            self.pods[meta.get("uid") or f"{meta.get('namespace')}/{meta['name']}"] = (
                item,
                deleted,
            )
        elif kind in ("Job", "Workload"):
            status = item.get("status") or {}
            ended = condition(status, "Evicted") or condition(status, "Failed") or {}
            other = "REQUEUED" if ended.get("type") == "Evicted" else "FAILED"
            if time := time_of(ended.get("lastTransitionTime")):
                state = _EVICTIONS.get(str(ended.get("reason")), other)
                self.evictions[owner_of(item)].append((time, state))
        elif kind == "Event":
            return self._event(item)
        elif kind == "Node":
            return self._node(item)
        return None

    def _node(self, node: Object) -> str | None:
        name, status = node["metadata"]["name"], node.get("status") or {}
        capacity = status.get("capacity") or {}
        self.nodes[name] = {
            "node": name,
            "gpus": sum(int(n) for key, n in capacity.items() if key.endswith("/gpu")),
            "cpus": int(capacity["cpu"]) if str(capacity.get("cpu")).isdecimal() else None,
            "inferred": False,
        }
        for each in status.get("conditions") or ():
            kind, said = each["type"], each["status"]
            if said != _good_status(kind) and (said != "Unknown" or kind == "Ready"):
                time = time_of(each.get("lastTransitionTime"))
                if time is None:
                    return f"a condition {kind} without a time"
                message = f"{each.get('reason') or ''}: {each.get('message') or ''}"
                self._health(time, name, "NodeNotReady" if kind == "Ready" else kind, message)
        return None

    def _health(
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

    def _event(self, event: Object) -> str | None:
        about = event.get("involvedObject") or event.get("regarding") or {}
        reason = str(event.get("reason", ""))
        times = (event.get(k) for k in ("lastTimestamp", "eventTime", "firstTimestamp"))
        time = next((t for t in map(time_of, times) if t is not None), None)
        if about.get("kind") == "Pod" and reason in _POD_REASONS:
            self.hints[f"{about.get('namespace', 'default')}/{about.get('name')}"] = reason
        elif about.get("kind") == "Node":
            kind = str(event.get("type"))
            if kind == "Normal" and reason != "NodeNotReady":
                return None
            if time is None:
                return "an event without a time"
            message = str(event.get("message") or event.get("note") or "")
            if kind in ("Normal", "Warning"):
                self._health(time, about.get("name"), reason, message)
            else:  # NVSentinel writes its check there; what is fatal is a condition
                self._health(time, about.get("name"), kind, message, "warn")
        return None

    def jobs(self) -> dict[str, list[list[Run]]]:
        """Job -> its attempts in order -> what is known of each."""
        runs: dict[str, list[Run]] = defaultdict(list)
        for pod, deleted in self.pods.values():
            meta = pod["metadata"]
            hint = self.hints.get(f"{meta.get('namespace', 'default')}/{meta['name']}")
            if run := pod_run(pod, deleted, hint):
                runs[run.job].append(run)
        return {job: _attempts(own) for job, own in runs.items()}


def _attempts(runs: Iterable[Run]) -> list[list[Run]]:
    attempts: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: run.created or 0.0):
        if run.earlier is not None:
            attempts.append([run.earlier])
            attempts.append([replace(run, earlier=None)])
            continue
        current = attempts[-1] if attempts else []
        again = run.index is not None and any(each.index == run.index for each in current)
        over = run.index is None and all(
            each.end is not None and each.end <= (run.created or 0.0) for each in current
        )
        if again or over or not current:
            attempts.append([run])
        else:
            current.append(run)
    return attempts


def _row(
    job: str, number: int, runs: list[Run], evictions: list[tuple[float, str]], cluster: str
) -> Object:
    state = min((run.state for run in runs), key=_RANK.index)
    worst = next(run for run in runs if run.state == state)
    over = state not in ("RUNNING", "PENDING")
    start = min((run.start for run in runs if run.start is not None), default=None)
    end = max((run.end for run in runs if run.end is not None), default=None) if over else None
    for time, evicted in evictions:
        if (
            state in ("CANCELLED", "FAILED")
            and start is not None
            and start <= time <= (end or time) + 1
        ):
            state = evicted
    nodes = sorted({str(run.node) for run in runs if run.node and run.start is not None})
    submit = min((run.created for run in runs if run.created is not None), default=start)
    namespace, _, name = job.partition("/")
    code = worst.exit_code
    return {
        "cluster": cluster,
        "job_id": job,
        "job_id_raw": text_key(job),
        "attempt": number,
        "name": name,
        "account": namespace,
        "partition": worst.queue,
        "qos": worst.priority_class,
        "priority": worst.priority,
        "state": state,
        "reason": worst.reason,
        "exit_code": code,
        "exit_signal": None if code is None else code - 128 if code > 128 else 0,
        "out_of_memory": any(run.state == "OUT_OF_MEMORY" for run in runs),
        "sigterm": any(run.exit_code == 143 for run in runs),
        "submit_s": _floor(submit),
        "eligible_s": _floor(submit),
        "start_s": _floor(start),
        "end_s": _floor(end),
        "runtime_s": _floor(end - start) if start is not None and end is not None else None,
        "node_count": len(nodes) or None,
        "nodes": nodes,
        "gpus": sum(run.gpus for run in runs),
        "excluded_nodes": [],
        "recovered": False,
    }


def _floor(time: float | None) -> int | None:
    return None if time is None else int(time // 1)


def _objects(path: Path, rejects: Rejects) -> Iterator[tuple[int, Object, bool]]:
    """(line, object, deleted) of every object; all of one list stand on line 1."""
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
                    yield 1, item, False
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
            deleted = value.get("type") == "DELETED" and "object" in value
            value = value["object"] if isinstance(value.get("object"), dict) else value
            for item in value.get("items") or [value]:
                yield line, item, deleted


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    cluster = _Cluster()
    for line, item, deleted in _objects(path, rejects):
        try:
            reason = cluster.add(item, deleted)
        except _DAMAGED as error:
            reason = f"a field of an unexpected type ({error})"
        if reason:
            rejects.add(line, reason, json.dumps(item))
    rows = []
    for job, attempts in cluster.jobs().items():
        for number, runs in enumerate(attempts, start=1):
            try:
                rows.append(_row(job, number, runs, cluster.evictions[job], options.cluster))
            except _DAMAGED as error:
                rejects.add(1, f"a field of an unexpected type ({error})", f"job {job}")
    yield Batch(
        {
            "attempts": rows_table(ATTEMPTS, rows),
            "nodes": rows_table(NODES, list(cluster.nodes.values())),
            "health": rows_table(HEALTH, list(cluster.health.values())),
            "rejects": rejects.table(),
        }
    )


KUBERNETES = Format(
    "kubernetes", "Kubernetes pods, Jobs, Kueue workloads, nodes and events (JSON)", _sniff, _read
)
