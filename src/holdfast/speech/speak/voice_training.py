"""Training a voice from recordings whose phones have times: first durations and pitch, then the WaveNet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from holdfast.config import read_config
from holdfast.speech.recognize.trainer import (
    Trainer,
    TrainingSettings,
    check_output,
    fingerprint,
    threads,
)
from holdfast.speech.speak.dictionary import PAUSE, plain_phone
from holdfast.speech.speak.network import ProsodySettings, SynthesisSettings, WaveNet
from holdfast.speech.speak.recordings import Recording, VoiceData, read_recordings
from holdfast.speech.speak.voice import Sound, Voice, VoiceDescription

_PART = 1
"""What random numbers are for."""


@dataclass(frozen=True)
class SynthesisTraining(TrainingSettings):
    """How the WaveNet is trained: a random part of each utterance per epoch."""

    batch: Annotated[int, Meta(ge=1)] = 1
    """Parts per step."""
    frames: Annotated[int, Meta(ge=2, le=100_000)] = 100
    """Frames of a part."""
    context_frames: Annotated[int, Meta(ge=0, le=1000)] = 16
    """Frames on each side that only the conditioning reads."""
    bf16: bool = False
    """Whether matrices are multiplied in bfloat16; faster where the processor has it."""


@dataclass(frozen=True)
class VoiceConfig:
    """Content of the configuration file of `train_voice`."""

    data: VoiceData
    sound: Sound = field(default_factory=Sound)
    prosody: ProsodySettings = field(default_factory=ProsodySettings)
    prosody_training: TrainingSettings = field(default_factory=TrainingSettings)
    synthesis: SynthesisSettings = field(default_factory=SynthesisSettings)
    synthesis_training: SynthesisTraining = field(default_factory=SynthesisTraining)


def train_voice(config: str | Path, output: str | Path, resume: bool = False) -> Voice:
    """Train the voice that a TOML file describes.

    Args:
        config: the file; see `VoiceConfig`.
        output: folder of the voice.
        resume: continue a run that was interrupted, or that shall have more epochs.

    Returns:
        The voice; its ``description.training`` has what it measured on the test set.

    Raises:
        InputError: a mistake in the file or the data; ``output-exists``; ``conflict`` if another run is
            resumed.
        HoldfastError: ``diverged`` if the loss is not finite.
    """
    settings, output = read_config(config, VoiceConfig, "the configuration"), Path(output)
    check_output(output, resume)
    folder = Path(config).resolve().parent
    sound, data = settings.sound, settings.data
    train, test = (read_recordings(folder / name, sound, data) for name in (data.train, data.test))
    torch.manual_seed(settings.synthesis_training.seed)
    names = {plain_phone(phone.phone) for each in train for phone in each.timed} | {PAUSE}
    description = VoiceDescription(
        sound, tuple(sorted(names)), settings.prosody, settings.synthesis
    )
    voice = Voice(description)
    plan = _plan(settings, train)
    trainers = (
        ProsodyTrainer(
            voice.prosody, settings.prosody_training, train, output / "prosody.pt", plan
        ),
        SynthesisTrainer(
            voice.wavenet, settings.synthesis_training, train, output / "synthesis.pt", plan
        ),
    )
    for each in trainers:
        with threads(each.settings.threads):
            each.run()
    voice.networks.eval()
    with threads(settings.synthesis_training.threads):
        measured = {**prosody_correlation(voice, test), **likelihood(voice, test)}
    measured["history"] = {each.path.stem: each.history for each in trainers}
    voice.description = replace(description, training=measured)
    voice.save(output)
    return voice


class VoiceTrainer(Trainer):
    """A run of one of the two networks."""

    def lengths(self, epoch: int) -> NDArray[np.float64]:
        """Frames of each recording."""
        return np.array([len(each.symbols) for each in self.examples], np.float64)


class ProsodyTrainer(VoiceTrainer):
    """Durations, P(voiced) and F0."""

    def loss(self, places: Sequence[int], epoch: int) -> Tensor:
        """|t' - t| + CE(v) + |F0' - F0| + 0.1 |F0'_{k+1} - F0'_k|, mean over phones."""
        own = [self.examples[place] for place in places]
        symbols = nn.utils.rnn.pad_sequence([each.phones for each in own], True)
        wanted = nn.utils.rnn.pad_sequence([each.prosody for each in own], True)
        lengths = torch.tensor([len(each.phones) for each in own])
        found = self.network(symbols, lengths)  # [B, P, 2 + values]
        valid = (torch.arange(symbols.shape[1]) < lengths[:, None]).float()
        pitch = (found[..., 2:] - wanted[..., 2:]).abs().mean(2)
        steps = found[..., 2:].diff(dim=2).abs().mean(2)
        cross = functional.binary_cross_entropy_with_logits(
            found[..., 1], wanted[..., 1], reduction="none"
        )
        total = (found[..., 0] - wanted[..., 0]).abs() + cross
        total = total + wanted[..., 1] * (pitch + 0.1 * steps)
        return (valid * total).sum() / valid.sum() * len(places)


def prosody_correlation(voice: Voice, recordings: Sequence[Recording]) -> dict[str, Any]:
    """Correlation of predicted and real durations (s, pauses left out) and F0 (Hz, both voiced)."""
    durations, pitches = [], []
    for each in recordings:
        predicted = voice.predict([phone.phone for phone in each.timed])
        for (duration_s, f0_hz), real in zip(predicted, each.timed, strict=True):
            if real.phone != PAUSE:
                durations.append((duration_s, real.end_s - real.start_s))
            pitches += list(zip(f0_hz, real.f0_hz, strict=False))
    return {
        "duration_correlation": _correlation(durations),
        "pitch_correlation": _correlation(pitches),
    }


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's; None if it is not defined."""
    values = np.array(pairs).reshape(-1, 2)
    if len(values) < 2 or not (values.std(0) > 1e-9).all():
        return None
    return float(np.corrcoef(values.T)[0, 1])


