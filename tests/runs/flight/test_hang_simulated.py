"""Random programs with a known fault, executed by brute force until they hang: is the fault named?"""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_hangs import START_NS, Call, Job, dump_of, random_job, run

from holdfast.runs.flight.compact import compact
from holdfast.runs.flight.dumps import Dumps
from holdfast.runs.flight.verdict import HangVerdict, hang, judge_dumps

JOBS = st.tuples(st.integers(0, 10**9), st.integers(2, 9), st.integers(4, 40))
RINGS = st.sampled_from([2000, 2000, 12, 5])


def verdict(job: Job, ring: int = 2000, without: tuple[int, ...] = ()) -> HangVerdict:
    dumps = {
        rank: replace(compact(dump_of(job, rank, ring), f"rank_{rank}"), stacks=False)
        for rank in range(len(job.programs))
        if rank not in without
    }
    return judge_dumps(Dumps(dumps, ()))


def made(seed: int, ranks: int, calls: int) -> tuple[random.Random, Job]:
    draw = random.Random(seed)
    return draw, random_job(draw, ranks, calls)


@pytest.mark.parametrize("stopped", [6, 30])
@pytest.mark.parametrize("minutes", [12, 70])
def test_a_dump_of_the_attempt_before_hides_no_hang(stopped: int, minutes: int) -> None:
    """Nobody overwrote rank 2's dump: its new process left none. It had come less far, or further."""
    before, after = made(5, 4, 40)[1], made(5, 4, 40)[1]
    before.stops_at, after.stops_at = {2: stopped}, {1: 20}
    run(before)
    run(after)
    for entry in before.entries[2]:
        entry["time_created_ns"] -= minutes * 60 * 10**9
    after.entries[2] = before.entries[2]
    found = verdict(after)
    assert (found.verdict, found.missing_ranks) == ("missing_ranks", (1,))
    if stopped == 30 or minutes == 70:  # else it is known to be older
        assert [aside.file for aside in found.evidence.set_aside] == ["rank_2"]


def waits_for_nobody(job: Job) -> set[int]:
    """Ranks that are in no operation and have not finished."""
    return {
        rank
        for rank, entries in enumerate(job.entries)
        if all(each["retired"] for each in entries) and job.position[rank] < len(job.programs[rank])
    }


@settings(deadline=None, max_examples=60)
@given(JOBS, RINGS)
def test_what_ends_is_no_hang(shape: tuple[int, int, int], ring: int) -> None:
    _, job = made(*shape)
    run(job)
    assert job.ended
    assert verdict(job, ring).verdict == "no_hang"


@settings(deadline=None, max_examples=150)
@given(JOBS, RINGS)
def test_the_rank_that_stops_is_named(shape: tuple[int, int, int], ring: int) -> None:
    draw, job = made(*shape)
    culprit = draw.randrange(len(job.programs))
    if not job.programs[culprit]:
        return
    job.stops_at[culprit] = draw.randrange(len(job.programs[culprit]))
    run(job)
    assert waits_for_nobody(job) == {culprit}
    found = verdict(job, ring)
    waiting = any(not each["retired"] for entries in job.entries for each in entries)
    if not waiting:  # nobody needed it any more
        assert found.verdict == "no_hang"
        return
    assert found.verdict == "missing_ranks", found.sentence
    assert found.missing_ranks == (culprit,)
    blocked = job.programs[culprit][job.stops_at[culprit] :]
    assert found.group in {f"group{call.group}" for call in blocked}


@settings(deadline=None, max_examples=60)
@given(JOBS)
def test_several_that_stop_are_all_that_may_be_named(shape: tuple[int, int, int]) -> None:
    draw, job = made(*shape)
    culprits = [rank for rank in draw.sample(range(len(job.programs)), 2) if job.programs[rank]]
    for rank in culprits:
        job.stops_at[rank] = draw.randrange(len(job.programs[rank]))
    run(job)
    found = verdict(job)
    if found.verdict == "missing_ranks":
        assert set(found.missing_ranks) <= set(culprits)
        assert found.missing_ranks
    else:
        assert found.verdict == ("no_hang" if any(job.entries) else "inconclusive")
        assert all(each["retired"] for entries in job.entries for each in entries)


@settings(deadline=None, max_examples=80)
@given(JOBS)
def test_a_killed_rank_is_a_suspect(shape: tuple[int, int, int]) -> None:
    draw, job = made(*shape)
    culprit = draw.randrange(len(job.programs))
    if not job.programs[culprit]:
        return
    job.stops_at[culprit] = draw.randrange(len(job.programs[culprit]))
    run(job)
    found = verdict(job, without=(culprit,))
    others = [entries for rank, entries in enumerate(job.entries) if rank != culprit]
    assert found.missing_ranks == ()
    if any(not each["retired"] for entries in others for each in entries):
        assert found.verdict == "missing_ranks"
        assert found.unknown_ranks == (culprit,)
        assert "left no dump" in found.sentence
    else:
        assert found.verdict in ("inconclusive", "no_hang")


