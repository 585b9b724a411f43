"""Training a voice from recordings whose phones have times: first durations and pitch, then the WaveNet."""

from __future__ import annotations

import hashlib
import json
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
from holdfast.errors import InputError
from holdfast.speech.recognize.model import DESCRIPTION
from holdfast.speech.recognize.trainer import Trainer, TrainingSettings, threads
from holdfast.speech.speak.network import (
    F0_VALUES,
    LEVELS,
    ProsodySettings,
    SynthesisSettings,
    WaveNet,
)
from holdfast.speech.speak.prosody import (
    SILENCE,
    Inventory,
    Scale,
    split_stress,
)
from holdfast.speech.speak.recordings import Recording, VoiceData, read_recordings
from holdfast.speech.speak.voice import Sound, Voice, VoiceDescription

_PART = 1
"""What random numbers are for."""
LN2 = float(np.log(2))


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
    if (output / DESCRIPTION).exists() and not resume:
        raise InputError(
            "the folder has a voice",
            code="output-exists",
            path=output,
            remedy="name another folder, or --resume",
        )
    folder = Path(config).resolve().parent
    sound, data = settings.sound, settings.data
    train, test = (read_recordings(folder / name, sound, data) for name in (data.train, data.test))
    torch.manual_seed(settings.synthesis_training.seed)
    description = VoiceDescription(
        settings.sound, inventory_of(train, settings), settings.prosody, settings.synthesis
    )
    voice = Voice(description)
    output.mkdir(parents=True, exist_ok=True)
    trainers: list[VoiceTrainer] = []
    for kind, network, prepare, name in (
        (ProsodyTrainer, voice.prosody, target_of, "prosody"),
        (SynthesisTrainer, voice.wavenet, part_of, "synthesis"),
    ):
        own = getattr(settings, f"{name}_training")
        parts = [data, sound, getattr(settings, name), replace(own, epochs=1)]
        plan = _plan([asdict(each) for each in parts], train)
        prepared = [prepare(voice, each) for each in train]
        trainers.append(kind(network, prepared, own, output / f"{name}.pt", plan))
        with threads(own.threads):
            trainers[-1].run()
    history = {each.path.stem: each.history for each in trainers}
    voice.networks.eval()
    with threads(settings.synthesis_training.threads):
        measured = {**prosody_correlation(voice, test), **likelihood(voice, test)}
    measured["history"] = history
    voice.description = replace(description, training=measured)
    voice.save(output)
    return voice


def inventory_of(recordings: Sequence[Recording], settings: VoiceConfig) -> Inventory:
    """Phones and scales of a training set."""
    phones = [phone for each in recordings for phone in each.phones]
    names = {split_stress(each.phone)[0] for each in phones} | {SILENCE}
    frame_s = settings.sound.frame_s
    counts = np.concatenate([each.counts for each in recordings])
    pitches = np.concatenate([each.f0_hz for each in phones if each.f0_hz] or [np.ones(1)])
    return Inventory(
        tuple(sorted(names)),
        frame_s,
        Scale.of(np.log(counts.clip(min=1) * frame_s)),
        Scale.of(np.log(pitches)),
    )


# --- Durations and pitch -------------------------------------------------------------------------


class VoiceTrainer(Trainer):
    """A run of one of the two networks.

    Args:
        network: is trained.
        prepared: the recordings as the network reads them.
        settings: of the training.
        path: file of the checkpoint.
        plan: hash of all that determines the run.
    """

    def __init__(
        self,
        network: nn.Module,
        prepared: Sequence[Any],
        settings: TrainingSettings,
        path: Path,
        plan: str,
    ) -> None:
        super().__init__(network, settings, path, plan)
        self.prepared = prepared

    def lengths(self, epoch: int) -> NDArray[np.float64]:
        """Phones, or frames, of each recording."""
        return np.array([len(each.symbols) for each in self.prepared], np.float64)


@dataclass(frozen=True)
class Target:
    """The phones of a recording, and what the network of durations and pitch shall give."""

    symbols: Tensor
    """int64 [P, 2]"""
    values: Tensor
    """float32 [P, 2 + F0_VALUES]"""


def target_of(voice: Voice, recording: Recording) -> Target:
    """A recording as tensors."""
    rows, inventory = [], voice.inventory
    for phone, count in zip(recording.phones, recording.counts.tolist(), strict=True):
        duration = inventory.duration.apply(np.log(max(count, 1) * inventory.frame_s))
        pitch = np.zeros(F0_VALUES)
        if phone.f0_hz:
            pitch = inventory.pitch.apply(np.log(phone.f0_hz))
        rows.append([duration, float(bool(phone.f0_hz)), *pitch])
    symbols = inventory.symbols([each.phone for each in recording.phones])
    return Target(torch.from_numpy(symbols), torch.tensor(rows, dtype=torch.float32))


