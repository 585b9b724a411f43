"""The parser of markers: against the maker's truth, Pillow, and any damage."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
from functools import cache

import odd_jpegs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_jpegs import BROKEN, COMMENT, DEEP, ICC, JFIF, LIMITS, ODD, OPAQUE, SPECTRAL, XMP
from PIL import Image

from holdfast.data.records.jpeg import exif, parsing
from holdfast.data.records.jpeg.parsing import DamagedJpeg, NotAJpeg, orientation, parse
from holdfast.errors import LimitError

Script = list[odd_jpegs.Scan]


@cache
def odd(name: str) -> bytes:
    return {**ODD, **OPAQUE, **BROKEN, **LIMITS}[name]()


# --- What is said --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ODD if not name.startswith("DNL")])
def test_size_and_orientation_are_those_that_pillow_reads(name: str) -> None:
    parsed = parse(odd(name))
    with Image.open(io.BytesIO(odd(name))) as theirs:
        assert (parsed.width, parsed.height) == theirs.size
        assert parsed.orientation == theirs.getexif().get(0x0112, 1)
    assert orientation(odd(name)) == parsed.orientation
    assert parsed.opaque_because is None


@pytest.mark.parametrize(
    ("name", "process", "color", "because"),
    [
        ("4:2:0", "baseline", "ycbcr", None),
        ("extended", "extended", "ycbcr", None),
        ("progressive, deep", "progressive", "ycbcr", None),
        ("grey", "baseline", "grey", None),
        ("no JFIF", "baseline", "ycbcr", None),
        ("component ids 33 7 200", "baseline", "ycbcr", None),
        ("Adobe RGB", "baseline", "rgb", None),
        ("RGB by ids", "baseline", "rgb", None),
        ("Adobe YCbCr", "baseline", "ycbcr", None),
        ("JFIF and Adobe", "baseline", "ycbcr", None),
        ("Adobe CMYK", "baseline", "cmyk", "CMYK JPEG"),
        ("CMYK without Adobe", "baseline", "cmyk", "CMYK JPEG"),
        ("Adobe YCCK", "baseline", "ycck", "YCCK JPEG"),
        ("two components", "baseline", "other", "JPEG of 2 components"),
        ("12 bits", "extended", "ycbcr", "12-bit JPEG"),
        ("lossless", "lossless", "grey", "lossless JPEG"),
        ("hierarchical", "other", "grey", "hierarchical JPEG"),
        ("hierarchical, two frames", "other", "grey", "hierarchical JPEG"),
    ],
)
def test_kinds_are_told_apart(name: str, process: str, color: str, because: str | None) -> None:
    parsed = parse(odd(name))
    assert (parsed.process, parsed.color, parsed.opaque_because) == (process, color, because)
    assert parsed.precision == (12 if name == "12 bits" else 8)
    assert not parsed.arithmetic


@pytest.mark.parametrize("script", [SPECTRAL, DEEP], ids=["spectral", "deep"])
@pytest.mark.parametrize("fill", [0, 2])
@pytest.mark.parametrize("restart", [0, 2])
def test_scans_are_those_that_were_written(script: Script, fill: int, restart: int) -> None:
    data = odd_jpegs.encode(odd_jpegs.draw(), script, frame=0xC2, fill=fill, restart=restart)
    scans = parse(data).scans
    assert [(scan.components, scan.ss, scan.se, scan.ah, scan.al) for scan in scans] == script
    picture = odd_jpegs.draw()
    for scan, written in zip(scans, script, strict=True):
        coded = odd_jpegs.entropy(picture, written, progressive=True, restart=restart)
        assert data[: scan.end].endswith(coded)
        assert data[scan.end : scan.end + 1] == b"\xff"
    assert [scan.start for scan in scans] == [0, *(scan.end for scan in scans[:-1])]
    assert data[scans[-1].end :] == b"\xff" * fill + parsing.EOI


def test_metadata_are_counted_apart_from_what_says_how_to_decode() -> None:
    parts = (odd_jpegs.exif(6), XMP, ICC, COMMENT)
    parsed = parse(odd("metadata"))
    found = [odd("metadata")[segment.start : segment.end] for segment in parsed.metadata]
    assert found == list(parts)
    assert parsed.metadata_bytes == sum(map(len, parts))
    assert parsed.stripped_bytes == len(odd("JFIF and Adobe"))


def test_metadata_between_scans_are_counted_too() -> None:
    parsed = parse(odd("comments between scans"))
    assert parsed.metadata_bytes == len(SPECTRAL) * len(COMMENT)
    assert parsed.stripped_bytes == len(odd("progressive, spectral"))


def test_what_follows_the_end_is_no_part_of_it() -> None:
    parsed = parse(odd("trailing garbage"))
    assert parsed.end == parsed.stripped_bytes == len(odd("4:2:0"))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: type) -> None:
    assert parse(kind(odd("metadata"))) == parse(odd("metadata"))


def test_arithmetic_coding_is_seen() -> None:
    if shutil.which("jpegtran") is None:
        pytest.skip("no jpegtran (Debian: libjpeg-turbo-progs)")
    command = ["jpegtran", "-copy", "none", "-arithmetic"]
    for options, process in (([], "extended"), (["-progressive"], "progressive")):
        run = subprocess.run(command + options, input=odd("4:2:0"), capture_output=True, check=True)
        parsed = parse(run.stdout)
        assert (parsed.process, parsed.arithmetic) == (process, True)


@pytest.mark.parametrize("name", ["DNL", "DNL, progressive"])
def test_the_height_of_dnl_is_taken_and_can_be_put_into_the_header(name: str) -> None:
    parsed = parse(odd(name))
    assert (parsed.width, parsed.height) == (37, 21)
    plain = parsing.with_height(odd(name), parsed)
    assert plain == odd("4:2:0" if name == "DNL" else "progressive, spectral")
    assert parsing.with_height(plain, parse(plain)) == plain


# --- EXIF ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize("value", range(1, 9))
def test_orientations_are_read_and_set(value: int, kind: int, order: str) -> None:
    segment = odd_jpegs.exif(value, order, kind=kind)
    assert exif.orientation_in(segment[10:]) == value
    other = exif.with_orientation(segment, 9 - value)
    assert other == odd_jpegs.exif(9 - value, order, kind=kind)


@pytest.mark.parametrize("value", [0, 9, 255])
def test_an_orientation_that_makes_no_sense_is_none(value: int) -> None:
    assert exif.orientation_in(odd_jpegs.exif(value)[10:]) is None


def test_a_tag_that_is_no_number_is_left_alone() -> None:
    tag = struct.pack("<HH", 0x0112, 3)
    text = odd_jpegs.exif(6).replace(tag, struct.pack("<HH", 0x0112, 2))
    assert exif.orientation_in(text[10:]) is None
    assert exif.with_orientation(text, 1) == text
    without = odd_jpegs.exif(6).replace(tag, struct.pack("<HH", 0x0113, 3))
    assert exif.with_orientation(without, 1) == without


def test_a_tag_that_is_cut_off_is_none() -> None:
    segment = parsing.orientation_segment(6)
    cut = segment[
        : 10 + 10 + 11
    ]  # signature; TIFF header and count of entries; all but a byte of one
    assert exif.orientation_in(cut[10:]) is None
    assert exif.with_orientation(cut, 1) == cut
    assert exif.orientation_in(segment[10 : 10 + 10 + 12]) == 6


@pytest.mark.parametrize("value", range(1, 9))
def test_a_segment_of_nothing_but_the_orientation(value: int) -> None:
    segment = parsing.orientation_segment(value)
    assert len(segment) == 36
    data = parsing.with_segments(odd("4:2:0"), segment)
    assert data.startswith(odd_jpegs.SOI + JFIF + segment)
    assert orientation(data) == parse(data).orientation == value
    with Image.open(io.BytesIO(data)) as theirs:
        assert dict(theirs.getexif()) == {0x0112: value}
    assert parsing.with_segments(odd("no JFIF"), segment)[2:].startswith(segment)


@pytest.mark.parametrize("value", [0, 9])
def test_only_eight_orientations_are_written(value: int) -> None:
    with pytest.raises(ValueError, match=r"1\.\.8"):
        parsing.orientation_segment(value)
    with pytest.raises(ValueError, match=r"1\.\.8"):
        exif.with_orientation(parsing.orientation_segment(1), value)


def test_the_first_exif_counts_and_only_its_first_directory() -> None:
    two = parsing.with_segments(odd("4:2:0"), odd_jpegs.exif(5) + odd_jpegs.exif(2))
    assert parse(two).orientation == orientation(two) == 5
    thumbnail = odd_jpegs.exif(1, thumbnail=odd_jpegs.exif(7)[10:])
    assert parse(parsing.with_segments(odd("4:2:0"), thumbnail)).orientation == 1


def test_exif_after_the_first_scan_is_not_heard() -> None:
    data = odd_jpegs.encode(
        odd_jpegs.draw(), SPECTRAL, frame=0xC2, between=odd_jpegs.exif(6), segments=JFIF
    )
    late = data.replace(odd_jpegs.exif(6), b"", 1)
    assert (orientation(data), parse(data).orientation) == (6, 6)
    assert (orientation(late), parse(late).orientation) == (1, 1)


@given(st.binary(max_size=80), st.integers(0, 79), st.sampled_from("<>"))
def test_no_exif_can_do_harm(noise: bytes, at: int, order: str) -> None:
    whole = odd_jpegs.exif(6, order)
    segment = (whole[: 10 + at] + noise)[: len(whole)].ljust(len(whole), b"\0")
    assert exif.orientation_in(segment[10:]) in (None, *range(1, 9))
    assert exif.orientation_in(segment[10 : 10 + at]) in (None, 6)
    changed = exif.with_orientation(segment, 3)
    assert len(changed) == len(segment)
    assert exif.orientation_in(changed[10:]) in (None, 3)


# --- Refusals ------------------------------------------------------------------------------------


REASONS = {
    "without EOI": "ends inside a scan",
    "cut in the data": "ends inside a scan",
    "cut in the headers": "ends inside a segment",
    "no height": "height of 0",
    "no width": "width of 0",
    "a segment past the end": "ends inside a segment",
    "a segment one byte past the end": "ends inside a segment",
    "a segment of length 1": "FFE1 has a length of 1",
    "no scan": "no frame header",
    "zeros between segments": "byte 00 where a marker should stand",
    "two images in one": "marker FFD8 where it has no place",
    "a frame header one byte short": "length does not fit 3 components",
    "a sampling factor of 0": "sampling factor",
    "a sampling factor of 5": "sampling factor",
    "two components of one id": "two components of one id",
    "two frame headers": "second frame header",
    "a scan before the frame": "before any frame header",
    "a scan of no component of the frame": "component 9",
    "a scan that names a component twice": "twice",
    "a scan of five components": "does not fit its components",
    "a band of DC and AC": "band 0-63",
    "a band that ends before it starts": "band 9-8",
    "a band past the 64th coefficient": "band 9-64",
    "a bit position of 14": "bits 0-14",
    "an AC scan of two components": "band 1-63",
    "a DNL segment of no lines": "gives no height",
    "a reserved marker": "FFF7 where it has no place",
}


@pytest.mark.parametrize("name", BROKEN)
def test_damage_is_named_with_its_place(name: str) -> None:
    with pytest.raises(DamagedJpeg, match=REASONS[name]) as raised:
        parse(odd(name))
    assert 0 <= raised.value.offset <= len(odd(name))


def test_a_frame_without_scans_is_damage() -> None:
    header = odd_jpegs.segment(0xC0, bytes.fromhex(odd_jpegs.HEADER))
    with pytest.raises(DamagedJpeg, match="no scan"):
        parse(odd_jpegs.SOI + header + parsing.EOI)


def test_a_jfif_too_short_says_nothing() -> None:
    data = odd_jpegs.encode(odd_jpegs.draw(sampling=odd_jpegs.FULL, ids=b"RGB"))
    assert parse(data).color == "ycbcr"
    short = data.replace(JFIF, odd_jpegs.segment(0xE0, b"JFIF\0\1\2"))
    assert parse(short).color == "rgb"
    assert parse(short).metadata_bytes == 11


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"\xff\xd8", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\x00\x00", b"BM"],
)
def test_what_is_no_jpeg_is_told(data: bytes) -> None:
    for read in (parse, orientation):
        with pytest.raises(NotAJpeg):
            read(data)


@pytest.mark.parametrize("name", LIMITS)
def test_bombs_are_refused(name: str) -> None:
    with pytest.raises(LimitError):
        parse(odd(name))
    parse(odd(name), max_scans=501, max_pixels=65535**2)


def test_a_height_of_dnl_has_the_limit_too() -> None:
    with pytest.raises(LimitError, match="37 x 21"):
        parse(odd("DNL"), max_pixels=37 * 20)
    assert parse(odd("DNL"), max_pixels=37 * 21).height == 21


def test_ten_scans_are_not_eleven() -> None:
    assert len(parse(odd("progressive, spectral"), max_scans=5).scans) == 5
    with pytest.raises(LimitError):
        parse(odd("progressive, spectral"), max_scans=4)


MANY = 1 << 21  # anything of this length that took quadratic time would take hours


@pytest.mark.parametrize(
    "data",
    [
        odd_jpegs.SOI + b"\xff" * MANY,
        odd_jpegs.SOI + JFIF * (MANY // len(JFIF)),
        odd_jpegs.SOI + (odd_jpegs.exif(0) * 40)[:-1] * 800,
        odd_jpegs.SOI + b"\xff\x01" * (MANY // 8),
    ],
    ids=["fill", "segments", "EXIF", "TEM"],
)
def test_long_headers_are_read_once(data: bytes) -> None:
    with pytest.raises(DamagedJpeg):
        parse(data)


@pytest.mark.parametrize("filler", [b"\xff", b"\xff\x00", b"\xff\xd0", b"\xff\xff\x00"])
def test_long_data_are_read_once(filler: bytes) -> None:
    data = odd("grey")[:-2] + filler * (MANY // len(filler))
    with pytest.raises(DamagedJpeg, match=r"inside a scan|before EOI"):
        parse(data)
    parsed = parse(data + parsing.EOI)
    end = len(odd("grey")) - 2 if filler == b"\xff" else len(data)
    assert parsed.scans[-1].end == end


def check(data: bytes) -> None:
    """Parses, or is refused by name; and what is parsed makes sense."""
    try:
        parsed = parse(data)
    except (NotAJpeg, DamagedJpeg, LimitError):
        return
    ends = [scan.end for scan in parsed.scans]
    assert ends == sorted(set(ends))
    assert ends[-1] < parsed.end <= len(data)
    assert data[parsed.end - 2 : parsed.end] == parsing.EOI
    assert 0 < parsed.width * parsed.height <= parsing.MOST_PIXELS
    assert parsed.stripped_bytes > 0
    assert parsed.orientation == orientation(data) in range(1, 9)


SUBJECTS = ("metadata", "progressive, restarts", "DNL", "Adobe YCCK", "thumbnail in EXIF")


@given(
    st.sampled_from(SUBJECTS),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_changed_bytes_are_harmless(name: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(odd(name))
    for at, value in changes:
        data[at % len(data)] = value
    check(bytes(data))


@given(st.sampled_from(SUBJECTS), st.integers(0, 4000), st.integers(0, 60), st.binary(max_size=12))
def test_bytes_lost_and_put_in_are_harmless(name: str, at: int, lost: int, put: bytes) -> None:
    data = odd(name)
    at %= len(data)
    check(data[:at] + put + data[at + lost :])


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_cut_is_damage(name: str) -> None:
    data = odd(name)
    for size in range(4, parse(data).end):
        with pytest.raises(DamagedJpeg):
            parse(data[:size])


@pytest.mark.parametrize("name", ["orientation 6<", "progressive, spectral"])
def test_every_bit_of_the_headers_may_flip(name: str) -> None:
    data = odd(name)
    sos = data.index(b"\xff\xda", data.index(b"\xff\xc4"))
    for at in range(sos + 14):
        for bit in range(8):
            flipped = data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]
            check(flipped)


@given(st.binary(max_size=200))
def test_noise_is_harmless(noise: bytes) -> None:
    check(noise)
    check(odd_jpegs.SOI + b"\xff" + noise)
