"""The metadata block of a record: an Arrow IPC stream with one row per image, compressed with zstd.

Blocks are untrusted input, so messages are checked before Arrow reads them: compressed buffers, changing
dictionaries, bytes after the end, and columns whose rows take no space are rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.data.records.format.ipc_messages import check_messages
from holdfast.errors import InputError, LimitError

RESERVED = "pcr."  # columns of this name are the format's, all others the user's
MAX_PIECE = (1 << 32) - 1

# Sums and the lengths of pieces hardly shrink, so a block that unpacks to more was made to fill the memory.
MOST_EXPANSION = 256
ALWAYS_ALLOWED = 1 << 20  # bytes
_LEVEL = 9  # of zstd: higher ones take milliseconds a record and gain a few bytes an image

_WORDS = pa.dictionary(pa.int32(), pa.string())
OWN_COLUMNS: Mapping[str, pa.DataType] = {
    "id": pa.string(),
    "pcr.reason": _WORDS,
    "pcr.width": pa.uint32(),
    "pcr.height": pa.uint32(),
    "pcr.orientation": pa.uint8(),
    "pcr.source_size": pa.uint64(),
    "pcr.stripped_size": pa.uint64(),
    "pcr.source_xxh3": pa.uint64(),
}
"""The columns of the format that hold one value an image; `pcr.lengths` and `pcr.crc32c` hold G."""


class LayoutError(ValueError):
    """Bytes that are not a record of this version, or contradict themselves.

    Attributes:
        region: the region that is at fault (0: header and metadata), None for the footer.
    """

    def __init__(self, reason: str, region: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.region = region


class OtherVersion(LayoutError):
    """Sound bytes of another version of the format: whether they are whole cannot be told here."""


@dataclass(frozen=True)
class Contents:
    """The metadata block of one record: its images, their columns, where their pieces are."""

    table: pa.Table
    """N rows: `id`, the user's columns, and the format's own (`pcr.width` ...)."""
    lengths: npt.NDArray[np.uint32]
    """[N, G] bytes of each piece; 0 where an image has nothing in a group."""
    piece_sums: npt.NDArray[np.uint32]
    """[N, G] crc32c of each piece."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the writer noted in the schema's metadata, for example `scans_end`."""

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """[N + 1, G] offset of each piece from the start of its group; the last row is the group's size."""
        starts = np.zeros((len(self.lengths) + 1, self.lengths.shape[1]), np.int64)
        np.cumsum(self.lengths, axis=0, dtype=np.int64, out=starts[1:])
        return starts

    @cached_property
    def ids(self) -> list[str]:
        """[N] the images' names, unique in the dataset."""
        return self.table["id"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def opaque(self) -> npt.NDArray[np.bool_]:
        """[N] whether an image is stored whole in group 1, for it could not be transcoded."""
        return np.array([why is not None for why in self.table["pcr.reason"].to_pylist()], bool)

    @cached_property
    def orientations(self) -> npt.NDArray[np.uint8]:
        """[N] EXIF orientation, 1..8, still to be applied to the pixels."""
        return as_numpy(self.table["pcr.orientation"].combine_chunks())

    @property
    def columns(self) -> pa.Table:
        """N rows: `id` and the user's columns."""
        return self.table.select(
            [name for name in self.table.column_names if not name.startswith(RESERVED)]
        )


class Image(NamedTuple):
    """One image as the writer hands it to a record."""

    id: str
    pieces: Sequence[bytes | memoryview]
    """[G]"""
    width: int
    """Pixels as stored; 0 where they are unknown."""
    height: int
    orientation: int
    reason: str | None
    """Why it is stored opaque; None where it was transcoded."""
    source_size: int
    """Bytes of the source file."""
    stripped_size: int
    """Bytes of the source file without its metadata segments."""
    source_sum: int
    """xxh3-64 of the source file."""
    columns: Mapping[str, Any]


def encode(
    images: Sequence[Image], schema: pa.Schema, groups: int, settings: Mapping[str, str]
) -> bytes:
    """The metadata of these images as an Arrow IPC stream.

    Raises:
        InputError: if a column cannot be kept, or a value does not fit its column.
        LimitError: if a piece is too large.
    """
    check_columns(schema)
    own = _own_columns(images, groups)
    fields = [
        pa.field("id", pa.string(), nullable=False),
        *schema,
        *(pa.field(name, array.type) for name, array in own.items()),
    ]
    arrays = [
        pa.array([image.id for image in images], pa.string()),
        *(_column([image.columns.get(field.name) for image in images], field) for field in schema),
        *own.values(),
    ]
    batch = pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema(fields, metadata=dict(sorted(settings.items())))
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def check_columns(schema: pa.Schema) -> None:
    """Check that a record can store a user's columns.

    Raises:
        InputError: if a name is reserved or occurs twice, or a type cannot be stored.
    """
    taken = {"id"}
    for column in schema:
        reason = None
        if column.name in taken or column.name.startswith(RESERVED):
            reason = "its name is taken"
        elif not _kept(column.type):
            reason = f"its type, {column.type}, is none that a record keeps"
        if reason is not None:
            raise InputError(
                "a record cannot store this column",
                code="invalid-value",
                place=f"column {column.name!r}",
                found=reason,
                expected=f"a unique name, not `id` nor one that begins with `{RESERVED}`, and a "
                "type without unions, views and run-end encoding",
                remedy="rename the column, or cast it",
            )
        taken.add(column.name)


def pack(stream: bytes) -> bytes:
    """The block of a stream: a zstd frame, or the stream itself if that is smaller or expands too far."""
    packed: bytes = pa.Codec("zstd", _LEVEL).compress(stream, asbytes=True)
    if len(packed) >= len(stream) or len(stream) > _most(len(packed)):
        return stream
    return packed


def unpack(block: memoryview, size: int) -> memoryview:
    """The stream of a block.

    Args:
        block: what `pack` made.
        size: bytes of the stream, as the header says.

    Raises:
        LayoutError: if it does not unpack to so many bytes, or to more than is believable.
    """
    if size == len(block):
        return block
    if not len(block) < size <= _most(len(block)):
        raise LayoutError(
            f"the metadata block of {len(block):,} bytes claims to unpack to {size:,}", 0
        )
    try:
        return memoryview(pa.Codec("zstd").decompress(pa.py_buffer(block), size))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise LayoutError(f"the metadata block cannot be unpacked: {error}", 0) from error


def _most(packed: int) -> int:
    return ALWAYS_ALLOWED + MOST_EXPANSION * packed


def decode(block: memoryview, groups: int, images: int) -> Contents:
    """Read the stream that `encode` wrote, trusting nothing.

    Raises:
        LayoutError: if it is no such block, or does not fit the header's numbers.
    """
    try:
        check_messages(block)
        with pa.ipc.open_stream(pa.py_buffer(block)) as stream:
            _check_schema(stream.schema, groups)
            batch = stream.read_next_batch()
        batch.validate(full=True)  # before anything else looks at it
        _check_values(batch, images)
        table = pa.Table.from_batches([batch])
        return Contents(
            table=table,
            lengths=_matrix(batch["pcr.lengths"], groups),
            piece_sums=_matrix(batch["pcr.crc32c"], groups),
            settings={
                key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()
            },
        )
    except LayoutError:
        raise
    except (pa.ArrowException, LookupError, ValueError, OSError, struct.error) as error:
        raise LayoutError(f"the metadata block cannot be read: {error}", 0) from error


# --- Writing -------------------------------------------------------------------------------------


def _own_columns(images: Sequence[Image], groups: int) -> dict[str, pa.Array]:
    lengths = np.array([[len(piece) for piece in image.pieces] for image in images], np.int64)
    if lengths.shape != (len(images), groups):
        raise ValueError(f"images of {lengths.shape[1:]} pieces for {groups} groups")
    if lengths.max() > MAX_PIECE:
        raise LimitError(
            f"image {images[int(lengths.max(axis=1).argmax())].id!r} is too large for a record",
            needed=f"{lengths.max():,} bytes in one piece",
            allowed=f"{MAX_PIECE:,} bytes",
            remedy="leave the image out",
        )
    crcs = np.array(
        [[google_crc32c.value(bytes(piece)) for piece in image.pieces] for image in images],
        np.uint32,
    )
    return {
        "pcr.reason": pa.array([image.reason for image in images], pa.string()).dictionary_encode(),
        "pcr.width": pa.array([image.width for image in images], pa.uint32()),
        "pcr.height": pa.array([image.height for image in images], pa.uint32()),
        "pcr.orientation": pa.array([image.orientation for image in images], pa.uint8()),
        "pcr.source_size": pa.array([image.source_size for image in images], pa.uint64()),
        "pcr.stripped_size": pa.array([image.stripped_size for image in images], pa.uint64()),
        "pcr.source_xxh3": pa.array([image.source_sum for image in images], pa.uint64()),
        "pcr.lengths": _lists(lengths.astype(np.uint32), groups),
        "pcr.crc32c": _lists(crcs, groups),
    }


def _lists(numbers: npt.NDArray[np.uint32], groups: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), groups)


