"""One unit of evidence: shared nodes, jobs that loop, bursts."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from counting import incidents_by_loops
from logs import Attempt, Check, Log, Outage, names, random_log, stamp

import holdfast.fleet as fleet
from conftest import RandomFleet
from holdfast.fleet.incidents import ended_attempts, incidents
from holdfast.fleet.on_cluster import drain_commands
from holdfast.stats import poisson_interval

HOUR, DAY = 3600, 86_400


def test_incidents_by_loops(random_fleet: RandomFleet) -> None:
    """Which attempts each incident ended, its size, its first end."""
    log, rows = random_fleet.log, random_fleet.rows
    who = {
        row["key"]: (row["job_id"], row["submit_s"])
        for row in log.rows(f"SELECT key, job_id, submit_s FROM {log.table('attempts')}")
    }
    found: dict[int, set[tuple[str, int]]] = {}
    for row in log.rows(ended_attempts(log)):
        found.setdefault(row["incident"], set()).add(who[row["key"]])
    expected = incidents_by_loops(rows)
    assert {frozenset(each) for each in found.values()} == {
        frozenset(a.identity for a in each) for each in expected
    }
    sizes = sorted((len(each), max(a.gpu_count for a in each)) for each in expected)
    table = log.rows(incidents(log))
    assert sorted((row["attempts"], row["gpus"]) for row in table) == sizes


def shared_node(count: int, days: int = 30) -> Log:
    """Nodes of eight one-GPU jobs each; one of them fails every so often and ends all eight."""
    log, job = Log(), 0
    for failure in range(count):
        for gpu in range(8):
            job += 1
            end = (failure + 1) * DAY + gpu % 3
            log.attempts.append(Attempt(job, (f"n{failure:02d}",), 0, end, "NODE_FAIL", gpus=1))
    for node in range(count, count + 10):
        for _ in range(8):
            job += 1
            log.attempts.append(Attempt(job, (f"n{node:02d}",), 0, days * DAY, gpus=1))
    return log


def test_eight_jobs_on_a_node_that_fails_are_one_failure(tmp_path: Path) -> None:
    answer = fleet.mttf(shared_node(13).open(tmp_path)).to_dict()
    days = 13 * 14 / 2 + 300  # nodes, not jobs
    assert answer["node_days"] == pytest.approx(days, rel=1e-4)
    counts = (answer["failures"], answer["failed_attempts"], answer["clusters"])
    assert counts == (13, 104, 13)
    assert answer["ci95"] == pytest.approx(
        [1000 * each for each in poisson_interval(13, days)], rel=1e-4
    )


@pytest.mark.parametrize("form", ["requeued", "array", "heterogeneous"])
def test_a_node_that_one_job_blames_is_not_pulled(tmp_path: Path, form: str) -> None:
    """Pinned to n05, it fails eight times; everything else on n05 completes."""
    log = Log()
    for job, node in enumerate(names(100), 1):
        # Every other node has a failure of its own in 40 days: n005 is no worse.
        state = "NODE_FAIL" if job % 9 == 0 else "COMPLETED"
        log.attempts.append(Attempt(job, (node,), 0, 20 * DAY + 977 * job, state))
        log.attempts.append(Attempt(1000 + job, (node,), 22 * DAY, 40 * DAY))
    path = tmp_path / "sacct.psv"
    log.attempts += [
        Attempt(
            99999, ("n005",), 41 * DAY + k * 2 * HOUR, 41 * DAY + k * 2 * HOUR + HOUR, "NODE_FAIL"
        )
        for k in range(8)
    ]
    folder = tmp_path / "logs"
    (path,) = log.write(folder)
    text = path.read_text().splitlines()
    for k in range(8):
        name = {"requeued": "99999", "array": f"99999_{k}", "heterogeneous": f"99999+{k}"}[form]
        text[-8 + k] = text[-8 + k].replace("99999|", f"{name}|", 1)
        if form != "requeued":
            text[-8 + k] = text[-8 + k].replace("|99999|", f"|{99999 + k}|", 1)
    path.write_text("\n".join(text) + "\n")
    fleet.ingest([path], tmp_path / "store")
    found = fleet.lemons(tmp_path / "store")
    assert found.lemons == []
    alone = [{"node": "n005", "job_id": "99999", "attempts": 8}]
    assert found.to_dict()["one_job"] == alone
    assert not any(
        line.startswith(("scontrol", "kubectl")) for line in drain_commands(found).splitlines()
    )
    assert fleet.report(tmp_path / "store").to_dict()["lemons"] == []
    rate = fleet.mttf(tmp_path / "store").model
    assert (rate.failures_, rate.clusters_) == (11 + 8, 11 + 1)


@pytest.mark.parametrize("times", [1, 2])
def test_tasks_that_die_with_their_node_are_no_pattern_of_their_job(
    tmp_path: Path, times: int
) -> None:
    """Eight tasks of one array on n005 end with it; once is once."""
    log = Log([Attempt(job, (node,), 0, 40 * DAY) for job, node in enumerate(names(20), 1)])
    ends = [(41 + k) * DAY for k in range(times)]
    tasks = [(task, end) for end in ends for task in range(8)]
    log.attempts += [
        Attempt(9000 + n, ("n005",), end - HOUR, end, "NODE_FAIL", gpus=1)
        for n, (_, end) in enumerate(tasks)
    ]
    (path,) = log.write(tmp_path / "logs")
    text = path.read_text()
    for n in range(len(tasks)):
        text = text.replace(f"\n{9000 + n}|", f"\n9000_{n}|")
    path.write_text(text)
    fleet.ingest([path], tmp_path / "store")
    found = fleet.lemons(tmp_path / "store")
    assert found.nodes.to_pylist()[0]["node"] == "n005"
    assert found.one_job == []


def test_a_node_that_many_jobs_blame_is_pulled(tmp_path: Path) -> None:
    log = Log([Attempt(job, (node,), 0, 40 * DAY) for job, node in enumerate(names(100), 1)])
    log.attempts += [
        Attempt(1000 + k, ("n005",), (41 + k) * DAY, (42 + k) * DAY - HOUR, "NODE_FAIL")
        for k in range(8)
    ]
    found = fleet.lemons(log.open(tmp_path))
    assert (found.lemons, found.one_job, found.verdict) == (["n005"], [], "pull")
    assert "nodename=n005" in drain_commands(found)


def test_failures_that_are_unknown_join_what_happened_then(tmp_path: Path) -> None:
    """A large job whose node nobody names ends with the small job whose node is known."""
    nodes = names(8)
    log = Log(
        [
            Attempt(1, nodes, 0, DAY, "NODE_FAIL"),
            Attempt(2, (nodes[3],), 0, DAY + 5, "NODE_FAIL", gpus=1),
            Attempt(3, nodes[:2], 2 * DAY, 3 * DAY, "NODE_FAIL"),
            Attempt(4, nodes[1:3], 2 * DAY, 3 * DAY, "NODE_FAIL"),
            Attempt(5, nodes[4:], 2 * DAY, 3 * DAY, "NODE_FAIL"),
            Attempt(6, nodes, 30 * DAY, 31 * DAY),
        ]
    ).open(tmp_path)
    rows = log.rows(f"SELECT node, gpus, attempts FROM {incidents(log)} ORDER BY incident")
    assert rows[0] == {"node": "n003", "gpus": 64, "attempts": 2}
    assert sorted((row["node"] or "", row["attempts"]) for row in rows[1:]) == [("", 1), ("", 2)]
    blame = {row["node"]: row["failures"] for row in fleet.lemons(log).nodes.to_pylist()}
    assert (blame["n003"], blame["n001"], blame["n000"]) == (1, 1, 0)


def test_a_switch_is_one_event(tmp_path: Path) -> None:
    """It takes sixteen nodes down at once: sixteen incidents, one cluster."""
    nodes = names(64)
    log = Log([Attempt(100 + i, (node,), 0, 60 * DAY) for i, node in enumerate(nodes)])
    log.attempts += [
        Attempt(i, (nodes[i],), 61 * DAY, 65 * DAY + i, "NODE_FAIL") for i in range(16)
    ]
    log.attempts += [
        Attempt(200 + i, (nodes[40 + i],), 61 * DAY, (66 + i) * DAY, "NODE_FAIL") for i in range(4)
    ]
    model = fleet.mttf(log.open(tmp_path)).model
    assert (model.failures_, model.clusters_) == (20, 5)
    low, high = poisson_interval(20, model.node_days_ / 1000)
    assert model.ci95_[0] < low / 3
    assert model.ci95_[1] > 2 * high


def test_the_failures_of_a_large_job_are_its_nodes(tmp_path: Path) -> None:
    """A run of half the fleet fails as often as its size explains: no loop, each failure counts."""
    nodes, log = names(128), Log()
    rng = np.random.default_rng(5)
    end = 0
    while end < 60 * DAY:
        start, end = end + 600, end + 600 + max(int(rng.exponential(3 * DAY)), 60)
        log.attempts.append(Attempt(1, nodes[:64], start, end, "NODE_FAIL", submit=start))
        log.outages.append(Outage(nodes[int(rng.integers(64))], end, end + HOUR))
    for i, node in enumerate(nodes[64:]):
        at = int(rng.exponential(192 * DAY))
        log.attempts.append(
            Attempt(
                10 + i, (node,), 0, min(at, 60 * DAY), "NODE_FAIL" if at < 60 * DAY else "COMPLETED"
            )
        )
    model = fleet.mttf(log.open(tmp_path)).model
    assert model.failures_ > 20
    assert model.clusters_ >= model.failures_ - 3  # chance puts a few on one node, or in one moment


def null_fleet(seed: int) -> Log:
    """No node is worse: single failures on shared nodes, jobs that loop, switches that fail.

    Sixty nodes in four racks, 60 days; each node is one slot of eight one-GPU jobs or of one job.
    """
    rng = np.random.default_rng(seed)
    nodes, log, job = names(60), Log(), 0
    down: dict[str, list[int]] = {node: [] for node in nodes}
    for _ in range(rng.poisson(30)):
        down[nodes[int(rng.integers(60))]].append(int(rng.integers(DAY, 60 * DAY)))
    for _ in range(rng.poisson(2)):
        rack, at = int(rng.integers(4)), int(rng.integers(DAY, 60 * DAY))
        for node in nodes[15 * rack : 15 * rack + 15]:
            down[node].append(at + int(rng.integers(30)))
    for place, node in enumerate(nodes):
        begin = 0
        for at in [*sorted(down[node]), 60 * DAY]:
            while begin < at:
                end = min(begin + int(rng.exponential(3 * DAY)) + 60, at)
                state = "NODE_FAIL" if end == at < 60 * DAY else "COMPLETED"
                for _ in range(8 if place % 2 else 1):
                    job += 1
                    log.attempts.append(
                        Attempt(job, (node,), begin, end, state, gpus=1 if place % 2 else 8)
                    )
                begin = end + 300
    for _ in range(3):  # three jobs loop after the others, each on one node
        node, job, begin = nodes[int(rng.integers(60))], job + 1, 61 * DAY
        for _ in range(int(rng.geometric(0.15))):
            log.attempts.append(
                Attempt(job, (node,), begin, begin + 1200, "NODE_FAIL", submit=begin)
            )
            begin += 1800
    return log


@pytest.mark.quick(1)
@pytest.mark.parametrize("first", range(0, 40, 4))
def test_a_null_fleet_has_no_lemons(tmp_path: Path, first: int) -> None:
    found = [
        fleet.lemons(null_fleet(seed).open(tmp_path / str(seed)))
        for seed in range(first, first + 4)
    ]
    assert sum(bool(each.lemons) for each in found) <= 1
    assert any(each.one_job for each in found)


def titan(count: int, worst: int) -> str:
    """A log of node failures: most nodes fail once, one of them often."""
    rng = np.random.default_rng(3)
    times = np.sort(rng.integers(1_500_000_000, 1_600_000_000, count + worst))
    who = rng.permutation([f"n{i % 400:03d}" for i in range(count)] + ["n999"] * worst)
    rows = [f"{node},{time},{time + 60}" for node, time in zip(who, times, strict=True)]
    return "\n".join(["node,start,end", *rows]) + "\n"


@pytest.mark.parametrize(("worst", "alike"), [(60, False), (1, True)])
def test_nodes_that_do_not_fail_alike_are_said(tmp_path: Path, worst: int, alike: bool) -> None:
    (tmp_path / "failures.csv").write_text(titan(400, worst))
    fleet.ingest([tmp_path / "failures.csv"], tmp_path / "s", nodes=500)
    answer = fleet.mttf(tmp_path / "s")
    test = answer.to_dict()["dispersion"]
    assert test["between"] == "nodes"
    assert (test["p_value"] >= 0.05) == alike
    assert (test["variance_over_mean"] > 2) != alike
    low, high = (1000 * each for each in poisson_interval(400 + worst, answer.model.node_days_))
    width = (answer.model.ci95_[1] - answer.model.ci95_[0]) / (high - low)
    assert (width > 1.5) != alike


def test_checks_around_one_failure_are_one_incident_of_the_rate(tmp_path: Path) -> None:
    attempts = [Attempt(j, ("n1",), 0, 3600 + 120 * j, "FAILED", gpus=2) for j in range(4)]
    log = Log(attempts, [Check(3590, "n1", "check iblink", "HIGH")]).open(tmp_path)
    model = fleet.mttf(log).model
    assert (model.failures_, model.node_days_) == (1, pytest.approx((3600 + 360) / DAY))


def test_the_order_of_the_log_is_no_matter(tmp_path: Path) -> None:
    rows = random_log(9)
    there = fleet.mttf(rows.open(tmp_path / "a")).to_dict()
    rows.attempts.reverse()
    rows.checks.reverse()
    assert fleet.mttf(rows.open(tmp_path / "b")).to_dict() == there


HETEROGENEOUS = """JobID|JobIDRaw|State|Submit|Start|End|NNodes|NodeList|AllocTRES
10+0|10|NODE_FAIL|0|0|5|1|n1|gres/gpu=8
10+1|11|NODE_FAIL|0|0|5|1|n2|gres/gpu=8
10+2|12|NODE_FAIL|0|0|5|1|n3|gres/gpu=8
20+0|20|NODE_FAIL|0|0|5|1|n4|gres/gpu=8
20+1|21|NODE_FAIL|0|0|7|1|n5|gres/gpu=8
"""


def test_components_of_a_job_that_end_together_fail_once(tmp_path: Path) -> None:
    """Of those that end apart, each fails for itself; a check names the node of a whole job."""
    path, health = tmp_path / "sacct.psv", tmp_path / "health.jsonl"
    moments = {f"|{hour}|": f"|2026-01-0{1 + hour}T00:00:00|" for hour in (0, 5, 7)}
    text = HETEROGENEOUS.replace("|0|0|", "|0||0|")
    for short, long in moments.items():
        text = text.replace(short, long)
    path.write_text(text.replace("||", "|"))
    health.write_text('{"time": "2026-01-05T23:59:30Z", "node": "n2", "check": "nvlink"}\n')
    fleet.ingest([path], tmp_path / "bare")
    fleet.ingest([path, health], tmp_path / "checked")
    bare, checked = (fleet.open(tmp_path / name) for name in ("bare", "checked"))
    table = [(row["attempts"], row["node"]) for row in bare.rows(incidents(bare))]
    assert sorted(table, key=str) == [(1, "n4"), (1, "n5"), (3, None)]
    table = [(row["attempts"], row["node"]) for row in checked.rows(incidents(checked))]
    assert sorted(table, key=str) == [(1, "n4"), (1, "n5"), (3, "n2")]


@pytest.mark.parametrize("checked", [False, True])
def test_a_small_component_does_not_tell_which_node_failed(tmp_path: Path, checked: bool) -> None:
    """One head node, and seven of twenty others for each job: now and then one of the seven fails."""
    rng = random.Random(5)
    lines, events = ["JobID|JobIDRaw|State|Submit|Start|End|NNodes|NodeList|AllocTRES"], []
    for day in range(60):
        nodes = rng.sample(range(20), 7)
        failed = day % 5 == 0
        end = day * DAY + (rng.randrange(2, 20) * 3600 if failed else 22 * 3600)
        for part, held in enumerate((["head"], [f"n{node:02d}" for node in nodes])):
            state, count = "NODE_FAIL" if failed else "COMPLETED", len(held)
            times = "|".join(stamp(time) for time in (day * DAY, day * DAY, end))
            where = f"{count}|{','.join(held)}|gres/gpu={8 * count}"
            lines.append(f"{10 * day}+{part}|{10 * day + part}|{state}|{times}|{where}")
        if failed:
            events.append(Check(end - 20, f"n{nodes[0]:02d}", "check iblink", "HIGH"))
    path = tmp_path / "sacct.psv"
    path.write_text("\n".join(lines) + "\n")
    seen = Log(checks=events).write(tmp_path / "checks") if checked else []
    fleet.ingest([path, *seen], tmp_path / "s")
    log = fleet.open(tmp_path / "s")
    found = fleet.lemons(log)
    assert (found.lemons, found.not_separable) == ([], [])
    [head] = [row for row in found.nodes.to_pylist() if row["node"] == "head"]
    assert head["failures"] == pytest.approx(0 if checked else 12 / 8)
    if not checked:
        assert found.verdict == "unknown"
    assert fleet.goodput(log).unattributed == (0 if checked else 24)
    assert fleet.mttf(log).model.failures_ == 12
