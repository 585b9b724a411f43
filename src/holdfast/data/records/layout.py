"""The `.pcr` file, version 1: one record of N images at G fidelities. `docs/formats/pcr.md` specifies it.

    header | metadata block | group 1 | ... | group G | footer

*Region* 0 is the header and the metadata block, region g is group g: the g-th pieces of all images, one
after another. So the bytes [0, ends[g]) hold every image at fidelity g, and one sequential read gets them.
The metadata block is an Arrow IPC stream with a row an image; the footer holds the ends and the sums of
the regions, and is found from the end of the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

MAGIC = b"\x89PCR\r\n\x1a\n"  # as PNG's: a transfer that changes line ends or the eighth bit shows
END_MAGIC = b"PCR.END\n"
VERSION = 1
HEADER = struct.Struct("<8sHHIQ")  # magic, version, groups, images, length of the metadata block
TRAILER = struct.Struct(
    "<HHII8s"
)  # version, groups, images, crc32c of what stands before, end magic
CHECK = struct.Struct("<I")  # crc32c of the header
HEADER_SIZE = HEADER.size + CHECK.size
MAX_GROUPS = 64
MAX_IMAGES = 1 << 24

RESERVED = "pcr."  # columns of this name are the format's, all others the user's
OPAQUE = "opaque"
JPEG = "jpeg"


class LayoutError(ValueError):
    """Bytes that are no record of this version, or contradict themselves.

    Attributes:
        region: the region that is at fault (0: header and metadata), None for the footer.
    """

    def __init__(self, reason: str, region: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.region = region


@dataclass(frozen=True, slots=True)
class Index:
    """Where the regions of one record end, and their sums: what its footer says."""

    images: int
    """N, at least 1."""
    ends: tuple[int, ...]
    """[G + 1] offset of the first byte after each region."""
    sums: tuple[int, ...]
    """[G + 1] xxh3-64 of each region's bytes."""
    msssim: tuple[float, ...]
    """[G] mean MS-SSIM (RGB) of the images that were measured; NaN if none was."""
    measured: int
    """How many images were measured."""

    @property
    def groups(self) -> int:
        """G."""
        return len(self.ends) - 1

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.ends[-1] + footer_size(self.groups)

    def region(self, number: int) -> tuple[int, int]:
        """[start, end) of a region."""
        return (self.ends[number - 1] if number else 0), self.ends[number]


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
        return np.array([kind == OPAQUE for kind in self.table["pcr.kind"].to_pylist()], bool)

    @cached_property
    def orientations(self) -> npt.NDArray[np.uint8]:
        """[N] EXIF orientation, 1..8, still to be applied to the pixels."""
        return self.table["pcr.orientation"].to_numpy().astype(np.uint8)  # type: ignore[no-any-return]

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
    images: Sequence[Image],
    schema: pa.Schema,
    *,
    groups: int,
    settings: Mapping[str, str],
    msssim: Sequence[float] | None = None,
    measured: int = 0,
) -> tuple[list[bytes | memoryview], Index]:
    """The file of one record, in parts to be written one after another, and its index.

    Args:
        images: N of them, N >= 1, each with G pieces.
        schema: the user's columns.
        groups: G.
        settings: text for the schema's metadata.
        msssim: [G] mean over the images that were measured.
        measured: how many were.
    """
    block = _metadata_block(images, schema, groups, settings)
    header = HEADER.pack(MAGIC, VERSION, groups, len(images), len(block))
    start = header + CHECK.pack(google_crc32c.value(header)) + block
    parts: list[bytes | memoryview] = [start]
    sizes, sums = [len(start)], [xxhash.xxh3_64_intdigest(start)]
    for group in range(groups):
        digest = xxhash.xxh3_64()
        size = 0
        for image in images:
            piece = image.pieces[group]
            digest.update(piece)
            size += len(piece)
            parts.append(piece)
        sizes.append(size)
        sums.append(digest.intdigest())
    index = Index(
        images=len(images),
        ends=tuple(accumulate(sizes)),
        sums=tuple(sums),
        msssim=tuple(msssim) if msssim is not None else (math.nan,) * groups,
        measured=measured,
    )
    parts.append(encode_footer(index))
    return parts, index


