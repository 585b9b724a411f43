"""Cuttings of images at every fidelity, pixel for pixel, small enough for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import simplejpeg

from holdfast.data.records.jpeg import scripts
from holdfast.data.records.jpeg.decoding import decode

if TYPE_CHECKING:
    from holdfast.data.records.jpeg.decoding import Pixels
    from holdfast.data.records.jpeg.parsing import Buffer

WIDTH, HEIGHT = 120, 90


@dataclass(frozen=True, slots=True)
class Strip:
    """One image at every fidelity, cut at the same place."""

    id: str
    width: int
    """Pixels of each cutting."""
    height: int
    pictures: tuple[bytes, ...]
    """[G] JPEG files."""
    msssim: tuple[float, ...]
    """[G] of the whole image."""


def strip(name: str, pieces: Sequence[Buffer], orientation: int, msssim: Sequence[float]) -> Strip:
    """Cut an image where it has most contrast.

    Args:
        name: of the image.
        pieces: [G] of a transcoded image.
        orientation: of EXIF; the cuttings are upright.
        msssim: [G] of the image.

    Raises:
        DecodeError: if the image does not decode.
        LimitError: if it has too many pixels.
    """
    full = decode(scripts.image(pieces), orientation=orientation)
    top, left = busiest(full)
    cuttings = []
    for fidelity in range(1, len(pieces) + 1):
        pixels = decode(scripts.image(pieces[:fidelity]), orientation=orientation)
        cut = np.ascontiguousarray(pixels[top : top + HEIGHT, left : left + WIDTH])
        # Whatever this JPEG loses is far less than what a lower fidelity lacks.
        cuttings.append(simplejpeg.encode_jpeg(cut, quality=85, colorsubsampling="444"))
    return Strip(name, cut.shape[1], cut.shape[0], tuple(cuttings), tuple(msssim))


def busiest(pixels: Pixels) -> tuple[int, int]:
    """Top and left of the cutting whose values vary most: a flat sky is the same at every fidelity.

    Args:
        pixels: [H, W, C].
    """
    tops = range(0, max(pixels.shape[0] - HEIGHT, 0) + 1, HEIGHT // 2)
    lefts = range(0, max(pixels.shape[1] - WIDTH, 0) + 1, WIDTH // 2)
    return max(
        ((top, left) for top in tops for left in lefts),
        key=lambda at: float(pixels[at[0] : at[0] + HEIGHT, at[1] : at[1] + WIDTH, 1].var()),
    )
