"""A maker of odd JPEGs: from coefficients that are known, by whatever script and with whatever segments.

`draw` makes a picture of random coefficients, `encode` writes it as T.81 says (Huffman codes that fit
everything and suit nothing), `ODD` names the images that tests run through, and `BROKEN` those to refuse.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from coefficients import Picture, Plane, over

Scan = tuple[tuple[int, ...], int, int, int, int]
"""(indices of components, Ss, Se, Ah, Al)."""

SOI, EOI = b"\xff\xd8", b"\xff\xd9"


def segment(marker: int, body: bytes) -> bytes:
    """A marker segment."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


JFIF = segment(0xE0, b"JFIF\0\1\2\0\0\1\0\1\0\0")
COMMENT = segment(0xFE, b"a comment with \xff\xd9 and \xff\xda in it")
ICC = segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(range(256)) * 3)
XMP = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>")


def adobe(transform: int) -> bytes:
    """Adobe's APP14: transform 0 (RGB or CMYK), 1 (YCbCr) or 2 (YCCK)."""
    return segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, transform))


def exif(orientation: int, order: str = "<", *, kind: int = 3, thumbnail: bytes = b"") -> bytes:
    """EXIF with a maker, the orientation and a GPS pointer, in a byte order (< or >)."""
    value = {1: "B3x", 3: "H2x", 4: "I"}[kind]
    entries = struct.pack(order + "HHI4s", 0x010F, 2, 4, b"odd\0")
    entries += struct.pack(order + "HHI" + value, 0x0112, kind, 1, orientation)
    entries += struct.pack(order + "HHII", 0x8825, 4, 1, 62)
    first = struct.pack(order + "H", 3) + entries + struct.pack(order + "I", 0)
    gps = struct.pack(order + "H", 0) + struct.pack(order + "I", 0)
    tiff = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8) + first + gps
    return segment(0xE1, b"Exif\0\0" + tiff + thumbnail)


# --- Pictures ------------------------------------------------------------------------------------


def draw(
    width: int = 37,
    height: int = 21,
    sampling: Sequence[tuple[int, int]] = ((2, 2), (1, 1), (1, 1)),
    *,
    ids: Sequence[int] | None = None,
    seed: int = 0,
    precision: int = 8,
) -> Picture:
    """A picture of random coefficients, large at low frequencies; the padding blocks are drawn too."""
    random = np.random.default_rng((seed, width, height))
    h_most, v_most = (max(factor[axis] for factor in sampling) for axis in (0, 1))
    mcu_columns, mcu_rows = over(width, 8 * h_most), over(height, 8 * v_most)
    planes = []
    for index, (h, v) in enumerate(sampling):
        shape = (mcu_rows * v, mcu_columns * h, 64)
        spread = (1 << (precision - 8)) * 60.0 / (1 + np.arange(64)) ** 1.3
        blocks = np.rint(random.laplace(0, spread, shape)).astype(np.int64)
        blocks = np.clip(blocks, -1000, 1000)
        blocks[random.random(shape[:2]) < 0.2, 1:] = 0  # blocks of one colour
        quantisation = np.clip(2 + np.arange(64) * (1 + index), 1, 255)
        name = ids[index] if ids else index + 1
        plane = Plane(name, h, v, min(index, 1), quantisation, blocks)
        plane.columns = over(over(width * h, h_most), 8)
        plane.rows = over(over(height * v, v_most), 8)
        planes.append(plane)
    for plane in planes[2:]:
        plane.quantisation = planes[1].quantisation
    return Picture(width, height, precision, planes)


# --- Encoding ------------------------------------------------------------------------------------

# DC: 16 sizes of 5 bits. AC: 254 symbols of 8 bits and 2 of 9. No code is all ones.
_DC_TABLE = bytes((0, 0, 0, 0, 16, *(0,) * 11)) + bytes(range(16))
_AC_TABLE = bytes((0, 0, 0, 0, 0, 0, 0, 254, 2, *(0,) * 7)) + bytes(range(256))


def _ac_code(symbol: int) -> tuple[int, int]:
    return (symbol, 8) if symbol < 254 else (508 + symbol - 254, 9)


