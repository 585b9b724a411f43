"""Files fetched into the cache: several at a time, resumed and verified.

A file is asked for piece by piece. A server that sends the whole is read from its start. A file of another
version than the bytes that are here is begun anew.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.fetching import refusals
from holdfast.data.croissant.fetching.access import file_name
from holdfast.data.croissant.fetching.cache import CachedResponse
from holdfast.data.croissant.fetching.drafts import Stopped, require_room
from holdfast.data.croissant.fetching.file_requests import Fetched, FileRequest, key_of
from holdfast.errors import InputError
from holdfast.files import Lock
from holdfast.progress import Tracker
from holdfast.remote import (
    OTHER_RANGE,
    Buffer,
    RangesRefused,
    Response,
    Retry,
    Span,
    TransientError,
    Version,
    bare,
)

if TYPE_CHECKING:
    from holdfast.data.croissant.fetching.fetcher import Fetcher

PIECE = 16 << 20
"""Bytes of a request."""
SAVE_EVERY = 16 << 20
"""Further bytes that a killed process may lose."""
MOST_UNSIZED = 64 << 30
"""Bytes of a file whose size neither its description nor its server states."""
_ROOM_EVERY = 64 << 20
"""Bytes of such a file between looks at how much room the disk has."""
_MOST_RESTARTS = 3
_LOOK_AGAIN_S = 0.1
"""Between looks at a file that another process is fetching."""
_PACKED = (".gz", ".tgz", ".bgz", ".z", ".zst", ".br")
"""Files that some servers wrongly declare as packed for the way: their bytes are meant as they are."""


class _Crew:
    """The downloads of one call."""

    def __init__(self, fetcher: Fetcher, bar: Tracker) -> None:
        self.fetcher, self.bar = fetcher, bar
        self.active: list[_Download] = []
        self.stopped = threading.Event()


def download(fetcher: Fetcher, requests: Sequence[FileRequest], bar: Tracker) -> None:
    """Download files into the cache.

    Args:
        fetcher: provides cache and connections, and records every file.
        requests: files, no two with the same key.
        bar: progress bar of bytes.

    Raises:
        InputError: the first error; partial downloads of the other files are kept, to be resumed.
    """
    crew, waiting = _Crew(fetcher, bar), deque(requests)
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def serve() -> None:
        try:
            while waiting and not crew.stopped.is_set():
                _fetch(crew, waiting.popleft())
                ended.put(None)
        except IndexError:
            pass  # another thread took the last
        except BaseException as error:  # raised again in the thread of the caller
            ended.put(error)

    for _ in range(min(fetcher.parallel, len(requests))):
        threading.Thread(target=serve, daemon=True).start()
    try:
        for _ in requests:
            if error := ended.get():
                raise error
    finally:  # also after Ctrl-C
        crew.stopped.set()
        for job in list(crew.active):
            job.pause()


def _fetch(crew: _Crew, request: FileRequest) -> None:
    """Claim a file, see once more that it is not in the cache, and download it."""
    fetcher, cache = crew.fetcher, crew.fetcher.cache
    expected = fetcher.expected(request)
    key = key_of(request.url, expected)
    before, waited = cache.response(request.url), False
    while (claim := cache.claim(key)) is None:
        waited = True
        if crew.stopped.wait(_LOOK_AGAIN_S):
            raise Stopped
    with claim:
        response = cache.response(request.url)
        fresh = waited and response is not None and (before is None or response[0] != before[0])
        cached = fetcher.at_hand(request, fresh=fresh)
        if cached is None:
            job = _Download(
                crew, request, claim, response[0].version if response and not expected else None
            )
            crew.active.append(job)
            try:
                if crew.stopped.is_set():
                    raise Stopped
                cached = job.run() or fetcher.at_hand(request, fresh=True)
            finally:
                job.pause()
                crew.active.remove(job)
        assert cached is not None
        fetcher.remember(cached)


class _Download:
    """One file.

    Args:
        crew: whose requests it takes part in.
        wanted: the file.
        claim: the right to fetch it, given up by `pause`.
        unless: the version that is in the cache already.
    """

    def __init__(
        self, crew: _Crew, wanted: FileRequest, claim: Lock, unless: Version | None
    ) -> None:
        self._crew, self._fetcher, self._wanted = crew, crew.fetcher, wanted
        self._claim, self._unless, self._url = claim, unless, bare(wanted.url)
        self._expected = self._fetcher.expected(wanted)
        self._file = self._fetcher.source(wanted.url)
        algorithm = self._expected.algorithm if self._expected else "sha256"
        key = key_of(wanted.url, self._expected)
        self._draft = self._fetcher.cache.draft(key, wanted.url, algorithm)
        self._packed = file_name(wanted.url).lower().endswith(_PACKED)
        self._final_url, self._page, self._received = self._url, "", 0
        self._plain = False  # request the whole: ranges make no sense here
        self._shown = self._saved = 0
        self._lock = threading.RLock()  # of the draft, which `pause` closes from another thread

    def run(self) -> Fetched | None:
        """Download it; None if it is as it was when it was fetched last.

        Raises:
            InputError: what the server sends is not the file, or it does not send it.
            Stopped: it was paused.
        """
        draft = self._draft
        draft.resume()
        if self._expected is None and draft.have == draft.version.size:
            draft.begin(Version())  # it may be of an older version than the server's
        resumed = draft.have > 0
        self._show(draft.have)
        for _ in range(_MOST_RESTARTS + 1):
            try:
                if not self._complete():
                    draft.discard()
                    return None
                if self._right():
                    return self._kept()
                if not resumed:
                    raise self._quarantined()
                # What an earlier download left may be at fault: fetch all of it, once.
            except InputError as error:
                if error.code != "changed" and not isinstance(error, RangesRefused):
                    raise
            resumed = False
            self._begin(Version())
        raise InputError(
            "the file keeps changing on the server while it is fetched",
            code="changed",
            path=self._url,
            remedy="try again later",
        )

    def pause(self) -> None:
        """Close the draft, to be resumed if it can be; again, or once it has ended, nothing happens."""
        with self._lock:
            if not self._draft.file.closed:
                if self._resumable and self._draft.have:
                    self._draft.save()
                    self._draft.file.close()
                else:
                    self._draft.discard()
        self._claim.close()

    # -- requests ----------------------------------------------------------------------------------

    def _complete(self) -> bool:
        """Fetch what is missing; False if the file is unchanged."""
        draft, retry, farthest = self._draft, self._retry(), 0
        while draft.have != draft.version.size:
            if draft.have and not self._resumable:
                self._begin(Version())
            try:
                response = self._source(
                    None if self._plain else (draft.have, self._piece_end()),
                    same_as=draft.version if draft.have else None,
                    unless=self._unless,
                )
                with closing(response):
                    if response.kind == "unchanged":
                        return False
                    if not self._understood(response):
                        continue
                    if response.kind == "part":
                        self._append_body(response, self._piece_end())
                    else:
                        self._append_body(response, draft.version.size)
                        draft.version = replace(draft.version, size=draft.have)
            except TransientError as error:
                if draft.have > farthest:
                    farthest = draft.have
                    retry.progress()
                retry.after(error)
        return True

    def _understood(self, response: Response) -> bool:
        """Whether the response brings the next bytes, for which the draft is ready then.

        If not, something else must be requested.
        """
        draft, version = self._draft, response.version
        self._final_url = response.final_url or self._final_url
        if response.encoding and not self._plain:
            self._plain = True
            return False
        if response.kind == "whole":
            # What is said of a packed response is of the packed form.
            self._begin(Version() if response.encoding else version)
            return True
        whole = (response.start, response.end) == (0, version.size)
        stated = self._expected or version.validator or whole
        if response.kind == "outside" or version.size is None or not stated:
            if self._plain:
                raise TransientError(OTHER_RANGE)
            self._plain = not draft.have
            self._begin(Version())
            return False
        if response.start != draft.have:
            raise TransientError(OTHER_RANGE)
        if draft.have and not draft.version.agrees(version):
            raise InputError("the file changed", code="changed", path=self._url)
        if draft.have:
            draft.version = version
        else:
            self._begin(version)
        return True

    def _piece_end(self) -> int:
        """Where the request for the next bytes ends."""
        end, size = self._draft.have + self._fetcher.piece, self._draft.version.size
        return end if size is None else min(end, size)

    def _source(self, span: Span | None, **how: Any) -> Response:
        """A response whose bytes are shown."""
        response = self._file(span, decode=self._plain and not self._packed, **how)
        response.encoding = "" if self._packed else response.encoding
        response.chunks = partial(self._shown_chunks, response.chunks)
        return response

    def _retry(self) -> Retry:
        wait = self._fetcher.wait
        return Retry(self._url, sleep=self._crew.stopped.wait if wait is None else wait)

    def _shown_chunks(self, chunks: Callable[[], Iterable[Buffer]]) -> Iterator[Buffer]:
        for chunk in chunks():
            self._received += len(chunk)
            self._show(len(chunk))
            yield chunk

    def _show(self, size: int) -> None:
        with self._lock:
            self._shown += size
        self._crew.bar.advance(size)

    # -- the draft ---------------------------------------------------------------------------------

    @property
    def _resumable(self) -> bool:
        """Whether bytes that come later can be told from those of another version."""
        return self._expected is not None or self._draft.version.validator is not None

    def _begin(self, version: Version) -> None:
        """Forget what is here, and start on another version.

        Raises:
            InputError: if it has another size than it must.
            LimitError: if there is no room for it.
        """
        with self._lock:
            self._draft.begin(version)
        self._show(-self._shown)
        if version.size is not None:
            self._check_size(version.size)
            self._check_limit(version.size, "Content-Length or Content-Range")
            require_room(self._draft.path.parent, version.size, self._wanted.called)

    def _append_body(self, response: Response, end: int | None) -> None:
        for chunk in response.chunks():
            self._append(
                chunk[: None if end is None else end - self._draft.have], response.content_type
            )
            if self._draft.have == end:
                break
        if end is not None and self._draft.have < end:
            raise TransientError("the response ended early")

    def _append(self, data: Buffer, content_type: str = "") -> None:
        draft = self._draft
        if draft.have == 0:
            self._check_page(data, content_type)
        end = draft.have + len(data)
        if draft.version.size is None:  # else it was checked before anything came
            self._check_limit(end, "received")
            if end // _ROOM_EVERY > draft.have // _ROOM_EVERY:
                require_room(draft.path.parent, _ROOM_EVERY, self._wanted.called)
        with self._lock:
            draft.append(data)
            if self._resumable and abs(draft.have - self._saved) >= SAVE_EVERY:
                draft.save()
                self._saved = draft.have

    def _right(self) -> bool:
        """Whether the complete file has the checksum that it must.

        Raises:
            InputError: without a checksum: if it is a web page, or of another size.
        """
        draft, expected = self._draft, self._expected
        self._check_size(draft.have)
        self._check_page(os.pread(draft.file.fileno(), 2048, 0), "")
        return expected is None or draft.checksums()[expected.algorithm] == expected

    def _kept(self) -> Fetched:
        """Put the complete file, which is right, into the cache."""
        draft, cache = self._draft, self._fetcher.cache
        with self._lock:
            path = cache.keep(draft)
        response = CachedResponse(
            url=self._url,
            final_url=self._final_url,
            sha256=path.name,
            size=draft.have,
            etag=draft.version.etag,
            modified=draft.version.modified,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        cache.note(response)
        return Fetched.of(self._wanted, path, response, received=self._received)

    def _quarantined(self) -> InputError:
        """Put the complete file, which is wrong, aside; gives the error that says so."""
        assert self._expected is not None
        sums, request = self._draft.checksums(), self._wanted
        found = sums[self._expected.algorithm]
        why = {"url": self._url, "found": str(found), "expected": str(self._expected)}
        name = f"{sums['sha256'].hex[:16]}-{request.called.replace('/', '_')[-80:]}"
        with self._lock:
            kept = self._fetcher.cache.quarantine(self._draft, name, why)
        if self._page:
            return refusals.a_page(request, self._page)
        locked = self._url in self._fetcher.locked
        size = self._draft.have
        return refusals.another_file(request, found, size, self._expected, kept, locked=locked)

    def _check_size(self, size: int) -> None:
        if self._expected is None and self._wanted.size not in (None, size):
            raise self._refused(refusals.another_size(self._wanted, size))

    def _check_limit(self, size: int, where: str) -> None:
        """Refuse a file that is far larger than what is described."""
        limit = self._wanted.limit
        most = MOST_UNSIZED if limit is None else limit
        if size > most and (limit is not None or self._draft.version.size is None):
            raise self._refused(refusals.too_large(self._wanted, size, most, where))

    def _check_page(self, first: Buffer, content_type: str) -> None:
        """Refuse HTML where data is meant; where there is a checksum, that decides in the end."""
        if self._wanted.may_be_page or not _looks_like_html(bytes(first[:2048]), content_type):
            return
        self._page = content_type or self._page or "HTML"
        if self._expected is None:
            raise self._refused(refusals.a_page(self._wanted, self._page))

    def _refused(self, error: InputError) -> InputError:
        """The error of a file that is not the one that is meant: what came of it is forgotten."""
        with self._lock:
            self._draft.begin(Version())
        return error


def _looks_like_html(first: bytes, content_type: str) -> bool:
    """Whether a body's first bytes, and what the server calls it, are those of a web page."""
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<meta ")):
        return True
    named = content_type.partition(";")[0].strip().lower()
    return named in ("text/html", "application/xhtml+xml") and text.startswith(b"<")
