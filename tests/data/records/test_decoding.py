"""Decoding: sizes, orientations, colours and refusals, against Pillow."""

from __future__ import annotations

import io
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import odd_jpegs
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from holdfast.data.records.jpeg.decoding import DECODER, DecodeError, decode, scale, upright
from holdfast.errors import LimitError, MissingExtraError


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A smooth image with edges and noise, [H, W, 3]."""
    noise = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [127 + 90 * np.sin(x / (9 + c) + y / (17 - c)) for c in range(3)]
    made = np.stack(waves, axis=-1) + noise.normal(0, 6, (height, width, 3))
    made[height // 3 : height // 2, width // 4 : width // 2] = 240, 30, 60
    return made.clip(0, 255).astype(np.uint8)


def saved(image: Image.Image, format: str = "JPEG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


JPEG = saved(Image.fromarray(photo(61, 83)), quality=90)


def test_a_jpeg_has_the_pixels_that_pillow_decodes() -> None:
    ours = decode(JPEG)
    theirs = np.asarray(Image.open(io.BytesIO(JPEG)))
    assert ours.shape == (61, 83, 3)
    assert ours.dtype == np.uint8
    assert ours.flags.c_contiguous
    assert np.abs(ours.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_will_do(kind: type) -> None:
    assert (decode(kind(JPEG)) == decode(JPEG)).all()


def test_grey_is_repeated_and_one_channel_on_request() -> None:
    data = saved(Image.fromarray(photo(20, 30)).convert("L"), quality=95)
    theirs = np.asarray(Image.open(io.BytesIO(data)))
    assert (decode(data) == theirs[:, :, None]).all()
    assert decode(data).shape == (20, 30, 3)
    assert (decode(data, colour="grey") == theirs[:, :, None]).all()


def test_luma_of_colour() -> None:
    luma = np.asarray(Image.open(io.BytesIO(JPEG)).convert("YCbCr"))[:, :, :1]
    assert np.abs(decode(JPEG, colour="grey").astype(int) - luma).max() <= 3


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 320))
def test_scaled_sizes_are_exact_powers_of_two(height: int, width: int, at_least: int) -> None:
    data = simplejpeg.encode_jpeg(np.zeros((height, width, 3), np.uint8), colorsubsampling="420")
    found = decode(data, at_least=at_least).shape
    sizes = [(-(-height // f), -(-width // f), 3) for f in (1, 2, 4, 8)]
    assert found in sizes
    enough = [size for size in sizes if min(size[:2]) >= at_least]
    assert found == min(enough, default=sizes[0])


@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_scaled_pixels_are_means_of_blocks(factor: int, subsampling: int) -> None:
    data = saved(Image.fromarray(photo(160, 240)), quality=95, subsampling=subsampling)
    whole = decode(data, colour="grey")[:, :, 0].astype(float)
    small = decode(data, colour="grey", at_least=160 // factor)[:, :, 0]
    means = whole.reshape(160 // factor, factor, 240 // factor, factor).mean((1, 3))
    assert small.shape == means.shape
    assert np.abs(small - means).mean() < 4


@pytest.mark.parametrize(
    ("size", "at_least", "factor"),
    [
        ((853, 1280), None, 1),
        ((853, 1280), 854, 1),
        ((853, 1280), 853, 1),
        ((853, 1280), 427, 2),
        ((853, 1280), 428, 1),
        ((853, 1280), 224, 2),
        ((853, 1280), 214, 4),
        ((853, 1280), 107, 8),
        ((853, 1280), 1, 8),
    ],
)
def test_the_factor(size: tuple[int, int], at_least: int | None, factor: int) -> None:
    assert scale(*size, at_least) == factor


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(5, 7), (6, 6), (1, 9)])
def test_orientation_as_pillow_transposes(orientation: int, size: tuple[int, int]) -> None:
    pixels = photo(*size)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.open(io.BytesIO(saved(image, "PNG", exif=exif)))
    found = upright(pixels, orientation)
    assert (found == np.asarray(ImageOps.exif_transpose(stored))).all()
    assert found.flags.c_contiguous


def test_a_jpeg_comes_back_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.fromarray(photo(64, 96)), quality=95, exif=exif)
    theirs = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    ours = decode(data, orientation=6)
    assert ours.shape == (96, 64, 3)
    assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert decode(data, orientation=6, at_least=32).shape == (48, 32, 3)


@pytest.mark.parametrize("orientation", [0, 9, -1])
def test_no_such_orientation(orientation: int) -> None:
    with pytest.raises(ValueError, match="1 to 8"):
        decode(JPEG, orientation=orientation)


def test_cmyk_through_pillow() -> None:
    data = saved(Image.fromarray(photo(40, 50)).convert("CMYK"), quality=95)
    theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert (decode(data) == theirs).all()


@pytest.mark.parametrize(
    ("mode", "format"),
    [("RGB", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("1", "PNG"), ("P", "GIF"), ("RGB", "WEBP")],
)
def test_other_formats_through_pillow(mode: str, format: str) -> None:
    data = saved(Image.fromarray(photo(40, 50)).convert(mode), format)
    theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert (decode(data) == theirs).all()


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    deep = (np.arange(40 * 50, dtype=np.uint16) * 32).reshape(40, 50)
    found = decode(saved(Image.fromarray(deep), "PNG"))
    assert (found == (deep >> 8)[:, :, None]).all()


def test_a_png_is_reduced_to_the_sizes_of_a_jpeg() -> None:
    pixels = photo(61, 83)
    found = decode(saved(Image.fromarray(pixels), "PNG"), at_least=16)
    assert found.shape == (16, 21, 3)
    assert np.abs(found[0, 0] - pixels[:4, :4].mean((0, 1))).max() <= 1


def test_floats_have_no_range() -> None:
    data = saved(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF")
    with pytest.raises(DecodeError, match="range"):
        decode(data)


@pytest.mark.parametrize("name", [name for name in odd_jpegs.ODD if not name.startswith("DNL")])
def test_odd_jpegs_as_pillow_decodes_them(name: str) -> None:
    data = odd_jpegs.ODD[name]()
    theirs = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.abs(decode(data).astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("name", odd_jpegs.BROKEN)
def test_broken_jpegs_are_refused(name: str) -> None:
    with pytest.raises(DecodeError):
        decode(odd_jpegs.BROKEN[name]())


DAMAGED = {
    "empty": b"",
    "text": b"no image at all",
    "start only": JPEG[:2],
    "headers only": JPEG[:300],
    "cut in the scan": JPEG[: len(JPEG) // 2] + b"\xff\xd9",
    "no end": JPEG[:-2],
    "png cut": saved(Image.fromarray(photo(40, 50)), "PNG")[:900],
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data)
    assert caught.value.reason


def test_a_warning_of_libjpeg_is_damage_only_if_strict() -> None:
    cut = JPEG[: len(JPEG) // 2] + b"\xff\xd9"
    assert decode(cut, strict=False).shape == (61, 83, 3)


@given(st.data())
def test_flipped_bytes_give_pixels_or_one_of_our_errors(data: st.DataObject) -> None:
    spoilt = bytearray(JPEG)
    for place in data.draw(st.lists(st.integers(2, len(JPEG) - 1), min_size=1, max_size=3)):
        spoilt[place] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(spoilt)
    except (DecodeError, LimitError):
        return
    assert found.shape[2] == 3


def test_a_huge_header_is_refused_before_anything_is_decoded() -> None:
    place = JPEG.index(b"\xff\xc0") + 5
    bomb = JPEG[:place] + struct.pack(">HH", 65500, 65500) + JPEG[place + 4 :]
    with pytest.raises(LimitError, match="65500 x 65500"):
        decode(bomb)


def test_a_huge_png_is_refused() -> None:
    wide = saved(Image.new("1", (20_000, 20_000)), "PNG")
    with pytest.raises(LimitError):
        decode(wide)


def test_very_many_scans_are_refused() -> None:
    data = saved(Image.fromarray(photo(16, 16)), quality=90, progressive=True)
    last = data.rindex(b"\xff\xda")
    bomb = data[:-2] + data[last:-2] * 501 + b"\xff\xd9"
    with pytest.raises(LimitError, match="scans"):
        decode(bomb)


def test_pillow_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert decode(JPEG).shape == (61, 83, 3)
    with pytest.raises(MissingExtraError, match=r"holdfast\[images\]"):
        decode(DAMAGED["png cut"])


def test_threads_get_what_one_thread_gets() -> None:
    files = [simplejpeg.encode_jpeg(photo(50, 60, seed)) for seed in range(8)]
    alone = [decode(data) for data in files]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(decode, files * 4))
    assert all((a == b).all() for a, b in zip(alone * 4, together, strict=True))


def test_the_decoder_names_its_version() -> None:
    assert f"simplejpeg {simplejpeg.__version__}" == DECODER
