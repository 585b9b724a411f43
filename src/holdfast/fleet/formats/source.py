"""A source cut into blocks of whole lines, and what was rejected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.schema import REJECTS
from holdfast.opening import open_source, read_exactly

BLOCK_BYTES = 16 << 20
LINE_END = ord("\n")
_PIECE_BYTES = 1 << 15
RAW_CHARACTERS = 2000  # of a rejected record: enough to recognise it


def read_text(path: Path) -> str:
    """The whole source as text; bytes that are not UTF-8 become U+FFFD."""
    with open_source(path) as file:
        pieces = iter(lambda: read_exactly(file, 1 << 20, path), b"")
        return b"".join(pieces).decode("utf-8-sig", errors="replace")


@dataclass(frozen=True)
class Records:
    """Records of a source that are not yet in the store's columns."""

    columns: pa.Table  # Shape ``[n]``
    lines: pa.Array  # int64 line on which each begins, shape ``[n]``
    # Gives each as it stands in the source, shape ``[n]``; None: what its columns say
    texts: Callable[[], pa.Array] | None = None
    end: int = 0  # Bytes of the decompressed source up to the end of these records

    def raw(self, chosen: pa.Array) -> list[str]:
        """The text of the chosen records."""
        if self.texts is not None:
            return self.texts().filter(chosen).to_pylist()
        columns = [column.filter(chosen).to_pylist() for column in self.columns.columns]
        return ["|".join(map(str, row)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Block:
    """Whole lines of a source."""

    data: bytes
    first_line: int  # 1-based number of the first line in the source
    end: int  # Bytes of the decompressed source up to the end of this block

    def lines(self) -> pa.Array:
        """The lines without their ends, shape ``[n]``, the first being `first_line`; valid UTF-8."""
        data = self.data.removeprefix(b"\xef\xbb\xbf") if self.first_line == 1 else self.data
        data, _ = valid_utf8(data)
        offsets = np.array([0, len(data)], np.int32)
        text = pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))
        lines = pc.split_pattern(text, "\n").values
        lines = lines.slice(0, len(lines) - data.endswith(b"\n"))
        return pc.ascii_rtrim(lines, "\r") if b"\r" in data else lines


def valid_utf8(data: bytes) -> tuple[bytes, int]:
    """Text with U+FFFD where it is not UTF-8, and how often that is."""
    if data.isascii():
        return data, 0
    pieces = []
    invalid = start = written = 0
    while start < len(data):  # most of a log is ASCII, which costs nothing
        end = data.find(b"\n", start + _PIECE_BYTES) + 1 or len(data)
        piece = data[start:end]
        if not piece.isascii():
            text = piece.decode(errors="replace")
            invalid += text.count("\ufffd") - piece.count("\ufffd".encode())
            pieces += [memoryview(data)[written:start], text.encode()]
            written = end
        start = end
    return b"".join([*pieces, memoryview(data)[written:]]), invalid


def blocks(
    path: Path,
    offset: int = 0,
    size: int = BLOCK_BYTES,
    cut: Callable[[bytes], int] = lambda data: data.rfind(b"\n") + 1,
) -> Iterator[Block]:
    """Cut a source into blocks of about `size` bytes that end at a line's end.

    Args:
        path: the file.
        offset: decompressed bytes of its header; a line must start there.
        size: bytes read at a time.
        cut: where to cut what was read; 0: read on.
    """
    with open_source(path) as file:
        line = 1 + read_exactly(file, offset, path).count(b"\n")
        position = offset
        data = b""
        last = False
        while not last:
            piece = read_exactly(file, size, path)
            last = len(piece) < size
            data += piece
            at = len(data) if last else cut(data)
            if at:
                position += at
                yield Block(data[:at], line, position)
                line += int(np.count_nonzero(np.frombuffer(data, np.uint8, at) == LINE_END))
                data = data[at:]


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

    def add_all(self, reasons: pa.Array, lines: pa.Array, raw: Iterable[str]) -> None:
        """Set aside every record that has a reason.

        Args:
            reasons: why, shape ``[n]``; null: the record is fine.
            lines: the line of each, shape ``[n]``.
            raw: the text of each, shape ``[n]``.
        """
        each = (lines.to_pylist(), reasons.to_pylist(), raw)
        for line, reason, text in zip(*each, strict=True):
            if reason is not None:
                self.add(line, reason, text)

    def table(self) -> pa.Table:
        """The rejects in `schema.REJECTS`, and none kept."""
        rows, self.rows = sorted(self.rows), []
        named = [dict(zip(REJECTS.names, (self.source, *row), strict=True)) for row in rows]
        return pa.Table.from_pylist(named, schema=REJECTS)
