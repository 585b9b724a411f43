"""Files of the network brought into the cache: in parallel, resumable, proved while they arrive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from holdfast import progress
from holdfast.data.croissant.fetching.access import Access, is_remote, is_web
from holdfast.data.croissant.fetching.cache import Cache
from holdfast.data.croissant.fetching.downloads import PIECE, download
from holdfast.data.croissant.fetching.file_requests import Fetched, FileRequest, key_of
from holdfast.data.croissant.files.hashing import Checksum
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.objects import OBJECT_SCHEMES, Objects, OtherFiles
from holdfast.remote import Source, Web, bare, private_address

_OTHER_SCHEMES = ("ftp", "ftps", "sftp", "ssh", "hf", "hdfs", "webhdfs", "smb", "oss", "memory")
"""Further schemes that may be fetched; some of fsspec's (``local``, ``git``) read files of this machine."""


class Fetcher:
    """Brings files into the cache and knows which are there; may be used by several threads.

    Args:
        access: the cache, and how the network may be used.
        parallel: files that are fetched at a time.
        locked: URL -> the SHA-256 (hex) that it must have, as a lock file says; it goes before what a
            description says.
        piece: bytes of a request.
        wait: waits some seconds between requests; None for a wait that ends with the download.
    """

    def __init__(
        self,
        access: Access | None = None,
        *,
        parallel: int = 8,
        locked: Mapping[str, str] | None = None,
        piece: int = PIECE,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.access = access or Access()
        self.cache = Cache(self.access.cache)
        self.offline = self.access.offline
        self.parallel = parallel
        self.locked = dict(locked or {})
        self.piece = piece
        self.wait = wait
        self.web = Web(
            self.access.timeout,
            public_only=self.access.public_only,
            elsewhere="open the URL in a browser; give a copy that you have by --map ID=PATH",
        )
        self.history: list[Fetched] = []
        """Every file that was given, in the order in which each was first asked for."""
        self._seen: dict[tuple[str, Checksum | None], Fetched] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; it may still be used."""
        self.web.close()

    def fetch(self, requests: Iterable[FileRequest]) -> list[Path]:
        """Local files with the bytes of each, in order; raises as `fetch_all`."""
        return [file.path for file in self.fetch_all(requests)]

    def fetch_all(self, requests: Iterable[FileRequest]) -> list[Fetched]:
        """Bring files into the cache, those that are not there.

        A file with a checksum that is in the cache costs nothing. One without is asked for again, once in
        the life of this object, and sent only if it changed. Files are read-only, and have no suffix.

        Raises:
            InputError: a file is missing, refused, not what it should be, or not in the cache of one who is
                offline. What arrived of others is kept, to be gone on with.
            HoldfastError: the cache cannot be written.
        """
        files = list(requests)
        keys = [(want.url, self.expected(want)) for want in files]
        rest: dict[str, FileRequest] = {}
        for want, key in zip(files, keys, strict=True):
            if key in self._seen:
                continue
            if held := self.at_hand(want):
                self.remember(held)
            elif self.offline:
                raise _not_here(want, self.cache)
            else:
                rest.setdefault(key_of(*key), want)
        if rest:
            total = sum(want.size or want.about or 0 for want in rest.values())
            with progress.track(f"fetching {counted(len(rest), 'file')}", total) as bar:
                download(self, list(rest.values()), bar)
        for want, key in zip(files, keys, strict=True):
            if key not in self._seen and (held := self.at_hand(want)):
                self.remember(held)  # another URL of a file that was fetched
        return [
            replace(self._seen[key], request=want) for want, key in zip(files, keys, strict=True)
        ]

    def cached_path(self, request: FileRequest) -> Path | None:
        """The file, if it is in the cache; no request is made.

        Of a file without a checksum it is what the URL gave last.
        """
        expected = self.expected(request)
        if expected:
            return self.cache.find(expected)
        response = self.cache.response(request.url)
        return response[1] if response else None

    def expected(self, request: FileRequest) -> Checksum | None:
        """What a file's bytes must add up to, by the lock or else by its description.

        Raises:
            InputError: if these contradict each other.
        """
        stated, locked = request.checksum, self.locked.get(bare(request.url))
        if locked is None:
            return stated
        if stated and stated.algorithm == "sha256" and stated.hex != locked:
            raise InputError(
                "the checksum in the description differs from the lock file",
                code="conflict",
                path=bare(request.url),
                found=str(stated),
                expected=f"sha256 {locked}",
                remedy="if the change is intended, accept it with --update-lock",
            )
        return Checksum("sha256", locked)

    def source(self, url: str) -> Source:
        """What gives the parts of the file at a URL."""
        if not is_remote(url):
            raise InputError("not a URL", code="invalid-value", found=url)
        if is_web(url):
            return partial(self.web.open, url)
        scheme = url.partition("://")[0].lower()
        if self.access.public_only:  # these libraries connect by themselves: nobody sees where to
            raise private_address(url, f"{scheme}://")
        if scheme in OBJECT_SCHEMES:
            folder, _, name = url.rpartition("/")
            return partial(Objects(folder).open, unquote(name))
        if scheme not in _OTHER_SCHEMES:
            raise InputError(
                f"unsupported URL scheme {scheme}://",
                code="unsupported",
                path=bare(url),
                expected=f"http, https, {', '.join((*OBJECT_SCHEMES, *_OTHER_SCHEMES))}",
            )
        return partial(OtherFiles(url).open, "")

    def remember(self, file: Fetched) -> None:
        """Note a file that was got."""
        key = (file.request.url, self.expected(file.request))
        with self._lock:
            if key not in self._seen:
                self.history.append(file)
            self._seen[key] = file

    def at_hand(self, request: FileRequest, *, fresh: bool = False) -> Fetched | None:
        """The file out of the cache, where no request is needed to know that it is the right one.

        Args:
            request: the file.
            fresh: what the URL gave last is known to be what it would give now.
        """
        expected = self.expected(request)
        entry = self.cache.response(request.url)
        if expected:
            path = self.cache.find(expected)
        else:
            path = entry[1] if entry and (fresh or self.offline) else None
        if path is None:
            return None
        response = entry[0] if entry and entry[1] == path else None
        return Fetched.of(request, path, response, cached=True)


def _not_here(request: FileRequest, cache: Cache) -> InputError:
    return InputError(
        "file not in the cache, and offline",
        code="offline",
        path=bare(request.url),
        place=f"file {request.resource or request.called!r}",
        expected=f"a copy in {cache.folder}",
        remedy="download it while online, or give a copy by --map ID=PATH",
    )
