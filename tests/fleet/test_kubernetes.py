"""Pods as attempts, nodes as inventory, outages and health, whatever becomes of a stream."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import kubernetes_objects as kube
import pyarrow as pa
import pytest
from kubernetes_objects import BEGIN, condition, containers, ended, pod, running, stamp
from reading import read, rejected, rows
from test_following import contents

import holdfast.fleet as fleet
from holdfast.fleet.formats.kubernetes import KUBERNETES
from holdfast.fleet.gaps import gap
from holdfast.fleet.ingest_following import Follower

PART = "team-a/train+workers-0-"


def write(path: Path, events: list[Any]) -> Path:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def watch() -> list[Any]:
    return [{"type": kind, "object": item} for kind, item in kube.history()]


def times(table: pa.Table, *columns: str) -> set[tuple[Any, ...]]:
    """Rows; times in seconds since `BEGIN`."""
    return {
        tuple(v - BEGIN if isinstance(v, int) and v > 10**9 else v for v in row)
        for row in rows(table, *columns)
    }


def test_a_watch(tmp_path: Path) -> None:
    tables = read(KUBERNETES, write(tmp_path / "watch.jsonl", watch()))
    columns = ("job_id", "submit_s", "start_s", "end_s", "state", "nodes", "gpus", "cpus", "name")
    assert [(*row[:5], *row[5], *row[6:]) for row in rows(tables["attempts"], *columns)] == [
        (f"{PART}0", BEGIN, BEGIN + 20, BEGIN + 1350, "FAILED", "g1", 8, 2, "train"),
        (f"{PART}1", BEGIN, BEGIN + 30, BEGIN + 1300, "NODE_FAIL", "g2", 8, 2, "train"),
        (f"{PART}1", BEGIN + 1360, BEGIN + 1380, None, "RUNNING", "g1", 8, 2, "train"),
    ]
    assert times(tables["nodes"], "node", "gpus", "cpus", "state") == {
        ("g1", 8, 191, "READY"),
        ("g2", 8, 191, "READY"),
    }
    assert times(tables["node_outages"], "node", "start_s", "end_s", "state", "reason") == {
        ("g2", 1000, 2000, "DOWN*", "NodeStatusUnknown: Kubelet stopped posting"),
        ("g2", 1400, 2000, "DRAIN", "nvidia.com/gpu-error"),
    }
    assert times(tables["health"], "node", "check", "result") == {("g2", "NodeNotReady", "fail")}
    result = fleet.ingest([tmp_path / "watch.jsonl"], tmp_path / "store")
    assert (result.attempts, result.node_outages, result.rejected) == (3, 2, 0)
    numbers = [(row["job_id"], row["attempt"]) for row in contents(tmp_path / "store")["attempts"]]
    assert sorted(numbers) == [(f"{PART}0", 1), (f"{PART}1", 1), (f"{PART}1", 2)]


@pytest.mark.parametrize("seed", range(4))
def test_doubled_reordered_and_cut_streams_say_the_same(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    whole = read(KUBERNETES, write(tmp_path / "whole.jsonl", watch()))
    events = watch() + rng.sample(watch(), 8)
    rng.shuffle(events)
    mark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "99"}}}
    gone = {"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "code": 410}}
    events += [mark, gone]
    line = json.dumps(watch()[5])
    at = rng.randrange(len(events))
    events.insert(at, line[: rng.randrange(20, len(line) - 1)])
    found = read(KUBERNETES, write(tmp_path / "stream.jsonl", events))
    assert rejected(found) == [(at + 1, "not JSON")]
    for name in whole.keys() - {"rejects"}:
        here, there = (sorted(map(repr, each[name].to_pylist())) for each in (found, whole))
        assert here == there, name


def test_a_cordon_ends_when_the_node_was_written_without_it(tmp_path: Path) -> None:
    """As its managedFields tell; heartbeats may be minutes old."""
    ready = condition("Ready", "True", -900)
    free = kube.node("g1", 3, ready)
    writes = [
        {"manager": "kubectl", "time": stamp(950)},
        {"manager": "kubelet", "time": stamp(700)},
    ]
    for item in (free, bare := kube.node("g2", 6, ready)):
        item["status"]["conditions"][0]["lastHeartbeatTime"] = stamp(700)
    free["metadata"]["managedFields"] = writes
    out = [kube.node("g1", 2, ready, cordoned=600), kube.node("g2", 5, ready, cordoned=600)]
    found = read(KUBERNETES, write(tmp_path / "nodes.jsonl", [*out, free, bare]))["node_outages"]
    assert times(found, "node", "start_s", "end_s") == {("g1", 600, 950), ("g2", 600, 700)}


def test_what_a_store_has_of_a_condition_stays_when_its_text_changes(tmp_path: Path) -> None:
    """A store that follows a growing file has the rows of a bulk ingest of the whole."""
    texts = [
        kube.node("g1", n, condition("GpuMemWatch", "True", 50, "Bad", f"GPU:{n}")) for n in (1, 2)
    ]
    event = {
        "kind": "Event",
        "metadata": {"name": "e", "resourceVersion": "9"},
        "involvedObject": {"kind": "Node", "name": "g1"},
        "type": "Warning",
        "reason": "GpuMemWatch",
        "lastTimestamp": stamp(50),
    }
    path = tmp_path / "live" / "watch.jsonl"
    path.parent.mkdir()
    follower = Follower([path.parent], tmp_path / "store")
    for end in range(1, 4):
        write(path, [{"type": "ADDED", "object": each} for each in [*texts, event][:end]])
        follower.look()
    fleet.ingest([path], tmp_path / "bulk")
    live, bulk = (contents(tmp_path / name)["health"] for name in ("store", "bulk"))
    assert sorted(map(repr, live)) == sorted(map(repr, bulk))
    assert len(bulk) == 3


def test_a_run_that_goes_on_has_no_end_of_any_kind(tmp_path: Path) -> None:
    """Also in a file with runs that ended."""
    over = pod("b", 2, phase="Failed", containerStatuses=containers(ended(10, 20, 1)))
    runs = pod("a", 1, phase="Running", containerStatuses=containers(running(10)))
    found = read(KUBERNETES, write(tmp_path / "pods.jsonl", [runs, over]))["attempts"]
    assert rows(found, "state", "out_of_memory", "sigterm")[0] == ("RUNNING", False, False)


def test_what_runs_ran_until_the_last_moment_that_an_object_states(tmp_path: Path) -> None:
    """A heartbeat or the renewal of a lease; no deadline, and no clock that was never set."""
    nodes = [kube.node(f"g{i}", i + 1, condition("Ready", "True", -900)) for i in range(3)]
    for item, beat in zip(nodes, (360_000, 359_000, 360_000 + 80 * 31_536_000), strict=True):
        item["status"]["conditions"][0]["lastHeartbeatTime"] = stamp(beat)
    late = {"deletionTimestamp": stamp(370_000)}
    runs = pod("a", 7, phase="Running", containerStatuses=containers(running(3600)), metadata=late)
    over = pod("b", 8, phase="Succeeded", containerStatuses=containers(ended(10, 9000)))
    name = {"metadata": {"name": "g0", "namespace": "kube-node-lease", "resourceVersion": "9"}}
    lease = {"kind": "Lease", **name, "spec": {"renewTime": stamp(360_020)[:-1] + ".125000Z"}}
    for number, items in enumerate(([runs, over, *nodes], [lease], [over])):
        file = write(tmp_path / f"{number}.jsonl", [{"apiVersion": "v1", **each} for each in items])
        result = fleet.ingest([file], tmp_path / "store", format="kubernetes")
        log = fleet.open(tmp_path / "store")
        assert result.rejected == 0
        assert log.end_s - BEGIN == (360_020 if number else 360_000)
    hours = {row["state"]: row["gpu_hours"] for row in log.rows(f"SELECT * FROM {log.attempts}")}
    ran = (360_020 - 3600) / 3600
    assert hours == pytest.approx({"RUNNING": 8 * ran, "COMPLETED": 8 * 8990 / 3600})
    assert gap("untimed_pods", attempts="1 running attempt") in fleet.mttf(log).unknowns()


GONE = {"deletionTimestamp": stamp(530), "deletionGracePeriodSeconds": 30}
ENDS = [
    ("COMPLETED", {"phase": "Succeeded"}, ended(10, 510)),
    ("FAILED", {"phase": "Failed"}, ended(10, 510, 1)),
    ("OUT_OF_MEMORY", {"phase": "Failed"}, ended(10, 510, 137, "OOMKilled")),
    ("PREEMPTED", {"phase": "Failed", "reason": "Evicted"}, ended(10, 510, 137)),
    ("PREEMPTED", {"phase": "Failed", "reason": "Preempting"}, ended(10, 510, 143)),
    ("TIMEOUT", {"phase": "Failed", "reason": "DeadlineExceeded"}, ended(10, 510, 143)),
    ("CANCELLED", {"phase": "Failed", "metadata": GONE}, ended(10, 510, 143)),
    ("FAILED", {"phase": "Failed", "metadata": GONE}, ended(10, 490, 1)),
    (
        "PREEMPTED",
        {
            "phase": "Failed",
            "metadata": GONE,
            "conditions": [condition("DisruptionTarget", "True", 500, "PreemptionByScheduler")],
        },
        ended(10, 510, 143),
    ),
    (
        "NODE_FAIL",
        {
            "phase": "Failed",
            "conditions": [condition("DisruptionTarget", "True", 500, "DeletionByPodGC")],
        },
        running(10),
    ),
]


@pytest.mark.parametrize(("state", "status", "container"), ENDS)
def test_how_a_pod_ended(state: str, status: Any, container: Any, tmp_path: Path) -> None:
    item = pod("job-x", 5, containerStatuses=containers(container), **status)
    found = read(KUBERNETES, write(tmp_path / "pod.json", [item]))["attempts"].to_pylist()
    end_s = BEGIN + (
        500 if state == "NODE_FAIL" else 490 if container == ended(10, 490, 1) else 510
    )
    assert [(row["state"], row["end_s"]) for row in found] == [(state, end_s)]
    assert found[0]["out_of_memory"] == (state == "OUT_OF_MEMORY")
    code = container.get("terminated", {}).get("exitCode", 0)
    assert found[0]["exit_signal"] == (
        code - 128 if code > 128 else (0 if state != "NODE_FAIL" else None)
    )


@pytest.mark.parametrize(
    ("kind", "reason", "state"),
    [("Job", "DeadlineExceeded", "TIMEOUT"), ("Workload", "Preempted", "PREEMPTED")],
)
@pytest.mark.parametrize(("second", "told"), [(499, True), (100, False)])
def test_what_the_owner_of_a_deleted_pod_tells(
    kind: str, reason: str, state: str, second: int, told: bool, tmp_path: Path
) -> None:
    stop = condition("Evicted" if kind == "Workload" else "Failed", "True", second, reason)
    owners = [
        kube.owner("Job", "job", *([stop] if kind == "Job" else []), above="set"),
        kube.owner("JobSet", "set"),
        kube.owner("Workload", "load", *([stop] if kind == "Workload" else []), above="set"),
    ]
    item = pod(
        "set-w-0-0-x",
        9,
        owner=("Job", "job"),
        phase="Failed",
        metadata=GONE,
        containerStatuses=containers(ended(10, 510, 143)),
    )
    listing = {"kind": "List", "apiVersion": "v1", "items": [item, *owners]}
    found = read(KUBERNETES, write(tmp_path / "list.json", [listing]))
    assert rows(found["attempts"], "state") == [(state if told else "CANCELLED",)]


def test_restarts_in_place_and_pods_that_are_no_jobs(tmp_path: Path) -> None:
    loop = pod(
        "loop",
        7,
        policy="OnFailure",
        phase="Running",
        containerStatuses=containers(running(700), last=ended(100, 600, 3), restarts=2),
    )
    earlier = pod(
        "loop",
        6,
        policy="OnFailure",
        phase="Running",
        containerStatuses=containers(running(100), last=ended(10, 90, 3), restarts=1),
    )
    others = [
        pod("dcgm", 1, owner=("DaemonSet", "d"), containerStatuses=containers(running(10))),
        pod("web", 2, gpus=0, policy="Always", containerStatuses=containers(running(10))),
        pod("waits", 3, node="", phase="Pending"),
    ]
    path = write(tmp_path / "pods.jsonl", [loop, *others, earlier])
    columns = ("start_s", "end_s", "state", "restarts", "exit_code")
    found = read(KUBERNETES, path)
    assert times(found["attempts"], "job_id", *columns) == {
        ("team-a/loop", 10, 90, "FAILED", 0, 3),
        ("team-a/loop", 100, 600, "FAILED", 1, 3),
        ("team-a/loop", 700, None, "RUNNING", 2, None),
    }
    assert rejected(found) == []
    fleet.ingest([path], tmp_path / "store")
    attempts = contents(tmp_path / "store")["attempts"]
    numbers = {(row["attempt"], row["start_s"] - BEGIN) for row in attempts}
    assert numbers == {(1, 10), (2, 100), (3, 700)}


def test_a_health_event_of_nvsentinel_as_a_resource(tmp_path: Path) -> None:
    event = {"nodeName": "g1", "checkName": "SysLogsXIDError", "errorCode": ["79"], "isFatal": True}
    item = {
        "apiVersion": "nvsentinel.nvidia.com/v1alpha1",
        "kind": "HealthEvent",
        "metadata": {"name": "e1", "resourceVersion": "4"},
        "spec": {**event, "detectedAt": stamp(60)},
    }
    added = {"type": "ADDED", "object": item}
    found = read(KUBERNETES, write(tmp_path / "events.jsonl", [added, added]))["health"]
    assert times(found, "node", "check", "severity", "result", "xid") == {
        ("g1", "SysLogsXIDError", "HIGH", "fail", 79)
    }
    assert rows(found, "time_s") == [(BEGIN + 60.0,)]


def test_a_list_as_the_api_server_gives_it(tmp_path: Path) -> None:
    item = pod("a", 1, phase="Succeeded", containerStatuses=containers(ended(10, 20)))
    bare = {key: item[key] for key in ("metadata", "spec", "status")}
    raw = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [bare]}
    found = read(KUBERNETES, write(tmp_path / "raw.json", [raw]))
    assert rows(found["attempts"], "job_id", "state") == [("team-a/a", "COMPLETED")]


def test_a_list_with_what_is_no_object(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    meta = {"resourceVersion": "1"}
    listing = {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": [1]}
    path.write_text(json.dumps(listing, indent=1))
    assert [line for line, _ in rejected(read(KUBERNETES, path))] == [1]
