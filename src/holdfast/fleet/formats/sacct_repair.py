"""Records of `sacct --parsable2` put together again.

Job names, comments and submit lines are printed raw. One with a line break spreads a record over
several lines, one with the delimiter adds fields, and one made on purpose looks like another record.
Nothing in a single line tells, so `repair` looks at a stretch of lines at once and takes the cheapest
explanation: which lines join to one record, and which pieces belong to which free-text column, such
that every other column holds what it may hold. A line that fits nowhere is a reject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from holdfast.errors import InputError
from holdfast.fleet.formats.fields import BLANKS, duration_s, state_of
from holdfast.opening import first_bytes

# --- What a column may hold ---------------------------------------------------------------------

REQUIRED = ("JobID", "State")

NEEDED = frozenset((
    "Cluster", "User", "Account", "Partition", "QOS", "WorkDir", "State", "Reason", "ExitCode",
    "DerivedExitCode", "Timelimit", "TimelimitRaw", "NNodes", "AllocNodes", "NodeList",
    "AllocTRES", "AllocGRES", "ReqTRES", "ReqGRES", "AllocCPUS", "NCPUS", "ReqCPUS", "FailedNode",
    "Restarts", "JobID", "JobIDRaw", "DBIndex", "JobName", "Priority", "Submit", "Eligible", "Start", "End",
    "Elapsed", "ElapsedRaw", "SubmitLine",
))  # fmt: skip
"""Columns that say something for the store's tables."""

TIMES = ("Submit", "Eligible", "Start", "End")

JOB_ID = (
    r"^\d+(_(\d+|\[[^\]\n]*\]))?(\+\d+)?"
    r"(\.(batch|extern|interactive|TBD|\d+(\+\d+)?|\d+\.(batch|extern|interactive)))?$"
)
SUBMIT_LINE = r"^\s*$|^(\S*/)?(sbatch|srun|salloc|scrun|sattach|slurmrestd)(\s|$)"

# Columns in which users write what they like -> how unlikely a line break is in them; the delimiter is
# a tenth of that.
FREE_TEXT = {
    **dict.fromkeys(("JobName", "Comment", "SubmitLine"), 1.0),
    **dict.fromkeys(("SystemComment", "Extra"), 5.0),
    **dict.fromkeys(("AdminComment", "WorkDir", "Constraints", "StdErr", "StdIn", "StdOut"), 30.0),
    **dict.fromkeys(("Container", "Reason", "WCKey"), 100.0),
}

_JOB_ID = re.compile(JOB_ID)
_SUBMIT_LINE = re.compile(SUBMIT_LINE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d\d:?\d\d|Z)?|\d{9,11}|-?\d{1,5}")
_INTEGER = re.compile(r"-?\d*")
_EXIT_CODE = re.compile(r"(\d+:\d+)?")
_TRES = re.compile(r"([\w/:.+-]+=[^=,|\n]*(,[\w/:.+-]+=[^=,|\n]*)*)?")
_HOSTS = re.compile(r"[A-Za-z0-9_.,\[\]-]*|None [Aa]ssigned|\(none\)")
_WORD = re.compile(r"[^\s|]*")
_LINE = re.compile(r"[^\n]*")

_INTEGERS = frozenset(
    """AllocCPUS AllocNodes AssocID CPUTimeRAW DBIndex ElapsedRaw GID NCPUS NNodes NTasks
    Priority QOSRAW ReqCPUS ReqNodes ReservationId ResvCPURAW PlannedCPURAW UID WCKeyID
    Restarts MaxDiskReadTask MaxDiskWriteTask MaxPagesTask MaxRSSTask MaxVMSizeTask
    MinCPUTask""".split()  # noqa: SIM905
)
_DURATIONS = frozenset(
    """AveCPU CPUTime Elapsed MinCPU Reserved ResvCPU Planned PlannedCPU Suspended SystemCPU
    TotalCPU UserCPU""".split()  # noqa: SIM905
)
_WORDS = ("User", "Group", "Cluster", "Partition", "QOS")


KNOWN = NEEDED | _INTEGERS | _DURATIONS | FREE_TEXT.keys() | {"Group", "ReqMem", "WCKey", "AveRSS"}
"""Columns of which something is known; a log of `sacct` has these for the most part."""

