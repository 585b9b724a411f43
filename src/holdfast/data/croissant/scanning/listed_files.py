"""Files as rows: one row per file, or one per line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.scanning.columns import CONTENT, MEMBER, Column, Key, Scan
from holdfast.data.croissant.scanning.encodings import decoded, invalid
from holdfast.data.croissant.scanning.opening import (
    Opening,
    compression,
    file_columns,
    fresh,
    keep,
    unpacked,
)

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 1 << 23


def scan_files(opening: Opening, *, early: bool) -> Scan:
    """Members as rows: fullpath, filename, and content, whose bytes are read after the query.

    Args:
        opening: the members; they are not fetched unless their content is read early.
        early: the query computes with the content: the bytes are read now, into a table that can spill.
    """
    import pyarrow as pa

    name = fresh("files")
    connection = opening.connection
    listing = pa.table(
        {
            "member": pa.array(range(len(opening.members)), pa.int64()),
            "fullpath": pa.array([part.fullpath for part in opening.members], pa.string()),
            "filename": pa.array([part.filename for part in opening.members], pa.string()),
        }
    )
    made: dict[Key, Column] = {
        ("fileProperty", "fullpath"): Column("fullpath", "VARCHAR"),
        ("fileProperty", "filename"): Column("filename", "VARCHAR"),
        MEMBER: Column("member", "BIGINT"),
        CONTENT: Column("member", "BLOB", late=True),
    }
    if early:
        opening.resources.fetch(opening.members)
        keep(opening, name, _with_content(opening, listing))
        made[CONTENT] = Column("content", "BLOB")
        close = partial(connection.execute, f"DROP TABLE IF EXISTS {name}")
    else:
        connection.register(name, listing)
        close = partial(connection.unregister, name)
    return Scan(name, made, opening.members, order="member", closers=[close])


def _with_content(opening: Opening, listing: pa.Table) -> pa.RecordBatchReader:
    import pyarrow as pa

    schema = listing.schema.append(pa.field("content", pa.large_binary()))

    encoding = opening.resources.encoding(opening.resource)

    def batches() -> Iterator[pa.RecordBatch]:
        start, held, size = 0, [], 0
        contents = opening.resources.read(opening.members)
        for member, content in zip(opening.members, contents, strict=True):
            if encoding is not None:  # what has one is text
                content = decoded(content, encoding, member)
            held.append(content)
            size += len(content)
            if size >= _BLOCK:
                yield batch(start, held)
                start, held, size = start + len(held), [], 0
        if held:
            yield batch(start, held)

    def batch(start: int, held: list[bytes]) -> pa.RecordBatch:
        rows = listing.slice(start, len(held)).combine_chunks()
        return rows.append_column(
            schema.field("content"), pa.array(held, pa.large_binary())
        ).to_batches()[0]

    return pa.RecordBatchReader.from_batches(schema, batches())


def scan_lines(opening: Opening) -> Scan:
    r"""Lines as rows: lines end with \n, \r\n or \r; lineNumbers count from 0 in each file.

    The lines go through Arrow into a table that can spill: 8 MiB of a file at a time are in memory.
    """
    name = fresh("lines")
    keep(opening, name, _lines(opening))
    made: dict[Key, Column] = file_columns(opening.members, "member") | {
        ("fileProperty", "lines"): Column("line", "VARCHAR"),
        ("fileProperty", "lineNumbers"): Column("line_number", "BIGINT"),
        CONTENT: Column("member", "BLOB", late=True),
    }
    close = partial(opening.connection.execute, f"DROP TABLE IF EXISTS {name}")
    order = "member * 1099511627776 + line_number"
    return Scan(name, made, opening.members, order=order, closers=[close])


def _lines(opening: Opening) -> Any:
    import pyarrow as pa

    schema = pa.schema({"member": pa.int64(), "line_number": pa.int64(), "line": pa.large_string()})

    def batches() -> Iterator[pa.RecordBatch]:
        for place, (member, path) in enumerate(zip(opening.members, opening.paths, strict=True)):
            number = 0
            for lines in lines_of(path, member, number):
                count = len(lines)
                places = pa.repeat(pa.scalar(place, pa.int64()), count)
                numbers = pa.array(range(number, number + count), pa.int64())
                number += count
                yield pa.record_batch([places, numbers, lines], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def lines_of(path: Path, member: Member, first: int = 0) -> Iterator[pa.Array]:
    """The lines of a text file as Arrow arrays of large_string, a block of bytes at a time.

    Raises:
        InputError: bytes that are not UTF-8.
    """
    with unpacked(path, compression(path, member)) as file:
        rest = b""
        number = first
        while block := file.read(_BLOCK):
            if block.endswith(b"\r"):  # is a \n next?
                block += file.read(1)
            if b"\r" in block:
                block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            whole, end, tail = block.rpartition(b"\n")
            if not end:
                rest += tail
                continue
            made = _split(rest + whole + end, member, number)
            number += len(made)
            rest = tail
            yield made
        if rest:
            yield _split(rest + b"\n", member, number)


def _split(text: bytes, member: Member, first: int) -> pa.Array:
    """Text whose lines all end with a newline, without copying line by line."""
    import numpy as np
    import pyarrow as pa

    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))  # where each ends once the newlines are taken out
    lines = pa.Array.from_buffers(
        pa.large_string(),
        len(ends),
        [None, pa.py_buffer(offsets), pa.py_buffer(text.replace(b"\n", b""))],
    )
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid as error:
        for number, line in enumerate(text.split(b"\n"), first + 1):
            try:
                line.decode()
            except UnicodeDecodeError as bad:
                found = f"the byte 0x{line[bad.start]:02x}"
                raise invalid(member, "UTF-8", f"line {number}", found) from error
        raise
    return lines
