"""Files of object stores (by obstore) and of other file systems (by fsspec), read by ranges."""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError, InputError
from holdfast.remote import (
    CHUNK,
    Buffer,
    Response,
    Retry,
    Span,
    TransientError,
    Version,
    bare,
    read_span,
    within,
)

OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
"""Read by obstore; those of other file systems by fsspec."""

# A request may take long for its size; one that stalls may not. A host that does not answer is given up
# after some seconds; with all repeats, below a minute.
_TIMES = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "30m"}
_RETRIES = {"max_retries": 6}  # after pauses of 0.1 s x 2^n
_obstore_pid: int | None = None  # the process in which obstore's threads run


class Objects:
    """The files below a URL of S3, Google Cloud Storage, Azure or a web server, by obstore.

    Credentials come from the environment or from the options, as obstore says; it repeats requests that
    fail before there is a response. A child that was forked after a request cannot use it.

    Args:
        url: of a bucket, or of a folder in it.
        options: of obstore (`region`, `client_options`, `retry_config` ...).
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._url, self._options = url, dict(options or {})
        self._lock = threading.Lock()
        self._client: Any = None

    def open(
        self, path: str, span: Span | None = None, *, unless: Version | None = None, **_: object
    ) -> Response:
        """Request bytes of a file, as `holdfast.remote.Source`."""
        options: dict[str, Any] = {}
        if span:
            options["range"] = {"suffix": -span[0]} if span[0] < 0 else span
        with self._explained(path) as (obstore, client):
            if unless and unless.etag and unless.etag == obstore.head(client, path)["e_tag"]:
                return Response("unchanged", unless)
            try:
                result = obstore.get(client, path, options=options)
            except obstore.exceptions.BaseError as error:
                if "416 Range Not Satisfiable" in str(error):
                    version = _version(obstore.head(client, path))
                    return Response("outside" if version.size else "whole", version)
                if "got " in str(error):  # another range than was requested
                    raise TransientError(_first_lines(error)) from error
                raise
        version, (start, end) = _version(result.meta), result.range
        return _part(version, start, end, lambda: self._chunks(result))

    def _chunks(self, result: Any) -> Iterator[Buffer]:
        from obstore.exceptions import BaseError

        try:
            # As small as they arrive: what obstore still collects is lost when the body is cut.
            yield from result.stream(min_chunk_size=1)
        except (BaseError, OSError) as error:
            raise TransientError(_first_lines(error)) from error

    def read(self, path: str, span: Span | None = None) -> tuple[Buffer, int]:
        """The bytes of a span, fewer where the file ends, and the file's size; raises as `read_span`."""
        source = partial(self.open, path)
        data, response = read_span(source, span, Retry(f"{self._url}/{path}", first_s=0.1))
        return data, response.version.size or 0

    def ranges(self, path: str, spans: Sequence[Span]) -> list[Buffer]:
        """Several ranges of a file at once, shorter where it ends; rising, and none empty.

        Raises:
            TransientError: if a body is cut.
            InputError: as `open`.
        """
        starts, ends = zip(*spans, strict=True)
        with self._explained(path) as (obstore, client):
            try:
                found = obstore.get_ranges(client, path, starts=starts, ends=ends, coalesce=0)
            except obstore.exceptions.GenericError as error:
                if "body error" in str(error) or "416 Range" in str(error):
                    raise TransientError(_first_lines(error)) from error
                raise
        return [memoryview(data) for data in found]

    def size(self, path: str) -> int:
        """Bytes of a file; raises as `open`."""
        with self._explained(path) as (obstore, client):
            return int(obstore.head(client, path)["size"])

    def list(self, prefix: str) -> Iterable[str]:
        """The paths of all files below a folder; raises as `open`."""
        with self._explained(prefix) as (obstore, client):
            pages = obstore.list(client, prefix=prefix or None)
            return [entry["path"] for page in pages for entry in page]

    def close(self) -> None:
        """Close the connections; it may still be used."""
        self._client = None

    def _opened(self) -> Any:
        """The client of this process: a request of a child would wait for threads that it does not have."""
        global _obstore_pid
        if _obstore_pid not in (None, os.getpid()):
            raise InputError(
                "a forked process cannot read from an object store that was read before the fork",
                code="network",
                path=bare(self._url),
                remedy="start workers by spawn or forkserver, for example with "
                "DataLoader(..., multiprocessing_context='forkserver')",
            )
        _obstore_pid = os.getpid()
        with self._lock:
            if self._client is None:
                self._client = _client(self._url, self._options)
            return self._client

    @contextmanager
    def _explained(self, path: str) -> Iterator[tuple[Any, Any]]:
        """Obstore and its client, whose errors become ours."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            yield obstore, self._opened()
        except (BaseError, OSError, TypeError, ValueError) as error:
            found = _first_lines(error).replace(self._url, bare(self._url))
            raise _failure(self._url, path, error, found, _remedy(found.lower())) from error


def _failure(
    url: str, path: str, error: Exception, found: str, remedy: str | None = None
) -> InputError:
    where = f"{bare(url)}/{path}".rstrip("/")
    if isinstance(error, FileNotFoundError):
        return InputError("file not found", code="not-found", path=where)
    problem = "the store does not return this file"
    return InputError(problem, code="network", path=where, found=found, remedy=remedy)


def _part(
    version: Version, start: int, end: int, chunks: Callable[[], Iterable[Buffer]]
) -> Response:
    if (start, end) == (0, version.size):
        return Response("whole", version, chunks=chunks)
    return Response("part", version, start, end, chunks=chunks)


def _version(meta: Any) -> Version:
    etag = meta["e_tag"]
    return Version(meta["size"], etag, None if etag else str(meta["last_modified"]))


def _first_lines(error: Exception) -> str:
    return str(error).partition("\n\nDebug source:")[0]


def _client(url: str, options: Mapping[str, Any]) -> Any:
    from obstore.store import HTTPStore, from_url

    options = dict(options)
    web = urlsplit(url).scheme in ("http", "https")
    named = ("endpoint", "aws_endpoint", "endpoint_url", "aws_endpoint_url", "azure_endpoint")
    given = [str(options[name]) for name in named if options.get(name)]
    given += [os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")]
    endpoint = urlsplit(url if web else next(filter(None, given), ""))
    client: dict[str, Any] = dict(_TIMES)
    if endpoint.scheme == "http" and (web or is_loopback(endpoint.hostname)):
        client["allow_http"] = True
    if is_loopback(endpoint.hostname) and "proxy_url" not in options.get("client_options", {}):
        # A proxy of the environment cannot reach this machine's servers. Only a proxy that is set can have
        # exceptions; this one has no other use.
        client |= {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": endpoint.hostname}
    options["client_options"] = client | dict(options.get("client_options", {}))
    options["retry_config"] = _RETRIES | dict(options.get("retry_config", {}))
    return HTTPStore(url, **options) if web else from_url(url, **options)


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _remedy(problem: str) -> str | None:
    """What a user can do about an error of obstore."""
    if "range request not supported" in problem or "non-partial response" in problem:
        return (
            "the server ignores the Range header and would send whole files for every read: use a server "
            "that answers 206 (nginx, an object store), or copy the files to a disk"
        )
    if "propfind" in problem:
        return "a web server does not list its files: name a dataset that has its manifest.parquet"
    if any(part in problem for part in ("169.254.", "latest/api/token", "metadata.google.")):
        # Without credentials, the library asks the machine's cloud for some.
        return (
            "no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the store's own "
            "variables), or aws_skip_signature=True for a public bucket"
        )
    if any(part in problem for part in ("privileges", "credential", "unauthenticated")):
        return "set the store's credentials in the environment, or pass them as options"
    return None


class OtherFiles:
    """The files below a URL of any other scheme that fsspec knows, such as ``hf``, ``sftp``, ``hdfs``.

    Args:
        url: of a folder or file.
        options: of fsspec's file system.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._url, self._options = url, options or {}
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._files: Any = None
        self._root = ""

    def open(
        self, path: str, span: Span | None = None, *, unless: Version | None = None, **_: object
    ) -> Response:
        """Request bytes of a file, as `holdfast.remote.Source`."""
        with self._explained(path) as (files, full):
            info = files.info(full)
        tags = (info.get(key) for key in ("ETag", "etag", "mtime", "created"))
        version = Version(int(info["size"]), next((str(tag) for tag in tags if tag), None))
        if unless and unless.etag and unless.etag == version.etag:
            return Response("unchanged", version)
        assert version.size is not None
        start, end = within(span, version.size)
        if start >= end > 0:
            return Response("outside", version)

        def chunks() -> Iterator[Buffer]:
            for begin in range(start, end, 16 * CHUNK):
                yield self._piece(path, begin, min(begin + 16 * CHUNK, end))

        return _part(version, start, end, chunks)

    def read(self, path: str, span: Span | None = None) -> tuple[Buffer, int]:
        """The bytes of a span, fewer where the file ends, and the file's size; raises as `open`."""
        if span is None or span[0] < 0:
            span = within(span, self.size(path))
        start, end = span
        retry = Retry(f"{self._url}/{path}", first_s=0.1)
        while True:
            try:
                return self._piece(path, start, end), end
            except TransientError as error:
                retry.after(error)

    def _piece(self, path: str, start: int, end: int) -> Buffer:
        with self._explained(path) as (files, full):
            try:
                return bytes(files.cat_file(full, start=start, end=end))
            except (FileNotFoundError, PermissionError, ValueError, NotImplementedError):
                raise
            except Exception as error:
                # Each file system has its own errors for a lost connection: retry all of them.
                raise TransientError(f"{type(error).__name__}: {error}") from error

    def size(self, path: str) -> int:
        """Bytes of a file; raises as `open`."""
        with self._explained(path) as (files, full):
            return int(files.size(full))

    def list(self, prefix: str) -> Iterable[str]:
        """The paths of all files below a folder; raises as `open`."""
        with self._explained(prefix) as (files, full):
            start = len(self._root.rstrip("/")) + 1
            return [name[start:] for name in files.find(full)]

    def close(self) -> None:
        """Nothing is held open."""

    @contextmanager
    def _explained(self, path: str) -> Iterator[tuple[Any, str]]:
        try:
            with self._lock:
                if self._pid != os.getpid():
                    self._files, self._root = self._opened()
                    self._pid = os.getpid()
            yield self._files, f"{self._root.rstrip('/')}/{path}" if path else self._root
        except (HoldfastError, TransientError, ModuleNotFoundError):
            raise
        except Exception as error:  # each file system has its own errors
            found = f"{type(error).__name__}: {error}"
            raise _failure(self._url, path, error, found) from error

    def _opened(self) -> Any:
        from fsspec.core import url_to_fs

        try:
            return url_to_fs(self._url, **self._options)
        except (ImportError, ValueError) as error:
            lacking = isinstance(error, ImportError)
            raise InputError(
                "this scheme needs a library that is not installed"
                if lacking
                else "unknown scheme",
                code="missing-extra" if lacking else "unsupported",
                path=bare(self._url),
                found=str(error),
                expected=f"http, https, {', '.join(OBJECT_SCHEMES)}, or a scheme of fsspec",
                remedy="pip install the library that the message names" if lacking else None,
            ) from error