CANONICAL = {name.lower(): name for name in KNOWN}

# Column -> what it holds, and whether it may be blank instead.
_PATTERNS = {
    **dict.fromkeys(TIMES, (_TIME, True)),
    **dict.fromkeys(_INTEGERS, (_INTEGER, True)),
    **dict.fromkeys(_WORDS, (_WORD, True)),
    "NodeList": (_HOSTS, True),
    **dict.fromkeys(("ExitCode", "DerivedExitCode"), (_EXIT_CODE, False)),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), (_TRES, False)),
}


def validator(column: str) -> Callable[[str], bool]:
    """A test of what a column without free text may hold."""
    if column == "State":
        return lambda text: "\n" not in text and state_of(text) is not None
    if column == "":  # after the trailing delimiter of `sacct --parsable`
        return lambda text: text == ""
    if column in _DURATIONS:
        return lambda text: (
            "\n" not in text
            and (text in BLANKS or text == "INVALID" or duration_s(text) is not None)
        )
    if column in ("JobID", "JobIDRaw"):
        return lambda text: _JOB_ID.match(text) is not None and not text.endswith("\n")
    other = (_TRES if column.startswith("TRESUsage") else _LINE, False)
    pattern, or_blank = _PATTERNS.get(column, other)
    return lambda text: (or_blank and text in BLANKS) or pattern.fullmatch(text) is not None


def looks_submitted(text: str) -> bool:
    """Whether a `SubmitLine` is one: blank, or a command that submits."""
    return _SUBMIT_LINE.match(text) is not None


# --- Layout and repair ---------------------------------------------------------------------------

_DELIMITER_COST = 0.1  # beside that of a line break
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
    free: tuple[float | None, ...] = field(repr=False, compare=False, default=())

    @classmethod
    def of(cls, columns: Sequence[str], delimiter: str) -> Layout:
        """The layout with its tests."""
        free = tuple(FREE_TEXT.get(name) for name in columns)
        tests = tuple(
            None if cost else validator(name) for name, cost in zip(columns, free, strict=True)
        )
        return cls(tuple(columns), delimiter, tests, free)

    def holds(self, pieces: Sequence[str]) -> bool:
        """Whether a line of these fields is a whole record by itself."""
        return len(pieces) == len(self.columns) and all(
            test is None or test(piece) for piece, test in zip(pieces, self.tests, strict=True)
        )


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
    if layout.holds(pieces):
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
    a_break = min((cost for cost in layout.free if cost is not None), default=_INFINITE)
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
                spent += text * breaks[column + used + more]
                total = spent + _DELIMITER_COST * text * more
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


# --- The header ----------------------------------------------------------------------------------

XDMOD = (
    *("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID"),
    *("Submit", "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS"),
    *("ReqCPUS", "ReqMem", "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName"),
)
"""What Open XDMoD's slurm helper asks `sacct --noheader` for."""

_TIME_OR_EXIT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d+:\d+")


@dataclass(frozen=True)
class Header:
    """Where the records begin and what their columns are."""

    layout: Layout
    size: int
    """Bytes up to the first record, blank lines before the header included."""
    lines: int
    line: bytes
    """As printed, without the line's end."""


