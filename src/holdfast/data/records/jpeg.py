"""The markers of a JPEG (ITU-T T.81, annex B): its frame, its scans and where each begins and ends.

Nothing is decoded: entropy-coded data is passed over by looking for the marker that ends it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import LimitError

Buffer = bytes | bytearray | memoryview
Process = Literal["baseline", "extended", "progressive", "lossless", "other"]
Color = Literal["ycbcr", "grey", "rgb", "cmyk", "ycck", "other"]

SOI = b"\xff\xd8"
EOI = b"\xff\xd9"

_SOI, _EOI, _SOS, _DNL, _COM = 0xD8, 0xD9, 0xDA, 0xDC, 0xFE
_APP0, _APP1, _APP14, _APP15 = 0xE0, 0xE1, 0xEE, 0xEF
_TEM, _RST0, _RST7 = 0x01, 0xD0, 0xD7
_TABLES = frozenset({0xC4, 0xCC, 0xDB, 0xDD, 0xDE, 0xDF})  # DHT, DAC, DQT, DRI, DHP, EXP
_FRAMES: dict[int, Process] = {
    0xC0: "baseline",
    0xC1: "extended",
    0xC2: "progressive",
    0xC3: "lossless",
    0xC9: "extended",
    0xCA: "progressive",
    0xCB: "lossless",
    # Frames that are differences to an earlier one (hierarchical process).
    **dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "other"),
}
_ARITHMETIC = frozenset({0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})

# In entropy-coded data FF is followed by 00 (a stuffed byte), a restart marker, or another FF (fill).
_MARKER_AFTER_DATA = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)

_COMPONENT_IDS_RGB = (ord("R"), ord("G"), ord("B"))
_ORIENTATION_TAG = 0x0112
_EXIF = b"Exif\0\0"


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


@dataclass(frozen=True, slots=True)
class Component:
    """One component of the frame."""

    id: int
    """Its identifier, by which scans name it."""
    h: int
    """Horizontal sampling factor, 1..4."""
    v: int
    """Vertical sampling factor, 1..4."""


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan: the bytes `[start, end)` and what of which components they carry."""

    start: int
    """Where the tables before the scan's SOS begin; 0 for the first scan (SOI and headers are its own)."""
    end: int
    """Where its entropy-coded data ends."""
    components: tuple[int, ...]
    """Indices into `Jpeg.components`."""
    ss: int
    """First coefficient of the band, in zigzag order."""
    se: int
    """Last coefficient of the band."""
    ah: int
    """Successive approximation: the bit position before this scan; 0 for a first scan."""
    al: int
    """Successive approximation: the bit position after this scan."""


