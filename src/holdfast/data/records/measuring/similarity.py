"""How alike two images look: SSIM and MS-SSIM.

Wang, Bovik, Sheikh, Simoncelli, "Image quality assessment: from error visibility to structural
similarity" (2004), and Wang, Simoncelli, Bovik, "Multiscale structural similarity for image quality
assessment" (2003). With means m, variances v and the covariance of an 11 x 11 Gaussian window
(sigma 1.5), taken wherever the window fits into the image,

    SSIM     = l * c,   l = (2 m_x m_y + C1) / (m_x^2 + m_y^2 + C1),   C1 = (0.01 * 255)^2
                        c = (2 cov_xy + C2) / (v_x + v_y + C2),        C2 = (0.03 * 255)^2
    MS-SSIM  = mean(l c at scale M)^w_M * product over scales j < M of mean(c at j)^w_j

where each scale halves the one before by 2 x 2 means. Both are taken channel by channel, then averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from holdfast.data.records.jpeg.decoding import Pixels

    Plane = npt.NDArray[np.float32]
    """[H, W * C] pixels less 128."""

WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weights of the scales, finest first."""
WINDOW = 11


@dataclass(frozen=True, slots=True)
class _Scale:
    """The reference at one scale, with what every comparison needs of it."""

    plane: Plane
    mean: Plane
    """[H - 10, (W - 10) * C]"""
    var: Plane


class Reference:
    """An image that others are compared with: its own statistics are computed once.

    Args:
        pixels: UInt8 [H, W, C]. An image whose shorter side is under 176 pixels has no room for
            the window at all five scales: it is compared at as many as fit, with the weights of these
            scaled to the sum of all. Sides under 11 pixels are mirrored until the window fits.
    """

    def __init__(self, pixels: Pixels) -> None:
        from holdfast.data.records.measuring import _kernels

        self.shape = pixels.shape
        self._scales: list[_Scale] = []
        plane = _kernels.plane(_enlarged(pixels))
        self._channels = pixels.shape[2]
        for level in range(scales(*pixels.shape[:2])):
            if level:
                plane = _kernels.halve(plane, self._channels)
            self._scales.append(_Scale(plane, *_kernels.statistics(plane, self._channels)))

    def msssim(self, other: Pixels) -> float:
        """MS-SSIM, at most 1; a scale whose structure is opposite on the whole counts as 0.

        Raises:
            ValueError: if the images differ in shape.
        """
        weights = np.array(WEIGHTS[: len(self._scales)])
        contrast, whole = self._compare(other, len(self._scales))
        terms = np.vstack([contrast[:-1], whole[-1:]]).clip(0)  # [scales, C]
        weights *= sum(WEIGHTS) / weights.sum()
        return float(np.prod(terms ** weights[:, None], axis=0).mean())

    def ssim(self, other: Pixels) -> float:
        """SSIM at the scale of the images themselves, at most 1.

        Raises:
            ValueError: if the images differ in shape.
        """
        _, whole = self._compare(other, 1)
        return float(whole[0].mean())

    def _compare(self, other: Pixels, levels: int) -> npt.NDArray[np.float64]:
        """Means of the contrast-structure term and of SSIM: [2, levels, C]."""
        from holdfast.data.records.measuring import _kernels

        if other.shape != self.shape:
            raise ValueError(f"images of {self.shape} and {other.shape} cannot be compared")
        means = np.empty((2, levels, self._channels))
        plane = _kernels.plane(_enlarged(other))
        for level, scale in enumerate(self._scales[:levels]):
            if level:
                plane = _kernels.halve(plane, self._channels)
            means[:, level] = _kernels.similarity(
                scale.plane, scale.mean, scale.var, plane, self._channels
            )
        return means


def scales(height: int, width: int) -> int:
    """How many of the five scales have room for the window; at least 1."""
    room = min(height, width) // WINDOW
    return min(max(room.bit_length(), 1), len(WEIGHTS))


def msssim(reference: Pixels, other: Pixels) -> float:
    """MS-SSIM of two images of one size: UInt8 [H, W, C] each (see `Reference`)."""
    return Reference(reference).msssim(other)


def ssim(reference: Pixels, other: Pixels) -> float:
    """SSIM of two images of one size: UInt8 [H, W, C] each (see `Reference`)."""
    return Reference(reference).ssim(other)


def luma(pixels: Pixels) -> Pixels:
    """The luma of JPEG (ITU-R BT.601, full range): [H, W, 3] -> [H, W, 1]."""
    weighted = pixels @ np.array([0.299, 0.587, 0.114], np.float32)
    return (weighted + 0.5).astype(np.uint8)[:, :, None]


def _enlarged(pixels: Pixels) -> Pixels:
    missing = [max(WINDOW - side, 0) for side in pixels.shape[:2]]
    if not any(missing):
        return np.ascontiguousarray(pixels)
    return np.pad(pixels, [(0, missing[0]), (0, missing[1]), (0, 0)], mode="symmetric")