@settings(deadline=None, max_examples=100)
@given(JOBS, st.sampled_from(["size", "kind"]))
def test_another_call_is_a_mismatch_there(shape: tuple[int, int, int], fault: str) -> None:
    draw, job = made(*shape)
    culprit = draw.randrange(len(job.programs))
    program = job.programs[culprit]
    if not program:
        return
    place = draw.randrange(len(program))
    call = program[place]
    if fault == "size":
        wrong = replace(call, size=call.size + len(job.groups[call.group]))
    else:
        wrong = replace(call, kind="all_to_all" if call.kind == "broadcast" else "broadcast")
    job.programs[culprit] = [*program[:place], wrong, *program[place + 1 :]]
    run(job)
    found = verdict(job)
    assert found.verdict == "mismatch", found.sentence
    assert found.group == f"group{call.group}"
    sequence = sum(each.group == call.group for each in program[: place + 1])
    assert found.sequence == sequence
    if len(job.groups[call.group]) == len(job.programs) > 2:
        assert found.divergence is not None
    assert found.divergence is None or found.divergence.rank == culprit
    parts = found.evidence.differences
    assert any(each["ranks"] == [culprit] for each in parts) or len(job.groups[call.group]) == 2


@settings(deadline=None, max_examples=100)
@given(JOBS)
def test_a_skipped_call_is_seen_or_leaves_its_rank_behind(shape: tuple[int, int, int]) -> None:
    """Where the next calls of the group look alike, only the end tells: the rank is one behind."""
    draw, job = made(*shape)
    culprit = draw.randrange(len(job.programs))
    program = job.programs[culprit]
    if not program:
        return
    place = draw.randrange(len(program))
    job.programs[culprit] = [*program[:place], *program[place + 1 :]]
    run(job)
    found = verdict(job)
    assert found.verdict in ("missing_ranks", "mismatch"), found.sentence
    assert found.divergence is None or found.divergence.rank == culprit
    if found.verdict == "missing_ranks":
        assert culprit in found.missing_ranks


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9), st.integers(3, 8))
def test_opposite_order_is_a_circle(seed: int, ranks: int) -> None:
    """One rank calls the operations of two groups in the other order than the rest."""
    draw = random.Random(seed)
    job = random_job(draw, ranks, 0)
    job.groups += [tuple(range(ranks))]
    first, second = 0, len(job.groups) - 1
    pair = [simulated_call(first), simulated_call(second)]
    job.programs = [pair if rank else pair[::-1] for rank in range(ranks)]
    run(job)
    found = verdict(job)
    assert found.verdict == "mismatch"
    assert "circle" in found.sentence
    assert {each["group"] for each in found.evidence.operations} == {
        f"group{first}",
        f"group{second}",
    }


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 4), st.integers(2, 3), st.integers(2, 20), st.randoms(use_true_random=False))
def test_who_leaves_a_collective_out_is_named_by_counts(
    width: int, height: int, steps: int, draw: random.Random
) -> None:
    """Rows and columns reduce in turn, everybody meets at the end; one rank skips one of its column."""
    ranks = range(width * height)
    rows = [tuple(ranks[row * width : (row + 1) * width]) for row in range(height)]
    columns = [tuple(ranks[column::width]) for column in range(width)]
    groups = [tuple(ranks), *rows, *columns]
    programs = [
        [
            simulated_call(place)
            for _ in range(steps)
            for place in (1 + r // width, 1 + height + r % width)
        ]
        for r in ranks
    ]
    culprit = draw.choice(ranks)
    del programs[culprit][2 * draw.randrange(steps) + 1]
    job = Job(groups, [[*program, simulated_call(0)] for program in programs])
    run(job)
    found = verdict(job)
    # With one other rank in the row and column alone, either could be the one that is wrong.
    expected = (culprit,) if len(ranks) > 4 else ((culprit,), ())
    assert found.verdict == "mismatch"
    assert found.missing_ranks == expected or found.missing_ranks in expected


def simulated_call(group: int) -> Call:
    return Call(group, "all_reduce", 8)


@pytest.mark.parametrize("late", [0, 3])
def test_a_dump_that_is_older_than_the_others_is_not_blamed(late: int) -> None:
    """A healthy job of which one rank was dumped earlier: it lacks what the others have completed."""
    _, job = made(7, 4, 0)
    job.programs = [[simulated_call(0)] * 10 for _ in range(4)]
    run(job)
    job.entries[late] = job.entries[late][:6]
    job.entries[late][-1] |= {"state": "started", "retired": False}
    found = verdict(job)
    assert found.verdict == "no_hang"
    assert found.evidence.older_dumps == {late: None}


def stamped(
    job: Job, at_s: dict[int, float], clocks_s: dict[int, float] | None = None
) -> HangVerdict:
    """The verdict on dumps that say when they were made, seconds after the job's start.

    Args:
        job: a job that has run.
        at_s: rank -> when; its dump contains what it had entered by then.
        clocks_s: rank -> what its clock is ahead, each rank on a host of its own.
    """
    dumps = {}
    for rank, at in at_s.items():
        ahead_ns = int(1e9 * (clocks_s or {}).get(rank, 0.0))
        document = dump_of(job, rank)
        made_ns = START_NS + int(at * 1e9)
        entries = [dict(each) for each in document["entries"] if each["time_created_ns"] <= made_ns]
        for each in entries:
            if (each["time_discovered_completed_ns"] or 0) > made_ns:
                each |= {"state": "started", "retired": False}
            each["time_created_ns"] += ahead_ns
        document["entries"] = entries
        document["holdfast"] = {
            "rank": rank,
            "world_size": len(job.programs),
            "host": f"node{rank}",
            "dumped_ns": made_ns + ahead_ns,
        }
        dumps[rank] = compact(document, f"rank_{rank}")
    return judge_dumps(Dumps(dumps, ()))


def broadcasts_that_hang(stops: int) -> Job:
    """Four ranks, 1,000 broadcasts (which the source may leave before the others come), 10 ms per entry."""
    job = Job([(0, 1, 2, 3), (0, 3)], [])
    job.programs = [[Call(0, "broadcast", 8)] * 250 for _ in range(4)]
    job.programs[0] = job.programs[0] + [Call(1, "all_reduce", 8)]
    job.programs[3] = job.programs[3] + [Call(1, "all_reduce", 8)]
    job.stops_at = {stops: 249}
    run(job)
    return job


@pytest.mark.quick(1)
@pytest.mark.parametrize("clocks", [{}, {1: 3600.0}, {1: -1800.0, 2: 30.0}, {0: 5.0}])
def test_a_dump_from_an_earlier_silence_is_not_the_state_at_the_hang(
    clocks: dict[int, float],
) -> None:
    job = broadcasts_that_hang(stops=2)
    honest = stamped(job, dict.fromkeys(range(4), 30.0), clocks)
    assert (honest.verdict, honest.missing_ranks) == ("missing_ranks", (2,))
    assert honest.evidence.older_dumps == {}
    assert max(each["for_s"] for each in honest.evidence.operations) < 30
    # Rank 1 dumped at 1 s, in an earlier silence: it seems to have entered 25 broadcasts only.
    found = stamped(job, {0: 30.0, 1: 1.0, 2: 30.0, 3: 30.0}, clocks)
    assert found.missing_ranks == (2,)
    assert found.evidence.older_dumps == {1: pytest.approx(29, abs=0.1)}
    # The culprit's own dump is the older one: nobody is named without evidence, and it is said.
    found = stamped(job, {0: 30.0, 1: 30.0, 2: 1.0, 3: 30.0}, clocks)
    assert (found.missing_ranks, found.unknown_ranks) == ((), (2,))
    assert found.evidence.older_dumps == {2: pytest.approx(29, abs=0.1)}


def test_clocks_are_compared_through_groups_that_overlap() -> None:
    """No group has all nodes: 0 and 1 share one, 1 and 2, 2 and 3, each with a clock of its own."""
    pairs: list[tuple[int, ...]] = [(0, 1), (1, 2), (2, 3)]
    job = Job(
        pairs, [[Call(n, "all_reduce", 8) for n in range(3) if r in pairs[n]] * 5 for r in range(4)]
    )
    job.stops_at = {3: 4}
    run(job)
    found = stamped(job, dict.fromkeys(range(4), 30.0), {1: 3600.0, 2: -50.0, 3: 700.0})
    same = stamped(job, dict.fromkeys(range(4), 30.0))
    assert found.missing_ranks == same.missing_ranks == (3,)
    waits = [[each["for_s"] for each in one.evidence.operations] for one in (found, same)]
    assert waits[0] == pytest.approx(waits[1], abs=0.1)


def test_what_one_group_shows_of_a_dumps_age_holds_in_all_groups() -> None:
    """Rank 3 was dumped before rank 0 completed an all_reduce with it: no broadcast blames it either."""
    job = Job([(0, 1, 2, 3), (0, 3)], [])
    ring, pair = Call(0, "broadcast", 8), Call(1, "all_reduce", 8)
    job.programs = [[ring, pair, ring], [ring, ring], [ring, ring], [ring, pair, ring]]
    job.stops_at = {1: 1}
    run(job)
    job.entries[3] = job.entries[3][:1]
    found = verdict(job)
    assert (found.missing_ranks, found.evidence.older_dumps) == ((1,), {3: None})


@pytest.mark.parametrize("age_s", [9.0, -9.0])
def test_a_file_time_is_a_hint_where_dumps_say_no_time(tmp_path: Path, age_s: float) -> None:
    job = broadcasts_that_hang(stops=2)
    for rank in range(4):
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(dump_of(job, rank)))
    entered_s = max(each["time_created_ns"] for each in job.entries[0]) / 1e9
    os.utime(tmp_path / "rank_2.json", (entered_s - age_s, entered_s - age_s))
    found = hang(tmp_path)
    assert found.missing_ranks == (2,)
    assert any("9 s before" in each for each in found.evidence.remarks) == (age_s > 0)