@dataclass(frozen=True, slots=True)
class Segment:
    """An APPn or COM segment, marker and length included: the bytes `[start, end)`."""

    marker: int
    """0xE0..0xEF (APP0..APP15) or 0xFE (COM)."""
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Jpeg:
    """What the markers of a JPEG say."""

    width: int
    """Samples a line, before any orientation is applied."""
    height: int
    """Lines; taken from DNL where the frame leaves it open."""
    precision: int
    """Bits a sample."""
    process: Process
    """Coding process; ``other`` is hierarchical."""
    arithmetic: bool
    """Whether the entropy coding is arithmetic instead of Huffman."""
    components: tuple[Component, ...]
    color: Color
    """The colour space that libjpeg would assume: by JFIF, else Adobe's transform, else component ids."""
    orientation: int
    """EXIF orientation 1..8; 1 where there is none."""
    scans: tuple[Scan, ...]
    metadata: tuple[Segment, ...]
    """APPn and COM segments, except JFIF's APP0 and Adobe's APP14, which say how to decode."""
    end: int
    """Where the image ends, EOI included; what follows is no part of it."""
    frame: int
    """Where the frame header's marker stands."""
    dnl: int | None
    """Where the DNL segment stands that gave the height; None where the frame header did."""

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the segments in `metadata`, markers included."""
        return sum(segment.end - segment.start for segment in self.metadata)

    @property
    def stripped_bytes(self) -> int:
        """Bytes of the image without its metadata and without what follows EOI."""
        return self.end - self.metadata_bytes

    @property
    def opaque_because(self) -> str | None:
        """Why the image has no lossless progressive form of at most 10 scans; None where it has one."""
        if self.process in ("lossless", "other"):
            kind = "lossless" if self.process == "lossless" else "hierarchical"
            return f"{kind} JPEG"
        if self.precision != 8:
            return f"{self.precision}-bit JPEG"
        if self.color in ("cmyk", "ycck"):
            return f"{self.color.upper()} JPEG"
        if self.color == "other":
            return f"JPEG of {len(self.components)} components"
        return None


@dataclass(slots=True)
class _Frame:
    """The frame header, and what is learnt about it later."""

    offset: int
    process: Process
    arithmetic: bool
    precision: int
    width: int
    height: int
    components: tuple[Component, ...]
    dnl: int | None = None


def parse(data: Buffer, *, max_scans: int = 500, max_pixels: int = 2**28) -> Jpeg:
    """Reads the markers of a JPEG from SOI to EOI.

    Args:
        data: the file. Bytes after EOI are left alone.
        max_scans: more scans are refused: a small file of many scans takes hours to decode.
        max_pixels: a larger frame is refused: headers may promise gigabytes.

    Raises:
        NotAJpeg: if the data does not begin with SOI and a marker.
        DamagedJpeg: if the markers break the standard, or the file ends before EOI.
        LimitError: past `max_scans` or `max_pixels`.
    """
    frame: _Frame | None = None
    scans: list[Scan] = []
    metadata: list[Segment] = []
    jfif = False
    adobe: int | None = None
    orientation = 0
    at = _after_soi(data)
    scan_start = 0
    while True:
        marker, start = _marker(data, at)
        if marker == _EOI:
            end = start + 2
            break
        if marker == _TEM or _RST0 <= marker <= _RST7:
            at = start + 2
            continue
        at = _segment_end(data, start)
        if marker == _SOS:
            if frame is None:
                raise DamagedJpeg("a scan before any frame header", start)
            data_end = _end_of_data(data, at)
            scans.append(_scan(data, start, at, frame, scan_start, data_end))
            if len(scans) > max_scans:
                raise LimitError(
                    "a JPEG has too many scans",
                    needed=f"more than {max_scans:,} scans",
                    allowed=f"{max_scans:,} scans",
                    remedy="leave the image out, or save it anew with an ordinary progressive script",
                )
            at = scan_start = data_end
        elif marker in _FRAMES:
            if frame is None:
                frame = _frame(data, marker, start, at)
                _check_pixels(frame, max_pixels)
            elif frame.process == "other" or _FRAMES[marker] == "other":
                frame.process = "other"
            else:
                raise DamagedJpeg("a second frame header", start)
        elif marker == _DNL:
            if frame is not None and frame.height == 0 and scans:
                frame.height = _lines(data, start, at)
                frame.dnl = start
                _check_pixels(frame, max_pixels)
        elif _APP0 <= marker <= _APP15 or marker == _COM:
            body = bytes(data[start + 4 : min(at, start + 18)])
            if marker == _APP0 and len(body) >= 14 and body[:5] == b"JFIF\0":
                jfif = True
            elif marker == _APP14 and len(body) >= 12 and body[:5] == b"Adobe":
                adobe = body[11]
            else:
                metadata.append(Segment(marker, start, at))
                if marker == _APP1 and not orientation and body[:6] == _EXIF:
                    orientation = _exif_orientation(data[start + 10 : at])
        elif marker not in _TABLES:
            raise DamagedJpeg(f"marker FF{marker:02X} is none of JPEG's", start)
    if frame is None:
        raise DamagedJpeg("no frame header", end - 2)
    if not scans:
        raise DamagedJpeg("no scan", end - 2)
    if frame.height == 0:
        raise DamagedJpeg("a height of 0 and no DNL that gives it", frame.offset)
    return Jpeg(
        width=frame.width,
        height=frame.height,
        precision=frame.precision,
        process=frame.process,
        arithmetic=frame.arithmetic,
        components=frame.components,
        color=_color(frame.components, jfif, adobe),
        orientation=orientation or 1,
        scans=tuple(scans),
        metadata=tuple(metadata),
        end=end,
        frame=frame.offset,
        dnl=frame.dnl,
    )


# --- EXIF orientation ----------------------------------------------------------------------------


def orientation(data: Buffer) -> int:
    """The EXIF orientation 1..8 of a JPEG; 1 where it has none. Only its headers are read.

    Raises:
        NotAJpeg: as `parse`.
        DamagedJpeg: if the headers break off before the first scan.
    """
    at = _after_soi(data)
    while True:
        marker, start = _marker(data, at)
        if marker in (_SOS, _EOI):
            return 1
        at = start + 2
        if marker == _TEM or _RST0 <= marker <= _RST7:
            continue
        at = _segment_end(data, start)
        if marker == _APP1 and bytes(data[start + 4 : start + 10]) == _EXIF:
            return _exif_orientation(data[start + 10 : at]) or 1


def orientation_segment(orientation: int) -> bytes:
    """An APP1 segment of EXIF that carries an orientation and nothing else: 36 bytes."""
    if not 1 <= orientation <= 8:
        raise ValueError(f"an EXIF orientation is 1..8, not {orientation}")
    directory = struct.pack(">HHHIHHI", 1, _ORIENTATION_TAG, 3, 1, orientation, 0, 0)
    body = _EXIF + b"MM\0*" + struct.pack(">I", 8) + directory
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body


def with_segments(data: bytes, segments: bytes) -> bytes:
    """A JPEG with segments put where readers look for them: after SOI and JFIF's APP0, if it has one."""
    at = 2
    if data[2:4] == b"\xff\xe0" and data[6:11] == b"JFIF\0":
        at = _segment_end(data, 2)
    return data[:at] + segments + data[at:]


