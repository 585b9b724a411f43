"""A source as plain bytes, whatever it is compressed with, with errors that a user can act on."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from holdfast.errors import InputError

SNIFFED_BYTES = 65536

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}


def first_bytes(path: Path) -> bytes:
    """The first 64 KiB of the decompressed source.

    Raises:
        InputError: if it cannot be read or its compression is broken.
    """
    with open_source(path) as source:
        return read_exactly(source, SNIFFED_BYTES, path)


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed, by its start.

    Raises:
        InputError: if it cannot be read.
    """
    return _compression(_start(path)) is not None


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(6)
    except OSError as error:
        raise unreadable(path, error) from error


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def open_source(path: Path) -> io.BufferedReader:
    """The decompressed bytes of a file: gzip, Zstandard, xz, bzip2 (told by its start) or plain.

    Raises:
        InputError: if the file is missing or cannot be read.
    """
    head = _start(path)
    kind = _compression(head)
    if kind is not None:
        return io.BufferedReader(_Decompressed(path, kind), SNIFFED_BYTES)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell redirects
        return io.BufferedReader(_Decompressed(path, "utf-16"), SNIFFED_BYTES)
    return path.open("rb")


class _Decompressed(io.RawIOBase):
    """The bytes of a compressed file; whoever reads them, damage is one error that names the file."""

    def __init__(self, path: Path, kind: str) -> None:
        openers: dict[str, Any] = {"gzip": gzip.open, "xz": lzma.open, "bzip2": bz2.open}
        openers["utf-16"] = _Utf8
        zstd = pa.input_stream
        opener = openers.get(kind, lambda name: zstd(str(name), compression="zstd"))
        self._path, self._source = path, opener(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            piece = self._source.read1(len(buffer))  # what precedes damage is given
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise unreadable(self._path, error) from error
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._source.close()
        super().close()


class _Utf8:
    """A text in UTF-16 as UTF-8."""

    def __init__(self, path: Path) -> None:
        self._text = path.open(encoding="utf-16", errors="replace", newline="")
        self.close = self._text.close

    def read1(self, size: int) -> bytes:
        return self._text.read(max(size // 4, 1)).encode()


def read_exactly(source: BinaryIO, size: int, path: Path) -> bytes:
    """The next `size` bytes, fewer only at the end.

    Raises:
        InputError: if the file cannot be read or its compression is broken.
    """
    pieces = []
    while size > 0:
        try:
            piece = source.read(size)
        except OSError as error:
            raise unreadable(path, error) from error
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def unreadable(path: Path, error: Exception) -> InputError:
    """The error for a file that cannot be opened or decompressed."""
    return InputError(
        "the file cannot be read",
        code="unreadable",
        path=path,
        found=str(error),
        expected="a readable file, plain or compressed",
        remedy="check the path and its permissions, and that the file was copied whole",
    )
