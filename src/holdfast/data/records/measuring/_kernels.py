"""The windowed terms of SSIM, compiled by Numba: float32 planes in, one thread, no GIL.

Without `fastmath`, so that every processor gives the same bits: records hold what comes of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Plane = npt.NDArray[np.float32]
"""[H, W] pixels less `MIDDLE`, which keeps the squares small enough for float32."""

WINDOW = 11
SIGMA = 1.5
MIDDLE = np.float32(128)

_weights = np.exp(-0.5 * ((np.arange(WINDOW) - WINDOW // 2) / SIGMA) ** 2)
_WEIGHTS = tuple((_weights / _weights.sum()).astype(np.float32))
_C1 = np.float32((0.01 * 255) ** 2)
_C2 = np.float32((0.03 * 255) ** 2)
_TWO = np.float32(2)  # a Python number would make a product float64


@njit(nogil=True, cache=True)
def _add(total: Plane, row: Plane, weight: np.float32) -> None:
    """Add a weighted row: the loop that the compiler vectorizes."""
    for column in range(total.size):
        total[column] += weight * row[column]


@njit(nogil=True, cache=True)
def _mean(x: Plane) -> Plane:
    """The Gaussian mean of each window that fits into the plane: [H - 10, W - 10]."""
    height, width = x.shape
    means = np.zeros((height - WINDOW + 1, width - WINDOW + 1), np.float32)
    down = np.empty(width, np.float32)
    for row in range(len(means)):
        down[:] = 0
        for k in range(WINDOW):
            _add(down, x[row + k], _WEIGHTS[k])
        for k in range(WINDOW):
            _add(means[row], down[k:], _WEIGHTS[k])
    return means


@njit(nogil=True, cache=True)
def moments(x: Plane) -> tuple[Plane, Plane]:
    """The mean and the variance of each window: [H - 10, W - 10] each."""
    mean = _mean(x)
    return mean, _mean(x * x) - mean * mean


@njit(nogil=True, cache=True)
def terms(x: Plane, mx: Plane, vx: Plane, y: Plane) -> tuple[Plane, Plane]:
    """The contrast-structure term and SSIM at each window of a plane with known moments, and another."""
    my = _mean(y)
    variances = vx + _mean(y * y) - my * my
    contrast = (_TWO * (_mean(x * y) - mx * my) + _C2) / (variances + _C2)
    mx = mx + MIDDLE
    my += MIDDLE
    return contrast, contrast * (_TWO * mx * my + _C1) / (mx * mx + my * my + _C1)
