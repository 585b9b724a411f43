"""`manifest.parquet`: the records of a dataset, one a row, so that each is read with a single request."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from holdfast.data.records.layout import Index, LayoutError

NAME = "manifest.parquet"
FORMAT = "pcr-dataset/1"

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
        return np.array([record.ends for record in self.records], np.int64)

    def bytes_at(self, fidelity: int) -> int:
        """Bytes that one pass over the dataset reads at a fidelity."""
        return int(self.ends[:, fidelity].sum())

    def classes(self, column: str = "label") -> list[str] | None:
        """The names of a label's classes, if its column has them."""
        if column not in self.schema.names:
            return None
        names = (self.schema.field(column).metadata or {}).get(b"names")
        return None if names is None else json.loads(names)

    def msssim(self) -> list[float]:
        """[G] mean MS-SSIM over the images that were measured; NaN where none was."""
        weights = np.array([record.measured for record in self.records], float)
        if not weights.sum():
            return [math.nan] * self.groups
        values = np.array([record.msssim for record in self.records])
        return np.average(np.nan_to_num(values), axis=0, weights=weights).tolist()  # type: ignore[no-any-return]

    def to_bytes(self) -> bytes:
        """The Parquet file."""
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
            b"format": FORMAT.encode(),
            b"scans_end": json.dumps(self.scans_end).encode(),
            b"columns": self.schema.serialize().to_pybytes(),
            b"notes": json.dumps(self.notes, sort_keys=True, allow_nan=False).encode(),
        }
        notes[b"xxh3"] = _digest(table, notes).encode()
        sink = pa.BufferOutputStream()
        pq.write_table(
            table.replace_schema_metadata(notes),
            sink,
            compression="zstd",
            write_statistics=False,
            write_page_checksum=True,
        )
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read what `to_bytes` wrote.

        Raises:
            LayoutError: if it is no manifest of this version, or contradicts itself.
        """
        try:
            table = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
            notes = table.schema.metadata or {}
            if notes.get(b"format") != FORMAT.encode():
                raise LayoutError(f"its format is {notes.get(b'format')!r}, not {FORMAT}")
            if not table.schema.remove_metadata().equals(_SCHEMA):
                raise LayoutError("its columns are not those of a manifest")
            if _digest(table, notes).encode() != notes[b"xxh3"]:
                raise LayoutError("its xxh3 does not match what it holds")
            records = tuple(_index(row) for row in table.to_pylist())
            manifest = cls(
                paths=tuple(table["path"].to_pylist()),
                records=records,
                scans_end=tuple(json.loads(notes[b"scans_end"])),
                schema=pa.ipc.read_schema(pa.py_buffer(notes[b"columns"])),
                notes=json.loads(notes[b"notes"]),
            )
        except (pa.ArrowException, KeyError, OSError, ValueError) as error:
            if isinstance(error, LayoutError):
                raise
            raise LayoutError(f"it cannot be read: {error}") from error
        _check_paths(manifest.paths)
        if any(record.groups != manifest.groups for record in records):
            raise LayoutError("its records do not have the groups that it names")
        return manifest


def _digest(table: pa.Table, notes: Mapping[bytes, bytes]) -> str:
    """xxh3-64 of all that a manifest says: Parquet's own checksums leave its footer out."""
    digest = xxhash.xxh3_64("\0".join(table["path"].to_pylist()).encode())
    for name in _SCHEMA.names[1:]:
        column = table[name].combine_chunks()
        if pa.types.is_list(column.type):
            digest.update(column.value_lengths().to_numpy().astype("<u8").tobytes())
            column = column.flatten()
        digest.update(
            column.to_numpy(zero_copy_only=False)
            .astype("<f8" if name == "msssim" else "<u8")
            .tobytes()
        )
    for key in (b"format", b"scans_end", b"columns", b"notes"):
        digest.update(notes[key])
    return digest.hexdigest()


def _index(row: Mapping[str, Any]) -> Index:
    index = Index(
        images=row["images"],
        ends=tuple(row["ends"]),
        sums=tuple(row["sums"]),
        msssim=tuple(math.nan if value is None else value for value in row["msssim"]),
        measured=row["measured"],
    )
    lengths = {len(index.ends), len(index.sums), len(index.msssim) + 1}
    if len(lengths) != 1 or list(index.ends) != sorted(index.ends) or index.size != row["size"]:
        raise LayoutError(f"the row of {row['path']} contradicts itself")
    return index


def _check_paths(paths: Sequence[str]) -> None:
    """A manifest names files below its own folder only."""
    for path in paths:
        if path.startswith("/") or ".." in path.split("/") or "\\" in path or ":" in path:
            raise LayoutError(f"it names a record outside the dataset: {path!r}")
    if len(set(paths)) != len(paths):
        raise LayoutError("it names a record twice")
