"""Read lines of text files: blocks of complete lines, rejected lines, and files that grow.

with open_source(path) as source:
    for block in blocks(source):
        for number, line in enumerate(block.lines(), block.first_line): ...

tail = Tail(path)               # each call of new() yields the new, complete lines
for block in tail.new(): ...
json.dumps(tail.state())        # Tail(path, state) resumes from there, in another process too
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from holdfast.errors import InputError

BLOCK_BYTES = 4 << 20
LONGEST_LINE_BYTES = 1 << 20
"""What is kept of a line; the rest is passed over, so that memory is bounded for any file."""

_HEAD_BYTES = 4096
_TAIL_BYTES = 16 << 10  # who merges the files of a thousand ranks holds one piece of each
_SHOWN = 3
_TEXT_BYTES = 120


# --- Blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Whole lines of a source."""

    data: bytes
    """The lines with their ends, which only the last line of a source may lack."""
    first_line: int
    """1-based number of the first line in the source."""
    end: int
    """Bytes of the source up to the end of this block: where reading can resume."""
    cut: int = 0
    """Lines of which only the first bytes are here, because they are too long."""

    @property
    def next_line(self) -> int:
        """Number of the line after the block."""
        return self.first_line + self.data.count(b"\n")

    def lines(self) -> list[bytes]:
        """The lines without their ends (a line feed, also after a carriage return)."""
        data = self.data.replace(b"\r\n", b"\n") if b"\r" in self.data else self.data
        return data.removesuffix(b"\n").split(b"\n")


def blocks(
    source: BinaryIO,
    *,
    offset: int = 0,
    line: int = 1,
    stop: int | None = None,
    size: int = BLOCK_BYTES,
    longest: int = LONGEST_LINE_BYTES,
    returns: bool = False,
    partial: bool = True,
) -> Iterator[Block]:
    """Cut a source into blocks of whole lines; how it is cut does not change the lines.

    Args:
        source: bytes, from `offset` on.
        offset: where the source is, in bytes; a line starts there.
        line: number of that line.
        stop: offset at which to stop; None: at the end.
        size: bytes read at a time.
        longest: bytes that are kept of a line.
        returns: a carriage return alone ends a line too (but only line feeds count in line numbers), as
            progress bars write it.
        partial: give a last line that has no end.

    Raises:
        OSError, InputError: as the source; the blocks before it were given.
    """
    # At most one read of what is beneath: what precedes damage in a compressed file is given.
    read = getattr(source, "read1", source.read)
    rest, passing, position, cut = b"", False, offset, 0
    while data := read(size if stop is None else min(size, stop - position)):
        position += len(data)
        if passing:  # in a line that is too long, whose start is in `rest`
            at = _line_end(data, 0, returns)
            if at < 0:
                continue
            data, passing = data[at:], False
        data = rest + data
        # A carriage return counts once it is known what follows: it may be half of a line end.
        whole = _after_last_end(data, 0, len(data), returns)
        rest = data[whole:]
        if whole:
            data, more = _shortened(data[:whole], longest, returns)
            block = Block(data, line, position - len(rest), cut + more)
            line, cut = block.next_line, 0
            yield block
        if len(rest) > longest + 1:
            ended = returns and rest.endswith(b"\r")
            rest, passing = rest[:longest] + (b"\r" if ended else b""), not ended
            cut += 1
    if rest and partial:
        data, more = _shortened(rest, longest, returns)
        yield Block(data, line, position, cut + more)


def _line_end(data: bytes, start: int, returns: bool) -> int:
    """Where the first line end is; -1: there is none."""
    feed = data.find(b"\n", start)
    back = data.find(b"\r", start, None if feed < 0 else feed) if returns else -1
    return feed if back < 0 else back


def _after_last_end(data: bytes, start: int, stop: int, returns: bool) -> int:
    """The place after the last line end between two places; `start` if there is none."""
    last = data.rfind(b"\n", start, stop)
    if returns:
        last = max(last, data.rfind(b"\r", start, min(stop, len(data) - 1)))
    return max(last + 1, start)


def _shortened(data: bytes, longest: int, returns: bool) -> tuple[bytes, int]:
    """Whole lines, the start of those that are too long, and how many these are."""
    pieces, start, at, cut = [], 0, 0, 0
    while len(data) - at > longest:
        after = _after_last_end(data, at, at + longest + 1, returns)
        if after == at:  # no end in reach
            end = _line_end(data, at, returns)
            if end == at + longest:  # a carriage return that ends the data
                break
            pieces.append(data[start : at + longest])
            start = after = len(data) if end < 0 else end
            cut += 1
        at = after
    return (b"".join([*pieces, data[start:]]), cut) if cut else (data, 0)


# --- Lines that cannot be used -------------------------------------------------------------------


@dataclass(frozen=True)
class Reject:
    """A line that could not be used."""

    file: Path
    line: int
    """1-based; 0: the whole file."""
    reason: str
    text: str
    """Its beginning."""


def reject(path: Path, line: int, reason: str, text: bytes | str) -> Reject:
    """A line set aside, with its beginning as text."""
    if isinstance(text, bytes):
        text = text[:_TEXT_BYTES].decode("utf-8", "backslashreplace")
    return Reject(path, line, reason, text[:_TEXT_BYTES])


