"""Transcoding loses no coefficient: by the oracle, for odd images, real ones, and both transcoders."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import coefficients
import numpy as np
import odd_jpegs
import pytest
import simplejpeg
from coefficients import ZIGZAG, assert_pictures_same, assert_same
from hypothesis import given
from hypothesis import strategies as st
from odd_jpegs import BROKEN, LIMITS, ODD, OPAQUE
from PIL import Image

from holdfast.data.records.jpeg import scans, turbojpeg
from holdfast.data.records.jpeg.parsing import DamagedJpeg, NotAJpeg, parse, with_segments
from holdfast.data.records.jpeg.turbojpeg import (
    DamagedData,
    NotPerfect,
    Operation,
    TranscodeError,
    transcode,
)
from holdfast.errors import LimitError, StoreError

needs_jpegtran = pytest.mark.skipif(
    shutil.which("jpegtran") is None, reason="no jpegtran (Debian: libjpeg-turbo-progs)"
)


@cache
def odd(name: str) -> bytes:
    return {**ODD, **OPAQUE, **BROKEN, **LIMITS}[name]()


def jpegtran(data: bytes, *options: str) -> bytes:
    command = ("jpegtran", "-copy", "none", *options)
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if libturbojpeg were not installed."""
    turbojpeg.version.cache_clear()
    monkeypatch.setattr(turbojpeg, "_library", lambda: None)
    yield
    turbojpeg.version.cache_clear()


# --- The same coefficients -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_coefficients_stay(name: str) -> None:
    made = transcode(odd(name))
    assert_same(odd(name), made)
    parsed, source = parse(made), parse(odd(name))
    assert parsed.process == "progressive"
    assert parsed.color == source.color
    assert not parsed.metadata
    assert parsed.end == len(made)
    assert transcode(made) == transcode(odd(name), parsed=source) == made


@pytest.mark.parametrize("name", ["4:2:0", "4:1:0", "grey", "Adobe RGB", "DNL, progressive"])
def test_coefficients_stay_on_the_way_back_to_baseline(name: str) -> None:
    made = transcode(transcode(odd(name)), progressive=False)
    assert_same(odd(name), made)
    assert parse(made).process == "baseline"
    assert made == transcode(odd(name), progressive=False)


@needs_jpegtran
def test_nothing_stays_of_the_images_before() -> None:
    """The library keeps tables from image to image; jpegtran begins anew each time."""
    names = [
        "4:4:4",
        "grey",
        "progressive, deep",
        "one pixel",
        "4:1:1",
        "Adobe RGB",
        "restart markers",
    ]
    for name in (*names, *reversed(names)):
        for progressive, options in ((True, ("-optimize", "-progressive")), (False, ())):
            made = transcode(odd(name), progressive=progressive)
            assert made == jpegtran(odd(name), *options)


@needs_jpegtran
@pytest.mark.parametrize("options", [("-arithmetic",), ("-arithmetic", "-progressive")])
def test_arithmetic_coding_is_undone(options: tuple[str, ...]) -> None:
    assert transcode(jpegtran(odd("4:2:0"), *options)) == transcode(odd("4:2:0"))


@needs_jpegtran
def test_both_transcoders_write_the_same_bytes(request: pytest.FixtureRequest) -> None:
    names = [name for name in ODD if "orientation" not in name]
    expected = [transcode(odd(name)) for name in names]
    baseline = transcode(odd("4:2:0"), progressive=False)
    turned = transcode(square(), operation=Operation.ROTATE_90)
    request.getfixturevalue("without_library")
    assert [transcode(odd(name)) for name in names] == expected
    assert transcode(odd("4:2:0"), progressive=False) == baseline
    assert transcode(square(), operation=Operation.ROTATE_90) == turned


def test_signdigits(shared_data: Path) -> None:
    with tarfile.open(shared_data / "jpeg" / "signdigits" / "signdigits_600.tar") as tar:
        names = [name for name in tar.getnames() if name.endswith((".jpg", ".JPG"))]
        assert len(names) == 600
        for name in names[::120]:
            file = tar.extractfile(name)
            assert file is not None
            data = file.read()
            made = transcode(data)
            assert_same(data, made)
            assert_every_prefix_decodes(data, made)


