"""Why attempts failed: the join and the ranking against loops over every attempt, event and node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from logs import BASE, CHECKS, Attempt, Check, Log, Outage

import holdfast.fleet as fleet
from conftest import RandomFleet
from holdfast.errors import InputError
from holdfast.fleet import Assumptions, FleetLog
from holdfast.fleet.attribution import blamed_nodes, infrastructure_failures, ranked_causes

BEFORE, AFTER = 600, 300
ENDED_BY = ("FAILED", "NODE_FAIL")


@dataclass(frozen=True)
class Cause:
    check: Check
    offset: float
    on_failed_node: bool | None


def evident(log: Log, attempt: Attempt) -> set[str]:
    """Nodes that Slurm took down within ten seconds of the attempt's end."""
    return {
        outage.node
        for outage in log.outages
        if outage.node in attempt.nodes
        and "MAINT" not in outage.state
        and abs(outage.start - attempt.stop) <= 10
    }


def causes_by_loops(log: Log, attempt: Attempt, before: int, after: int) -> list[Cause]:
    if attempt.state not in ENDED_BY or attempt.start is None or attempt.end is None:
        return []
    nearest: dict[tuple[str, str], Check] = {}
    for check in log.checks:
        offset = check.time - attempt.stop
        if check.result != "fail" or check.node not in attempt.nodes:
            continue
        if not -before <= offset <= after:
            continue
        place = (check.node, check.check)
        old = nearest.get(place)
        if old is None or (abs(offset), offset) < (
            abs(old.time - attempt.stop),
            old.time - attempt.stop,
        ):
            nearest[place] = check
    down = evident(log, attempt)
    first: dict[tuple[str, str], float] = {}
    for check in nearest.values():
        group = (check.node, check.rated)
        offset = abs(check.time - attempt.stop)
        first[group] = min(first.get(group, offset), offset)
    found = [
        Cause(check, check.time - attempt.stop, check.node in down if down else None)
        for check in nearest.values()
    ]
    return sorted(
        found,
        key=lambda cause: (
            cause.on_failed_node is False,
            cause.check.rated != "HIGH",
            first[cause.check.node, cause.check.rated],
            cause.check.node,
            cause.offset,
            cause.check.check,
        ),
    )


def infrastructure_by_loops(
    log: Log, before: int = BEFORE, after: int = AFTER
) -> Iterator[tuple[Attempt, str, str | None]]:
    """(attempt, label, severity of its likeliest cause) of each infrastructure failure."""
    for attempt in log.attempts:
        if attempt.state not in ENDED_BY or attempt.start is None:
            continue
        causes = causes_by_loops(log, attempt, before, after)
        told = [cause for cause in causes if cause.on_failed_node is not False]
        label = told[0].check.label if told else "unattributed"
        severity = told[0].check.rated if told else None
        if attempt.state == "NODE_FAIL" or severity == "HIGH":
            yield attempt, label, severity


def blame_by_loops(log: Log) -> Iterator[tuple[Attempt, str, float]]:
    for attempt, _, _ in infrastructure_by_loops(log):
        high = {
            cause.check.node
            for cause in causes_by_loops(log, attempt, BEFORE, AFTER)
            if cause.check.rated == "HIGH"
        }
        blamed = evident(log, attempt) or high or set(attempt.nodes)
        for node in blamed:
            yield attempt, node, 1 / len(blamed)


def identities(log: FleetLog) -> dict[int, tuple[str, int]]:
    """Key of an attempt -> (job id, submission)."""
    rows = log.rows(f"SELECT key, job_id, submit_s FROM {log.table('attempts')}")
    return {row["key"]: (row["job_id"], row["submit_s"]) for row in rows}


