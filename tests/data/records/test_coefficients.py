"""The oracle of coefficients is right itself: against the maker, libjpeg's own encoder, and pixels."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import odd_jpegs
import pytest
import simplejpeg
from coefficients import ZIGZAG, Picture, assert_pictures_same, assert_same, decode
from scipy.fft import idctn

SCRIPTS = {
    "baseline": (0xC0, None),
    "a scan each": (0xC0, [((part,), 0, 63, 0, 0) for part in (2, 0, 1)]),
    "spectral selection": (0xC2, odd_jpegs.SPECTRAL),
    "successive approximation": (0xC2, odd_jpegs.DEEP),
}


def cropped(picture: Picture) -> Picture:
    """The picture without its padding blocks."""
    for plane in picture.planes:
        plane.blocks = plane.blocks[: plane.rows, : plane.columns]
    return picture


def tool(*command: str, data: bytes) -> bytes:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} (Debian: libjpeg-turbo-progs)")
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


def test_zigzag_is_that_of_the_standard() -> None:
    table = np.array(
        [
            [0, 1, 5, 6, 14, 15, 27, 28],
            [2, 4, 7, 13, 16, 26, 29, 42],
            [3, 8, 12, 17, 25, 30, 41, 43],
            [9, 11, 18, 24, 31, 40, 44, 53],
            [10, 19, 23, 32, 39, 45, 52, 54],
            [20, 22, 33, 38, 46, 51, 55, 60],
            [21, 34, 37, 47, 50, 56, 59, 61],
            [35, 36, 48, 49, 57, 58, 62, 63],
        ]
    )
    assert (table.ravel()[ZIGZAG] == np.arange(64)).all()


@pytest.mark.parametrize("restart", [0, 1, 3])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("sampling", ["4:2:0", "4:1:0", "4:4:0"])
def test_what_the_maker_wrote_is_read(sampling: str, script: str, restart: int) -> None:
    picture = odd_jpegs.draw(sampling=odd_jpegs.SAMPLINGS[sampling], seed=restart)
    frame, scans = SCRIPTS[script]
    read = decode(odd_jpegs.encode(picture, scans, frame=frame, restart=restart))
    assert_pictures_same(read, cropped(picture))


def test_twelve_bits_are_read() -> None:
    picture = odd_jpegs.draw(precision=12)
    assert max(abs(plane.blocks).max() for plane in picture.planes) > 255
    assert_pictures_same(decode(odd_jpegs.encode(picture, frame=0xC1)), cropped(picture))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-optimize",),
        ("-progressive",),
        ("-progressive", "-restart", "1"),
        ("-restart", "5B"),
        ("-progressive", "-restart", "7B"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("sparse", [False, True])
def test_what_libjpeg_wrote_is_read(options: tuple[str, ...], sparse: bool) -> None:
    """Its progressive encoder makes runs of end-of-bands; sparse pictures make long ones."""
    picture = odd_jpegs.draw(121, 67)
    if sparse:
        for plane in picture.planes:
            plane.blocks[:, 2:-1, 1:] = 0
    data = odd_jpegs.encode(picture)
    assert_same(tool("jpegtran", "-copy", "none", *options, data=data), data)


def test_coefficients_are_those_of_the_pixels() -> None:
    """Dequantised, transformed and shifted they are what another decoder shows, to a rounding."""
    random = np.random.default_rng(3)
    y, x = np.mgrid[:40, :56]
    grey = (128 + 60 * np.sin(x / 5 + y / 9) + random.normal(0, 6, x.shape)).clip(0, 255)
    data = simplejpeg.encode_jpeg(grey.astype(np.uint8)[..., None], colorspace="GRAY", quality=90)
    (plane,) = decode(data).planes
    blocks = np.zeros((plane.rows, plane.columns, 64))
    blocks[..., ZIGZAG] = plane.blocks * plane.quantisation
    pixels = idctn(blocks.reshape(plane.rows, plane.columns, 8, 8), axes=(2, 3), norm="ortho")
    pixels = (pixels + 128).transpose(0, 2, 1, 3).reshape(8 * plane.rows, 8 * plane.columns)
    shown = simplejpeg.decode_jpeg(data, colorspace="GRAY", fastdct=False)[..., 0]
    assert np.abs(pixels.clip(0, 255)[:40, :56] - shown).max() <= 1


def test_a_difference_is_told() -> None:
    one, other = odd_jpegs.draw(), odd_jpegs.draw()
    other.planes[2].blocks[0, 0, 63] += 1
    with pytest.raises(AssertionError):
        assert_same(odd_jpegs.encode(one), odd_jpegs.encode(other))


def test_damage_is_told() -> None:
    data = odd_jpegs.encode(odd_jpegs.draw())
    with pytest.raises((AssertionError, IndexError)):
        decode(data[:-40] + data[-2:])
