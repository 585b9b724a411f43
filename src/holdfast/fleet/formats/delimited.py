"""Delimited text (CSV, TSV, ``sacctmgr -P``) as columns of strings, each record with its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet.formats.source import Records, Rejects
from holdfast.opening import first_bytes, open_source

DELIMITERS = ("|", ",", "\t", ";")
WRONG_WIDTH = "another number of fields than the header"
_RECORDS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Header:
    """The first line of a delimited file."""

    delimiter: str
    names: tuple[str, ...]  # As written, without blanks and quotes around them


def header_of(head: bytes, delimiter: str | None = None) -> Header | None:
    """The header on the first line, or None if that line is not one of at least two columns.

    Args:
        head: the start of the source.
        delimiter: of the fields; None: the one of `DELIMITERS` that occurs most.
    """
    line = (
        head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode(errors="replace").strip("\r")
    )
    if delimiter is None:
        delimiter = max(DELIMITERS, key=line.count)
    if delimiter not in line or (not line.isprintable() and "\t" not in line):
        return None
    if len(delimiter) > 1:
        fields = line.split(delimiter)
    else:
        try:
            fields = next(csv.reader([line], delimiter=delimiter))
        except csv.Error:  # a lone carriage return: no text file
            return None
    return Header(delimiter, tuple(name.strip().strip('"').strip() for name in fields))


def header_at(path: Path, delimiter: str | None = None) -> Header:
    """As `header_of`, for a file.

    Raises:
        InputError: if the first line is not a header.
    """
    head = first_bytes(path)
    header = header_of(head, delimiter)
    if header is None:
        raise InputError(
            "the file does not start with a header line of delimited columns",
            code="unknown-format",
            path=path,
            place="line 1",
            found=repr(head[:80].decode(errors="replace")),
            expected="column names separated by | , ; or tabs",
        )
    return header


def read_delimited(
    path: Path, header: Header, rejects: Rejects, *, quoted: bool, free_text: str | None = None
) -> Iterator[Records]:
    """The records of a delimited file, as strings.

    Args:
        path: the file, compressed or not.
        header: its header.
        rejects: receives the records with another number of fields than the header.
        quoted: whether fields may stand in double quotes (CSV), which may span lines.
        free_text: the one column into which people write what they like, delimiters included; what a
            record has too many goes back there.
    """
    width = len(header.names)
    rows = []
    lines = []
    for line, last, fields in _records(path, header.delimiter, quoted=quoted):
        surplus = len(fields) - width
        if surplus > 0 and free_text in header.names:
            at = header.names.index(free_text)
            fields[at : at + surplus + 1] = [header.delimiter.join(fields[at : at + surplus + 1])]
        if len(fields) != width:
            # An open quote swallows the lines after it: each of them counts.
            for number in range(line, last + 1):
                rejects.add(number, WRONG_WIDTH, header.delimiter.join(fields))
            continue
        rows.append(fields)
        lines.append(line)
        if len(rows) == _RECORDS_AT_ONCE:
            yield _table(rows, lines, header)
            rows = []
            lines = []
    yield _table(rows, lines, header)


def _table(rows: list[list[str]], lines: list[int], header: Header) -> Records:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    columns = columns or [pa.array([], pa.string()) for _ in header.names]
    return Records(pa.table(columns, names=list(header.names)), pa.array(lines, pa.int64()))


def _records(path: Path, delimiter: str, *, quoted: bool) -> Iterator[tuple[int, int, list[str]]]:
    """First and last line, and fields, of each record after the header."""
    with open_source(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        if len(delimiter) > 1 or not quoted:
            next(text, None)
            for number, line in enumerate(text, start=2):
                if bare := line.rstrip("\r\n"):
                    yield number, number, bare.split(delimiter)
            return
        rows = csv.reader(text, delimiter=delimiter)
        try:
            next(rows, None)
            start = rows.line_num + 1
            for fields in rows:
                if fields:
                    yield start, rows.line_num, fields
                start = rows.line_num + 1
        except csv.Error as error:
            raise InputError(
                "the delimited text is damaged",
                code="damaged",
                path=path,
                place=f"line {rows.line_num}",
                found=str(error),
                expected="records of balanced quotes, each field under 128 KB",
            ) from error
