from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reading import read, rejected, rows

from holdfast.fleet.formats.kubernetes import KUBERNETES

Object = dict[str, Any]
COLUMNS = ("job_id", "attempt", "state", "start_s", "end_s", "nodes", "gpus")
T0 = 1782900000


def stamp(second: float) -> str:
    return datetime.fromtimestamp(T0 + second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    name: str,
    *,
    job: str | None = "train",
    index: int | None = 0,
    created: int = 0,
    node: str = "n1",
    phase: str = "Succeeded",
    start: int | None = 10,
    end: int | None = 100,
    exit_code: int = 0,
    reason: str = "Completed",
    **status: object,
) -> Object:
    state: Object = {}
    if start is not None and end is not None:
        state = {
            "terminated": {
                "startedAt": stamp(start),
                "finishedAt": stamp(end),
                "exitCode": exit_code,
                "reason": reason,
            }
        }
    elif start is not None:
        state = {"running": {"startedAt": stamp(start)}}
    labels = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    owners = [{"kind": "Job", "name": job, "controller": True}] if job else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "creationTimestamp": stamp(created),
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": phase, "containerStatuses": [{"state": state}], **status},
    }


def read_objects(tmp_path: Path, *objects: Object) -> dict[str, pa.Table]:
    path = tmp_path / "objects.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in objects))
    return read(KUBERNETES, path)


def condition(kind: str, reason: str, second: int) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": stamp(second)}


def test_a_gang_that_lost_a_node_and_came_again(tmp_path: Path) -> None:
    lost = [condition("DisruptionTarget", "DeletionByTaintManager", 60)]
    tables = read_objects(
        tmp_path,
        pod("a-0", index=0, node="n1", phase="Failed", end=61, exit_code=143, reason="Error"),
        pod("a-1", index=1, node="n2", phase="Failed", end=None, conditions=lost),
        pod("b-0", index=0, node="n1", created=70, start=75, end=200),
        pod("b-1", index=1, node="n3", created=71, start=76, end=201),
    )
    assert rows(tables["attempts"], *COLUMNS) == [
        ("ml/train", 1, "NODE_FAIL", T0 + 10, T0 + 61, ["n1", "n2"], 16),
        ("ml/train", 2, "COMPLETED", T0 + 75, T0 + 201, ["n1", "n3"], 16),
    ]
    assert rows(tables["attempts"], "sigterm", "runtime_s", "name", "account", "submit_s") == [
        (True, 51, "train", "ml", T0),
        (False, 126, "train", "ml", T0 + 70),
    ]


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({}, "COMPLETED"),
        ({"phase": "Failed", "exit_code": 1, "reason": "Error"}, "FAILED"),
        ({"phase": "Failed", "exit_code": 137, "reason": "OOMKilled"}, "OUT_OF_MEMORY"),
        ({"phase": "Failed", "end": None, "reason_": "NodeLost"}, "NODE_FAIL"),
        ({"phase": "Failed", "reason_": "DeadlineExceeded"}, "TIMEOUT"),
        ({"phase": "Failed", "reason_": "Preempting"}, "PREEMPTED"),
        (
            {
                "phase": "Failed",
                "conditions": [condition("DisruptionTarget", "PreemptionByScheduler", 9)],
            },
            "PREEMPTED",
        ),
        (
            {
                "phase": "Failed",
                "conditions": [condition("DisruptionTarget", "EvictionByEvictionAPI", 9)],
            },
            "REQUEUED",
        ),
        ({"phase": "Running", "end": None}, "RUNNING"),
        ({"phase": "Pending", "start": None, "end": None}, "PENDING"),
    ],
)
def test_states(tmp_path: Path, given: Object, state: str) -> None:
    own = dict(given)
    status = {"reason": own.pop("reason_")} if "reason_" in own else {}
    item = pod("a", **own)
    item["status"].update(status)
    table = read_objects(tmp_path, item)["attempts"]
    assert table.column("state").to_pylist() == [state]
    assert (table.column("end_s")[0].as_py() is None) == (own.get("end", 1) is None)


