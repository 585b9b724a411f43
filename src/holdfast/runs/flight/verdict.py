"""The verdict on a hang: one sentence, and what it rests on.

    read the dumps -> set those of other jobs aside -> put all on one table (`alignment`)
    -> find what did not end (`stuck`) -> follow who waits for whom to the root (`waits`)
    -> did ranks do different things before (`mismatches`)? -> verdict

The rule is that of PyTorch's flight recorder guide and of Kokolis et al. (arXiv 2410.21680, section 6):
the first collective that some members entered and others did not names the missing ranks; entered by
all and not completed points to the network or a device. It is applied to every group, and the verdict is
the one that the others follow from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdfast.errors import InputError
from holdfast.runs.flight import sentences
from holdfast.runs.flight.alignment import DEFAULT, Alignment, align
from holdfast.runs.flight.divergence import divergence
from holdfast.runs.flight.dumps import RECORDS, Dumps, SetAside, read_dumps
from holdfast.runs.flight.evidence import gather, now_ns
from holdfast.runs.flight.hang import HangVerdict, Verdict
from holdfast.runs.flight.mismatches import Mismatch, first_mismatch, unbalanced, unequal
from holdfast.runs.flight.other_jobs import others
from holdfast.runs.flight.stuck import StuckOperations, find_stuck
from holdfast.runs.flight.waits import Root, find_root

if TYPE_CHECKING:
    from holdfast.runs.goodput.accounting import Breakdown


@dataclass(frozen=True)
class Judgement:
    """A verdict before it is put into words."""

    verdict: Verdict
    root: Root | None = None
    mismatch: Mismatch | None = None
    missing: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    why: str = ""
    """Reason of `inconclusive` and `no_hang`."""


def hang(*places: str | Path, processes: int | None = None) -> HangVerdict:
    """Find the ranks that caused a hang, from the Flight Recorder dumps of all ranks.

    Args:
        places: folders with dumps, or files; JSON or pickles of any PyTorch since 2.1, NCCL or gloo,
            gzipped or not, named after their ranks.
        processes: that read the files; by default as many as there are processors.

    Returns:
        The verdict.

    Raises:
        InputError: if there are no dumps, none can be read, or their ranks cannot be told.
    """
    from holdfast.runs.goodput.accounting import breakdown_around

    return judge_dumps(read_dumps(places, processes), breakdown_around(*places))


def hang_of(folder: Path, recorded: Breakdown | None = None) -> HangVerdict | None:
    """What stopped a recorded run; None where its folder holds no flight record that can be read.

    Args:
        folder: of the run; records lie in ``flight/<launch>/`` below it.
        recorded: where the run's time went.
    """
    records = sorted(each for each in folder.rglob(RECORDS) if each.is_dir())
    if not records:
        return None
    try:
        return judge_dumps(read_dumps(records), recorded)
    except InputError:
        return None


def judge_dumps(dumps: Dumps, recorded: Breakdown | None = None) -> HangVerdict:
    """The verdict on dumps that have been read, beside the recorded end of their attempt."""
    strangers = others(dumps.by_rank)
    kept = {rank: dump for rank, dump in dumps.by_rank.items() if rank not in strangers}
    aside = [*dumps.set_aside]
    aside += [SetAside(dumps.by_rank[rank].file, why) for rank, why in strangers.items()]
    table = align(kept)
    stuck = find_stuck(table)
    judged = judge(table, stuck)
    if judged.why == "older" and (rank := _other_attempt(table)) is not None:
        why = "of another attempt: it contradicts the others, and its times are further away than a timeout"
        aside.append(SetAside(kept.pop(rank).file, why))
        return judge_dumps(Dumps(kept, tuple(aside), dumps.remarks), recorded)
    evidence = gather(table, stuck, judged.root, judged.mismatch, aside, dumps.remarks)
    left = divergence(table) if judged.root is not None or judged.mismatch is not None else None
    ended = None if recorded is None else recorded.attempt_at(now_ns(table) / 1e9)
    place, sequence, operation = _named(judged)
    return HangVerdict(
        verdict=judged.verdict,
        group=None if place is None else table.groups[place].label,
        sequence=sequence,
        collective=None if operation is None else table.operations[operation].name,
        missing_ranks=judged.missing,
        unknown_ranks=judged.unknown,
        sentence=sentences.sentence(table, judged, evidence, ended is not None),
        evidence=evidence,
        ended=ended,
        divergence=left,
    )


def _other_attempt(table: Alignment) -> int | None:
    """Of dumps that contradict each other, the one whose times are further away than its timeout.

    By itself such a distance may be that of a clock.
    """
    if len(table.dumps) < 3:
        return None  # of two, nobody can say which is the other
    middle = float(np.median([*table.clocks.values()]))
    away = {rank: abs(clock - middle) for rank, clock in table.clocks.items()}
    furthest = max(away, key=lambda rank: away[rank])
    timeout_ms = int(table.rows["timeout_ms"].max(initial=0))
    return furthest if timeout_ms and away[furthest] > 1e6 * timeout_ms else None


def judge(table: Alignment, stuck: StuckOperations) -> Judgement:
    """The verdict without words: the root of the hang, or the divergence that came before it."""
    root = find_root(stuck.operations)
    mismatch = _earliest_mismatch(table)
    if mismatch is not None and (root is None or _is_before(mismatch, root)):
        return Judgement("mismatch", root, mismatch)
    if root is None:
        return _nobody_waits(table, stuck)
    if root.kind == "circle":
        messages = table.rows["p2p"].any()
        return Judgement("mismatch", root, missing=() if messages else root.culprits)
    operation = root.operations[0]
    if root.kind in ("missing", "unknown"):
        return Judgement("missing_ranks", root, None, root.culprits, operation.unknown)
    return _all_inside(table, stuck, root)


def _named(judged: Judgement) -> tuple[int | None, int | None, int | None]:
    """Group, sequence and operation that the verdict is about."""
    if judged.mismatch is not None:
        rows = judged.mismatch.rows
        return judged.mismatch.group, judged.mismatch.sequence, int(rows["operation"][0])
    if judged.root is None:
        return None, None, None
    first = judged.root.operations[0]
    return first.group, first.sequence, first.operation


def _earliest_mismatch(table: Alignment) -> Mismatch | None:
    mismatches = [first_mismatch(table, group) for group in range(len(table.groups))]
    return min(
        (each for each in mismatches if each is not None),
        key=lambda each: int(each.rows["created_ns"].min()),
        default=None,
    )


def _is_before(mismatch: Mismatch, root: Root) -> bool:
    """Whether ranks diverged before they hung, or in the very operation."""
    for each in root.operations:
        if each.kind == "collective" and each.group == mismatch.group:
            return mismatch.sequence <= each.sequence
    return int(mismatch.rows["created_ns"].min()) <= root.operations[0].since_ns


def _all_inside(table: Alignment, stuck: StuckOperations, root: Root) -> Judgement:
    """Every known member entered: the network or a device, unless members are unknown."""
    operation = root.operations[0]
    group = table.groups[operation.group]
    if operation.kind == "message":
        both = np.array([*operation.waiting.values()], dtype=table.rows.dtype)
        what = unequal(table, both)
        if what:
            return Judgement(
                "mismatch", root, Mismatch(operation.group, operation.sequence, what, both)
            )
        return Judgement("stuck_inside", root)
    at = table.of_group(operation.group)
    at = at[~at["p2p"] & (at["sequence"] == operation.sequence)]
    if unbalanced(table, at, len(group.ranks)):
        return Judgement(
            "mismatch", root, Mismatch(operation.group, operation.sequence, "size", at)
        )
    if group.complete:
        return Judgement("stuck_inside", root)
    if group.description == DEFAULT:
        return Judgement("inconclusive", root, why="world")
    busy = {rank for each in stuck.operations for rank in each.waiting}
    idle = tuple(r for r in table.world if r not in busy and r not in group.ranks)
    # Nobody waits alone in a group: of a half-known one, members are missing.
    if idle or not table.world_complete or len(group.ranks) == 1:
        absent = tuple(rank for rank in table.world if rank not in table.dumps)
        return Judgement("inconclusive", root, unknown=idle or absent, why="members")
    return Judgement("stuck_inside", root)


def _nobody_waits(table: Alignment, stuck: StuckOperations) -> Judgement:
    absent = tuple(rank for rank in table.world if rank not in table.dumps)
    if not len(table.rows):
        return Judgement("inconclusive", unknown=absent, why="empty")
    if absent:
        return Judgement("inconclusive", unknown=absent, why="absent")
    return Judgement("no_hang", why="older" if stuck.older else "")
