"""Compressed files as streams that only go forward, and refuse to grow beyond the limits."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Literal

from holdfast.data.croissant.archives.archive import Limits
from holdfast.errors import InputError

Compression = Literal["gzip", "bzip2", "xz", "zstd"]

MAGIC: dict[bytes, Compression] = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)
"""What the decompressors raise for bytes that are none of theirs; InputError is none of these."""

_STEP = 1 << 18


def compression_of(start: bytes) -> Compression | None:
    """How a file is compressed that starts so."""
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)


class Inflated:
    """What a compressed file unpacks to, read once from its start to its end.

    It has as much of a file's interface as `tarfile` uses to list members.

    Args:
        file: the compressed bytes; closed with it.
        compression: of them.
        limits: what it may grow to.
        where: the file, for messages.
        packed: its size, to which the limits are relative.
    """

    def __init__(
        self, file: IO[bytes], compression: Compression, limits: Limits, where: str, packed: int
    ) -> None:
        self._file, self._limits, self._where = file, limits, where
        self._packed, self._compression = packed, compression
        self._stream: Any = _OPENERS[compression](file)
        self._position = 0
        self._last = b""
        self._again = False  # the last byte is to be read once more

    def tell(self) -> int:
        """Bytes read or passed over so far."""
        return self._position - self._again

    def seek(self, position: int) -> int:
        """Go on to a position, or back by one byte at most."""
        if position < self._position:
            if position != self._position - 1 or not self._last:
                raise io.UnsupportedOperation("a compressed stream only goes forward")
            self._again = True
            return position
        self._again = False
        while self._position < position:
            if not self._read(min(_STEP, position - self._position)):
                break
        return self._position

    def read(self, size: int) -> bytes:
        """The next bytes; fewer only at the end.

        Raises:
            InputError: if the file is damaged, cut short, or grows beyond the limits.
        """
        parts = []
        if self._again and size:
            self._again = False
            parts.append(self._last)
            size -= 1
        while size and (part := self._read(min(_STEP, size))):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            part: bytes = self._stream.read(size)
        except DAMAGE as error:
            raise InputError(
                "damaged or truncated file",
                code="damaged",
                path=self._where,
                place=f"byte {self._position:,} of the unpacked data",
                found=str(error),
                expected=f"{self._compression} data to its end",
                remedy="download or rebuild it",
            ) from error
        if part:
            self._position += len(part)
            self._last = part[-1:]
            self._limits.unpacked(self._position, self._packed, self._where)
        return part

    def close(self) -> None:
        """Close the file."""
        with suppress(*DAMAGE):
            self._stream.close()
        self._file.close()


def _zstd(file: IO[bytes]) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


_OPENERS: dict[Compression, Callable[[IO[bytes]], Any]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zstd": _zstd,
}