def find_header(head: bytes, delimiter: str | None = None) -> Header | None:
    """The header of a log, or None if the bytes begin with none.

    Args:
        head: the first bytes of the source.
        delimiter: as given to `sacct --delimiter`; None: what stands between the first two columns.
    """
    body = head.removeprefix(b"\xef\xbb\xbf")
    skipped = len(head) - len(body)
    stripped = body.lstrip(b" \t\r\n")
    blank = body[: len(body) - len(stripped)]
    line, newline, _ = stripped.partition(b"\n")
    text = line.decode(errors="replace").rstrip("\r")
    if delimiter is None:
        delimiter = _delimiter(text)
        if delimiter is None:
            return None
    printed = [name.strip() for name in text.split(delimiter)]
    # A column that a later Slurm adds keeps its name and may hold anything but a line break.
    names = [CANONICAL.get(name.lower(), name) for name in printed]
    known = sum(name in KNOWN for name in names)
    if known < max(2, len(names) // 2):
        return None
    if "JobID" not in names and not (known >= 3 and KNOWN.issuperset({*printed} - {""})):
        return None
    size = skipped + len(blank) + len(line) + len(newline)
    return Header(Layout.of(names, delimiter), size, blank.count(b"\n") + 1, line.rstrip(b"\r"))


def _delimiter(text: str) -> str | None:
    """What stands between the first two column names, one of which is known."""
    match = re.match(r"(\w+)(\W{1,8}?)(\w+)", text)
    if match is None or not {match[1].lower(), match[3].lower()} & CANONICAL.keys():
        return None
    return match[2] if match[2].strip() or match[2] == "\t" else None


def headerless(
    head: bytes, delimiter: str | None = None, columns: Sequence[str] = XDMOD
) -> Header | None:
    """The header that `sacct --noheader` left out, or None if the columns do not fit the first line.

    Args:
        head: the first bytes of the source.
        delimiter: as given to `sacct --delimiter`; None: "|".
        columns: canonical names.
    """
    delimiter = delimiter or "|"
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    fields = line.decode(errors="replace").rstrip("\r").split(delimiter)
    if len(fields) == len(columns) + 1 and not fields[-1]:  # --parsable ends with a delimiter
        columns = [*columns, ""]
    layout = Layout.of(columns, delimiter)
    skipped = len(head) - len(head.removeprefix(b"\xef\xbb\xbf"))
    # No line of a log is invalid UTF-8 after it was read: the header never occurs again.
    return Header(layout, skipped, 1, b"\xff") if layout.holds(fields) else None


def looks_headerless(head: bytes, delimiter: str | None = None) -> bool:
    """Whether the source looks like `sacct --noheader`: job numbers and states on its first lines."""
    lines = head.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").splitlines()[:20]
    rows = [line.split(delimiter or "|") for line in lines if line.strip()]
    good = [
        len(row) > 1
        and re.match(JOB_ID, row[0]) is not None
        and any(state_of(field) is not None and len(field) > 2 for field in row)
        and any(_TIME_OR_EXIT.fullmatch(field) for field in row)
        for row in rows
    ]
    return bool(rows) and good[0] and 2 * sum(good) > len(rows)


def _named(columns: str) -> list[str]:
    """Canonical names of "jobid,state%20,..." as given to `sacct --format`."""
    names = [name.partition("%")[0].strip() for name in re.split(r"[,|\s]+", columns.strip())]
    return [CANONICAL.get(name.lower(), name) for name in names]


def header_of(path: Path, delimiter: str | None, columns: str | None = None) -> Header:
    """The header of the log in `path`, or what `columns` says where it has none.

    Raises:
        InputError: if there is none, or a column is missing that every analysis needs.
    """
    head = first_bytes(path)
    header = find_header(head, delimiter)
    if header is None and columns:
        names = _named(columns)
        header = headerless(head, delimiter, names)
        if header is None:
            raise InputError(
                "the columns do not fit the first line",
                code="conflict",
                path=path,
                place="line 1",
                found=head.partition(b"\n")[0][:120].decode(errors="replace"),
                expected=f"{len(names)} fields: {', '.join(names)}",
                remedy="give --columns exactly what `sacct --format` was given",
            )
    header = header or headerless(head, delimiter)
    if header is None and looks_headerless(head, delimiter):
        raise InputError(
            "this looks like sacct without a header",
            code="missing-header",
            path=path,
            place="line 1",
            expected="column names such as JobID|State|Start|End",
            remedy="name the columns with --columns, exactly as given to `sacct --format`",
        )
    if header is None:
        first = head.strip().split(b"\n", 1)[0][:120].decode(errors="replace")
        raise InputError(
            "no header of `sacct --parsable2` was found",
            code="unknown-format",
            path=path,
            place="line 1",
            found=repr(first) if first else "nothing",
            expected="column names such as JobID|State|Start|End",
            remedy="write the log with `sacct --parsable2` and without --noheader",
        )
    missing = [name for name in REQUIRED if name not in header.layout.columns]
    if missing:
        raise InputError(
            f"missing column: {missing[0]}",
            code="missing-column",
            path=path,
            place=f"line {header.lines}",
            found=", ".join(name for name in header.layout.columns[:12] if name),
            expected=f"at least {' and '.join(REQUIRED)}, better Submit, Start, End, NodeList, "
            "AllocTRES too",
            remedy="add the column to `sacct --format`",
        )
    return header
