"""From a location to bytes on this machine: proved local files, fetched URLs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.data.croissant.document.model import FileObject, Metadata
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.fetching.file_requests import FileRequest
from holdfast.data.croissant.files.hashing import (
    WrongChecksum,
    checksum_of,
    file_checksum,
    parse_size,
)
from holdfast.data.croissant.files.local_files import LocalFolder
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.croissant.fetching.fetcher import Fetcher


class Origins:
    """Where the files of a description come from.

    Args:
        metadata: the description.
        folder: of the description, or its URL.
        mapping: id of a FileObject -> the file or folder that stands for it.
        access: the cache, and how the network may be used.
    """

    def __init__(
        self,
        metadata: Metadata,
        folder: Path | str,
        mapping: Mapping[str, Path],
        access: Access,
    ) -> None:
        self.folder = LocalFolder(folder)
        self.mapping = mapping
        self.named = {
            identity: LocalFolder(path, named=True)
            for identity, path in mapping.items()
            if path.is_dir()
        }
        self.objects: dict[str, FileObject] = {part.id: part for part in metadata.file_objects}
        self._version = metadata.version
        self.access = access
        self._wanted: dict[str, FileRequest] = {}
        self._fetched: dict[str, Path] = {}
        self._proved: dict[tuple[str, Path], tuple[int, int]] = {}

    @cached_property
    def fetcher(self) -> Fetcher:
        """What fetches, made when it is first asked for."""
        from holdfast.data.croissant.fetching.fetcher import Fetcher

        return Fetcher(self.access)

    def expect(self, request: FileRequest) -> None:
        """Note what is known of a URL that belongs to no FileObject."""
        self._wanted[request.url] = request

    def _want(self, url: str, owner: str) -> FileRequest:
        if owner in self.objects:
            return FileRequest.of(self.objects[owner])
        return self._wanted.get(url) or FileRequest(url=url)

    def local_path(self, location: Path | str, owner: str) -> Path | None:
        """The file, if it is on this machine."""
        if isinstance(location, Path):
            return location
        if location in self._fetched:
            return self._fetched[location]
        path = self.fetcher.cached_path(self._want(location, owner))
        if path is not None:
            self._fetched[location] = path
        return path

    def fetch(self, locations: Iterable[tuple[Path | str, str]], *, partly: bool = False) -> None:
        """Bring files onto this machine, in parallel, and prove those that are here.

        Args:
            locations: each with the id of the FileObject that it belongs to, or "".
            partly: as `prove` takes it.

        Raises:
            InputError: a file that is missing, or not what its checksum says.
        """
        requests: dict[str, FileRequest] = {}
        for location, owner in locations:
            if isinstance(location, Path):
                self.prove(location, owner, partly=partly)
            elif location not in self._fetched and location not in requests:
                requests[location] = self._want(location, owner)
        if requests:
            paths = self.fetcher.fetch(list(requests.values()))
            self._fetched.update(zip(requests, paths, strict=True))

    def local(self, location: Path | str, owner: str, *, partly: bool = False) -> Path:
        """A file on this machine with these bytes, proved, fetched where it must be.

        Raises:
            InputError: as `fetch`.
        """
        self.fetch([(location, owner)], partly=partly)
        return location if isinstance(location, Path) else self._fetched[location]

    def prove(self, path: Path, owner: str, *, partly: bool = False) -> None:
        """Check a local file's place and, once while it stays as it is, its FileObject's checksum.

        Local files of version 0.8 keep no promise: there checksums were written by hand, and never checked.

        Args:
            path: the file.
            owner: the id of the FileObject, or "".
            partly: only a part of it will be read: all of it is, for its checksum, only if its size is not
                what the description says.

        Raises:
            InputError: if it is missing, led to by a link out of the folder, or its checksum is another.
        """
        status = self.check(path)
        stamp = (status.st_size, status.st_mtime_ns)
        part = self.objects.get(owner)
        if part is None or self._version == "0.8" or self._proved.get((owner, path)) == stamp:
            return
        stated = parse_size(part.content_size)
        if partly and not (stated and stated.exact and stated.bytes != status.st_size):
            return
        expected = checksum_of(part.sha256, part.md5)
        if expected is not None:
            found = file_checksum(path, expected.algorithm)
            if found != expected:
                raise wrong_checksum(str(path), part, str(found), str(expected))
        self._proved[owner, path] = stamp

    def check(self, path: Path) -> os.stat_result:
        """Check a local file's place.

        Raises:
            InputError: if it is missing, or led to by a link out of its folder.
        """
        if path.is_relative_to(self.folder.root):
            self.folder.check(path)
        else:
            for home in self.named.values():
                if path.is_relative_to(home.root):
                    home.check(path)
        try:
            return path.stat()
        except OSError as error:
            raise InputError(
                "the file cannot be read",
                code="unreadable",
                path=path,
                found=error.strerror,
                remedy="restore it, or name a copy with --map ID=PATH",
            ) from error

    def close(self) -> None:
        """Let go of connections."""
        if "fetcher" in self.__dict__:
            self.fetcher.close()


def wrong_checksum(where: str, part: FileObject, found: str, expected: str) -> WrongChecksum:
    """The error of a file that is not the one that its FileObject describes."""
    terms = ("sc:md5", "cr:md5") if "md5" in expected else ("sc:sha256", "cr:sha256")
    at = next((part.written[term] for term in terms if term in part.written), part.at)
    return WrongChecksum(
        f"not the file that FileObject {part.id!r} describes: the checksum differs ({at})",
        code="checksum",
        path=where,
        found=found,
        expected=expected,
        remedy="download it again; if the file is right, update the checksum in the description",
    )
