"""The header of `sacct --parsable2`: columns, delimiter, and where the records begin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InputError
from holdfast.fleet.formats.opening import first_bytes
from holdfast.fleet.formats.sacct_fields import CANONICAL, KNOWN, REQUIRED
from holdfast.fleet.formats.sacct_repair import Layout


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


def header_of(path: Path, delimiter: str | None) -> Header:
    """The header of the log in `path`.

    Raises:
        InputError: if there is none, or a column is missing that every analysis needs.
    """
    head = first_bytes(path)
    header = find_header(head, delimiter)
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
