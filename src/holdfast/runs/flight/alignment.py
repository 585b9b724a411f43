"""All dumps on one table: the same group and the same operation have the same number on every rank.

Process ids of groups (``pg_id``) differ from rank to rank and are not used: a group is its name, its
description and its members. Its collectives are numbered alike on all members, so the number says
where each rank is. Ring buffers forget their oldest entries, each rank at another place: what only
some ranks still hold is never compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, pairwise

import numpy as np
from numpy.typing import NDArray

from holdfast.runs.flight.record import ENTRY, Dump, Group, Operation

SAME_CLOCK_NS = 1_000_000_000
"""Clocks of nodes that differ by no more are taken to agree."""
DEFAULT = "default_pg"
"""PyTorch's description of the group of all ranks."""

ROW = np.dtype(
    [
        ("rank", np.int64),
        ("group", np.int32),  # index into `Alignment.groups`; -1 belongs to none
        ("sequence", np.int64),
        ("operation", np.int32),  # index into `Alignment.operations`
        ("state", np.int8),
        ("p2p", np.bool_),
        ("created_ns", np.int64),
        ("timeout_ms", np.int64),
        ("record", np.int64),
        ("place", np.int64),  # position in the rank's dump: what came first there is smaller
    ],
    align=True,
)


@dataclass(frozen=True)
class AlignedGroup:
    """A process group, as all dumps together know it."""

    name: str
    description: str
    ranks: tuple[int, ...]
    """Global ranks of the members that are known, in order."""
    complete: bool
    """Whether these are all of them: the dumps list them. Else they are those seen in it."""

    @property
    def label(self) -> str:
        """The description, where the user gave one, else the name."""
        return self.name if self.description in ("", "undefined") else self.description


@dataclass(frozen=True)
class Alignment:
    """Every entry of every rank. The central table of the verdict."""

    dumps: Mapping[int, Dump]
    """Rank -> dump."""
    world: tuple[int, ...]
    """Every rank that the dumps know of, with a dump or without."""
    world_complete: bool
    """Whether the dumps say how many ranks there are."""
    groups: tuple[AlignedGroup, ...]
    operations: tuple[Operation, ...]
    rows: NDArray[np.void]
    """In `ROW`, ordered by group, then rank, then place."""
    bounds: NDArray[np.intp]
    """Where the rows of each group begin; one more, where the last end."""
    clocks: Mapping[int, int]
    """Rank -> nanoseconds by which its node's clock is ahead; taken off the rows' ``created_ns``."""

    def of_group(self, group: int) -> NDArray[np.void]:
        """The rows of one group."""
        return self.rows[self.bounds[group] : self.bounds[group + 1]]

    def dumped_ns(self, rank: int) -> int | None:
        """When a rank's dump was made by the reference clock, where the dump says so."""
        told = self.dumps[rank].dumped_ns
        return None if not told else told - self.clocks[rank]

    def lost(self, rank: int) -> int:
        """How many of its oldest entries a rank's ring buffer has forgotten."""
        entries = self.dumps[rank].entries
        return int(entries["record"].min()) if len(entries) else 0


