"""A source cut into blocks of whole lines, and what was rejected of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.schema import REJECTS
from holdfast.opening import open_source, read_exactly

BLOCK_BYTES = 16 << 20
RAW_CHARACTERS = 2000  # of a rejected record: enough to recognise it


def read_text(path: Path) -> str:
    """The whole source as text; bytes that are not UTF-8 become U+FFFD."""
    with open_source(path) as file:
        pieces = iter(lambda: read_exactly(file, 1 << 20, path), b"")
        return b"".join(pieces).decode("utf-8-sig", errors="replace")


@dataclass(frozen=True)
class Records:
    """Records of a source that are not yet in the store's columns."""

    columns: pa.Table
    """Shape ``[n]``."""
    lines: pa.Array
    """int64 line on which each begins, shape ``[n]``."""
    texts: pa.Array | None = None
    """Each as it stands in the source; None: what its columns say, shape ``[n]``."""
    end: int = 0
    """Bytes of the decompressed source up to the end of these records."""

    def raw(self, chosen: pa.Array) -> list[str]:
        """The text of the chosen records."""
        if self.texts is not None:
            texts: list[str] = self.texts.filter(chosen).to_pylist()
            return texts
        columns = [column.filter(chosen).to_pylist() for column in self.columns.columns]
        return ["|".join(map(str, row)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Block:
    """Whole lines of a source."""

    data: bytes
    """Valid UTF-8."""
    first_line: int
    """1-based number of the first line in the source."""
    end: int
    """Bytes of the decompressed source up to the end of this block."""

    def lines(self) -> pa.Array:
        """The lines without their ends, shape ``[n]``, the first being `first_line`."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n")) + 1
        if not self.data.endswith(b"\n"):
            ends = np.append(ends, len(self.data))
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        lines = pa.StringArray.from_buffers(
            len(ends), pa.py_buffer(offsets), pa.py_buffer(self.data)
        )
        return pc.ascii_rtrim(lines, "\r\n")


def blocks(
    path: Path, offset: int = 0, size: int = BLOCK_BYTES, end: int | None = None
) -> Iterator[Block]:
    """Cut a source into blocks of about `size` bytes that end at a line's end.

    Args:
        path: the file.
        offset: decompressed bytes to leave out; a line must start there.
        size: bytes read at a time.
        end: decompressed bytes after which to stop; None: at the end.
    """
    with open_source(path) as file:
        line, position = 1, 0
        while position < offset:
            skipped = read_exactly(file, min(size, offset - position), path)
            if not skipped:
                return
            line += skipped.count(b"\n")
            position += len(skipped)
        rest = b""
        while True:
            left = size if end is None else end - position - len(rest)
            piece = read_exactly(file, min(size, left), path)
            whole, newline, rest = (rest + piece).rpartition(b"\n") if piece else (rest, b"", b"")
            data = whole + newline
            if data:
                position += len(data)
                yield Block(_valid(data, start=position == len(data)), line, position)
                line += data.count(b"\n")
            if not piece:
                return


def _valid(data: bytes, *, start: bool) -> bytes:
    if start:
        data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="replace").encode()
    return data


@dataclass
class Rejects:
    """Records that could not be used, gathered while a source is read."""

    source: str
    rows: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, line: int, reason: str, raw: str) -> None:
        """Set one record aside.

        Args:
            line: 1-based line on which it starts.
            reason: why, as a short sentence.
            raw: its text.
        """
        self.rows.append((line, reason, raw[:RAW_CHARACTERS]))

    def add_all(self, reasons: pa.Array, lines: pa.Array, raw: pa.Array) -> None:
        """Set aside every record that has a reason.

        Args:
            reasons: why, shape ``[n]``; null: the record is fine.
            lines: the line of each, shape ``[n]``.
            raw: the text of each, shape ``[n]``.
        """
        bad = pc.is_valid(reasons)
        if pc.any(bad).as_py():
            chosen = (array.filter(bad).to_pylist() for array in (lines, reasons, raw))
            for line, reason, text in zip(*chosen, strict=True):
                self.add(line, reason, text)

    def table(self) -> pa.Table:
        """The rejects in `schema.REJECTS`, and none kept."""
        rows, self.rows = sorted(self.rows), []
        return pa.Table.from_pydict(
            {
                "source": [self.source] * len(rows),
                "line": [row[0] for row in rows],
                "reason": [row[1] for row in rows],
                "raw": [row[2] for row in rows],
            },
            schema=REJECTS,
        )