def _metadata_block(
    images: Sequence[Image], schema: pa.Schema, groups: int, settings: Mapping[str, str]
) -> bytes:
    lengths = np.array([[len(piece) for piece in image.pieces] for image in images], np.uint32)
    crcs = np.array(
        [[google_crc32c.value(bytes(piece)) for piece in image.pieces] for image in images],
        np.uint32,
    )
    fields = [pa.field("id", pa.string(), nullable=False), *schema]
    arrays = [pa.array([image.id for image in images], pa.string())]
    arrays += [
        pa.array([image.columns.get(column.name) for image in images], column.type)
        for column in schema
    ]
    kinds = [JPEG if image.reason is None else OPAQUE for image in images]
    own = {
        "pcr.kind": pa.array(kinds, pa.string()).dictionary_encode(),
        "pcr.reason": pa.array([image.reason for image in images], pa.string()).dictionary_encode(),
        "pcr.width": pa.array([image.width for image in images], pa.uint32()),
        "pcr.height": pa.array([image.height for image in images], pa.uint32()),
        "pcr.orientation": pa.array([image.orientation for image in images], pa.uint8()),
        "pcr.source_size": pa.array([image.source_size for image in images], pa.uint64()),
        "pcr.stripped_size": pa.array([image.stripped_size for image in images], pa.uint64()),
        "pcr.source_xxh3": pa.array([image.source_sum for image in images], pa.uint64()),
        "pcr.lengths": pa.FixedSizeListArray.from_arrays(pa.array(lengths.ravel()), groups),
        "pcr.crc32c": pa.FixedSizeListArray.from_arrays(pa.array(crcs.ravel()), groups),
    }
    fields += [pa.field(name, array.type) for name, array in own.items()]
    arrays += own.values()
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(settings)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def footer_size(groups: int) -> int:
    """Bytes of a footer: ends, sums, MS-SSIM, how many were measured, trailer."""
    return 16 * (groups + 1) + 8 * groups + 4 + TRAILER.size


MAX_FOOTER = footer_size(MAX_GROUPS)


def encode_footer(index: Index) -> bytes:
    """The last bytes of a record."""
    groups = index.groups
    body = struct.pack(
        f"<{groups + 1}Q{groups + 1}Q{groups}dI",
        *index.ends,
        *index.sums,
        *index.msssim,
        index.measured,
    )
    fixed = TRAILER.pack(VERSION, groups, index.images, 0, END_MAGIC)[:8]
    check = google_crc32c.value(body + fixed)
    return body + TRAILER.pack(VERSION, groups, index.images, check, END_MAGIC)


def decode_footer(tail: bytes, size: int) -> Index:
    """The index of a record from the last bytes of its file.

    Args:
        tail: at least the footer; `MAX_FOOTER` bytes always suffice (or the whole file).
        size: bytes of the whole file.

    Raises:
        LayoutError: if this is no footer, it is damaged, or its ends lie outside the file.
    """
    if len(tail) < TRAILER.size or tail[-len(END_MAGIC) :] != END_MAGIC:
        raise LayoutError("the file does not end as a record does: it is cut, or no record")
    version, groups, images, check, _ = TRAILER.unpack(tail[-TRAILER.size :])
    if version != VERSION:
        raise LayoutError(f"the record is of version {version}; this reads version {VERSION}")
    if not 1 <= groups <= MAX_GROUPS or len(tail) < footer_size(groups):
        raise LayoutError(f"the footer claims {groups} groups, which do not fit")
    footer = tail[-footer_size(groups) :]
    if google_crc32c.value(bytes(footer[: -len(END_MAGIC) - CHECK.size])) != check:
        raise LayoutError("the footer's crc32c does not match")
    numbers = struct.unpack(f"<{groups + 1}Q{groups + 1}Q{groups}dI", footer[: -TRAILER.size])
    index = Index(
        images=images,
        ends=numbers[: groups + 1],
        sums=numbers[groups + 1 : 2 * groups + 2],
        msssim=numbers[2 * groups + 2 : -1],
        measured=numbers[-1],
    )
    if index.size != size or any(a > b for a, b in pairwise((HEADER_SIZE, *index.ends))):
        raise LayoutError(f"the footer's offsets do not fit a file of {size:,} bytes")
    return index


