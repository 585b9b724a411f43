"""Sources written byte by byte, for tests: MDS and TFRecord from their specifications."""

from __future__ import annotations

import io
import json
import random
import struct
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.data.records.sources import Source

JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000") + b"picture"
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


def tar(path: Path, members: Iterable[tuple[str, bytes]], end: bool = True) -> Path:
    """A tar with these files, in this order."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
        used = made.offset
    path.write_bytes(file.getvalue() if end else file.getvalue()[:used])
    return path


def files(root: Path, contents: Mapping[str, bytes]) -> Path:
    """A folder with these files."""
    for name, data in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit (RFC 3720, appendix B.4), reflected polynomial 0x82F63B78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The crc32c as TFRecord stores it."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15) + (crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32)


def tfrecord(path: Path, messages: Iterable[bytes]) -> Path:
    """A TFRecord file of these messages."""
    with path.open("wb") as file:
        for message in messages:
            length = struct.pack("<Q", len(message))
            file.write(length + masked(length) + message + masked(message))
    return path


def varint(value: int) -> bytes:
    """A number as protobuf writes it; negative ones as 64-bit two's complement."""
    value %= 1 << 64
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + [groups[-1]])


def field(number: int, data: bytes) -> bytes:
    """A field that holds bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(
    values: Sequence[bytes] | Sequence[int] | Sequence[float], packed: bool = True
) -> bytes:
    """A `tf.train.Feature`; its kind is that of the first value."""
    if not values:
        return b""
    first = values[0]
    if isinstance(first, bytes):
        return field(1, b"".join(field(1, value) for value in values))  # type: ignore[arg-type]
    if isinstance(first, float):
        parts = [struct.pack("<f", value) for value in values]
        return field(
            2, field(1, b"".join(parts)) if packed else b"".join(b"\x0d" + p for p in parts)
        )
    parts = [varint(value) for value in values]  # type: ignore[arg-type]
    return field(3, field(1, b"".join(parts)) if packed else b"".join(b"\x08" + p for p in parts))


def example(features: Mapping[str, Sequence[object]], packed: bool = True) -> bytes:
    """A serialised `tf.train.Example`."""
    entries = (
        field(1, field(1, name.encode()) + field(2, feature(values, packed)))  # type: ignore[arg-type]
        for name, values in features.items()
    )
    return field(1, b"".join(entries))


def mds(
    root: Path,
    columns: Mapping[str, tuple[str, int | None]],
    samples: Sequence[Mapping[str, bytes]],
    change: Mapping[str, object] | None = None,
) -> Path:
    """An MDS folder of one shard.

    Args:
        root: the folder.
        columns: name -> encoding, and bytes of a value where they are fixed.
        samples: name -> the bytes of its value.
        change: keys of the shard's entry in the index that shall be otherwise.
    """
    bodies = []
    for sample in samples:
        sizes = [len(sample[name]) for name, (_, fixed) in columns.items() if fixed is None]
        head = struct.pack(f"<{len(sizes)}I", *sizes)
        bodies.append(head + b"".join(sample[name] for name in columns))
    config = b"{}"
    start = 4 + 4 * (len(bodies) + 1) + len(config)
    offsets = [start + sum(map(len, bodies[:n])) for n in range(len(bodies) + 1)]
    data = struct.pack(f"<I{len(offsets)}I", len(bodies), *offsets) + config + b"".join(bodies)
    root.mkdir(parents=True, exist_ok=True)
    (root / "shard.00000.mds").write_bytes(data)
    shard = {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [fixed for _, fixed in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
        "samples": len(bodies),
        "size_limit": None,
        "version": 2,
        "zip_data": None,
    }
    index = {"version": 2, "shards": [shard | dict(change or {})]}
    (root / "index.json").write_text(json.dumps(index))
    return root


def check_consistent(source: Source) -> None:
    """Ids, sizes and types are what reading gives, in any ranges."""
    count = len(source)
    whole = list(source.read(0, count))
    listed = list(source.ids_and_sizes())
    assert [(one.id, len(one.data)) for one in whole] == listed
    assert len({id_ for id_, _ in listed}) == count
    for one in whole:
        assert list(one.columns) == source.schema.names
    rows = [dict(one.columns) for one in whole]
    pa.Table.from_pylist(rows, schema=source.schema).validate(full=True)
    rng = random.Random(0)
    for _ in range(6):
        start, stop = sorted(rng.randint(0, count) for _ in range(2))
        assert list(source.read(start, stop)) == whole[start:stop]
    with pytest.raises(IndexError):
        next(source.read(0, count + 1))
