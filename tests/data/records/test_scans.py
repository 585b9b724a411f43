"""Cutting at scans: pieces are the file, every prefix is an image, places follow the bands."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import odd_jpegs
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from odd_jpegs import ODD
from refusals import refused

from holdfast.data.records.jpeg.parsing import EOI, parse
from holdfast.data.records.jpeg.scans import (
    DEFAULT_GROUPS,
    YCBCR_SCRIPT,
    UnknownScript,
    check_groups,
    image,
    pieces,
    places,
)
from holdfast.data.records.jpeg.turbojpeg import transcode

ALL = range(1, 11)
WITHOUT_NAME = {"4:1:0", "chroma of two kinds"}  # samplings that simplejpeg does not decode


@cache
def progressive(name: str) -> bytes:
    return transcode(ODD[name]())


@pytest.mark.parametrize("name", [name for name in ODD if name not in WITHOUT_NAME])
def test_pieces_are_the_file_and_every_prefix_is_an_image(name: str) -> None:
    data = progressive(name)
    parsed = parse(data)
    cut = pieces(data, parsed, ALL)
    assert b"".join(map(bytes, cut)) + EOI == image(cut) == data
    for group in ALL:
        start = image(cut[:group])
        pixels = simplejpeg.decode_jpeg(start, strict=True)
        assert pixels.shape == (parsed.height, parsed.width, 3)
        count = sum(place <= group for place in places(parsed))
        assert len(parse(start).scans) == count
    source = ODD[name]()
    if not name.startswith("DNL"):  # which simplejpeg does not decode
        np.testing.assert_array_equal(pixels, simplejpeg.decode_jpeg(source, strict=True))


@pytest.mark.parametrize("name", sorted(WITHOUT_NAME))
def test_samplings_without_a_name_are_cut_alike(name: str) -> None:
    data = progressive(name)
    assert image(pieces(data, parse(data), DEFAULT_GROUPS)) == data


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("4:2:0", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
        ("grey", (1, 2, 5, 6, 7, 10)),
        ("Adobe RGB", (1, 2, 2, 2, 5, 5, 5, 6, 6, 6, 7, 10, 10, 10)),
    ],
)
def test_places_are_those_of_the_same_band(name: str, expected: tuple[int, ...]) -> None:
    parsed = parse(progressive(name))
    assert places(parsed) == expected
    script = dict(enumerate((band for _, band in YCBCR_SCRIPT), 1))
    for scan, place in zip(parsed.scans, expected, strict=True):
        assert (scan.ss, scan.se, scan.ah, scan.al) == script[place]


@given(st.sets(st.integers(1, 9)), st.sampled_from(["4:2:0", "grey", "Adobe RGB"]))
def test_any_groups_hold_the_scans_up_to_their_ends(ends: set[int], name: str) -> None:
    data = progressive(name)
    single = pieces(data, parse(data), ALL)
    groups = [*sorted(ends), 10]
    cut = pieces(memoryview(data), parse(data), groups)
    starts = [0, *groups]
    for piece, first, last in zip(cut, starts, groups, strict=False):
        assert bytes(piece) == b"".join(single[first:last])


def test_a_grey_image_has_empty_pieces_where_chroma_stands() -> None:
    cut = pieces(progressive("grey"), parse(progressive("grey")), ALL)
    assert [place for place, piece in enumerate(cut, 1) if not piece] == [3, 4, 8, 9]


@pytest.mark.parametrize(
    "groups", [(), (1, 2), (10, 10), (0, 10), (2, 1, 10), (1, 11), (-1, 10), (10, 1)]
)
def test_groups_that_cannot_be_are_refused(groups: tuple[int, ...]) -> None:
    with refused("invalid-value"):
        check_groups(groups)
    with refused("invalid-value"):
        pieces(progressive("grey"), parse(progressive("grey")), groups)


@pytest.mark.parametrize("groups", [DEFAULT_GROUPS, (10,), list(ALL)])
def test_groups_that_rise_to_the_last_scan_are_taken(groups: list[int]) -> None:
    assert check_groups(groups) == tuple(groups)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("4:2:0", "baseline, not progressive"),
        ("progressive, spectral", "5 scans"),
        ("progressive, deep", "20 scans"),
    ],
)
def test_other_scripts_are_refused(name: str, message: str) -> None:
    data = ODD[name]()
    with pytest.raises(UnknownScript, match=re.escape(message)):
        pieces(data, parse(data), DEFAULT_GROUPS)


def test_scans_in_another_order_are_refused() -> None:
    script = [(components, *band) for components, band in YCBCR_SCRIPT]
    picture = odd_jpegs.draw()
    straight = odd_jpegs.encode(picture, script, frame=0xC2)
    assert places(parse(straight)) == tuple(ALL)
    script[2], script[3] = script[3], script[2]
    with pytest.raises(UnknownScript):
        places(parse(odd_jpegs.encode(picture, script, frame=0xC2)))
    backwards = [((0,), 0, 0, 0, 1), ((0,), 6, 63, 0, 2), ((0,), 1, 5, 0, 2)]
    grey = odd_jpegs.draw(sampling=odd_jpegs.GREY)
    with pytest.raises(UnknownScript, match="bands"):
        places(parse(odd_jpegs.encode(grey, backwards, frame=0xC2)))


def test_bytes_after_the_image_are_refused() -> None:
    data = progressive("grey") + b"\0"
    with pytest.raises(UnknownScript, match="1 bytes after"):
        pieces(data, parse(data), DEFAULT_GROUPS)
