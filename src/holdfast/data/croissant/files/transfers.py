"""One file on its way into the cache: asked for in pieces by several threads, hashed as it comes, proved.

A transfer begins with a request for the first piece that is missing. An answer that is a part shows that
the server has ranges: the other pieces are then there for any thread to `take`. A server that sends the
whole is read from its start. A file that turns out to be another version than the bytes that are here is
begun anew; its `generation` keeps threads that are late from writing into it.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.data.croissant.files.answers import (
    Answer,
    BodyStream,
    PassingFault,
    Source,
    looks_like_html,
)
from holdfast.data.croissant.files.cache import Cache
from holdfast.data.croissant.files.hashing import Algorithm, Checksum, RunningHash
from holdfast.data.croissant.files.parts import Part, Spans, Stopped, Version
from holdfast.data.croissant.files.patience import Patience
from holdfast.data.croissant.files.refusals import a_page, another_file, another_size
from holdfast.data.croissant.files.urls import bare, file_name
from holdfast.data.croissant.files.wanted import Wanted
from holdfast.errors import HoldfastError, InputError

PIECE = 16 << 20
"""Bytes of a request."""
_MOST_RESTARTS = 3
_PACKED = (".gz", ".tgz", ".bgz", ".z", ".zst", ".br")
"""Files that some servers wrongly declare as packed for the way: their bytes are meant as they are."""


@dataclass(slots=True)
class Piece:
    """Bytes [start, end) that are to come; `start` moves on as they do."""

    start: int
    end: int
    generation: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A transfer that has ended well; without a path, the file is as it was when it was fetched last."""

    path: Path | None
    sums: dict[Algorithm, Checksum]
    version: Version
    final_url: str
    received: int


