"""How alike two images look: MS-SSIM.

Wang, Simoncelli, Bovik, "Multiscale structural similarity for image quality assessment" (2003). With means
m, variances v and the covariance of an 11 x 11 Gaussian window (sigma 1.5), taken wherever the window fits
into the image,

    l = (2 m_x m_y + C1) / (m_x^2 + m_y^2 + C1),   C1 = (0.01 * 255)^2
    c = (2 cov_xy + C2) / (v_x + v_y + C2),        C2 = (0.03 * 255)^2
    MS-SSIM = mean(l c at scale M)^w_M * product over scales j < M of mean(c at j)^w_j

where each scale halves the one before by 2 x 2 means. It is taken channel by channel, then averaged. No
library that this one needs anyway has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from holdfast.data.records.jpeg.decoding import Pixels
    from holdfast.data.records.measuring._kernels import Plane

WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weights of the scales, finest first."""
WINDOW = 11


def msssim(reference: Pixels, other: Pixels) -> float:
    """MS-SSIM of two images of one size, 0 to 1; a scale of opposite structure counts as 0.

    Args:
        reference: UInt8 [H, W, C]. An image whose shorter side is under 176 pixels has no room for the
            window at all five scales: it is compared at as many as fit, with the weights of these scaled
            to the sum of all. Sides under 11 pixels are mirrored until the window fits.
        other: UInt8 [H, W, C].

    Raises:
        ValueError: if the images differ in shape.
    """
    return likenesses(reference, [other])[0]


def likenesses(reference: Pixels, others: Sequence[Pixels]) -> list[float]:
    """The `msssim` of each of several images with the same one, whose moments are computed once."""
    from holdfast.data.records.measuring import _kernels

    for other in others:
        if other.shape != reference.shape:
            raise ValueError(f"images of {reference.shape} and {other.shape} cannot be compared")
    x, *enlarged = map(_enlarged, (reference, *others))
    rows = []  # [C, others]
    for c in range(x.shape[2]):
        known = [(plane, *_kernels.moments(plane)) for plane in _planes(x[..., c])]
        rows.append([_of_channel(known, y[..., c]) for y in enlarged])
    return [min(float(one), 1.0) for one in np.mean(rows, axis=0)]  # float32 rounds a little beyond


def _planes(channel: npt.NDArray[np.uint8]) -> Iterator[Plane]:
    """A channel at each scale, [H, W] and smaller."""
    from holdfast.data.records.measuring import _kernels

    plane = channel.astype(np.float32) - _kernels.MIDDLE
    for level in range(scales(*channel.shape)):
        if level:
            plane = _halved(plane)
        yield plane


def _of_channel(known: Sequence[tuple[Plane, Plane, Plane]], y: npt.NDArray[np.uint8]) -> float:
    """MS-SSIM of a channel with one whose planes and their moments are known."""
    from holdfast.data.records.measuring import _kernels

    levels = len(known)
    weights = np.array(WEIGHTS[:levels]) * sum(WEIGHTS) / sum(WEIGHTS[:levels])
    product = 1.0
    for level, (reference, plane, weight) in enumerate(
        zip(known, _planes(y), weights, strict=True), 1
    ):
        contrast, whole = _kernels.terms(*reference, plane)
        term = whole if level == levels else contrast
        product *= max(float(term.mean(dtype=np.float64)), 0.0) ** weight
    return product


def scales(height: int, width: int) -> int:
    """How many of the five scales have room for the window; at least 1."""
    room = min(height, width) // WINDOW
    return min(max(room.bit_length(), 1), len(WEIGHTS))


def _halved(plane: Plane) -> Plane:
    """Means of 2 x 2 pixels; an odd last row or column is left out."""
    height, width = plane.shape[0] // 2, plane.shape[1] // 2
    blocks = plane[: 2 * height, : 2 * width].reshape(height, 2, width, 2)
    means: Plane = blocks.mean((1, 3), dtype=np.float32)
    return means


def _enlarged(pixels: Pixels) -> Pixels:
    missing = [max(WINDOW - side, 0) for side in pixels.shape[:2]]
    return np.pad(pixels, [(0, missing[0]), (0, missing[1]), (0, 0)], mode="symmetric")
