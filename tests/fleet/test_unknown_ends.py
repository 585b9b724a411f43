"""Final states whose end the log does not know: placed at start + elapsed, or counted as not placed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from logs import Attempt, Check, Log, random_log

import holdfast.fleet as fleet
from holdfast.answer import Answer
from holdfast.fleet.attribution import infrastructure_failures, ranked_causes
from holdfast.fleet.preemption import preemptions

HOUR, DAY = 3600, 86_400


def without_ends(log: Log) -> Log:
    """The same log where End is Unknown and Elapsed is known."""
    return replace(log, attempts=[replace(a, end=None, runtime_s=a.ran_s) for a in log.attempts])


def digits(answer: Answer) -> Any:
    """Its JSON; sums in another order differ in the last digits."""
    text = json.dumps(answer.to_dict())
    return json.loads(text, parse_float=lambda number: f"{round(float(number), 12) + 0.0:.9g}")


def test_the_same_answers_without_any_end(tmp_path: Path) -> None:
    """Failures, causes, losses, preemptions, lemons, trend: nothing hangs on the column End."""
    rows = random_log(5)
    whole, bare = rows.open(tmp_path / "a"), without_ends(rows).open(tmp_path / "b")
    assert bare.end_s == whole.end_s
    for made in (fleet.mttf, fleet.goodput, fleet.lemons, fleet.status, fleet.measured_ettr):
        assert digits(made(whole)) == digits(made(bare)), made
    for query in (infrastructure_failures, ranked_causes, preemptions):
        assert len(whole.rows(query(whole))) == len(bare.rows(query(bare))) > 0
    assert fleet.report(whole).analysis.trend == fleet.report(bare).analysis.trend
    job = str(next(a.job for a in rows.attempts if a.state == "NODE_FAIL"))
    assert fleet.attribute(whole, job).attempts == fleet.attribute(bare, job).attempts
    assert bare.unplaced == whole.unplaced == {}


def test_an_attempt_that_runs_has_not_ended(tmp_path: Path) -> None:
    log = Log(
        [
            Attempt(1, ("n1",), 0, None, "RUNNING", runtime_s=HOUR),
            Attempt(2, ("n2",), 0, None, "NODE_FAIL", runtime_s=HOUR),
            Attempt(3, ("n3",), 0, 2 * HOUR),
        ]
    ).open(tmp_path)
    assert [row["job_id"] for row in log.rows(infrastructure_failures(log))] == ["2"]
    ends = {job: fleet.attribute(log, job).attempts[0]["end"] for job in ("1", "2")}
    assert ends == {"1": None, "2": "2026-01-05T01:00:00Z"}


@pytest.mark.parametrize("state", ["NODE_FAIL", "FAILED"])
def test_what_cannot_be_placed_is_counted(tmp_path: Path, state: str) -> None:
    """Neither start nor end: no rate can count it, no answer may drop it."""
    log = Log(
        [Attempt(1, ("n1",), 0, DAY), Attempt(2, ("n1",), None, None, state, submit=0)],
        [Check(10, "n1", "check iblink")],
    ).open(tmp_path)
    assert log.unplaced == {state: 1}
    assert not log.rows(infrastructure_failures(log))


def test_a_node_failure_with_an_end_and_no_start_is_one(tmp_path: Path) -> None:
    log = Log(
        [Attempt(1, ("n1",), 0, DAY), Attempt(2, ("n1",), None, HOUR, "NODE_FAIL", submit=0)]
    ).open(tmp_path)
    assert fleet.mttf(log).model.failures_ == 1
    assert log.unplaced == {}


def test_an_attempt_that_never_had_nodes_is_no_failure_of_one(tmp_path: Path) -> None:
    ran = [Attempt(j, (f"n{j % 3}",), j * HOUR, (j + 9) * HOUR) for j in range(1, 30)]
    never = Attempt(99, (), None, 5 * HOUR, "NODE_FAIL", gpus=0, submit=HOUR)
    log = Log([*ran, never]).open(tmp_path)
    answer = fleet.mttf(log, min_gpus=0)
    assert answer.model.failures_ == 0
    assert [bucket.gpus_max for bucket in answer.model.buckets_] == [8]
    assert fleet.status(log).to_dict()["attempts"] == 30


def test_a_failure_without_an_end_or_an_elapsed_time_makes_losses_doubtful(tmp_path: Path) -> None:
    whole = [Attempt(job, (f"n{job}",), 0, DAY, "NODE_FAIL") for job in (1, 2)]
    bare = Attempt(3, ("n3",), 0, None, "NODE_FAIL", runtime_s=0)
    logs = [Log([*whole, *more]).open(tmp_path / f"{len(more)}") for more in ([], [bare])]
    assert [log.timeless for log in logs] == [0, 1]
    assert [fleet.goodput(log).failures for log in logs] == [2, 3]
    doubtful = [sum(each.doubt for each in fleet.goodput(log).unknowns()) for log in logs]
    assert doubtful[1] == doubtful[0] + 1


def test_a_start_that_is_planned_is_none(tmp_path: Path) -> None:
    """What waits may say when it is expected to run: that moves no end of the log, and rejects nothing."""
    ran = [Attempt(j, (f"n{j}",), j * DAY, (j + 1) * DAY, "NODE_FAIL") for j in range(1, 9)]
    planned = [
        Attempt(20 + n, (), start, end, "PENDING", gpus=8, submit=0, runtime_s=0)
        for n, (start, end) in enumerate(
            [(60 * DAY, None), (400 * DAY, 401 * DAY), (9000 * DAY, None)]
        )
    ]
    logs = [
        Log([*ran, *more]).open(tmp_path / f"{len(more)}", since="3d") for more in ([], planned)
    ]
    assert logs[0].end_s == logs[1].end_s
    assert [log.count("rejects") for log in logs] == [0, 0]
    assert logs[1].count("attempts") == 11
    models = [fleet.mttf(log).model for log in logs]
    assert models[0].failures_ == models[1].failures_ > 0
    assert models[0].node_days_ == models[1].node_days_


GHOST = Attempt(99, ("n1", "n2"), 0, None, "RUNNING", runtime_s=30 * DAY, limit_s=60 * DAY)


@pytest.mark.parametrize(
    ("ghost", "found"),
    [
        pytest.param(GHOST, 1, id="on nodes of others"),
        pytest.param(replace(GHOST, nodes=("n7",), limit_s=DAY), 1, id="beyond its limit"),
        pytest.param(replace(GHOST, gpus=4), 1, id="on a part of nodes of others"),
        pytest.param(replace(GHOST, nodes=("n7",)), 0, id="alone"),
        pytest.param(replace(GHOST, gpus=0), 0, id="on processors beside"),
        pytest.param(replace(GHOST, start=27 * DAY, runtime_s=3 * DAY), 0, id="the last one"),
        pytest.param(replace(GHOST, end=DAY, state="COMPLETED", runtime_s=None), 0, id="over"),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["inventory", "jobs alone"])
def test_a_job_that_accounting_forgot_to_end_makes_hours_doubtful(
    tmp_path: Path, ghost: Attempt, found: int, known: bool
) -> None:
    others = [
        Attempt(10 * day + n, (f"n{n}",), day * DAY, (day + 3) * DAY - HOUR)
        for day in range(3, 27, 3)
        for n in (1, 2, 3)
    ]
    inventory = dict.fromkeys(("n1", "n2", "n3", "n7"), 8) if known else {}
    log = Log([*others, ghost], nodes=inventory).open(tmp_path)
    assert log.runaways == found
    doubts = [each for each in fleet.goodput(log).unknowns() if each.doubt]
    assert len(doubts) == found
