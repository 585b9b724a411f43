"""Samples that are computed once: a cache in memory or on disk, by the sample's position in the source.

A store only ever saves work: what is absent, stale, torn or beyond the budget is a miss, and the sample is
computed again. Samples are stored as bytes, so that a stage that changes its input in place cannot change
the cache.

On disk a cache is a folder of segments. A segment is a checked header (the key of source and stages, and of
each sample its position, length and checksum) and the samples' bytes; it appears whole or not at all.
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from holdfast.data.pipeline.encoding import decode, encode
from holdfast.errors import InputError
from holdfast.files import Lock, LockHeldError, atomic_file, draft_target

SEGMENT_BYTES = 32 << 20
"""Samples wait in memory until a segment is full."""
OVERHEAD = 200
"""Bytes that Python needs for an entry in memory, besides its content."""
_ENTRY_BYTES, _SEGMENT_OVERHEAD = 32, 200  # at most, in a segment's header
_MAGIC = b"holdfast-cache-1"
_HEAD = struct.Struct("<16sII")  # magic, length of the header, its checksum


class MemoryStore:
    """A cache in the memory of this process, of at most `budget` bytes."""

    def __init__(self, budget: float) -> None:
        self._left = budget
        self._entries: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def get(self, position: int) -> tuple[Any] | None:
        """The sample, in a tuple of one; None if it is absent."""
        data = self._entries.get(position)
        return None if data is None else (pickle.loads(data),)

    def put(self, position: int, sample: Any) -> None:
        """Store a sample, if there is room."""
        try:
            data = pickle.dumps(sample, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError):
            return
        with self._lock:
            if position not in self._entries and len(data) + OVERHEAD <= self._left:
                self._left -= len(data) + OVERHEAD
                self._entries[position] = data

    def flush(self) -> None:
        """Nothing waits."""


class _Header(msgspec.Struct):
    key: str
    positions: list[int]
    lengths: list[int]
    checksums: list[int]


_ENTRY = np.dtype([("segment", "i4"), ("start", "i8"), ("length", "i8"), ("checksum", "u4")])


class DiskStore:
    """A cache in a folder, of at most `budget` bytes, that outlives the process.

    Several processes may fill one folder. Stale and torn segments are removed by the first of them.

    Args:
        folder: made if there is none.
        key: fingerprint of the source and of the stages below the cache.
        budget: bytes on disk.
        total: samples of the source.

    Raises:
        InputError: `conflict` if the folder holds other files, `unwritable` if it cannot be written.
    """

    def __init__(self, folder: Path, key: str, budget: float, total: int) -> None:
        self._folder, self._key, self._left = folder, key, budget
        self._segments: list[Path] = []
        # An array, as Python objects would take 10 times the memory.
        self._entries = np.zeros(total, _ENTRY)
        self._entries["segment"] = -1
        self._draft: dict[int, bytes] = {}
        self._draft_bytes = 0
        self._lock = threading.Lock()
        self.torn = self.stale = 0
        """Entries or segments that failed their checksum; segments of another key."""
        self.refused: str | None = None
        """The type of a sample that cannot be stored: nothing more is stored."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            raise InputError(
                "the cache cannot be written", code="unwritable", path=folder, found=error.strerror
            ) from error
        foreign = [n for n in names if not n.endswith(".segment") and not draft_target(n)]
        if foreign:
            raise InputError(
                "this folder is not a cache",
                code="conflict",
                path=folder,
                found=foreign[0],
                remedy="name a folder of its own, which need not exist",
            )
        self._read_segments(names)

    def _read_segments(self, names: Iterable[str]) -> None:
        try:
            with Lock(self._folder):  # nobody else uses it: what is of no use can go
                self._scan(names, clean=True)
        except LockHeldError:
            self._scan(names, clean=False)
        self._in_use = Lock(self._folder, shared=True, wait=True)

    def _scan(self, names: Iterable[str], clean: bool) -> None:
        for name in names:  # in the order of writing: later entries replace earlier ones
            path = self._folder / name
            header = None if draft_target(name) else _read_header(path)
            if header is None:
                self.torn += name.endswith(".segment")
            elif header[0].key != self._key:
                self.stale += 1
            else:
                self._register(path, *header)
                self._left -= path.stat().st_size
                continue
            if clean:
                path.unlink(missing_ok=True)

    def _register(self, path: Path, header: _Header, start: int) -> None:
        lengths = np.array(header.lengths, np.int64)
        entries = np.empty(len(lengths), _ENTRY)
        entries["segment"] = len(self._segments)
        entries["start"] = start + np.cumsum(lengths) - lengths
        entries["length"] = lengths
        entries["checksum"] = header.checksums
        self._entries[header.positions] = entries
        self._segments.append(path)

    def get(self, position: int) -> tuple[Any] | None:
        """As of `MemoryStore`."""
        draft = self._draft.get(position)
        if draft is not None:
            return (decode(draft),)
        segment, start, length, checksum = self._entries[position].tolist()
        if segment < 0:
            return None
        data = b""
        with suppress(OSError), self._segments[segment].open("rb") as file:
            file.seek(start)
            data = file.read(length)
        if len(data) != length or zlib.crc32(data) != checksum:
            with self._lock:
                self.torn += 1
                self._entries["segment"][position] = -1
            return None
        return (decode(data),)

    def put(self, position: int, sample: Any) -> None:
        """As of `MemoryStore`."""
        try:
            data = encode(sample)
        except InputError as error:
            self._left, self.refused = 0, error.found
            return
        with self._lock:
            cost = len(data) + (_ENTRY_BYTES if self._draft else _SEGMENT_OVERHEAD)
            present = position in self._draft or self._entries["segment"][position] >= 0
            if present or cost > self._left:
                return
            self._left -= cost
            self._draft[position] = data
            self._draft_bytes += len(data)
            if self._draft_bytes >= SEGMENT_BYTES:
                self._write()

    def flush(self) -> None:
        """Write the samples that wait for a full segment."""
        with self._lock:
            if self._draft:
                self._write()

    def close(self) -> None:
        """Write what waits, and let others clean the folder."""
        self.flush()
        self._in_use.close()

    def _write(self) -> None:
        parts = list(self._draft.values())
        header = _Header(
            self._key, list(self._draft), [len(p) for p in parts], [zlib.crc32(p) for p in parts]
        )
        packed = msgspec.msgpack.encode(header)
        path = self._folder / f"{time.time_ns():020d}-{os.getpid()}.segment"
        try:
            with atomic_file(path) as file:
                file.write(_HEAD.pack(_MAGIC, len(packed), zlib.crc32(packed)))
                file.write(packed)
                file.writelines(parts)
        except OSError:
            self._left = 0  # a full disk ends the cache, not the training
        else:
            self._register(path, header, _HEAD.size + len(packed))
        self._draft, self._draft_bytes = {}, 0


Store = MemoryStore | DiskStore


def _read_header(path: Path) -> tuple[_Header, int] | None:
    """The header of a segment and where its samples start; None if the segment is torn."""
    try:
        with path.open("rb") as file:
            magic, length, checksum = _HEAD.unpack(file.read(_HEAD.size))
            packed = file.read(length)
            total = os.fstat(file.fileno()).st_size
        if magic != _MAGIC or zlib.crc32(packed) != checksum:
            return None
        header = msgspec.msgpack.decode(packed, type=_Header)
    except (OSError, struct.error, msgspec.MsgspecError):
        return None
    start = _HEAD.size + length
    return (header, start) if start + int(np.sum(header.lengths)) == total else None
