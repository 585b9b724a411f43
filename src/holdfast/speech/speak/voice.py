"""A trained voice in a folder: model.json (phones, scales, sizes) and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from holdfast.config import read_config
from holdfast.speech.recognize.audio import FASTEST, SLOWEST
from holdfast.speech.recognize.model import DESCRIPTION, WEIGHTS, load_weights, write_model
from holdfast.speech.speak.network import (
    LEVELS,
    ProsodyNetwork,
    ProsodySettings,
    SynthesisSettings,
    WaveNet,
)
from holdfast.speech.speak.prosody import (
    LOG_DURATION,
    LOG_F0,
    Array,
    TimedPhone,
    edges,
    frame_numbers,
    restored,
    symbols,
)

SHORTEST_S, LONGEST_S = 0.01, 2.0
"""Durations that are predicted."""


@dataclass(frozen=True)
class Sound:
    """Samples and frames."""

    rate: Annotated[int, Meta(ge=SLOWEST, le=FASTEST)] = 16_000
    """Samples per second."""
    hop: Annotated[int, Meta(ge=8, le=4096)] = 80
    """Samples per frame."""

    @property
    def frame_s(self) -> float:
        """Seconds per frame."""
        return self.hop / self.rate


@dataclass(frozen=True)
class VoiceDescription:
    """Content of model.json."""

    sound: Sound
    phones: tuple[str, ...]
    """Phones that it was trained on, without stress."""
    prosody: ProsodySettings
    synthesis: SynthesisSettings
    training: Mapping[str, Any] = field(default_factory=dict)
    """How it was trained and what it measured on the test set."""


class Voice:
    """Both networks of a voice with what their inputs and outputs mean."""

    def __init__(self, description: VoiceDescription) -> None:
        self.description, self.sound = description, description.sound
        self.prosody = ProsodyNetwork(description.prosody)
        self.wavenet = WaveNet(description.synthesis)
        self.networks = nn.ModuleDict({"prosody": self.prosody, "wavenet": self.wavenet})

    @torch.no_grad()
    def predict(self, phones: Sequence[str]) -> list[tuple[float, tuple[float, ...]]]:
        """Duration in seconds, and F0 in Hz (none: unvoiced), of the phones of a sentence.

        Raises:
            InputError: ``unknown-phone``.
        """
        read = torch.from_numpy(symbols(phones, self.description.phones))[None]
        columns = self.prosody(read, torch.tensor([len(phones)]))[0].double().numpy()
        durations = restored(columns[:, 0], LOG_DURATION).clip(SHORTEST_S, LONGEST_S).tolist()
        pitch = restored(columns[:, 2:], LOG_F0).tolist()
        pitch = [
            tuple(f0_hz) if logit > 0 else ()
            for logit, f0_hz in zip(columns[:, 1], pitch, strict=True)
        ]
        return [*zip(durations, pitch, strict=True)]

    @torch.no_grad()
    def conditioning(self, phones: Sequence[TimedPhone]) -> Array:
        """What the WaveNet's layers add in each frame: float32 [frames, layers, 2r].

        Raises:
            InputError: ``unknown-phone``.
        """
        frame_s = self.sound.frame_s
        read = symbols([each.phone for each in phones], self.description.phones)
        parts = read.repeat(np.diff(edges(phones, frame_s)), 0), frame_numbers(phones, frame_s)
        inputs = (torch.from_numpy(each)[None] for each in parts)
        found: Array = self.wavenet.conditioning(*inputs)[0].numpy()
        return found

    def save(self, folder: Path) -> None:
        """Write both files; model.json last, so that a folder with it is complete.

        Raises:
            HoldfastError: if they cannot be written.
        """
        write_model(folder, self.description, self.networks)

    @classmethod
    def load(cls, folder: str | Path) -> Voice:
        """Read a voice.

        Raises:
            InputError: ``not-found``; what `read_config` and `load_weights` refuse.
        """
        folder = Path(folder)
        description = read_config(
            folder / DESCRIPTION, VoiceDescription, "the description of the voice"
        )
        voice = cls(description)
        load_weights(voice.networks, folder / WEIGHTS)
        return voice


def compress(samples: Array) -> Array:
    """Mu-law levels, uint8, of samples from -1 to 1 (ITU-T G.711's curve, mu = 255)."""
    samples = np.clip(samples, -1, 1)
    curve = np.sign(samples) * np.log1p(255 * np.abs(samples)) / np.log(256)
    codes: Array = np.floor((curve + 1) / 2 * (LEVELS - 1) + 0.5).astype(np.uint8)
    return codes


def expand(codes: Array) -> Array:
    """Samples, float32, of mu-law levels."""
    curve = codes / ((LEVELS - 1) / 2) - 1
    samples: Array = (np.sign(curve) * (256 ** np.abs(curve) - 1) / 255).astype(np.float32)
    return samples
