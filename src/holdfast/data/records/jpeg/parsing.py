"""What the markers of a JPEG say: its frame, its scans and where each begins and ends.

Nothing is decoded: entropy-coded data is passed over by looking for the marker that ends it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, NamedTuple

from holdfast.data.records.jpeg import exif, markers
from holdfast.data.records.jpeg.exif import orientation_segment
from holdfast.data.records.jpeg.markers import Buffer, DamagedJpeg, NotAJpeg, segment_at
from holdfast.errors import LimitError

__all__ = [
    "EOI",
    "Buffer",
    "Component",
    "DamagedJpeg",
    "Jpeg",
    "NotAJpeg",
    "Scan",
    "Segment",
    "orientation",
    "orientation_segment",
    "parse",
    "with_height",
    "with_segments",
]

EOI = b"\xff\xd9"

MOST_SCANS = 500
MOST_PIXELS = 2**28

Process = Literal["baseline", "extended", "progressive", "lossless", "other"]
Color = Literal["ycbcr", "grey", "rgb", "cmyk", "ycck", "other"]

_FRAMES: dict[int, Process] = {
    0xC0: "baseline",
    0xC1: "extended",
    0xC2: "progressive",
    0xC3: "lossless",
    0xC9: "extended",
    0xCA: "progressive",
    0xCB: "lossless",
    # Frames that are differences to an earlier one (hierarchical process).
    0xC5: "other",
    0xC6: "other",
    0xC7: "other",
    0xCD: "other",
    0xCE: "other",
    0xCF: "other",
}
_ARITHMETIC = frozenset({0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_IDS_OF_RGB = tuple(b"RGB")


class Component(NamedTuple):
    """One component of the frame."""

    id: int
    """Its identifier, by which scans name it."""
    h: int
    """Horizontal sampling factor, 1..4."""
    v: int
    """Vertical sampling factor, 1..4."""


class Scan(NamedTuple):
    """One scan: the bytes `[start, end)`, and what of which components they carry."""

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
    """Successive approximation: the bit position before this scan; 0 for the first scan of a band."""
    al: int
    """Successive approximation: the bit position after this scan."""


class Segment(NamedTuple):
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
    """End of the image, including EOI; what follows does not belong to it."""
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
        """Why the image is not to be transcoded; None if it is.

        Readers decode 8-bit grey, YCbCr and RGB; the JPEG library has no more than that.
        """
        if self.process == "other":
            return "hierarchical JPEG"
        if self.process == "lossless":
            return "lossless JPEG"
        if self.precision != 8:
            return f"{self.precision}-bit JPEG"
        if self.color in ("cmyk", "ycck"):
            return f"{self.color.upper()} JPEG"
        if self.color == "other":
            return f"JPEG of {len(self.components)} components"
        return None


def parse(data: Buffer, *, max_scans: int = MOST_SCANS, max_pixels: int = MOST_PIXELS) -> Jpeg:
    """Reads the markers of a JPEG from SOI to EOI.

    Args:
        data: the file. Bytes after EOI are left alone.
        max_scans: more scans are refused: a small file of many scans takes hours to decode.
        max_pixels: a larger frame is refused: headers may promise gigabytes.

    Raises:
        NotAJpeg: if the data does not begin with SOI and another marker.
        DamagedJpeg: if the markers break the standard, or the data ends before EOI.
        LimitError: past `max_scans` or `max_pixels`.
    """
    return _Reader(data, max_scans, max_pixels).read()


def orientation(data: Buffer) -> int:
    """The EXIF orientation 1..8 of a JPEG; 1 where it has none. Only its headers are read.

    Raises:
        NotAJpeg: as `parse`.
        DamagedJpeg: if the headers break off before the first scan.
    """
    at = markers.after_soi(data)
    while True:
        marker, start, at = segment_at(data, at)
        if marker in (markers.SOS, markers.EOI):
            return 1
        if marker == markers.APP1 and (found := _exif_orientation(data, start, at)):
            return found


def with_segments(data: bytes, segments: bytes) -> bytes:
    """A JPEG with segments put where readers look for them: after SOI and JFIF's APP0, if it has one."""
    at = 2
    if data[2:4] == b"\xff\xe0" and data[6:11] == b"JFIF\0":
        _, _, at = segment_at(data, 2)
    return b"".join((data[:at], segments, data[at:]))


