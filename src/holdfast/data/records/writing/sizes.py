"""Width and height of images that are stored unchanged, from their headers: nothing is decoded."""

from __future__ import annotations

import struct

_NO_FRAMES = (0xC4, 0xC8, 0xCC)  # DHT, JPG and DAC, among the markers of JPEG's frames


def size_of(data: bytes) -> tuple[int, int]:
    """(width, height) as stored of a JPEG (damaged ones, too), PNG, GIF, BMP or WebP; else (0, 0)."""
    try:
        if data[:2] == b"\xff\xd8":
            return _jpeg(data)
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
            return struct.unpack_from(">II", data, 16)
        if data[:4] == b"GIF8":
            return struct.unpack_from("<HH", data, 6)
        if data[:2] == b"BM":
            if struct.unpack_from("<I", data, 14)[0] < 40:  # OS/2's header
                return 0, 0
            width, height = struct.unpack_from("<ii", data, 18)
            return width, abs(height)  # negative where the first line is the uppermost
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except struct.error:  # the header is cut
        pass
    return 0, 0


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while True:
        mark, marker, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF or marker == 0xDA:
            return 0, 0
        if marker == 0xFF:  # padding
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return (width, height) if height else (0, 0)
        else:
            at += 2 + length


def _webp(data: bytes) -> tuple[int, int]:
    if data[12:16] == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if data[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return 0, 0
