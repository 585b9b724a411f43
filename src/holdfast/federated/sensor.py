"""A simulated camera sensor: what a device's raw file holds of a photo.

sRGB -> linear light -> the sensor's color space -> its response to the light -> Bayer mosaic -> Poisson-
Gaussian noise -> 10 or 12 bits, after Brooks et al., "Unprocessing images for learned raw denoising" (CVPR
2019). Device profiles are in ``devices.toml``; `processing` makes photos of raw data again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from holdfast.config import invalid_value, read_config
from holdfast.federated.updates import Array

PROFILES = Path(__file__).with_name("devices.toml")
NOISE = {"high": (2e-4, 1e-6), "mid": (1e-3, 1e-5), "low": (4e-3, 1e-4)}
"""Tier -> variance of noise per unit of signal (shot), and of the dark signal (read)."""
Pattern = Literal["RGGB", "BGGR", "GRBG", "GBRG"]
_Gain = Annotated[float, Meta(ge=1, lt=1e3)]
_Row = tuple[float, float, float]


@dataclass(frozen=True)
class Stages:
    """The alternative that a device's image signal processor has for each of its six stages."""

    denoise: Literal["fbdd", "none", "wavelet"] = "fbdd"
    demosaic: Literal["ppg", "binning", "ahd"] = "ppg"
    white_balance: Literal["gray-world", "none", "white-patch"] = "gray-world"
    gamut: Literal["srgb", "none", "prophoto"] = "srgb"
    tone: Literal["gamma", "none", "equalized"] = "gamma"
    jpeg: Literal["85", "none", "50"] = "85"


@dataclass(frozen=True)
class Profile:
    """A device: its sensor and its image signal processor."""

    tier: Literal["high", "mid", "low"] = "high"
    """Noise of the sensor."""
    bits: Annotated[int, Meta(ge=8, le=16)] = 12
    """Of a raw value."""
    pattern: Pattern = "RGGB"
    """Colors of the upper left two rows of two pixels."""
    gains: tuple[_Gain, _Gain] = (2.0, 1.7)
    """Gains of red and blue that make gray of the light; 1 or more."""
    matrix: tuple[_Row, _Row, _Row] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    """Color correction: linear sRGB from the balanced colors of the sensor, [3, 3], rows add up to 1."""
    stages: Stages = field(default_factory=Stages)
    """Of the processor."""


@dataclass(frozen=True)
class _Profiles:
    device: Mapping[str, Profile]


def read_profiles(path: Path = PROFILES) -> dict[str, Profile]:
    """Devices of a TOML file, name -> profile.

    Raises:
        InputError: a mistake in the file; ``invalid-value`` for what no sensor has.
    """
    profiles = dict(read_config(path, _Profiles, "the device profiles").device)
    for name, profile in profiles.items():
        matrix = np.array(profile.matrix, dtype=float)
        gray = np.allclose(matrix.sum(axis=1), 1, atol=1e-6)
        if not gray or abs(np.linalg.det(matrix)) <= 0.01:
            place, expected = f"device.{name}.matrix", "invertible, rows that add up to 1"
            raise invalid_value("invalid matrix", path, place, profile.matrix, expected)
    return profiles


def linearize(srgb: Array) -> Array:
    """Linear light of sRGB values in [0, 1] (IEC 61966-2-1)."""
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def gamma(linear: Array) -> Array:
    """SRGB values of linear light in [0, 1]: the inverse of `linearize`."""
    bright = 1.055 * np.maximum(linear, 1e-9) ** (1 / 2.4) - 0.055
    return np.where(linear <= 0.0031308, 12.92 * linear, bright)


def color_sites(pattern: Pattern, height: int, width: int) -> Array:
    """Which color each pixel of a Bayer mosaic sees: [height, width] of 0 (red), 1, 2."""
    cell = np.array(["RGB".index(letter) for letter in pattern]).reshape(2, 2)
    return np.tile(cell, (height // 2, width // 2))


def expose(photos: Array, profile: Profile) -> Array:
    """Noise-free raw values of photos.

    Args:
        photos: sRGB [n, height, width, 3] in [0, 1], of even height and width.
        profile: of the device.

    Returns:
        [n, height, width] in [0, 1].
    """
    # 1. Linear light, in the colors of the sensor.
    to_sensor = np.linalg.inv(np.array(profile.matrix, dtype=float))
    sensor = np.clip(linearize(photos) @ to_sensor.T, 0, 1)
    # 2. Under the light of the scene red and blue are weaker than green.
    red, blue = profile.gains
    sensor = sensor / np.array([red, 1.0, blue])
    # 3. Each pixel sees one color.
    sites = color_sites(profile.pattern, *photos.shape[1:3])
    return np.take_along_axis(sensor, sites[None, :, :, None], axis=3)[..., 0]


def record(exposure: Array, profile: Profile, rng: np.random.Generator) -> Array:
    """Raw values as the device stores them: with noise, in steps of its bits.

    The variance of a value x is shot x + read: photons are Poisson, the electronics Gaussian.

    Args:
        exposure: of `expose`.
        profile: of the device.
        rng: random numbers.
    """
    shot, read = NOISE[profile.tier]
    noisy = rng.poisson(exposure / shot) * shot + rng.normal(0, read**0.5, exposure.shape)
    steps = 2**profile.bits - 1
    return np.asarray(np.rint(np.clip(noisy, 0, 1) * steps) / steps)
