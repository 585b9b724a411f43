"""Where the files of a dataset lie: folders, object stores and web servers, all read by byte ranges.

A store gives exactly the bytes that were asked for, or says which file and range it could not read. It
counts what it asked for. It can be pickled, and opens its connections anew in each process.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import InputError, StoreError
from holdfast.objects import OBJECT_SCHEMES, Objects, OtherFiles
from holdfast.remote import Buffer, TransientError, bare

RECORDS = "records-*/*.pcr"
"""Where records lie, below the folder of their dataset."""

MAX_OPEN_FILES = 128
_MAX_PREAD = 1 << 30  # Linux reads 2 GiB less a page at most

_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store._forked()


os.register_at_fork(after_in_child=_after_fork)


class MissingFile(InputError):
    """A file that is not in the store."""

    def __init__(self, problem: str = "file not found", **details: Any) -> None:
        # A torch worker's error is built anew from its text alone: the code must not get lost there.
        super().__init__(problem, **{"code": "not-found", **details})


class CutFile(InputError):
    """A file that ends before the range that was asked for does.

    Attributes:
        data: the bytes of the range that are there.
    """

    data: Buffer = b""


def cut(path: str, start: int, end: int, data: Buffer) -> CutFile:
    """The error that `data` is all there is of a range."""
    error = CutFile(
        "the file is shorter than it should be",
        code="damaged",
        path=path,
        place=span(start, end),
        found=f"{len(data):,} bytes of the range",
        expected=f"{end - start:,} bytes",
        remedy="holdfast data records verify lists all damage; repair fixes it",
    )
    error.data = data
    return error


class Store(ABC):
    """The files below one URL. Every method may be called from many threads.

    Args:
        url: of the folder; without a scheme, a local one.
        options: for the library that opens it.
    """

    fork_safe = True
    """Whether a forked child may use it after its parent did; every store survives being pickled."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = url
        self.options = dict(options)
        self._start()

    def _start(self) -> None:
        self.requests = 0
        """Requests for bytes that this process made; repeats after a fault are not counted."""
        self.bytes_read = 0
        """Bytes that they gave."""
        self._lock = threading.Lock()
        _stores.add(self)

    def _forked(self) -> None:
        """Begin anew in a forked child: a lock may have been held by a thread that did not come along."""
        self._start()

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.url, self.options = state["url"], state["options"]
        self._start()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bare(self.url)!r})"

    def where(self, path: str) -> str:
        """How a message names a file."""
        return f"{bare(self.url)}/{path}" if path else bare(self.url)

    def read(self, path: str, start: int, end: int) -> Buffer:
        """The bytes [start, end) of a file.

        Raises:
            MissingFile: if there is no such file.
            CutFile: if it ends before `end`.
            StoreError: if the store does not give them.
        """
        if not 0 <= start <= end:
            raise ValueError(f"no range: {start} to {end}")
        if start == end:
            return b""
        data = self._read(path, start, end)
        self._count(1, len(data))
        if len(data) != end - start:
            raise cut(self.where(path), start, end, data)
        return data

    def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Several ranges of a file, asked for together; raises as `read`."""
        spans = sorted({(start, end) for start, end in ranges if end > start})
        if not spans:
            return [b"" for _ in ranges]
        requests, got = self._read_many(path, spans)
        self._count(requests, sum(map(len, got)))
        for (start, end), data in zip(spans, got, strict=True):
            if len(data) != end - start:
                raise cut(self.where(path), start, end, data)
        found = dict(zip(spans, got, strict=True))
        return [found.get((start, end), b"") for start, end in ranges]

    def tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """The last bytes of a file (all, if it is shorter) and the file's size; raises as `read`."""
        data, size = self._tail(path, length)
        self._count(1, len(data))
        if len(data) != min(length, size):
            raise cut(self.where(path), max(0, size - length), size, data)
        return data, size

    def read_all(self, path: str) -> Buffer:
        """A whole file; raises as `read`."""
        data = self._read_all(path)
        self._count(1, len(data))
        return data

    def size(self, path: str) -> int:
        """Bytes of a file.

        Raises:
            MissingFile: if there is no such file.
            StoreError: if the store does not say.
        """
        return self._size(path)

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            self.size(path)
        except MissingFile:
            return False
        return True

    def list(self, prefix: str = "") -> list[str]:
        """The paths of all files below a folder of the store, sorted.

        Raises:
            StoreError: if the store cannot list its files, as most web servers.
        """
        return sorted(self._list(prefix))

    def records(self) -> Sequence[str]:
        """The paths of the files that are named as a dataset's records, sorted; raises as `list`."""
        return [
            path for path in self.list() if PurePath(path).match(RECORDS) and path.count("/") == 1
        ]

    def forget(self, path: str) -> None:  # noqa: B027  (most hold nothing)
        """Let go of what is held of a file, so that one which took its place is seen."""

    def close(self) -> None:  # noqa: B027
        """Let go of what is held; the store may still be used."""

    @abstractmethod
    def _read(self, path: str, start: int, end: int) -> Buffer: ...

    @abstractmethod
    def _tail(self, path: str, length: int) -> tuple[Buffer, int]: ...

    @abstractmethod
    def _read_all(self, path: str) -> Buffer: ...

    @abstractmethod
    def _size(self, path: str) -> int: ...

    @abstractmethod
    def _list(self, prefix: str) -> Iterable[str]: ...

    def _read_many(
        self, path: str, ranges: Sequence[tuple[int, int]]
    ) -> tuple[int, Sequence[Buffer]]:
        """How many requests were made for the ranges (rising, none empty), and their bytes."""
        return len(ranges), [self._read(path, start, end) for start, end in ranges]

    def _count(self, requests: int, size: int) -> None:
        with self._lock:
            self.requests += requests
            self.bytes_read += size

    def _missing(self, path: str) -> MissingFile:
        return MissingFile(path=self.where(path))

    def _failed(self, path: str, found: object, remedy: str | None = None) -> StoreError:
        lines = [f"{self.where(path)}: the store does not give it", f"found: {found}"]
        if remedy:
            lines.append(f"remedy: {remedy}")
        return StoreError("\n  ".join(lines))


