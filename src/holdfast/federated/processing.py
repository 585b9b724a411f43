"""A simulated image signal processor: six stages, each with three alternatives, from raw data to a photo.

`STAGES` is the table; `capture` takes photos with a device. The first alternative of each stage is the
reference, and the alternatives are those of HeteroSwitch's characterization (arXiv 2403.04207, table 2).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np

from holdfast.config import invalid_value
from holdfast.errors import InputError
from holdfast.federated.demosaic import ahd, binning, ppg, shifted
from holdfast.federated.sensor import Profile, expose, gamma, record
from holdfast.federated.updates import Array

Stage = Callable[[Array, Profile], Array]
_CHUNK = 512  # photos at a time
_LUMA = np.array([0.299, 0.587, 0.114])
_TO_PROPHOTO = np.array(
    [[0.5293, 0.3301, 0.1406], [0.0983, 0.8735, 0.0282], [0.0169, 0.1177, 0.8654]]
)
"""Linear sRGB to linear ProPhoto RGB, white on white."""


def capture(photos: Array, profile: Profile, seed: int | Sequence[int]) -> Array:
    """Photos as a device would have taken them.

    Args:
        photos: sRGB [n, 3, height, width] in [0, 1].
        profile: of the device.
        seed: of its noise.

    Returns:
        The same shape, float32 in [0, 1].

    Raises:
        InputError: ``unsupported`` if they are not such photos, of a height and width in multiples of 4;
            ``invalid-value`` if a value is not in [0, 1].
    """
    shape = photos.shape
    if photos.ndim != 4 or shape[1] != 3 or shape[2] % 4 or shape[3] % 4:
        raise InputError(
            "devices take color photos",
            code="unsupported",
            place="devices",
            found=f"inputs of shape {list(shape[1:])}",
            expected="[3, height, width], multiples of 4",
        )
    if not np.all((photos >= 0) & (photos <= 1)):
        found = f"values from {photos.min()} to {photos.max()}"
        raise invalid_value("invalid photos", None, "photos", found, "0 to 1; divide bytes by 255")
    rng = np.random.default_rng(seed)
    taken = np.empty(shape, np.float32)
    for begin in range(0, len(photos), _CHUNK):
        some = photos[begin : begin + _CHUNK].transpose(0, 2, 3, 1)
        raw = record(expose(some, profile), profile, rng)
        taken[begin : begin + _CHUNK] = process(raw, profile).transpose(0, 3, 1, 2)
    return taken


def process(raw: Array, profile: Profile) -> Array:
    """A photo [n, height, width, 3] in [0, 1] from raw values [n, height, width]."""
    image = raw
    for stage, alternative in asdict(profile.stages).items():
        image = np.clip(STAGES[stage][alternative](image, profile), 0, 1)
    return image


def _same(image: Array, profile: Profile) -> Array:
    return image


# --- Denoising, on raw values --------------------------------------------------------------------


def clamp_outliers(raw: Array, profile: Profile) -> Array:
    """Pull a pixel into the range of its four neighbors of its color: the first step of LibRaw's FBDD."""
    near = [shifted(raw, axis, step) for axis in (1, 2) for step in (-2, 2)]
    return np.clip(raw, np.min(near, axis=0), np.max(near, axis=0))


