"""One image of a source -> its pieces: transcoded without loss and checked, or stored whole, and why."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from holdfast.data.records.format import layout
from holdfast.data.records.jpeg import parsing, scans, turbojpeg
from holdfast.data.records.jpeg.exif import SIGNATURE, orientation_segment, with_orientation
from holdfast.data.records.jpeg.parsing import Jpeg, Segment
from holdfast.data.records.sources.example import MAGIC_BYTES, Example, image_kind
from holdfast.data.records.writing.settings import Settings

_APP1, _APP2 = 0xE1, 0xE2
_MULTI_PICTURE = b"MPF\0"


@dataclass(frozen=True, slots=True)
class Transcoded:
    """One image as a record holds it."""

    pieces: Sequence[bytes]
    """[G] transcoded: together with EOI a progressive JPEG; opaque: the file, then nothing."""
    width: int
    """Pixels as stored; 0 where they are unknown."""
    height: int
    orientation: int
    """EXIF orientation 1..8 that is still to be applied to the pixels."""
    reason: str | None
    """Why the image is stored opaque: a kind, and details after a colon; None where it was transcoded."""
    stripped_bytes: int
    """Bytes of the source without its metadata segments."""


def prepare(data: bytes, settings: Settings) -> Transcoded:
    """Cut an image into the pieces of its groups.

    Args:
        data: a file of the source; not empty.
        settings: groups, and what becomes of metadata.

    Returns:
        The same DCT coefficients as progressive scans; or the file as it is, with the reason, where
        nothing lossless comes of it.

    Raises:
        LimitError: if the image has too many pixels or scans for any reader.
        StoreError: if there is no transcoder.
    """
    try:
        source = parsing.parse(data)
    except parsing.NotAJpeg:
        return _opaque(data, settings, _kind_of_other(data))
    except parsing.DamagedJpeg as error:
        return _opaque(data, settings, f"damaged JPEG: {error.reason}")
    if source.opaque_because is not None:
        return _opaque(data, settings, source.opaque_because, source)
    try:
        return _transcode(data, source, settings)
    except turbojpeg.DamagedData as error:
        return _opaque(data, settings, f"damaged JPEG: {error.reason}", source)
    except (turbojpeg.TranscodeError, scans.UnknownScript) as error:
        return _opaque(data, settings, f"JPEG that libjpeg-turbo does not take: {error}", source)
    except _Unfaithful as error:
        return _opaque(data, settings, f"JPEG whose transcoding was not faithful: {error}", source)


def image(example: Example, settings: Settings) -> layout.Image:
    """One image of a source as a record holds it: the same for the same example and settings.

    Raises:
        LimitError, StoreError: as `prepare`.
    """
    made = prepare(example.data, settings)
    return layout.Image(
        id=example.id,
        pieces=made.pieces,
        width=made.width,
        height=made.height,
        orientation=made.orientation,
        reason=made.reason,
        source_size=len(example.data),
        stripped_size=made.stripped_bytes,
        source_sum=xxhash.xxh3_64_intdigest(example.data),
        columns=example.columns,
    )


# --- Without loss --------------------------------------------------------------------------------


class _Unfaithful(ValueError):
    """What the transcoder made is not the image that it was given."""


def _transcode(data: bytes, source: Jpeg, settings: Settings) -> Transcoded:
    baked = turbojpeg.Operation.NONE
    if settings.orientation == "bake":
        baked = turbojpeg.Operation.upright(source.orientation)
    try:
        made = turbojpeg.transcode(data, operation=baked, parsed=source)
    except turbojpeg.NotPerfect:
        baked = turbojpeg.Operation.NONE
        made = turbojpeg.transcode(data, parsed=source)
    orientation = 1 if baked else source.orientation
    if settings.metadata == "all":
        kept = _metadata(data, source, turned_upright=orientation != source.orientation)
    else:
        kept = b"" if orientation == 1 else orientation_segment(orientation)
    if kept:
        made = parsing.with_segments(made, kept)
    result = parsing.parse(made)
    pieces = [bytes(piece) for piece in scans.pieces(made, result, settings.scans_end)]
    _check(source, result, baked, orientation)
    if scans.image(pieces) != made:
        raise _Unfaithful("its pieces are not the image")
    return Transcoded(
        pieces=pieces,
        width=result.width,
        height=result.height,
        orientation=orientation,
        reason=None,
        stripped_bytes=source.stripped_bytes,
    )


def _metadata(data: bytes, source: Jpeg, *, turned_upright: bool) -> bytes:
    """The metadata segments of the source; without an orientation that no longer holds."""
    segments = []
    for segment in source.metadata:
        if _describes_other_images(data, segment):
            continue
        body = data[segment.start : segment.end]
        if turned_upright and segment.marker == _APP1 and body[4:].startswith(SIGNATURE):
            body = with_orientation(body, 1)
        segments.append(body)
    return b"".join(segments)


def _describes_other_images(data: bytes, segment: Segment) -> bool:
    """Whether a segment is the index of pictures after EOI, which do not belong to the image."""
    start = segment.start + 4
    return segment.marker == _APP2 and data[start : start + 4] == _MULTI_PICTURE


def _check(source: Jpeg, result: Jpeg, operation: turbojpeg.Operation, orientation: int) -> None:
    """Refuse what is not the image that it should be."""
    turned = operation >= turbojpeg.Operation.TRANSPOSE and operation not in (
        turbojpeg.Operation.ROTATE_180,
    )
    expected = {
        "process": "progressive",
        "arithmetic": False,
        "precision": source.precision,
        "width": source.height if turned else source.width,
        "height": source.width if turned else source.height,
        "color": source.color,
        "orientation": orientation,
    }
    for name, value in expected.items():
        if getattr(result, name) != value:
            raise _Unfaithful(f"its {name} is {getattr(result, name)}, not {value}")
    if _sampling(result, False) != _sampling(source, turned):
        raise _Unfaithful("its components are sampled otherwise")


def _sampling(image: Jpeg, turned: bool) -> list[tuple[int, int]]:
    """(h, v) of each component; a single one is sampled 1 x 1, whatever its header says."""
    if len(image.components) == 1:
        return [(1, 1)]
    return [(part.v, part.h) if turned else (part.h, part.v) for part in image.components]


# --- As it is ------------------------------------------------------------------------------------


def _opaque(data: bytes, settings: Settings, reason: str, source: Jpeg | None = None) -> Transcoded:
    width, height = (source.width, source.height) if source is not None else size_of(data)
    return Transcoded(
        pieces=[data] + [b""] * (len(settings.scans_end) - 1),
        width=width,
        height=height,
        orientation=source.orientation if source is not None else _orientation_of_other(data),
        reason=reason,
        stripped_bytes=source.stripped_bytes if source is not None else len(data),
    )


def _kind_of_other(data: bytes) -> str:
    kind = image_kind(data[:MAGIC_BYTES])
    return "file of an unknown image format" if kind is None else f"{kind.upper()} image"


def _orientation_of_other(data: bytes) -> int:
    """The orientation in the headers of a damaged JPEG."""
    try:
        return parsing.orientation(data)
    except ValueError:
        return 1


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
