"""From an error in the middle of a query to the file, line, column and value that caused it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.scanning.columns import MEMBER, Column, Scan
from holdfast.data.croissant.scanning.local_paths import engine_path
from holdfast.data.croissant.scanning.opening import (
    compression,
    invalid_text,
    malformed,
    unpacked,
)
from holdfast.errors import InputError, LimitError

if TYPE_CHECKING:
    import duckdb

Part = tuple[Scan, Mapping[str, tuple[Column, Column]]]
"""A scan of a query, and by field: what was extracted, and the value made of it."""

_CSV = re.compile(r"CSV Error on Line: (\d++)\n(?:Original Line: )?")
_NO_LINES = "state machine reached an invalid state"
_CSV_FILE = re.compile(r"^[^\S\n]*+file = (.*)$", re.MULTILINE)
_LENGTHS = re.compile(r"Input: \"(.* finds \d+ values, .* finds \d+)\"")
_TWICE = re.compile(r"Input: \"a key twice in: (.*?)\"(?:\n|$)", re.DOTALL)
_EXPECTED = {
    "BOOLEAN": "true or false (also t/f, yes/no, y/n, 1/0)",
    "FLOAT": "a number",
    "DOUBLE": "a number",
    "DATE": "a date such as 2024-12-31, or the source's format",
    "TIMESTAMP": "a date and time such as 2024-12-31 23:59:59 (all with an offset or none), or the format",
    "TIMESTAMP WITH TIME ZONE": "a date and time with an offset from UTC, as the first one, or the format",
    "TIME": "a time of day such as 23:59:59, or the source's format",
    "VARCHAR": "text in UTF-8",
}


def explain(
    connection: duckdb.DuckDBPyConnection, error: duckdb.Error, parts: Sequence[Part]
) -> Exception:
    """What to raise in place of an error that a query met.

    Values that do not fit are found by reading the scans again, up to the first.

    Args:
        connection: the one that the scans were opened on.
        error: what DuckDB raised.
        parts: the scans behind the query.

    Returns:
        An `InputError` that names the place, a `LimitError` where memory ended; the error itself where
        neither is to blame.
    """
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return LimitError(
            "the query needs more memory than it may have",
            needed=str(error).splitlines()[0],
            allowed="the memory limit",
            remedy="give a higher memory limit, fewer columns, or a disk with more room to spill to",
        )
    said = _unreadable(str(error), parts)
    if said is not None:
        return said
    if isinstance(error, duckdb.InterruptException):
        return error
    for scan, values in parts:
        for label, (raw, value) in values.items():
            found = _first_misfit(connection, scan, raw, value)
            if found is not None:
                return _misfit(connection, scan, label, raw, value, found)
    return error


def _unreadable(said: str, parts: Sequence[Part]) -> InputError | None:
    """The error of an invalid CSV line, an invalid JSON value, or lists of different lengths."""
    for scan, _ in parts:
        if (wrong := invalid_text(said, scan.paths, scan.members)) is not None:
            return wrong
    if bad := _CSV.search(said):
        named = _CSV_FILE.search(said)
        path = named[1].strip() if named else ""
        # The line, which may hold line breaks, then what is wrong with it, then advice.
        text, _, _ = said[bad.end() :].partition("\nPossible ")
        line, _, reason = text.rstrip().rpartition("\n")
        return InputError(
            "the line is not a row of the table",
            code="damaged",
            path=_fullpath(path, parts),
            place=f"line {bad[1]}",
            found=line.strip()[:200] or None,
            expected=reason.strip() or None,
            remedy="correct the line; quote values that hold separators or line ends, and save as UTF-8",
        )
    if _NO_LINES in said:
        named = _CSV_FILE.search(said)
        return InputError(
            "the lines of the table cannot be told apart",
            code="damaged",
            path=_fullpath(named[1].strip(), parts) if named else None,
            expected="lines that all end alike: in a line feed, a carriage return, or both",
            remedy="save the file with one kind of line end",
        )
    if damage := malformed(said):
        path, place, reason = damage
        return InputError(
            "the file is not JSON that can be read",
            code="duplicate" if "has duplicate key" in reason else "damaged",
            path=_fullpath(path, parts),
            place=place,
            found=reason,
        )
    if bad := _TWICE.search(said):
        return InputError(
            "an object has two members with the same key",
            code="duplicate",
            path=parts[0][0].members[0].fullpath if parts else None,
            found=bad[1][:80],
            expected="each key once: readers disagree about which of them counts",
        )
    if bad := _LENGTHS.search(said):
        return InputError(
            "the JSONPaths of a record set find different numbers of values",
            code="conflict",
            path=parts[0][0].members[0].fullpath if parts else None,
            found=bad[1],
            expected="as many of each: they are the fields of the same records",
            remedy="share all up to the last [*] among the paths, or describe two record sets",
        )
    return None


def _fullpath(path: str, parts: Sequence[Part]) -> str:
    for scan, _ in parts:
        for local, member in zip(scan.paths, scan.members, strict=False):
            if str(engine_path(local)) == path:
                return member.fullpath
    return path


def _first_misfit(
    connection: duckdb.DuckDBPyConnection, scan: Scan, raw: Column, value: Column
) -> tuple[Any, int, int] | None:
    """The first value that fails: as text, its row in the scan from 0, its member's place."""
    import duckdb

    if raw.late or value.late:
        return None
    # A list with a null is not null, so TRY returns null only for a failure.
    tried = f"TRY([{value.sql}])"
    try:
        # All of the result: one that is not fetched to its end keeps the connection busy.
        rows = connection.execute(
            f"SELECT found, place, member FROM (SELECT CAST({raw.sql} AS VARCHAR) AS found, "
            f"{tried} AS kept, row_number() OVER () - 1 AS place, {scan.columns[MEMBER].sql} AS member "
            f"FROM {scan.relation}) WHERE kept IS NULL LIMIT 1"
        ).fetchall()
    except duckdb.Error:
        return None
    return rows[0] if rows else None