def decode_contents(start: bytes | memoryview, index: Index | None = None) -> Contents:
    """The metadata of a record from region 0: its bytes [0, ends[0]).

    Args:
        start: the region; more may follow.
        index: what the footer or the manifest says; then both must agree.

    Raises:
        LayoutError: if the region is damaged, of another version, or contradicts the index.
    """
    view = memoryview(start)
    if len(view) < HEADER_SIZE or bytes(view[: len(MAGIC)]) != MAGIC:
        raise LayoutError("the file does not begin as a record does", 0)
    magic_to_length = bytes(view[: HEADER.size])
    if google_crc32c.value(magic_to_length) != CHECK.unpack(view[HEADER.size : HEADER_SIZE])[0]:
        raise LayoutError("the header's crc32c does not match", 0)
    _, version, groups, images, length = HEADER.unpack(magic_to_length)
    if version != VERSION:
        raise LayoutError(f"the record is of version {version}; this reads version {VERSION}", 0)
    if HEADER_SIZE + length > len(view):
        raise LayoutError(f"the metadata block of {length:,} bytes is cut", 0)
    if not (1 <= groups <= MAX_GROUPS and 1 <= images <= MAX_IMAGES):
        raise LayoutError(f"the header claims {images:,} images in {groups} groups", 0)
    if index is not None:
        if (index.images, index.groups) != (images, groups):
            raise LayoutError("header and index disagree on how many images or groups there are", 0)
        if index.ends[0] != HEADER_SIZE + length:
            raise LayoutError("header and index disagree on where the metadata block ends", 0)
        if xxhash.xxh3_64_intdigest(view[: index.ends[0]]) != index.sums[0]:
            raise LayoutError("the metadata block's xxh3 does not match", 0)
    contents = _decode_block(view[HEADER_SIZE : HEADER_SIZE + length], groups, images)
    if index is not None:
        sizes = contents.starts[-1]
        for group in range(groups):
            first, last = index.region(group + 1)
            if last - first != sizes[group]:
                raise LayoutError("the pieces' lengths do not sum up to their group's", group + 1)
    return contents


def _decode_block(block: memoryview, groups: int, images: int) -> Contents:
    try:
        with pa.ipc.open_stream(pa.py_buffer(block)) as stream:
            table = stream.read_all().combine_chunks()
        table.validate(full=True)
        notes = {
            key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()
        }
        contents = Contents(
            table=table,
            lengths=_matrix(table["pcr.lengths"], groups),
            piece_sums=_matrix(table["pcr.crc32c"], groups),
            settings=notes,
        )
        for name, kind in OWN_COLUMNS.items():
            if table.schema.field(name).type != kind:
                raise LayoutError(f"column {name} is {table.schema.field(name).type}", 0)
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        if isinstance(error, LayoutError):
            raise
        raise LayoutError(f"the metadata block cannot be read: {error}", 0) from error
    if len(table) != images:
        raise LayoutError(f"the metadata block has {len(table):,} rows for {images:,} images", 0)
    return contents


_WORDS = pa.dictionary(pa.int32(), pa.string())
OWN_COLUMNS: Mapping[str, pa.DataType] = {
    "id": pa.string(),
    "pcr.kind": _WORDS,
    "pcr.reason": _WORDS,
    "pcr.width": pa.uint32(),
    "pcr.height": pa.uint32(),
    "pcr.orientation": pa.uint8(),
    "pcr.source_size": pa.uint64(),
    "pcr.stripped_size": pa.uint64(),
    "pcr.source_xxh3": pa.uint64(),
}


def _matrix(column: pa.ChunkedArray, groups: int) -> npt.NDArray[np.uint32]:
    """[N, G] out of a column of lists that all have G numbers."""
    array = column.combine_chunks()
    if array.type != pa.list_(pa.uint32(), groups) or array.null_count:
        raise LayoutError(f"a column of piece numbers is {array.type}", 0)
    return array.flatten().to_numpy().reshape(-1, groups)  # type: ignore[no-any-return]
