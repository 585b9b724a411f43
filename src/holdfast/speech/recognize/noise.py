"""Noise at a stated signal-to-noise ratio, and other speeds, so that a model withstands both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta
from scipy.signal import lfilter

from holdfast.errors import InputError
from holdfast.speech.recognize.audio import Array, read_audio, resample

Level = Annotated[float, Meta(ge=-100, le=100)]


@dataclass(frozen=True)
class NoiseSettings:
    """How the training audio is varied."""

    snr_db: tuple[Level, Level] = (5.0, 20.0)
    """Range of the signal-to-noise ratio: mean power of the speech over that of the noise."""
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Probability that an utterance gets noise."""
    files: str = ""
    """Folder of noise recordings, relative to the configuration; empty: white noise."""
    speeds: tuple[Annotated[float, Meta(ge=0.5, le=2)], ...] = ()
    """Factors of speed and pitch, of which each utterance gets one; empty: none."""
    tilt: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Largest |c| of the filter x_t - c x_{t-1} that each utterance gets: other microphones."""


def read_noise(folder: Path, rate: int) -> list[Array]:
    """Noise recordings of a folder, in the order of their names.

    Raises:
        InputError: ``no-data`` without files; what `read_audio` refuses; ``empty-input`` for silence.
    """
    files = [each for each in sorted(folder.rglob("*")) if each.is_file()]
    if not files:
        raise InputError("no noise recordings", code="no-data", path=folder, expected="audio files")
    noises = [read_audio(each, rate).samples for each in files]
    for file, noise in zip(files, noises, strict=True):
        if not noise.any():
            raise InputError("the noise is silent", code="empty-input", path=file)
    return noises


def mix(speech: Array, noise: Array, snr_db: float, power: float | None = None) -> Array:
    """Speech with noise whose mean power over the speech is `snr_db` below that of the speech.

    Args:
        speech: float32 [n].
        noise: [n or more]; its first n samples are used.
        snr_db: 10 log10 (mean speech^2 / mean noise^2). Power, not peaks.
        power: mean speech^2, if not all of it is speech.

    Returns:
        float32 [n], not clipped; the speech itself if either is silent.
    """
    noise = noise[: len(speech)].astype(np.float64)
    own = np.mean(np.square(noise))
    if power is None:
        power = power_of(speech)
    if not own:
        return speech
    mixed: Array = speech + noise * np.sqrt(power / 10 ** (snr_db / 10) / own)
    return mixed.astype(np.float32)


def power_of(samples: Array) -> float:
    """Mean square."""
    return float(np.mean(np.square(samples, dtype=np.float64)))


def vary(
    samples: Array,
    rate: int,
    settings: NoiseSettings | None,
    noises: Sequence[Array],
    rng: np.random.Generator,
    shortest: int,
    pauses: tuple[int, int] = (0, 0),
) -> Array:
    """One variation of an utterance.

    Args:
        samples: float32 [n].
        rate: samples per second.
        settings: ranges and shares; None: only pauses.
        noises: recordings; none: white noise.
        rng: random numbers.
        shortest: number of samples that the text needs: no speed makes it shorter.
        pauses: samples before and after it.
    """
    # 1. Another speaker and microphone.
    if settings is not None:
        if settings.speeds:
            speed = settings.speeds[rng.integers(len(settings.speeds))]
            if len(samples) / speed >= shortest:
                samples = resample(samples, round(rate * speed), rate)
        tilt = rng.uniform(-settings.tilt, settings.tilt)
        samples = lfilter([1.0, -tilt], [1.0], samples).astype(np.float32)
    # 2. Pauses, and noise over all; its ratio is to the power of the speech.
    power = power_of(samples)
    samples = with_pauses(samples, *pauses, rng)
    if settings is None or rng.random() >= settings.share:
        return samples
    snr_db = rng.uniform(min(settings.snr_db), max(settings.snr_db))
    if not noises:
        return mix(samples, rng.standard_normal(len(samples)), snr_db, power)
    noise = noises[int(rng.integers(len(noises)))]
    # A random part; a recording that is too short is repeated.
    begin = rng.integers(len(noise))
    noise = np.take(noise, range(begin, begin + len(samples)), mode="wrap")
    return mix(samples, noise, snr_db, power)


def with_pauses(samples: Array, before: int, after: int, rng: np.random.Generator) -> Array:
    """An utterance with noise before and after it, on average 15 to 60 dB below it.

    Its spectrum is from white to a hum or a tone, and its level changes by up to some 20 dB; a third of
    it is gated (digital silence where it is low), and a sixth is digital silence.

    Args:
        samples: float32 [n].
        before: number of samples before it.
        after: number of samples after it.
        rng: random numbers.
    """
    if not (size := before + after):
        return samples
    # 1. White noise through a resonance at a random frequency.
    radius, angle = rng.uniform(0, 0.99), rng.uniform(0, np.pi)
    poles = [1.0, -2 * radius * np.cos(angle), radius**2]
    noise = lfilter([1.0], poles, rng.standard_normal(size))
    # 2. Its level, in dB, is a line between random points.
    points = rng.normal(0, rng.uniform(0, 10), rng.integers(2, 12))
    level_db = np.interp(np.arange(size), np.linspace(0, size, len(points)), points)
    noise *= 10 ** (level_db / 20)
    rms = np.sqrt(power_of(samples) / power_of(noise)) * 10 ** (-rng.uniform(15, 60) / 20)
    kind = rng.random()
    if kind < 1 / 2:
        noise[level_db < (0 if kind < 1 / 3 else np.inf)] = 0
    noise = (noise * rms).astype(np.float32)
    return np.concatenate([noise[:before], samples, noise[before:]])
