"""Zip archives, read through their directory: nothing but it and the members asked for is touched."""

from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from typing import IO

from holdfast.data.croissant.archives.archive import STEP, Archive, Limits, damaged, too_much
from holdfast.data.croissant.archives.entry_names import clean, common_climb, refused, taken_twice
from holdfast.data.croissant.archives.inflating import DAMAGE
from holdfast.errors import InputError

_UNIX_SYSTEMS = (3, 19)  # whose directories say what kind of file a member is
_ENCRYPTED = 0x1
_LOCAL_HEADER = 30
_FAULTS = (
    *DAMAGE,
    zipfile.BadZipFile,
    struct.error,
    OverflowError,
    NotImplementedError,
    IndexError,
)


class Zip(Archive):
    """A zip.

    Args:
        file: seekable; closed with it.
        where: what it is called in messages.
        limits: what it may hold.
        packed: the bytes that its members' sizes are compared with: the file's size.
        remote: whether asking often is dear.

    Attributes:
        remote: as given.
        size: `packed`.

    Raises:
        InputError: if it is damaged or hostile.
    """

    def __init__(
        self, file: IO[bytes], where: str, limits: Limits, packed: int, *, remote: bool = False
    ) -> None:
        self.where, self._limits, self.remote, self.size = where, limits, remote, packed
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except InputError:
            file.close()
            raise
        except _FAULTS as error:
            file.close()
            raise damaged(where, None, error, "a zip with its directory at the end") from error
        try:
            entries = self._zip.infolist()
            self._check(entries, packed)
            self._entries = self._named(entries)
        except InputError:
            self.close()
            raise
        self.sizes = {name: entry.file_size for name, entry in self._entries.items()}

    def _check(self, entries: list[zipfile.ZipInfo], packed: int) -> None:
        limits = self._limits
        if len(entries) > limits.members:
            found, most = f"{len(entries):,} members", f"at most {limits.members:,}"
            raise too_much("members", found, most, self.where)
        limits.unpacked(sum(entry.file_size for entry in entries), packed, self.where)
        # Members that share bytes make a small file unpack to petabytes, each within the limits.
        entries = sorted(entries, key=lambda entry: entry.header_offset)
        starts = [entry.header_offset for entry in entries] + [self._zip.start_dir]
        for entry, (start, end) in zip(entries, pairwise(starts), strict=True):
            least = _LOCAL_HEADER + len(entry.orig_filename) + entry.compress_size
            if start < 0 or start + least > end:
                raise refused(
                    "this member overlaps another one, or the directory",
                    entry.orig_filename,
                    self.where,
                    "members that do not overlap",
                )

    def _named(self, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        climb = common_climb(entry.orig_filename for entry in entries)
        named: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            raw = entry.orig_filename
            name = clean(raw[len(climb) :], self.where)
            mode = entry.external_attr >> 16 if entry.create_system in _UNIX_SYSTEMS else 0
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
                raise refused(f"a member of this archive is {kind}", raw, self.where)
            if raw.endswith("/"):
                continue
            if entry.flag_bits & _ENCRYPTED:
                raise InputError(
                    "a member of this archive is encrypted",
                    code="unsupported",
                    path=self.where,
                    place=f"member {raw!r}",
                    remedy="decrypt the archive with its password, and give the folder "
                    "by --map ID=FOLDER",
                )
            # What `zipfile` unpacks at a time of other methods has no bound.
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(
                    "a member of this archive is compressed by a method that is not supported",
                    code="unsupported",
                    path=self.where,
                    place=f"member {raw!r}",
                    found=f"method {entry.compress_type}",
                    expected="stored or deflated",
                    remedy="unpack the archive, and give the folder by --map ID=FOLDER",
                )
            if not name:
                raise refused("a member of this archive has no name", raw, self.where)
            if name in named:
                raise taken_twice(name, self.where)
            named[name] = entry
        return named

    def packed(self, name: str) -> int:
        """Bytes that a member takes in the file."""
        return self._entries[name].compress_size

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, piece by piece; their CRC is checked with the last."""
        entry = self._entries[name]
        self._limits.unpacked(entry.file_size, entry.compress_size, self.where, name)
        done = 0
        try:
            with self._zip.open(entry) as file:
                while part := file.read(STEP):
                    done += len(part)
                    if done > entry.file_size:
                        break
                    yield part
        except _FAULTS as error:
            expected = "bytes as its directory says"
            raise damaged(self.where, name, error, expected) from error
        if done != entry.file_size:
            raise damaged(self.where, name, f"{done:,} bytes", f"{entry.file_size:,} bytes")

    def position(self, name: str) -> int:
        """Where a member stands."""
        return self._entries[name].header_offset

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._file.close()
