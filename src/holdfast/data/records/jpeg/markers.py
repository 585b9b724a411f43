"""The markers of a JPEG (ITU-T T.81, annex B): where each segment and all entropy-coded data ends."""

from __future__ import annotations

import re

Buffer = bytes | bytearray | memoryview

SOI, EOI, SOS, DNL, COM, TEM = 0xD8, 0xD9, 0xDA, 0xDC, 0xFE, 0x01
APP0, APP1, APP14, APP15 = 0xE0, 0xE1, 0xEE, 0xEF
RESTARTS = range(0xD0, 0xD8)
TABLES = frozenset({0xC4, 0xCC, 0xDB, 0xDD, 0xDE, 0xDF})  # DHT, DAC, DQT, DRI, DHP, EXP
WITHOUT_BODY = frozenset({EOI, TEM, *RESTARTS})
"""Markers that stand alone, besides SOI."""
FRAMES = frozenset(range(0xC0, 0xD0)) - TABLES - {0xC8}  # SOF0..SOF15; 0xC8 is reserved
SEGMENTS = TABLES | FRAMES | {SOS, DNL, COM, *range(APP0, APP15 + 1)}
"""Markers with a length and a body."""

# In entropy-coded data FF is followed by 00 (a stuffed byte), a restart marker, or another FF (fill).
_MARKER_AFTER_DATA = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


class NotAJpeg(ValueError):
    """Bytes that do not begin as a JPEG does.

    Args:
        reason: what stands there instead.
        offset: where, in bytes.
    """

    def __init__(self, reason: str, offset: int = 0) -> None:
        self.reason = reason
        self.offset = offset
        super().__init__(f"not a JPEG: {reason}")


class DamagedJpeg(ValueError):
    """A JPEG whose markers break the standard: cut short, or with bytes changed.

    Args:
        reason: what is wrong.
        offset: where, in bytes.
    """

    def __init__(self, reason: str, offset: int) -> None:
        self.reason = reason
        self.offset = offset
        super().__init__(f"damaged JPEG: {reason} (byte {offset:,})")


def after_soi(data: Buffer) -> int:
    """Where the first segment of a JPEG starts.

    Raises:
        NotAJpeg: if the data does not begin with SOI and another marker.
    """
    if bytes(data[:2]) != bytes((0xFF, SOI)) or len(data) < 4 or data[2] != 0xFF:
        raise NotAJpeg(f"it begins with {bytes(data[:4]).hex(' ') or 'nothing'}")
    return 2


def segment_at(data: Buffer, at: int) -> tuple[int, int, int]:
    """The marker that must stand at `at`, perhaps after fill bytes, and its body.

    Returns:
        (code of the marker, where its last FF stands, where its segment ends); a marker that has no body
        ends after its code.

    Raises:
        DamagedJpeg: if something else stands there, or the data ends before the segment does.
    """
    try:
        if data[at] != 0xFF:
            raise DamagedJpeg(f"byte {data[at]:02X} where a marker should stand", at)
        at += 1
        while (marker := data[at]) == 0xFF:
            at += 1
        if marker not in SEGMENTS:
            if marker not in WITHOUT_BODY:
                raise DamagedJpeg(f"marker FF{marker:02X} where it has no place", at - 1)
            return marker, at - 1, at + 1
        length = data[at + 1] << 8 | data[at + 2]
    except IndexError:
        raise DamagedJpeg("it ends before EOI", len(data)) from None
    if length < 2:
        raise DamagedJpeg(f"marker FF{marker:02X} has a length of {length}", at - 1)
    end = at + 1 + length
    if end > len(data):
        raise DamagedJpeg("it ends inside a segment", len(data))
    return marker, at - 1, end


def entropy_end(data: Buffer, at: int) -> int:
    """Where the entropy-coded data that starts at `at` ends: at a marker, or at fill bytes before it.

    Raises:
        DamagedJpeg: if no marker ends it.
    """
    found = _MARKER_AFTER_DATA.search(data, at)
    if found is None:
        raise DamagedJpeg("it ends inside a scan", len(data))
    end = found.start()
    while end > at and data[end - 1] == 0xFF:
        end -= 1
    return end