class LocalStore(Store):
    """Files of this machine, or of a mounted file system."""

    def _start(self) -> None:
        super()._start()
        self._root = Path(self.url)
        self._open: OrderedDict[str, int] = OrderedDict()
        self._users: dict[int, int] = {}
        # At the end of the process the system closes them: modules are torn down by then.
        weakref.finalize(self, _close_all, self._users).atexit = False  # type: ignore[attr-defined]

    def _read(self, path: str, start: int, end: int) -> Buffer:
        with self._opened(path) as handle:
            return pread(handle, start, end)

    def _tail(self, path: str, length: int) -> tuple[Buffer, int]:
        with self._opened(path) as handle:
            size = os.fstat(handle).st_size
            return pread(handle, max(0, size - length), size), size

    def _read_all(self, path: str) -> Buffer:
        with self._opened(path) as handle:
            return pread(handle, 0, os.fstat(handle).st_size)

    def _size(self, path: str) -> int:
        with self._explained(path):
            return (self._root / path).stat().st_size

    def _list(self, prefix: str) -> Iterable[str]:
        return [
            (Path(folder) / name).relative_to(self._root).as_posix()
            for folder, _, names in os.walk(self._root / prefix)
            for name in names
        ]

    def records(self) -> Sequence[str]:
        """As of any store; other folders, which may be large, are not looked into."""
        return sorted(path.relative_to(self._root).as_posix() for path in self._root.glob(RECORDS))

    def forget(self, path: str) -> None:
        """Close a file."""
        with self._lock:
            self._close(self._open.pop(path, None))

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            while self._open:
                self._close(self._open.popitem()[1])

    def _forked(self) -> None:
        _close_all(self._users)
        self._start()

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """The descriptor of a file, which stays open for the next reader."""
        with self._explained(path):
            with self._lock:
                handle = self._open.pop(path, None)
                if handle is None:
                    handle = os.open(self._root / path, os.O_RDONLY | os.O_CLOEXEC)
                    self._users[handle] = 0
                self._open[path] = handle
                self._users[handle] += 1
                while len(self._open) > MAX_OPEN_FILES:
                    self._close(self._open.popitem(last=False)[1])
            try:
                yield handle
            finally:
                with self._lock:
                    self._users[handle] -= 1
                    if self._open.get(path) != handle:
                        self._close(handle)

    def _close(self, handle: int | None) -> None:
        """Close a descriptor that is not in `_open` any more, unless one reads it still: he will."""
        if handle is not None and self._users.get(handle) == 0:
            del self._users[handle]
            os.close(handle)

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._missing(path) from error
        except OSError as error:
            raise self._failed(path, error.strerror or error) from error


def _close_all(handles: dict[int, int]) -> None:
    while handles:
        with suppress(OSError):
            os.close(handles.popitem()[0])


