"""The one tag of EXIF that changes what a picture shows: its orientation."""

from __future__ import annotations

import struct
from typing import Literal

from holdfast.data.records.markers import Buffer

SIGNATURE = b"Exif\0\0"
"""How the body of an APP1 segment with EXIF begins; a TIFF structure follows."""

_TAG = 0x0112
_BYTES_OF_TYPE = {1: 1, 3: 2, 4: 4}  # BYTE, SHORT, LONG; the standard says SHORT


def orientation_in(tiff: Buffer) -> int | None:
    """The orientation 1..8 that a TIFF structure gives; None if it gives none that makes sense."""
    order: Literal["little", "big"] = "little" if bytes(tiff[:2]) == b"II" else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], order)  # 0 beyond the end

    if bytes(tiff[:2]) not in (b"II", b"MM") or number(2, 2) != 42:
        return None
    directory = number(4, 4)
    entries = min(number(directory, 2), len(tiff) // 12)
    for at in range(directory + 2, directory + 2 + 12 * entries, 12):
        if number(at, 2) == _TAG:
            value = number(at + 8, _BYTES_OF_TYPE.get(number(at + 2, 2), 0))
            return value if 1 <= value <= 8 else None
    return None


def orientation_segment(orientation: int) -> bytes:
    """An APP1 segment of EXIF that carries an orientation and nothing else: 36 bytes."""
    if not 1 <= orientation <= 8:
        raise ValueError(f"an EXIF orientation is 1..8, not {orientation}")
    directory = struct.pack(">HHHIHHI", 1, _TAG, 3, 1, orientation, 0, 0)
    body = SIGNATURE + b"MM\0*" + struct.pack(">I", 8) + directory
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
