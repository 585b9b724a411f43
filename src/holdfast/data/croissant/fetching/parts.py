"""A file that is on its way: the bytes that are here, and of which version of the file they are."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.files import write_whole


class Stopped(Exception):
    """The download was ended; what is here stays, to be gone on with."""


@dataclass(frozen=True, slots=True)
class Version:
    """How a server tells one version of a file from the next.

    Attributes:
        size: bytes; None where it did not say.
        etag: of the answer; weak ones (``W/"..."``) included.
        modified: its Last-Modified.
    """

    size: int | None = None
    etag: str | None = None
    modified: str | None = None

    @property
    def validator(self) -> str | None:
        """What may stand in If-Range (RFC 9110, 13.1.5): a strong ETag, else the date."""
        strong = self.etag and not self.etag.startswith("W/")
        return self.etag if strong else self.modified

    def agrees(self, other: Version) -> bool:
        """Whether another answer can be of this version, as far as both say."""
        pairs = ((self.size, other.size), (self.etag, other.etag), (self.modified, other.modified))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


class Spans:
    """Disjoint [start, end) of bytes, in order, none touching the next."""

    def __init__(self, spans: list[tuple[int, int]] | None = None) -> None:
        self.spans: list[tuple[int, int]] = []
        for start, end in spans or []:
            self.add(start, end)

    @property
    def total(self) -> int:
        """Bytes in all of them."""
        return sum(end - start for start, end in self.spans)

    @property
    def front(self) -> int:
        """How far they reach from 0 without a gap."""
        return self.spans[0][1] if self.spans and self.spans[0][0] == 0 else 0

    def add(self, start: int, end: int) -> None:
        """Add [start, end), which may touch or overlap others."""
        apart = [(a, b) for a, b in self.spans if b < start or a > end]
        joined = [(a, b) for a, b in self.spans if not (b < start or a > end)]
        low = min([start, *(a for a, _ in joined)])
        high = max([end, *(b for _, b in joined)])
        self.spans = sorted([*apart, (low, high)]) if high > low else apart

    def missing(self, size: int, piece: int) -> Iterator[tuple[int, int]]:
        """What is lacking in [0, size), in pieces of at most `piece` bytes."""
        position = 0
        for start, end in [*self.spans, (size, size)]:
            while position < min(start, size):
                stop = min(position + piece, start, size)
                yield position, stop
                position = stop
            position = max(position, end)


@dataclass(slots=True)
class Piece:
    """Bytes [start, end) that are to come; `start` moves on as they do."""

    start: int
    end: int
    generation: int


class Part:
    """A draft of a file in the cache, with a small JSON that says what of it is there.

    The JSON never claims bytes that are not on the disk, so a killed process, or a machine that lost its
    power, leaves a draft that can be gone on with. Many threads may write at once.

    Args:
        path: of the draft; the JSON stands beside it.
        save_every: bytes after which the JSON is brought up to date.
    """

    def __init__(self, path: Path, save_every: int) -> None:
        self.path = path
        self.version = Version()
        self.have = Spans()
        self._state = path.with_suffix(".json")
        self._save_every = save_every
        self._unsaved = 0
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def resume(self, url: str) -> None:
        """Take up what an earlier download of this URL left."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            state: dict[str, Any] = json.loads(self._state.read_bytes())
            if state["url"] == url:
                spans = [(int(start), int(end)) for start, end in state["have"]]
                version = Version(**state["version"])
                length = os.fstat(self.handle).st_size
                if all(0 <= start < end <= length for start, end in spans):
                    self.have, self.version = Spans(spans), version

    def begin(self, version: Version) -> None:
        """Forget what is there, and start on another version."""
        with (
            self._saving,
            self._lock,
        ):  # else a thread that saves now would bring the old claim back
            self.version, self.have = version, Spans()
            self._unsaved = 0
            os.ftruncate(self.handle, 0)
            self._state.unlink(missing_ok=True)

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes.

        Raises:
            HoldfastError: if the disk does not take them.
        """
        try:
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self.handle, view, offset + len(data) - len(view)) :]
        except OSError as error:
            raise HoldfastError(
                f"{self.path}: cannot write to the cache\n  found: {error.strerror}\n"
                "  remedy: make room, or name another folder as the cache (HOLDFAST_CACHE)"
            ) from error
        with self._lock:
            self.have.add(offset, offset + len(data))
            self._unsaved += len(data)

    def save(self, url: str, *, now: bool = False) -> None:
        """Bring the JSON up to date, if that is due."""
        if not now and self._unsaved < self._save_every:
            return
        if not self._saving.acquire(blocking=now):
            return  # another thread is at it
        try:
            if self.handle < 0:
                return
            with self._lock:
                have, version, self._unsaved = list(self.have.spans), self.version, 0
            os.fdatasync(self.handle)  # first the bytes, then the claim that they are there
            state = {"url": url, "version": asdict(version), "have": have}
            write_whole(self._state, json.dumps(state).encode())
        finally:
            self._saving.release()

    def read(self, offset: int, size: int) -> bytes:
        """Bytes that are here.

        Raises:
            Stopped: if the draft was closed.
        """
        with self._lock:
            if self.handle < 0:
                raise Stopped
            return os.pread(self.handle, size, offset)

    def close(self) -> None:
        """Close the draft, which stays; nothing is written any more, by threads that are late either."""
        with self._saving, self._lock:
            if self.handle >= 0:
                os.close(self.handle)
                self.handle = -1

    def discard(self) -> None:
        """Remove the draft and what is said of it."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Remove the JSON of a draft that was moved away."""
        self._state.unlink(missing_ok=True)
