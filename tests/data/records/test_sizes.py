"""Sizes of images that are stored unchanged, beside Pillow's."""

from __future__ import annotations

import io

import made
import pytest
from PIL import Image as Pillow

from holdfast.data.records.writing.transcoding import size_of

WRITTEN = [
    ("JPEG", {}),
    ("JPEG", {"progressive": True}),
    ("PNG", {}),
    ("GIF", {}),
    ("BMP", {}),
    ("WEBP", {}),
    ("WEBP", {"lossless": True}),
    ("WEBP", {"save_all": True, "append_images": [Pillow.new("RGB", (301, 17), "red")]}),
]


@pytest.mark.parametrize(("kind", "options"), WRITTEN)
def test_the_size_is_in_the_header_and_a_cut_header_has_none(kind, options):
    file = io.BytesIO()
    Pillow.new("RGB", (301, 17), "blue").save(file, kind, **options)
    data = file.getvalue()
    assert size_of(data) == (301, 17)
    for length in range(len(data)):  # never an error, never another size
        assert size_of(data[:length]) in ((301, 17), (0, 0), (301, 0))
    assert size_of(data[:9]) == (0, 0) or kind == "GIF"


def test_headers_that_pillow_does_not_write():
    bmp = io.BytesIO()
    Pillow.new("RGB", (5, 3)).save(bmp, "BMP")
    upside_down = bytearray(bmp.getvalue())
    upside_down[22:26] = (-3).to_bytes(4, "little", signed=True)
    assert size_of(bytes(upside_down)) == (5, 3)
    os2 = b"BM" + bytes(12) + b"\x0c\0\0\0" + b"\x05\0\x03\0" + bytes(9)
    assert size_of(os2) == (0, 0)
    whole = made.picture(1, 48, 40)
    assert size_of(whole[:2] + b"\xff" + whole[2:]) == (48, 40)  # padding before a marker
    assert size_of(whole[: whole.index(b"\xff\xda") + 20]) == (48, 40)  # its data are gone
    assert size_of(b"\xff\xd8\xff\xda\0\x02") == size_of(b"no image") == size_of(b"") == (0, 0)