def bayes_shrink(raw: Array, profile: Profile) -> Array:
    """Soft thresholds on the Haar details of each color plane (Chang, Yu and Vetterli 2000).

    The threshold of a band is sigma^2 / sigma_x: sigma = median |diagonal details| / 0.6745, and
    sigma_x^2 = max(mean squared details - sigma^2, 0).
    """
    n, height, width = raw.shape
    # 1. The Haar transform of each color's blocks of 2 x 2 pixels: means and details,
    # [4 bands, 2 x 2 colors, n, height / 4, width / 4].
    blocks = raw.reshape(n, height // 4, 2, 2, width // 4, 2, 2).transpose(2, 5, 3, 6, 0, 1, 4)
    bands = haar(blocks.reshape(4, *blocks.shape[2:]))
    # 2. Soft thresholds on each band of details.
    spread = np.median(np.abs(bands[3]), axis=(-2, -1), keepdims=True) / 0.6745
    signal = np.mean(bands[1:] ** 2, axis=(-2, -1), keepdims=True) - spread**2
    limit = spread**2 / np.sqrt(np.maximum(signal, 1e-12))
    bands[1:] = np.sign(bands[1:]) * np.maximum(np.abs(bands[1:]) - limit, 0)
    # 3. Back to pixels.
    pixels = haar(bands).reshape(blocks.shape).transpose(4, 5, 0, 2, 6, 1, 3)
    return pixels.reshape(raw.shape)


def haar(parts: Array) -> Array:
    """Orthonormal Haar transform of blocks of four pixels, [4, ...]; it is its own inverse.

    Means, then horizontal, vertical and diagonal details.
    """
    from scipy.linalg import hadamard

    return np.tensordot(hadamard(4) / 2, parts, axes=1)


# --- Color ---------------------------------------------------------------------------------------


def gray_world(image: Array, profile: Profile) -> Array:
    """Gains that make the mean of each photo gray."""
    return _balanced(image, image.mean(axis=(1, 2), keepdims=True))


def white_patch(image: Array, profile: Profile) -> Array:
    """Gains that make the brightest percent of each photo white."""
    return _balanced(image, np.quantile(image, 0.99, axis=(1, 2), keepdims=True))


def _balanced(image: Array, reference: Array) -> Array:
    return image * (reference[..., 1:2] / np.maximum(reference, 1e-6))


def to_srgb(image: Array, profile: Profile) -> Array:
    """Linear sRGB from the colors of the sensor."""
    return image @ np.array(profile.matrix, dtype=float).T


def to_prophoto(image: Array, profile: Profile) -> Array:
    """Linear ProPhoto RGB, which a viewer that takes it for sRGB shows pale."""
    return to_srgb(image, profile) @ _TO_PROPHOTO.T


# --- Tone and compression ------------------------------------------------------------------------


def equalized(image: Array, profile: Profile) -> Array:
    """Gamma, then every level of brightness equally often."""
    image = gamma(image)
    luma = image @ _LUMA
    levels = np.rint(255 * luma).astype(int)
    for place, level in enumerate(levels):
        share = np.cumsum(np.bincount(level.ravel(), minlength=256)) / level.size
        image[place] *= (share[level] / np.maximum(luma[place], 1e-6))[..., None]
    return image


def compressed(image: Array, profile: Profile, *, quality: int) -> Array:
    """Each photo compressed as JPEG, and decoded."""
    from PIL import Image

    photos = np.rint(255 * image).astype(np.uint8)
    for place, photo in enumerate(photos):
        file = io.BytesIO()
        Image.fromarray(photo).save(file, "JPEG", quality=quality)
        with Image.open(file) as decoded:
            photos[place] = np.asarray(decoded)
    return photos / np.float32(255)


STAGES: dict[str, dict[str, Stage]] = {
    "denoise": {"fbdd": clamp_outliers, "none": _same, "wavelet": bayes_shrink},
    "demosaic": {"ppg": ppg, "binning": binning, "ahd": ahd},
    "white_balance": {"gray-world": gray_world, "none": _same, "white-patch": white_patch},
    "gamut": {"srgb": to_srgb, "none": _same, "prophoto": to_prophoto},
    "tone": {"gamma": lambda image, profile: gamma(image), "none": _same, "equalized": equalized},
    "jpeg": {
        "85": partial(compressed, quality=85),
        "none": _same,
        "50": partial(compressed, quality=50),
    },
}
"""Stage -> alternative -> function of the image and the profile, in the order in which they run."""
