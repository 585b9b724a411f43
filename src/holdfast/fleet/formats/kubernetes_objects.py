"""What one Kubernetes object (pod, Job, Kueue workload) says about an execution.

The table of states is in `kubernetes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

Object = dict[str, Any]

RANK = (
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "REQUEUED",
    "FAILED",
    "CANCELLED",
    "RUNNING",
    "PENDING",
    "COMPLETED",
)
"""States of pods: the first of them is the state of their attempt."""

POD_REASONS = {
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
EVICTIONS = {
    "Preempted": "PREEMPTED",
    "NodeFailures": "NODE_FAIL",
    "MaximumExecutionTimeExceeded": "TIMEOUT",
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
    found = [POD_REASONS[reason] for reason in reasons if reason in POD_REASONS]
    state = min(found, key=RANK.index) if found else _PHASES.get(status.get("phase", ""), "PENDING")
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
        state=POD_REASONS.get(reason, "FAILED" if before.get("exitCode") else "COMPLETED"),
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


def own_run(item: Object) -> Run:
    """The one execution that a Job or Workload without pods tells of."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    state, end, reason = "PENDING", None, None
    start = time_of(status.get("startTime"))
    if item["kind"] == "Workload":
        admitted = condition(status, "Admitted") or condition(status, "QuotaReserved")
        start = time_of(admitted.get("lastTransitionTime")) if admitted else None
        gpus = sum(
            _gpus((group.get("template") or {}).get("spec") or {}) * int(group.get("count", 1))
            for group in spec.get("podSets") or ()
        )
    else:
        template = (spec.get("template") or {}).get("spec") or {}
        gpus = _gpus(template) * int(spec.get("parallelism") or 1)
    if start is not None:
        state = "RUNNING"
    for kind in ("Complete", "Finished", "Failed", "Evicted"):
        if said := condition(status, kind):
            reason = said.get("reason")
            end = time_of(status.get("completionTime")) or time_of(said.get("lastTransitionTime"))
            failed = kind == "Failed" or (kind == "Finished" and "fail" in str(reason).lower())
            state = "FAILED" if failed else "COMPLETED"
            state = "TIMEOUT" if reason == "DeadlineExceeded" else state
            state = EVICTIONS.get(str(reason), "REQUEUED") if kind == "Evicted" else state
            break
    labels = meta.get("labels") or {}
    return Run(
        job=owner_of(item),
        created=time_of(meta.get("creationTimestamp")),
        start=start,
        end=end if start is not None else None,
        gpus=gpus,
        state=state,
        reason=reason,
        queue=spec.get("queueName") or next((labels[n] for n in _QUEUES if n in labels), None),
        priority_class=spec.get("priorityClassName"),
        priority=spec.get("priority"),
    )


def owner_of(item: Object) -> str:
    """``namespace/name`` of the controller of an object, else of itself."""
    meta = item["metadata"]
    name = next((o["name"] for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    return f"{meta.get('namespace', 'default')}/{name or meta['name']}"
