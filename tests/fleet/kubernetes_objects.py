"""Objects of Kubernetes and their histories, as an API server writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

BEGIN = 1_795_957_200
Object = dict[str, Any]


def stamp(second: int) -> str:
    """A time some seconds after `BEGIN`."""
    return datetime.fromtimestamp(BEGIN + second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, second: int, reason: str = "", message: str = "") -> Object:
    """A condition since some second."""
    time = stamp(second)
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": time,
        "reason": reason,
        "message": message,
    }


def pod(name: str, version: int, *, node: str = "g1", gpus: int = 8, **status: Any) -> Object:
    """A pod; `labels`, `owner` (kind, uid), `metadata` and `policy` are not of its status."""
    labels = status.pop("labels", {})
    kind, uid = status.pop("owner", ("Job", "no-such-job"))
    asked = {"cpu": "1500m", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "2"}
    metadata = {
        "name": name,
        "namespace": "team-a",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": stamp(0),
        "labels": labels,
        "ownerReferences": [{"kind": kind, "name": "owner", "uid": uid, "controller": True}],
        **status.pop("metadata", {}),
    }
    containers = [
        {"name": "mesh", "resources": {}, "env": [{"name": "PASSWORD", "value": "hunter2"}]},
        {"name": "main", "resources": {"limits": asked}},
    ]
    spec = {
        "nodeName": node,
        "restartPolicy": status.pop("policy", "Never"),
        "priority": 10,
        "containers": containers,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"startTime": stamp(1), "fieldOfTomorrow": [{}], **status},
    }


def running(start: int) -> Object:
    """A container that runs."""
    return {"running": {"startedAt": stamp(start)}}


def ended(start: int, end: int, code: int = 0, reason: str = "Error") -> Object:
    """A container that has ended."""
    run = {"exitCode": code, "reason": reason, "startedAt": stamp(start), "finishedAt": stamp(end)}
    return {"terminated": run}


def containers(state: Object, *, last: Object | None = None, restarts: int = 0) -> list[Object]:
    """The status of the containers of `pod`."""
    own = {"name": "main", "state": state, "lastState": last or {}, "restartCount": restarts}
    return [{"name": "mesh", "state": running(1), "restartCount": 7}, own]


def node(name: str, version: int, *conditions: Object, cordoned: int | None = None) -> Object:
    """A node with eight GPUs."""
    spec: Object = {}
    if cordoned is not None:
        key = "node.kubernetes.io/unschedulable"
        taints = [
            {"key": key, "effect": "NoSchedule", "timeAdded": stamp(cordoned)},
            {"key": "nvidia.com/gpu-error", "value": "fatal", "effect": "NoSchedule"},
        ]
        spec = {"unschedulable": True, "taints": taints}
    capacity = {"cpu": "191900m", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": spec,
        "status": {"capacity": capacity, "conditions": list(conditions)},
    }


def owner(kind: str, uid: str, *conditions: Object, above: str = "") -> Object:
    """A Job, a JobSet or a workload."""
    references = [{"kind": "JobSet", "uid": above}] if above else []
    metadata = {"name": uid, "namespace": "team-a", "uid": uid, "resourceVersion": "5"}
    return {
        "apiVersion": "batch/v1",
        "kind": kind,
        "metadata": {**metadata, "ownerReferences": references},
        "status": {"conditions": list(conditions)},
    }


def history() -> list[tuple[str, Object]]:
    """A watch: pods of a JobSet, of which one loses its node, and the two nodes."""
    label = "jobset.sigs.k8s.io/"
    parts: list[Object] = [
        {
            f"{label}jobset-name": "train",
            f"{label}replicatedjob-name": "workers",
            f"{label}job-index": "0",
            "batch.kubernetes.io/job-completion-index": f"{k}",
        }
        for k in (0, 1)
    ]
    ready = condition("Ready", "True", -900)
    silent = condition("Ready", "Unknown", 1000, "NodeStatusUnknown", "Kubelet stopped posting")
    lost = condition("DisruptionTarget", "True", 1300, "DeletionByTaintManager")
    going = {"deletionTimestamp": stamp(1330), "deletionGracePeriodSeconds": 30}
    first = {"labels": parts[0], "node": "g1"}
    second = {"labels": parts[1], "node": "g2"}
    return [
        ("ADDED", node("g1", 1, ready)),
        ("ADDED", node("g2", 2, ready)),
        ("ADDED", pod("train-workers-0-0-abcde", 10, **first, phase="Pending")),
        ("ADDED", pod("train-workers-0-1-fghij", 11, **second, phase="Pending")),
        (
            "MODIFIED",
            pod(
                "train-workers-0-0-abcde",
                12,
                **first,
                phase="Running",
                containerStatuses=containers(running(20)),
            ),
        ),
        (
            "MODIFIED",
            pod(
                "train-workers-0-1-fghij",
                13,
                **second,
                phase="Running",
                containerStatuses=containers(running(30)),
            ),
        ),
        ("MODIFIED", node("g2", 14, silent)),
        (
            "MODIFIED",
            pod(
                "train-workers-0-1-fghij",
                15,
                **second,
                phase="Running",
                conditions=[lost],
                metadata=going,
                containerStatuses=containers(running(30)),
            ),
        ),
        ("MODIFIED", node("g2", 16, silent, cordoned=1400)),
        (
            "MODIFIED",
            pod(
                "train-workers-0-0-abcde",
                17,
                **first,
                phase="Failed",
                containerStatuses=containers(ended(20, 1350, 1)),
            ),
        ),
        (
            "DELETED",
            pod(
                "train-workers-0-1-fghij",
                18,
                **second,
                phase="Running",
                conditions=[lost],
                metadata=going,
                containerStatuses=containers(running(30)),
            ),
        ),
        ("MODIFIED", node("g2", 19, condition("Ready", "True", 2000), cordoned=1400)),
        (
            "ADDED",
            pod(
                "train-workers-0-1-klmno",
                20,
                labels=parts[1],
                metadata={"creationTimestamp": stamp(1360)},
                phase="Running",
                containerStatuses=containers(running(1380)),
            ),
        ),
        ("MODIFIED", node("g2", 21, condition("Ready", "True", 2000))),
    ]
