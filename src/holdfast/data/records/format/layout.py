"""The `.pcr` file, version 1: one record of N images at G fidelities. `docs/formats/pcr.md` specifies it.

    header | metadata block | group 1 | ... | group G | footer

*Region* 0 is the header and the metadata block, region g is group g: the g-th pieces of all images, one
after another. So the bytes [0, ends[g]) hold every image at fidelity g, and one sequential read gets them.
The metadata block is a table with one row per image (`block.py`); the footer holds the ends and the
checksums of the regions, and is found from the end of the file.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import google_crc32c
import pyarrow as pa
import xxhash

from holdfast.data.records.format import block
from holdfast.data.records.format.block import OWN_COLUMNS as OWN_COLUMNS
from holdfast.data.records.format.block import RESERVED as RESERVED
from holdfast.data.records.format.block import Contents as Contents
from holdfast.data.records.format.block import Image as Image
from holdfast.data.records.format.block import LayoutError as LayoutError
from holdfast.data.records.format.block import OtherVersion as OtherVersion
from holdfast.errors import InputError

MAGIC = b"\x89PCR\r\n\x1a\n"  # as PNG's: a transfer that changes line ends or the eighth bit shows
END_MAGIC = b"PCR.END\n"
VERSION = 1
HEADER = struct.Struct("<8sHHIQQ")  # magic, version, groups, images, block: its bytes, unpacked
CHECK = struct.Struct("<I")  # crc32c of the header
HEADER_SIZE = HEADER.size + CHECK.size
TRAILER = struct.Struct("<HHII8s")  # version, groups, images, crc32c of the footer, end magic
MAX_GROUPS = 64
MAX_IMAGES = 1 << 24


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

    Raises:
        InputError: if a column cannot be kept, a value does not fit its column, or an id stands twice.
        LimitError: if a piece is too large.
    """
    _check_counts(images, groups)
    stream = block.encode(images, schema, groups, settings)
    metadata = block.pack(stream)
    header = HEADER.pack(MAGIC, VERSION, groups, len(images), len(metadata), len(stream))
    start = header + CHECK.pack(google_crc32c.value(header)) + metadata
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


def _check_counts(images: Sequence[Image], groups: int) -> None:
    if not (1 <= groups <= MAX_GROUPS and 1 <= len(images) <= MAX_IMAGES):
        raise ValueError(f"a record of {len(images):,} images in {groups} groups")
    ((commonest, times),) = Counter(image.id for image in images).most_common(1)
    if times > 1:
        raise InputError(
            f"{times} images have one id",
            code="duplicate",
            found=commonest,
            remedy="give each image a unique id",
        )


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
        LayoutError: if this is not a footer, it is damaged, or its ends lie outside the file.
    """
    if len(tail) < TRAILER.size or tail[-len(END_MAGIC) :] != END_MAGIC:
        raise LayoutError("the file does not end as a record does: cut off, or not a record")
    version, groups, images, check, _ = TRAILER.unpack(tail[-TRAILER.size :])
    if version != VERSION:
        raise LayoutError(f"the record is of version {version}; this reads version {VERSION}")
    if not 1 <= groups <= MAX_GROUPS or len(tail) < footer_size(groups):
        raise LayoutError(f"the footer claims {groups} groups, which do not fit")
    if not 1 <= images <= MAX_IMAGES:
        raise LayoutError(f"the footer claims {images:,} images")
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
    fields = bytes(view[: HEADER.size])
    if google_crc32c.value(fields) != CHECK.unpack(view[HEADER.size : HEADER_SIZE])[0]:
        raise LayoutError("the header's crc32c does not match", 0)
    _, version, groups, images, length, unpacked = HEADER.unpack(fields)
    if version != VERSION:
        raise OtherVersion(f"the record is of version {version}; this reads version {VERSION}", 0)
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
    stream = block.unpack(view[HEADER_SIZE : HEADER_SIZE + length], unpacked)
    contents = block.decode(stream, groups, images)
    if index is not None:
        sizes = contents.starts[-1]
        for group in range(groups):
            first, last = index.region(group + 1)
            if last - first != sizes[group]:
                raise LayoutError("the pieces' lengths do not sum up to their group's", group + 1)
    return contents
