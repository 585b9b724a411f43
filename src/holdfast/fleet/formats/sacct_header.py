"""The header of `sacct --parsable2`: columns, delimiter, and where the records begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InputError
from holdfast.fleet.formats.fields import state_of
from holdfast.fleet.formats.opening import first_bytes
from holdfast.fleet.formats.sacct_fields import CANONICAL, JOB_ID, KNOWN, REQUIRED
from holdfast.fleet.formats.sacct_repair import Layout

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
    fits = len(fields) == len(columns) and all(
        test is None or test(field) for test, field in zip(layout.tests, fields, strict=True)
    )
    # No line of a log is invalid UTF-8 after it was read: the header never occurs again.
    return (
        Header(layout, len(head) - len(head.removeprefix(b"\xef\xbb\xbf")), 1, b"\xff")
        if fits
        else None
    )


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
