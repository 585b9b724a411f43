"""A reader of records and manifests written from docs/formats/pcr.md alone, as an oracle: no line of it is
shared with the package, and its sums are its own.

It is slow and short. It refuses what the page says a reader must refuse, by `Refused`.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq


class Refused(Exception):
    """The page says that such a file must be refused."""


def _must(holds: object, rule: str) -> None:
    if not holds:
        raise Refused(rule)


# --- Sums ----------------------------------------------------------------------------------------


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # 0x1EDC6F41, reflected
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


_MASK = (1 << 64) - 1
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _MASK


def _avalanche(hash_: int) -> int:
    hash_ ^= hash_ >> 37
    hash_ = hash_ * 0x165667919E3779F9 & _MASK
    return hash_ ^ hash_ >> 32


def _avalanche64(hash_: int) -> int:
    hash_ ^= hash_ >> 33
    hash_ = hash_ * _PRIME64[1] & _MASK
    hash_ ^= hash_ >> 29
    hash_ = hash_ * _PRIME64[2] & _MASK
    return hash_ ^ hash_ >> 32


def _mix16(data: bytes, at: int, secret: int) -> int:
    return _fold(
        _u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8)
    )


def xxh3(data: bytes) -> int:
    """XXH3, 64 bits, seed 0, after the published description of the algorithm."""
    size = len(data)
    if size == 0:
        return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))
    if size <= 3:
        first, middle, last = data[0], data[size >> 1], data[-1]
        combined = first << 16 | middle << 24 | last | size << 8
        return _avalanche64(combined ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    if size <= 8:
        combined = _u32(data, size - 4) + (_u32(data, 0) << 32)
        keyed = combined ^ (_u64(_SECRET, 8) ^ _u64(_SECRET, 16))
        keyed ^= (keyed << 49 | keyed >> 15) & _MASK ^ (keyed << 24 | keyed >> 40) & _MASK
        keyed = keyed * 0x9FB21C651E98DF25 & _MASK
        keyed ^= (keyed >> 35) + size
        keyed = keyed * 0x9FB21C651E98DF25 & _MASK
        return keyed ^ keyed >> 28
    if size <= 16:
        low = _u64(data, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32))
        high = _u64(data, size - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48))
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _fold(low, high)) & _MASK)
    if size <= 128:
        hash_ = size * _PRIME64[0] & _MASK
        for step in reversed(range((size - 1) // 32 + 1)):
            hash_ += _mix16(data, 16 * step, 32 * step)
            hash_ += _mix16(data, size - 16 * (step + 1), 32 * step + 16)
        return _avalanche(hash_ & _MASK)
    if size <= 240:
        hash_ = size * _PRIME64[0] & _MASK
        for step in range(8):
            hash_ += _mix16(data, 16 * step, 16 * step)
        hash_ = _avalanche(hash_ & _MASK)
        for step in range(8, size // 16):
            hash_ += _mix16(data, 16 * step, 16 * (step - 8) + 3)
        hash_ += _mix16(data, size - 16, 136 - 17)
        return _avalanche(hash_ & _MASK)
    return _long(data)


def _long(data: bytes) -> int:
    sums = [
        _PRIME32[2], _PRIME64[0], _PRIME64[1], _PRIME64[2],
        _PRIME64[3], _PRIME32[1], _PRIME64[4], _PRIME32[0],
    ]  # fmt: skip

    def accumulate(at: int, secret: int) -> None:
        words = struct.unpack_from("<8Q", data, at)
        for lane, word in enumerate(words):
            keyed = word ^ _u64(_SECRET, secret + 8 * lane)
            sums[lane ^ 1] = (sums[lane ^ 1] + word) & _MASK
            sums[lane] = (sums[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK

    stripes = (len(_SECRET) - 64) // 8
    blocks = (len(data) - 1) // (64 * stripes)
    for block in range(blocks):
        for stripe in range(stripes):
            accumulate(64 * (block * stripes + stripe), 8 * stripe)
        for lane in range(8):
            mixed = sums[lane] ^ sums[lane] >> 47 ^ _u64(_SECRET, len(_SECRET) - 64 + 8 * lane)
            sums[lane] = mixed * _PRIME32[0] & _MASK
    for stripe in range((len(data) - 1 - 64 * stripes * blocks) // 64):
        accumulate(64 * (blocks * stripes + stripe), 8 * stripe)
    accumulate(len(data) - 64, len(_SECRET) - 64 - 7)
    hash_ = len(data) * _PRIME64[0]
    for pair in range(4):
        secret = 11 + 16 * pair
        hash_ += _fold(
            sums[2 * pair] ^ _u64(_SECRET, secret), sums[2 * pair + 1] ^ _u64(_SECRET, secret + 8)
        )
    return _avalanche(hash_ & _MASK)


# --- A record ------------------------------------------------------------------------------------


class Record(NamedTuple):
    rows: list[dict[str, Any]]
    """Every column of every image."""
    pieces: list[list[bytes]]
    """[N][G]"""
    ends: list[int]
    sums: list[int]
    msssim: list[float]
    measured: int
    scans_end: list[int]
    settings: dict[str, str]

    def image(self, row: int, fidelity: int) -> bytes:
        if self.rows[row]["pcr.reason"] is not None:
            return self.pieces[row][0]
        return b"".join(self.pieces[row][:fidelity]) + b"\xff\xd9"


def read_record(data: bytes) -> Record:
    """All of a record, with every rule of the page checked."""
    _must(len(data) >= 52 and data[-8:] == bytes.fromhex("50 43 52 2E 45 4E 44 0A"), "end magic")
    version, groups, images, check = struct.unpack("<HHII", data[-20:-8])
    _must(version == 1, "footer version")
    _must(1 <= groups <= 64 and 1 <= images <= 1 << 24, "footer limits")
    size = 24 * groups + 40
    _must(len(data) >= 36 + size, "footer size")
    footer = data[-size:]
    _must(crc32c(footer[:-12]) == check, "footer check")
    ends = [_u64(footer, 8 * k) for k in range(groups + 1)]
    sums = [_u64(footer, 8 * (groups + 1 + k)) for k in range(groups + 1)]
    msssim = [struct.unpack_from("<d", footer, 16 * groups + 16 + 8 * k)[0] for k in range(groups)]
    measured = _u32(footer, 24 * groups + 16)
    _must(ends == sorted(ends) and ends[-1] + size == len(data), "ends")

    _must(data[:8] == bytes.fromhex("89 50 43 52 0D 0A 1A 0A"), "magic")
    _must(_u32(data, 32) == crc32c(data[:32]), "header check")
    *header, unpacked = struct.unpack_from("<HHIQQ", data, 8)
    _must(header == [1, groups, images, ends[0] - 36], "header")
    for region, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        _must(xxh3(data[start:end]) == sums[region], f"sum of region {region}")

    block = data[36 : ends[0]]
    if len(block) != unpacked:
        _must(len(block) < unpacked <= 256 * len(block) + 2**20, "size of the unpacked block")
        block = pa.Codec("zstd").decompress(block, unpacked, asbytes=True)
    rows, settings = _rows(block, groups, images)
    pieces: list[list[bytes]] = [[] for _ in rows]
    for group in range(groups):
        at = ends[group]
        for row, own in zip(rows, pieces, strict=True):
            own.append(data[at : at + row["pcr.lengths"][group]])
            at += row["pcr.lengths"][group]
            _must(crc32c(own[-1]) == row["pcr.crc32c"][group], "sum of a piece")
        _must(at == ends[group + 1], "lengths of a group")
    scans_end = [int(text) for text in settings["scans_end"].split(",")]
    _must(len(scans_end) == groups, "scans_end")
    return Record(rows, pieces, ends, sums, msssim, measured, scans_end, settings)


def _rows(block: bytes, groups: int, images: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    _must(block[-8:] == bytes.fromhex("FF FF FF FF 00 00 00 00"), "end of the stream")
    try:
        reader = pa.ipc.open_stream(block)
        batches = list(reader)
    except (pa.ArrowException, OSError) as error:
        raise Refused("Arrow") from error
    _must(len(batches) == 1 and len(batches[0]) == images, "one batch of N rows")
    batches[0].validate(full=True)
    schema = reader.schema
    words = pa.dictionary(pa.int32(), pa.utf8())
    numbers = pa.list_(pa.uint32(), groups)
    types = {
        "id": pa.utf8(),
        "pcr.reason": words,
        "pcr.width": pa.uint32(),
        "pcr.height": pa.uint32(),
        "pcr.orientation": pa.uint8(),
        "pcr.source_size": pa.uint64(),
        "pcr.stripped_size": pa.uint64(),
        "pcr.source_xxh3": pa.uint64(),
        "pcr.lengths": numbers,
        "pcr.crc32c": numbers,
    }
    _must(len(set(schema.names)) == len(schema.names), "names")
    for name, kind in types.items():
        _must(name in schema.names and schema.field(name).type == kind, f"column {name}")
        _must(name == "pcr.reason" or not batches[0][name].null_count, f"nulls in {name}")
    _must({name for name in schema.names if name.startswith("pcr.")} < set(types), "pcr. columns")
    rows = batches[0].to_pylist()
    _must(all(1 <= row["pcr.orientation"] <= 8 for row in rows), "orientation")
    _must(len({row["id"] for row in rows}) == images, "ids")
    return rows, {key.decode(): value.decode() for key, value in schema.metadata.items()}


# --- A manifest ----------------------------------------------------------------------------------


class Dataset(NamedTuple):
    rows: list[dict[str, Any]]
    scans_end: list[int]
    columns: pa.Schema
    notes: dict[str, Any]


def read_manifest(data: bytes) -> Dataset:
    mark = b"pcr-dataset/1 xxh3-64 "
    at = data.rfind(mark) + len(mark)
    _must(at >= len(mark), "no seal")
    _must(
        b"%016x" % xxh3(data[:at] + b"0" * 16 + data[at + 16 :]) == data[at : at + 16],
        "seal",
    )
    file = pq.ParquetFile(pa.BufferReader(data))
    notes = file.metadata.metadata
    _must(notes[b"format"] == b"pcr-dataset/1", "format")
    rows = file.read().to_pylist()
    scans_end = json.loads(notes[b"scans_end"])
    for row in rows:
        _must(
            re.fullmatch(
                r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*", row["path"]
            ),
            "path",
        )
        groups = len(scans_end)
        lengths = [len(row[name]) for name in ("ends", "sums", "msssim")]
        _must(lengths == [groups + 1, groups + 1, groups], "groups")
        _must(row["size"] == row["ends"][-1] + 24 * groups + 40, "size")
    columns = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(notes[b"columns"])))
    return Dataset(rows, scans_end, columns, json.loads(notes[b"notes"]))