def with_height(data: Buffer, jpeg: Jpeg) -> bytes:
    """The image with the height of its DNL segment in the frame header, and without that segment.

    Most decoders do not know DNL. Entropy-coded data stays as it is.
    """
    if jpeg.dnl is None:
        return bytes(data)
    at = jpeg.frame + 5  # marker, length, precision
    after = _segment_end(data, jpeg.dnl)
    height = struct.pack(">H", jpeg.height)
    return b"".join((data[:at], height, data[at + 2 : jpeg.dnl], data[after:]))


# --- One marker or segment -----------------------------------------------------------------------


def _after_soi(data: Buffer) -> int:
    if bytes(data[:2]) != SOI or len(data) < 4 or data[2] != 0xFF:
        raise NotAJpeg(f"it begins with {bytes(data[:4]).hex(' ') or 'nothing'}")
    return 2


def _marker(data: Buffer, at: int) -> tuple[int, int]:
    """(code of the marker that must stand at `at`, where it starts), fill bytes passed over."""
    size = len(data)
    if at >= size:
        raise DamagedJpeg("it ends before EOI", size)
    if data[at] != 0xFF:
        raise DamagedJpeg(f"byte {data[at]:02X} where a marker should stand", at)
    at += 1
    while at < size and data[at] == 0xFF:
        at += 1
    if at == size:
        raise DamagedJpeg("it ends before EOI", size)
    return data[at], at - 1


def _segment_end(data: Buffer, start: int) -> int:
    """Where the segment ends whose marker starts at `start`."""
    if start + 4 > len(data):
        raise DamagedJpeg("it ends inside a segment", len(data))
    length = data[start + 2] << 8 | data[start + 3]
    if length < 2:
        raise DamagedJpeg(f"marker FF{data[start + 1]:02X} has a length of {length}", start)
    if start + 2 + length > len(data):
        raise DamagedJpeg("it ends inside a segment", len(data))
    return start + 2 + length


def _end_of_data(data: Buffer, at: int) -> int:
    """Where the entropy-coded data that starts at `at` ends: the marker after it, or fill before that."""
    found = _MARKER_AFTER_DATA.search(data, at)
    if found is None:
        raise DamagedJpeg("it ends inside a scan", len(data))
    end = found.start()
    while end > at and data[end - 1] == 0xFF:
        end -= 1
    return end


