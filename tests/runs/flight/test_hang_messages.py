"""Sends, receives and coalesced blocks, in entries as NCCL records them (seen in the real dumps)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.runs.flight.compact import compact
from holdfast.runs.flight.dumps import Dumps
from holdfast.runs.flight.verdict import HangVerdict, judge_dumps

START_NS = 1_800_000_000_000_000_000


def entry(
    name: str, sequence: int, p2p: int = 0, state: str = "completed", **other: Any
) -> dict[str, Any]:
    size = other.pop("size", 16)
    return {
        "process_group": ("0", "default_pg"),
        "pg_id": 0,
        "profiling_name": f"nccl:{name}",
        "collective_seq_id": sequence,
        "p2p_seq_id": p2p,
        "is_p2p": name.startswith(("send", "recv")),
        "state": state,
        "retired": False,
        "input_sizes": [[size]],
        "output_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "timeout_ms": 600_000,
    } | other


def verdict(*ranks: list[dict[str, Any]], world: int | None = None) -> HangVerdict:
    """The verdict on one list of entries a rank; entries of all ranks are made in turn."""
    members = str(list(range(world or len(ranks))))
    dumps = {}
    for rank, entries in enumerate(ranks):
        for place, each in enumerate(entries):
            each.setdefault("record_id", place)
            each.setdefault("time_created_ns", START_NS + 1000 * place + rank)
        document = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": members}},
            "entries": entries,
        }
        dumps[rank] = compact(document, f"rank_{rank}")
    return judge_dumps(Dumps(dumps, ()))


def test_a_receive_without_a_send() -> None:
    found = verdict(
        [entry("barrier", 1), entry("send 0->1", 1, 1), entry("barrier", 2, 1, "scheduled")],
        [entry("barrier", 1), entry("recv 1<-0", 1, 1), entry("recv 1<-2", 1, 2, "scheduled")],
        [entry("barrier", 1)],
    )
    assert found.verdict == "missing_ranks"
    assert found.missing_ranks == (2,)


def test_a_receive_alone_names_its_sender() -> None:
    found = verdict(
        [entry("barrier", 1), entry("recv 0<-1", 1, 1, "started")], [entry("barrier", 1)]
    )
    assert found.missing_ranks == (1,)
    assert "Rank 0 waits in a receive from rank 1" in found.sentence


def test_both_sides_inside_is_stuck() -> None:
    found = verdict([entry("recv 0<-1", 0, 1, "started")], [entry("send 1->0", 0, 1, "started")])
    assert found.verdict == "stuck_inside"


def test_a_send_that_does_not_fit_its_receive() -> None:
    found = verdict(
        [entry("recv 0<-1", 0, 1, "started", size=8)], [entry("send 1->0", 0, 1, "started")]
    )
    assert found.verdict == "mismatch"
    assert [each["ranks"] for each in found.evidence.differences] == [[0], [1]]


def test_two_receives_that_wait_for_each_other() -> None:
    found = verdict(
        [entry("recv 0<-1", 0, 1, "scheduled")], [entry("recv 1<-0", 0, 1, "scheduled")]
    )
    assert found.verdict == "mismatch"
    assert "circle" in found.sentence


def test_an_outstanding_send_does_not_excuse_its_rank() -> None:
    """Rank 1 sent without waiting and stopped; rank 0 receives only after the barrier."""
    found = verdict(
        [entry("barrier", 1), entry("barrier", 2, 0, "scheduled")],
        [entry("barrier", 1), entry("send 1->0", 1, 1, "scheduled")],
    )
    assert found.verdict == "missing_ranks"
    assert found.missing_ranks == (1,)
    assert found.collective == "barrier"


def closing(sequence: int, p2p: int, state: str) -> dict[str, Any]:
    none: list[Any] = []
    return entry("coalesced", sequence, p2p, state) | {
        "input_sizes": none,
        "output_sizes": none,
        "input_dtypes": none,
        "output_dtypes": none,
    }


def batch(rank: int, sequence: int, p2p: int, state: str) -> list[dict[str, Any]]:
    after, before = (rank + 1) % 3, (rank - 1) % 3
    return [
        entry(f"send {rank}->{after}", sequence, p2p, "scheduled"),
        entry(f"recv {rank}<-{before}", sequence, p2p, "scheduled"),
        closing(sequence, p2p, state),
    ]


def test_a_batch_that_completed_is_not_stuck_though_its_parts_stay_scheduled() -> None:
    found = verdict(*([entry("barrier", 1), *batch(rank, 1, 1, "completed")] for rank in range(3)))
    assert found.verdict == "no_hang"


def test_the_end_of_a_batch_is_no_collective() -> None:
    """It repeats the number of the last collective; one rank has had none since."""
    found = verdict(
        *(
            [entry("barrier", 1), *batch(rank, 1, 1, "completed"), entry("all_reduce", 2)]
            for rank in range(3)
        )
    )
    assert found.verdict == "no_hang"


def test_batches_of_some_leave_the_others_alone() -> None:
    """The numbers of messages run ahead of those of collectives; who sends nothing misses nothing."""
    pair = [[entry("barrier", 1), *two(rank, 1), *two(rank, 2), *two(rank, 3)] for rank in range(2)]
    found = verdict(*pair, [entry("barrier", 1)])
    assert found.verdict == "no_hang", found.sentence


def two(rank: int, p2p: int) -> list[dict[str, Any]]:
    """A batch of ranks 0 and 1, between the barriers 1 and 2."""
    other = 1 - rank
    return [
        entry(f"send {rank}->{other}", 1, p2p, "scheduled"),
        entry(f"recv {rank}<-{other}", 1, p2p, "scheduled"),
        closing(1, p2p, "completed"),
    ]


def test_a_rank_that_has_forgotten_a_group_can_still_be_missing_from_it() -> None:
    """Its ring buffer is full of another group; the others have passed number 4 and wait in 5."""
    pair = {"process_group": ("1", "pair")}
    busy = [entry("all_reduce", 90 + place, **pair) for place in range(4)]
    for place, each in enumerate(busy):
        each["record_id"] = 200 + place
    waiting = [entry("all_reduce", 4), entry("all_reduce", 5, 0, "started")]
    found = verdict([dict(each) for each in waiting], waiting, busy)
    assert found.verdict == "missing_ranks"
    assert (found.missing_ranks, found.sequence) == ((2,), 5)
    assert "holds nothing of the group" in " ".join(found.evidence.remarks)


def test_who_leaves_a_batch_out_is_missing() -> None:
    found = verdict(
        [entry("barrier", 1), *batch(0, 1, 1, "started")],
        [entry("barrier", 1), *batch(1, 1, 1, "started")],
        [entry("barrier", 1)],
    )
    assert found.verdict == "missing_ranks"
    assert found.missing_ranks == (2,)


def test_a_batch_whose_beginning_was_overwritten_is_left_out() -> None:
    ranks = [[*batch(rank, 5, 9, "completed")[2:], entry("barrier", 6)] for rank in range(3)]
    for entries in ranks:
        for place, each in enumerate(entries):
            each["record_id"] = 100 + place
    assert verdict(*ranks).verdict == "no_hang"


@pytest.mark.parametrize("state", ["started", "scheduled"])
def test_coalesced_collectives_are_over_when_one_of_their_entries_is(state: str) -> None:
    """Seen in a real dump: the operation completed, its closing entry not yet."""
    found = verdict(*([entry("allreduce_coalesced", 1), closing(1, 0, state)] for _ in range(3)))
    assert found.verdict == "no_hang"


def test_queued_behind_another_group_is_a_consequence() -> None:
    """All members have queued it, but their devices wait in an older operation of another group."""
    pair = {"process_group": ("1", "pair")}
    found = verdict(
        [entry("all_reduce", 1, 0, "started"), entry("all_reduce", 1, 0, "scheduled", **pair)],
        [entry("all_reduce", 1, 0, "started"), entry("all_reduce", 1, 0, "scheduled", **pair)],
        [],
    )
    assert found.verdict == "missing_ranks"
    assert (found.missing_ranks, found.group) == ((2,), "default_pg")


def test_old_formats() -> None:
    """Before 2.0 one number counted all, and groups had no names."""
    old = {"process_group": None, "collective_seq_id": None, "is_p2p": None}
    ranks = [[entry("all_reduce", 0, seq_id=1, **old)] for _ in range(3)]
    for entries in ranks[:2]:
        entries.append(entry("all_reduce", 0, 0, "started", seq_id=2, **old))
    found = verdict(*ranks)
    assert found.verdict == "missing_ranks"
    assert found.missing_ranks == (2,)
    assert found.sequence == 2


def test_a_group_of_which_one_member_is_visible_is_not_whole() -> None:
    """Rank 2 of three left no dump, and nothing says how many ranks there are."""
    dumps = {}
    for rank in (0, 1):
        waiting = entry("all_reduce", 1, state="scheduled") | {
            "process_group": (f"{rank + 1}", "pair"),
            "profiling_name": "gloo:all_reduce",
            "record_id": 0,
            "time_created_ns": START_NS + rank,
        }
        dumps[rank] = compact({"version": "2.10", "entries": [waiting]}, f"rank_{rank}")
    found = judge_dumps(Dumps(dumps, ()))
    assert (found.verdict, found.missing_ranks) == ("inconclusive", ())
