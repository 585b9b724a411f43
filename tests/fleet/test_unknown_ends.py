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
