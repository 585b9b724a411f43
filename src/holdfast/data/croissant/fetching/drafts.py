"""A file on its way into the cache: written piece by piece, hashed as it comes, proved at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.data.croissant.fetching.answers import looks_like_html
from holdfast.data.croissant.fetching.cache import Cache
from holdfast.data.croissant.fetching.parts import Part, Spans, Version
from holdfast.data.croissant.fetching.refusals import (
    a_page,
    another_file,
    another_size,
    too_large,
)
from holdfast.data.croissant.fetching.room import require_room
from holdfast.data.croissant.fetching.urls import bare
from holdfast.data.croissant.fetching.wanted import Wanted
from holdfast.data.croissant.files.hashing import Algorithm, Checksum, RunningHash
from holdfast.errors import InputError

MOST_UNSIZED = 64 << 30
"""Bytes of a file whose size neither its description nor its server states."""
_ROOM_EVERY = 64 << 20
"""Bytes of such a file between looks at how much room the disk has."""


@dataclass(frozen=True, slots=True)
class Proved:
    """A file that is in the cache now."""

    path: Path
    sha256: str
    version: Version


class Draft:
    """What came of a file so far, and whether it can be what is wanted.

    It is not locked: who uses it sees to it that bytes of one version are written, and that nobody writes
    while it is begun anew or proved.

    Args:
        wanted: the file.
        expected: what its bytes must add up to.
        locked: whether `expected` is a lock file's.
        advance: told of bytes as they come, and of those that are thrown away.
    """

    def __init__(
        self,
        wanted: Wanted,
        cache: Cache,
        part: Part,
        expected: Checksum | None,
        *,
        locked: bool,
        advance: Callable[[float], None],
    ) -> None:
        self.wanted = wanted
        self.resumed = False
        """Whether some of it was left by an earlier download."""
        self._cache, self._part, self._advance = cache, part, advance
        self._expected, self._locked = expected, locked
        self._url = bare(wanted.url)
        self._page = ""
        self._hash = self._fresh_hash()

    @property
    def have(self) -> Spans:
        """The bytes that are here."""
        return self._part.have

    @property
    def version(self) -> Version:
        """Of the file that they are of."""
        return self._part.version

    @version.setter
    def version(self, version: Version) -> None:
        self._part.version = version

    @property
    def complete(self) -> bool:
        """Whether all is here."""
        return self.have.total == self.version.size

    @property
    def provable(self) -> bool:
        """Whether a checksum will tell at the end if the bytes belong together."""
        return self._expected is not None

    @property
    def resumable(self) -> bool:
        """Whether bytes that come later can be told from those of another version."""
        return self.provable or self.version.validator is not None

    def take_up(self) -> None:
        """Go on with what an earlier download left."""
        self._part.resume(self._url)
        if not self.provable and self.complete and self.version.size:
            self._part.have = Spans([(0, self.version.size - 1)])  # to ask whether it is current
        self.resumed = self.have.total > 0
        self._advance(self.have.total)
        self.catch_up()

    def begin(self, version: Version | None = None) -> None:
        """Forget what is here, and start on another version.

        Raises:
            InputError: if it has another size than it must.
            HoldfastError: if there is no room for it.
        """
        version = version or Version()
        self._advance(-self.have.total)
        self._part.begin(version)
        self._hash = self._fresh_hash()
        self.resumed = False
        if version.size is not None:
            self._check_size(version.size)
            self._check_limit(version.size, "Content-Length or Content-Range")
            require_room(self._part.path.parent, version.size, self.wanted.called)

    def write(self, offset: int, data: bytes, content_type: str) -> Callable[[], None]:
        """Write bytes; gives what is left to do, for which nobody needs to be kept from writing."""
        if offset == 0:
            self._check_page(data, content_type)
        end = offset + len(data)
        if self.version.size is None:  # else it was checked before anything came
            self._check_limit(end, "received")
            if end // _ROOM_EVERY > offset // _ROOM_EVERY:
                require_room(self._part.path.parent, _ROOM_EVERY, self.wanted.called)
        self._part.write(offset, data)
        running = self._hash

        def follow() -> None:
            running.add(offset, data)
            self._advance(len(data))
            if self.resumable:
                self._part.save(self._url)

        return follow

    def catch_up(self) -> None:
        """Hash what came before what stands in front of it."""
        self._hash.catch_up(self._part.read, self.have.front)

    def leave(self) -> None:
        """Close it, to be gone on with later if it can be."""
        if self.resumable and self.have.total:
            self._part.save(self._url, now=True)
            self._part.close()
        else:
            self._part.discard()

    def discard(self) -> None:
        """Remove it."""
        self._part.discard()

    def right(self) -> bool:
        """Whether the complete file adds up to what it must.

        Raises:
            InputError: without a checksum: if it is a web page, or of another size.
        """
        self.catch_up()
        self._check_size(self.have.total)
        self._check_page(self._part.read(0, 2048), "")
        return self._expected is None or self._sums[self._expected.algorithm] == self._expected

    def keep(self) -> Proved:
        """Put the complete file, which is right, into the cache."""
        path = self._cache.keep(self._part, self._sums)
        version = Version(self.have.total, self.version.etag, self.version.modified)
        return Proved(path, self._sums["sha256"].hex, version)

    def quarantine(self) -> InputError:
        """Put the complete file, which is wrong, aside; gives the error that says so."""
        assert self._expected is not None
        found = self._sums[self._expected.algorithm]
        why = {"url": self._url, "found": str(found), "expected": str(self._expected)}
        name = f"{self._sums['sha256'].hex[:16]}-{self.wanted.called.replace('/', '_')[-80:]}"
        kept = self._cache.quarantine(self._part, name, why)
        if self._page:
            return a_page(self.wanted, self._page)
        return another_file(
            self.wanted, found, self.have.total, self._expected, kept, locked=self._locked
        )

    @property
    def _sums(self) -> dict[Algorithm, Checksum]:
        return self._hash.checksums()

    def _fresh_hash(self) -> RunningHash:
        md5 = self._expected is not None and self._expected.algorithm == "md5"
        return RunningHash(("sha256", "md5") if md5 else ("sha256",))

    def _check_size(self, size: int) -> None:
        if self._expected is None and self.wanted.size not in (None, size):
            self._part.begin(Version())
            raise another_size(self.wanted, size)

    def _check_limit(self, size: int, where: str) -> None:
        """Refuse a file that is far larger than what is described.

        Raises:
            InputError: and what came is forgotten: it is not the file.
        """
        limit = self.wanted.limit
        most = MOST_UNSIZED if limit is None else limit
        if size > most and (limit is not None or self.version.size is None):
            self._part.begin(Version())
            raise too_large(self.wanted, size, most, where)

    def _check_page(self, first: bytes, content_type: str) -> None:
        """Refuse HTML where data is meant; where there is a checksum, that decides in the end."""
        if self.wanted.may_be_page or not looks_like_html(first, content_type):
            return
        self._page = content_type or self._page or "HTML"
        if self._expected is None:
            self._part.begin(Version())
            raise a_page(self.wanted, self._page)
