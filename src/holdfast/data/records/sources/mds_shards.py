"""The files of an MDS folder: what `index.json` says of them, and their bytes, decompressed and checked."""

from __future__ import annotations

import bz2
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from holdfast.data.records.sources.values import PositionedFile, json_object_of
from holdfast.errors import InputError

Read = Callable[[int, int], bytes]
"""(start, size) -> those bytes of a shard."""

INDEX = "index.json"
_VERSION = 2
_LARGEST = 1 << 32  # offsets in a shard have 32 bits
_CODECS = {"zstd": "zstd", "gz": "gzip", "br": "brotli", "snappy": "snappy"}  # bz2 is Python's own
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Shard:
    """One shard as `index.json` describes it."""

    path: Path
    """The uncompressed file, whether or not it exists."""
    compressed: Path | None
    """The compressed file, to be used where `path` does not exist."""
    codec: str
    size: int
    """Bytes, uncompressed."""
    samples: int
    names: tuple[str, ...]
    """[C] columns."""
    encodings: tuple[str, ...]
    """[C]"""
    fixed: tuple[int | None, ...]
    """[C] bytes of a value, None where they vary."""
    hashes: Mapping[str, str]
    """Algorithm -> digest of the uncompressed file."""
    compressed_hashes: Mapping[str, str]
    stem: str
    """Its name in ids."""

    @property
    def is_compressed(self) -> bool:
        """Whether only the compressed file is there."""
        return self.compressed is not None and not self.path.exists()


def read_index(root: Path) -> list[Shard]:
    """The shards that `index.json` names.

    Raises:
        InputError: if it is missing, of another version or format, or names files outside its folder.
    """
    path = root / INDEX
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            "the index of an MDS folder cannot be read",
            code="unreadable",
            path=path,
            found=error.strerror,
            expected="the index.json that MDSWriter leaves beside the shards",
        ) from error
    index = json_object_of(data, path, "")
    entries = index.get("shards")
    if index.get("version") != _VERSION or not isinstance(entries, list):
        raise InputError(
            "unknown version of the index",
            code="unsupported",
            path=path,
            found=f"version {index.get('version')!r}",
            expected=f"version {_VERSION} and a list of shards",
        )
    return [_shard(entry, root, path, f"shard {number}") for number, entry in enumerate(entries)]


