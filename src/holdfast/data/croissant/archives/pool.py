"""Archives that are open: local, in one another, or over the network."""

from __future__ import annotations

import os
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from holdfast.data.croissant.archives.archive import Archive, Limits, too_much
from holdfast.data.croissant.archives.opening import open_archive, says_zip
from holdfast.data.croissant.archives.unpacking import Scratch
from holdfast.data.croissant.archives.zips import Zip
from holdfast.data.croissant.fetching.access import file_name
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.origins import Origins
from holdfast.errors import InputError
from holdfast.remote import RangesRefused, bare

_MOST_OPEN = 32

Key = tuple[Path | str, tuple[str, ...]]
"""Where the outermost archive is, and the names of the archives inside it."""


class ArchivePool:
    """Opens archives once, as long as they are in use or among those used last."""

    def __init__(self, origins: Origins, scratch: Scratch, limits: Limits) -> None:
        self.limits = limits
        self._origins, self._scratch = origins, scratch
        self._open: OrderedDict[Key, Archive] = OrderedDict()
        self._readers: dict[Key, int] = {}
        self._nested: dict[Key, Path] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()

    @contextmanager
    def of(self, member: Member) -> Iterator[Archive]:
        """The archive that holds a member, open as long as the block runs."""
        key = (member.location, (member.inside or ())[:-1])
        with self._lock:
            archive = self.get(member.location, key[1], member.owner)
            self._readers[key] = self._readers.get(key, 0) + 1
        try:
            yield archive
        finally:
            with self._lock:
                self._readers[key] -= 1

    def get(self, location: Path | str, chain: tuple[str, ...], owner: str) -> Archive:
        """An archive.

        Args:
            location: of the outermost archive.
            chain: the names of the archives inside it, down to this one.
            owner: the id of the FileObject whose checksum proves the file.

        Raises:
            InputError: if it is none, is damaged or hostile, or there are too many in one another.
        """
        archive = self.find(location, chain, owner)
        if archive is None:
            raise InputError(
                "not an archive",
                code="unknown-format",
                path=where_of(location, chain),
                expected="zip, tar, or one compressed with gzip, bzip2, xz or zstd",
                remedy="correct its encodingFormat, or download it again",
            )
        return archive

    def find(self, location: Path | str, chain: tuple[str, ...], owner: str) -> Archive | None:
        """An archive; None where the file is none."""
        key = (location, chain)
        with self._lock:
            if self._process != os.getpid():  # a fork opens its own files
                self._process = os.getpid()
                self._readers.clear()
                self.close()
            archive = self._open.get(key)
            if archive is None:
                if len(chain) >= self.limits.depth:
                    found, most = f"{len(chain) + 1} in one another", f"at most {self.limits.depth}"
                    raise too_much("depth", found, most, where_of(location, chain))
                if chain:
                    archive = self._inner(location, chain, owner)
                else:
                    archive = self._outer(location, owner)
                if archive is None:
                    return None
                self._open[key] = archive
                self._make_room(key)
            self._open.move_to_end(key)
            return archive

    def _outer(self, location: Path | str, owner: str) -> Archive | None:
        if isinstance(location, str) and self._origins.local_path(location, owner) is None:
            archive = self._remote(location, owner)
            if archive is not None:
                return archive
        if isinstance(location, Path):
            path, name = location, location.name
            size = self._origins.check(path).st_size
        else:
            path, name = self._origins.local(location, owner), file_name(location)
            size = path.stat().st_size
        return open_archive(
            lambda: path.open("rb"), name, where_of(location, ()), self.limits, size
        )

    def _remote(self, url: str, owner: str) -> Archive | None:
        """A zip of which only the directory travels; None where the whole file must."""
        part = self._origins.objects.get(owner)
        formats = part.encoding_formats if part else ()
        if self._origins.access.offline or not says_zip(formats, file_name(url)):
            return None
        from holdfast.data.croissant.fetching.remote import RemoteFile

        try:
            file = RemoteFile(url, self._origins.fetcher)
        except RangesRefused:
            return None
        if not zipfile.is_zipfile(cast(IO[bytes], file)):
            file.close()
            return None
        where = where_of(url, ())
        return Zip(cast(IO[bytes], file), where, self.limits, file.size, remote=True)

    def _inner(self, location: Path | str, chain: tuple[str, ...], owner: str) -> Archive | None:
        name = chain[-1]
        outer = self.get(location, chain[:-1], owner)
        if name not in outer.sizes:
            return None
        path = self._nested.get((location, chain))
        if path is None:
            path = self._scratch.keep(name, outer.chunks(name))
            self._nested[location, chain] = path
        # What an archive unpacks to is measured against what it took where it came from.
        packed = min(outer.packed(name), path.stat().st_size)
        where = where_of(location, chain)
        return open_archive(lambda: path.open("rb"), name, where, self.limits, packed)

    def _make_room(self, newest: Key) -> None:
        idle = [key for key in self._open if key != newest and not self._readers.get(key)]
        for key in idle[: max(0, len(self._open) - _MOST_OPEN)]:
            self._open.pop(key).close()

    def partly(self, member: Member) -> Zip | None:
        """The remote zip that holds a member, if so far no more than its directory was fetched."""
        location, inside = member.location, member.inside
        if inside is None or self._origins.local_path(location, member.owner) is not None:
            return None
        archive = self.find(location, (), member.owner)
        return archive if isinstance(archive, Zip) and archive.remote else None

    def forget(self, location: Path | str) -> None:
        """Close what is open of a file, which is somewhere else now."""
        with self._lock:
            for key in [key for key in self._open if key[0] == location]:
                if not self._readers.get(key):
                    self._open.pop(key).close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()
            self._nested.clear()


def where_of(location: Path | str, chain: tuple[str, ...]) -> str:
    """An archive as messages call it: its file, and the names inside it."""
    file = bare(location) if isinstance(location, str) else str(location)
    return " > ".join((file, *chain))
