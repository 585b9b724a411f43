"""Noise at a stated signal-to-noise ratio, and other speeds, so that a model withstands both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

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


def mix(speech: Array, noise: Array, snr_db: float) -> Array:
    """Speech with noise whose mean power over the speech is `snr_db` below that of the speech.

    Args:
        speech: float32 [n].
        noise: [n or more]; its first n samples are used.
        snr_db: 10 log10 (mean speech^2 / mean noise^2). Power, not peaks.

    Returns:
        float32 [n], not clipped; the speech itself if either is silent.
    """
    noise = noise[: len(speech)].astype(np.float64)
    power = np.mean(np.square(noise))
    wanted = np.mean(np.square(speech, dtype=np.float64)) / 10 ** (snr_db / 10)
    if not power:
        return speech
    mixed: Array = speech + noise * np.sqrt(wanted / power)
    return mixed.astype(np.float32)


def vary(
    samples: Array,
    rate: int,
    settings: NoiseSettings,
    noises: Sequence[Array],
    rng: np.random.Generator,
    shortest: int,
) -> Array:
    """One variation of an utterance.

    Args:
        samples: float32 [n].
        rate: samples per second.
        settings: ranges and shares.
        noises: recordings; none: white noise.
        rng: random numbers.
        shortest: number of samples that the text needs: no speed makes it shorter.
    """
    if settings.speeds:
        speed = settings.speeds[rng.integers(len(settings.speeds))]
        if len(samples) / speed >= shortest:
            samples = resample(samples, round(rate * speed), rate)
    if rng.random() >= settings.share:
        return samples
    snr_db = rng.uniform(min(settings.snr_db), max(settings.snr_db))
    if not noises:
        return mix(samples, rng.standard_normal(len(samples)), snr_db)
    noise = noises[int(rng.integers(len(noises)))]
    # A random part; a recording that is too short is repeated.
    begin = rng.integers(len(noise))
    return mix(samples, np.take(noise, range(begin, begin + len(samples)), mode="wrap"), snr_db)
