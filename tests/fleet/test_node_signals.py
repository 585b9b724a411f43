"""Exposure, blame and the seven signals of each node, counted again by loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from counting import blamed, incidents_by_loops, node_days
from logs import Attempt, Check, Log, Outage, random_log

from conftest import RandomFleet
from holdfast.fleet import Assumptions
from holdfast.fleet.node_signals import node_signals

DAY = 86_400


def use_by_node(log: Log, since: int = 0) -> dict[str, float]:
    """Node-days in use; every node of the inventory is there."""
    days = dict.fromkeys(log.nodes, 0.0)
    for (node, _), n in node_days(log, since).items():
        days[node] = days.get(node, 0.0) + n
    return days


def blame_of(log: Log) -> dict[str, dict[int, float]]:
    """Node -> each of its incidents with a new witness -> blame."""
    failed, found = blamed(log), defaultdict(dict)
    rows = []
    for number, ended in enumerate(incidents_by_loops(log)):
        votes = Counter(node for a in ended for node in failed[a])
        sure = {node for a in ended if len(failed[a]) == 1 for node in failed[a]}
        best = sure or {node for node, n in votes.items() if n == max(votes.values())}
        rows += [(-1 / len(best), min(a.stop for a in ended), node, number, ended) for node in best]
    seen = set()
    for blame, _, node, number, ended in sorted(rows, key=lambda each: each[:2]):
        jobs = {(node, a.job) for a in ended if node in failed[a]}
        if jobs - seen:
            found[node][number] = -blame
        seen |= jobs
    return found


def test_exposure_and_failures(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    frame = node_signals(log).table.to_pandas().set_index("node")
    days = use_by_node(rows)
    assert set(frame.index) == set(days)
    for node, expected in days.items():
        assert frame.loc[node, "node_days"] == pytest.approx(expected, abs=0.01)
    incidents = blame_of(rows)
    for node in days:
        blames = incidents.get(node, {}).values()
        assert frame.loc[node, "failures"] == pytest.approx(sum(blames))
        assert frame.loc[node, "known_failures"] == sum(blame == 1 for blame in blames)


def test_the_seven_signals(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    frame = node_signals(log).table.to_pandas().set_index("node")
    attempts = rows.attempts
    ended = incidents_by_loops(rows)
    failed, incidents = blamed(rows), blame_of(rows)
    for node in frame.index:
        row = frame.loc[node]
        excluding = {a.job for a in attempts if node in a.exclude.split(",")}
        assert row["excl_jobid_count"] == len(excluding)
        xids = {c.check for c in rows.checks if c.node == node and c.check.startswith("xid")}
        assert row["xid_cnt"] == len(xids)
        assert row["out_count"] == sum(o.node == node for o in rows.outages)
        multi = single = 0.0
        for number, blame in incidents.get(node, {}).items():
            mine = [a for a in ended[number] if node in failed[a]]
            slurm = any(a.state == "NODE_FAIL" for a in mine)
            if max(len(a.nodes) for a in mine) > 1:
                multi += blame * slurm
            else:
                single += blame * slurm
        ran = sum(a.nodes == (node,) and a.start is not None for a in attempts)
        assert row["multi_node_node_fails"] == pytest.approx(multi)
        assert row["single_node_node_fails"] == pytest.approx(single)
        assert row["single_node_node_failure_rate"] == pytest.approx(single / ran if ran else 0)


def test_exposure_in_a_window(tmp_path: Path) -> None:
    rows = random_log(7, jobs=60)
    log = rows.open(tmp_path, since="2026-01-05T05:33:20")
    frame = node_signals(log).table.to_pandas().set_index("node")
    for node, expected in use_by_node(rows, since=20_000).items():
        assert frame.loc[node, "node_days"] == pytest.approx(expected, abs=0.01)


def test_signals_are_those_of_the_last_28_days(tmp_path: Path) -> None:
    end = 40 * DAY
    attempts = [
        Attempt(1, ("n1",), 0, 5 * DAY, "NODE_FAIL", exclude="n2"),
        Attempt(2, ("n1",), 20 * DAY, end, "NODE_FAIL", exclude="n2"),
    ]
    checks = [
        Check(2 * DAY, "n2", "ticket", "LOW"),
        Check(30 * DAY, "n2", "ticket", "LOW"),
        Check(30 * DAY, "n2", "xid 79"),
        Check(31 * DAY, "n2", "xid 79"),
    ]
    outages = [Outage("n2", 3 * DAY, 4 * DAY), Outage("n2", 30 * DAY, 31 * DAY)]
    rows = Log(attempts, checks, outages, nodes={"n1": 8, "n2": 8})
    log = rows.open(tmp_path, Assumptions(check_before_s=1))
    frame = node_signals(log).table.to_pandas().set_index("node")
    assert frame.loc["n1", "failures"] == 2  # failures are those of the whole log
    assert frame.loc["n1", "single_node_node_fails"] == 1
    assert frame.loc["n2", "tickets"] == 1
    assert frame.loc["n2", "xid_cnt"] == 1
    assert frame.loc["n2", "out_count"] == 1
    assert frame.loc["n2", "excl_jobid_count"] == 1


def test_one_outage_that_ends_many_jobs_is_one_incident(tmp_path: Path) -> None:
    """Eight single-GPU jobs die with their node: it failed once, not eight times."""
    attempts = [Attempt(j, ("n1",), 0, 1000 + j % 3, "NODE_FAIL", gpus=1) for j in range(1, 9)]
    attempts.append(Attempt(9, ("n1",), 2000, 9000, "NODE_FAIL"))
    frame = node_signals(Log(attempts).open(tmp_path)).table.to_pandas().set_index("node")
    assert frame.loc["n1", "failures"] == 2
    assert frame.loc["n1", "single_node_node_fails"] == 2


def test_an_idle_node_of_the_inventory_is_there(tmp_path: Path) -> None:
    log = Log([Attempt(1, ("n1",), 0, DAY)], nodes={"n1": 8, "n2": 8}).open(tmp_path)
    frame = node_signals(log).table.to_pandas().set_index("node")
    assert frame["node_days"].to_dict() == {"n1": pytest.approx(1), "n2": 0}


def test_one_check_that_ends_many_jobs_is_one_incident(tmp_path: Path) -> None:
    """Jobs fail over minutes around one HIGH check; two checks are two incidents."""
    ends = (3600, 3720, 3840, 30_000)
    attempts = [Attempt(j, ("n1",), 0, end, "FAILED") for j, end in enumerate(ends, 1)]
    checks = [
        Check(3590, "n1", "check iblink", "HIGH"),
        Check(29_990, "n1", "check iblink", "HIGH"),
    ]
    frame = node_signals(Log(attempts, checks).open(tmp_path)).table.to_pandas().set_index("node")
    assert frame.loc["n1", "failures"] == 2
