"""Frames of a log spectrogram, on a linear or a mel scale.

A frame depends on its samples and on the level before it, never on what follows, so a stream has the frames
of the whole file; mean and deviation are those of the training set, never of an utterance or of padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from holdfast.errors import InputError
from holdfast.speech.recognize.audio import FASTEST, SLOWEST, Array

FLOOR = 1e-5
"""Added to the power as a share of the running level before the logarithm: silence is a number."""
ABSOLUTE_FLOOR = 1e-6
"""The same without a running level; full scale is 1."""
FALL_DB_S = 5.0
"""Decibels per second by which the running level falls behind the loudest frame."""


@dataclass(frozen=True)
class FeatureSettings:
    """How sound becomes frames."""

    kind: Literal["mel", "spectrogram"] = "mel"
    """Log mel energies, or the log power spectrogram of Deep Speech 2."""
    rate: Annotated[int, Meta(ge=SLOWEST, le=FASTEST)] = 16_000
    """Samples per second; other audio is resampled."""
    window_s: Annotated[float, Meta(ge=1e-3, le=1)] = 0.02
    """Length of a frame in seconds."""
    hop_s: Annotated[float, Meta(ge=1e-3, le=1)] = 0.01
    """Seconds from frame to frame."""
    mels: Annotated[int, Meta(ge=1)] = 80
    """Number of mel bands."""
    level: Literal["absolute", "running"] = "running"
    """Relative to full scale, or to the loudest frame so far, which counts 5 dB less each second: then the
    gain of the microphone does not matter. That makes noise in a pause loud, and a model has to be trained
    with pauses; see `pause_s` of the training."""

    @property
    def window(self) -> int:
        """Samples of a frame."""
        return round(self.window_s * self.rate)

    @property
    def hop(self) -> int:
        """Samples from frame to frame."""
        return round(self.hop_s * self.rate)

    @property
    def fft(self) -> int:
        """Points of the Fourier transform; mel bands need more than the window has."""
        return self.window if self.kind == "spectrogram" else 2 << (self.window - 1).bit_length()

    @property
    def bins(self) -> int:
        """Values of a frame."""
        return self.mels if self.kind == "mel" else self.fft // 2 + 1

    def frames(self, samples: int) -> int:
        """Number of whole frames in so many samples."""
        return max(0, (samples - self.window) // self.hop + 1)


class Frames:
    """Features of audio that comes in pieces; they do not depend on how it is divided.

    log(ABSOLUTE_FLOOR + P_t), or with a running level log(FLOOR + P_t / l_t), where
    P_t = M |FFT(hann * frame)|^2, M is the mel bands or the identity, and l_t, in decibels,
    is the larger of l_{t-1} - fall and the mean of P_t.
    """

    def __init__(self, settings: FeatureSettings) -> None:
        self.settings, self.window = settings, torch.hann_window(settings.window)
        self.rest: Array = np.zeros(0, np.float32)
        """Samples from the next frame on."""
        self.level = -np.inf
        """ln of the running level."""

    def push(self, samples: Array) -> Tensor:
        """Features [frames, bins] of the frames that further samples, float32 [n], complete."""
        settings = self.settings
        samples = np.concatenate([self.rest, samples])
        count = settings.frames(len(samples))
        self.rest = samples[count * settings.hop :]
        if not count:
            return torch.zeros(0, settings.bins)
        frames = torch.from_numpy(samples).unfold(0, settings.window, settings.hop)
        power = (
            torch.fft.rfft(frames * self.window, n=settings.fft).abs().square()
        )  # [frames, bins]
        if settings.kind == "mel":
            power = power @ mel_bands(settings)
        if settings.level == "absolute":
            return torch.log(power + ABSOLUTE_FLOOR)
        own = torch.log(power.double().mean(1) + 1e-10)
        fall = FALL_DB_S * settings.hop_s / 10 * np.log(10)
        steps = fall * torch.arange(1, count + 1, dtype=torch.float64)
        own[0] = max(float(own[0]), self.level - fall)
        level = torch.cummax(own + steps, 0).values - steps
        self.level = float(level[-1])
        return torch.log(power * torch.exp(-level)[:, None].float() + FLOOR)


def log_features(samples: Array, settings: FeatureSettings) -> Tensor:
    """Features of a whole utterance; see `Frames`.

    Args:
        samples: float32 [n].
        settings: rate, window, bands.

    Returns:
        float32 [frames, bins].

    Raises:
        InputError: ``empty-input`` if the samples do not fill one frame.
    """
    if not settings.frames(len(samples)):
        raise InputError(
            "audio shorter than one frame",
            code="empty-input",
            found=f"{len(samples)} samples",
            expected=f"at least {settings.window}",
        )
    return Frames(settings).push(samples)


@lru_cache(maxsize=8)
def mel_bands(settings: FeatureSettings) -> Tensor:
    """Triangles whose corners are equally spaced in mel = 2595 log10(1 + f / 700): [fft / 2 + 1, mels].

    Raises:
        InputError: ``out-of-range`` if a band would be empty.
    """
    top = 2595 * np.log10(1 + settings.rate / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, top, settings.mels + 2) / 2595) - 1)  # Hz
    hertz = np.arange(settings.fft // 2 + 1)[:, None] * settings.rate / settings.fft
    rising = (hertz - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - hertz) / (corners[2:] - corners[1:-1])
    bands = np.maximum(0, np.minimum(rising, falling))
    if not bands.any(axis=0).all():
        raise InputError(
            "a mel band contains no frequency",
            code="out-of-range",
            place="features.mels",
            found=str(settings.mels),
            expected="fewer bands, or a longer window",
        )
    return torch.from_numpy(bands.astype(np.float32))