def with_height(data: Buffer, jpeg: Jpeg) -> bytes:
    """The image with the height of its DNL segment in the frame header, and without that segment.

    Most decoders do not know DNL. Entropy-coded data stays as it is.
    """
    if jpeg.dnl is None:
        return bytes(data)
    at = jpeg.frame + 5  # marker, length, precision
    _, _, after = segment_at(data, jpeg.dnl)
    height = struct.pack(">H", jpeg.height)
    return b"".join((data[:at], height, data[at + 2 : jpeg.dnl], data[after:]))


# --- Reading -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Frame:
    """The frame header; its height is 0 until DNL gives it, its process ``other`` once there are two."""

    offset: int
    process: Process
    arithmetic: bool
    precision: int
    width: int
    height: int
    components: tuple[Component, ...]
    index_of_id: dict[int, int]


class _Reader:
    """Goes from marker to marker, and keeps what they say."""

    def __init__(self, data: Buffer, max_scans: int, max_pixels: int) -> None:
        self.data = data
        self.max_scans = max_scans
        self.max_pixels = max_pixels
        self.frame: _Frame | None = None
        self.dnl: int | None = None
        self.scans: list[Scan] = []
        self.metadata: list[Segment] = []
        self.jfif = False
        self.adobe: int | None = None
        self.orientation: int | None = None

    def read(self) -> Jpeg:
        data = self.data
        at = markers.after_soi(data)
        while True:
            marker, start, at = segment_at(data, at)
            if marker == markers.SOS:
                at = self.scan(start, at)
            elif marker in markers.TABLES:
                continue
            elif marker in _FRAMES:
                self.frame_header(marker, start, at)
            elif marker == markers.DNL:
                self.lines(start, at)
            elif marker == markers.EOI:
                return self.jpeg(at)
            elif marker not in markers.WITHOUT_BODY:
                self.application(marker, start, at)

    def jpeg(self, end: int) -> Jpeg:
        frame = self.frame
        if frame is None:
            raise DamagedJpeg("no frame header", end - 2)
        if not self.scans:
            raise DamagedJpeg("no scan", end - 2)
        if not frame.height:
            raise DamagedJpeg("a height of 0, and no DNL segment that gives it", frame.offset)
        return Jpeg(
            width=frame.width,
            height=frame.height,
            precision=frame.precision,
            process=frame.process,
            arithmetic=frame.arithmetic,
            components=frame.components,
            color=_color(frame.components, self.jfif, self.adobe),
            orientation=self.orientation or 1,
            scans=tuple(self.scans),
            metadata=tuple(self.metadata),
            end=end,
            frame=frame.offset,
            dnl=self.dnl,
        )

    def frame_header(self, marker: int, start: int, end: int) -> None:
        frame = _frame(self.data, marker, start, end)
        if self.frame is None:
            self.frame = frame
            self.check_pixels(frame)
        elif "other" in (self.frame.process, frame.process):
            self.frame.process = "other"
        else:
            raise DamagedJpeg("a second frame header", start)

    def scan(self, start: int, end: int) -> int:
        """Keeps the scan whose SOS segment is `[start, end)`; where its data ends."""
        if self.frame is None:
            raise DamagedJpeg("a scan before any frame header", start)
        if len(self.scans) == self.max_scans:
            raise LimitError(
                "a JPEG has too many scans",
                needed=f"more than {self.max_scans:,} scans",
                allowed=f"{self.max_scans:,} scans",
                remedy="leave the image out, or save it anew with an ordinary progressive script",
            )
        first = self.scans[-1].end if self.scans else 0
        last = markers.entropy_end(self.data, end)
        self.scans.append(_scan(self.data, start, end, self.frame, first, last))
        return last

    def lines(self, start: int, end: int) -> None:
        """Takes the height from a DNL segment, where the frame header leaves it open."""
        frame = self.frame
        if frame is None or frame.height:
            return
        lines = int.from_bytes(self.data[start + 4 : end], "big") if end - start == 6 else 0
        if not lines:
            raise DamagedJpeg("a DNL segment that gives no height", start)
        frame.height = lines
        self.dnl = start
        self.check_pixels(frame)

    def application(self, marker: int, start: int, end: int) -> None:
        """Keeps an APPn or COM segment, and what it says about colours and orientation."""
        body = bytes(self.data[start + 4 : min(end, start + 18)])
        if marker == markers.APP0 and len(body) == 14 and body.startswith(b"JFIF\0"):
            self.jfif = True
        elif marker == markers.APP14 and len(body) >= 12 and body.startswith(b"Adobe"):
            self.adobe = body[11]
        else:
            self.metadata.append(Segment(marker, start, end))
            if marker == markers.APP1 and self.orientation is None and not self.scans:
                self.orientation = _exif_orientation(self.data, start, end)

    def check_pixels(self, frame: _Frame) -> None:
        if frame.width * frame.height > self.max_pixels:
            raise LimitError(
                "a JPEG is too large",
                needed=f"{frame.width:,} x {frame.height:,} pixels",
                allowed=f"{self.max_pixels:,} pixels",
                remedy="leave the image out, or cut it into parts",
            )


