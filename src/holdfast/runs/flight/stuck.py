"""Which operations did not end: for each group the first collective, for each pair the first message.

Within a group collectives happen in the order of their numbers, so only the first one that did not end
matters; the later ones wait behind it.

Not every unfinished entry is stuck. If another rank has *completed* a later collective that needs all
members, this rank has passed the earlier one too: its dump is only older. So it is if it was made before
the others entered the operation in which its rank seems to be missing. An older dump shows nothing about
the hang, in any group: its rank counts as one without a dump. Gloo records that a call was left, not
whether it succeeded; a call is taken for a success when the rank went on in the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.runs.flight.alignment import AlignedGroup, Alignment
from holdfast.runs.flight.mismatches import NEEDS_ALL, family
from holdfast.runs.flight.record import COMPLETED, LEFT, STARTED


@dataclass(frozen=True, eq=False)
class Stuck:
    """An operation that some rank entered and that did not end. A node of the wait-for graph."""

    kind: Literal["collective", "message"]
    group: int
    """Index into `Alignment.groups`."""
    sequence: int
    """Number of the collective in its group; of a message the sender's or receiver's p2p number."""
    waiting: dict[int, NDArray[np.void]]
    """Rank inside -> its row."""
    entered: tuple[int, ...]
    """Ranks that are inside or have been."""
    missing: tuple[int, ...]
    """Members with a dump that have not entered."""
    unknown: tuple[int, ...]
    """Members without a dump, or with one that is older than the operation."""
    operation: int
    """Index into `Alignment.operations`."""
    since_ns: int
    """When the first rank entered, by its clock."""
    failed: bool = False
    """Everybody inside has left again, with an error (gloo)."""
    overwritten: bool = False
    """It was the first in a ring buffer that had forgotten older ones: the true one may be older."""
    forgotten: tuple[int, ...] = ()
    """Missing members whose ring buffer holds nothing of this group any more: most likely they have not
    entered."""
    peers: tuple[int, int] | None = None
    """Global ranks of sender and receiver, for point-to-point operations."""

    @property
    def absent(self) -> tuple[int, ...]:
        """Members that have not entered, as far as is known."""
        return (*self.missing, *self.unknown)

    @property
    def started(self) -> tuple[int, ...]:
        """Ranks whose device runs it."""
        return tuple(rank for rank, row in self.waiting.items() if row["state"] == STARTED)


@dataclass
class StuckOperations:
    """All that did not end, and what was learnt on the way."""

    operations: list[Stuck] = field(default_factory=list)
    older: set[int] = field(default_factory=set)
    """Ranks whose dump is older than the hang: they cannot be blamed for what they have not entered."""


def find_stuck(table: Alignment) -> StuckOperations:
    """Every first operation that did not end, of all groups and pairs of ranks."""
    needs_all = np.array([family(each) in NEEDS_ALL for each in table.operations] + [False])
    operations = _find(table, needs_all, set())
    while True:  # what one group shows of a dump's age holds in all groups: look again without it
        again = _find(table, needs_all, operations.older)
        if again.older == operations.older:
            return again
        operations = again


def _find(table: Alignment, needs_all: NDArray[np.bool_], older: set[int]) -> StuckOperations:
    """One pass; ranks of `older` are looked at for what they completed, and for nothing else."""
    operations = StuckOperations(older=set(older))
    for place, group in enumerate(table.groups):
        rows = table.of_group(place)
        of_messages = rows["p2p"]
        collectives = rows[~of_messages] if of_messages.any() else rows
        if len(collectives):
            made = _collective(table, place, group, collectives, needs_all, older, operations.older)
            if made is not None:
                operations.operations.append(made)
        if of_messages.any():
            pending = rows[of_messages & (rows["state"] < LEFT)]
            pending = pending[~np.isin(pending["rank"], [*older])]
            operations.operations += _messages(
                table, place, group, pending, older, operations.older
            )
    return operations


def _made_before(table: Alignment, ranks: Sequence[int], entered_ns: int) -> set[int]:
    """Those whose dump was made before a moment."""
    made = {rank: table.dumped_ns(rank) for rank in ranks}
    return {rank for rank, at in made.items() if at is not None and at < entered_ns}


def _made_before_the_hang(
    table: Alignment, rows: NDArray[np.void], inside: NDArray[np.void], missing: Sequence[int]
) -> set[int]:
    """Ranks that seem to hold up a collective, by dumps made before the others stopped there.

    Args:
        table: all entries.
        rows: those of the group.
        inside: those of the collective that are not over.
        missing: ranks that have not entered it.
    """
    suspects = [*missing, *inside["rank"].tolist()]
    if not any(table.dumps[rank].dumped_ns for rank in suspects):
        return set()
    if len(inside) and missing:  # others are still inside: a later dump than that is late enough
        return _made_before(table, missing, int(inside["created_ns"].min()))
    if len(inside) > 1:
        return set()
    # Everybody else went on in this group: whoever was dumped before they stopped may have, too.
    starts = np.flatnonzero(np.diff(rows["rank"], prepend=-1))
    latest = np.maximum.reduceat(rows["created_ns"], starts)
    newest = dict(zip(rows["rank"][starts].tolist(), latest.tolist(), strict=True))
    last = max(newest, key=newest.__getitem__)
    second = max((at for rank, at in newest.items() if rank != last), default=newest[last])
    return {
        each
        for rank in suspects
        for each in _made_before(table, [rank], second if rank == last else newest[last])
    }


# --- Collectives ---------------------------------------------------------------------------------


def _collective(
    table: Alignment,
    place: int,
    group: AlignedGroup,
    rows: NDArray[np.void],
    needs_all: NDArray[np.bool_],
    known_older: set[int],
    older: set[int],
) -> Stuck | None:
    first_of, last, newest = _extent(rows)
    done = _surely_done(rows, needs_all, newest)
    if known_older:
        rows = rows[~np.isin(rows["rank"], [*known_older])]
    pending = rows[(rows["state"] < LEFT) & (rows["sequence"] >= done)]
    dumped = [rank for rank in group.ranks if rank in table.dumps and rank not in known_older]
    # A ring buffer that has forgotten the whole group: its rank has passed what all have passed.
    forgotten = {rank for rank in dumped if rank not in last and table.lost(rank)}
    stale = {rank for rank in dumped if last.get(rank, 0) < done} - forgotten
    older |= stale
    positions = {
        rank: last.get(rank, done if rank in forgotten else 0)
        for rank in dumped
        if rank not in stale
    }
    first = _first_not_entered(rows, positions)
    failed = False
    if len(pending):
        sequence = int(pending["sequence"].min())
        if first is not None:
            sequence = min(sequence, first)
    elif first is not None and _all_left(rows, first, last, needs_all):
        sequence, failed = first, True
    else:
        return None
    at = rows[rows["sequence"] == sequence]
    inside = pending[pending["sequence"] == pending["sequence"].min()] if len(pending) else at
    named = at if len(at) else inside
    if failed:
        inside = at
    waiting = {int(row["rank"]): row for row in inside[np.argsort(inside["rank"], kind="stable")]}
    missing = tuple(rank for rank, position in positions.items() if position < sequence)
    stuck_here = pending[pending["sequence"] == sequence]
    older |= _made_before_the_hang(table, rows, stuck_here, missing)
    return Stuck(
        kind="collective",
        group=place,
        sequence=sequence,
        waiting=waiting,
        entered=tuple(rank for rank in dumped if last.get(rank, 0) >= sequence),
        forgotten=tuple(rank for rank in missing if rank in forgotten),
        missing=missing,
        unknown=tuple(rank for rank in group.ranks if rank not in dumped),
        operation=int(named["operation"][0]),
        since_ns=int(named["created_ns"].min()),
        failed=failed,
        overwritten=any(
            table.lost(rank) > 0 and row["sequence"] == first_of[rank]
            for rank, row in waiting.items()
        ),
    )


def _extent(
    rows: NDArray[np.void],
) -> tuple[dict[int, int], dict[int, int], NDArray[np.int64]]:
    """Rank -> the first and the last collective it holds; and the last one beside each row."""
    starts = np.flatnonzero(np.diff(rows["rank"], prepend=rows["rank"][0] - 1))
    ranks = rows["rank"][starts].tolist()
    first = np.minimum.reduceat(rows["sequence"], starts)
    last = np.maximum.reduceat(rows["sequence"], starts)
    beside = np.repeat(last, np.diff([*starts, len(rows)]))
    return (
        dict(zip(ranks, first.tolist(), strict=True)),
        dict(zip(ranks, last.tolist(), strict=True)),
        beside,
    )


def _surely_done(
    rows: NDArray[np.void], needs_all: NDArray[np.bool_], newest: NDArray[np.int64]
) -> int:
    """The newest collective that all members have certainly passed; 0 if none is known."""
    of_all = needs_all[rows["operation"]]
    # Left, and the rank entered later collectives of this group: it did not fail.
    succeeded = (rows["state"] == LEFT) & (rows["sequence"] < newest)
    return int(rows["sequence"][of_all & ((rows["state"] == COMPLETED) | succeeded)].max(initial=0))


def _first_not_entered(rows: NDArray[np.void], positions: dict[int, int]) -> int | None:
    """The first collective that somebody entered and somebody with a dump did not."""
    if not positions:
        return None
    beyond = rows["sequence"][rows["sequence"] > min(positions.values())]
    return int(beyond.min()) if len(beyond) else None


def _all_left(
    rows: NDArray[np.void], sequence: int, last: dict[int, int], needs_all: NDArray[np.bool_]
) -> bool:
    """Gloo: whoever entered it left it as the last thing in this group, though somebody never came."""
    at = rows[rows["sequence"] == sequence]
    return bool(
        (at["state"] == LEFT).all()
        and needs_all[at["operation"]].all()
        and all(last[rank] == sequence for rank in at["rank"].tolist())
    )


# --- Messages ------------------------------------------------------------------------------------


def _messages(
    table: Alignment,
    place: int,
    group: AlignedGroup,
    pending: NDArray[np.void],
    known_older: set[int],
    older: set[int],
) -> list[Stuck]:
    """Sends and receives that did not end, one of each pair."""
    pairs: dict[tuple[int, int], dict[int, NDArray[np.void]]] = defaultdict(dict)
    for row in pending:
        peers = table.operations[row["operation"]].peers
        if peers is None or max(peers) >= len(group.ranks):
            continue
        pair = group.ranks[peers[0]], group.ranks[peers[1]]
        if int(row["rank"]) in pair:
            pairs[pair].setdefault(int(row["rank"]), row)
    messages = []
    for pair, waiting in pairs.items():
        absent = [rank for rank in pair if rank not in waiting]
        first = next(iter(waiting.values()))
        dumped = [rank for rank in absent if rank in table.dumps and rank not in known_older]
        since_ns = min(int(row["created_ns"]) for row in waiting.values())
        older |= _made_before(table, dumped, since_ns)
        messages.append(
            Stuck(
                kind="message",
                group=place,
                sequence=int(first["sequence"]),
                waiting=waiting,
                entered=tuple(waiting),
                missing=tuple(dumped),
                unknown=tuple(rank for rank in absent if rank not in dumped),
                operation=int(first["operation"]),
                since_ns=since_ns,
                peers=pair,
            )
        )
    return messages
