"""Opening an archive: what it is by its first bytes, whatever it is called."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence

from holdfast.data.croissant.archives.archive import STEP, Archive, Limits, Opener
from holdfast.data.croissant.archives.inflating import Compression, Inflated, compression_of
from holdfast.data.croissant.archives.tars import BLOCK, Tar, starts_tar
from holdfast.data.croissant.archives.zips import Zip

_FORMATS = (
    frozenset(
        f"application/{prefix}{name}"
        for name in ("zip", "zip-compressed", "tar", "gtar", "gzip", "gz", "tgz", "bzip2", "bzip")
        for prefix in ("", "x-")
    )
    | {"application/x-xz", "application/xz", "application/zstd", "application/x-zstd"}
    | {
        "application/x-tar+gzip",
        "application/tar+gzip",
        "application/x-gtar-compressed",
        "application/x-compressed-tar",
    }
)
_PACKS = (
    ".zip",
    ".tar",
    ".tgz",
    ".tbz",
    ".tbz2",
    ".txz",
    ".tar.gz",
    ".tar.bz2",
    ".tar.xz",
    ".tar.zst",
)
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".zstd")


def says_archive(formats: Sequence[str], name: str) -> bool:
    """Whether a file is to be opened as an archive, by its encoding formats or, failing those, its name.

    A single compressed file (``train.csv.gz``) is opened as an archive only where its format says so: a
    table is read directly. File formats based on zip (``.xlsx``, ``.npz``) are not archives.
    """
    if any(text.partition(";")[0].strip().lower() in _FORMATS for text in formats):
        return True
    return name.lower().endswith(_PACKS) or (is_vague(formats) and name.lower().endswith(_ENDINGS))


def is_vague(formats: Sequence[str]) -> bool:
    """Whether the encoding formats leave open what a file is."""
    return all(text.strip().lower() in ("", "application/octet-stream") for text in formats)


def says_zip(formats: Sequence[str], name: str) -> bool:
    """Whether a file is a zip, as far as its formats and its name tell."""
    return name.lower().endswith(".zip") or any(
        "zip" in each and "gzip" not in each for each in formats
    )


def open_archive(
    opener: Opener, name: str, where: str, limits: Limits, packed: int
) -> Archive | None:
    """The archive in a file of this machine; None if it is none.

    Args:
        opener: opens the file.
        name: its name: what is compressed on its own is called so without its ending.
        where: what it is called in messages.
        limits: what it may hold.
        packed: its size, or what it took inside the archive that it comes from.

    Raises:
        InputError: if it is damaged or hostile.
    """
    file = opener()
    try:
        start = file.read(BLOCK)
        is_zip = start.startswith(_ZIPS) or (
            name.lower().endswith(".zip") and zipfile.is_zipfile(file)
        )
    finally:
        file.close()
    if is_zip:
        return Zip(opener(), where, limits, packed)
    if compression := compression_of(start):
        inside = Inflated(opener(), compression, limits, where, packed)
        try:
            start = inside.read(BLOCK)
        finally:
            inside.close()
        if not starts_tar(start, name):
            return Single(opener, name, where, limits, packed, compression)
        return Tar(opener, where, limits, packed, compression)
    return Tar(opener, where, limits, packed) if starts_tar(start, name) else None


class Single(Archive):
    """One file that is compressed on its own."""

    def __init__(
        self,
        opener: Opener,
        name: str,
        where: str,
        limits: Limits,
        packed: int,
        compression: Compression,
    ) -> None:
        self.where, self._limits, self._packed = where, limits, packed
        self._opener, self._compression = opener, compression
        ending = next((end for end in _ENDINGS if name.lower().endswith(end)), "")
        self.sizes = {name[: len(name) - len(ending)] or "data": None}

    def packed(self, name: str) -> int:
        """Bytes of the file."""
        return self._packed

    def position(self, name: str) -> int:
        """It is alone."""
        return 0

    def chunks(self, name: str) -> Iterator[bytes]:
        """What it unpacks to, piece by piece."""
        stream = Inflated(self._opener(), self._compression, self._limits, self.where, self._packed)
        try:
            while part := stream.read(STEP):
                yield part
        finally:
            stream.close()

    def close(self) -> None:
        """Nothing is open between passes."""