@pytest.mark.full
@needs_jpegtran
def test_photos(shared_data: Path) -> None:
    """Back at baseline, source and transcoded photo are the same bytes."""
    photos = sorted((shared_data / "jpeg" / "dali_extra").glob("*.jpg"))
    assert len(photos) == 45
    for photo in photos:
        data = photo.read_bytes()
        made = transcode(data)
        assert made == jpegtran(data, "-optimize", "-progressive")
        assert jpegtran(made) == jpegtran(data)
        assert transcode(made, progressive=False) == jpegtran(data)
        assert_every_prefix_decodes(data, made)


@pytest.mark.full
def test_photos_by_the_oracle(shared_data: Path) -> None:
    for photo in sorted((shared_data / "jpeg" / "dali_extra").glob("*.jpg")):
        assert_same(photo.read_bytes(), transcode(photo.read_bytes()))


@pytest.mark.full
def test_all_signdigits(shared_data: Path) -> None:
    with tarfile.open(shared_data / "jpeg" / "signdigits" / "signdigits_600.tar") as tar:
        for name in [name for name in tar.getnames() if name.lower().endswith(".jpg")]:
            file = tar.extractfile(name)
            assert file is not None
            data = file.read()
            made = transcode(data)
            assert transcode(made, progressive=False) == transcode(data, progressive=False)
            assert_every_prefix_decodes(data, made)


def assert_every_prefix_decodes(source: bytes, made: bytes) -> None:
    parsed = parse(made)
    cut = scans.pieces(made, parsed, range(1, 11))
    assert scans.image(cut) == made
    for group in range(1, 11):
        pixels = simplejpeg.decode_jpeg(scans.image(cut[:group]), strict=True)
        assert pixels.shape[:2] == (parsed.height, parsed.width)
    np.testing.assert_array_equal(pixels, simplejpeg.decode_jpeg(source, strict=True))


def test_segments_that_are_kept_stand_before_the_image() -> None:
    parts = odd_jpegs.exif(6) + odd_jpegs.ICC + odd_jpegs.COMMENT
    made = with_segments(transcode(odd("metadata")), parts)
    assert parse(made).metadata_bytes == len(parts)
    assert_same(odd("metadata"), made)
    assert_every_prefix_decodes(odd("metadata"), made)
    with Image.open(io.BytesIO(made)) as theirs:
        theirs.load()
        assert theirs.info["icc_profile"] == odd_jpegs.ICC[18:]
        assert theirs.info["comment"] == odd_jpegs.COMMENT[4:]
        assert theirs.getexif()[0x0112] == 6


# --- Operations ----------------------------------------------------------------------------------


@cache
def square(width: int = 48, height: int = 32, sampling: str = "4:2:0") -> bytes:
    """An image of whole MCUs."""
    picture = odd_jpegs.draw(width, height, odd_jpegs.SAMPLINGS[sampling])
    return odd_jpegs.encode(picture)


# How pixels come to stand upright, by EXIF's definition of the orientations.
UPRIGHT = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels.swapaxes(0, 1)[:, ::-1],
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels.swapaxes(0, 1)[::-1],
}


