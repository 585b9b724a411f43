"""Files that grow: how far each was read, and what is new in it, in pieces that stand by themselves.

A line of JSON or of the controller's log is a record. A record of `sacct` may go on in the next line,
and steps belong to the job above them, so what was read of such a file has two parts: up to `offset`
it is *settled*, because another record begins there; the last record and its steps are the *tail*,
shown already and read again when the file has grown. Nothing is taken of a line whose end is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from holdfast.errors import InputError
from holdfast.fleet.formats.opening import SNIFFED_BYTES, is_compressed, unreadable
from holdfast.fleet.formats.sacct_header import Header, header_of
from holdfast.fleet.formats.sacct_text import is_record, last_boundary

CHUNK_BYTES = 32 << 20
_HEAD_BYTES = 4096
_BEFORE_BYTES = 1024

_JSON_LINES = ("health-jsonl", "gcm")
_LINES = (*_JSON_LINES, "slurmctld")
_TABLES_OF_LINES = ("slurm-events",)
"""With a header on the first line."""


@dataclass(frozen=True)
class Growth:
    """How far a file was read; it stands in the file's entry in `store.json`."""

    device: int
    inode: int
    head_bytes: int
    head: str
    """Digest of the first `head_bytes`: tells the file from one that took its place."""
    offset: int
    """Bytes that are settled."""
    before: str
    """Digest of the last bytes before `offset`."""
    line: int
    """Lines before `offset`."""
    read: int
    """Bytes that were read: the settled ones and the tail."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Rows, steps and rejects of the settled part."""

    def to_dict(self) -> dict[str, Any]:
        """For `store.json`."""
        return asdict(self)


def growth_of(entry: Mapping[str, Any]) -> Growth | None:
    """What an entry of `store.json` says of a growing file; None if it is of no such file."""
    try:
        return Growth(**entry["growth"])
    except (KeyError, TypeError):
        return None


def mark(path: Path, offset: int, line: int, read: int, counts: Mapping[str, int]) -> Growth:
    """What to remember of a file that was read so far."""
    with path.open("rb") as file:
        found = path.stat()
        head_bytes = min(_HEAD_BYTES, offset)
        return Growth(
            found.st_dev,
            found.st_ino,
            head_bytes,
            _digest(file, 0, head_bytes),
            offset,
            _digest(file, max(0, offset - _BEFORE_BYTES), offset),
            line,
            read,
            counts,
        )


def continues(path: Path, growth: Growth) -> bool:
    """Whether a file still begins with what was read of it: it grew, or it did not change."""
    try:
        with path.open("rb") as file:
            return (
                path.stat().st_size >= growth.offset
                and _digest(file, 0, growth.head_bytes) == growth.head
                and _digest(file, max(0, growth.offset - _BEFORE_BYTES), growth.offset)
                == growth.before
            )
    except OSError as error:
        raise unreadable(path, error) from error


def _digest(file: BinaryIO, low: int, high: int) -> str:
    file.seek(low)
    return hashlib.blake2b(file.read(high - low), digest_size=12).hexdigest()


# --- Cutting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How a growing file is cut."""

    header: bytes
    """What stands before its records and is needed to read any of them."""
    lines: int
    """Lines of the header."""
    sacct: Header | None
    """Where a record may go on in the next line; None: every line is a record."""
    loose: bool
    """Whether a last line without an end does no harm if it is half a record."""

    def boundary(self, data: bytes) -> int:
        """Bytes up to the last place where a record surely ended; 0: none."""
        if self.sacct is None:
            return data.rfind(b"\n") + 1
        return last_boundary(data, self.sacct)

    def is_whole(self, tail: bytes) -> bool:
        """Whether every line of the tail is a record by itself."""
        header = self.sacct
        return header is None or all(
            is_record(line, header) for line in tail.split(b"\n") if line.strip()
        )


def form_of(path: Path, format_name: str, delimiter: str | None) -> Form | None:
    """How a file can be cut; None if files of its format are read whole each time they change.

    Raises:
        InputError: if the file cannot be read, or lacks what its format needs.
    """
    if is_compressed(path):
        return None
    if format_name in _LINES:
        return Form(b"", 0, None, loose=format_name in _JSON_LINES)
    if format_name not in ("sacct", *_TABLES_OF_LINES):
        return None
    with path.open("rb") as file:
        head = file.read(SNIFFED_BYTES)
    if format_name == "sacct":
        header = header_of(path, delimiter)
        return Form(head[: header.size], header.lines, header, loose=False)
    return Form(head[: head.find(b"\n") + 1], 1, None, loose=False)


@dataclass(frozen=True)
class Piece:
    """Whole records of a growing file."""

    data: bytes
    line: int
    """Lines of the file before it."""
    end: int
    """Bytes of the file up to its end."""
    settled: bool
    """False: it is the tail."""


def pieces(path: Path, form: Form, offset: int, line: int, *, quiet: bool) -> Iterator[Piece]:
    """The records from an offset on, a bounded number of bytes at a time, the tail last.

    Args:
        path: the file.
        form: how to cut it.
        offset: bytes that are settled; 0: nothing was read yet.
        line: lines before it.
        quiet: whether the file has stopped growing for a while: then a tail that does not look whole
            is taken, too.

    Raises:
        InputError: if the file cannot be read.
    """
    if not form.header.endswith(b"\n") and form.lines:
        return  # the header is being written
    if offset < len(form.header):
        offset, line = len(form.header), form.lines
    try:
        with path.open("rb") as file:
            end = path.stat().st_size
            file.seek(offset)
            rest = b""
            while True:
                new = file.read(min(CHUNK_BYTES, end - offset - len(rest)))
                last = offset + len(rest) + len(new) >= end or not new
                data = rest + new
                cut = form.boundary(data)
                if not cut and not last:
                    cut = data.rfind(b"\n") + 1
                if cut:
                    yield Piece(data[:cut], line, offset + cut, settled=True)
                    offset += cut
                    line += data.count(b"\n", 0, cut)
                rest = data[cut:]
                if last:
                    break
    except OSError as error:
        raise unreadable(path, error) from error
    tail = rest if quiet and form.loose else rest[: rest.rfind(b"\n") + 1]
    if tail.strip() and (quiet or form.is_whole(tail)):
        yield Piece(tail, line, offset + len(tail), settled=False)


def count_lines(path: Path, offset: int) -> int:
    """Lines of a file before an offset."""
    lines, left = 0, offset
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(CHUNK_BYTES, left))):
            lines += data.count(b"\n")
            left -= len(data)
    return lines


def end_of_settled(path: Path, form: Form) -> int:
    """Bytes up to the last place of a file where a record surely ended, looked for near its end."""
    size = path.stat().st_size
    low = max(len(form.header), size - CHUNK_BYTES)
    with path.open("rb") as file:
        file.seek(low)
        data = file.read(size - low)
    if low > len(form.header):  # begin at a line
        skipped = data.find(b"\n") + 1
        low, data = low + skipped, data[skipped:]
    cut = form.boundary(data)
    if not cut:
        raise InputError("no place between two records was found", code="damaged", path=path)
    return low + cut