def _frame(data: Buffer, marker: int, start: int, end: int) -> _Frame:
    if end - start < 10:
        raise DamagedJpeg("a frame header too short for its fields", start)
    precision, height, width, count = struct.unpack_from(">BHHB", data, start + 4)
    if end - start != 10 + 3 * count or not count:
        raise DamagedJpeg(f"a frame header whose length does not fit {count} components", start)
    if not width:
        raise DamagedJpeg("a width of 0", start)
    components = tuple(
        Component(data[at], data[at + 1] >> 4, data[at + 1] & 15)
        for at in range(start + 10, end, 3)
    )
    if any(not (1 <= part.h <= 4 and 1 <= part.v <= 4) for part in components):
        raise DamagedJpeg("a sampling factor outside 1..4", start)
    if len({part.id for part in components}) < count:
        raise DamagedJpeg("two components of one id", start)
    return _Frame(
        offset=start,
        process=_FRAMES[marker],
        arithmetic=marker in _ARITHMETIC,
        precision=precision,
        width=width,
        height=height,
        components=components,
    )


def _check_pixels(frame: _Frame, max_pixels: int) -> None:
    if frame.width * frame.height > max_pixels:
        raise LimitError(
            "a JPEG is too large",
            needed=f"{frame.width:,} x {frame.height:,} pixels",
            allowed=f"{max_pixels:,} pixels",
            remedy="leave the image out, or cut it into parts",
        )


def _scan(data: Buffer, sos: int, end: int, frame: _Frame, start: int, data_end: int) -> Scan:
    """The scan whose SOS segment is `[sos, end)`."""
    count = data[sos + 4] if end - sos > 4 else 0
    if not 1 <= count <= 4 or end - sos != 8 + 2 * count:
        raise DamagedJpeg("a scan header whose length does not fit its components", sos)
    places = {part.id: index for index, part in enumerate(frame.components)}
    try:
        components = tuple(places[data[sos + 5 + 2 * index]] for index in range(count))
    except KeyError as error:
        raise DamagedJpeg(f"a scan of component {error}, which the frame lacks", sos) from None
    ss, se, approximation = data[end - 3], data[end - 2], data[end - 1]
    ah, al = approximation >> 4, approximation & 15
    if frame.process == "progressive" and not (
        ss <= se <= 63 and al <= 13 and (se == 0) == (ss == 0) and (ss == 0 or count == 1)
    ):
        raise DamagedJpeg(f"a progressive scan of band {ss}-{se}, bits {ah}-{al}", sos)
    return Scan(start, data_end, components, ss, se, ah, al)


def _lines(data: Buffer, start: int, end: int) -> int:
    """The height that a DNL segment gives."""
    lines = data[start + 4] << 8 | data[start + 5] if end - start == 6 else 0
    if not lines:
        raise DamagedJpeg("a DNL segment that gives no height", start)
    return lines


def _color(components: tuple[Component, ...], jfif: bool, adobe: int | None) -> Color:
    """The colour space as libjpeg settles it (`default_decompress_parms` of its jdapimin.c)."""
    if len(components) == 1:
        return "grey"
    if len(components) == 3:
        if jfif:
            return "ycbcr"
        if adobe is not None:
            return "rgb" if adobe == 0 else "ycbcr"
        return "rgb" if tuple(part.id for part in components) == _COMPONENT_IDS_RGB else "ycbcr"
    if len(components) == 4:
        return "cmyk" if not adobe else "ycck"
    return "other"


def _exif_orientation(exif: Buffer) -> int:
    """The orientation tag of a TIFF structure; 0 where it has none that makes sense."""
    order: Literal["little", "big"] = "little" if bytes(exif[:2]) == b"II" else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(exif[at : at + size], order)  # beyond the end: 0

    if number(2, 2) != 42:
        return 0
    directory = number(4, 4)
    for entry in range(number(directory, 2)):
        at = directory + 2 + 12 * entry
        if at + 12 > len(exif):
            return 0
        if number(at, 2) == _ORIENTATION_TAG:
            size = {1: 1, 3: 2, 4: 4}.get(number(at + 2, 2), 0)  # BYTE, SHORT, LONG
            value = number(at + 8, size)
            return value if 1 <= value <= 8 else 0
    return 0
