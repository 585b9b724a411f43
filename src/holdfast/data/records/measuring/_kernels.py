"""Windowed statistics of images, compiled by Numba: float32 planes in, one thread, no GIL.

A plane is [H, W * C]: rows of interleaved channels, so that the neighbour to the right of a value stands
C further and every loop runs over contiguous memory. Values are pixels less `MIDDLE`, which keeps the
squares small enough for float32.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Plane = npt.NDArray[np.float32]

WINDOW = 11
SIGMA = 1.5
MIDDLE = 128

_weights = np.exp(-0.5 * ((np.arange(WINDOW) - WINDOW // 2) / SIGMA) ** 2)
_W0, _W1, _W2, _W3, _W4, _W5 = (np.float32(w) for w in (_weights / _weights.sum())[:6])
_C1 = np.float32((0.01 * 255) ** 2)
_C2 = np.float32((0.03 * 255) ** 2)
_TWO, _QUARTER = np.float32(2), np.float32(0.25)  # a Python number would make a sum float64
_MIDDLE = np.float32(MIDDLE)


@njit(nogil=True, fastmath=True, inline="always")
def _weigh(
    a: np.float32,
    b: np.float32,
    c: np.float32,
    d: np.float32,
    e: np.float32,
    f: np.float32,
    g: np.float32,
    h: np.float32,
    i: np.float32,
    j: np.float32,
    k: np.float32,
) -> np.float32:
    """The symmetric window's weighted sum; written out, for the compiler vectorises it so."""
    return _W0 * (a + k) + _W1 * (b + j) + _W2 * (c + i) + _W3 * (d + h) + _W4 * (e + g) + _W5 * f


@njit(nogil=True, fastmath=True, cache=True)
def _down(y: Plane, out: Plane, squares: Plane) -> None:
    """Down the columns of 11 rows: weighted sums of the values and of their squares."""
    for c in range(out.size):
        a, b, d, e, f, g = y[0, c], y[1, c], y[2, c], y[3, c], y[4, c], y[5, c]
        h, i, j, k, m = y[6, c], y[7, c], y[8, c], y[9, c], y[10, c]
        out[c] = _weigh(a, b, d, e, f, g, h, i, j, k, m)
        squares[c] = _weigh(
            a * a, b * b, d * d, e * e, f * f, g * g, h * h, i * i, j * j, k * k, m * m
        )


@njit(nogil=True, fastmath=True, cache=True)
def _down_both(x: Plane, y: Plane, out: Plane, squares: Plane, products: Plane) -> None:
    """As `_down`, with the products with another image."""
    for c in range(out.size):
        a, b, d, e, f, g = y[0, c], y[1, c], y[2, c], y[3, c], y[4, c], y[5, c]
        h, i, j, k, m = y[6, c], y[7, c], y[8, c], y[9, c], y[10, c]
        out[c] = _weigh(a, b, d, e, f, g, h, i, j, k, m)
        squares[c] = _weigh(
            a * a, b * b, d * d, e * e, f * f, g * g, h * h, i * i, j * j, k * k, m * m
        )
        products[c] = _weigh(
            a * x[0, c],
            b * x[1, c],
            d * x[2, c],
            e * x[3, c],
            f * x[4, c],
            g * x[5, c],
            h * x[6, c],
            i * x[7, c],
            j * x[8, c],
            k * x[9, c],
            m * x[10, c],
        )


@njit(nogil=True, fastmath=True, cache=True)
def _across(row: Plane, channels: int, out: Plane) -> None:
    """Along one row: the weighted sum of 11 neighbours of the same channel."""
    # Slices, not computed subscripts: only so does the compiler see that memory is contiguous.
    b, d, e = row[channels:], row[2 * channels :], row[3 * channels :]
    f, g, h = row[4 * channels :], row[5 * channels :], row[6 * channels :]
    i, j, k, m = row[7 * channels :], row[8 * channels :], row[9 * channels :], row[10 * channels :]
    for c in range(out.size):
        out[c] = _weigh(row[c], b[c], d[c], e[c], f[c], g[c], h[c], i[c], j[c], k[c], m[c])


@njit(nogil=True, fastmath=True, cache=True)
def _compare(
    mean_x: Plane,
    var_x: Plane,
    mean: Plane,
    squares: Plane,
    products: Plane,
    contrast: Plane,
    whole: Plane,
) -> None:
    """Add one row's contrast-structure term and SSIM to the sums of each column."""
    for c in range(mean.size):
        mx, my = mean_x[c], mean[c]
        term = (_TWO * (products[c] - mx * my) + _C2) / (var_x[c] + squares[c] - my * my + _C2)
        mx += _MIDDLE
        my += _MIDDLE
        contrast[c] += term
        whole[c] += term * (_TWO * mx * my + _C1) / (mx * mx + my * my + _C1)


@njit(nogil=True, fastmath=True, cache=True)
def statistics(x: Plane, channels: int) -> tuple[Plane, Plane]:
    """The windowed mean and variance of a plane, where the window fits: [H - 10, (W - 10) * C] each."""
    height, width = x.shape
    margin = WINDOW - 1
    mean = np.empty((height - margin, width - margin * channels), np.float32)
    var = np.empty_like(mean)
    values, squares = np.empty(width, np.float32), np.empty(width, np.float32)
    for row in range(height - margin):
        _down(x[row : row + WINDOW], values, squares)
        _across(values, channels, mean[row])
        _across(squares, channels, var[row])
        for c in range(mean.shape[1]):
            var[row, c] -= mean[row, c] * mean[row, c]
    return mean, var


@njit(nogil=True, fastmath=True, cache=True)
def similarity(
    x: Plane, mean_x: Plane, var_x: Plane, y: Plane, channels: int
) -> npt.NDArray[np.float64]:
    """Means over the image of the contrast-structure term and of SSIM: [2, C] float64."""
    width = x.shape[1]
    rows, columns = mean_x.shape
    down = np.empty((3, width), np.float32)
    across = np.empty((3, columns), np.float32)
    contrast, whole = np.zeros(columns, np.float32), np.zeros(columns, np.float32)
    for row in range(rows):
        _down_both(x[row : row + WINDOW], y[row : row + WINDOW], down[0], down[1], down[2])
        for kind in range(3):
            _across(down[kind], channels, across[kind])
        _compare(mean_x[row], var_x[row], across[0], across[1], across[2], contrast, whole)
    means = np.zeros((2, channels))
    for c in range(columns):
        means[0, c % channels] += contrast[c]
        means[1, c % channels] += whole[c]
    return means / (rows * (columns // channels))


@njit(nogil=True, fastmath=True, cache=True)
def plane(pixels: npt.NDArray[np.uint8]) -> Plane:
    """uint8 [H, W, C] as a plane."""
    height, width, channels = pixels.shape
    made = np.empty((height, width * channels), np.float32)
    flat = pixels.reshape(height, width * channels)
    for row in range(height):
        for c in range(width * channels):
            made[row, c] = np.float32(flat[row, c]) - _MIDDLE
    return made


@njit(nogil=True, fastmath=True, cache=True)
def halve(x: Plane, channels: int) -> Plane:
    """Means of 2 x 2 pixels; an odd last row or column is left out."""
    height, width = x.shape[0] // 2, x.shape[1] // channels // 2
    made = np.empty((height, width * channels), np.float32)
    for row in range(height):
        upper, lower = x[2 * row], x[2 * row + 1]
        for column in range(width):
            for channel in range(channels):
                at = 2 * column * channels + channel
                total = upper[at] + upper[at + channels] + lower[at] + lower[at + channels]
                made[row, column * channels + channel] = total * _QUARTER
    return made
