"""How attempts end: each rule with the case that it must not take for its own."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from goodput.building import Script, recorded, written
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_hangs import dump_of, random_job
from simulated_hangs import run as simulate

from holdfast.runs import diagnose, hang, replay
from holdfast.runs.goodput.accounting import breakdown
from holdfast.runs.goodput.ending import Ending, LastSigns, ending_of
from holdfast.runs.goodput.report import report
from holdfast.runs.watching.notices import Notice

CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:21514"
LATE = "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"
NCCL = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
OWN = "MemoryError: cannot allocate the embedding"


def signs(*ranks: tuple[str, str, float]) -> list[LastSigns]:
    """Ranks 0, 1, ...: end, what it said, its last line; heartbeats of a second."""
    return [
        LastSigns(rank, end, detail, last, 1.0)  # type: ignore[arg-type]
        for rank, (end, detail, last) in enumerate(ranks)
    ]


CLEAN, GONE = ("clean", "", 60.0), ("none", "", 12.0)
CASES = {
    "clean": (signs(CLEAN, CLEAN), 0.0, ("clean", False, None)),
    "one left no end": (signs(CLEAN, GONE, CLEAN), 0.0, ("killed", False, 1)),
    # The others notice at once, after some seconds, or through a chain of each other.
    "killed, noticed at once": (
        signs(("exception", CLOSED, 12.3), GONE, ("exception", CLOSED, 12.3)),
        0.3,
        ("killed", False, 1),
    ),
    "killed, noticed late": (
        signs(("exception", CLOSED, 20.0), ("exception", NCCL, 20.1), GONE),
        8.1,
        ("killed", False, 2),
    ),
    "killed, the others by a signal": (
        signs(("signal", "", 12.1), ("signal", "", 12.2), GONE),
        0.2,
        ("killed", False, 2),
    ),
    "two on one node": (
        signs(("exception", CLOSED, 20.0), GONE, ("none", "", 12.5)),
        8.0,
        ("killed", False, None),
    ),
    "frozen": (
        signs(("exception", LATE, 60.0), GONE, ("exception", CLOSED, 60.2)),
        50.0,
        ("killed", True, 1),
    ),
    "hung, until one was killed": (
        signs(("exception", CLOSED, 60.3), ("none", "", 60.0), ("signal", "", 60.4)),
        50.0,
        ("killed", True, None),
    ),
    "all hung until a timeout": (
        signs(("exception", LATE, 60.0), ("exception", LATE, 60.1)),
        50.0,
        ("exception", True, None),
    ),
    "all hung until a signal": (
        signs(("signal", "", 60.0), ("signal", "", 60.0)),
        50.0,
        ("signal", True, None),
    ),
    "a signal": (signs(("signal", "", 12.0), ("signal", "", 12.0)), 0.5, ("signal", False, None)),
    "own exception": (
        signs(("exception", CLOSED, 12.1), ("exception", OWN, 12.0), ("signal", "", 12.2)),
        0.2,
        ("exception", False, 1),
    ),
    "own exception, written after its followers'": (
        signs(("exception", CLOSED, 12.0), ("exception", OWN, 12.4)),
        0.4,
        ("exception", False, 1),
    ),
    "own exception, then kills": (
        signs(("exception", OWN, 12.0), ("none", "", 12.4)),
        0.4,
        ("exception", False, 0),
    ),
    "own exception after a silent pause": (
        signs(("exception", OWN, 60.0), ("signal", "", 60.1)),
        48.0,
        ("exception", False, 0),
    ),
    "own exception long after a kill": (
        signs(("exception", OWN, 20.0), GONE),
        8.0,
        ("killed", False, 1),
    ),
    "its own pipe broke, another was killed at once": (
        signs(
            ("exception", "BrokenPipeError: [Errno 32] Broken pipe", 12.0),
            ("none", "", 11.95),
            ("exception", CLOSED, 12.1),
        ),
        0.2,
        ("exception", False, 0),
    ),
    "its own store is gone": (
        signs(
            ("exception", "ConnectionRefusedError: [Errno 111] Connection refused", 12.0),
            ("exception", CLOSED, 12.1),
        ),
        0.2,
        ("exception", False, 0),
    ),
    "lost each other": (
        signs(("exception", CLOSED, 12.0), ("exception", CLOSED, 12.0)),
        0.2,
        ("exception", False, None),
    ),
    "killed together": (signs(GONE, ("none", "", 12.4)), 0.4, ("killed", False, None)),
    "one process that lost a server": (
        signs(("exception", "ConnectionRefusedError: [Errno 111] Connection refused", 12.0)),
        0.1,
        ("exception", False, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_how_it_ended(name: str) -> None:
    ranks, stalled_s, (kind, hung, first) = CASES[name]
    progress_s = max(each.last_s for each in ranks) - stalled_s
    found = ending_of(ranks, progress_s, 1.0, running=False)
    shown = (found.kind, found.hung, found.first and found.first.rank)
    assert shown == (kind, hung, first)
    # Before the first step nothing says how long a start takes: it is never called hung.
    assert not ending_of(ranks, progress_s, None, running=False).hung
    if name not in ("clean", "one left no end"):
        alive = [replace(each, end="none") for each in ranks]
        assert ending_of(alive, 60.0, 1.0, running=True) == Ending("running")


@settings(max_examples=20)
@given(st.sampled_from(sorted(CASES)), st.randoms(use_true_random=False), st.floats(-1e6, 1e6))
def test_neither_the_order_of_ranks_nor_the_clock_counts(
    name: str, random: object, shift_s: float
) -> None:
    ranks, stalled_s, _ = CASES[name]
    moved = [replace(each, last_s=each.last_s + round(shift_s)) for each in ranks]
    random.shuffle(moved)  # type: ignore[attr-defined]
    found, other = (
        ending_of(each, max(one.last_s for one in each) - stalled_s, 1.0, running=False)
        for each in (ranks, moved)
    )
    assert (found.kind, found.hung) == (other.kind, other.hung)
    assert (found.first and found.first.rank) == (other.first and other.first.rank)


def test_a_failed_start_is_its_exception() -> None:
    failed = Script(ready=None, end="exception", last=14, end_detail=OWN).at("alive", 10)
    again = Script(attempt=1, start_s=20, ready=2, end="clean").steps(1, 3, 2, 1.0)
    made = breakdown(recorded([failed, again]))
    assert (made.attempts[0].hung, made.attempts[0].ended) == (False, "exception")
    assert (made.attempts[0].first_rank_gone, made.attempts[0].cause) == (0, OWN)
    # Later starts take two seconds: one that has not moved for longer than ten of them hangs.
    for last, hung in ((19, False), (21, True)):
        still = Script(ready=None, last=last).at("alive", last)
        attempts = breakdown(recorded([still, replace(again, start_s=30)])).attempts
        assert (attempts[0].hung, attempts[0].ended) == (hung, "killed")


def test_the_report_tells_who_went_first_and_where_the_loss_was_lost() -> None:
    ranks = [
        Script(rank=rank, world_size=3, end="exception", end_detail=CLOSED, last=20)
        .steps(1, 8, 0, 1.0, loss=1.0)
        .steps(9, 4, 8, 1.0, loss=loss)
        for rank, loss in ((0, 1.0), (1, math.nan), (2, math.inf))
    ]
    ranks[1].end, ranks[1].last, ranks[1].end_detail = "none", None, ""
    ranks[2].events[8]["loss"] = None  # not recorded: no number that is not finite
    after = Script(attempt=1, start_s=30, end="clean").steps(1, 12, 0, 1.0)
    answer = report(recorded([*ranks, after]))
    (attempt, _) = answer.breakdown.attempts
    assert (attempt.ended, attempt.hung, attempt.first_rank_gone) == ("killed", False, 1)
    assert answer.to_dict()["losses_not_finite"] == [
        {"attempt": 1, "first_step": 9, "ranks": [1], "steps": 4}
    ]
    told = {each.lead: each.text for each in answer.findings()}
    assert attempt.sentence in told["1 interruption in 2 attempts"]
    assert "rank 1 on node0 " in attempt.sentence
    assert "rank 1 " in told["The loss"]
    assert breakdown(recorded([after])).losses_not_finite == ()


QUICK = ("killed, noticed late", "frozen", "own exception, written after its followers'")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in CASES],
)
def test_every_command_says_the_same_of_the_end(name: str, tmp_path: Path) -> None:
    ranks, stalled_s, (kind, hung, first) = CASES[name]
    progress_s = max(each.last_s for each in ranks) - stalled_s
    scripts = []
    for each in ranks:
        moved_s = min(progress_s, each.last_s)
        script = Script(rank=each.rank, world_size=len(ranks), node=f"n{each.rank}")
        script.steps(1, 11, moved_s - 11, 1.0)
        for second in range(math.ceil(each.last_s - moved_s)):
            script.at("alive", moved_s + second)
        script.last, script.end, script.end_detail = each.last_s, each.end, each.detail
        scripts.append(script)
    run = written(scripts, tmp_path) / "run"
    (run / "flight").mkdir()
    job = random_job(random.Random(0), ranks=max(2, len(ranks)), calls=4)
    simulate(job)
    for each in ranks:
        dump = json.dumps(dump_of(job, each.rank))
        (run / "flight" / f"rank_{each.rank}.json").write_text(dump)
    (run / "output.log").write_text("[rank0]: " + CLOSED + "\n")
    attempt = breakdown(tmp_path).attempts[-1]
    expected = {
        "attempt": 1,
        "ended": kind,
        "hung": hung,
        "first_rank": first,
        "sentence": attempt.sentence,
    }
    # The node stands where the rank does: no other one may be blamed.
    assert (f" on n{first} " in attempt.sentence) == (first is not None)
    hanging = hang(run / "flight").to_dict()
    diagnosed = diagnose(run / "output.log").to_dict()
    watched = replay(run).to_dict()
    assert [each["ending"] for each in (hanging, diagnosed, watched)] == [expected] * 3
    if first is not None:
        assert (diagnosed["sentence"], diagnosed["first_rank"]) == (attempt.sentence, first)


def test_an_alarm_of_a_run_that_is_down_says_its_end_too(tmp_path: Path) -> None:
    failed = Script(end="exception", end_detail=OWN).steps(1, 20, 0, 1.0)
    again = Script(attempt=1, start_s=500, end="clean").steps(1, 20, 0, 1.0)
    told: list[Notice] = []
    replay(written([failed, again], tmp_path) / "run", on_notice=told.append)
    opened = next(each.change for each in told if each.change.event == "opened")
    sentence = breakdown(tmp_path).attempts[0].sentence
    assert (opened.alarm.kind, opened.alarm.evidence["ending"]["first_rank"]) == ("down", 0)
    assert sentence in opened.sentence
