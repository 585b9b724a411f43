"""Records of `sacct --parsable2` put together again.

Job names, comments and submit lines are printed raw. One with a line break spreads a record over
several lines, one with the delimiter adds fields, and one made on purpose looks like another record.
Nothing in a single line tells, so `repair` looks at a stretch of lines at once and takes the cheapest
explanation: which lines join to one record, and which pieces belong to which free-text column, such
that every other column holds what it may hold. A line that fits nowhere is a reject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from holdfast.fleet.formats.sacct_fields import FREE_TEXT, FreeText, looks_submitted, validator

_REJECT_COST = 100.0  # of a line that fits nowhere
_SWALLOW_COST = 150.0  # of taking a line for text although it is a record by itself,
_SWALLOW_STRANGER_COST = 30.0  # less if its job number is far from those of the lines around it
_NEAR = 1000  # job numbers
_ODD_SUBMIT_LINE_COST = 10.0
_BLANK_COST = 0.001  # of an empty typed column: decides between equals
_MAX_EXTRA = 64  # delimiters in the free text of one record
_MAX_LINES = 1000  # lines of one record
_INFINITE = float("inf")

LINE_BREAK = "\\n"
"""What a line break inside a field becomes."""


@dataclass(frozen=True)
class Layout:
    """The header of a log."""

    columns: tuple[str, ...]
    """Canonical names; "" after a trailing delimiter (`sacct --parsable`)."""
    delimiter: str
    tests: tuple[Callable[[str], bool] | None, ...] = field(repr=False, compare=False, default=())
    """For each column the test of what it holds; None for free text."""
    free: tuple[FreeText | None, ...] = field(repr=False, compare=False, default=())

    @classmethod
    def of(cls, columns: Sequence[str], delimiter: str) -> Layout:
        """The layout with its tests."""
        free = tuple(FREE_TEXT.get(name) for name in columns)
        tests = tuple(
            None if text else validator(name) for name, text in zip(columns, free, strict=True)
        )
        return cls(tuple(columns), delimiter, tests, free)


@dataclass(frozen=True)
class Record:
    """One record: its line within the stretch and its fields."""

    line: int
    fields: list[str]


@dataclass(frozen=True)
class Reject:
    """One line that belongs to no record."""

    line: int
    reason: str
    raw: str


def repair(lines: Sequence[str], layout: Layout) -> tuple[list[Record], list[Reject]]:
    r"""The records of a stretch of lines, at the least cost.

    Args:
        lines: consecutive physical lines without their line breaks.
        layout: the columns.

    Returns:
        the records, whose fields hold the two characters ``\n`` for a line break, and the rejects.
    """
    pieces = [line.split(layout.delimiter) for line in lines]
    alone = [len(each) == len(layout.columns) and _valid(each, layout) for each in pieces]
    losses = _losses(pieces, alone, layout)
    count = len(lines)
    cost = [0.0] * (count + 1)
    choice: list[tuple[int, list[str] | None]] = [(0, None)] * count
    for first in range(count - 1, -1, -1):
        blank = not lines[first].strip()
        best = cost[first + 1] + (0.0 if blank else _REJECT_COST)
        chosen: tuple[int, list[str] | None] = (first + 1, None)
        if alone[first] and cost[first + 1] + _odd_submit_line(pieces[first], layout) == 0.0:
            cost[first], choice[first] = 0.0, (first + 1, pieces[first])
            continue
        for last, joined in _joins(pieces, first, layout):
            swallowed = sum(losses[first + 1 : last + 1])
            bound = best - cost[last + 1] - swallowed
            if bound <= 0:
                continue
            found = _align(joined, layout, bound)
            if found is not None:
                best = found[0] + swallowed + cost[last + 1]
                chosen = (last + 1, found[1])
        cost[first], choice[first] = best, chosen
    return _follow(lines, pieces, layout, choice)


def _follow(
    lines: Sequence[str],
    pieces: list[list[str]],
    layout: Layout,
    choice: list[tuple[int, list[str] | None]],
) -> tuple[list[Record], list[Reject]]:
    records: list[Record] = []
    rejects: list[Reject] = []
    at = 0
    while at < len(lines):
        following, fields = choice[at]
        if fields is not None:
            records.append(Record(at, [text.replace("\n", LINE_BREAK) for text in fields]))
        elif lines[at].strip():
            rejects.append(Reject(at, _reason(pieces[at], layout), lines[at]))
        at = following
    return records, rejects


def _joins(pieces: list[list[str]], first: int, layout: Layout) -> list[tuple[int, list[str]]]:
    """Every run of lines from `first` on that has enough fields for a record, shortest first."""
    wanted = len(layout.columns)
    joined = list(pieces[first])
    if not _starts(joined, layout):
        return []
    runs = []
    for last in range(first, min(len(pieces), first + _MAX_LINES)):
        if last > first:
            joined[-1:] = [joined[-1] + "\n" + pieces[last][0]]
            joined += pieces[last][1:]
        if len(joined) > wanted + _MAX_EXTRA:
            break
        if len(joined) >= wanted:
            runs.append((last, list(joined)))
    return runs


def _starts(pieces: list[str], layout: Layout) -> bool:
    """Whether the columns before the first free text hold what they may hold."""
    for piece, test in zip(pieces, layout.tests, strict=False):
        if test is None:
            return True
        if not test(piece):
            return False
    return True


def _valid(pieces: Sequence[str], layout: Layout) -> bool:
    return all(
        test is None or test(piece) for piece, test in zip(pieces, layout.tests, strict=True)
    )


def _losses(pieces: list[list[str]], alone: list[bool], layout: Layout) -> list[float]:
    """What it costs to take each line for a part of a name: nothing, unless it is a record."""
    place = layout.columns.index("JobID") if "JobID" in layout.columns else 0
    whole = [line for line, is_whole in enumerate(alone) if is_whole]
    numbers = [int("".join(takewhile(str.isdigit, pieces[line][place])) or 0) for line in whole]
    losses = [0.0] * len(pieces)
    for at, line in enumerate(whole):
        around = numbers[max(at - 1, 0) : at] + numbers[at + 1 : at + 2]
        near = not around or min(around) - _NEAR <= numbers[at] <= max(around) + _NEAR
        losses[line] = _SWALLOW_COST if near else _SWALLOW_STRANGER_COST
    return losses


def _odd_submit_line(fields: Sequence[str], layout: Layout) -> float:
    return sum(
        _ODD_SUBMIT_LINE_COST
        for name, text in zip(layout.columns, fields, strict=True)
        if name == "SubmitLine" and not looks_submitted(text)
    )


def _align(pieces: list[str], layout: Layout, bound: float) -> tuple[float, list[str]] | None:
    """The cheapest way to spread the surplus pieces over the free-text columns, below `bound`.

    Dynamic programming over (column, surplus used so far).
    """
    surplus = len(pieces) - len(layout.columns)
    breaks = [piece.count("\n") for piece in pieces]
    cost = [0.0] + [_INFINITE] * surplus
    taken: list[list[int]] = []  # [column][surplus after it] -> surplus that the column took
    for column, (test, text) in enumerate(zip(layout.tests, layout.free, strict=True)):
        took = [0] * (surplus + 1)
        after = [_INFINITE] * (surplus + 1)
        for used in range(surplus + 1):
            if cost[used] >= bound:
                continue
            if text is None:
                piece = pieces[column + used]
                if test is not None and test(piece):
                    after[used] = cost[used] if piece else cost[used] + _BLANK_COST
                continue
            spent = cost[used]
            if layout.columns[column] == "SubmitLine" and not looks_submitted(
                pieces[column + used]
            ):
                spent += _ODD_SUBMIT_LINE_COST
            for more in range(surplus - used + 1):
                spent += text.newline_cost * breaks[column + used + more]
                total = spent + text.delimiter_cost * more
                if total >= bound:
                    break
                if total < after[used + more]:
                    after[used + more] = total
                    took[used + more] = more
        if min(after) >= bound:
            return None
        cost = after
        taken.append(took)
    if cost[surplus] >= bound:
        return None
    fields: list[str] = []
    used = surplus
    for column in range(len(layout.columns) - 1, -1, -1):
        more = taken[column][used]
        used -= more
        fields.append(layout.delimiter.join(pieces[column + used : column + used + more + 1]))
    fields.reverse()
    return cost[surplus], fields


def _reason(pieces: list[str], layout: Layout) -> str:
    """Why a line is no record, in words."""
    wanted = len(layout.columns)
    if len(pieces) != wanted:
        return f"{len(pieces)} fields, expected {wanted}"
    for name, piece, test in zip(layout.columns, pieces, layout.tests, strict=True):
        if test is not None and not test(piece):
            return f"{name or 'a column'} holds {piece[:60]!r}"
    return "it continues no record"
