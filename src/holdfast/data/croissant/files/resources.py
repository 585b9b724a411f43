"""The files behind a description: where they are, listed without fetching, read in place."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from holdfast.data.croissant.archives.archive import Archive, Limits
from holdfast.data.croissant.archives.inflating import Inflated, compression_of
from holdfast.data.croissant.archives.pool import ArchivePool, Key, where_of
from holdfast.data.croissant.archives.unpacking import Scratch
from holdfast.data.croissant.archives.zips import Zip
from holdfast.data.croissant.document.charsets import checked_charset
from holdfast.data.croissant.document.model import Metadata
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.fetching.cache import Cache
from holdfast.data.croissant.files.hashing import Checksum, WrongChecksum, checksum_of
from holdfast.data.croissant.files.listing import Listing
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.origins import Origins, wrong_checksum
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.croissant.fetching.fetcher import Fetcher

_Unpacked = tuple[Path | str, tuple[str, ...], Checksum | None]

_BLOCK = 1 << 20
_AHEAD = 32  # remote files that are fetched together while members are read


class Resources:
    """What a description's FileObjects and FileSets stand for.

    Usable in a `with` block; `close` removes what was unpacked.

    Args:
        metadata: the description.
        folder: relative paths start here, and FileSets without a container look here: the folder that
            holds the description, or the description's URL.
        mapping: id of a FileObject -> a local file or folder to be taken instead of its URL; a folder
            stands for a repository, or for an archive that is unpacked there.
        access: the cache, and how the network may be used.
        encoding: of text files, whatever the description declares: one name for all, or id of a
            resource -> name.

    Raises:
        InputError: a mapping names no FileObject, or a path that does not exist; an unknown encoding.
    """

    def __init__(
        self,
        metadata: Metadata,
        folder: str | Path,
        *,
        mapping: Mapping[str, str | Path] | None = None,
        access: Access | None = None,
        encoding: str | Mapping[str, str] | None = None,
    ) -> None:
        access = access or Access()
        paths = {key: Path(path).absolute() for key, path in (mapping or {}).items()}
        _check_mapping(metadata, paths)
        self._origins = Origins(metadata, folder, paths, access)
        self._scratch = Scratch(Cache(access.cache).folder / "unpacked")
        self._archives = ArchivePool(self._origins, self._scratch, Limits())
        self._listing = Listing(metadata, self._origins, self._archives)
        self._unpacked: dict[_Unpacked, Path] = {}
        self._copies: dict[Hashable, Path] = {}
        self._parts = {part.id: part for part in (*metadata.file_objects, *metadata.file_sets)}
        self._encodings = _check_encodings(metadata, encoding)
        self._lock = threading.RLock()
        weakref.finalize(self, self._archives.close)

    @property
    def fetcher(self) -> Fetcher:
        """What fetches; its history says what was fetched."""
        return self._origins.fetcher

    @property
    def limits(self) -> Limits:
        """What an archive may hold; to be replaced before anything is listed."""
        return self._archives.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._archives.limits = limits

    def members(self, resource: str) -> list[Member]:
        """The files of a FileObject (always one) or FileSet, fetching only what lists them.

        A FileSet's are sorted by path; where it is contained in several resources, within each of them.
        A remote zip is listed by its directory (ranges); a remote tar has none and is fetched; a manifest
        is fetched and each of its lines names a file.

        Raises:
            InputError: a missing file, an id that is not a resource, an invalid or hostile archive.
        """
        with self._lock:
            return list(self._listing.members(resource))

    def fetch(self, members: Iterable[Member], *, partly: bool = False) -> None:
        """Bring the files behind members onto this machine, in parallel; what is here already is kept.

        Of a remote zip, only the members travel if they are less than half of it, and are gone with
        `close`. The checksums of local files are checked.

        Args:
            members: the files.
            partly: only parts of them will be read: of local ones, sizes are checked instead.

        Raises:
            InputError: a file that is missing, or not what its checksum says.
        """
        whole: dict[tuple[Path | str, str], None] = {}
        parts: dict[Path | str, tuple[Zip, list[Member]]] = {}
        for member in members:
            archive = self._archives.partly(member)
            if archive is None:
                whole[member.location, member.owner] = None
            else:
                parts.setdefault(member.location, (archive, []))[1].append(member)
        for location, (archive, some) in parts.items():
            size = sum(map(archive.packed, {member.inside[0] for member in some if member.inside}))
            if 2 * size < archive.size:
                self.paths(some, partly=partly)
            else:
                whole[location, some[0].owner] = None
        self._origins.fetch(whole, partly=partly)
        for location in parts:
            if self._origins.local_path(location, parts[location][1][0].owner) is not None:
                self._archives.forget(location)

    def path(self, member: Member) -> Path:
        """A local file with the member's bytes alone: itself, or unpacked once into the cache.

        Raises:
            InputError: a file that is missing, damaged, hostile, or not what its checksum says.
        """
        return self.paths([member])[0]

    def paths(self, members: Sequence[Member], *, partly: bool = False) -> list[Path]:
        """The `path` of each; each archive is gone through once, which many calls of `path` do not promise.

        Args:
            members: the files.
            partly: as `fetch` takes it.

        Raises:
            InputError: as `path`.
        """
        with self._lock:
            packed: dict[Key, dict[str, Member]] = defaultdict(dict)
            plain = []
            for member in members:
                if member.inside is None:
                    plain.append((member.location, member.owner))
                elif self._key(member) not in self._unpacked:
                    packed[member.location, member.inside[:-1]][member.inside[-1]] = member
            self._origins.fetch(plain, partly=partly)
            for some in packed.values():
                with self._archives.of(next(iter(some.values()))) as archive:
                    names = sorted(some, key=archive.position)
                    total = sum(archive.sizes[name] or 0 for name in names)
                    self._scratch.require_room(total, f"members of {archive.where}")
                    for name in names:
                        self._unpack(archive, name, some[name])
            return [self._path(member, partly=partly) for member in members]

    def _path(self, member: Member, *, partly: bool = False) -> Path:
        if member.inside is None:
            return self._origins.local(member.location, member.owner, partly=partly)
        return self._unpacked[self._key(member)]

    def _key(self, member: Member) -> _Unpacked:
        """What an unpacked file is kept under: with the checksum that it was compared with."""
        return member.location, member.inside or (), self._expected(member)

    def _unpack(self, archive: Archive, name: str, member: Member) -> None:
        self._prove(member)
        expected = self._expected(member)
        check = hashlib.new(expected.algorithm, usedforsecurity=False) if expected else None
        path = self._scratch.keep(member.filename, archive.chunks(name), check)
        if expected and check and check.hexdigest() != expected.hex:
            path.unlink()
            raise self._wrong(member, Checksum(expected.algorithm, check.hexdigest()), expected)
        self._unpacked[self._key(member)] = path

    def inflated(self, path: Path, name: str) -> Path:
        """A local file with what `path` unpacks to, if it is one bzip2 or xz file; else `path` itself.

        Args:
            path: as `paths` gives it.
            name: the file's, for messages.

        Raises:
            InputError: a file that is damaged, or unpacks to more than an archive may.
        """
        with path.open("rb") as file:
            kind = compression_of(file.read(8))
            file.seek(0)
            if kind not in ("bzip2", "xz"):
                return path
            stream = Inflated(file, kind, self.limits, name, path.stat().st_size)
            return self.copied(path, name, iter(partial(stream.read, _BLOCK), b""))

    def copied(self, key: Hashable, name: str, parts: Iterable[bytes]) -> Path:
        """A file of these bytes, written once for each key and removed by `close`."""
        with self._lock:
            if key not in self._copies:
                self._copies[key] = self._scratch.keep(name, parts)
            return self._copies[key]

    def encoding(self, resource: str) -> str | None:
        """The encoding of a resource's text, as the user or the description names it.

        Raises:
            InputError: the description names an unknown one.
        """
        part = self._parts.get(resource)
        if part is None or not part.charset or resource in self._encodings:
            return self._encodings.get(resource)
        return checked_charset(part.charset, resource)

    def declare(self, resource: str, encoding: str) -> None:
        """Set the encoding of a resource's text."""
        self._encodings[resource] = encoding

    def read(self, members: Sequence[Member]) -> Iterator[bytes]:
        """The bytes of each, in order; each archive is gone through once.

        Members of a compressed tar that are wanted in another order than they stand there wait on the disk.

        Raises:
            InputError: as `path`.
        """
        waiting: dict[Key, list[Member]] = defaultdict(list)
        streamed = set()
        for number, member in enumerate(members):
            if member.inside is not None and self._key(member) not in self._unpacked:
                waiting[member.location, member.inside[:-1]].append(member)
                streamed.add(number)
        streams: dict[Key, Iterator[bytes]] = {}
        try:
            for number, member in enumerate(members):
                if member.inside is None:
                    yield self._whole(member, members, number)
                elif number in streamed:
                    key = (member.location, member.inside[:-1])
                    if key not in streams:
                        streams[key] = self._stream(waiting.pop(key))
                    data = next(streams[key])
                    self._compare(member, data)
                    yield data
                else:
                    yield self._path(member).read_bytes()
        finally:
            for stream in streams.values():
                stream.close()  # type: ignore[attr-defined]  # a generator

    def _whole(self, member: Member, members: Sequence[Member], number: int) -> bytes:
        if isinstance(member.location, str) and not self._origins.local_path(
            member.location, member.owner
        ):
            ahead = (each for each in islice(members, number, None) if each.inside is None)
            self._origins.fetch((each.location, each.owner) for each in islice(ahead, _AHEAD))
        return self._origins.local(member.location, member.owner).read_bytes()

    def _stream(self, members: Sequence[Member]) -> Iterator[bytes]:
        """The bytes of members of one archive."""
        self._prove(members[0])
        with self._archives.of(members[0]) as archive:
            names = [member.inside[-1] for member in members if member.inside]
            if archive.forward and names != sorted(names, key=archive.position):
                for path in self.paths(members):
                    yield path.read_bytes()
            else:
                for name in names:
                    yield b"".join(archive.chunks(name))

    def _prove(self, member: Member) -> None:
        """Check the file that holds a member, where it is of this machine."""
        if isinstance(member.location, Path):
            self._origins.prove(member.location, member.owner)

    def _expected(self, member: Member) -> Checksum | None:
        """The checksum that a FileObject states for itself, where it is contained in an archive."""
        part = self._origins.objects.get(member.resource)
        if part is None or part.id == member.owner:
            return None
        return checksum_of(part.sha256, part.md5)

    def _compare(self, member: Member, data: bytes) -> None:
        expected = self._expected(member)
        if expected:
            digest = hashlib.new(expected.algorithm, data, usedforsecurity=False).hexdigest()
            if digest != expected.hex:
                raise self._wrong(member, Checksum(expected.algorithm, digest), expected)

    def _wrong(self, member: Member, found: Checksum, expected: Checksum) -> WrongChecksum:
        where = where_of(member.location, member.inside or ())
        part = self._origins.objects[member.resource]
        return wrong_checksum(where, part, str(found), str(expected))

    def close(self) -> None:
        """Remove what was unpacked, and let go of files and connections."""
        with self._lock:
            self._archives.close()
            self._unpacked.clear()
            self._copies.clear()
            self._scratch.close()
            self._origins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_mapping(metadata: Metadata, paths: Mapping[str, Path]) -> None:
    ids = [part.id for part in metadata.file_objects]
    for identity, path in paths.items():
        if identity not in ids:
            raise InputError(
                "--map names an unknown FileObject",
                code="unknown-name",
                found=repr(identity),
                expected=f"one of {', '.join(map(repr, ids[:20]))}" if ids else "nothing to map",
            )
        if not path.exists():
            raise InputError(
                f"path of --map {identity!r} not found",
                code="not-found",
                path=path,
                expected="a file, or a folder that stands for a repository",
            )


def _check_encodings(metadata: Metadata, given: str | Mapping[str, str] | None) -> dict[str, str]:
    """Resource id -> the encoding of its text that the user names; of images and sound none."""
    parts = (*metadata.file_objects, *metadata.file_sets)
    if isinstance(given, str):
        given = {part.id: checked_charset(given) for part in parts if not part.is_media}
    for key, name in (given or {}).items():
        checked_charset(name)
        if all(key != part.id for part in parts):
            raise InputError(
                "--encoding names an unknown FileObject or FileSet",
                code="unknown-name",
                found=repr(key),
                expected=", ".join(repr(part.id) for part in parts[:20]) or "no id",
            )
    return dict(given or {})
