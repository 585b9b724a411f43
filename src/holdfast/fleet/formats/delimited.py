"""Delimited text (CSV, TSV, ``sacctmgr -P``) as columns of strings; rejects with their lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.fleet.formats.columns import Column, flat
from holdfast.fleet.formats.source import Rejects
from holdfast.opening import open_source, read_exactly, unreadable

DELIMITERS = ("|", ",", "\t", ";")
WRONG_WIDTH = "another number of fields than the header"


@dataclass(frozen=True)
class Header:
    """The first line of a delimited file."""

    delimiter: str
    names: tuple[str, ...]
    """As written, without blanks and quotes around them."""


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
        InputError: if the first line is no header.
    """
    with open_source(path) as file:
        head = read_exactly(file, 1 << 16, path)
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
    path: Path, header: Header, *, quoted: bool, free_text: str | None = None
) -> Iterator[pa.Table]:
    """The records of a delimited file as tables of strings; ragged records are left out.

    Args:
        path: the file, compressed or not.
        header: its header.
        quoted: whether fields may stand in double quotes (CSV), which may span lines.
        free_text: the one column into which people write what they like, delimiters included; what a
            record has too many goes back there. For files that fit in memory.

    Yields:
        Tables with the header's columns, in its order; together they hold every
        record whose number of fields is the header's, in order: the index over all of them is what
        `place_rejects` takes.
    """
    if len(header.delimiter) > 1 or free_text is not None:
        yield _split_in_memory(path, header, free_text)
        return
    import pyarrow.csv as arrow_csv

    names = list(header.names)
    try:
        with open_source(path) as file:
            file.readline()
            if not file.read(1):  # Arrow cannot skip a header that is all there is
                return
        with open_source(path) as file:
            reader = arrow_csv.open_csv(
                file,
                read_options=arrow_csv.ReadOptions(
                    column_names=names, skip_rows=1, block_size=8 << 20, use_threads=False
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=header.delimiter,
                    quote_char='"' if quoted else False,
                    newlines_in_values=quoted,
                    ignore_empty_lines=True,
                    invalid_row_handler=lambda row: "skip",
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False
                ),
            )
            for batch in reader:
                if batch.num_rows:
                    yield pa.table([_text(column) for column in batch.columns], names=names)
    except OSError as error:
        raise unreadable(path, error) from error
    except pa.ArrowInvalid as error:
        raise InputError(
            "the delimited text is damaged",
            code="damaged",
            path=path,
            found=str(error),
            expected="records of balanced quotes, each under 8 MB",
        ) from error


def place_rejects(
    path: Path,
    header: Header,
    reasons: Mapping[int, str],
    records: int,
    rejects: Rejects,
    *,
    quoted: bool,
    free_text: str | None = None,
) -> None:
    """Find line and text of the records that cannot be used.

    Args:
        path: the file.
        header: its header.
        reasons: index of a record, as `read_delimited` counts them, -> why it cannot be used.
        records: how many records `read_delimited` gave; ragged ones are found besides.
        rejects: receives them.
        quoted: as for `read_delimited`.
        free_text: as for `read_delimited`.
    """
    width, index = len(header.names), 0
    for line, fields in _records(path, header, quoted=quoted, free_text=free_text):
        if len(fields) != width:
            rejects.add(line, WRONG_WIDTH, header.delimiter.join(fields))
            continue
        if index in reasons:
            rejects.add(line, reasons[index], header.delimiter.join(fields))
        index += 1
    if index != records:
        # Arrow and csv disagree about a quote: the reasons stand, the lines would be wrong.
        rejects.add(1, f"{abs(index - records)} records with unbalanced quotes", "")


def _records(
    path: Path, header: Header, *, quoted: bool, free_text: str | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of each record."""
    with open_source(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        if len(header.delimiter) > 1 or not quoted:
            for number, line in enumerate(text, start=1):
                bare = line.rstrip("\r\n")
                if number > 1 and bare:
                    yield number, _rejoined(bare.split(header.delimiter), header, free_text)
            return
        csv.field_size_limit(1 << 30)
        rows = csv.reader(text, delimiter=header.delimiter)
        next(rows, None)
        start = rows.line_num + 1
        for fields in rows:
            if fields:
                yield start, fields
            start = rows.line_num + 1


def _rejoined(fields: list[str], header: Header, free_text: str | None) -> list[str]:
    """The fields, with those that a delimiter in the column `free_text` made put together again."""
    surplus = len(fields) - len(header.names)
    if surplus <= 0 or free_text not in header.names:
        return fields
    at = header.names.index(free_text)
    text = header.delimiter.join(fields[at : at + surplus + 1])
    return [*fields[:at], text, *fields[at + surplus + 1 :]]


def _split_in_memory(path: Path, header: Header, free_text: str | None) -> pa.Table:
    names = list(header.names)
    records = _records(path, header, quoted=False, free_text=free_text)
    rows = [row for _, row in records if len(row) == len(names)]
    return pa.table(
        [pa.array([row[i] for row in rows], pa.string()) for i in range(len(names))], names=names
    )


def _text(values: Column) -> pa.Array:
    array = flat(values)
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [value.as_py().decode(errors="replace") if value.is_valid else None for value in array],
            pa.string(),
        )
