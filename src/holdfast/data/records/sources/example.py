"""What a source of images gives, whatever format it is kept in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

import pyarrow as pa

from holdfast.errors import InputError

MAGIC_BYTES = 16
"""How much of a file `image_kind` looks at."""

_STARTS = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2"),
    (b"\xff\x4f\xff\x51", "j2k"),
)
SUFFIXES = frozenset(
    {"jpg", "jpeg", "jpe", "jfif", "png", "gif", "tif", "tiff", "jp2", "j2k", "webp", "bmp", "avif"}
)
"""Suffixes, in lower case, of the images that `image_kind` knows."""


@dataclass(frozen=True, slots=True)
class Example:
    """One image of a source and what is known of it."""

    id: str
    """Unique in its source."""
    data: bytes
    """The image's file, as it is."""
    columns: Mapping[str, object]
    """A value for every column of the source's schema; None where it has none."""


@runtime_checkable
class Source(Protocol):
    """Images in a fixed order, each read by its number; what is held in memory are places, no images."""

    def __len__(self) -> int:
        """How many images there are."""

    @property
    def schema(self) -> pa.Schema:
        """The columns besides the id. A `label` of named classes is int32 with `names` in its metadata."""

    @property
    def ignored(self) -> list[tuple[str, str]]:
        """What was not taken, and why; many of one kind are counted in one entry."""

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """The id and the bytes of every image, in order."""

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The images with the numbers from `start` to before `stop`; may be called by several threads."""


@dataclass(frozen=True)
class Options:
    """User options of a source; each reader uses those that apply to its format."""

    image: str | None = None
    """Column or suffix of the image, if several are possible."""
    label: str | None = None
    """Column that becomes `label`."""
    id: str | None = None
    """Column of the id."""
    drop: frozenset[str] = field(default_factory=frozenset)
    """Columns to leave out."""
    record_set: str | None = None
    """Record set of a Croissant description, if several have images."""


def image_kind(start: bytes) -> str | None:
    """The usual suffix of an image whose file begins so; None if it is not a decodable image.

    Args:
        start: its first `MAGIC_BYTES` bytes.
    """
    for magic, kind in _STARTS:
        if start.startswith(magic):
            return kind
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "webp"
    if start[:2] == b"BM" and start[6:10] == b"\0\0\0\0":
        return "bmp"
    if start[4:12] in (b"ftypavif", b"ftypavis"):
        return "avif"
    return None


def named_as_image(name: str) -> bool:
    """Whether a file calls itself an image, by its suffix; hidden ones do not."""
    path = PurePosixPath(name)
    return path.suffix.lower().removeprefix(".") in SUFFIXES and not path.name.startswith(".")


def check_ids(
    ids: Iterable[str],
    place_of: Mapping[int, str] | None,
    path: Path,
    remedy: str = "rename one of them, or name another column with id=",
) -> None:
    """Refuse a source in which an id stands twice.

    Args:
        ids: in order.
        place_of: number -> where it stands, for the message; None: `path` says enough.
        path: the source.
        remedy: what to do about it.
    """
    first: dict[str, int] = {}
    for number, id_ in enumerate(ids):
        before = first.setdefault(id_, number)
        if before != number:
            places = [
                place_of[n] if place_of is not None else f"image {n:,}" for n in (before, number)
            ]
            raise InputError(
                "two images have the same id",
                code="duplicate",
                path=path,
                place=places[1],
                found=f"{id_!r}, which {places[0]} has too",
                expected="an id that is unique in the source",
                remedy=remedy,
            )


def check_range(start: int, stop: int, count: int) -> None:
    """Refuse numbers that a source does not have."""
    if not 0 <= start <= stop <= count:
        raise IndexError(f"images {start} to {stop} of a source of {count}")


def no_images(path: Path, ignored: list[tuple[str, str]], expected: str) -> InputError:
    """The error of a source without a single image."""
    found = "nothing"
    if ignored:
        name, reason = ignored[0]
        more = f", and {len(ignored) - 1:,} more" if len(ignored) > 1 else ""
        found = f"{name} ({reason}){more}"
    return InputError("no images found", code="no-data", path=path, found=found, expected=expected)
