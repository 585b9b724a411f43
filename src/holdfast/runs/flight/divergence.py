"""Where one rank's order of collectives leaves that of the majority: the rank, and the lines of both sides.

Ranks that run the same program call the same collectives in the same order, over all groups that they
share. So their records are compared one by one, as (group, number in the group, what was asked for), from
the first that all ring buffers still hold. The first place at which most ranks agree and one does not is
the divergence, whatever it led to: a hang, a mismatch, or a circle of groups that wait for each other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from holdfast.runs.flight.alignment import Alignment
from holdfast.runs.flight.dumps import read_frames
from holdfast.runs.flight.mismatches import signature
from holdfast.runs.flight.wording import where

Call = tuple[int, int, int]
"""Group, number in it, and what was asked for."""


@dataclass(frozen=True)
class Step:
    """What a rank called next."""

    collective: str
    group: str
    sequence: int
    line: str
    """``train_step (train.py:94)``; empty where the dump has no stacks."""

    def __str__(self) -> str:
        at = f" in {self.line}" if self.line else ""
        return f"{self.collective} {self.sequence:,} of group {self.group}{at}"


@dataclass(frozen=True)
class Divergence:
    """Where one rank left the others."""

    rank: int
    own: Step
    others: Step
    """What most ranks called instead."""
    calls: int
    """Calls before it that were compared and equal."""

    @property
    def sentence(self) -> str:
        """The divergence in words."""
        return f"Rank {self.rank} left the others' order: it called {self.own}, they {self.others}."


def divergence(table: Alignment) -> Divergence | None:
    """The first call at which one rank does something else than most; None: there is none, or no majority.

    A rank whose record ends is no divergence: it may have stopped, or been stopped, anywhere.
    """
    ranks = [*table.dumps]
    shared = [place for place, group in enumerate(table.groups) if {*ranks} <= {*group.ranks}]
    kinds = dict.fromkeys(map(signature, table.operations))
    code = np.array([[*kinds].index(signature(each)) for each in table.operations], np.int64)
    rows = table.rows[np.isin(table.rows["group"], shared) & ~table.rows["p2p"]]
    rows = rows[np.lexsort((rows["place"], rows["rank"]))]
    columns = (rows["group"], rows["sequence"], code[rows["operation"]])
    every: list[Call] = [*zip(*(column.tolist() for column in columns), strict=True)]
    bounds = np.searchsorted(rows["rank"], [*ranks, len(table.world) + ranks[-1]]).tolist()
    calls = [every[first:end] for first, end in pairwise(bounds)]
    begins = [0] * len(ranks)
    if any(map(table.lost, ranks)):
        everybody = set(calls[0]).intersection(*calls[1:])
        begins = [
            next((at for at, call in enumerate(own) if call in everybody), -1) for own in calls
        ]
        # Buffers that begin with different calls have forgotten what would tell them apart.
        if not everybody or len({own[at] for own, at in zip(calls, begins, strict=True)}) > 1:
            return None
    compared = (own[at:] for own, at in zip(calls, begins, strict=True))
    for at, here in enumerate(zip_longest(*compared)):
        known = Counter(call for call in here if call is not None).most_common()
        if len(known) < 2:
            continue
        usual, count = known[0]
        away = [place for place, call in enumerate(here) if call not in (usual, None)]
        if len(away) > 1 or count < 2:  # no majority, or one of two halves
            return None
        sides = (away[0], here.index(usual))
        own, their = (_step(table, rows[bounds[each] + begins[each] + at]) for each in sides)
        return Divergence(ranks[away[0]], own, their, at)
    return None


def _step(table: Alignment, row: Any) -> Step:
    rank, record = int(row["rank"]), int(row["record"])
    dump, line = table.dumps[rank], ""
    if dump.stacks:
        line = where(read_frames({dump.file: [record]}).get(dump.file, {}).get(record, []))
    name, group = table.operations[row["operation"]].name, table.groups[row["group"]].label
    return Step(name, group, int(row["sequence"]), line)
