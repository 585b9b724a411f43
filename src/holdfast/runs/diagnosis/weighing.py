"""Which of the things found is the cause: weights of rules, corrected by what stands around them.

A rule's weight says how telling its lines are by themselves. What stands around a line corrects it:
an error that the program went on after, an exception that was being handled, a kill that came after
the first failure. The heaviest find is the cause, and of equals the earliest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.runs.diagnosis.events import Event
from holdfast.runs.diagnosis.origins import rank_of_file
from holdfast.runs.diagnosis.rules import TRACEBACK, Rule, RuleSet
from holdfast.runs.diagnosis.shapes import FileScan
from holdfast.runs.diagnosis.tracebacks import IGNORED, FirstFailure, Traceback

SURVIVED_LINES = 2000
"""Lines without another error after which an error counts as survived."""
SURVIVED_COUNTS = 3
"""Different steps reported after an error from which it counts as survived."""
SURVIVED = 8
"""Maximum weight of an error that was survived."""
_HANDLED = 45
_BARE = 40
_AFTERWARDS = 35
_GAVE_UP = 15
"""Maximum weight of an exception on a rank that had lost the others: below that of losing them."""
_CONFIRMED = 12
"""Additional weight of a cause of death that torchrun observed first."""
_REFUTED = 15
_LATER_S = 5.0
"""Upper bound of the differences between clocks and buffers of ranks."""

_OFTEN_HANDLED = (TRACEBACK, "import_error", "missing_file")
_DEATHS = {"killed": -9, "segfault": -11, "bus_error": -7}
_ENDED_FROM_OUTSIDE = ("time_limit", "cancelled")
_TIMEOUTS = ("nccl_timeout", "gloo_timeout")
_KILLED = "killed"
_LOST_OTHERS = ("nccl_timeout", "gloo_timeout", "nccl_error", "peer_lost", "rendezvous")
_SILENT_FAILURE = "rank_failed"
_WEAKEST_SIGN = 20
_SILENT = 45
"""Weight of a rank that failed first without a log line: the others' lines only follow from it."""


@dataclass(frozen=True)
class Find:
    """An event with its context among the others."""

    event: Event
    rule: Rule
    file: FileScan
    rank: int | None
    """Rank of the line, else of its file."""
    time_s: float | None
    """Seconds since 1970; None: unknown."""
    count: int
    """Number of such events of its rank and file."""
    weight: int
    survived: bool = False
    note: str = ""
    """Why its weight is not the rule's."""
    traceback: Traceback | None = None

    @property
    def place(self) -> tuple[int, int]:
        """File and line."""
        return self.event.file, self.event.line


def finds_of(files: Sequence[FileScan], rules: RuleSet) -> list[Find]:
    """Every kept event, with its rank, its time and its rule's weight, in the order of files."""
    year = _year(files)
    finds = []
    for index, file in enumerate(files):
        own_rank = rank_of_file(file.log.path)
        tracebacks = {
            each.line: each for kept in file.finds.tracebacks.values() for each in kept.all()
        }
        for kept in file.finds.events.values():
            for event in kept.all():
                rule = rules.rules[event.rule]
                traceback = tracebacks.get(event.line)
                if traceback is not None and traceback.final_line not in event.text:
                    traceback = None  # another line of the same record
                if traceback is not None and traceback.chained == IGNORED and rule.id == TRACEBACK:
                    continue
                finds.append(
                    Find(
                        replace(event, file=index),
                        rule,
                        file,
                        event.rank if event.rank is not None else own_rank,
                        None if event.moment is None else event.moment.in_year(year),
                        kept.count,
                        rule.weighs,
                        traceback=traceback,
                    )
                )
    return sorted(_one_a_line(finds), key=lambda find: find.place)


