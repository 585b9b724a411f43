"""Full colors from a Bayer mosaic: pixel binning, patterned pixel grouping (PPG), homogeneity (AHD).

PPG and AHD estimate green along a row or a column, and red and blue from their differences to green. They
differ in how a pixel chooses its direction: PPG after Chuan-kai Lin's description, AHD after Hirakawa and
Parks, "Adaptive homogeneity-directed demosaicing" (IEEE Transactions on Image Processing, 2005).
"""

from __future__ import annotations

import numpy as np

from holdfast.federated.sensor import Profile, color_sites
from holdfast.federated.updates import Array

_TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
) / np.array([[0.9505], [1.0], [1.089]])
"""Linear sRGB to XYZ, relative to white."""


def binning(raw: Array, profile: Profile) -> Array:
    """One color per two by two pixels, at the size of the mosaic.

    Args:
        raw: [n, height, width] of even height and width.
        profile: of the device, which has the pattern of the mosaic.

    Returns:
        [n, height, width, 3].
    """
    sites = color_sites(profile.pattern, 2, 2)
    shares = (sites[..., None] == np.arange(3)) / np.array([1, 2, 1])  # [2, 2, 3]
    n, height, width = raw.shape
    blocks = raw.reshape(n, height // 2, 2, width // 2, 2)
    cells = np.einsum("nhawb,abc->nhwc", blocks, shares)
    return np.repeat(np.repeat(cells, 2, axis=1), 2, axis=2)


def ppg(raw: Array, profile: Profile) -> Array:
    """Green along the direction in which the mosaic changes least; arguments as for `binning`."""
    sites = color_sites(profile.pattern, *raw.shape[1:])
    changes = []
    for axis in (1, 2):
        near = {step: shifted(raw, axis, step) for step in (-3, -2, -1, 1, 2, 3)}
        own = np.abs(near[-2] - raw) + np.abs(near[2] - raw) + np.abs(near[1] - near[-1])
        green = np.abs(near[-3] - near[-1]) + np.abs(near[3] - near[1])
        changes.append(3 * own + 2 * green)
    down, across = (_green(raw, sites, axis) for axis in (1, 2))
    return _with_chroma(raw, sites, np.where(changes[0] < changes[1], down, across))


def ahd(raw: Array, profile: Profile) -> Array:
    """Of both directions the one whose colors are more homogeneous; arguments as for `binning`."""
    sites = color_sites(profile.pattern, *raw.shape[1:])
    # 1. The whole image, interpolated along columns and along rows: [2, n, height, width, 3].
    images = np.stack([_with_chroma(raw, sites, _green(raw, sites, axis)) for axis in (1, 2)])
    # 2. Differences of lightness and of color to the four neighbors: [2, 4, n, height, width].
    labs = _lab(images)
    neighbors = [shifted(labs, axis, step) for axis in (2, 3) for step in (-1, 1)]
    gaps = np.stack(neighbors, axis=1) - labs[:, None]
    # 3. What counts as homogeneous: no more than the differences along the direction of interpolation.
    alike = np.ones(gaps.shape[:-1], bool)
    for kind in (np.abs(gaps[..., 0]), np.sum(gaps[..., 1:] ** 2, axis=-1)):
        alike &= kind <= np.minimum(kind[0, :2].max(axis=0), kind[1, 2:].max(axis=0))
    # 4. Votes of the three by three pixels around each pixel.
    votes = alike.sum(axis=1).astype(float)
    for axis in (2, 3):
        votes = votes + shifted(votes, axis, 1) + shifted(votes, axis, -1)
    share = (0.5 + 0.5 * np.sign(votes[0] - votes[1]))[..., None]
    return np.asarray(share * images[0] + (1 - share) * images[1])


def shifted(values: Array, axis: int, step: int) -> Array:
    """The neighbor `step` pixels away; mirrored at the edge, which keeps the colors of a mosaic."""
    size = values.shape[axis]
    places = np.abs(np.arange(size) + step)
    return values.take(np.where(places < size, places, 2 * (size - 1) - places), axis=axis)


def _green(raw: Array, sites: Array, axis: int) -> Array:
    """Green everywhere: where another color was seen, from green and that color along an axis."""
    before, after = shifted(raw, axis, -1), shifted(raw, axis, 1)
    bend = 2 * raw - shifted(raw, axis, -2) - shifted(raw, axis, 2)
    guess = (before + after) / 2 + bend / 4
    guess = np.clip(guess, np.minimum(before, after), np.maximum(before, after))
    return np.where(sites == 1, raw, guess)


def _with_chroma(raw: Array, sites: Array, green: Array) -> Array:
    """Red and blue from their bilinear differences to green."""
    colors = [green, green, green]
    for color in (0, 2):
        difference = np.where(sites == color, raw - green, 0.0)
        for axis in (1, 2):  # weights 1/2, 1, 1/2 along each axis: sites are two pixels apart
            sides = shifted(difference, axis, -1) + shifted(difference, axis, 1)
            difference = difference + sides / 2
        colors[color] = green + difference
    return np.clip(np.stack(colors, axis=-1), 0, 1)


def _lab(image: Array) -> Array:
    """CIELAB of linear colors, without the linear part near black."""
    root = np.cbrt(image @ _TO_XYZ.T)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)
