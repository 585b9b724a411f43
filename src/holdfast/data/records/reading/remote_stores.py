"""Stores that are not this machine's folders: obstore's and fsspec's, with errors that say what to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import ip_address
from time import sleep
from typing import Any
from urllib.parse import urlsplit

from holdfast.data.records.reading.stores import OBJECT_SCHEMES, Buffer, Store, cut, redacted, span
from holdfast.errors import HoldfastError, InputError, StoreError

# A request may take long for its size; one that stalls may not. A host that does not answer is given up
# after some seconds; with all repeats, below a minute.
_TIMES = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "30m"}
_RETRIES = {
    "max_retries": 6,
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
    "retry_timeout": timedelta(minutes=3),
}

_PAUSES_S = (0.1, 0.5, 2.0, 5.0)
"""Before the tries to read on after a body was cut; counted anew when more bytes came."""

_client_pid: int | None = None
"""The process in which obstore's threads run."""


class ObjectStore(Store):
    """S3, Google Cloud Storage, Azure and web servers, by obstore.

    Credentials come from the environment or from the options, as obstore says. Obstore repeats requests
    that fail, and resumes a body that was cut where the server sends an ETag; `_body` does so for others.
    """

    fork_safe = False

    def _start(self) -> None:
        super()._start()
        self._client: Any = None

    def _read(self, path: str, start: int, end: int) -> Buffer:
        return self._body(path, (start, end))[0]

    def _body(
        self, path: str, wanted: tuple[int, int] | dict[str, int] | None = None
    ) -> tuple[Buffer, int]:
        """A range (all, if None) of a file, and the file's size.

        A connection that ends within the body is opened again for what is still missing. If the file then
        has another size, ETag or date, all of the range is read anew, for the parts would not fit together;
        where a server sends none of these, the checksums of what is read tell.
        """
        asked, parts, version = wanted, [], None
        have = farthest = failures = 0
        while True:
            answer = None
            with self._explained(path, wanted) as (obstore, client):
                try:
                    answer = obstore.get(client, path, options={"range": asked} if asked else {})
                    told = [answer.meta[name] for name in ("size", "e_tag", "last_modified")]
                    if version in (None, told):
                        version, (start, end) = told, answer.range
                        start -= have
                        # Parts as small as they come: those that obstore still collects are lost in a cut.
                        for part in answer.stream(min_chunk_size=1):
                            parts.append(part)
                            have += len(part)
                        data = parts[0] if len(parts) == 1 else b"".join(parts)
                        return memoryview(data), answer.meta["size"]
                    asked, parts, version, have = wanted, [], None, 0
                    problem = "it changes while it is read"
                except obstore.exceptions.BaseError as error:
                    # Before an answer, obstore has repeated what it is of use to repeat.
                    if answer is None and "got " not in str(error):
                        raise
                    if have:
                        asked = (start + have, end)
                    if have > farthest:  # a file that changes again and again comes no farther
                        farthest, failures = have, 0
                    if failures == len(_PAUSES_S):
                        raise
                    problem = ""
            if failures == len(_PAUSES_S):
                raise self._failed(path, problem)
            sleep(_PAUSES_S[failures])
            failures += 1

    def _read_many(
        self, path: str, ranges: Sequence[tuple[int, int]]
    ) -> tuple[int, Sequence[Buffer]]:
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with self._explained(path, (starts[0], ends[-1])) as (obstore, client):
            try:
                got = obstore.get_ranges(client, path, starts=starts, ends=ends, coalesce=0)
            except obstore.exceptions.GenericError as error:
                if "body error" not in str(error):
                    raise
                got = [self._read(path, *span) for span in ranges]
        # Ranges that touch become one request even so.
        apart = sum(start > end for start, end in zip(starts[1:], ends, strict=False))
        return 1 + apart, [memoryview(data) for data in got]

    def _tail(self, path: str, length: int) -> tuple[Buffer, int]:
        return self._body(path, {"suffix": length})

    def _read_all(self, path: str) -> Buffer:
        return self._body(path)[0]

    def _size(self, path: str) -> int:
        with self._explained(path) as (obstore, client):
            return int(obstore.head(client, path)["size"])

    def _list(self, prefix: str) -> Iterable[str]:
        with self._explained(prefix) as (obstore, client):
            pages = obstore.list(client, prefix=prefix or None)
            return [entry["path"] for page in pages for entry in page]

    def close(self) -> None:
        """Let go of the connections."""
        self._client = None

    def _opened(self) -> Any:
        """The client of this process.

        Its threads do not come along when a process is forked: a request of the child would never end.
        """
        global _client_pid
        if _client_pid not in (None, os.getpid()):
            raise StoreError(
                f"{redacted(self.url)}: a forked process cannot read from an object store that was read "
                "before the fork\n"
                "  remedy: start workers by spawn or forkserver, for example with "
                "DataLoader(..., multiprocessing_context='forkserver')"
            )
        _client_pid = os.getpid()
        with self._lock:
            if self._client is None:
                self._client = _client(self.url, self.options)
            return self._client

    @contextmanager
    def _explained(
        self, path: str, wanted: tuple[int, int] | dict[str, int] | None = None
    ) -> Iterator[tuple[Any, Any]]:
        """Obstore and its client, whose errors become ours."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            yield obstore, self._opened()
        except FileNotFoundError as error:
            raise self._missing(path) from error
        except (BaseError, OSError, TypeError, ValueError) as error:
            problem = str(error).partition("\n\nDebug source:")[0]
            problem = problem.replace(self.url, redacted(self.url))
            if isinstance(wanted, tuple):
                if "416 Range Not Satisfiable" in problem:
                    raise cut(self.where(path), *wanted, b"") from error
                path = f"{path}, {span(*wanted)}"
            raise self._failed(path, problem, _remedy(problem)) from error


def _client(url: str, options: Mapping[str, Any]) -> Any:
    from obstore.store import HTTPStore, from_url

    parts = urlsplit(url)
    options = dict(options)
    web = parts.scheme in ("http", "https")
    endpoint = urlsplit(url if web else _endpoint(options))
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


def _endpoint(options: Mapping[str, Any]) -> str:
    for name in ("endpoint", "aws_endpoint", "endpoint_url", "aws_endpoint_url", "azure_endpoint"):
        if options.get(name):
            return str(options[name])
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _remedy(problem: str) -> str | None:
    """What a user can do about an error of obstore."""
    lowered = problem.lower()
    if "range request not supported" in lowered or "non-partial response" in lowered:
        return (
            "the server ignores the Range header and would send whole files for every read: use a server "
            "that answers 206 (nginx, an object store), or copy the dataset to a disk"
        )
    if "propfind" in lowered:
        return "a web server does not list its files: name a dataset that has its manifest.parquet"
    if any(part in lowered for part in ("169.254.", "latest/api/token", "metadata.google.")):
        # Without credentials, the library asks the machine's cloud for some.
        return (
            "no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the store's own "
            "variables), or aws_skip_signature=True for a public bucket"
        )
    if "privileges" in lowered or "credential" in lowered or "unauthenticated" in lowered:
        return "set the store's credentials in the environment, or pass them as options"
    return None


class FsspecStore(Store):
    """Any other scheme that fsspec knows: `memory://`, `hf://`, `sftp://`, `hdfs://` and so on."""

    def _start(self) -> None:
        super()._start()
        self._opened_in: int | None = None
        self._files: Any = None
        self._root = ""

    def _read(self, path: str, start: int, end: int) -> Buffer:
        with self._explained(path) as (files, full):
            for pause in _PAUSES_S:
                try:
                    return files.cat_file(full, start=start, end=end)  # type: ignore[no-any-return]
                except (FileNotFoundError, PermissionError, ValueError, NotImplementedError):
                    raise
                except Exception:  # each file system has errors of its own for a lost connection
                    sleep(pause)
            return files.cat_file(full, start=start, end=end)  # type: ignore[no-any-return]

    def _tail(self, path: str, length: int) -> tuple[Buffer, int]:
        size = self._size(path)
        return self._read(path, max(0, size - length), size), size

    def _read_all(self, path: str) -> Buffer:
        return self._read(path, 0, self._size(path))

    def _size(self, path: str) -> int:
        with self._explained(path) as (files, full):
            return int(files.size(full))

    def _list(self, prefix: str) -> Iterable[str]:
        with self._explained(prefix) as (files, full):
            start = len(self._root.rstrip("/")) + 1
            return [name[start:] for name in files.find(full)]

    def _opened(self) -> Any:
        with self._lock:
            if self._opened_in != os.getpid():
                self._files, self._root = _filesystem(self.url, self.options)
                self._opened_in = os.getpid()
            return self._files

    @contextmanager
    def _explained(self, path: str) -> Iterator[tuple[Any, str]]:
        try:
            files = self._opened()
            yield files, f"{self._root.rstrip('/')}/{path}" if path else self._root
        except HoldfastError:
            raise
        except FileNotFoundError as error:
            raise self._missing(path) from error
        except Exception as error:  # each file system has errors of its own
            raise self._failed(path, f"{type(error).__name__}: {error}") from error


def _filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        files, root = url_to_fs(url, **options)
    except ImportError as error:
        raise InputError(
            "this scheme needs a library that is not installed",
            code="missing-extra",
            path=redacted(url),
            found=str(error),
            remedy="pip install the library that the message names",
        ) from error
    except ValueError as error:
        raise InputError(
            "unknown scheme",
            code="unsupported",
            path=redacted(url),
            found=str(error),
            expected=f"a local path, or {', '.join(OBJECT_SCHEMES)}, or a scheme of fsspec",
        ) from error
    return files, root


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine."""
    if host is None or host == "localhost":
        return host is not None
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