def test_watch_events_events_and_services(tmp_path: Path) -> None:
    running = pod("a", phase="Running", end=None)
    gone = json.loads(json.dumps(running))
    gone["metadata"]["deletionTimestamp"] = stamp(50)
    service = pod("web", job=None)
    service["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": "web", "controller": True}
    ]
    about = {"kind": "Event", "metadata": {"name": "e"}, "apiVersion": "v1", "type": "Warning"}
    tables = read_objects(
        tmp_path,
        {"type": "ADDED", "object": running},
        {"type": "DELETED", "object": gone},
        pod("web", job=None) | service,
        about
        | {
            "reason": "TaintManagerEviction",
            "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "a"},
        },
        about
        | {
            "type": "Normal",
            "reason": "NodeNotReady",
            "message": "status is now: NodeNotReady",
            "involvedObject": {"kind": "Node", "name": "n1"},
            "lastTimestamp": stamp(40),
        },
        about | {"reason": "Rebooted", "involvedObject": {"kind": "Node", "name": "n1"}},
        about
        | {
            "type": "Normal",
            "reason": "Starting",
            "involvedObject": {"kind": "Node", "name": "n1"},
        },
    )
    assert rows(tables["attempts"], *COLUMNS[:5]) == [
        ("ml/train", 1, "NODE_FAIL", T0 + 10, T0 + 50)
    ]
    assert rows(tables["health"], "time_s", "node", "check") == [(T0 + 40, "n1", "NodeNotReady")]
    assert rejected(tables) == [(6, "an event without a time")]


def test_pods_without_an_index_and_restarts_in_place(tmp_path: Path) -> None:
    again = pod("c", created=300, start=420, end=500)
    again["status"]["containerStatuses"][0]["lastState"] = {
        "terminated": {
            "startedAt": stamp(310),
            "finishedAt": stamp(400),
            "exitCode": 137,
            "reason": "OOMKilled",
        }
    }
    tables = read_objects(
        tmp_path,
        pod("a", index=None, phase="Failed", exit_code=1, reason="Error"),
        pod("b", index=None, created=50, node="n2"),
        again,
    )
    assert rows(tables["attempts"], *COLUMNS) == [
        ("ml/train", 1, "FAILED", T0 + 10, T0 + 100, ["n1", "n2"], 16),
        ("ml/train", 2, "OUT_OF_MEMORY", T0 + 310, T0 + 400, ["n1"], 8),
        ("ml/train", 3, "COMPLETED", T0 + 420, T0 + 500, ["n1"], 8),
    ]


@pytest.mark.parametrize(
    ("kind", "said", "state"),
    [
        ("Workload", ("Evicted", "Preempted"), "PREEMPTED"),
        ("Workload", ("Evicted", "NodeFailures"), "NODE_FAIL"),
        ("Workload", ("Evicted", "InactiveWorkload"), "REQUEUED"),
        ("Job", ("Failed", "DeadlineExceeded"), "TIMEOUT"),
        ("Job", ("Failed", "BackoffLimitExceeded"), "FAILED"),
    ],
)
def test_a_job_or_workload_tells_why_its_pods_were_ended(
    tmp_path: Path, kind: str, said: tuple[str, str], state: str
) -> None:
    meta: Object = {"name": "train", "namespace": "ml", "creationTimestamp": stamp(0)}
    if kind == "Workload":
        meta["name"] = "job-train-1a2b"
        meta["ownerReferences"] = [{"kind": "Job", "name": "train", "controller": True}]
    status = {"conditions": [condition(*said, 60)]}
    owner = {"apiVersion": "v1", "kind": kind, "metadata": meta, "status": status}
    killed = pod("a", phase="Failed", end=61, exit_code=143, reason="Error")
    attempts = read_objects(tmp_path, owner, killed)["attempts"]
    assert rows(attempts, *COLUMNS[:5]) == [("ml/train", 1, state, T0 + 10, T0 + 61)]
    assert read_objects(tmp_path, owner)["attempts"].num_rows == 0


def test_the_output_of_kubectl(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    listing = {"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b", index=1)]}
    path.write_text(json.dumps(listing, indent=4))
    assert rows(read(KUBERNETES, path)["attempts"], *COLUMNS[:3]) == [("ml/train", 1, "COMPLETED")]
    path.write_text(json.dumps(listing))
    assert read(KUBERNETES, path)["attempts"].num_rows == 1
    path.write_text(json.dumps(listing, indent=4)[:-20])
    tables = read(KUBERNETES, path)
    assert [reason[:20] for _, reason in rejected(tables)] == ["the list breaks off "]


def test_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl"
    path.write_text(json.dumps(pod("a")) + "\n{broken\n[]\n" + '{"kind": "Pod"}\n')
    tables = read(KUBERNETES, path)
    assert tables["attempts"].num_rows == 1
    assert rejected(tables) == [
        (2, "not JSON"),
        (3, "not a JSON object"),
        (4, "no Kubernetes object (metadata.name)"),
    ]
