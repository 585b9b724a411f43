"""Cutting a progressive JPEG at its scans, and putting it together again.

libjpeg writes a YCbCr image as ten scans, always the same. Places 1..10 are those of this script; the
scans of a grey or RGB image stand at the places of the same spectral band, so that a group holds data
of one kind whatever the images are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.data.records.jpeg.parsing import EOI, Buffer, Jpeg
from holdfast.errors import InputError

Band = tuple[int, int, int, int]
"""(Ss, Se, Ah, Al): the coefficients of a scan and the bits of them that it carries."""

DEFAULT_GROUPS = (1, 2, 5, 6, 10)
"""Scans 3, 4 and 7-9 are small: they travel with the scan after them."""

PLACES = 10

# components (0 Y, 1 Cb, 2 Cr) and band of each scan: `jpeg_simple_progression` of libjpeg's jcparam.c.
YCBCR_SCRIPT: tuple[tuple[tuple[int, ...], Band], ...] = (
    ((0, 1, 2), (0, 0, 0, 1)),
    ((0,), (1, 5, 0, 2)),
    ((2,), (1, 63, 0, 1)),
    ((1,), (1, 63, 0, 1)),
    ((0,), (6, 63, 0, 2)),
    ((0,), (1, 63, 2, 1)),
    ((0, 1, 2), (0, 0, 1, 0)),
    ((2,), (1, 63, 1, 0)),
    ((1,), (1, 63, 1, 0)),
    ((0,), (1, 63, 1, 0)),
)

PLACE_OF_BAND: dict[Band, int] = {
    (0, 0, 0, 1): 1,
    (1, 5, 0, 2): 2,
    (1, 63, 0, 1): 4,
    (6, 63, 0, 2): 5,
    (1, 63, 2, 1): 6,
    (0, 0, 1, 0): 7,
    (1, 63, 1, 0): 10,
}


class UnknownScript(ValueError):
    """A JPEG whose scans are not those of libjpeg's default progressive script."""


def check_groups(scans_end: Sequence[int]) -> tuple[int, ...]:
    """The groups, if they are some.

    Args:
        scans_end: the last scan (place) of each group.

    Raises:
        InputError: if they do not rise, or do not end with the last scan.
    """
    groups = tuple(scans_end)
    rises = all(a < b for a, b in pairwise((0, *groups)))
    if not groups or not rises or groups[-1] != PLACES:
        raise InputError(
            "invalid groups of scans",
            code="invalid-value",
            found=", ".join(str(end) for end in groups) or "none",
            expected=f"the last scan of each group, rising and ending with {PLACES}",
            remedy=f"for example {','.join(str(end) for end in DEFAULT_GROUPS)}",
        )
    return groups


def places(jpeg: Jpeg) -> tuple[int, ...]:
    """The place 1..10 of each scan, never falling.

    Raises:
        UnknownScript: if the image is not progressive, or a scan has no place.
    """
    bands = [(scan.ss, scan.se, scan.ah, scan.al) for scan in jpeg.scans]
    if jpeg.process != "progressive":
        raise UnknownScript(f"the image is {jpeg.process}, not progressive")
    if jpeg.color == "ycbcr":
        script = tuple(
            (scan.components, band) for scan, band in zip(jpeg.scans, bands, strict=True)
        )
        if script != YCBCR_SCRIPT:
            raise UnknownScript(f"{len(script)} scans that are not those of libjpeg's script")
        return tuple(range(1, PLACES + 1))
    found = tuple(PLACE_OF_BAND.get(band, 0) for band in bands)
    if found[0] != 1 or any(a > b for a, b in pairwise(found)):
        raise UnknownScript(f"scans of the bands {bands}")
    return found


def pieces(data: Buffer, jpeg: Jpeg, scans_end: Sequence[int]) -> list[Buffer]:
    """The bytes of a progressive JPEG that belong to each group; those of all groups + EOI are the file.

    Args:
        data: the file, as libjpeg writes it: nothing after EOI.
        jpeg: what `jpeg.parse` says about it.
        scans_end: the last scan (place) of each group, length G.

    Returns:
        G pieces, slices of `data`; those of groups in which the image has no scan are empty.

    Raises:
        UnknownScript: if the scans are not those of libjpeg's default script.
        InputError: if the groups cannot be.
    """
    # 1. Only files that end at EOI can be put together again byte by byte.
    groups = check_groups(scans_end)
    if jpeg.end != len(data):
        raise UnknownScript(f"{len(data) - jpeg.end} bytes after the end of the image")
    # 2. The place of each scan in libjpeg's script: groups mean the same bands in every image.
    cuts = [0]
    found = places(jpeg)
    scan = 0
    # 3. A group ends where its last scan does; headers and tables between scans travel with the next scan.
    for last in groups:
        while scan < len(found) and found[scan] <= last:
            scan += 1
        cuts.append(jpeg.scans[scan - 1].end)
    # 4. EOI belongs to no group: `image` adds it behind any number of groups, which makes each prefix a
    # JPEG.
    cuts[-1] = len(data) - len(EOI)
    return [data[start:end] for start, end in pairwise(cuts)]


def image(pieces: Sequence[Buffer]) -> bytes:
    """A JPEG out of its first pieces: any number of them, from the first on."""
    return b"".join((*pieces, EOI))
