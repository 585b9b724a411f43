"""Files in object stores (obstore) and wherever else a URL can name one (fsspec)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.data.croissant.fetching.answers import CHUNK, Answer, BodyStream, PassingFault, Span
from holdfast.data.croissant.fetching.parts import Version
from holdfast.data.croissant.fetching.urls import bare
from holdfast.errors import InputError

OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
_CREDENTIALS = "set the store's credentials in the environment, as obstore's documentation says"


class ObjectSource:
    """One object of S3, Google Cloud Storage or Azure; obstore repeats what the network lets fail."""

    def __init__(self, url: str) -> None:
        folder, _, self._name = url.rpartition("/")
        self._name = unquote(self._name)
        self._folder, self._url = folder, url
        self._lock = threading.Lock()
        self._client: Any = None

    def ask(
        self,
        span: Span | None,
        *,
        same_as: Version | None = None,
        unless: Version | None = None,
        decode: bool = False,
    ) -> Answer:
        """See `Source`."""
        import obstore
        from obstore.exceptions import BaseError, PreconditionError

        try:
            client = self._opened()
            said = obstore.head(client, self._name)
            version = Version(int(said["size"]), said["e_tag"], said["last_modified"].isoformat())
            if unless and unless.etag and unless.etag == version.etag:
                return Answer("unchanged", version)
            assert version.size is not None
            start, end = within(span, version.size)
            if same_as and not same_as.agrees(version):
                start, end = 0, version.size
            if start >= end:
                return Answer(
                    "whole" if version.size == 0 else "no range", version, body=_Nothing()
                )
            options: obstore.GetOptions = {"range": (start, end)}
            if version.etag:
                options["if_match"] = version.etag
            got = obstore.get(client, self._name, options=options)
        except FileNotFoundError as error:
            raise InputError("object not found", code="not-found", path=self._url) from error
        except PreconditionError as error:
            raise PassingFault("the object was replaced") from error
        except (BaseError, OSError, ValueError) as error:
            found = str(error).partition("\n\nDebug source:")[0]
            raise InputError(
                "the store does not return this object",
                code="network",
                path=self._url,
                found=found,
                remedy=_CREDENTIALS,
            ) from error
        return _sent(version, start, end, self._url, _Stream(got))

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                from obstore.store import from_url

                self._client = from_url(self._folder)
            return self._client


def within(span: Span | None, size: int) -> Span:
    """What a span means in a file of this size."""
    if span is None:
        return 0, size
    start, end = span
    return (max(0, size + start), size) if start < 0 else (start, min(end, size))


def _sent(version: Version, start: int, end: int, url: str, body: BodyStream) -> Answer:
    whole = (start, end) == (0, version.size)
    return Answer("whole" if whole else "part", version, start, end, final_url=bare(url), body=body)


class _Stream:
    def __init__(self, got: Any) -> None:
        self._got = got

    def chunks(self) -> Iterator[bytes]:
        from obstore.exceptions import BaseError

        try:
            for chunk in self._got.stream(min_chunk_size=CHUNK):
                yield bytes(chunk)
        except (BaseError, OSError) as error:
            raise PassingFault(f"the response broke off ({type(error).__name__})") from error

    def close(self) -> None:
        self._got = None

    abort = close


class _Nothing:
    def chunks(self) -> Iterator[bytes]:
        return iter(())

    def close(self) -> None:
        pass

    abort = close


_NETWORK = ("ftp", "ftps", "sftp", "ssh", "hf", "hdfs", "webhdfs", "smb", "oss", "memory")
"""Other schemes that may be fetched; some of fsspec's (``local``, ``git``) read files of this machine."""


class FsspecSource:
    """One file of any other scheme that fsspec knows, in ranges where its file system has them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._opened: tuple[Any, str] | None = None

    def ask(
        self,
        span: Span | None,
        *,
        same_as: Version | None = None,
        unless: Version | None = None,
        decode: bool = False,
    ) -> Answer:
        """See `Source`."""
        try:
            files, path = self._files()
            said = files.info(path)
        except FileNotFoundError as error:
            raise InputError("file not found", code="not-found", path=bare(self._url)) from error
        except InputError:
            raise
        except Exception as error:  # each file system has errors of its own
            raise InputError(
                "the file cannot be fetched",
                code="network",
                path=bare(self._url),
                found=f"{type(error).__name__}: {error}",
            ) from error
        tag = next(
            (str(said[key]) for key in ("ETag", "etag", "mtime", "created") if said.get(key)), None
        )
        size = int(said["size"])
        version = Version(size, tag)
        if unless and tag and unless.etag == tag:
            return Answer("unchanged", version)
        start, end = within(span, size)
        if same_as and not same_as.agrees(version):
            start, end = 0, size
        body = _Pieces(files, path, start, end)
        return _sent(version, start, end, self._url, body)

    def _files(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        with self._lock:
            if self._opened is None:
                scheme = urlsplit(self._url).scheme.lower()
                try:
                    self._opened = url_to_fs(self._url if scheme in _NETWORK else "refused://")
                except (ImportError, ValueError) as error:
                    raise InputError(
                        f"unsupported URL scheme {urlsplit(self._url).scheme}://",
                        code="unsupported",
                        path=bare(self._url),
                        found=str(error),
                        expected=f"http, https, {', '.join(OBJECT_SCHEMES)}, {', '.join(_NETWORK)}",
                    ) from error
            return self._opened


class _Pieces:
    def __init__(self, files: Any, path: str, start: int, end: int) -> None:
        self._files, self._path, self._start, self._end = files, path, start, end

    def chunks(self) -> Iterator[bytes]:
        for start in range(self._start, self._end, CHUNK * 16):
            end = min(start + CHUNK * 16, self._end)
            try:
                data = bytes(self._files.cat_file(self._path, start=start, end=end))
            except Exception as error:
                raise PassingFault(f"reading failed ({type(error).__name__})") from error
            if len(data) != end - start:
                raise PassingFault("the file became shorter")
            yield data

    def close(self) -> None:
        self._end = self._start

    abort = close