def _one_a_line(finds: Sequence[Find]) -> list[Find]:
    """Keep one of several finds for the same exception, the most informative."""
    best: dict[tuple[int, int, str], Find] = {}
    for find in finds:
        key = (*find.place, find.event.text if find.traceback is None else "")
        other = best.get(key)
        if other is None or _knows(find) > _knows(other):
            best[key] = find
    return list(best.values())


def _knows(find: Find) -> int:
    """2: by its frame; 1: by its line; 0: only that it is an exception."""
    return 2 if find.rule.frame is not None else int(find.rule.id != TRACEBACK)


def _year(files: Sequence[FileScan]) -> int:
    """The year of lines that say none: that of most lines that say one."""
    years = Counter(
        event.moment.year
        for file in files
        for kept in file.finds.events.values()
        for event in kept.first
        if event.moment is not None and event.moment.has_year
    )
    return min(years, key=lambda year: (-years[year], year), default=2000)


def weighed(
    finds: Sequence[Find],
    failures: Sequence[FirstFailure],
    restarts: Sequence[tuple[int, int]] = (),
) -> list[Find]:
    """The finds of an attempt with their weights corrected by what stands around them.

    Args:
        finds: of one attempt.
        failures: that torchrun saw first in it.
        restarts: places (file, line) at which attempts begin: what follows shows nothing about this one.
    """
    finds = _survivors(finds, restarts)
    signs = [
        find
        for find in finds
        if not find.survived and find.rule.kind != "info" and find.weight >= _WEAKEST_SIGN
    ]
    return [_corrected(find, signs, failures) for find in finds]


def _corrected(find: Find, signs: Sequence[Find], failures: Sequence[FirstFailure]) -> Find:
    if find.survived:
        note = "the run went on after it"
        return replace(find, weight=min(find.weight, SURVIVED), note=note)
    if find.rule.id == TRACEBACK and find.traceback is None:
        note = "its traceback is not in the log"
        return replace(find, weight=min(find.weight, _BARE), note=note)
    if find.traceback is not None and find.traceback.chained == "handled":
        if find.rule.id in _OFTEN_HANDLED:
            note = "it was being handled when another came"
            return replace(find, weight=min(find.weight, _HANDLED), note=note)
        return find
    if (code := _DEATHS.get(find.rule.id)) is not None and failures:
        return _with_summary(find, code, failures)
    if find.rule.id == _SILENT_FAILURE:
        return _silent(find, signs, failures)
    if find.rule.id in _ENDED_FROM_OUTSIDE and any(_before(sign, find) for sign in signs):
        note = "the run was in trouble before"
        return replace(find, weight=min(find.weight, _AFTERWARDS), note=note)
    if find.rule.id == _KILLED and any(
        sign.rule.id in _TIMEOUTS and _before(sign, find) for sign in signs
    ):
        note = "a collective had timed out before"
        return replace(find, weight=min(find.weight, _AFTERWARDS), note=note)
    if find.rule.id == TRACEBACK and any(_leads_to(sign, find) for sign in signs):
        note = "the rank had lost the others before"
        return replace(find, weight=min(find.weight, _GAVE_UP), note=note)
    return find


def _with_summary(find: Find, code: int, failures: Sequence[FirstFailure]) -> Find:
    """A process's death, beside what torchrun saw fail first."""
    for failure in failures:
        if failure.exit_code == code:
            note = "torchrun saw this end before any other"
            rank = find.rank if failure.rank is None else failure.rank
            return replace(find, weight=find.weight + _CONFIRMED, note=note, rank=rank)
    note = "torchrun saw another failure first"
    return replace(find, weight=min(find.weight, _REFUTED), note=note)


def _silent(find: Find, signs: Sequence[Find], failures: Sequence[FirstFailure]) -> Find:
    """A rank that failed first, of which no line says why."""
    for failure in failures:
        told = any(sign.rank == failure.rank for sign in signs)
        if failure.rank is not None and (failure.exit_code or 0) > 0 and not told:
            note = (
                f"rank {failure.rank} ended with exit code {failure.exit_code} and left no message"
            )
            return replace(find, weight=_SILENT, note=note, rank=failure.rank)
    return find


