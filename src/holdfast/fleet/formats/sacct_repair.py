"""Records of `sacct --parsable2` put together again.

Job names, comments and submit lines are printed raw. One with a line break spreads a record over
several lines, one with the delimiter adds fields, and one made on purpose looks like another record.
Nothing in a single line tells, so `repair` looks at a stretch of lines at once and takes the cheapest
explanation: which lines join to one record, and which pieces belong to which free-text column, such
that every other column holds what it may hold. A line that fits nowhere is a reject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from holdfast.fleet.formats.sacct_fields import FREE_TEXT, FreeText, looks_submitted, validator

_REJECT_COST = 100.0  # of a line that fits nowhere
_SWALLOW_COST = 150.0  # of taking a line for text although it is a record by itself,
_SWALLOW_STRANGER_COST = 30.0  # less if its job number is far from those of the lines around it
_NEAR = 1000  # job numbers
_BEGINNING_COST = 120.0  # of taking a line for text although it begins like the record that is due
_ODD_SUBMIT_LINE_COST = 50.0
_BLANK_COST = 0.001  # of an empty typed column: decides between equals
_MAX_EXTRA = 64  # delimiters in the free text of one record
_MAX_LINES = 1000  # lines of one record
_MAX_IMITATIONS = 3  # whole records that one name may imitate
_ANY_WORD = "~"
_MAX_DAMAGED = 2  # fields of a record that is told from text all the same
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
    alone = [_alone(each, layout) for each in pieces]
    job_id = layout.columns.index("JobID")
    losses = _losses(pieces, alone, layout)
    count = len(lines)
    cost = [0.0] * (count + 1)
    choice: list[tuple[int, list[str] | None]] = [(0, None)] * count
    for first in range(count - 1, -1, -1):
        blank = not lines[first].strip()
        best = cost[first + 1] + (0.0 if blank else _REJECT_COST)
        chosen: tuple[int, list[str] | None] = (first + 1, None)
        single = alone[first]
        if single is not None and single[0] + cost[first + 1] < best:
            best, chosen = single[0] + cost[first + 1], (first + 1, single[1])
        # A damaged record does not take its missing field from the next line.
        damaged = single is None and _is_damaged(pieces[first], layout)
        whole_head = _BEGINNING_COST if damaged else 0.0
        for last, joined, least in _joins(pieces, first, alone, losses, layout):
            bound = best - cost[last + 1]
            found = _align(joined, layout, bound) if bound > least else None
            if found is None:
                continue
            swallowed = whole_head + sum(
                losses[line]
                for line in range(first + 1, last + 1)
                if not _tail(alone[first], alone[line], found[1][job_id], job_id)
            )
            if found[0] + swallowed < bound:
                best = found[0] + swallowed + cost[last + 1]
                chosen = (last + 1, found[1])
        cost[first], choice[first] = best, chosen
    return _follow(lines, pieces, layout, choice)


def _alone(pieces: list[str], layout: Layout) -> tuple[float, list[str]] | None:
    """What it costs to take a line for a record by itself, and its fields; None if it is none."""
    surplus = len(pieces) - len(layout.columns)
    if surplus == 0 and _valid(pieces, layout):
        return _odd_submit_line(pieces, layout), pieces
    if 0 < surplus <= _MAX_EXTRA and _starts(pieces, layout):
        return _align(pieces, layout, _INFINITE)
    return None


def _tail(
    head: tuple[float, list[str]] | None,
    line: tuple[float, list[str]] | None,
    job: str,
    job_id: int,
) -> bool:
    """Whether a line that could stand alone is the end of a name that precedes the job's number."""
    return head is None and line is not None and line[1][job_id] == job


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


def _joins(
    pieces: list[list[str]],
    first: int,
    alone: list[tuple[float, list[str]] | None],
    losses: list[float],
    layout: Layout,
) -> Iterator[tuple[int, list[str], float]]:
    """Runs of two lines or more from `first` on, shortest first, with enough fields for a record.

    Yields:
        the last line, the joined pieces, and the least that the run can cost.
    """
    if not _starts(pieces[first], layout):
        return
    a_break = min(
        (text.newline_cost for text in layout.free if text is not None), default=_INFINITE
    )
    # If the job's number precedes all free text, a run has that of its first line.
    leads = all(text is None for text in layout.free[: layout.columns.index("JobID")])
    joined = list(pieces[first])
    least, whole = 0.0, 0
    for last in range(first + 1, min(len(pieces), first + _MAX_LINES)):
        whole += alone[last] is not None
        if whole > _MAX_IMITATIONS:
            return
        joined[-1] += "\n" + pieces[last][0]
        joined += pieces[last][1:]
        least += a_break + (losses[last] if leads else 0.0)
        if len(joined) > len(layout.columns) + _MAX_EXTRA or least >= _INFINITE:
            return
        if len(joined) >= len(layout.columns):
            yield last, joined, least


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


def _losses(
    pieces: list[list[str]], alone: list[tuple[float, list[str]] | None], layout: Layout
) -> list[float]:
    """What it costs to take each line for a part of a name.

    Nothing for a line that is no record and begins none. A line that begins like one, with the job
    number that is due, is the head of a broken record or was cut off; one that holds all fields of a
    record but a few, such as a lost job number, is a damaged record: neither is a part of the one above.
    """
    job_id = layout.columns.index("JobID")
    leads = all(text is None for text in layout.free[: job_id + 1])
    plain = [
        _number(each[1][job_id])
        for each, parts in zip(alone, pieces, strict=True)
        if each is not None and len(parts) == len(layout.columns)
    ]
    frame = [*plain[:1], *plain[-1:]]  # the outermost plain records: imitations lie between them
    losses = [0.0] * len(alone)
    for line, (each, parts) in enumerate(zip(alone, pieces, strict=True)):
        if each is not None:
            due = _due(_number(each[1][job_id]), frame)
            losses[line] = _SWALLOW_COST if due else _SWALLOW_STRANGER_COST
        elif leads and frame and len(parts) > job_id + 1 and _starts(parts, layout):
            losses[line] = _BEGINNING_COST if _due(_number(parts[job_id]), frame) else 0.0
        if each is None and _is_damaged(parts, layout):
            losses[line] = _BEGINNING_COST
    return losses


def _is_damaged(pieces: list[str], layout: Layout) -> bool:
    """Whether a line holds a record of which a few fields are damaged."""
    # Tests that let any word pass do not tell a record from text.
    strict = [
        (place, test)
        for place, test in enumerate(layout.tests)
        if test is not None and not test(_ANY_WORD)
    ]
    most = min(_MAX_DAMAGED, len(strict) // 4)
    surplus = len(pieces) - len(layout.columns)
    if surplus < 0:
        return False
    before = [not test(pieces[place]) for place, test in strict]
    after = [not test(pieces[place + surplus]) for place, test in strict]
    # Extra delimiters stand in one column: those before it are in their places, those after it shifted.
    return any(sum(before[:split]) + sum(after[split:]) <= most for split in range(len(strict) + 1))


def _number(job_id: str) -> int:
    return int("".join(takewhile(str.isdigit, job_id)) or 0)


def _due(number: int, around: list[int]) -> bool:
    """Whether a job number may stand between those around it."""
    if not around:
        return True
    span = max(around) - min(around) + _NEAR
    return min(around) - span <= number <= max(around) + span


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
