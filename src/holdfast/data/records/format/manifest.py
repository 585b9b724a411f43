"""`manifest.parquet`: the records of a dataset, one a row, so that each is read with a single request."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from holdfast.data.records.format.block import LayoutError, OtherVersion
from holdfast.data.records.format.layout import HEADER_SIZE, MAX_GROUPS, MAX_IMAGES, Index

NAME = "manifest.parquet"
FORMAT = "pcr-dataset/1"

_SEAL = b"pcr-dataset/1 xxh3-64 "  # then sixteen hexadecimal digits
_ANY_SEAL = re.compile(rb"pcr-dataset/\d{1,9} xxh3-64 ")
_DIGITS = 16
# Plain names below the manifest's own folder: they lead nowhere else on any store, and need no quoting.
_NAME = r"(?!\.)[A-Za-z0-9._-]+"
_PATH = re.compile(rf"(?:{_NAME}/)*{_NAME}")
_LONGEST_PATH = 1024
_LARGEST_FILE = (1 << 63) - 1
# Sums do not compress: what promises much more than its own size is made to fill the memory.
_MOST_EXPANSION = 64
_ALWAYS_ALLOWED = 1 << 26  # bytes

_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("images", pa.uint32(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("ends", pa.list_(pa.uint64()), nullable=False),
        pa.field("sums", pa.list_(pa.uint64()), nullable=False),
        pa.field("msssim", pa.list_(pa.float64()), nullable=False),
        pa.field("measured", pa.uint32(), nullable=False),
    ]
)

_AS_READ = _SCHEMA.set(0, pa.field("path", pa.dictionary(pa.int32(), pa.string()), nullable=False))


@dataclass(frozen=True)
class Manifest:
    """The records of one dataset, in order, and what was noted when it was written."""

    paths: tuple[str, ...]
    """[R] each record's file, from the dataset's folder, with `/`."""
    records: tuple[Index, ...]
    """[R]"""
    scans_end: tuple[int, ...]
    """[G] the last scan (of the ten of a YCbCr image) in each group."""
    schema: pa.Schema
    """`id` and the user's columns; a label's field metadata may hold the `names` of its classes."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Settings, totals and the quality table, as JSON holds them."""

    @property
    def groups(self) -> int:
        """G, the number of fidelities."""
        return len(self.scans_end)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """[R] images of each record."""
        return np.array([record.images for record in self.records], np.int64)

    @cached_property
    def images(self) -> int:
        """Images in all."""
        return int(self.counts.sum())

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """[R, G + 1] where the regions of each record end: bytes to read for each fidelity."""
        return np.array([record.ends for record in self.records], np.int64).reshape(
            -1, self.groups + 1
        )

    def bytes_at(self, fidelity: int) -> int:
        """Bytes that one pass over the dataset reads at a fidelity."""
        return int(self.ends[:, fidelity].sum())

    def classes(self, column: str = "label") -> list[str] | None:
        """The names of a label's classes, if its column has them: `names`, a JSON list of texts."""
        if column not in self.schema.names:
            return None
        try:
            names = json.loads((self.schema.field(column).metadata or {}).get(b"names", b"null"))
        except (RecursionError, ValueError):
            return None
        is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return names if is_list else None

    def msssim(self) -> list[float]:
        """[G] mean MS-SSIM over the images that were measured; NaN where none was."""
        weights = np.array([record.measured for record in self.records], float)
        if not weights.sum():
            return [math.nan] * self.groups
        values = np.array([record.msssim for record in self.records])
        return np.average(np.nan_to_num(values), axis=0, weights=weights).tolist()  # type: ignore[no-any-return]

    def to_bytes(self) -> bytes:
        """The Parquet file: the same bytes for the same manifest and the same version of pyarrow.

        Raises:
            LayoutError: if it says what no manifest may say.
        """
        self._check()
        table = pa.table(
            {
                "path": list(self.paths),
                "images": [record.images for record in self.records],
                "size": [record.size for record in self.records],
                "ends": [record.ends for record in self.records],
                "sums": [record.sums for record in self.records],
                "msssim": [record.msssim for record in self.records],
                "measured": [record.measured for record in self.records],
            },
            schema=_SCHEMA,
        )
        notes = {
            "format": FORMAT,
            "scans_end": json.dumps(self.scans_end),
            "columns": base64.b64encode(self.schema.serialize()).decode(),
            "notes": json.dumps(self.notes, sort_keys=True, allow_nan=False),
            "seal": (_SEAL + b"0" * _DIGITS).decode(),
        }
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink,
            table.schema,
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
            store_schema=False,
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(notes)
        file = bytearray(sink.getvalue())
        at, digits = _sum(file)
        file[at : at + _DIGITS] = digits
        return bytes(file)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Manifest:
        """Read what `to_bytes` wrote. Its checksum is verified first: it detects a flip of any bit.

        Raises:
            LayoutError: if it is not a manifest of this version, is damaged, or contradicts itself.
        """
        data = bytes(data)
        try:
            _check_seal(data)
            notes, table = _table(data)
            manifest = cls(
                paths=tuple(table["path"].to_pylist()),
                records=_indexes(table),
                scans_end=_scans_end(notes[b"scans_end"]),
                schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(notes[b"columns"]))),
                notes=_object(notes[b"notes"]),
            )
            manifest._check()
        except LayoutError:
            raise
        except (pa.ArrowException, LookupError, OSError, RecursionError, ValueError) as error:
            raise LayoutError(f"it cannot be read: {error}") from error
        return manifest

    def _check(self) -> None:
        """What holds for every manifest, whoever made it."""
        if len(self.paths) != len(self.records):
            raise LayoutError("it does not have one path a record")
        for path in self.paths:
            if not _PATH.fullmatch(path) or len(path) > _LONGEST_PATH:
                raise LayoutError(f"it names what cannot be a record of the dataset: {path!r}")
        if len(set(self.paths)) != len(self.paths):
            raise LayoutError("it names a record twice")
        for path, record in zip(self.paths, self.records, strict=True):
            if record.groups != self.groups:
                raise LayoutError(f"{path} does not have the groups that the manifest names")