class _Writer:
    """Bits, and restart markers between them."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.bits: list[str] = []

    def put(self, value: int, count: int) -> None:
        if count:
            self.bits.append(format(value, f"0{count}b"))

    def dc(self, difference: int) -> None:
        size = abs(difference).bit_length()
        self.put(size, 5)
        self.magnitude(difference, size)

    def ac(self, run: int, value: int) -> None:
        size = abs(value).bit_length()
        self.put(*_ac_code(run << 4 | size))
        self.magnitude(value, size)

    def magnitude(self, value: int, size: int) -> None:
        self.put(value if value >= 0 else value + (1 << size) - 1, size)

    def flush(self) -> None:
        bits = "".join(self.bits)
        bits += "1" * (-len(bits) % 8)
        data = int(bits, 2).to_bytes(len(bits) // 8, "big") if bits else b""
        self.out += data.replace(b"\xff", b"\xff\x00")
        self.bits = []


def _units(picture: Picture, planes: Sequence[Plane]) -> list[list[tuple[int, int, int]]]:
    """For each MCU, (index of the plane, row, column) of its blocks."""
    if len(planes) == 1:
        one = planes[0]
        return [[(0, y, x)] for y in range(one.rows) for x in range(one.columns)]
    rows = planes[0].blocks.shape[0] // planes[0].v
    columns = planes[0].blocks.shape[1] // planes[0].h
    return [
        [
            (index, row * plane.v + y, column * plane.h + x)
            for index, plane in enumerate(planes)
            for y in range(plane.v)
            for x in range(plane.h)
        ]
        for row in range(rows)
        for column in range(columns)
    ]


def _sequential(writer: _Writer, block: list[int], last: int) -> None:
    writer.dc(block[0] - last)
    run = 0
    for value in block[1:]:
        if not value:
            run += 1
            continue
        while run > 15:
            writer.put(*_ac_code(0xF0))
            run -= 16
        writer.ac(run, value)
        run = 0
    if run:
        writer.put(*_ac_code(0))


def _first(writer: _Writer, band: list[int], al: int) -> None:
    run = 0
    for whole in band:
        value = (abs(whole) >> al) * (1 if whole > 0 else -1)
        if not value:
            run += 1
            continue
        while run > 15:
            writer.put(*_ac_code(0xF0))
            run -= 16
        writer.ac(run, value)
        run = 0
    if run:
        writer.put(*_ac_code(0))


def _refine(writer: _Writer, band: list[int], al: int) -> None:
    sizes = [abs(value) >> al for value in band]
    last_new = max((k for k, size in enumerate(sizes) if size == 1), default=-1)
    run = 0
    corrections: list[int] = []
    for k, size in enumerate(sizes):
        if not size:
            run += 1
            continue
        while run > 15 and k <= last_new:
            writer.put(*_ac_code(0xF0))
            _put_all(writer, corrections)
            run -= 16
        if size > 1:
            corrections.append(size & 1)
            continue
        writer.put(*_ac_code(run << 4 | 1))
        writer.put(int(band[k] > 0), 1)
        _put_all(writer, corrections)
        run = 0
    if run or corrections:
        writer.put(*_ac_code(0))
        _put_all(writer, corrections)


def _put_all(writer: _Writer, bits: list[int]) -> None:
    for bit in bits:
        writer.put(bit, 1)
    bits.clear()


def entropy(picture: Picture, scan: Scan, *, progressive: bool, restart: int = 0) -> bytes:
    """The entropy-coded data of a scan."""
    components, ss, se, ah, al = scan
    planes = [picture.planes[index] for index in components]
    writer = _Writer()
    last = [0] * len(planes)
    for number, unit in enumerate(_units(picture, planes)):
        if restart and number and number % restart == 0:
            writer.flush()
            writer.out += bytes((0xFF, 0xD0 + (number // restart - 1) % 8))
            last = [0] * len(planes)
        for index, row, column in unit:
            block = planes[index].blocks[row, column].tolist()
            if not progressive:
                _sequential(writer, block, last[index])
                last[index] = block[0]
            elif ss == 0 and ah == 0:
                writer.dc((block[0] >> al) - last[index])
                last[index] = block[0] >> al
            elif ss == 0:
                writer.put(block[0] >> al & 1, 1)
            elif ah == 0:
                _first(writer, block[ss : se + 1], al)
            else:
                _refine(writer, block[ss : se + 1], al)
    writer.flush()
    return bytes(writer.out)


def encode(
    picture: Picture,
    script: Iterable[Scan] | None = None,
    *,
    frame: int = 0xC0,
    segments: bytes = JFIF,
    restart: int = 0,
    fill: int = 0,
    dnl: bool = False,
    between: bytes = b"",
) -> bytes:
    """A JPEG of a picture.

    Args:
        picture: what it holds.
        script: its scans; one of all components if None.
        frame: the frame's marker: 0xC0, 0xC1 or 0xC2.
        segments: what stands after SOI.
        restart: MCUs between restart markers; 0 for none.
        fill: fill bytes before every marker.
        dnl: whether the height is left to a DNL segment.
        between: segments put before each scan.
    """
    everything = tuple(range(len(picture.planes)))
    scans = list(script) if script is not None else [(everything, 0, 63, 0, 0)]
    wide = picture.precision > 8
    quantisation = {plane.table: plane.quantisation for plane in picture.planes}
    parts = [segments] if segments else []
    for number, table in quantisation.items():
        body = table.astype(">u2" if wide else "u1").tobytes()
        parts.append(segment(0xDB, bytes((wide << 4 | number,)) + body))
    header = struct.pack(
        ">BHHB",
        picture.precision,
        0 if dnl else picture.height,
        picture.width,
        len(picture.planes),
    )
    for plane in picture.planes:
        header += bytes((plane.id, plane.h << 4 | plane.v, plane.table))
    parts.append(segment(frame, header))
    parts.append(segment(0xC4, b"\x00" + _DC_TABLE))
    parts.append(segment(0xC4, b"\x10" + _AC_TABLE))
    if restart:
        parts.append(segment(0xDD, struct.pack(">H", restart)))
    for number, scan in enumerate(scans):
        components, ss, se, ah, al = scan
        if between:
            parts.append(between)
        sos = bytes((len(components),))
        for index in components:
            sos += bytes((picture.planes[index].id, 0))
        sos += bytes((ss, se, ah << 4 | al))
        data = entropy(picture, scan, progressive=frame == 0xC2, restart=restart)
        parts.append(segment(0xDA, sos) + data)
        if dnl and not number:
            parts.append(segment(0xDC, struct.pack(">H", picture.height)))
    return SOI + b"".join(b"\xff" * fill + part for part in (*parts, EOI))


# --- The collection ------------------------------------------------------------------------------

GREY = ((1, 1),)
FULL = ((1, 1), (1, 1), (1, 1))
SAMPLINGS = {
    "4:4:4": FULL,
    "4:2:2": ((2, 1), (1, 1), (1, 1)),
    "4:2:0": ((2, 2), (1, 1), (1, 1)),
    "4:4:0": ((1, 2), (1, 1), (1, 1)),
    "4:1:1": ((4, 1), (1, 1), (1, 1)),
    "4:1:0": ((4, 2), (1, 1), (1, 1)),
    "4:4:1": ((1, 4), (1, 1), (1, 1)),
    "4:4:4 as 2x1": ((2, 1), (2, 1), (2, 1)),
    "4:4:4 as 1x3": ((1, 3), (1, 3), (1, 3)),
    "chroma of two kinds": ((2, 2), (1, 2), (2, 1)),
}
SPECTRAL: list[Scan] = [
    ((0, 1, 2), 0, 0, 0, 0),
    ((0,), 1, 9, 0, 0),
    ((1,), 1, 63, 0, 0),
    ((2,), 1, 63, 0, 0),
    ((0,), 10, 63, 0, 0),
]
DEEP: list[Scan] = [
    ((0,), 0, 0, 0, 3),
    ((1, 2), 0, 0, 0, 3),
    *[((0, 1, 2), 0, 0, bit + 1, bit) for bit in (2, 1, 0)],
    *[((part,), 1, 63, 0, 4) for part in range(3)],
    *[((part,), 1, 63, bit + 1, bit) for bit in (3, 2, 1, 0) for part in range(3)],
]


def _scaled(data: bytes, width: int, height: int) -> bytes:
    """The image with another size in its frame header."""
    at = max(data.find(bytes((0xFF, marker, 0))) for marker in (0xC0, 0xC2))
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


THUMBNAIL = encode(draw(8, 8), segments=JFIF)

ODD: dict[str, Callable[[], bytes]] = {
    **{
        name: lambda sampling=sampling: encode(draw(sampling=sampling))
        for name, sampling in SAMPLINGS.items()
    },
    "grey": lambda: encode(draw(sampling=GREY)),
    "grey, sampled 2x2": lambda: encode(draw(sampling=((2, 2),))),
    "one pixel": lambda: encode(draw(1, 1)),
    "one column": lambda: encode(draw(1, 45)),
    "no JFIF": lambda: encode(draw(), segments=b""),
    "component ids 0 1 2": lambda: encode(draw(ids=(0, 1, 2))),
    "component ids 33 7 200": lambda: encode(draw(ids=(33, 7, 200))),
    "restart markers": lambda: encode(draw(), restart=2),
    "restart after every MCU": lambda: encode(draw(90, 30, FULL), restart=1),
    "fill bytes": lambda: encode(draw(), fill=3),
    "fill bytes, restart markers": lambda: encode(draw(), fill=1, restart=2),
    "DNL": lambda: encode(draw(), dnl=True),
    "DNL, progressive": lambda: encode(draw(), SPECTRAL, frame=0xC2, dnl=True),
    "extended": lambda: encode(draw(), frame=0xC1),
    "multi-scan baseline": lambda: encode(draw(), [((part,), 0, 63, 0, 0) for part in (2, 0, 1)]),
    "two scans, baseline": lambda: encode(draw(), [((0,), 0, 63, 0, 0), ((1, 2), 0, 63, 0, 0)]),
    "progressive, spectral": lambda: encode(draw(), SPECTRAL, frame=0xC2),
    "progressive, deep": lambda: encode(draw(), DEEP, frame=0xC2),
    "progressive, restarts": lambda: encode(draw(), DEEP, frame=0xC2, restart=3),
    "progressive grey": lambda: encode(
        draw(sampling=GREY),
        [((0,), 0, 0, 0, 1), ((0,), 1, 63, 0, 1), ((0,), 0, 0, 1, 0), ((0,), 1, 63, 1, 0)],
        frame=0xC2,
    ),
    "Adobe RGB": lambda: encode(draw(sampling=FULL), segments=adobe(0)),
    "RGB by ids": lambda: encode(draw(sampling=FULL, ids=b"RGB"), segments=b""),
    "Adobe YCbCr": lambda: encode(draw(), segments=adobe(1)),
    "JFIF and Adobe": lambda: encode(draw(), segments=JFIF + adobe(1)),
    "metadata": lambda: encode(draw(), segments=JFIF + exif(6) + XMP + ICC + COMMENT + adobe(1)),
    "EXIF before JFIF": lambda: encode(draw(), segments=exif(3, ">") + JFIF),
    "thumbnail in EXIF": lambda: encode(draw(), segments=exif(8, thumbnail=THUMBNAIL)),
    "comments between scans": lambda: encode(draw(), SPECTRAL, frame=0xC2, between=COMMENT),
    "trailing garbage": lambda: encode(draw()) + b"\xff\xda garbage \xff\xd8" + THUMBNAIL,
    **{
        f"orientation {value}{order}": lambda value=value, order=order: encode(
            draw(), segments=exif(value, order)
        )
        for value in range(1, 9)
        for order in "<>"
    },
}
"""Images that have a lossless progressive form."""

OPAQUE: dict[str, Callable[[], bytes]] = {
    "Adobe CMYK": lambda: encode(draw(sampling=((1, 1),) * 4), segments=adobe(0)),
    "Adobe YCCK": lambda: encode(
        draw(sampling=((2, 2), (1, 1), (1, 1), (2, 2))), segments=adobe(2)
    ),
    "CMYK without Adobe": lambda: encode(draw(sampling=((1, 1),) * 4), segments=b""),
    "too many blocks a MCU": lambda: encode(draw(sampling=((4, 4), (1, 1), (1, 1)))),
    "two components": lambda: encode(draw(sampling=((1, 1),) * 2), segments=b""),
    "12 bits": lambda: encode(draw(precision=12), frame=0xC1),
    "lossless": lambda: encode(draw(sampling=GREY), frame=0xC3),
    "hierarchical, two frames": lambda: encode(
        draw(sampling=GREY), between=segment(0xC5, bytes.fromhex(HEADER))
    ),
    "hierarchical": lambda: encode(
        draw(sampling=GREY), segments=segment(0xDE, b"\x08\0\x15\0\x25\x01\x01\x11\0")
    ).replace(b"\xff\xc0", b"\xff\xc5"),
}
"""Images that parse, and are stored as they are."""

LIMITS: dict[str, Callable[[], bytes]] = {
    "65535 x 65535": lambda: _scaled(encode(draw()), 65535, 65535),
    "501 scans": lambda: encode(
        draw(8, 8, GREY), [((0,), 0, 0, 0, 0), *[((0,), 1, 63, 0, 0)] * 500], frame=0xC2
    ),
}
"""Images past a limit."""

SOS = b"\xff\xda\x00\x0c\x03\x01"
HEADER = "08 0015 0025 01 01 11 00"  # of a grey frame


def _changed(old: bytes, new: bytes) -> bytes:
    data = encode(draw())
    assert data.count(old) == 1
    return data.replace(old, new)


def _rewritten(ss: int, se: int, al: int = 0) -> bytes:
    """A progressive image with other numbers in the header of its second scan."""
    data = encode(draw(sampling=GREY), [((0,), 0, 0, 0, 0), ((0,), 1, 63, 0, 0)], frame=0xC2)
    old = b"\xff\xda\x00\x08\x01\x01\x00"
    assert data.count(old + b"\x01\x3f\x00") == 1
    return data.replace(old + b"\x01\x3f\x00", old + bytes((ss, se, al)))


BROKEN: dict[str, Callable[[], bytes]] = {
    "without EOI": lambda: encode(draw())[:-2],
    "cut in the data": lambda: encode(draw())[:-300],
    "cut in the headers": lambda: encode(draw())[:100],
    "no height": lambda: _scaled(encode(draw()), 37, 0),
    "no width": lambda: _scaled(encode(draw()), 0, 21),
    "a segment past the end": lambda: SOI + JFIF + b"\xff\xe1\xff\xff" + b"short",
    "a segment of length 1": lambda: SOI + JFIF + b"\xff\xe1\x00\x01" + EOI,
    "no scan": lambda: SOI + JFIF + EOI,
    "zeros between segments": lambda: SOI + JFIF + b"\0\0" + encode(draw())[2:],
    "two images in one": lambda: encode(draw())[:-2] + encode(draw()),
    "a segment one byte past the end": lambda: SOI + JFIF + b"\xff\xe1\x00\x08short",
    "a frame header one byte short": lambda: _changed(b"\xff\xc0\x00\x11", b"\xff\xc0\x00\x10"),
    "a sampling factor of 0": lambda: _changed(b"\x01\x22\x00", b"\x01\x20\x00"),
    "a sampling factor of 5": lambda: _changed(b"\x01\x22\x00", b"\x01\x52\x00"),
    "two components of one id": lambda: _changed(b"\x02\x11\x01\x03", b"\x02\x11\x01\x02"),
    "two frame headers": lambda: encode(draw(), between=segment(0xC0, bytes.fromhex(HEADER))),
    "a scan before the frame": lambda: (
        SOI + segment(0xDA, bytes.fromhex("01 01 00 00 3f 00")) + EOI
    ),
    "a scan of no component of the frame": lambda: _changed(SOS, b"\xff\xda\x00\x0c\x03\x09"),
    "a scan that names a component twice": lambda: _changed(SOS + b"\x00\x02", SOS + b"\x00\x01"),
    "a scan of five components": lambda: _changed(SOS, b"\xff\xda\x00\x0c\x05\x01"),
    "a band of DC and AC": lambda: encode(draw(), [((0, 1, 2), 0, 63, 0, 0)], frame=0xC2),
    "a band that ends before it starts": lambda: _rewritten(ss=9, se=8),
    "a band past the 64th coefficient": lambda: _rewritten(ss=9, se=64),
    "a bit position of 14": lambda: _rewritten(ss=9, se=10, al=14),
    "an AC scan of two components": lambda: encode(
        draw(), [((0, 1, 2), 0, 0, 0, 0), ((1, 2), 1, 63, 0, 0)], frame=0xC2
    ),
    "a DNL segment of no lines": lambda: encode(draw(), dnl=True).replace(
        b"\xff\xdc\x00\x04\x00\x15", b"\xff\xdc\x00\x04\x00\x00"
    ),
    "a reserved marker": lambda: encode(draw(), segments=JFIF + b"\xff\xf7\x00\x02"),
}
"""Images to refuse as damaged."""
