"""Regions of records kept on a local disk, so that another epoch need not fetch them."""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import xxhash

from holdfast.data.records.format.layout import Index
from holdfast.data.records.reading.prefixes import holds
from holdfast.data.records.reading.stores import pread
from holdfast.errors import StoreError
from holdfast.files import Lock
from holdfast.remote import Buffer

_LOCK = ".usage"
_DRAFT = ".part"
_STALE_S = 3600.0
_LOW_WATER = 0.9


class Cache:
    """Chunks of records in files of a folder; many processes and datasets may share it.

    A chunk is the regions [a, b) of one record. Its file's name says which record, by what the record
    holds, and which regions; it is written under another name, renamed, and never changed. What is read
    is checked: a chunk that is damaged is dropped, and fetched again. When the limit would be passed, the
    chunks that were not used for longest are removed first. A cache that cannot be written (a full disk)
    is read on, and counts what it could not keep.

    Args:
        folder: made if it is not there.
        limit_bytes: of all chunks together; None for no limit.

    Raises:
        StoreError: if the folder cannot be made or used.
    """

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.limit_bytes = limit_bytes
        self._start()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / _LOCK).touch()
        except OSError as error:
            raise StoreError(
                f"{self.folder}: the cache cannot be used\n  found: {error.strerror}\n"
                "  remedy: name a folder that can be written"
            ) from error

    def _start(self) -> None:
        self.bytes_hit = 0
        """Bytes that were served from the cache by this process."""
        self.bytes_missed = 0
        """Bytes that were asked for and not there."""
        self.dropped = 0
        """Chunks that were damaged."""
        self.not_kept = 0
        """Chunks that could not be written, or are larger than the limit."""
        self._lock = threading.Lock()
        self._numbers = count()

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "limit_bytes": self.limit_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._start()

    def get(self, index: Index, first: int, stop: int) -> list[Buffer]:
        """The regions from `first` on, up to the first that is not there, or `stop`; all checked."""
        stem = self._stem(index)
        pieces: list[Buffer] = []
        while first + len(pieces) < stop:
            chunk = self._chunk_with(stem, first + len(pieces))
            regions = self._read(chunk, index, first + len(pieces), stop) if chunk else []
            if not regions:
                break
            pieces += regions
        size = sum(map(len, pieces))
        wanted = index.ends[stop - 1] - index.region(first)[0]
        with self._lock:
            self.bytes_hit += size
            self.bytes_missed += wanted - size
        return pieces

    def put(self, index: Index, first: int, stop: int, regions: Sequence[Buffer]) -> None:
        """Keep the regions [first, stop) of a record, if there can be room."""
        path = self._stem(index).with_suffix(f".{first}-{stop}")
        if path.exists():
            return
        draft = self.folder / f"{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}{_DRAFT}"
        size = sum(map(len, regions))
        kept = False
        try:
            # Before there is a draft: whoever counts the files finds it here or there.
            path.parent.mkdir(exist_ok=True)
            if self._reserve(draft, size):
                with draft.open("r+b") as file:
                    file.writelines(regions)
                draft.replace(path)
                kept = True
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
                self._release(size)
        if not kept:
            with self._lock:
                self.not_kept += 1

    def _stem(self, index: Index) -> Path:
        """Path stem of a record's chunks: named by its content, not by its location."""
        told = struct.pack(f"<{2 * len(index.ends)}Q", *index.ends, *index.sums)
        name = xxhash.xxh3_128_hexdigest(told)
        return self.folder / name[:3] / name

    def _chunk_with(self, stem: Path, region: int) -> Path | None:
        """The chunk that contains a region and extends farthest."""
        best, farthest = None, region
        try:
            with os.scandir(stem.parent) as entries:
                names = [entry.name for entry in entries]
        except OSError:
            return None
        for name in names:
            if name.startswith(stem.name):
                first, stop = _span(name)
                if first <= region and stop > farthest:
                    best, farthest = stem.with_name(name), stop
        return best

    def _read(self, path: Path, index: Index, first: int, stop: int) -> list[Buffer]:
        """The regions [first, stop) as far as a chunk has them; nothing if it is gone or damaged."""
        start, end = _span(path.name)
        stop = min(stop, end)
        base, offset = index.region(start)[0], index.region(first)[0]
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return []  # another process made room
        try:
            data = memoryview(pread(handle, offset - base, index.ends[stop - 1] - base))
            os.utime(handle)  # used now: the last to be removed
        except OSError:
            data = memoryview(b"")
        finally:
            os.close(handle)
        cuts = [offset, *index.ends[first:stop]]
        regions = [data[a - offset : b - offset] for a, b in pairwise(cuts)]
        if all(holds(index, number, region) for number, region in enumerate(regions, first)):
            return list(regions)
        self._drop(path)
        return []

    def _drop(self, path: Path) -> None:
        with self._lock:
            self.dropped += 1
        with suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            self._release(size)

    def _reserve(self, draft: Path, size: int) -> bool:
        """Make the draft and the room for it; False if there can be none."""
        limit = sys.maxsize if self.limit_bytes is None else self.limit_bytes
        if size > limit:
            return False
        with self._alone() as usage:
            used = _used(usage)
            if used is None or used + size > limit:
                used = self._evict(size, limit)
                if used + size > limit:
                    return False
            with draft.open("wb") as file:
                file.truncate(size)  # whoever makes room next counts it in full
            _write_used(usage, used + size)
        return True

    def _release(self, size: int) -> None:
        with self._alone() as usage:
            _write_used(usage, max(0, (_used(usage) or 0) - size))

    def _evict(self, size: int, limit: int) -> int:
        """Remove the chunks that were not used for longest; gives the bytes that are left.

        Some more room is made than is needed, so that not every chunk has to look at all files.
        """
        files = self._files()
        used = sum(held for _, held, _ in files)
        target = min(limit - size, int(limit * _LOW_WATER))
        for modified, held, path in files:
            stale = path.suffix == _DRAFT and modified < time.time() - _STALE_S
            if path.suffix == _DRAFT and not stale:
                continue
            if used <= target and not stale:
                break
            with suppress(FileNotFoundError):
                path.unlink()
            used -= held
        return used

    def _files(self) -> list[tuple[float, int, Path]]:
        """(last use, bytes, path) of all chunks and drafts, longest unused first."""
        found = {}  # by inode: one that is renamed meanwhile counts once
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                if name != _LOCK:
                    with suppress(FileNotFoundError):
                        stat = path.stat()
                        found[stat.st_ino] = (stat.st_mtime, stat.st_size, path)
        return sorted(found.values())

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """Keep other threads and processes from making room; gives the file of what is used."""
        with Lock(self.folder / _LOCK, wait=True) as usage:
            yield usage.fileno()


def _span(name: str) -> tuple[int, int]:
    """The regions [first, stop) of a chunk, from its name."""
    first, _, stop = name.rpartition(".")[2].partition("-")
    return (int(first), int(stop)) if first.isdigit() and stop.isdigit() else (0, 0)


def _used(usage: int) -> int | None:
    """Bytes of all chunks, as the last who changed them noted; None if nobody did."""
    text = os.pread(usage, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _write_used(usage: int, used: int) -> None:
    os.pwrite(usage, b"%32d" % used, 0)
