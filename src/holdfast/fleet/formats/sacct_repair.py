"""Records of `sacct --parsable2` put together again.

Job names, comments and submit lines are printed raw: one with a line break spreads a record over several
lines, one with the delimiter adds fields. `repair` joins the lines of a stretch to records and gives the
pieces to the free-text columns such that every other column holds what it may hold, at the least cost. A
line that fits nowhere is a reject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.config import parse_config
from holdfast.errors import InputError
from holdfast.fleet.formats.fields import BLANKS, duration_s, state_of
from holdfast.opening import first_bytes

# --- What a column may hold ---------------------------------------------------------------------

REQUIRED = ("JobID", "State")

_COLUMNS = parse_config(Path(__file__).with_name("sacct.toml"), "the columns of sacct")
NEEDED = frozenset(_COLUMNS["needed"])  # Columns that say something for the store's tables
TIMES = ("Submit", "Eligible", "Start", "End")

JOB_ID = (
    r"^\d+(_(\d+|\[[^\]\n]*\]))?(\+\d+)?"
    r"(\.(batch|extern|interactive|TBD|\d+(\+\d+)?|\d+\.(batch|extern|interactive)))?$"
)

# Columns in which users write what they like -> how unlikely a line break is in them; the delimiter is
# a tenth of that.
FREE_TEXT: dict[str, float] = _COLUMNS["free_text"]

_JOB_ID = re.compile(JOB_ID)
_SUBMIT_LINE = re.compile(r"\s*$|(\S*/)?(sbatch|srun|salloc|scrun|sattach|slurmrestd)(\s|$)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d\d:?\d\d|Z)?|\d{9,11}|-?\d{1,5}")
_INTEGER = re.compile(r"-?\d*")
_EXIT_CODE = re.compile(r"(\d+:\d+)?")
_TRES = re.compile(r"([\w/:.+-]+=[^=,|\n]*(,[\w/:.+-]+=[^=,|\n]*)*)?")
_HOSTS = re.compile(r"[A-Za-z0-9_.,\[\]-]*|None [Aa]ssigned|\(none\)")
_WORD = re.compile(r"[^\s|]*")
_LINE = re.compile(r"[^\n]*")

_INTEGERS, _DURATIONS, _WORDS = (frozenset(_COLUMNS[k]) for k in ("integers", "durations", "words"))

# Columns of which something is known; a log of `sacct` has these for the most part
KNOWN = NEEDED | _INTEGERS | _DURATIONS | FREE_TEXT.keys() | {"Group", "ReqMem", "WCKey", "AveRSS"}

CANONICAL = {name.lower(): name for name in KNOWN}

# Column -> what it holds, and whether it may be blank instead.
_PATTERNS = {
    **dict.fromkeys(TIMES, (_TIME, True)),
    **dict.fromkeys(_INTEGERS, (_INTEGER, True)),
    **dict.fromkeys(_WORDS, (_WORD, True)),
    **dict.fromkeys(("JobID", "JobIDRaw"), (_JOB_ID, False)),
    "": (re.compile(""), False),  # after the trailing delimiter of `sacct --parsable`
    "NodeList": (_HOSTS, True),
    **dict.fromkeys(("ExitCode", "DerivedExitCode"), (_EXIT_CODE, False)),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), (_TRES, False)),
}


def validator(column: str) -> Callable[[str], bool]:
    """A test of what a column without free text may hold."""
    if column == "State":
        return lambda text: "\n" not in text and state_of(text) is not None
    if column in _DURATIONS:
        return lambda text: (
            "\n" not in text
            and (text in BLANKS or text == "INVALID" or duration_s(text) is not None)
        )
    other = (_TRES if column.startswith("TRESUsage") else _LINE, False)
    pattern, or_blank = _PATTERNS.get(column, other)
    return lambda text: (or_blank and text in BLANKS) or pattern.fullmatch(text) is not None


# --- Layout and repair ---------------------------------------------------------------------------

_DELIMITER_COST = 0.1  # beside that of a line break
_ODD_SUBMIT_LINE_COST = 50.0
_BLANK_COST = 0.001  # of an empty typed column: decides between equals
_MAX_EXTRA = 64  # delimiters in the free text of one record
_MAX_LINES = 1000  # lines of one record
_LIKELY_BREAK = 5.0  # columns in which a name may go on below the last line of its record
_NEAR = 1000  # job numbers of one log that may stand beside each other
_MAX_DAMAGED = 2  # fields of a record that is told from text all the same
_ANY_WORD = "~"
_INFINITE = float("inf")

LINE_BREAK = "\\n"  # What a line break inside a field becomes


@dataclass(frozen=True)
class Layout:
    """The header of a log."""

    columns: tuple[str, ...]  # Canonical names; "" after a trailing delimiter (`sacct --parsable`)
    delimiter: str
    # For each column the test of what it holds; None for free text
    tests: tuple[Callable[[str], bool] | None, ...] = field(repr=False, compare=False, default=())
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


Record = tuple[int, list[str]]  # Its line within the stretch and its fields
Reject = tuple[int, str, str]  # A line that belongs to no record: line, reason, text


def repair(lines: Sequence[str], layout: Layout) -> tuple[list[Record], list[Reject]]:
    r"""The records of a stretch of lines.

    A line that is a record by itself, whole or damaged, is not a part of another. Any other is joined with
    those below it until the pieces fill the columns.

    Args:
        lines: consecutive physical lines without their line breaks.
        layout: the columns.

    Returns:
        the records, whose fields hold the two characters ``\n`` for a line break, and the rejects.
    """
    pieces = [line.split(layout.delimiter) for line in lines]
    alone = [layout.holds(each) or _is_damaged(each, layout) for each in pieces]
    records = []
    rejects = []
    at = 0
    while at < len(lines):
        fields, following = _record_at(at, pieces, alone, layout)
        if fields is not None:
            records.append((at, [text.replace("\n", LINE_BREAK) for text in fields]))
        elif lines[at].strip():
            rejects.append((at, _reason(pieces[at], layout), lines[at]))
        at = following
    return records, rejects


def _record_at(
    at: int, pieces: Sequence[list[str]], alone: Sequence[bool], layout: Layout
) -> tuple[list[str] | None, int]:
    """The fields of the record that begins on a line (None: none does), and the line after it."""
    breaks = (layout.free[-1] or _INFINITE) <= _LIKELY_BREAK
    joined = list(pieces[at])
    found = None
    following = at + 1
    for last in range(at, min(len(pieces), at + _MAX_LINES)):
        if last > at:
            # Past its last typed column, a record goes on until another begins.
            if found is None:
                goes_on = not alone[at]
            else:
                goes_on = breaks and not _begins(pieces[last], found, layout)
            if alone[last] or not goes_on:
                break
            joined[-1] += "\n" + pieces[last][0]
            joined += pieces[last][1:]
        surplus = len(joined) - len(layout.columns)
        if surplus > _MAX_EXTRA:
            break
        if surplus >= 0 and (fields := _align(joined, layout)) is not None:
            found = fields
            following = last + 1
    return found, following


def _begins(pieces: Sequence[str], record: Sequence[str], layout: Layout) -> bool:
    """Whether a line looks like the beginning of a record: one cut off, with a job number that is due."""
    place = layout.columns.index("JobID")
    for piece, test in zip(pieces, layout.tests, strict=False):
        if test is None:
            break
        if not test(piece):
            return False
    if any(layout.free[:place]):
        return True  # nothing tells
    return len(pieces) > place and abs(_number(pieces[place]) - _number(record[place])) < _NEAR


def _number(job_id: str) -> int:
    digits = re.match(r"\d*", job_id)
    return int((digits and digits[0]) or 0)


def _is_damaged(pieces: list[str], layout: Layout) -> bool:
    """Whether a line has all fields of a record, a few of them damaged, and is not text of a name."""
    if len(pieces) != len(layout.columns):
        return False
    # Tests that let any word pass do not tell a record from text.
    strict = [
        test(piece)
        for piece, test in zip(pieces, layout.tests, strict=True)
        if test is not None and not test(_ANY_WORD)
    ]
    return strict.count(False) <= min(_MAX_DAMAGED, len(strict) // 4)


def _align(pieces: list[str], layout: Layout) -> list[str] | None:
    """The cheapest way to spread the surplus pieces over the free-text columns; None if none fits.

    Dynamic programming over (column, surplus used so far).
    """
    surplus = len(pieces) - len(layout.columns)
    if not surplus:
        return pieces if layout.holds(pieces) else None
    breaks = [piece.count("\n") for piece in pieces]
    cost = [0.0] + [_INFINITE] * surplus
    taken = []  # [column][surplus after it] -> surplus that the column took
    for column, (test, text) in enumerate(zip(layout.tests, layout.free, strict=True)):
        took = [0] * (surplus + 1)
        after = [_INFINITE] * (surplus + 1)
        for used in range(surplus + 1):
            piece = pieces[column + used]
            spent = cost[used]
            if spent == _INFINITE:
                continue
            if text is None:
                if test is not None and test(piece):
                    after[used] = spent if piece else spent + _BLANK_COST
                continue
            if layout.columns[column] == "SubmitLine" and not _SUBMIT_LINE.match(piece):
                spent += _ODD_SUBMIT_LINE_COST
            for more in range(surplus - used + 1):
                spent += text * breaks[column + used + more]
                total = spent + _DELIMITER_COST * text * more
                if total < after[used + more]:
                    after[used + more] = total
                    took[used + more] = more
        cost = after
        taken.append(took)
    if cost[surplus] == _INFINITE:
        return None
    fields = []
    used = surplus
    for column in range(len(layout.columns) - 1, -1, -1):
        more = taken[column][used]
        used -= more
        fields.append(layout.delimiter.join(pieces[column + used : column + used + more + 1]))
    return fields[::-1]


def _reason(pieces: list[str], layout: Layout) -> str:
    """Why a line is not a record, in words."""
    wanted = len(layout.columns)
    if len(pieces) != wanted:
        return f"{len(pieces)} fields, expected {wanted}"
    for name, piece, test in zip(layout.columns, pieces, layout.tests, strict=True):
        if test is not None and not test(piece):
            return f"{name or 'a column'} holds {piece[:60]!r}"
    return "it continues no record"


# --- The header ----------------------------------------------------------------------------------

_TIME_OR_EXIT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d+:\d+")


@dataclass(frozen=True)
class Header:
    """Where the records begin and what their columns are."""

    layout: Layout
    size: int  # Bytes up to the first record, blank lines before the header included
    lines: int
    line: bytes  # As printed, without the line's end


def find_header(head: bytes) -> Header | None:
    """The header of a log, or None if its first bytes begin with none."""
    body = head.removeprefix(b"\xef\xbb\xbf")
    skipped = len(head) - len(body)
    stripped = body.lstrip(b" \t\r\n")
    blank = body[: len(body) - len(stripped)]
    line, newline, _ = stripped.partition(b"\n")
    text = line.decode(errors="replace").rstrip("\r")
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


def looks_headerless(head: bytes) -> bool:
    """Whether the first line is a row of `sacct --noheader`: a job number, a state, a time or exit code."""
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode(errors="replace")
    first, *fields = line.rstrip("\r").split("|")
    states = any(len(field) > 2 and state_of(field) is not None for field in fields)
    return bool(_JOB_ID.match(first) and states and any(map(_TIME_OR_EXIT.fullmatch, fields)))


def header_of(path: Path) -> Header:
    """The header of the log in `path`.

    Raises:
        InputError: if there is none, or a column is missing that every analysis needs.
    """
    head = first_bytes(path)
    header = find_header(head)
    if header is None:
        code = "unknown-format"
        problem = "no header of `sacct --parsable2` was found"
        if looks_headerless(head):
            code = "missing-header"
            problem = "this looks like sacct without a header"
        raise InputError(
            problem,
            code=code,
            path=path,
            place="line 1",
            found=head.strip().partition(b"\n")[0][:120].decode(errors="replace") or "nothing",
            expected="column names such as JobID|State|Start|End",
            remedy="write the log with `sacct --parsable2` and its header, or put the names that "
            "`sacct --format` was given above it, with the same delimiter",
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
