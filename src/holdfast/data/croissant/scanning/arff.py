"""Tables of Weka (ARFF): names in a header, then rows of comma-separated values, ? for none.

Rows go through Arrow into a table that can spill. (SciPy's reader knows no text attributes and reads a file
whole; DuckDB's CSV reader loses rows behind a header of another kind.)
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TextIO

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.scanning.columns import Column, Key, Scan
from holdfast.data.croissant.scanning.opening import (
    Opening,
    compression,
    file_columns,
    fresh,
    keep,
    unpacked,
)
from holdfast.errors import InputError

_ATTRIBUTE = re.compile(
    r"@attribute\s+(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\S+))", re.IGNORECASE
)
_VALUE = re.compile(
    r"""(?:^|,)\s*(?:'((?:[^'\\]|\\.)*)'\s*(?=,|$)|"((?:[^"\\]|\\.)*)"\s*(?=,|$)|([^,]*))"""
)
_ROWS = 65536


def scan(opening: Opening) -> Scan:
    """ARFF files as a relation with columns of text.

    Raises:
        InputError: a column that a file does not have, rows of another length, a file that is no ARFF.
    """
    import pyarrow as pa

    wanted = opening.named("column")
    name = fresh("arff")
    schema = pa.schema(
        [("member", pa.int64()), ("line_number", pa.int64())]
        + [(f"w{place}", pa.string()) for place in range(len(wanted))]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for index, (member, path) in enumerate(zip(opening.members, opening.paths, strict=True)):
            with _opened(path, member) as (names, rows):
                for column in wanted:
                    if column not in names:
                        raise opening.missing(column, names, member, path)
                places = [names.index(column) for column in wanted]
                first = 0
                while part := list(islice(rows, _ROWS)):
                    values = [[_value(row[place]) for row in part] for place in places]
                    yield pa.record_batch(
                        [
                            pa.repeat(pa.scalar(index, pa.int64()), len(part)),
                            pa.array(range(first, first + len(part)), pa.int64()),
                            *(pa.array(column, pa.string()) for column in values),
                        ],
                        schema=schema,
                    )
                    first += len(part)

    keep(opening, name, pa.RecordBatchReader.from_batches(schema, batches()))
    made: dict[Key, Column] = {
        ("column", column): Column(f"w{place}", "VARCHAR") for place, column in enumerate(wanted)
    }
    made["fileProperty", "lineNumbers"] = Column("line_number", "BIGINT")
    made |= file_columns(opening.members, "member")
    close = partial(opening.connection.execute, f"DROP TABLE IF EXISTS {name}")
    order = "member * 1099511627776 + line_number"
    return Scan(name, made, opening.members, order=order, closers=[close])


def names_of(opening: Opening) -> dict[str, str]:
    """The columns of the first file, all of text."""
    with _opened(opening.paths[0], opening.members[0]) as (names, _):
        return dict.fromkeys(names, "VARCHAR")


def _value(text: str) -> str | None:
    bare = text.strip()
    return None if bare in ("", "?") else bare


@contextmanager
def _opened(path: Path, member: Member) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """The names of the columns, and the rows."""
    with unpacked(path, compression(path, member)) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        names: list[str] = []
        for line in text:
            bare = line.strip()
            if attribute := _ATTRIBUTE.match(bare):
                name = next(group for group in attribute.groups() if group is not None)
                names.append(re.sub(r"\\(.)", r"\1", name))
            elif bare.lower().startswith("@data"):
                yield names, _rows(text, len(names), member)
                return
    raise InputError(
        f"{member.fullpath} is no ARFF file",
        path=member.fullpath,
        expected="@attribute lines, then @data and rows of values",
    )


def _rows(text: TextIO, width: int, member: Member) -> Iterator[list[str]]:
    """The rows; values in ' or ", with a backslash before a quote in them; lines with % are remarks."""

    def lines() -> Iterator[str]:
        for line in text:
            if line.strip() and not line.startswith("%"):
                yield line

    for row in _split(lines()):
        if len(row) != width:
            sparse = row[0].lstrip().startswith("{")
            raise InputError(
                f"{member.fullpath} has a row of another length than its attributes",
                path=member.fullpath,
                found="a row of {place value} pairs" if sparse else f"{len(row)} values",
                expected=f"{width} values",
            )
        yield row


def _split(lines: Iterator[str]) -> Iterator[list[str]]:
    # Both quotes are allowed, on one line too; the csv module knows one at a time.
    for line in lines:
        yield [
            re.sub(r"\\(.)", r"\1", found[1] or found[2])
            if found[1] or found[2]
            else found[3] or ""
            for found in _VALUE.finditer(line.rstrip("\r\n"))
        ]