class SynthesisTrainer(VoiceTrainer):
    """The WaveNet, on a random part of each utterance."""

    network: WaveNet
    settings: SynthesisTraining

    def loss(self, places: Sequence[int], epoch: int) -> Tensor:
        """Bits per sample."""
        settings, losses = self.settings, []
        for place in places:
            example, frames = self.examples[place], settings.frames
            rng = np.random.default_rng([settings.seed, _PART, epoch, place])
            start = int(rng.integers(0, max(1, len(example.symbols) - frames + 1)))
            with torch.autocast("cpu", torch.bfloat16, enabled=settings.bf16):
                losses.append(example.bits(self.network, start, frames, settings.context_frames))
        return torch.stack(losses).sum()


@torch.no_grad()
def likelihood(voice: Voice, recordings: Sequence[Recording]) -> dict[str, float]:
    """-log2 P per sample of whole recordings, and the entropy of their levels."""
    codes = torch.cat([each.codes[1:] for each in recordings])
    total = 0.0
    for each in recordings:
        bits = each.bits(voice.wavenet, 0, len(each.symbols), 0)
        total += float(bits) * (len(each.codes) - 1)
    counts = codes.bincount().double()
    shares = counts[counts > 0] / len(codes)
    return {
        "bits_per_sample": total / len(codes),
        "unigram_bits": float(-(shares * shares.log2()).sum()),
    }


def _plan(config: VoiceConfig, recordings: Sequence[Recording]) -> str:
    """Hash of all that determines a step: settings without numbers of epochs, sounds and phones."""
    names = ("prosody_training", "synthesis_training")
    once = {name: replace(getattr(config, name), epochs=1) for name in names}
    parts = (part for each in recordings for part in (each.phones, each.prosody, each.codes))
    contents = (part.numpy().tobytes() for part in parts)
    return fingerprint(asdict(replace(config, **once)), contents)
