"""One file fetched by several threads.

A transfer begins with a request for the first piece that is missing. An answer that is a part shows that
the server has ranges: the other pieces are then there for any thread to `take`. A server that sends the
whole is read from its start. A file that turns out to be another version than the bytes that are here is
begun anew; its `generation` keeps threads that are late from writing into it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Literal

from holdfast.data.croissant.fetching.answers import (
    OTHER_PART,
    Answer,
    BodyStream,
    PassingFault,
    Source,
)
from holdfast.data.croissant.fetching.drafts import Draft, Proved
from holdfast.data.croissant.fetching.parts import Piece, Stopped, Version
from holdfast.data.croissant.fetching.patience import Patience, Wait
from holdfast.data.croissant.fetching.urls import bare, file_name
from holdfast.errors import InputError

PIECE = 16 << 20
"""Bytes of a request."""
_MOST_RESTARTS = 3
_PACKED = (".gz", ".tgz", ".bgz", ".z", ".zst", ".br")
"""Files that some servers wrongly declare as packed for the way: their bytes are meant as they are."""
_NO_END = 1 << 62


class Transfer:
    """See the module.

    Args:
        draft: the file.
        source: gives its parts.
        unless: the version that is in the cache already.
        wait: waits some seconds; raises `Stopped` if the download was ended.
        announce: called when there are pieces to take.
        piece: bytes of a request.
    """

    def __init__(
        self,
        draft: Draft,
        source: Source,
        *,
        unless: Version | None,
        wait: Wait,
        announce: Callable[[], None],
        piece: int,
    ) -> None:
        self.received = 0
        """Bytes that came over the network."""
        self.final_url = bare(draft.wanted.url)
        self._draft, self._source, self._unless = draft, source, unless
        self._wait, self._announce, self._piece = wait, announce, piece
        self._packed = file_name(draft.wanted.url).lower().endswith(_PACKED)
        self._lock = threading.RLock()
        self._proving = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self._bodies: set[BodyStream] = set()
        self._generation = 0
        self._plain = False  # ask for the whole: ranges make no sense here
        self._done = False

    def take(self) -> Piece | None:
        """A piece that nobody fetches yet."""
        with self._lock:
            return self._pieces.popleft() if self._pieces else None

    def begin(self) -> Proved | Literal["unchanged"] | None:
        """Take up the draft, make the first request, and read what it brings; as `run`.

        Returns:
            As `run`; "unchanged" if the file is as it was when it was fetched last.
        """
        self._draft.take_up()
        return self._open()

    def run(self, piece: Piece) -> Proved | Literal["unchanged"] | None:
        """Fetch a piece.

        Returns:
            The file, to the one thread whose bytes were the last; None to all others.

        Raises:
            InputError: what the server sends is not the file, or it does not send it.
            Stopped: the download was ended.
        """
        return self._fetch(piece, None)

    def pause(self) -> bool:
        """Close the draft, to be gone on with later; threads that are late change nothing any more.

        Returns:
            Whether there was something to pause: False if it has ended.
        """
        with self._proving, self._lock:
            self._pieces.clear()
            for body in self._bodies:
                body.abort()
            ended, self._done = self._done, True
            if not ended:
                self._draft.leave()
            return not ended

    # -- requests ----------------------------------------------------------------------------------

    def _open(self) -> Proved | Literal["unchanged"] | None:
        """Ask for the first bytes that are missing, until it is clear what the server sends."""
        draft = self._draft
        patience = Patience(draft.wanted.url, self._wait)
        while True:
            with self._lock:
                if self._done:
                    raise Stopped
                if draft.have.total and not draft.resumable:
                    draft.begin()
                generation, size = self._generation, draft.version.size
                span = next(draft.have.missing(size or _NO_END, self._piece), None)
            if span is None:
                return self._finish(generation)
            try:
                answer = self._source.ask(
                    None if self._plain else span,
                    same_as=draft.version if draft.have.total else None,
                    unless=self._unless,
                    decode=self._plain,
                )
                try:
                    piece = self._understood(answer, span[0])
                except BaseException:
                    answer.close()
                    raise
                if piece is None:
                    answer.close()
                    if answer.kind == "unchanged":
                        return "unchanged"
                elif answer.kind == "part":
                    return self._fetch(piece, answer)
                elif self._read(answer, piece, piece.end):
                    draft.version = Version(piece.start, draft.version.etag, draft.version.modified)
                    return self._finish(piece.generation)
            except PassingFault as fault:
                self._pause_after(fault, patience)

    def _understood(self, answer: Answer, start: int) -> Piece | None:
        """The piece that an answer brings, after the draft was made ready for it.

        None if nothing is to be read of it: nothing has changed, or something else must be asked.
        """
        draft, size = self._draft, answer.version.size
        with self._lock:
            if self._done:
                raise Stopped
            self.final_url = answer.final_url or self.final_url
            if answer.kind == "unchanged":
                self._done = True
                draft.discard()
                return None
            if answer.encoding and not self._plain and not self._packed:
                self._plain = True
                return None
            if answer.kind == "whole":
                # What is said of a packed answer is of the packed form.
                unpacked = answer.encoding and self._plain
                draft.begin(Version() if unpacked else answer.version)
                end = _NO_END if size is None or unpacked else size
                return Piece(0, end, self._generation)
            told = draft.provable or answer.version.validator or (start, answer.end) == (0, size)
            if answer.kind == "no range" or size is None or not told:
                if self._plain:
                    raise PassingFault(OTHER_PART)
                if draft.have.total:
                    self._restart(self._generation)
                else:
                    self._plain = True
                return None
            if answer.start != start:
                raise PassingFault(OTHER_PART)
            if draft.have.total and not draft.version.agrees(answer.version):
                self._restart(self._generation)
                return None
            if draft.have.total:
                draft.version = answer.version
            else:
                draft.begin(answer.version)
            spans = draft.have.missing(size, self._piece)
            first, *others = [Piece(a, b, self._generation) for a, b in spans]
            self._pieces = deque(others)
        self._announce()
        return first

    def _fetch(self, piece: Piece, answer: Answer | None) -> Proved | Literal["unchanged"] | None:
        """Fetch a piece, asking again for what is missing of it."""
        patience = Patience(self._draft.wanted.url, self._wait)
        while piece.start < piece.end:
            before = piece.start
            try:
                answer = answer or self._ask_again(piece)
                if answer is None:
                    return self._open() if self._restart(piece.generation) else None
                if not self._read(answer, piece, answer.end or piece.end):
                    return None
            except PassingFault as fault:
                if piece.start > before:
                    patience.progress()
                self._pause_after(fault, patience)
            answer = None
        with self._lock:
            if self._done or piece.generation != self._generation:
                return None
            complete = self._draft.complete
        if complete:
            return self._finish(piece.generation)
        try:
            self._draft.catch_up()
        except EOFError:
            with self._lock:
                if piece.generation == self._generation:
                    raise
            # else: another thread began the file anew while its bytes were read back
        return None

    def _ask_again(self, piece: Piece) -> Answer | None:
        """An answer that brings what is missing of a piece; None if the file is another by now."""
        version = self._draft.version
        answer = self._source.ask((piece.start, piece.end), same_as=version)
        if answer.kind != "part" or not version.agrees(answer.version):
            answer.close()
            return None
        if answer.start != piece.start:
            answer.close()
            raise PassingFault(OTHER_PART)
        return answer

    def _read(self, answer: Answer, piece: Piece, end: int) -> bool:
        """Write an answer's bytes into the draft; False if the file was begun anew in the meantime."""
        body = answer.body
        assert body is not None
        end = min(end, piece.end)
        with self._lock:
            self._bodies.add(body)
        try:
            for data in body.chunks():
                chunk = data[: end - piece.start]
                with self._lock:
                    if self._done or piece.generation != self._generation:
                        return False
                    follow = self._draft.write(piece.start, chunk, answer.content_type)
                    self.received += len(chunk)
                    piece.start += len(chunk)
                follow()
                if piece.start == end:
                    break
        finally:
            with self._lock:
                self._bodies.discard(body)
            body.close()
        if piece.start < end < _NO_END:
            raise PassingFault("the response ended early")
        return True

    def _restart(self, generation: int) -> bool:
        """Forget what is here, as it is of another version; False if another thread did so already."""
        with self._lock:
            if generation != self._generation or self._done:
                return False
            self._generation += 1
            if self._generation > _MOST_RESTARTS:
                raise InputError(
                    "the file keeps changing on the server while it is fetched",
                    code="changed",
                    path=bare(self._draft.wanted.url),
                    remedy="try again later",
                )
            self._pieces.clear()
            self._draft.begin()
            return True

    def _pause_after(self, fault: PassingFault, patience: Patience) -> None:
        if self._done:
            raise Stopped
        patience.after(fault, self._draft.have.total if self._draft.resumable else 0)

    def _finish(self, generation: int) -> Proved | Literal["unchanged"] | None:
        """Prove the whole file and make it one of the cache's."""
        with self._proving:
            if self._done or generation != self._generation:
                return None
            right = self._draft.right()
            with self._lock:
                # What an earlier download left may be at fault: fetch all of it, once.
                again = not right and self._draft.resumed and self._restart(generation)
                if not again:
                    self._done = True
                    if not right:
                        raise self._draft.quarantine()
                    return self._draft.keep()
        return self._open()