def _shard(entry: Any, root: Path, path: Path, place: str) -> Shard:
    try:
        if entry["format"] != "mds":
            raise InputError(
                "unknown format of a shard",
                code="unknown-format",
                path=path,
                place=place,
                found=str(entry["format"]),
                expected="mds",
                remedy="write it again with MDSWriter",
            )
        raw, packed = entry["raw_data"], entry.get("zip_data")
        shard = Shard(
            path=root / _inside(raw["basename"], path, place),
            compressed=root / _inside(packed["basename"], path, place) if packed else None,
            codec=str(entry.get("compression") or "").partition(":")[0],
            size=int(raw["bytes"]),
            samples=int(entry["samples"]),
            names=tuple(map(str, entry["column_names"])),
            encodings=tuple(map(str, entry["column_encodings"])),
            fixed=tuple(None if size is None else int(size) for size in entry["column_sizes"]),
            hashes=dict(raw.get("hashes") or {}),
            compressed_hashes=dict((packed or {}).get("hashes") or {}),
            stem=raw["basename"].removesuffix(".mds"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            "the index does not describe this shard",
            code="invalid-value",
            path=path,
            place=place,
            found=f"{type(error).__name__}: {error}",
            expected="the keys that MDSWriter writes",
        ) from error
    same = len(shard.names) == len(shard.encodings) == len(shard.fixed)
    if not same or len(set(shard.names)) != len(shard.names) or not 0 <= shard.size < _LARGEST:
        raise InputError(
            "this index contradicts itself",
            code="damaged",
            path=path,
            place=place,
            found=f"{len(shard.names)} columns, {len(shard.encodings)} encodings, {shard.size:,} bytes",
            expected="as many encodings and sizes as columns, and less than 4 GiB",
        )
    return shard


def _inside(name: str, path: Path, place: str) -> str:
    if name.startswith("/") or ".." in name.split("/") or "\0" in name or not name:
        raise InputError(
            "this index names a file outside its folder",
            code="outside-folder",
            path=path,
            place=place,
            found=repr(name),
            remedy="do not trust this index; make it again",
        )
    return name


class ShardBytes:
    """Opens shards; keeps the last decompressed one for further reads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._checked: set[Path] = set()
        self._latest: tuple[Path, bytes] | None = None

    @contextmanager
    def open(self, shard: Shard, *, check: bool) -> Iterator[Read]:
        """A function that reads pieces of a shard.

        Args:
            shard: which.
            check: compare its hashes first, once; a compressed one is always compared.

        Raises:
            InputError: if it is missing, its size or a hash differs, or it cannot be decompressed.
        """
        if shard.is_compressed:
            data = self._decompressed(shard)
            yield lambda start, size: _slice(data, start, size, shard.path)
            return
        with PositionedFile(shard.path) as file:
            if file.size != shard.size:
                raise _wrong_size(shard.path, file.size, shard.size)
            if check and shard.path not in self._checked:
                pieces = (
                    file.read(start, min(_CHUNK, shard.size - start))
                    for start in range(0, shard.size, _CHUNK)
                )
                _compare(shard.hashes, pieces, shard.path)
                self._checked.add(shard.path)
            yield file.read

    def _decompressed(self, shard: Shard) -> bytes:
        with self._lock:
            if self._latest is None or self._latest[0] != shard.path:
                self._latest = shard.path, _decompress(shard)
            return self._latest[1]


def _decompress(shard: Shard) -> bytes:
    path = shard.compressed or shard.path
    with PositionedFile(path) as file:
        packed = file.read(0, file.size)
    _compare(shard.compressed_hashes, [packed], path)
    try:
        if shard.codec == "bz2":
            data = bz2.BZ2Decompressor().decompress(packed, max_length=shard.size + 1)
        elif shard.codec in _CODECS:
            codec = pa.Codec(_CODECS[shard.codec])
            data = codec.decompress(packed, decompressed_size=shard.size, asbytes=True)
        else:
            raise InputError(
                "unknown compression of a shard",
                code="unsupported",
                path=path,
                found=shard.codec or "no name",
                expected=", ".join(("bz2", *_CODECS)),
            )
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        raise InputError(
            "this shard cannot be decompressed",
            code="damaged",
            path=path,
            found=f"{shard.codec}: {error}",
            expected=f"{shard.size:,} bytes",
            remedy="fetch it again",
        ) from error
    if len(data) != shard.size:
        raise _wrong_size(path, len(data), shard.size)
    _compare(shard.hashes, [data], path)
    return bytes(data)


def _compare(hashes: Mapping[str, str], pieces: Any, path: Path) -> None:
    """Compare what can be computed; a hash that neither hashlib nor xxhash knows is passed over."""
    digests = {}
    for name in hashes:
        if name in xxhash.algorithms_available:
            digests[name] = getattr(xxhash, name)()
        elif name in hashlib.algorithms_available and not name.startswith("shake"):
            digests[name] = hashlib.new(name, usedforsecurity=False)
    if not digests:
        return
    for piece in pieces:
        for digest in digests.values():
            digest.update(piece)
    for name, digest in digests.items():
        if digest.hexdigest() != hashes[name]:
            raise InputError(
                f"the {name} of this shard does not match: it is damaged",
                code="damaged",
                path=path,
                found=digest.hexdigest(),
                expected=f"{hashes[name]}, as {INDEX} says",
                remedy="fetch it again",
            )


def _wrong_size(path: Path, found: int, expected: int) -> InputError:
    return InputError(
        "the size of this shard is not that of its index",
        code="damaged",
        path=path,
        found=f"{found:,} bytes",
        expected=f"{expected:,} bytes",
        remedy="fetch it again: it may have been cut short",
    )


def _slice(data: bytes, start: int, size: int, path: Path) -> bytes:
    if start + size > len(data):
        raise _wrong_size(path, len(data), start + size)
    return data[start : start + size]


def offsets(read: Read, shard: Shard) -> npt.NDArray[np.uint32]:
    """[samples + 1] where each sample begins; the last is the shard's end.

    Raises:
        InputError: if they do not rise, or lead out of the file.
    """
    head = 4 * (shard.samples + 2)
    if shard.samples < 0 or head > shard.size:
        raise _damaged(shard, f"{shard.samples:,} samples in {shard.size:,} bytes")
    numbers = np.frombuffer(read(0, head), "<u4")
    if numbers[0] != shard.samples:
        raise _damaged(shard, f"{numbers[0]:,} samples", f"{shard.samples:,}, as {INDEX} says")
    found = numbers[1:]
    if found[0] < head or (found[1:] < found[:-1]).any() or found[-1] > shard.size:
        wrong = int(np.argmax((found < head) | (found > shard.size)))
        raise _damaged(
            shard,
            f"sample {wrong} at byte {found[wrong]:,}, the end at byte {found[-1]:,}",
            f"rising offsets up to {shard.size:,}",
        )
    return found


def _damaged(shard: Shard, found: str, expected: str | None = None) -> InputError:
    return InputError(
        "the offsets of this shard are damaged",
        code="damaged",
        path=shard.path,
        found=found,
        expected=expected,
        remedy="fetch it again",
    )