def _column(values: Sequence[Any], column: pa.Field) -> pa.Array:
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            "a value does not fit its column",
            code="invalid-value",
            place=f"column {column.name!r}",
            found=str(error),
            expected=f"values of type {column.type}",
        ) from error


# --- Reading -------------------------------------------------------------------------------------


def _kept(kind: pa.DataType) -> bool:
    """Whether a type's rows take room of their own: a short file must not become a large table."""
    if isinstance(kind, pa.BaseExtensionType):
        return _kept(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _kept(kind.value_type)
    refused = (
        pa.types.is_union,
        pa.types.is_run_end_encoded,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
        pa.types.is_string_view,
        pa.types.is_binary_view,
    )
    if any(is_one(kind) for is_one in refused):
        return False
    if pa.types.is_fixed_size_list(kind) and kind.list_size < 1:
        return False
    return all(_kept(kind.field(child).type) for child in range(kind.num_fields))


def _check_schema(schema: pa.Schema, groups: int) -> None:
    if len(set(schema.names)) != len(schema.names):
        raise LayoutError("two columns of the metadata block have one name", 0)
    lists = pa.list_(pa.uint32(), groups)
    expected = {**OWN_COLUMNS, "pcr.lengths": lists, "pcr.crc32c": lists}
    for name, kind in expected.items():
        found = schema.field(name).type
        if found != kind:
            raise LayoutError(f"column {name} is {found}, not {kind}", 0)
    for column in schema:
        if column.name in expected:
            continue
        if column.name.startswith(RESERVED):
            raise LayoutError(f"column {column.name} is none of this version", 0)
        if not _kept(column.type):
            raise LayoutError(f"column {column.name} is {column.type}, which no record keeps", 0)


def _check_values(batch: pa.RecordBatch, images: int) -> None:
    if len(batch) != images:
        raise LayoutError(f"the metadata block has {len(batch):,} rows for {images:,} images", 0)
    for name in OWN_COLUMNS:
        if name != "pcr.reason" and batch[name].null_count:
            raise LayoutError(f"column {name} has rows without a value", 0)
    if batch["pcr.reason"].dictionary.null_count:
        raise LayoutError("column pcr.reason has a reason without a value", 0)
    orientations = as_numpy(batch["pcr.orientation"])
    if ((orientations < 1) | (orientations > 8)).any():
        raise LayoutError("an orientation is none of 1..8", 0)
    if len(set(batch["id"].to_pylist())) != images:
        raise LayoutError("two images have one id", 0)


def _matrix(column: pa.Array, groups: int) -> npt.NDArray[np.uint32]:
    """[N, G] out of a column of lists that all have G numbers."""
    numbers = column.values[column.offset * groups : (column.offset + len(column)) * groups]
    if column.null_count or numbers.null_count:
        raise LayoutError("a column of piece numbers has rows without a value", 0)
    return as_numpy(numbers).reshape(-1, groups)


def as_numpy(numbers: pa.Array) -> npt.NDArray[Any]:
    """Numbers, none of them null, without a copy: Arrow's `to_numpy` would import pandas first."""
    return np.from_dlpack(numbers)
