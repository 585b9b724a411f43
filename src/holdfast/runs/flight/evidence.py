"""What a verdict rests on: who waits where, who is missing and what it did last, stacks, what was lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.numbers import duration
from holdfast.plain import plain
from holdfast.runs.flight.alignment import AlignedGroup, Alignment
from holdfast.runs.flight.dumps import SetAside, read_frames
from holdfast.runs.flight.mismatches import Mismatch
from holdfast.runs.flight.record import LEFT
from holdfast.runs.flight.stuck import Stuck, StuckOperations
from holdfast.runs.flight.waits import Root, consequences
from holdfast.runs.flight.wording import state_name, where
from holdfast.runs.ranks import ranges

MOST_RANKS = 32
"""Ranks of each kind of whom details are given."""
MOST_STACKS = 4
"""Dumps that are read again for their stacks, of each kind."""

Stacks = Mapping[tuple[int, int], list[dict[str, Any]]]
"""Rank and record -> frames, innermost first; empty where the dump has none."""


@dataclass(frozen=True)
class Evidence:
    """The facts behind a verdict. Every list of ranks is of global ranks, in order."""

    dumps: int
    """Used for the verdict."""
    world_size: int
    """Ranks that the dumps know of."""
    ranks_without_dump: tuple[int, ...]
    set_aside: tuple[SetAside, ...]
    operations: tuple[Mapping[str, Any], ...]
    """Every operation that did not end, the root first: group, members, sequence, collective, who is inside
    in which state, who is missing, since when, and ``for_s`` (at least so long)."""
    differences: tuple[Mapping[str, Any], ...]
    """Requests of the disagreeing ranks and their stacks, for a mismatch."""
    ranks: tuple[Mapping[str, Any], ...]
    """The ranks concerned, missing ones first: role, last entry, place in the program where known."""
    older_dumps: Mapping[int, float | None]
    """Rank -> seconds by which its dump is older than the others' (median), None where dumps do not say
    when they were made: it shows nothing about the hang."""
    lost: Mapping[str, Any]
    """What ring buffers had forgotten."""
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        older = [{"rank": rank, "before_s": before} for rank, before in self.older_dumps.items()]
        facts: dict[str, Any] = plain(vars(self))
        return {**facts, "older_dumps": older}


def gather(
    table: Alignment,
    stuck: StuckOperations,
    root: Root | None,
    mismatch: Mismatch | None,
    aside: Sequence[SetAside],
    remarks: Sequence[str],
) -> Evidence:
    """Collect the facts; reads a few files again for their stacks."""
    roots = [] if root is None else [*root.operations]
    ordered = [*roots, *(consequences(root, stuck.operations) if root else [])]
    at_ns = now_ns(table)
    inside = {rank: row for each in reversed(roots) for rank, row in each.waiting.items()}
    stacks = _stacks(table, inside, mismatch)
    return Evidence(
        dumps=len(table.dumps),
        world_size=len(table.world),
        ranks_without_dump=tuple(rank for rank in table.world if rank not in table.dumps),
        set_aside=tuple(aside),
        operations=tuple(
            _operation(table, each, any(each is own for own in roots), at_ns) for each in ordered
        ),
        differences=() if mismatch is None else _differences(table, mismatch, stacks),
        ranks=() if root is None else _ranks(table, inside, root, stacks),
        older_dumps=(older := _older(table, stuck.older)),
        lost=_lost(table, roots),
        remarks=(*remarks, *_remarks(table, older, ordered), *_written_before(table, root)),
    )


def now_ns(table: Alignment) -> int:
    """When the last dump was made, as far as they tell: they say so, or hold a newest entry."""
    told = [at for rank in table.dumps if (at := table.dumped_ns(rank))]
    return max([*told, int(table.rows["created_ns"].max(initial=0))])


def describe(group: AlignedGroup) -> dict[str, Any]:
    """A group as JSON."""
    return {
        "group": group.label,
        "group_name": group.name,
        "group_ranks": list(group.ranks),
        "group_complete": group.complete,
    }


def _operation(table: Alignment, each: Stuck, is_root: bool, at_ns: int) -> dict[str, Any]:
    states: dict[str, list[int]] = defaultdict(list)
    for rank, row in each.waiting.items():
        states[state_name(int(row["state"]))].append(rank)
    timeout_ms = max((int(row["timeout_ms"]) for row in each.waiting.values()), default=0)
    return {
        "root": is_root,
        **describe(table.groups[each.group]),
        "sequence": each.sequence,
        "collective": table.operations[each.operation].name,
        "peers": None if each.peers is None else list(each.peers),
        "waiting_ranks": sorted(each.waiting),
        "states": dict(states),
        "entered_ranks": list(each.entered),
        "missing_ranks": list(each.missing),
        "unknown_ranks": list(each.unknown),
        "since_s": each.since_ns / 1e9 if each.since_ns else None,
        "for_s": max(0.0, (at_ns - each.since_ns) / 1e9) if each.since_ns else None,
        "timeout_s": timeout_ms / 1e3 if timeout_ms else None,
        "failed": each.failed,
    }


def _stacks(
    table: Alignment, inside: Mapping[int, NDArray[np.void]], mismatch: Mismatch | None
) -> Stacks:
    """The stacks of a few ranks inside, and of a few of every variant of a mismatch."""
    wanted: dict[tuple[int, int], None] = {}
    for rank in sorted(inside)[:MOST_STACKS]:
        wanted[(rank, int(inside[rank]["record"]))] = None
    if mismatch is not None:
        for operation in np.unique(mismatch.rows["operation"])[:MOST_RANKS]:
            own = mismatch.rows[mismatch.rows["operation"] == operation][:MOST_STACKS]
            wanted |= dict.fromkeys(zip(own["rank"].tolist(), own["record"].tolist(), strict=True))
    records: dict[str, list[int]] = defaultdict(list)
    for rank, record in wanted:
        if table.dumps[rank].stacks:
            records[table.dumps[rank].file].append(record)
    found = read_frames(records)
    return {
        (rank, record): found.get(table.dumps[rank].file, {}).get(record, [])
        for rank, record in wanted
    }


def _differences(
    table: Alignment, mismatch: Mismatch, stacks: Stacks
) -> tuple[dict[str, Any], ...]:
    """One part for every operation that was asked for, the most frequent first."""
    rows = mismatch.rows
    parts = []
    for operation in np.unique(rows["operation"]):
        own = rows[rows["operation"] == operation]
        made = table.operations[operation]
        here = zip(own["rank"].tolist(), own["record"].tolist(), strict=True)
        stack = next((frames for each in here if (frames := stacks.get(each))), [])
        parts.append(
            {
                "ranks": sorted(own["rank"].tolist()),
                "operation": made.name,
                "input_sizes": [list(each) for each in made.input_sizes],
                "output_sizes": [list(each) for each in made.output_sizes],
                "input_dtypes": list(made.input_dtypes),
                "output_dtypes": list(made.output_dtypes),
                "states": sorted({state_name(state) for state in own["state"]}),
                "where": where(stack),
                "stack": stack,
            }
        )
    return tuple(sorted(parts, key=lambda part: -len(part["ranks"])))


def _ranks(
    table: Alignment, inside: Mapping[int, NDArray[np.void]], root: Root, stacks: Stacks
) -> tuple[dict[str, Any], ...]:
    """Missing ranks first, then those inside: where they are and what they did last."""
    culprits = [*root.culprits][:MOST_RANKS]
    others = [rank for rank in sorted(inside) if rank not in root.culprits]
    told = []
    for rank in [*culprits, *others[:MOST_RANKS]]:
        dump = table.dumps[rank]
        main: list[dict[str, Any]] = next((thread["frames"] for thread in dump.threads), [])
        row = inside.get(rank)
        entered = [] if row is None else stacks.get((rank, int(row["record"])), [])
        told.append(
            {
                "rank": rank,
                "host": dump.host,
                "role": "missing" if rank in culprits else "inside",
                "last": _last(table, rank),
                "where": where(main) or where(entered),
                "stack": main or entered,
                "state": None if row is None else state_name(int(row["state"])),
            }
        )
    return tuple(told)


def _last(table: Alignment, rank: int) -> dict[str, Any] | None:
    """The newest entry of a rank, in whatever group."""
    own = table.rows[table.rows["rank"] == rank]
    if not len(own):
        return None
    row = own[own["place"].argmax()]
    return {
        "group": table.groups[row["group"]].label if row["group"] >= 0 else None,
        "sequence": int(row["sequence"]),
        "collective": table.operations[row["operation"]].name,
        "state": state_name(int(row["state"])),
        "created_s": int(row["created_ns"]) / 1e9,
    }


def _lost(table: Alignment, roots: Sequence[Stuck]) -> dict[str, Any]:
    lost = {rank: table.lost(rank) for rank in table.dumps}
    forgetful = {rank: count for rank, count in lost.items() if count}
    compared_from = None
    if roots and roots[0].kind == "collective":
        rows = table.of_group(roots[0].group)
        rows = rows[~rows["p2p"]]
        starts = np.flatnonzero(np.diff(rows["rank"], prepend=-1))
        compared_from = int(np.minimum.reduceat(rows["sequence"], starts).max())
    return {
        "ranks": len(forgetful),
        "entries_most": max(forgetful.values(), default=0),
        "entries_least": min(forgetful.values(), default=0),
        "compared_from_sequence": compared_from,
    }


def _older(table: Alignment, older: Collection[int]) -> dict[int, float | None]:
    made = {rank: table.dumped_ns(rank) for rank in table.dumps}
    others = [at for rank, at in made.items() if rank not in older and at is not None]
    usual = np.median(others) if others else None
    return {
        rank: None if usual is None or at is None else float(usual - at) / 1e9
        for rank in sorted(older)
        for at in [made[rank]]
    }


def _written_before(table: Alignment, root: Root | None) -> list[str]:
    """A hint for dumps that do not say when they were made: their files were written before the hang.

    Only a hint, because copying a file may change its time.
    """
    remarks: list[str] = []
    if root is None:
        return remarks
    since_s = root.operations[0].since_ns / 1e9
    for rank in root.culprits[:MOST_RANKS]:
        with suppress(OSError):
            before_s = since_s - Path(table.dumps[rank].file).stat().st_mtime
            if not table.dumps[rank].dumped_ns and before_s > 1:
                remarks.append(
                    f"the file of rank {rank} was written {duration(before_s)} before the others entered "
                    "the operation: it may show an earlier state; dump all ranks at the same time"
                )
    return remarks


def _remarks(
    table: Alignment, older: Mapping[int, float | None], operations: Sequence[Stuck]
) -> list[str]:
    remarks = [
        f"rank {rank}'s dump is older than the others', which completed what it does not contain: it "
        "is not blamed"
        if before_s is None or before_s <= 0
        else f"rank {rank}'s dump is from {duration(before_s)} before the others': it is not blamed"
        for rank, before_s in older.items()
    ]
    furthest = max(table.clocks, key=lambda rank: abs(table.clocks[rank]))
    if ahead_ns := table.clocks[furthest]:
        remarks.append(
            f"the clocks of the nodes differ: that of rank {furthest} by {duration(abs(ahead_ns) / 1e9)}; "
            "times are corrected by the collectives that the ranks share"
        )
    if any(each.overwritten for each in operations):
        remarks.append(
            "a ring buffer begins inside an operation that did not end: the first one may be older and "
            "overwritten; a larger TORCH_FR_BUFFER_SIZE would tell"
        )
    forgotten = sorted({rank for each in operations for rank in each.forgotten})
    if forgotten:
        remarks.append(
            f"the ring buffer of rank {ranges(forgotten)} holds nothing of the group in which it is "
            "missing: had it entered late, the entry would still be there; a larger "
            "TORCH_FR_BUFFER_SIZE would tell"
        )
    aside = sum(dump.rows_set_aside for dump in table.dumps.values())
    if aside:
        remarks.append(f"{aside:,} entries could not be understood and were left out")
    absent = not operations or any(each.missing or each.unknown for each in operations)
    if absent and any(each.backend == "gloo" for each in table.operations):
        remarks.append(
            "gloo records no sends, receives or monitored barriers, and not whether a collective "
            "succeeded: a rank that seems to be missing may wait in a receive"
        )
    if (table.rows["state"] == LEFT).any() and any(each.failed for each in operations):
        remarks.append("those inside left the operation without the missing ranks: it failed there")
    silent = [group for group in table.groups if not group.complete]
    if silent:
        names = ", ".join(dict.fromkeys(group.label for group in silent[:5]))
        remarks.append(
            f"the dumps do not say who is in {names}: members are those seen in it; dumps made "
            "with holdfast.runs.dump_flight_record say it"
        )
    return remarks
