"""Tar archives: one pass over the headers finds where each member lies; compressed ones only go forward."""

from __future__ import annotations

import re
import struct
import tarfile
import threading
from collections.abc import Iterator
from typing import IO

from holdfast.data.croissant.archives.archive import (
    STEP,
    Archive,
    Limits,
    Opener,
    damaged,
    too_much,
)
from holdfast.data.croissant.archives.entry_names import clean, refused, taken_twice
from holdfast.data.croissant.archives.inflating import Compression, Inflated
from holdfast.errors import InputError

BLOCK = 512
_CALLED_TAR = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz)$", re.IGNORECASE)
# Python before 3.11.10 takes quadratic time over a long run of digits in an extended header.
_DIGITS = re.compile(rb"[0-9]{300}")
_FAULTS = (
    tarfile.TarError,
    EOFError,
    OSError,  # an offset that no file has
    ValueError,
    OverflowError,
    IndexError,
    KeyError,
    RecursionError,  # headers that announce headers
    struct.error,
)


class Tar(Archive):
    """A tar, plain or compressed as a whole.

    Args:
        opener: opens the file.
        where: what it is called in messages.
        limits: what it may hold.
        packed: the file's size.
        compression: of the file; None for a plain tar.

    Raises:
        InputError: if it is damaged or hostile.
    """

    def __init__(
        self,
        opener: Opener,
        where: str,
        limits: Limits,
        packed: int,
        compression: Compression | None = None,
    ) -> None:
        self.where, self._limits, self._packed = where, limits, packed
        self._opener, self._compression = opener, compression
        self.forward = compression is not None
        self._lock = threading.Lock()
        self._stream: IO[bytes] | Inflated | None = None
        self._spans: dict[str, tuple[int, int]] = {}  # name -> offset in the tar, size
        try:
            for name, offset, size in self._headers():
                if name in self._spans:
                    raise taken_twice(name, where)
                if len(self._spans) == limits.members:
                    found, most = f"more than {limits.members:,} members", "no more than that"
                    raise too_much("members", found, most, where)
                self._spans[name] = offset, size
        except InputError:
            self.close()
            raise
        self.sizes = {name: size for name, (_, size) in self._spans.items()}

    def _open(self) -> IO[bytes] | Inflated:
        file = self._opener()
        if self._compression is None:
            return file
        return Inflated(file, self._compression, self._limits, self.where, self._packed)

    def _headers(self) -> Iterator[tuple[str, int, int]]:
        stream = self._stream = self._open()
        headers = _Headers(stream, self.where, self._limits)
        past = -1
        try:
            with tarfile.TarFile(fileobj=headers, mode="r", errorlevel=2) as tar:  # type: ignore[arg-type]
                while (entry := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # else it keeps every header
                    if entry.size < 0 or entry.offset_data <= past:
                        raise damaged(self.where, entry.name, entry.size, "a size of 0 or more")
                    past = entry.offset_data
                    name = self._name(entry)
                    if name is not None:
                        yield name, entry.offset_data, entry.size
        except _FAULTS as error:
            raise damaged(self.where, None, error, "a whole tar") from error
        headers.check_end()
        while isinstance(stream, Inflated) and stream.read(STEP):
            pass  # what follows the members holds the checksum of the whole

    def _name(self, entry: tarfile.TarInfo) -> str | None:
        """The path of a plain file; None for a folder."""
        if entry.isdir():
            clean(entry.name, self.where)
            return None
        if entry.issym() or entry.islnk():
            kind = "a symbolic link" if entry.issym() else "a hard link"
            problem = f"a member of this archive is {kind} to {entry.linkname!r}"
            raise refused(problem, entry.name, self.where)
        if not entry.isreg() or entry.issparse():
            kind = (
                "a sparse file" if entry.issparse() else "a device, a pipe or another special file"
            )
            raise refused(f"a member of this archive is {kind}", entry.name, self.where)
        name = clean(entry.name, self.where)
        if not name:
            raise refused("a member of this archive has no name", entry.name, self.where)
        return name

    def packed(self, name: str) -> int:
        """Bytes that a member takes in the file; for a compressed tar, those of all together."""
        return self._spans[name][1] if self._compression is None else self._packed

    def position(self, name: str) -> int:
        """Where a member stands."""
        return self._spans[name][0]

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, piece by piece."""
        offset, size = self._spans[name]
        end = offset + size
        while offset < end:
            with self._lock:
                part = self._at(offset).read(min(STEP, end - offset))
            if not part:
                raise damaged(
                    self.where, name, "the end of the file", f"{end - offset:,} more bytes"
                )
            offset += len(part)
            yield part

    def _at(self, offset: int) -> IO[bytes] | Inflated:
        """The tar's bytes from an offset on; a compressed one that is further already starts again."""
        stream = self._stream
        if stream is None or (isinstance(stream, Inflated) and stream.tell() > offset):
            self._close_stream()
            stream = self._stream = self._open()
        if stream.tell() != offset:
            stream.seek(offset)
        return stream

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close_stream()

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Headers:
    """The file as `tarfile` sees it while it looks for members: no header may be too large."""

    closed = False
    name = ""

    def __init__(self, stream: IO[bytes] | Inflated, where: str, limits: Limits) -> None:
        self._stream, self._where, self._limits = stream, where, limits
        self._last = b""
        self.tell = stream.tell
        self.seek = stream.seek

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self._limits.header:
            found, most = f"a header of {size:,} bytes", f"at most {self._limits.header:,} bytes"
            raise too_much("header", found, most, self._where)
        self._last = self._stream.read(size)
        if _DIGITS.search(self._last):
            raise damaged(self._where, None, "a number of 300 digits", "headers of a tar")
        return self._last

    def check_end(self) -> None:
        """Check for the closing blocks of zeros: `tarfile` stops silently at an invalid header."""
        if not self._last:
            raise damaged(
                self._where,
                None,
                "no end behind its last member",
                "two blocks of 512 zeros at its end",
            )
        if self._last.strip(b"\0"):
            found = f"invalid header at byte {self.tell() - len(self._last):,}"
            raise damaged(self._where, None, found, "a header, or zeros at its end")


def starts_tar(block: bytes, name: str) -> bool:
    """Whether a file that starts with `block` is a tar; an empty archive is recognized by its name."""
    if len(block) < BLOCK:
        return False
    if not block.strip(b"\0"):
        return bool(_CALLED_TAR.search(name))
    try:
        tarfile.TarInfo.frombuf(block[:BLOCK], "utf-8", "surrogateescape")
    except _FAULTS:
        return False
    return True