class ProsodyTrainer(VoiceTrainer):
    """Durations, P(voiced) and F0."""

    def loss(self, places: Sequence[int], epoch: int) -> Tensor:
        """|t' - t| + CE(v) + |F0' - F0| + 0.1 |F0'_{k+1} - F0'_k|, mean over phones."""
        targets = [self.prepared[place] for place in places]
        symbols = nn.utils.rnn.pad_sequence([each.symbols for each in targets], True)
        wanted = nn.utils.rnn.pad_sequence([each.values for each in targets], True)
        lengths = torch.tensor([len(each.symbols) for each in targets])
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
        predicted = voice.predict([phone.phone for phone in each.phones])
        for one, two in zip(predicted, each.phones, strict=True):
            if two.phone != SILENCE:
                durations.append((one.end_s - one.start_s, two.end_s - two.start_s))
            pitches += list(zip(one.f0_hz, two.f0_hz, strict=False))
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


# --- Samples -------------------------------------------------------------------------------------


class SynthesisTrainer(VoiceTrainer):
    """The WaveNet, on a random part of each utterance."""

    network: WaveNet
    settings: SynthesisTraining

    def loss(self, places: Sequence[int], epoch: int) -> Tensor:
        """Bits per sample."""
        settings, losses = self.settings, []
        for place in places:
            part = self.prepared[place]
            rng = np.random.default_rng([settings.seed, _PART, epoch, place])
            start = int(rng.integers(0, max(1, part.frames - settings.frames + 1)))
            with torch.autocast("cpu", torch.bfloat16, enabled=settings.bf16):
                losses.append(part.bits(self.network, start, settings))
        return torch.stack(losses).sum()


@dataclass(frozen=True)
class Part:
    """A recording as the WaveNet reads it."""

    codes: Tensor
    """int64 [frames x hop + 1], a level of silence first."""
    symbols: Tensor
    """int64 [frames, 2]"""
    numbers: Tensor
    """float32 [frames, NUMBERS]"""

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.symbols)

    def bits(self, network: WaveNet, start: int, settings: SynthesisTraining) -> Tensor:
        """Mean of -log2 P of the samples of some frames; what is before them counts as silence."""
        hop = (len(self.codes) - 1) // self.frames
        stop = min(start + settings.frames, self.frames)
        first, last = max(0, start - settings.context_frames), stop + settings.context_frames
        symbols, numbers = self.symbols[None, first:last], self.numbers[None, first:last]
        conditioning = network.conditioning(symbols, numbers)[:, start - first : stop - first]
        codes = self.codes[None, start * hop : stop * hop + 1]
        logits = network(codes, conditioning)
        return functional.cross_entropy(logits[0], codes[0, 1:]) / LN2


def part_of(voice: Voice, recording: Recording) -> Part:
    """A recording as tensors."""
    symbols, numbers = voice.inventory.frames(recording.phones)
    codes = np.concatenate([[LEVELS // 2], recording.codes])
    return Part(torch.from_numpy(codes), torch.from_numpy(symbols), torch.from_numpy(numbers))


@torch.no_grad()
def likelihood(voice: Voice, recordings: Sequence[Recording]) -> dict[str, float]:
    """-log2 P per sample of whole recordings, and the entropy of their levels."""
    parts = [part_of(voice, each) for each in recordings]
    total, samples = 0.0, 0
    for each in parts:
        size = len(each.codes) - 1
        total += size * float(each.bits(voice.wavenet, 0, SynthesisTraining(frames=100_000)))
        samples += size
    counts = np.bincount(np.concatenate([each.codes for each in recordings]), minlength=LEVELS)
    shares = counts[counts > 0] / counts.sum()
    return {
        "bits_per_sample": total / samples,
        "unigram_bits": float(-(shares * np.log2(shares)).sum()),
    }


def _plan(settings: Sequence[dict[str, Any]], recordings: Sequence[Recording]) -> str:
    """Hash of all that determines a step: settings without the number of epochs, sounds and phones."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for each in recordings:
        digest.update(each.codes.tobytes())
        digest.update(json.dumps([asdict(phone) for phone in each.phones]).encode())
    return digest.hexdigest()