# --- The seal ------------------------------------------------------------------------------------


def _sum(file: bytes | bytearray) -> tuple[int, bytes]:
    """(where the digits of the seal stand, what they should be).

    The sum is of all bytes of the file, with the digits themselves as zeros. They stand in its footer
    after all else that a writer can note, so the last place that looks like a seal is the seal.
    """
    *_, found = [None, *_ANY_SEAL.finditer(file)]
    at = len(file) if found is None else found.end()
    if at + _DIGITS > len(file):
        raise LayoutError("it is not a manifest, or its end is damaged: it has no seal")
    digest = xxhash.xxh3_64(memoryview(file)[:at])
    digest.update(b"0" * _DIGITS)
    digest.update(memoryview(file)[at + _DIGITS :])
    return at, digest.hexdigest().encode()


def _check_seal(file: bytes) -> None:
    at, digits = _sum(file)
    if file[at : at + _DIGITS] != digits:
        raise LayoutError("its seal does not match: it is damaged")
    if not file[:at].endswith(_SEAL):
        raise OtherVersion("it is of another version than 1, which this reads")


# --- Reading -------------------------------------------------------------------------------------


def _table(data: bytes) -> tuple[Mapping[bytes, bytes], pa.Table]:
    file = pq.ParquetFile(
        pa.BufferReader(data),
        thrift_string_size_limit=len(data),
        thrift_container_size_limit=len(data),
        arrow_extensions_enabled=False,
        read_dictionary=["path"],  # one long path on many rows must not be written out
    )
    notes = file.metadata.metadata or {}
    if notes.get(b"format") != FORMAT.encode():
        raise LayoutError(f"its format is {notes.get(b'format')!r}, not {FORMAT}")
    if not file.schema_arrow.remove_metadata().equals(_AS_READ):
        raise LayoutError("its columns are not those of a manifest")
    if _unpacked(file.metadata) > max(_ALWAYS_ALLOWED, _MOST_EXPANSION * len(data)):
        raise LayoutError("it claims to hold more than fits a file of its size")
    table = file.read(use_threads=False)
    table.validate(full=True)
    for chunk in table["path"].chunks:
        if any(len(path.as_py() or "") > _LONGEST_PATH for path in chunk.dictionary):
            raise LayoutError("it names what cannot be a record of the dataset")
    return notes, table


def _unpacked(metadata: pq.FileMetaData) -> int:
    """Bytes of the table, as far as the file says."""
    columns = (
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    return sum(max(column.total_uncompressed_size, 8 * column.num_values) for column in columns)


def _indexes(table: pa.Table) -> tuple[Index, ...]:
    if not len(table):
        return ()
    ends, sums, msssim = (_lists(table[name]) for name in ("ends", "sums", "msssim"))
    single = [table[name].to_pylist() for name in ("images", "size", "measured")]
    if any(None in values for values in single):
        raise LayoutError("it has records without a number")
    indexes = []
    for row, (images, size, measured) in enumerate(zip(*single, strict=True)):
        index = Index(images, ends[row], sums[row], msssim[row], measured)
        fits = (
            1 <= images <= MAX_IMAGES
            and 1 <= index.groups <= MAX_GROUPS
            and index.groups + 1 == len(index.sums) == len(index.msssim) + 1
            and index.size == size <= _LARGEST_FILE
            and all(a <= b for a, b in pairwise((HEADER_SIZE, *index.ends)))
        )
        if not fits:
            raise LayoutError(f"its row of {table['path'][row]} contradicts itself")
        indexes.append(index)
    return tuple(indexes)


def _lists(column: pa.ChunkedArray) -> list[tuple[Any, ...]]:
    """The rows of a column of lists, none of them and nothing in them null."""
    rows = column.to_pylist()
    if any(row is None or None in row for row in rows):
        raise LayoutError("it has lists with numbers missing")
    return [tuple(row) for row in rows]


def _scans_end(text: bytes) -> tuple[int, ...]:
    ends = json.loads(text)
    if not isinstance(ends, list) or not all(type(end) is int for end in ends):
        raise LayoutError("its scans_end is not a list of numbers")
    if not ends or len(ends) > MAX_GROUPS or any(a >= b for a, b in pairwise((0, *ends))):
        raise LayoutError("its scans_end do not rise")
    return tuple(ends)


def _object(text: bytes) -> Mapping[str, Any]:
    notes = json.loads(text)
    if not isinstance(notes, dict):
        raise LayoutError("its notes are not a JSON object")
    return notes