class Transfer:
    """See the module.

    Args:
        wanted: the file.
        expected: what its bytes must add up to.
        locked: whether `expected` is a lock file's.
        unless: the version that is in the cache already.
        wait: waits some seconds; raises `Stopped` if the download was ended.
        advance: told of bytes as they arrive.
        announce: called when there are pieces to take.
    """

    def __init__(
        self,
        wanted: Wanted,
        source: Source,
        cache: Cache,
        part: Part,
        *,
        expected: Checksum | None,
        locked: bool = False,
        unless: Version | None = None,
        wait: Callable[[float], None],
        advance: Callable[[float], None],
        announce: Callable[[], None],
        piece: int = PIECE,
    ) -> None:
        self._wanted, self._source, self._cache, self._part = wanted, source, cache, part
        self._expected, self._locked, self._unless = expected, locked, unless
        self._wait, self._advance, self._announce = wait, advance, announce
        self._piece = piece
        self._lock = threading.RLock()
        self._finishing = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self._bodies: set[BodyStream] = set()
        self._generation = 0
        self._restarts = 0
        self._resumed = False
        self._plain = False  # ask for the whole: ranges make no sense here
        self._done = False
        self._page = ""
        self._received = 0
        self._final_url = bare(wanted.url)
        self._hash = self._fresh_hash()

    # -- for the threads ---------------------------------------------------------------------------

    def take(self) -> Piece | None:
        """A piece that nobody fetches yet."""
        with self._lock:
            return self._pieces.popleft() if self._pieces else None

    def begin(self) -> Outcome | None:
        """Take up the draft, make the first request, and read what it brings; as `run`."""
        self._part.resume(bare(self._wanted.url))
        have, version = self._part.have, self._part.version
        if self._expected is None and version.size is not None and have.total == version.size:
            self._part.have = Spans([(0, version.size - 1)])  # to ask whether it is current
        self._resumed = self._part.have.total > 0
        self._hash.catch_up(self._part.read, self._part.have.front)
        self._advance(self._part.have.total)
        return self._open()

    def run(self, piece: Piece) -> Outcome | None:
        """Fetch a piece.

        Returns:
            The outcome, to the one thread whose bytes were the last; None to all others.

        Raises:
            InputError: what the server sends is not the file, or it does not send it.
            Stopped: the download was ended.
        """
        return self._fetch(piece, None)

    def pause(self) -> None:
        """Write down what is here and close the draft; threads that are late change nothing any more."""
        with self._finishing, self._lock:
            self._generation += 1
            self._pieces.clear()
            for body in list(self._bodies):
                body.abort()
            if not self._done:
                self._done = True
                if self._can_resume and self._part.have.total:
                    self._part.saved(bare(self._wanted.url), now=True)
                else:
                    self._part.discard()
            self._part.close()

    # -- requests ----------------------------------------------------------------------------------

    def _open(self) -> Outcome | None:
        """Ask for the first bytes that are missing, until it is clear what the server sends."""
        patience = Patience(self._wanted.url, self._wait)
        while True:
            if not self._can_resume:
                self._part.begin(Version())
                self._hash = self._fresh_hash()
            generation, have, version = self._generation, self._part.have, self._part.version
            missing = next(
                have.missing(version.size or have.front + self._piece, self._piece), None
            )
            if missing is None:
                return self._finish(generation)
            try:
                answer = self._source.ask(
                    None if self._plain else missing,
                    same_as=version if have.total else None,
                    unless=self._unless,
                    decode=self._plain,
                )
                piece = self._understood(answer, missing[0])
                if answer.kind == "unchanged":
                    return self._unchanged(answer)
                if piece is not None:
                    if answer.kind == "whole":
                        self._read_whole(answer, piece)
                        return self._finish(piece.generation)
                    return self._fetch(piece, answer)
            except PassingFault as fault:
                self._after(fault, patience)

    def _understood(self, answer: Answer, start: int) -> Piece | None:
        """The piece that an answer brings, after the draft was made ready for it; None to ask anew."""
        with self._lock:
            if self._done:
                raise Stopped
            if answer.kind == "unchanged":
                return None
            packed = file_name(self._wanted.url).lower().endswith(_PACKED)
            if answer.encoding and not self._plain and not packed:
                answer.close()
                self._plain = True
                return None
            unknown = answer.version.size is None or not (
                answer.version.validator or self._expected
            )
            if answer.kind == "no range" or (answer.kind == "part" and unknown):
                answer.close()
                if self._plain:
                    raise PassingFault("the server has no such bytes")
                if not self._part.have.total or not self._restart(self._generation):
                    self._plain = True
                return None
            if answer.kind == "part" and answer.start != start:
                answer.close()
                raise PassingFault("the server sent another part than was asked for")
            if answer.kind == "part" and self._part.have.total:
                if not self._part.version.agrees(answer.version):
                    answer.close()
                    self._restart(self._generation)
                    return None
                self._part.version = answer.version
            else:
                self._anew(answer)
            self._final_url = answer.final_url or self._final_url
            size = answer.version.size
            if answer.kind == "whole":
                return Piece(0, size if size is not None else -1, self._generation)
            assert size is not None
            spans = self._part.have.missing(size, self._piece)
            pieces = [Piece(first, last, self._generation) for first, last in spans]
            self._pieces = deque(pieces[1:])
        self._announce()
        return pieces[0]

    def _anew(self, answer: Answer) -> None:
        """Begin the draft of this version of the file."""
        version, wanted = answer.version, self._wanted
        if version.size is not None:
            self._refuse_size(version.size)
        free = shutil.disk_usage(self._part.path.parent).free
        if version.size is not None and version.size > free:
            raise HoldfastError(
                f"{wanted.called}: there is no room for it in {self._cache.folder}\n"
                f"  needed: {version.size:,} bytes\n  found: {free:,} bytes free\n"
                "  remedy: make room, or name another folder as the cache (HOLDFAST_CACHE)"
            )
        self._advance(-self._part.have.total)
        if answer.encoding and self._plain:
            version = Version()  # what is said is of the packed form
        self._part.begin(version)
        self._hash = self._fresh_hash()
        self._resumed = False

    def _fetch(self, piece: Piece, answer: Answer | None) -> Outcome | None:
        """Fetch a piece, asking again for what is missing of it."""
        patience = Patience(self._wanted.url, self._wait)
        while piece.start < piece.end:
            before = piece.start
            try:
                if answer is None:
                    span = (piece.start, piece.end)
                    answer = self._source.ask(span, same_as=self._part.version)
                    if piece.generation != self._generation:
                        answer.close()
                        return None
                    same = self._part.version.agrees(answer.version)
                    if answer.kind != "part" or not same:
                        answer.close()
                        return self._open() if self._restart(piece.generation) else None
                    if answer.start != piece.start:
                        answer.close()
                        raise PassingFault("the server sent another part than was asked for")
                if not self._read(answer, piece, answer.end or piece.end):
                    return None
            except PassingFault as fault:
                if piece.start > before:
                    patience.progress()
                self._after(fault, patience)
            answer = None
        if self._part.have.total == self._part.version.size:
            return self._finish(piece.generation)
        with self._lock:
            if piece.generation == self._generation:
                self._hash.catch_up(self._part.read, self._part.have.front)
        return None

    def _read_whole(self, answer: Answer, piece: Piece) -> None:
        """Read the whole file out of one answer."""
        end = piece.end if piece.end >= 0 else 1 << 62
        if self._read(answer, piece, end) and piece.end < 0:
            with self._lock:
                version = self._part.version
                self._part.version = Version(piece.start, version.etag, version.modified)

    def _read(self, answer: Answer, piece: Piece, end: int) -> bool:
        """Write an answer's bytes into the draft; False if the file was begun anew in the meantime."""
        body = answer.body
        assert body is not None
        limit = min(end, piece.end) if piece.end >= 0 else end
        with self._lock:
            self._bodies.add(body)
        try:
            for data in body.chunks():
                chunk = data[: limit - piece.start]
                with self._lock:
                    if piece.generation != self._generation or self._done:
                        return False
                    running = self._hash
                    if piece.start == 0:
                        self._refuse_page(chunk, answer.content_type)
                    self._part.write(piece.start, chunk)
                    self._received += len(chunk)
                running.add(piece.start, chunk)
                piece.start += len(chunk)
                self._advance(len(chunk))
                if self._can_resume:
                    self._part.saved(bare(self._wanted.url))
                if piece.start == limit:
                    break
        finally:
            with self._lock:
                self._bodies.discard(body)
            body.close()
        if 0 <= piece.start < min(end, piece.end):
            raise PassingFault("the answer ended early")
        return True

    def _restart(self, generation: int) -> bool:
        """Forget what is here, as it is of another version; False if another thread did so already."""
        with self._lock:
            if generation != self._generation or self._done:
                return False
            self._generation += 1
            self._restarts += 1
            if self._restarts > _MOST_RESTARTS:
                raise InputError(
                    "the file keeps changing while it is fetched",
                    path=bare(self._wanted.url),
                    remedy="try again later",
                )
            self._pieces.clear()
            self._advance(-self._part.have.total)
            self._part.begin(Version())
            self._hash = self._fresh_hash()
            self._resumed = False
            return True

    def _after(self, fault: PassingFault, patience: Patience) -> None:
        if self._done:
            raise Stopped
        patience.after(fault, self._part.have.total)

    # -- the proof ---------------------------------------------------------------------------------

    @property
    def _can_resume(self) -> bool:
        """Whether bytes that come later can be told from those of another version."""
        return bool(self._expected or self._part.version.validator)

    def _fresh_hash(self) -> RunningHash:
        md5 = self._expected and self._expected.algorithm == "md5"
        return RunningHash(("sha256", "md5") if md5 else ("sha256",))

    def _unchanged(self, answer: Answer) -> Outcome:
        answer.close()
        with self._finishing, self._lock:
            self._done = True
            self._part.discard()
        return Outcome(None, {}, answer.version, self._final_url, 0)

    def _finish(self, generation: int) -> Outcome | None:
        """Prove the whole file and make it one of the cache's."""
        with self._finishing:
            with self._lock:
                if self._done or generation != self._generation:
                    return None
            size = self._part.version.size or 0
            self._hash.catch_up(self._part.read, size)
            sums = self._hash.checksums()
            self._refuse_size(size)
            self._refuse_page(self._part.read(0, 2048), "")
            with self._lock:
                right = self._expected is None or sums[self._expected.algorithm] == self._expected
                again = not right and self._resumed and self._restart(generation)
                if not again:
                    self._done = True
                    if not right:
                        raise self._quarantined(sums, size)
                    path = self._cache.keep(self._part, sums)
                    self._part.close()
                    version = Version(size, self._part.version.etag, self._part.version.modified)
                    return Outcome(path, sums, version, self._final_url, self._received)
        return self._open()  # what an earlier process left may have been at fault

    def _refuse_size(self, size: int) -> None:
        if self._expected is None and self._wanted.size not in (None, size):
            self._part.begin(Version())
            raise another_size(self._wanted, size)

    def _refuse_page(self, first: bytes, content_type: str) -> None:
        """Refuse HTML where data is meant; where there is a checksum, that decides."""
        if self._wanted.may_be_page or not looks_like_html(first, content_type):
            return
        self._page = content_type or self._page or "HTML"
        if self._expected is None:
            self._part.begin(Version())
            raise a_page(self._wanted, self._page)

    def _quarantined(self, sums: dict[Algorithm, Checksum], size: int) -> InputError:
        """Put what came aside; gives the error that says why."""
        expected = self._expected
        assert expected is not None
        found = sums[expected.algorithm]
        why = {"url": bare(self._wanted.url), "found": str(found), "expected": str(expected)}
        name = f"{sums['sha256'].hex[:16]}-{self._wanted.called}"
        kept = self._cache.quarantine(self._part, name, why)
        self._part.close()
        if self._page:
            return a_page(self._wanted, self._page)
        return another_file(self._wanted, found, size, expected, kept, locked=self._locked)