def _leads_to(sign: Find, find: Find) -> bool:
    """Whether a sign of lost peers came before an exception, on its rank or clearly earlier."""
    if sign.rule.id not in _LOST_OTHERS:
        return False
    same = sign.event.file == find.event.file and sign.rank == find.rank
    return (same and sign.event.line < find.event.line) or _earlier(sign, find)


def _before(sign: Find, find: Find) -> bool:
    if sign.rule.id == find.rule.id:
        return False
    same = sign.event.file == find.event.file
    return (same and sign.event.line < find.event.line) or _earlier(sign, find)


def _earlier(one: Find, other: Find) -> bool:
    if one.time_s is None or other.time_s is None:
        return False
    return one.time_s < other.time_s - _LATER_S


def _survivors(finds: Sequence[Find], restarts: Sequence[tuple[int, int]]) -> list[Find]:
    """Mark errors followed by many lines without another, by further steps, or by a successful end."""
    lines: dict[int, list[int]] = {}
    for find in finds:
        if find.rule.kind != "info":
            lines.setdefault(find.event.file, []).append(find.event.line)
    latest = {(find.event.file, find.rule.id): find for find in finds}
    survivors = []
    for find in finds:
        told = latest[find.event.file, find.rule.id] if find.rule.lasting else find
        own = lines.get(find.event.file, [])
        place = bisect_right(own, told.event.line)
        following = own[place] if place < len(own) else find.file.feeds
        survived = following - told.event.line > SURVIVED_LINES or _went_on(told, finds, restarts)
        survivors.append(replace(find, survived=survived))
    return survivors


def _went_on(find: Find, finds: Sequence[Find], restarts: Sequence[tuple[int, int]]) -> bool:
    """Whether steps or a good end follow an error, before its attempt ends.

    A program that fails may still print the steps that it had buffered: if a launcher saw it fail, steps
    show nothing. A lasting trouble is over only with further steps, however the run ended.
    """
    after = [
        each.event.line
        for each in finds
        if each.file is find.file and each.event.line > find.event.line
    ]
    progress = find.file.finds.progress
    begin = bisect_right(progress, (find.event.line, (chr(0x10FFFF),)))
    file, own = find.place
    limit = min((line for at, line in restarts if at == file and line > own), default=1 << 60)
    following = [each for each in progress[begin:] if each[0] < limit]
    ends = [line for line, counts in following if not counts]
    steps = len({counts for _, counts in following if counts})
    if find.rule.lasting:
        return steps >= SURVIVED_COUNTS
    if ends and not any(line > ends[-1] for line in after):
        return True
    failed = any((failure.exit_code or 0) > 0 for failure in find.file.finds.failures) or any(
        each.rule.id == _SILENT_FAILURE for each in finds if each.event.line > find.event.line
    )
    return not failed and steps >= SURVIVED_COUNTS


def attempts_of(finds: Sequence[Find]) -> Mapping[tuple[int, int], int]:
    """The attempt, from 0, to which each find belongs: the number of restarts before it.

    A file that has no restarts uses the times of the file that has most; finds without a time belong to
    the last attempt.
    """
    restarts: dict[int, list[Find]] = {}
    for find in finds:
        if find.rule.kind == "restart":
            restarts.setdefault(find.event.file, []).append(find)
    if not restarts:
        return {find.place: 0 for find in finds}
    longest = max(restarts.values(), key=len)
    times = sorted(each.time_s for each in longest if each.time_s is not None)
    attempts = {}
    for find in finds:
        if own := restarts.get(find.event.file):
            attempts[find.place] = sum(each.event.line < find.event.line for each in own)
        elif find.time_s is not None and times:
            attempts[find.place] = bisect_left(times, find.time_s)
        else:
            attempts[find.place] = len(longest)
    return attempts