def test_every_cause_and_its_rank(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    who = identities(log)
    expected = {
        attempt.identity: [
            (c.check.check, c.check.node, c.offset, c.check.rated, c.check.label, c.on_failed_node)
            for c in causes_by_loops(rows, attempt, BEFORE, AFTER)
        ]
        for attempt in rows.attempts
    }
    expected = {identity: causes for identity, causes in expected.items() if causes}
    found: dict[tuple[str, int], list[Any]] = {}
    for row in log.rows(f"SELECT * FROM {ranked_causes(log)} ORDER BY key, rank"):
        causes = found.setdefault(who[row["key"]], [])
        assert row["rank"] == len(causes) + 1
        causes.append(
            tuple(
                row[name]
                for name in ("check", "node", "offset_s", "severity", "label", "on_failed_node")
            )
        )
        assert row["domains"].split(",") == CHECKS[row["check"]][2]
    assert len(expected) > 20
    assert found == expected


def test_infrastructure_failures(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    who = identities(log)
    found = {
        who[row["key"]]: (row["label"], row["severity"])
        for row in log.rows(infrastructure_failures(log))
    }
    expected = {a.identity: (label, sev) for a, label, sev in infrastructure_by_loops(rows)}
    assert found == expected
    states = {a.state for a, _, _ in infrastructure_by_loops(rows)}
    assert states == {"FAILED", "NODE_FAIL"}


def test_blame(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    who = identities(log)
    found = {(who[row["key"]], row["node"]): row["blame"] for row in log.rows(blamed_nodes(log))}
    expected = {(a.identity, node): blame for a, node, blame in blame_by_loops(rows)}
    assert found == pytest.approx(expected)


def test_the_command_shows_the_attempts_in_order(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    job = max(
        {a.job for a in rows.attempts},
        key=lambda job: sum(a.job == job and a.state in ENDED_BY for a in rows.attempts),
    )
    mine = sorted((a for a in rows.attempts if a.job == job), key=lambda a: a.submitted)
    answer = fleet.attribute(log, str(job)).to_dict()
    attempts = answer["attempts"]
    assert isinstance(attempts, list)
    assert [a["attempt"] for a in attempts] == list(range(1, len(mine) + 1))
    assert [a["state"] for a in attempts] == [a.state for a in mine]
    assert [tuple(a["nodes"]) for a in attempts] == [a.nodes for a in mine]
    infrastructure = {a.identity for a, _, _ in infrastructure_by_loops(rows)}
    assert [a["infrastructure"] for a in attempts] == [a.identity in infrastructure for a in mine]
    for shown, attempt in zip(attempts, mine, strict=True):
        causes = causes_by_loops(rows, attempt, BEFORE, AFTER)
        assert [(c["check"], c["node"]) for c in shown["causes"]] == [
            (c.check.check, c.check.node) for c in causes
        ]


def test_the_window_is_closed_at_both_ends(tmp_path: Path) -> None:
    """In [end - before, end + after]; at most 0.01 s outside is outside."""
    edges = [(-45, True), (-45.01, False), (10, True), (10.01, False), (0, True)]
    attempts = [
        Attempt(job, (f"n{job}",), 0, 1000 + 37 * job, "NODE_FAIL")
        for job in range(1, len(edges) + 1)
    ]
    checks = [
        Check(1000 + 37 * job + offset, f"n{job}", "check nvlink")
        for job, (offset, _) in enumerate(edges, 1)
    ]
    log = Log(attempts, checks).open(tmp_path, Assumptions(check_before_s=45, check_after_s=10))
    explained = {row["key"] for row in log.rows(ranked_causes(log))}
    who = {identity: key for key, identity in identities(log).items()}
    inside = [who[attempt.identity] in explained for attempt in attempts]
    assert inside == [expected for _, expected in edges]


def test_a_window_of_no_length_still_matches_the_very_second(tmp_path: Path) -> None:
    attempts = [Attempt(job, ("n1",), 0, 100 * job, "NODE_FAIL") for job in (1, 2)]
    checks = [Check(100, "n1", "check nvlink"), Check(201, "n1", "check nvlink")]
    log = Log(attempts, checks).open(tmp_path, Assumptions(check_before_s=0, check_after_s=0))
    assert [row["offset_s"] for row in log.rows(ranked_causes(log))] == [0]


def test_checks_on_the_node_that_slurm_took_down_come_first(tmp_path: Path) -> None:
    log = Log(
        [Attempt(1, ("n1", "n2"), 0, 1000, "NODE_FAIL")],
        [Check(999, "n1", "check nvlink"), Check(700, "n2", "link flaps")],
        [Outage("n2", 1001, 2000)],
    ).open(tmp_path)
    (attempt,) = fleet.attribute(log, "1").attempts
    assert attempt["failed_nodes"] == ["n2"]
    assert [(c["node"], c["symptom"]) for c in attempt["causes"]] == [
        ("n2", "InfiniBand link"),
        ("n1", "NVLink"),
    ]
    # The check on the healthy node does not become the cause even where the other is only LOW.
    assert [row["label"] for row in log.rows(infrastructure_failures(log))] == ["InfiniBand link"]


def test_a_check_on_another_node_explains_nothing(tmp_path: Path) -> None:
    log = Log(
        [Attempt(1, ("n1", "n2"), 0, 1000, "NODE_FAIL"), Attempt(2, ("n3",), 0, 1000, "FAILED")],
        [Check(999, "n1", "check nvlink"), Check(999, "n4", "check nvlink")],
        [Outage("n2", 1000, 2000)],
    ).open(tmp_path)
    (failure,) = log.rows(infrastructure_failures(log))
    assert (failure["job_id"], failure["label"]) == ("1", "unattributed")
    assert [(r["node"], r["blame"]) for r in log.rows(blamed_nodes(log))] == [("n2", 1.0)]


def test_requeues_after_which_slurm_names_a_failed_node_are_failures(tmp_path: Path) -> None:
    """By the controller's log (a task of an array) or by an outage; a user's requeue is none."""
    ends = [("n1", "n2"), ("n3", "n4"), ("n5", "n6")]
    log = Log(
        [Attempt(n, nodes, 0, 4000 * n, "REQUEUED") for n, nodes in enumerate(ends, 1)]
        + [Attempt(4, ("n7",), 0, 5000, "COMPLETED")],
        [Check(3999, "n2", "check nvlink"), Check(11_999, "n5", "check nvlink")],
        [Outage("n3", 8004, 9000), Outage("n7", 5000, 6000)],
        controller=[
            (4000.5, "requeue job JobId=77_3(1) due to failure of node n2"),
            (9000.0, "_slurm_rpc_submit_batch_job: JobId=5 InitPrio=1"),
        ],
    ).open(tmp_path)
    rows = log.rows(f"SELECT * FROM {infrastructure_failures(log)} ORDER BY job_id")
    assert [(row["job_id"], row["label"]) for row in rows] == [
        ("1", "NVLink"),
        ("2", "unattributed"),
    ]
    blamed = log.rows(f"SELECT node, blame FROM {blamed_nodes(log)} ORDER BY node")
    assert [(row["node"], row["blame"]) for row in blamed] == [("n2", 1.0), ("n3", 1.0)]
    assert [fleet.attribute(log, job).attempts[0]["infrastructure"] for job in "123"] == [
        *(True, True, False)
    ]
    assert fleet.goodput(log).failures == 2


def test_co_occurring_checks_are_kept_and_repetitions_are_one(tmp_path: Path) -> None:
    checks = [Check(1000 - s, "n1", "pcie aer errors") for s in (500, 30, 20)]
    checks += [Check(960, "n1", "check iblink"), Check(970, "n1", "link flaps")]
    log = Log([Attempt(1, ("n1",), 0, 1000, "FAILED")], checks).open(tmp_path)
    (attempt,) = fleet.attribute(log, "1").attempts
    # On one node the first HIGH sign counts, and LOW ones follow.
    assert [(c["check"], c["offset_s"]) for c in attempt["causes"]] == [
        ("check iblink", -40),
        ("pcie aer errors", -20),
        ("link flaps", -30),
    ]
    assert attempt["infrastructure"]


def test_times_of_the_answer_are_utc(tmp_path: Path) -> None:
    log = Log([Attempt(1, ("n1",), 0, 3661, "FAILED")]).open(tmp_path)
    (attempt,) = fleet.attribute(log, "1").attempts
    assert BASE == 1_767_571_200
    assert (attempt["start"], attempt["end"]) == ("2026-01-05T00:00:00Z", "2026-01-05T01:01:01Z")


def test_unknown_job(random_fleet: RandomFleet) -> None:
    with pytest.raises(InputError, match="job not found: '4711_0'"):
        fleet.attribute(random_fleet.log, "4711_0")