def _frame(data: Buffer, marker: int, start: int, end: int) -> _Frame:
    """The frame header `[start, end)`."""
    if end - start < 10:
        raise DamagedJpeg("a frame header too short for its fields", start)
    precision, height, width, count = struct.unpack_from(">BHHB", data, start + 4)
    if not count or end - start != 10 + 3 * count:
        raise DamagedJpeg(f"a frame header whose length does not fit {count} components", start)
    if not width:
        raise DamagedJpeg("a width of 0", start)
    components = tuple(
        Component(data[at], data[at + 1] >> 4, data[at + 1] & 15)
        for at in range(start + 10, end, 3)
    )
    if any(not (1 <= part.h <= 4 and 1 <= part.v <= 4) for part in components):
        raise DamagedJpeg("a sampling factor outside 1..4", start)
    index_of_id = {part.id: index for index, part in enumerate(components)}
    if len(index_of_id) < count:
        raise DamagedJpeg("two components of one id", start)
    return _Frame(
        offset=start,
        process=_FRAMES[marker],
        arithmetic=marker in _ARITHMETIC,
        precision=precision,
        width=width,
        height=height,
        components=components,
        index_of_id=index_of_id,
    )


def _scan(data: Buffer, start: int, end: int, frame: _Frame, first: int, last: int) -> Scan:
    """The scan with bytes `[first, last)` whose SOS segment is `[start, end)`."""
    count = data[start + 4] if end - start > 4 else 0
    if not 1 <= count <= 4 or end - start != 8 + 2 * count:
        raise DamagedJpeg("a scan header whose length does not fit its components", start)
    ids = data[start + 5 : start + 5 + 2 * count : 2]
    try:
        components = tuple([frame.index_of_id[name] for name in ids])
    except KeyError as error:
        raise DamagedJpeg(f"a scan of component {error}, which the frame lacks", start) from None
    if count > 1 and len(set(components)) < count:
        raise DamagedJpeg("a scan that names a component twice", start)
    ss, se, approximation = data[end - 3 : end]
    ah, al = approximation >> 4, approximation & 15
    if frame.process == "progressive":
        of_dc = ss == se == 0
        of_ac = 0 < ss <= se <= 63 and count == 1
        if al > 13 or not (of_dc or of_ac):
            raise DamagedJpeg(f"a progressive scan of band {ss}-{se}, bits {ah}-{al}", start)
    return Scan(first, last, components, ss, se, ah, al)


def _color(components: tuple[Component, ...], jfif: bool, adobe: int | None) -> Color:
    """The colour space as libjpeg settles it (`default_decompress_parms` of its jdapimin.c)."""
    if len(components) == 1:
        return "grey"
    if len(components) == 3:
        if jfif:
            return "ycbcr"
        if adobe is not None:
            return "rgb" if adobe == 0 else "ycbcr"
        return "rgb" if tuple(part.id for part in components) == _IDS_OF_RGB else "ycbcr"
    if len(components) == 4:
        return "ycck" if adobe else "cmyk"
    return "other"


def _exif_orientation(data: Buffer, start: int, end: int) -> int | None:
    """The orientation that the APP1 segment `[start, end)` gives."""
    tiff = start + 4 + len(exif.SIGNATURE)
    if bytes(data[start + 4 : tiff]) != exif.SIGNATURE:
        return None
    return exif.orientation_in(data[tiff:end])