@dataclass
class Rejects:
    """Lines of a file that could not be used: the first of them, and their number."""

    path: Path
    most: int = 1000
    """How many are kept."""
    count: int = 0
    rows: list[Reject] = field(default_factory=list)

    def add(self, line: int, reason: str, text: bytes | str) -> None:
        """Set a line aside."""
        self.count += 1
        if len(self.rows) < self.most:
            self.rows.append(reject(self.path, line, reason, text))

    def check(self, total: int, share: float, expected: str, remedy: str) -> None:
        """Refuse a file of which too much was set aside.

        Args:
            total: records of the file, usable or not.
            share: of them that may be rejected.
            expected: what a record should be.
            remedy: what the user can do about it.

        Raises:
            InputError: more than `share` of the records were rejected, or all.
        """
        if self.count <= share * total and (self.count < total or not total):
            return
        first = sorted(self.rows, key=lambda each: each.line)[:_SHOWN]
        raise InputError(
            f"{self.count:,} of {total:,} records cannot be used",
            code="too-many-rejects",
            path=self.path,
            place=f"line {first[0].line}" if first else None,
            found="; ".join(f"line {each.line}: {each.reason}" for each in first),
            expected=expected,
            remedy=remedy,
        )


# --- Files that grow -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """How far a file was read, and which file it is."""

    device: int
    inode: int
    head_bytes: int
    head: str
    """Digest of the first `head_bytes`: tells the file from one that took its place."""
    offset: int
    """Bytes that were read."""
    line: int
    """Lines that were read."""

    @classmethod
    def of(cls, file: BinaryIO, offset: int, line: int) -> Place:
        """The place in an open file after `offset` bytes and `line` lines."""
        status, count = os.fstat(file.fileno()), min(_HEAD_BYTES, offset)
        return cls(status.st_dev, status.st_ino, count, _digest(file, count), offset, line)

    def is_of(self, file: BinaryIO) -> bool:
        """Whether an open file has what was read: not cut off, not replaced."""
        status = os.fstat(file.fileno())
        return status.st_size >= self.offset and _digest(file, self.head_bytes) == self.head


def _digest(file: BinaryIO, count: int) -> str:
    return hashlib.blake2b(os.pread(file.fileno(), count, 0), digest_size=12).hexdigest()


class Tail:
    """Reads the lines appended to a file; each is returned once, when it is complete.

    A file that was truncated or replaced is read from its beginning (`Block.first_line` is 1 again). A
    rotated file (renamed, with a new one in its place) is first read to its end. No file stays open.

    Args:
        path: the file; it need not exist yet.
        state: state of an earlier `Tail`, to resume from.
        longest: maximum bytes kept of a line.
    """

    def __init__(
        self,
        path: Path,
        state: Mapping[str, Any] | None = None,
        *,
        longest: int = LONGEST_LINE_BYTES,
    ) -> None:
        self.path = path
        self.place = None if state is None else Place(**state)
        """How far it is read; None: nothing is."""
        self._longest = longest
        self._seen: tuple[int, ...] = ()  # the file when nothing more was in it

    def state(self) -> dict[str, Any] | None:
        """How far it is read, for JSON; of a block that is being looked at, it is past its end."""
        return None if self.place is None else asdict(self.place)

    def new(self, most: int | None = None, size: int = _TAIL_BYTES) -> Iterator[Block]:
        """Blocks of new, complete lines; a file that has not changed is not opened.

        Args:
            most: bytes after which to stop; the next call continues there.
            size: bytes read at a time.

        Raises:
            OSError: if the file cannot be read. If there is none, there are no lines.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            status = None
        place = self.place
        if place is not None and (status is None or status.st_ino != place.inode):
            other = self._renamed(place)
            if other is not None and not (yield from self._grown(other, most, size)):
                return
            if other is not None and status is not None:
                self.place = None
        if status is None:
            return
        now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if now != self._seen and (yield from self._grown(self.path, most, size)):
            self._seen = now

    def _renamed(self, place: Place) -> Path | None:
        """Where the file of a place is now; None: it is gone."""
        for other in self.path.parent.iterdir():
            with suppress(FileNotFoundError):
                status = other.stat()
                if (status.st_dev, status.st_ino) == (place.device, place.inode):
                    return other
        return None

    def _grown(self, path: Path, most: int | None, size: int) -> Generator[Block, None, bool]:
        """The blocks that a file has more; whether that was all."""
        given, stop = 0, path.stat().st_size
        while most is None or given < most:
            with path.open("rb") as file:
                if self.place is not None and not self.place.is_of(file):
                    self.place = None
                offset, line = (self.place.offset, self.place.line) if self.place else (0, 0)
                file.seek(offset)
                block = next(
                    blocks(
                        file,
                        offset=offset,
                        line=line + 1,
                        stop=max(stop, offset),
                        size=size,
                        longest=self._longest,
                        partial=False,
                    ),
                    None,
                )
                if block is None:
                    return True
                self.place = Place.of(file, block.end, block.next_line - 1)
            given += block.end - offset
            yield block
        return False
