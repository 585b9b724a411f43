"""The one tag of EXIF that changes what a picture shows: its orientation."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from holdfast.data.records.jpeg.markers import Buffer

SIGNATURE = b"Exif\0\0"
"""How the body of an APP1 segment with EXIF begins; a TIFF structure follows."""

_TAG = 0x0112
_BYTES_OF_TYPE = {1: 1, 3: 2, 4: 4}  # BYTE, SHORT, LONG; the standard says SHORT


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the value of the orientation tag stands in a TIFF structure."""

    at: int
    size: int
    """Size in bytes; 0 if its type is not an integer."""
    order: Literal["little", "big"]


def orientation_in(tiff: Buffer) -> int | None:
    """The orientation 1..8 that a TIFF structure gives; None if it gives none that makes sense."""
    place = _place_in(tiff)
    if place is None:
        return None
    value = int.from_bytes(tiff[place.at : place.at + place.size], place.order)
    return value if 1 <= value <= 8 else None


def orientation_segment(orientation: int) -> bytes:
    """An APP1 segment of EXIF that carries an orientation and nothing else: 36 bytes."""
    _check(orientation)
    directory = struct.pack(">HHHIHHI", 1, _TAG, 3, 1, orientation, 0, 0)
    body = SIGNATURE + b"MM\0*" + struct.pack(">I", 8) + directory
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body


def with_orientation(segment: bytes, orientation: int) -> bytes:
    """An APP1 segment of EXIF with its orientation tag set; as it is where it has no such tag."""
    _check(orientation)
    tiff = 4 + len(SIGNATURE)
    place = _place_in(segment[tiff:])
    if place is None:
        return segment
    at = tiff + place.at
    value = orientation.to_bytes(place.size, place.order) if place.size else b""
    return segment[:at] + value + segment[at + place.size :]


def _place_in(tiff: Buffer) -> _Place | None:
    """Where the first image directory has the tag, whole; None if it lacks it."""
    if bytes(tiff[:2]) not in (b"II", b"MM"):
        return None
    order: Literal["little", "big"] = "little" if bytes(tiff[:2]) == b"II" else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], order)

    directory = number(4, 4)
    if number(2, 2) != 42 or directory + 2 > len(tiff):
        return None
    entries = min(number(directory, 2), (len(tiff) - directory - 2) // 12)
    for at in range(directory + 2, directory + 2 + 12 * entries, 12):
        if number(at, 2) == _TAG:
            return _Place(at + 8, _BYTES_OF_TYPE.get(number(at + 2, 2), 0), order)
    return None


def _check(orientation: int) -> None:
    if not 1 <= orientation <= 8:
        raise ValueError(f"an EXIF orientation is 1..8, not {orientation}")