def turned(picture: coefficients.Picture, orientation: int) -> coefficients.Picture:
    """The picture upright: blocks move as pixels do, mirrored cosines of odd frequency change sign."""
    for plane in picture.planes:
        rows, columns, _ = plane.blocks.shape
        order = np.argsort(ZIGZAG)
        blocks = plane.blocks[..., order].reshape(rows, columns, 8, 8)
        table = plane.quantisation[order].reshape(8, 8)
        odd_x, odd_y = np.array([1, -1] * 4), np.array([1, -1] * 4)[:, None]
        mirrored_x, mirrored_y = {
            1: (0, 0),
            2: (1, 0),
            3: (1, 1),
            4: (0, 1),
            5: (0, 0),
            6: (0, 1),
            7: (1, 1),
            8: (1, 0),
        }[orientation]
        blocks = blocks * (odd_x if mirrored_x else 1) * (odd_y if mirrored_y else 1)
        blocks = UPRIGHT[orientation](blocks)
        if orientation >= 5:
            blocks = blocks.swapaxes(2, 3)
            table = table.T
            plane.h, plane.v = plane.v, plane.h
        plane.blocks = blocks.reshape(*blocks.shape[:2], 64)[..., ZIGZAG]
        plane.quantisation = table.reshape(64)[ZIGZAG]
    if orientation >= 5:
        picture.width, picture.height = picture.height, picture.width
    return picture


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0", "4:2:2", "4:1:0"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_are_baked_without_loss(orientation: int, sampling: str) -> None:
    source = square(64, 32, sampling)
    made = transcode(source, operation=Operation.upright(orientation))
    expected = turned(coefficients.decode(source), orientation)
    assert_pictures_same(coefficients.decode(made), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_baked_pixels_are_those_of_the_turned_image(orientation: int) -> None:
    y, x = np.mgrid[:32, :48]
    grey = (x * 3 + y * 2 + 20 * (x > 30)).astype(np.uint8)[..., None]
    source = simplejpeg.encode_jpeg(grey, colorspace="GRAY", quality=95)
    made = transcode(source, operation=Operation.upright(orientation))
    shown = simplejpeg.decode_jpeg(made, colorspace="GRAY").astype(int)
    expected = UPRIGHT[orientation](simplejpeg.decode_jpeg(source, colorspace="GRAY"))
    assert np.abs(shown - expected).max() <= 1


# Which edges an operation moves to the start: only there must blocks be whole.
LOSES = {
    Operation.FLIP_HORIZONTAL: "width",
    Operation.FLIP_VERTICAL: "height",
    Operation.TRANSPOSE: "",
    Operation.TRANSVERSE: "width height",
    Operation.ROTATE_90: "height",
    Operation.ROTATE_180: "width height",
    Operation.ROTATE_270: "width",
}


@pytest.mark.parametrize("operation", LOSES)
@pytest.mark.parametrize("edge", ["width", "height"])
def test_an_operation_that_would_lose_something_is_refused(
    operation: Operation, edge: str, request: pytest.FixtureRequest
) -> None:
    source = square(47, 32) if edge == "width" else square(48, 31)
    if edge not in LOSES[operation]:
        assert transcode(source, operation=operation)
        return
    with pytest.raises(NotPerfect):
        transcode(source, operation=operation)
    if shutil.which("jpegtran"):
        request.getfixturevalue("without_library")
        with pytest.raises(NotPerfect):
            transcode(source, operation=operation)


# --- Refusals ------------------------------------------------------------------------------------


def damaged() -> bytes:
    """Data that end too early, between good markers."""
    data = odd("4:2:0")
    return data[:-200] + data[-2:]


@pytest.mark.parametrize(
    "data",
    [
        damaged(),
        odd("4:2:0")[:-2] + bytes(40) + odd("4:2:0")[-2:],
        odd("restart markers").replace(b"\xff\xd1", b"\xff\xd5"),
        odd_jpegs.encode(odd_jpegs.draw(), odd_jpegs.SPECTRAL[1:], frame=0xC2),
    ],
    ids=["data end early", "data left over", "restart out of order", "AC before DC"],
)
def test_what_must_be_guessed_is_damage(data: bytes, request: pytest.FixtureRequest) -> None:
    parse(data)
    with pytest.raises(DamagedData) as raised:
        transcode(data)
    assert raised.value.reason
    if shutil.which("jpegtran"):
        request.getfixturevalue("without_library")
        with pytest.raises(DamagedData):
            transcode(data)


@pytest.mark.parametrize("name", ["12 bits", "lossless", "hierarchical", "too many blocks a MCU"])
def test_kinds_that_libjpeg_does_not_know(name: str) -> None:
    with pytest.raises(TranscodeError) as raised:
        transcode(odd(name))
    assert not isinstance(raised.value, DamagedData | NotPerfect)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_markers_are_refused_first(name: str) -> None:
    with pytest.raises(DamagedJpeg):
        transcode(odd(name))


@pytest.mark.parametrize("name", LIMITS)
def test_bombs_are_refused_first(name: str) -> None:
    with pytest.raises(LimitError):
        transcode(odd(name))


def test_without_any_transcoder_the_packages_are_named(
    without_library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for call in (lambda: transcode(odd("grey")), turbojpeg.version):
        with pytest.raises(StoreError, match=r"libturbojpeg0.*libjpeg-turbo-progs"):
            call()


def test_without_jpegtran_only_nameless_samplings_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if turbojpeg._library() is None:
        pytest.skip("no libturbojpeg (Debian: libturbojpeg0)")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert transcode(odd("4:2:0"))
    with pytest.raises(TranscodeError, match="subsampling"):
        transcode(odd("4:1:0"))


@given(
    st.sampled_from(["4:2:0", "grey", "restart markers", "progressive, deep", "Adobe RGB"]),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_changed_bytes_are_refused_by_name_or_cut_as_any_image(
    name: str, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(odd(name))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        made = transcode(bytes(data))
    except (NotAJpeg, DamagedJpeg, TranscodeError, LimitError):
        return
    parsed = parse(made)
    for group in scans.pieces(made, parsed, range(1, 11)):
        assert made.count(bytes(group)) == 1 or not group
    assert_same(made, transcode(made, progressive=False))


# --- The library itself --------------------------------------------------------------------------


class Counting:
    """The library, with its calls counted."""

    def __init__(self, library: object) -> None:
        self.library = library
        self.calls = {"tjInitTransform": 0, "tjDestroy": 0, "tjFree": 0}

    def __getattr__(self, name: str) -> object:
        if name in self.calls:
            self.calls[name] += 1
        return getattr(self.library, name)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counting:
    library = turbojpeg._library()
    if library is None:
        pytest.skip("no libturbojpeg (Debian: libturbojpeg0)")
    counting = Counting(library)
    monkeypatch.setattr(turbojpeg, "_library", lambda: counting)
    return counting


def huge_coefficient() -> bytes:
    """An image whose fifth progressive scan cannot be written, after many bytes of others."""
    picture = odd_jpegs.draw(160, 160)
    picture.planes[0].blocks[3, 3, 10] = 9000
    return odd_jpegs.encode(picture)


def test_all_is_freed_whatever_happens(counted: Counting) -> None:
    transcode(odd("4:2:0"))
    with pytest.raises(DamagedData):
        transcode(damaged())
    with pytest.raises(TranscodeError, match="out of range"):
        transcode(huge_coefficient())
    assert set(counted.calls.values()) == {3}


def without(data: bytes, marker: int) -> bytes:
    """The image without its segments of a kind."""
    at, kept = 2, data[:2]
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != marker:
            kept += data[at:end]
        at = end
    return kept + data[at:]


def test_tables_of_another_image_are_not_used() -> None:
    """The standard says that tables stay from image to image; files do not."""
    transcode(odd("4:2:0"))
    with pytest.raises(DamagedData):
        transcode(without(odd("4:2:0"), 0xC4))
    with pytest.raises(TranscodeError, match="Quantization table"):
        transcode(without(odd("4:2:0"), 0xDB))


def test_images_of_motion_jpeg_have_the_tables_of_the_standard() -> None:
    frame = without(transcode(odd("4:2:0"), progressive=False), 0xC4)
    assert transcode(frame) == transcode(odd("4:2:0"))


def test_the_first_damage_is_the_one_told(counted: Counting) -> None:
    scans = parse(odd("multi-scan baseline")).scans
    data = odd("multi-scan baseline")
    cut = data[: scans[0].end - 100] + data[scans[0].end : -2] + bytes(30) + data[-2:]
    with pytest.raises(DamagedData, match="premature end"):
        transcode(cut)


def test_threads_do_not_disturb_each_other() -> None:
    names = [name for name in ODD if name not in ("4:1:0", "4:4:1", "chroma of two kinds")] * 3
    expected = [transcode(odd(name)) for name in names]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda name: transcode(odd(name)), names)) == expected


def test_the_version_is_the_library_s_own(request: pytest.FixtureRequest) -> None:
    assert turbojpeg.version().startswith("libjpeg-turbo ")
    if shutil.which("jpegtran"):
        by_library = turbojpeg.version()
        request.getfixturevalue("without_library")
        assert turbojpeg.version().split()[0] == by_library.split()[0] == "libjpeg-turbo"
