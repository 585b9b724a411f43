"""Kubernetes as a source: recorded watches served over HTTP, whoever restarts and whatever is forgotten."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import kubernetes_objects as kube
import pytest
from kubernetes_objects import BEGIN, condition, containers, pod, running
from live_stub import RECORDED, Answer, serving
from test_following import contents

import holdfast.fleet as fleet
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live import asking
from holdfast.fleet.live.asking import Source, Trouble
from holdfast.fleet.live.kubernetes import Kubernetes
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.log import open_log
from holdfast.fleet.store import Store

KINDS = {"pods": "Pod", "nodes": "Node", "jobs": "Job", "workloads": "Workload", "events": "Event"}
PATHS = {  # As a server of today has them
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/events",
    "/apis/batch/v1/jobs",
    "/apis/kueue.x-k8s.io/v1beta2/workloads",
}


@dataclass
class ApiServer:
    """Objects as of some version; a watch gives what came after the one that it asks for."""

    events: list[tuple[str, dict[str, Any]]]
    at: int = 0  # Events so far
    oldest: int = 0  # Version below which a watch is refused
    page: int = 2
    token: str = ""
    gone_in_stream: bool = False
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str, asked: dict[str, str], headers: dict[str, str]) -> Answer:
        self.asked.append({"path": path, **asked})
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"kind": "Status", "code": 401}
        if path == "/apis":
            groups = [each.split("/")[2:4] for each in PATHS if each.startswith("/apis/")]
            own = [{"name": g, "preferredVersion": {"version": v}} for g, v in groups]
            return 200, {"kind": "APIGroupList", "groups": own}
        name = path.rpartition("/")[2]
        if path not in PATHS:
            return 404, {"kind": "Status", "code": 404}
        past = self.events[: self.at]
        own = [(k, each) for k, each in past if each["kind"] == KINDS[name]]
        newest = max((int(each["metadata"]["resourceVersion"]) for _, each in past), default=0)
        if "watch" not in asked:
            there = {each["metadata"]["uid"]: (k, each) for k, each in own}
            items = [
                {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
                for k, each in there.values()
                if k != "DELETED"
            ]
            start = int(asked.get("continue", 0))
            meta = {"resourceVersion": str(newest)}
            if start + self.page < len(items):
                meta["continue"] = str(start + self.page)
            return 200, {
                "kind": f"{KINDS[name]}List",
                "metadata": meta,
                "items": items[start : start + self.page],
            }
        since = int(asked["resourceVersion"])
        if since < self.oldest:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            if not self.gone_in_stream:
                return 410, status
            return 200, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
        found = [
            {"type": k, "object": each}
            for k, each in own
            if int(each["metadata"]["resourceVersion"]) > since
        ]
        mark = {"kind": KINDS[name], "metadata": {"resourceVersion": str(newest)}}
        found.append({"type": "BOOKMARK", "object": mark})
        return 200, "".join(json.dumps(each) + "\n" for each in found).encode()


def source(url: str, **changes: Any) -> Kubernetes:
    return Kubernetes(Source("k", url, **changes), Event(), 0.0)


class Mortal(Spool):
    """Dies instead of noting its cursor, at some call."""

    def __init__(self, folder: Path, calls: int, now_s: float) -> None:
        self.calls = calls
        super().__init__(folder, lambda: now_s)

    def commit(self, **cursor: Any) -> None:
        self.calls -= 1
        super().commit(**cursor if 1 / (self.calls + 1) else {})


def told(store: Path) -> list[list[tuple[Any, ...]]]:
    """What a store says of attempts, outages, nodes and health, and when it begins and ends."""
    wanted = {
        "attempts": ("job_id", "attempt", "submit_s", "start_s", "end_s", "state", "nodes", "gpus"),
        "node_outages": ("node", "start_s", "end_s", "state", "reason"),
        "nodes": ("node", "gpus", "cpus", "state"),
        "health": ("time_s", "node", "check", "result", "message"),
    }
    tables = contents(store)
    return [
        sorted((tuple(row[n] for n in names) for row in tables[table]), key=str)
        for table, names in wanted.items()
    ] + [[tuple(Store.open(store).facts["time_range"])]]


@pytest.mark.parametrize("seed", range(3))
def test_the_live_store_is_that_of_the_whole_stream(seed: int, tmp_path: Path) -> None:
    """Polled into a file an hour by processes that mostly die before they note their cursor."""
    rng = random.Random(seed)
    server = ApiServer(kube.history())
    whole = [{"type": kind, "object": item} for kind, item in kube.history()]
    (tmp_path / "bulk.jsonl").write_text("".join(json.dumps(each) + "\n" for each in whole))
    fleet.ingest([tmp_path / "bulk.jsonl"], tmp_path / "bulk")
    follower = Follower([tmp_path / "spool"], tmp_path / "live")
    with serving(server.answer) as url:
        for now in range(1, len(server.events) + 1):
            server.at = now
            hour_s = BEGIN + 1800 * now
            spool = Mortal(tmp_path / "spool", rng.randrange(6) if now > 1 else 99, hour_s)
            with suppress(ZeroDivisionError):
                source(url).poll(spool)
            spool.close()
            if rng.random() < 0.3:
                follower.look()
        spool = Spool(tmp_path / "spool", lambda: hour_s)
        source(url).poll(spool)
    follower.look()
    assert told(tmp_path / "live") == told(tmp_path / "bulk")
    fleet.ingest([tmp_path / "spool"], tmp_path / "again")
    assert told(tmp_path / "again") == told(tmp_path / "bulk")
    assert b"hunter2" not in b"".join(path.read_bytes() for path in spool.folder.rglob("*.*"))


@pytest.mark.parametrize("in_stream", [True, False])
def test_what_is_forgotten_is_listed_again(in_stream: bool, tmp_path: Path) -> None:
    alive = pod("a", 1, phase="Running", containerStatuses=containers(running(10)))
    also = pod("b", 2, phase="Running", containerStatuses=containers(running(10)))
    out = kube.node("g1", 3, condition("Ready", "False", 50, "KubeletDown"))
    server = ApiServer([("ADDED", alive), ("ADDED", also), ("ADDED", out)], at=3)
    server.gone_in_stream = in_stream
    spool = Spool(tmp_path / "spool")
    with serving(server.answer) as url:
        assert source(url).poll(spool) == ""
        server.events = [
            ("ADDED", also),
            ("ADDED", kube.node("g1", 8, condition("Ready", "True", 90))),
        ]
        server.at, server.oldest = 2, 7
        with pytest.raises(Trouble) as caught:
            source(url).poll(spool)
        assert caught.value.state == "behind"
        assert source(url).poll(spool) == ""  # from the new list on
    watched = [each["resourceVersion"] for each in server.asked if "watch" in each]
    assert watched[-1] == "8"
    fleet.ingest([tmp_path / "spool"], tmp_path / "store")
    attempts, outages, *_ = told(tmp_path / "store")
    assert [(row[0], row[5]) for row in attempts] == [
        ("team-a/a", "CANCELLED"),
        ("team-a/b", "RUNNING"),
    ]
    assert [row[1:3] for row in outages] == [(BEGIN + 50, BEGIN + 90)]


def test_an_hour_of_heartbeats_is_one_line_and_what_runs_ran_until_then(tmp_path: Path) -> None:
    alive = pod("a", 1, phase="Running", containerStatuses=containers(running(10)))
    beats = [("ADDED", alive)]
    for beat in range(60):
        item = kube.node(f"g{beat % 3}", beat + 2, condition("Ready", "True", 0))
        item["status"]["conditions"][0]["lastHeartbeatTime"] = kube.stamp(600 * beat)
        beats.append(("MODIFIED", item))
    server = ApiServer(beats)
    spool = Spool(tmp_path / "spool")
    follower = Follower([tmp_path / "spool"], tmp_path / "store")
    with serving(server.answer) as url:
        polled = source(url)
        for server.at in range(1, len(beats) + 1, 4):
            polled.poll(spool)
            follower.look()
            newest = 600 * max(server.at - 2, 0)
            assert newest - 3600 < open_log(tmp_path / "store").end_s - BEGIN <= newest + 10
    (written,) = (tmp_path / "spool").glob("objects-*")
    assert len(written.read_text().splitlines()) <= 1 + 3 + 10


def test_heartbeats_are_not_written_and_a_new_token_is_used(tmp_path: Path) -> None:
    beats = []
    for version in range(1, 6):
        beat = kube.node("g1", version, condition("Ready", "True", 0))
        beat["status"]["conditions"][0]["lastHeartbeatTime"] = kube.stamp(300 * version)
        beats.append(("MODIFIED", beat))
    server = ApiServer(beats, at=1, token="second")
    file = tmp_path / "token"
    file.write_text("first\n")
    spool = Spool(tmp_path / "spool")
    with serving(server.answer) as url:
        polled = source(url, token_file=str(file))
        with pytest.raises(Trouble) as caught:
            polled.poll(spool)
        assert caught.value.state == "refused"
        file.write_text("second\n")
        for now in range(1, 6):
            server.at = now
            polled.poll(spool)
    (written,) = (tmp_path / "spool").glob("objects-*")
    assert len(written.read_text().splitlines()) == 1


def test_a_server_that_is_none_and_a_clock_that_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ApiServer(kube.history(), at=5)
    spool = Spool(tmp_path / "spool")
    with serving(lambda *_: (404, b"")) as url, pytest.raises(Trouble) as caught:
        source(url).poll(spool)
    assert caught.value.state == "unknown-version"
    here = time.time()
    with serving(server.answer) as url:
        polled = source(url)
        monkeypatch.setattr(asking, "time", SimpleNamespace(time=lambda: here - 3600))
        with pytest.raises(Trouble) as caught:
            polled.poll(spool)
    assert caught.value.state == "clock-off"
    assert list((tmp_path / "spool").glob("objects-*"))


def test_an_index_that_is_an_annotation_is_kept_and_no_other_note(tmp_path: Path) -> None:
    """As servers before 1.28 write it."""
    notes = {"batch.kubernetes.io/job-completion-index": "3", "note": "hunter2"}
    item = pod(
        "work-3-abcde",
        4,
        labels={"job-name": "work"},
        metadata={"annotations": notes},
        phase="Running",
        containerStatuses=containers(running(10)),
    )
    server = ApiServer([("ADDED", item)], at=1)
    spool = Spool(tmp_path / "spool")
    with serving(server.answer) as url:
        source(url).poll(spool)
    assert b"hunter2" not in b"".join(path.read_bytes() for path in spool.folder.iterdir())
    fleet.ingest([tmp_path / "spool"], tmp_path / "store")
    assert [row[0] for row in told(tmp_path / "store")[0]] == ["team-a/work+3"]


def test_a_recorded_cluster(tmp_path: Path) -> None:
    """A watch of kube-apiserver 1.20.2: a node goes silent under a gang, is cordoned, pods are replaced.

    No kubelet ran: states were set through the status of each object, as kubelets and controllers do.
    """
    lines = (RECORDED / "kubernetes.jsonl").read_text().splitlines()
    events = [(each["type"], each["object"]) for each in map(json.loads, lines)]
    server = ApiServer(events)
    hour = 1_795_971_600.0
    spool = Spool(tmp_path / "spool", lambda: hour + 400 * server.at)
    follower = Follower([tmp_path / "spool"], tmp_path / "live")
    with serving(server.answer) as url:
        polled = source(url)
        for server.at in [*range(0, len(events), 3), len(events)]:
            polled.poll(spool)
            if server.at % 2:
                follower.look()
    follower.look()
    fleet.ingest([RECORDED / "kubernetes.jsonl"], tmp_path / "bulk")
    assert told(tmp_path / "live") == told(tmp_path / "bulk")
    assert b"hunter2" not in b"".join(path.read_bytes() for path in spool.folder.rglob("*.*"))
    log = open_log(tmp_path / "live")
    names = ("job_id", "attempt", "state", "start_s", "end_s", "nodes", "gpus", "failed_node")
    rows = log.rows(f"SELECT {', '.join(names)} FROM {log.table('attempts')} ORDER BY 1, 2")
    at = 1_795_973_500
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("team-a/fx", 1, "NODE_FAIL", at + 75, at + 85, ["f0", "f1", "f2"], 24, "f1"),
        ("team-a/fx", 2, "COMPLETED", at + 90, at + 100, ["f0", "f2", "f3"], 24, None),
        ("team-a/nix", 1, "OUT_OF_MEMORY", at + 75, at + 88, ["f3"], 4, None),
        ("team-a/nix", 2, "COMPLETED", at + 89, at + 100, ["f3"], 4, None),
    ]
    [silent] = log.rows(f"SELECT * FROM {log.table('node_outages')} WHERE state = 'DOWN*'")
    assert (silent["node"], silent["start_s"], silent["end_s"]) == ("f1", at + 83, at + 100)