def pread(handle: int, start: int, end: int) -> Buffer:
    """The bytes [start, end) of an open file, or as many as it has."""
    data = os.pread(handle, min(end - start, _MAX_PREAD), start)
    if len(data) == end - start:
        return data
    parts = [data]
    while parts[-1]:
        start += len(parts[-1])
        parts.append(os.pread(handle, min(end - start, _MAX_PREAD), start))
    return b"".join(parts)


class RemoteStore(Store):
    """Object stores, web servers and the other file systems of fsspec."""

    def _start(self) -> None:
        super()._start()
        web = self.url.partition("://")[0] in (*OBJECT_SCHEMES, "http", "https")
        self.fork_safe = not web
        self._files = Objects(self.url, self.options) if web else OtherFiles(self.url, self.options)

    def _read(self, path: str, start: int, end: int) -> Buffer:
        with self._explained(path, start, end):
            return self._files.read(path, (start, end))[0]

    def _read_many(
        self, path: str, ranges: Sequence[tuple[int, int]]
    ) -> tuple[int, Sequence[Buffer]]:
        if isinstance(self._files, OtherFiles):
            return super()._read_many(path, ranges)
        # Ranges that touch become one request.
        apart = sum(start > end for (start, _), (_, end) in zip(ranges[1:], ranges, strict=False))
        try:
            with self._explained(path, ranges[0][0], ranges[-1][1]):
                return 1 + apart, self._files.ranges(path, ranges)
        except TransientError:
            return 1 + apart, super()._read_many(path, ranges)[1]

    def _tail(self, path: str, length: int) -> tuple[Buffer, int]:
        with self._explained(path):
            return self._files.read(path, (-length, 0))

    def _read_all(self, path: str) -> Buffer:
        with self._explained(path):
            return self._files.read(path)[0]

    def _size(self, path: str) -> int:
        with self._explained(path):
            return self._files.size(path)

    def _list(self, prefix: str) -> Iterable[str]:
        with self._explained(prefix):
            return self._files.list(prefix)

    def close(self) -> None:
        """Close the connections; it may still be used."""
        self._files.close()

    @contextmanager
    def _explained(self, path: str, start: int = 0, end: int = 0) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            if error.code == "not-found":
                raise self._missing(path) from error
            if error.code != "network":
                raise
            path = f"{path}, {span(start, end)}" if end else path
            raise self._failed(path, error.found or error.problem, error.remedy) from error


def open_store(url: str | os.PathLike[str], **options: Any) -> Store:
    """The store that a URL names; nothing is read yet.

    Args:
        url: of a folder: a local path, `file://`, an object store's or web server's URL, or one of fsspec.
        options: for obstore (`region=`, `client_options=`, `retry_config=` ...) or fsspec's file system.

    Raises:
        InputError: if the URL cannot be one of a folder.
    """
    text = os.fspath(url)
    scheme, separator, _ = text.partition("://")
    if options and scheme in (text, "file"):
        raise InputError(
            "a local folder takes no options",
            code="unsupported",
            path=text,
            found=", ".join(sorted(options)),
            remedy="look for a slip in the name of an argument",
        )
    if not separator:
        return LocalStore(str(Path(text).expanduser().absolute()), options)
    if scheme == "file":
        return LocalStore(str(Path(unquote(urlsplit(text).path))), options)
    text = text.rstrip("/") if not text.endswith("://") else text
    if scheme not in (*OBJECT_SCHEMES, "http", "https"):
        return RemoteStore(text, options)
    parts = urlsplit(text)
    if parts.query or parts.fragment or not parts.netloc:
        raise InputError(
            "invalid URL of a folder",
            code="invalid-value",
            path=bare(text),
            expected="scheme://host/folder without ? and #",
            remedy="pass credentials as options or in the environment, not in the URL",
        )
    return RemoteStore(text, options)


def local_folder(out: str | os.PathLike[str]) -> Path:
    """A folder that shall be written.

    Raises:
        InputError: if it is not on this machine.
    """
    text = os.fspath(out)
    if "://" in text:
        raise InputError(
            "output must be a local directory",
            code="unsupported",
            found=bare(text),
            expected="a folder",
            remedy="write it to a folder, then copy that; of a dataset, the manifest last",
        )
    return Path(text)


def span(start: int, end: int | None) -> str:
    """How a message names a range."""
    return f"bytes {start:,} to {end:,}" if end is not None else f"from byte {start:,}"
