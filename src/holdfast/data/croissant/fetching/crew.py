"""The threads that fetch files: several files at a time, and several pieces of a large one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from holdfast.data.croissant.fetching.cache import Given
from holdfast.data.croissant.fetching.drafts import Draft, Proved
from holdfast.data.croissant.fetching.parts import Piece, Stopped
from holdfast.data.croissant.fetching.transfers import Transfer
from holdfast.data.croissant.fetching.urls import bare
from holdfast.data.croissant.fetching.wanted import Fetched, Wanted, key_of
from holdfast.files import Lock
from holdfast.progress import Tracker

if TYPE_CHECKING:
    from holdfast.data.croissant.fetching.fetcher import Fetcher

_LOOK_AGAIN_S = 0.1
"""Between looks at a file that another process is fetching."""


@dataclass(eq=False, slots=True)
class _Job:
    """A file to fetch; `before` is what its URL had given before another process was waited for."""

    wanted: Wanted
    waited: bool = False
    before: Given | None = None
    claim: Lock | None = None
    transfer: Transfer | None = None

    def pause(self) -> None:
        """Leave it to be gone on with; one that has ended is let go of by the thread that ended it."""
        if self.transfer and self.transfer.pause() and self.claim:
            self.claim.close()


class Crew:
    """Fetches some files, and then is done.

    Threads first help with the files that are begun, in order, then begin another. A file that another
    process fetches is put aside, and found in the cache when that is done with it.

    Args:
        fetcher: whose cache and connections are used, and which is told of every file.
        wanted: files of which no two have the same key.
        bar: told of bytes.
    """

    def __init__(self, fetcher: Fetcher, wanted: Sequence[Wanted], bar: Tracker) -> None:
        self._fetcher, self._bar = fetcher, bar
        self._waiting = deque(_Job(want) for want in wanted)
        self._elsewhere: deque[_Job] = deque()
        self._begun: list[_Job] = []
        self._left = len(wanted)
        self._error: BaseException | None = None
        self._change = threading.Condition()
        self._stop = threading.Event()

    def work(self) -> None:
        """Fetch them all, or raise the first error; what came of the others is kept to be gone on with."""
        threads = [
            threading.Thread(target=self._serve, name=f"fetch-{number}", daemon=True)
            for number in range(self._fetcher.parallel)
        ]
        for thread in threads:
            thread.start()
        try:
            with self._change:
                while self._left and not self._error:
                    self._change.wait()
        finally:  # also after Ctrl-C
            self._stop.set()
            with self._change:
                self._change.notify_all()
                begun = list(self._begun)
            for job in begun:
                job.pause()
        if self._error:
            raise self._error
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        try:
            while (step := self._next()) is not None:
                with suppress(Stopped):  # of this file, which another thread has ended, or of all
                    step()
        except BaseException as error:  # raised again by `work`, in the thread of the caller
            with self._change:
                self._error = self._error or error
                self._change.notify_all()

    def _next(self) -> Callable[[], None] | None:
        """What a thread shall do now; None if nothing is left."""
        with self._change:
            while self._left and not self._stop.is_set():
                for job in self._begun:
                    piece = job.transfer.take() if job.transfer else None
                    if piece:
                        return partial(self._help, job, piece)
                if self._waiting:
                    return partial(self._begin, self._waiting.popleft())
                if self._elsewhere:
                    self._change.wait(_LOOK_AGAIN_S)
                    if self._elsewhere:
                        return partial(self._begin, self._elsewhere.popleft())
                else:
                    self._change.wait()
        return None

    def _begin(self, job: _Job) -> None:
        """Claim a file, see once more that it is not in the cache, and start on it."""
        fetcher, wanted = self._fetcher, job.wanted
        cache, expected = fetcher.cache, fetcher.expected(wanted)
        key = key_of(wanted.url, expected)
        before = cache.given(wanted.url)
        claim = cache.claim(key)
        if claim is None:
            with self._change:
                if not job.waited:
                    job.waited, job.before = True, before and before[0]
                self._elsewhere.append(job)
            return
        job.claim = claim
        with self._freeing(job):
            given = cache.given(wanted.url)
            fresh = job.waited and given is not None and given[0] != job.before
            if held := fetcher.at_hand(wanted, fresh=fresh):
                self._done(job, held)
                return
            source = fetcher.source(wanted.url)
            locked = bare(wanted.url) in fetcher.locked
            draft = Draft(
                wanted, cache, cache.part(key), expected, locked=locked, advance=self._bar.advance
            )
            job.transfer = Transfer(
                draft,
                source,
                unless=given[0].version if given and not expected else None,
                wait=self._wait,
                announce=self._announce,
                piece=fetcher.piece,
            )
            with self._change:
                if self._stop.is_set():
                    job.pause()
                    return
                self._begun.append(job)
            self._ended(job, job.transfer.begin())

    def _help(self, job: _Job, piece: Piece) -> None:
        assert job.transfer is not None
        with self._freeing(job):
            self._ended(job, job.transfer.run(piece))

    @contextmanager
    def _freeing(self, job: _Job) -> Iterator[None]:
        """Let go of a file on which work fails."""
        try:
            yield
        except Stopped:
            raise  # who stopped it has let go of it
        except BaseException:
            job.pause()
            if job.claim:
                job.claim.close()
            raise

    def _ended(self, job: _Job, outcome: Proved | Literal["unchanged"] | None) -> None:
        """Note the file of a transfer that has ended, if it has."""
        if outcome is None or job.transfer is None:
            return
        fetcher, wanted = self._fetcher, job.wanted
        if outcome == "unchanged":
            self._done(job, fetcher.at_hand(wanted, fresh=True))
            return
        assert outcome.version.size is not None
        given = Given(
            url=bare(wanted.url),
            final_url=job.transfer.final_url,
            sha256=outcome.sha256,
            size=outcome.version.size,
            etag=outcome.version.etag,
            modified=outcome.version.modified,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        fetcher.cache.note(given)
        file = Fetched(
            wanted=wanted,
            path=outcome.path,
            size=given.size,
            sha256=given.sha256,
            final_url=given.final_url,
            etag=given.etag,
            time=given.time,
            received=job.transfer.received,
        )
        self._done(job, file)

    def _done(self, job: _Job, file: Fetched | None) -> None:
        assert file is not None
        self._fetcher.remember(file)
        if job.claim:
            job.claim.close()
        with self._change:
            if job in self._begun:
                self._begun.remove(job)
            self._left -= 1
            self._change.notify_all()

    def _announce(self) -> None:
        with self._change:
            self._change.notify_all()

    def _wait(self, seconds: float) -> None:
        if self._fetcher.wait is not None:
            self._fetcher.wait(seconds)
        else:
            self._stop.wait(seconds)
        if self._stop.is_set():
            raise Stopped