def _misfit(
    connection: duckdb.DuckDBPyConnection,
    scan: Scan,
    label: str,
    raw: Column,
    value: Column,
    found: tuple[Any, int, int],
) -> InputError:
    text, place, index = found
    member = scan.members[index]
    if len(scan.members) > 1:
        [[before]] = connection.execute(
            f"SELECT count(*) FROM {scan.relation} WHERE {scan.columns[MEMBER].sql} < {index}"
        ).fetchall()
        place -= before
    column = next(
        (name for (kind, name), made in scan.columns.items() if made == raw and name), None
    )
    where = _row(scan, index, place)
    kind = value.type
    return InputError(
        f"a value does not fit field {label!r}",
        code="invalid-value",
        path=member.fullpath,
        place=f"{where}, {column!r}" if column else where,
        found=repr(text)[:200],
        expected=_EXPECTED.get(kind, f"a value of type {kind}")
        if "INT" not in kind or kind.endswith("]")
        else f"a whole number that fits {kind}",
        remedy="correct the value, or declare another dataType",
    )


def _row(scan: Scan, index: int, place: int) -> str:
    """A row of a file as people count: the line of text it begins on, or its number from 1."""
    if scan.kind in ("csv", "tsv"):
        line = _line_of(scan.paths[index], scan.members[index], place)
        return f"line {line}" if line else f"row {place + 1}"
    if scan.kind in ("jsonl", "lines"):
        return f"line {place + 1}"
    return f"row {place + 1}"


def _line_of(path: Path, member: Member, place: int) -> int | None:
    """The line on which a row of a CSV file begins; values may hold line ends."""
    with unpacked(path, compression(path, member)) as file, suppress(csv.Error):  # a long value
        text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
        rows = csv.reader(text)
        begins = 1
        number = -1  # of the header
        for row in rows:
            if row:
                if number == place:
                    return begins
                number += 1
            begins = rows.line_num + 1
    return None
