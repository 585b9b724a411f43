"""Clocks of different nodes -> one: how far each boot's wall clock is ahead, by the steps that ranks share.

A synchronous step ends on all ranks together, so two ranks of one launch that end the same steps a constant
time apart have clocks that differ by that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from holdfast.runs.recording.events import Process

Ends = Mapping[Path, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]
"""File of a process -> numbers of its steps, ascending, and the ``t`` at which they ended."""

STEPS = "shared steps"
"""In the place of a launcher's name: the steps tell what was started together."""
_APART_S = 60.0
"""Processes of one launch begin within it, as far as clocks agree."""
_SAME_S = 1.0
"""Offsets that differ by less are the same."""


class BootClocks:
    """Groups boots that share a time line, with the offset of each clock from the reference."""

    def __init__(self, processes: Sequence[Process], ends: Ends) -> None:
        self.ahead_s: dict[str, float] = {}
        """Boot -> seconds; boots that share no launch with others are left out."""
        self._line: dict[str, str] = {}
        launches: dict[str, dict[str, list[Process]]] = defaultdict(lambda: defaultdict(list))
        for process in sorted(processes, key=lambda each: (each.rank, each.monotonic_s)):
            if process.boot_id and process.launch:
                launches[process.launch][process.boot_id].append(process)
        edges: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for boots in launches.values():
            first, *others = boots
            for other in others:
                apart_s = _apart(boots[first], boots[other], ends)
                if apart_s is not None:
                    edges[first].append((other, apart_s))
                    edges[other].append((first, -apart_s))
        for boot in edges:
            if boot not in self._line:
                self._follow(boot, edges)

    def comparable(self, one: str, other: str) -> bool:
        """Whether processes of two boots are on one time line for certain."""
        return one == other or (one in self._line and self._line[one] == self._line.get(other))

    def _follow(self, root: str, edges: Mapping[str, Iterable[tuple[str, float]]]) -> None:
        """All boots that can be reached from one, by the clock that the median of them has."""
        ahead = {root: 0.0}
        pending = [root]
        while pending:
            boot = pending.pop()
            for other, apart_s in edges[boot]:
                if other not in ahead:
                    ahead[other] = ahead[boot] + apart_s
                    pending.append(other)
        # Of two nobody can say which is right: the one with the lowest rank, which came first.
        usual = 0.0 if len(ahead) < 3 else sorted(ahead.values())[(len(ahead) - 1) // 2]
        for boot, by_s in ahead.items():
            self._line[boot], self.ahead_s[boot] = root, by_s - usual


def with_launches(processes: Sequence[Process], ends: Ends) -> list[Process]:
    """Names the launches of a run whose launcher named none, where the steps of its nodes tell them.

    Nodes that hold different ranks of one world, started equally often, whose steps end a constant time
    apart in every attempt, the same in all, made them together.
    """
    boots: dict[str, dict[int, list[Process]]] = defaultdict(lambda: defaultdict(list))
    for process in sorted(processes, key=lambda each: each.monotonic_s):
        boots[process.boot_id][process.rank].append(process)
    ranks = [rank for members in boots.values() for rank in members]
    turns = {len(each) for members in boots.values() for each in members.values()}
    alike = len(turns) == 1 and len({each.world_size for each in processes}) == 1
    if not alike or len(set(ranks)) < len(ranks) or len(boots) < 2:
        return [*processes]
    if any(each.launch or not each.boot_id for each in processes):
        return [*processes]
    first, *others = [[*members.values()] for members in boots.values()]
    for other in others:
        apart = [_by_steps(one, its, ends) for one, its in zip(first[0], other[0], strict=True)]
        known = [each for each in apart if each is not None]
        if len(known) < len(apart) or max(known) - min(known) > _SAME_S:
            return [*processes]
    return [
        replace(each, launch=f"{STEPS}-{turn}")
        for members in boots.values()
        for own in members.values()
        for turn, each in enumerate(own)
    ]


def _apart(one: Sequence[Process], other: Sequence[Process], ends: Ends) -> float | None:
    """By how much the second boot's clock is ahead of the first one's; None: nothing tells.

    A launch may come again under the same name: the true offset is that of most pairs of processes.
    """
    lowest_one, lowest_other = one[0].rank, other[0].rank
    pairs = [
        (mine, its)
        for mine in one
        if mine.rank == lowest_one
        for its in other
        if its.rank == lowest_other
    ]
    found = [by_s for mine, its in pairs if (by_s := _by_steps(mine, its, ends)) is not None]
    if not found:
        begun = [
            (its.opened_s - its.lived_s) - (mine.opened_s - mine.lived_s) for mine, its in pairs
        ]
        least = min(begun, key=abs)
        return least if abs(least) > _APART_S else None
    votes: list[list[float]] = [
        [each for each in found if abs(each - by_s) < _SAME_S] for by_s in found
    ]
    best: list[float] = max(votes, key=lambda each: (len(each), -abs(each[0])))
    return median(best)


def _by_steps(one: Process, other: Process, ends: Ends) -> float | None:
    """The median difference between the ends of shared steps; None if it is not constant.

    Ranks that wait for each other in every step cannot drift apart by a part of a step.
    """
    if one.file not in ends or other.file not in ends:
        return None
    numbers, own_t = ends[one.file]
    its_numbers, its_t = ends[other.file]
    _, mine, its = np.intersect1d(numbers, its_numbers, return_indices=True)
    if not mine.size:
        return None
    apart = (other.opened_s + its_t[its]) - (one.opened_s + own_t[mine])
    usual = float(np.median(apart))
    step_s = float(np.median(np.diff(own_t[mine]))) if mine.size > 1 else 0.0
    spread = float(np.median(np.abs(apart - usual)))
    return usual if spread <= max(0.05, 0.25 * step_s) else None