def align(dumps: Mapping[int, Dump]) -> Alignment:
    """Put the dumps of one job on one table."""
    world, complete = _world(dumps)
    groups, places = _groups(dumps, world, complete)
    operations: dict[Operation, int] = {}
    own = [with_shared_fates(dump) for dump in dumps.values()]
    lengths = [len(entries) for entries in own]
    entries = np.concatenate(own) if own else np.empty(0, ENTRY)
    rows = np.empty(len(entries), ROW)
    for name in ("sequence", "state", "p2p", "created_ns", "timeout_ms", "record"):
        rows[name] = entries[name]
    rows["rank"] = np.repeat([*dumps], lengths)
    rows["place"] = np.arange(len(entries)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    known = [
        [operations.setdefault(each, len(operations)) for each in dump.operations]
        for dump in dumps.values()
    ]
    rows["operation"] = _renumbered(entries["operation"], known, lengths)
    rows["group"] = _renumbered(entries["group"], [places[rank] for rank in dumps], lengths)
    # Dumps come in the order of their ranks, entries in that of their places: a stable sort keeps both.
    order = np.argsort(rows["group"], kind="stable")
    rows = rows[order]
    bounds = np.searchsorted(rows["group"], np.arange(len(groups) + 1))
    clocks = _clocks(dumps, rows)
    if any(clocks.values()):
        ahead = np.repeat([clocks[rank] for rank in dumps], lengths)[order]
        rows["created_ns"] -= np.where(rows["created_ns"] > 0, ahead, 0)
    return Alignment(dumps, world, complete, groups, tuple(operations), rows, bounds, clocks)


def _clocks(dumps: Mapping[int, Dump], rows: NDArray[np.void]) -> dict[int, int]:
    """Rank -> nanoseconds by which the clock of its node is ahead of the reference node's.

    Members enter the same collective at about the same time: the median over those that two of them hold.
    From the largest group on, nodes are compared through ever further groups. Less than `SAME_CLOCK_NS` is
    as likely lateness, and counts as none; so does what no group tells.
    """
    hosts = {rank: dump.host or f"rank {rank}" for rank, dump in dumps.items()}
    changes = (np.diff(rows["group"], prepend=-2) != 0) | (np.diff(rows["rank"], prepend=-1) != 0)
    groups: dict[int, dict[int, NDArray[np.void]]] = defaultdict(dict)
    for first, end in pairwise([*np.flatnonzero(changes).tolist(), len(rows)]):
        group, rank = int(rows["group"][first]), int(rows["rank"][first])
        groups[group][rank] = rows[first:end]
    ahead: dict[str, int] = {}
    left = sorted(groups.values(), key=len, reverse=True)
    while left:
        told = ahead or {hosts[next(iter(left[0]))]: 0}
        usable = [any(hosts[rank] in told for rank in each) for each in left]
        if not any(usable):
            break
        ahead = told
        for parts in compress(left, usable):
            _compare(parts, hosts, ahead)
        left = [parts for parts, done in zip(left, usable, strict=True) if not done]
    return {
        rank: away if abs(away := ahead.get(host, 0)) > SAME_CLOCK_NS else 0
        for rank, host in hosts.items()
    }


def _compare(
    parts: Mapping[int, NDArray[np.void]], hosts: Mapping[int, str], ahead: dict[str, int]
) -> None:
    """Add the clocks of the nodes in a group that are not known, by a rank whose node's is."""
    reference = max(
        (rank for rank in parts if hosts[rank] in ahead), key=lambda each: len(parts[each])
    )
    base = _collectives(parts[reference])
    for rank, part in parts.items():
        if hosts[rank] in ahead:
            continue
        own = _collectives(part)
        _, mine, its = np.intersect1d(own["sequence"], base["sequence"], return_indices=True)
        if len(mine):
            away = np.median(own["created_ns"][mine] - base["created_ns"][its])
            ahead[hosts[rank]] = ahead[hosts[reference]] + int(away)


def _collectives(rows: NDArray[np.void]) -> NDArray[np.void]:
    return rows[~rows["p2p"] & (rows["created_ns"] > 0)]


def _renumbered(
    own: NDArray[np.int32], meant: Sequence[Sequence[int]], lengths: Sequence[int]
) -> NDArray[np.int64]:
    """Indices into each dump's table -> indices into the table of all; -1 stays."""
    sizes = [len(each) for each in meant]
    starts = np.repeat(np.cumsum(sizes) - sizes, lengths)
    flat = np.array([*chain.from_iterable(meant), -1])
    return flat[np.where(own < 0, -1, own + starts)]


def _world(dumps: Mapping[int, Dump]) -> tuple[tuple[int, ...], bool]:
    ranks = set(dumps)
    complete = False
    for dump in dumps.values():
        if dump.world_size is not None:
            ranks |= set(range(min(dump.world_size, 1 << 22)))
            complete = True
        for (_, description), members in dump.members.items():
            ranks |= set(members)
            complete |= description == DEFAULT
        # Gloo tells the ranks of one group and not which; from 0 without a gap it is the world.
        complete |= dump.unnamed_members == tuple(range(len(dump.unnamed_members))) != ()
        ranks |= set(dump.unnamed_members)
    if max(ranks) < 1 << 22:
        ranks |= set(range(max(ranks)))  # ranks have no gaps
    return tuple(sorted(ranks)), complete


def _groups(
    dumps: Mapping[int, Dump], world: tuple[int, ...], complete: bool
) -> tuple[tuple[AlignedGroup, ...], dict[int, list[int]]]:
    """All groups, and for each rank the indices of its groups."""
    seen: dict[tuple[Group, tuple[int, ...]], list[int]] = {}
    for rank, dump in dumps.items():
        for group in dump.groups:
            seen.setdefault((group, _told_members(dump, group)), []).append(rank)
    known: dict[tuple[Group, tuple[int, ...]], int] = {}
    found: list[AlignedGroup] = []
    for group, members in seen:
        if members:
            known[(group, members)] = len(found)
            found.append(AlignedGroup(*group, members, True))
    places: dict[int, list[int]] = {rank: [] for rank in dumps}
    for rank, dump in dumps.items():
        for group in dump.groups:
            key = (group, _told_members(dump, group))
            if key not in known:
                known[key] = _untold(key, seen[key], known, found, world, complete)
            places[rank].append(known[key])
    return tuple(found), places


def _told_members(dump: Dump, group: Group) -> tuple[int, ...]:
    if group in dump.members:
        return dump.members[group]
    return next((ranks for (name, _), ranks in dump.members.items() if name == group[0]), ())


def _untold(
    key: tuple[Group, tuple[int, ...]],
    ranks: list[int],
    known: dict[tuple[Group, tuple[int, ...]], int],
    found: list[AlignedGroup],
    world: tuple[int, ...],
    complete: bool,
) -> int:
    """The group of dumps that do not say who is in it: the one that others describe, or a new one."""
    group = key[0]
    same = [place for (other, members), place in known.items() if other == group and members]
    fitting = [place for place in same if set(ranks) <= set(found[place].ranks)]
    if len(fitting) == 1:
        return fitting[0]
    everybody = group[1] == DEFAULT
    members = world if everybody else tuple(ranks)
    found.append(AlignedGroup(*group, members, everybody and complete))
    return len(found) - 1


CLOSING = "coalesced"
NO_GROUP = -1
"""Group of a row that belongs to nothing any more."""


def with_shared_fates(dump: Dump) -> NDArray[np.void]:
    """The rows of a dump, in which all operations of a block have the state of the block.

    A batch of sends and receives, or several collectives in one coalescing block, is recorded entry by
    entry and closed by an entry named ``coalesced``, and PyTorch records their fate on that one alone.
    Seen in real NCCL dumps (2.10): the operations of a batch of sends stay ``scheduled`` for ever; the
    closing entry carries the state, is not marked as p2p, and repeats the number of the last collective,
    to which it does not belong.

    A closing row takes the kind and the number of its block; one whose block the ring buffer has lost
    gets the group `NO_GROUP`.
    """
    closing = [place for place, each in enumerate(dump.operations) if each.name == CLOSING]
    if not closing:
        return dump.entries
    rows = dump.entries.copy()
    of_group = {group: np.flatnonzero(rows["group"] == group) for group in np.unique(rows["group"])}
    for end in np.flatnonzero(np.isin(rows["operation"], closing)):
        own = of_group[rows["group"][end]]
        block = _block(rows, own[: np.searchsorted(own, end)], int(rows["sequence"][end]))
        if not block:
            rows["group"][end] = NO_GROUP
            continue
        rows["p2p"][end] = rows["p2p"][block[0]]
        rows["sequence"][end] = rows["sequence"][block[0]]
        together = np.array([*block, end])
        rows["state"][together] = rows["state"][together].max()
    return rows


def _block(rows: NDArray[np.void], before: NDArray[np.intp], sequence: int) -> list[int]:
    """The rows that a closing entry closes: the newest of its group with one number, of one kind."""
    if not len(before):
        return []
    newest = rows[before[-1]]
    if not newest["p2p"] and newest["sequence"] != sequence:
        return []
    block = []
    for place in before[::-1]:
        row = rows[place]
        if row["p2p"] != newest["p2p"] or row["sequence"] != newest["sequence"]:
            break
        block.append(int(place))
    return block
