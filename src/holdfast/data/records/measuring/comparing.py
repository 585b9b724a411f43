"""One image at each fidelity, compared with the same image at full fidelity."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from holdfast.data.records.jpeg import scans
from holdfast.data.records.jpeg.decoding import DecodeError, decode
from holdfast.errors import LimitError, MissingExtraError

if TYPE_CHECKING:
    from holdfast.data.records.jpeg.decoding import Pixels
    from holdfast.data.records.jpeg.parsing import Buffer

LARGEST_SIDE = 4096
"""Larger images are compared in their center only, to limit memory."""

_SEVERAL_AT_ONCE = 2**22  # pixels; a larger image takes 50 bytes for each and is measured alone
_alone = threading.Lock()


class Means(NamedTuple):
    """What `measure` finds."""

    msssim: list[float]
    """[G] mean over the images that were measured; empty if none was."""
    images: int
    """How many were."""


def compare(pieces: Sequence[Buffer]) -> list[float]:
    """[G] the MS-SSIM (RGB) of one image at each fidelity with itself in full; the last is 1.

    Args:
        pieces: [G] of a transcoded image (an opaque one is whole at every fidelity).

    Raises:
        DecodeError: if the image does not decode.
        LimitError: if it has too many pixels.
        MissingExtraError: if only Pillow can decode it, and it is not installed.
    """
    # Compiled code: what only writes or reads records need not wait for it.
    from holdfast.data.records.measuring.similarity import likenesses

    full = _middle(decode(scans.image(pieces)))
    large = full.shape[0] * full.shape[1] > _SEVERAL_AT_ONCE
    # Without a piece of its own, a fidelity looks like the one below it.
    own = [bool(piece) or not number for number, piece in enumerate(pieces[:-1])]
    with _alone if large else nullcontext():
        shown = [pieces[: n + 1] for n, differs in enumerate(own) if differs]
        found = likenesses(full, [_middle(decode(scans.image(some))) for some in shown])
    return [*(found[place - 1] for place in np.cumsum(own)), 1.0]


def measure(images: Iterable[Sequence[Buffer]], *, threads: int = 1) -> Means:
    """The mean MS-SSIM of each fidelity, over images at hand.

    Args:
        images: the pieces [G] of each. Leave opaque images out: whole at every fidelity, they would
            flatter the mean. One that does not decode is not counted.
        threads: measure this many at once.
    """
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(_msssim, images))
    else:
        results = [_msssim(pieces) for pieces in images]
    found = [values for values in results if values is not None]
    return Means(np.mean(found, axis=0).tolist() if found else [], len(found))


def _msssim(pieces: Sequence[Buffer]) -> list[float] | None:
    try:
        return compare(pieces)
    except (DecodeError, LimitError, MissingExtraError):
        return None


def _middle(pixels: Pixels) -> Pixels:
    height, width = pixels.shape[:2]
    top, left = (max(side - LARGEST_SIDE, 0) // 2 for side in (height, width))
    return pixels[top : top + LARGEST_SIDE, left : left + LARGEST_SIDE]
