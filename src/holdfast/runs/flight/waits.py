"""Who waits for whom: from all operations that did not end to the one that holds up the others.

A rank that is missing from one operation may be missing because it waits in another. An edge leads
from an operation to those in which its missing members wait; when all members are inside, to the earlier
operations behind which a member's device has it queued. What has no edge is a root: its missing members
wait for nobody. Where every operation has an edge there is a circle: the ranks entered operations of two
groups (or a send and a receive) in different orders, or one of them left one out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.runs.flight.record import STARTED
from holdfast.runs.flight.stuck import Stuck


@dataclass(frozen=True)
class Root:
    """What holds up the others."""

    kind: Literal["missing", "inside", "unknown", "circle"]
    """``missing``: members that wait for nobody have not entered. ``inside``: all have. ``unknown``:
    only members without a dump have not. ``circle``: several operations wait for each other."""
    operations: tuple[Stuck, ...]
    """The operation; of a circle all of them, each waiting for the next."""
    culprits: tuple[int, ...] = ()
    """Missing members that wait for nobody; of a circle those that `came_early`."""


def find_root(stuck: Sequence[Stuck]) -> Root | None:
    """The operation that explains the others: what is known before what is not, then the oldest."""
    if not stuck:
        return None
    # 1. Edges: an operation waits for those in which its missing members wait.
    edges = waits_for(stuck)
    # 2. Roots: members that are missing and wait for nobody, or no reason outside the operation.
    roots = _roots(stuck, edges, _waiting_in(stuck))
    if not roots:
        # A send may be outstanding without its rank waiting for it; then the rank is free to be missing.
        freed = _roots(stuck, edges, _waiting_in(stuck, sends=False))
        roots = [root for root in freed if root.kind == "missing"]
    if not roots:
        # 3. No root: everybody waits for another, in a circle.
        return _circle(stuck, edges)
    # 4. Of several the oldest, what is known first: later ones are mostly its consequences.
    first = min(roots, key=lambda root: (root.kind == "unknown", root.operations[0].since_ns))
    return _whole_batch(first, roots)


def waits_for(stuck: Sequence[Stuck]) -> list[list[int]]:
    """For each operation the places of those it waits for."""
    inside = _waiting_in(stuck)
    edges = []
    for place, each in enumerate(stuck):
        targets: set[int] = set()
        for rank in each.missing:
            targets |= set(inside.get(rank, ()))
        if not each.missing and not each.unknown:
            for rank, row in each.waiting.items():
                if row["state"] != STARTED:
                    targets |= {
                        other
                        for other in inside.get(rank, ())
                        if stuck[other].waiting[rank]["place"] < row["place"]
                    }
                targets |= {
                    other
                    for other in inside.get(rank, ())
                    if _same_launch(each, stuck[other], rank) and stuck[other].absent
                }
        edges.append(sorted(targets - {place}))
    return edges


def _same_launch(one: Stuck, other: Stuck, rank: int) -> bool:
    """Whether a rank launched two messages together, so that each waits for both."""
    mine, its = one.waiting[rank], other.waiting[rank]
    return bool(
        one.kind == other.kind == "message"
        and one.group == other.group
        and mine["sequence"] == its["sequence"]
    )


def _waiting_in(stuck: Sequence[Stuck], sends: bool = True) -> dict[int, list[int]]:
    """Rank -> the places of the operations in which it waits."""
    inside: dict[int, list[int]] = {}
    for place, each in enumerate(stuck):
        for rank in each.waiting:
            outstanding = each.peers is not None and rank == each.peers[0]
            if not each.failed and (sends or not outstanding):
                inside.setdefault(rank, []).append(place)
    return inside


def _roots(
    stuck: Sequence[Stuck], edges: Sequence[Sequence[int]], inside: dict[int, list[int]]
) -> list[Root]:
    """Operations whose missing members wait for nobody, or that have no reason outside themselves."""
    roots = []
    for place, each in enumerate(stuck):
        idle = tuple(rank for rank in each.missing if rank not in inside)
        if idle:
            roots.append(Root("missing", (each,), idle))
        elif not edges[place]:
            roots.append(Root("unknown" if each.unknown else "inside", (each,)))
    return roots


def _whole_batch(root: Root, roots: Sequence[Root]) -> Root:
    """Messages that one rank launched together wait together: all who are missing are to blame."""
    own = root.operations[0]
    if own.kind != "message" or root.kind != "missing":
        return root
    together = [
        each
        for each in roots
        if each.kind == "missing"
        and (other := each.operations[0]).kind == "message"
        and (other.group, other.sequence) == (own.group, own.sequence)
        and other.waiting.keys() & own.waiting.keys()
    ]
    culprits = {rank for each in together for rank in each.culprits}
    return Root("missing", (own,), tuple(sorted(culprits)))


def _circle(stuck: Sequence[Stuck], edges: Sequence[Sequence[int]]) -> Root:
    """Follow the edges from the oldest operation until one comes again."""
    place = min(range(len(stuck)), key=lambda each: stuck[each].since_ns)
    path: list[int] = []
    while place not in path:
        path.append(place)
        place = min(edges[place], key=lambda each: stuck[each].since_ns)
    circle = tuple(stuck[each] for each in path[path.index(place) :])
    return Root("circle", circle, came_early(circle))


def came_early(circle: Sequence[Stuck]) -> tuple[int, ...]:
    """Ranks that entered an operation after fewer others than most ranks in it, and are missed elsewhere.

    What they have not called before, others wait in: they left it out, or call it later. With messages
    between ranks, each may have a number of its own, which tells nothing.
    """
    missed = {rank for each in circle for rank in each.missing}
    early = set()
    for each in circle:
        before = {rank: int(row["record"]) for rank, row in each.waiting.items()}
        usual, agree = Counter(before.values()).most_common(1)[0]
        if each.kind == "collective" and agree > 1 and 2 * agree > len(before):
            early |= {rank for rank in missed & before.keys() if before[rank] < usual}
    return tuple(sorted(early))


def consequences(root: Root, stuck: Sequence[Stuck]) -> list[Stuck]:
    """The other operations that did not end, oldest first."""
    return sorted(
        (each for each in stuck if not any(each is own for own in root.operations)),
        key=lambda each: each.since_ns,
    )
