"""One node under several names: checks that say more, or write it otherwise, than the scheduler does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from logs import Attempt, Check, Log, Outage

import holdfast.fleet as fleet
from holdfast.fleet.node_names import own_names

HOUR = 3600


@pytest.mark.parametrize(
    ("said", "known", "own"),
    [
        ("gpu-7.example.org", ["gpu-7", "gpu-70"], "gpu-7"),
        ("GPU-7", ["gpu-7"], "gpu-7"),
        ("gpu-7", ["GPU-7.example.org"], "GPU-7.example.org"),
        ("gpu-7", ["gpu-7", "GPU-7"], "gpu-7"),
        ("Gpu-7", ["gpu-7", "GPU-7"], None),
        ("gpu-7.b", ["gpu-7.a.org", "gpu-7.b.org"], None),
        ("gpu-7.B.org", ["gpu-7.a.org", "gpu-7.b.org"], "gpu-7.b.org"),
        ("gpu-8", ["gpu-7"], None),
        ("10.0.0.2", ["10.0.0.1"], None),
        ("a.b:gpu-7.org", ["a.b:gpu-7", "a.c:gpu-7"], "a.b:gpu-7"),
        ("c:gpu-7", ["a:gpu-7"], None),
    ],
)
def test_own_names(said: str, known: list[str], own: str | None) -> None:
    assert own_names([said], [set(known)]) == {said: own}


def test_what_jobs_name_comes_before_an_inventory() -> None:
    known = [{"gpu-7"}, {"gpu-7.example.org", "gpu-8.example.org"}]
    said = ["gpu-7.example.org", "GPU-8"]
    assert own_names(said, known) == dict(zip(said, ("gpu-7", "gpu-8.example.org"), strict=True))


FAILED = [
    Attempt(k, ("rack3-a", "rack3-b"), k * HOUR, k * HOUR + 1800, state)
    for k, state in enumerate(["FAILED", "NODE_FAIL", "FAILED", "COMPLETED"], 1)
]


@pytest.mark.parametrize("name", ["rack3-b.mgmt.lan", "RACK3-B", "rack3-b"])
def test_failures_are_explained_under_any_name(tmp_path: Path, name: str) -> None:
    checks = [Check(each.stop - 5, name, "xid 79", "HIGH") for each in FAILED]
    log = Log(FAILED, checks).open(tmp_path)
    assert (fleet.goodput(log).failures, fleet.goodput(log).unattributed) == (3, 0)
    rows = {row["node"]: row for row in fleet.lemons(log).nodes.to_pylist()}
    assert set(rows) == {"rack3-a", "rack3-b"}
    assert (rows["rack3-b"]["xid_cnt"], rows["rack3-a"]["failures"]) == (1, 0)
    assert [cause["node"] for cause in fleet.attribute(log, "3").attempts[0]["causes"]] == [
        "rack3-b"
    ]
    assert not any(each.doubt for each in fleet.goodput(log).unknowns())


def test_nodes_that_no_attempt_names_are_no_all_clear(tmp_path: Path) -> None:
    ended = [replace(each, state="FAILED") for each in FAILED]
    checks = [
        Check(each.stop - 5, node, "xid 79", "HIGH")
        for each in ended
        for node in ("blade9", "rack3")
    ]
    sources = Log(ended, checks).write(tmp_path)
    told = fleet.ingest(sources, tmp_path / "s", timezone="UTC")
    assert (told.strange_checks, told.strangers) == (8, ["blade9", "rack3"])
    found = fleet.goodput(tmp_path / "s"), fleet.lemons(tmp_path / "s")
    assert [each.verdict for each in found] == ["unknown", "unknown"]
    for answer in (told, *found, fleet.report(tmp_path / "s")):
        assert any(each.doubt and "blade9, rack3" in each.text for each in answer.unknowns())


@pytest.mark.quick(4)
@pytest.mark.parametrize("source", ["controller", "outages", "inventory", "failed_node"])
@pytest.mark.parametrize("said", ["RACK3-B.example.org", "rack3-b", "rack3-b.mgmt.lan"])
def test_a_failed_node_has_one_name_whoever_names_it(
    tmp_path: Path, said: str, source: str
) -> None:
    nodes = ("rack3-a.example.org", "rack3-b.example.org")
    log = Log([Attempt(k, nodes, k * HOUR, k * HOUR + 1800, "NODE_FAIL") for k in range(1, 7)])
    ends = [(each.job, each.stop) for each in log.attempts]
    if source == "controller":
        line = "requeue job JobId={} due to failure of node " + said
        log.controller = [(end, line.format(job)) for job, end in ends]
    elif source == "outages":
        log.outages = [Outage(said, end, end + 600) for _, end in ends]
    elif source == "inventory":
        log.nodes = {said: 8, "rack3-a": 8}
    files = log.write(tmp_path)
    if source == "failed_node":
        head, *rows = files[0].read_text().splitlines()
        text = [f"{head}|FailedNode", *(f"{row}|{said}" for row in rows)]
        files[0].write_text("\n".join(text) + "\n")
    fleet.ingest(files, tmp_path / "store")
    opened = fleet.open(tmp_path / "store")
    rows = {row["node"]: row for row in fleet.lemons(opened).nodes.to_pylist()}
    assert set(rows) == set(nodes)
    named = source != "inventory"
    assert rows[nodes[1]]["failures"] == pytest.approx(6 if named else 3)
    assert rows[nodes[1]]["node_days"] == pytest.approx(6 * 1800 / 86_400, rel=1e-3)


def test_a_node_that_the_attempt_did_not_have_is_not_blamed(tmp_path: Path) -> None:
    attempts = [Attempt(k, ("n1", "n2"), k * HOUR, k * HOUR + 1800, "NODE_FAIL") for k in (1, 2, 3)]
    lines = [
        (each.stop, f"Killing JobId={each.job} on failed node {node}")
        for each, node in zip(attempts, ("m7", "n1", "m7"), strict=True)
    ]
    rows = fleet.lemons(Log(attempts, controller=lines).open(tmp_path)).nodes.to_pylist()
    assert {row["node"]: row["failures"] for row in rows} == {"n1": 2, "n2": 1}
