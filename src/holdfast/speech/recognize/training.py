"""Training of a recognizer with CTC: what is trained on, its noise and pauses, the loss, the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.speech.recognize.audio import Array, read_audio
from holdfast.speech.recognize.features import FeatureSettings, log_features
from holdfast.speech.recognize.labels import BLANK, frames_needed
from holdfast.speech.recognize.manifests import (
    Example,
    check_disjoint,
    read_manifest,
    refuse_same_sound,
    screen,
)
from holdfast.speech.recognize.model import Description, SpeechModel, write_model
from holdfast.speech.recognize.network import NetworkSettings, padded
from holdfast.speech.recognize.noise import NoiseSettings, read_noise, vary
from holdfast.speech.recognize.ranks import Ranks, joined
from holdfast.speech.recognize.results import TrainedModel
from holdfast.speech.recognize.scoring import score_utterances
from holdfast.speech.recognize.trainer import (
    STATE,
    Trainer,
    TrainingSettings,
    check_output,
    fingerprint,
    threads,
)

_NOISE, _PAUSES = 1, 2
"""What random numbers are for."""


@dataclass(frozen=True)
class DataSettings:
    """What is trained and tested on."""

    train: str
    """Manifest of the training set, relative to the configuration."""
    test: str = ""
    """Manifest of the test set; empty: none."""
    shared_speakers: bool = False
    """Whether speakers of the test set may be in the training set."""
    alphabet: str = ""
    """Characters that the model can write; empty: those of the training set."""


@dataclass(frozen=True)
class CtcTraining(TrainingSettings):
    """How a recognizer is trained."""

    pause_s: Annotated[float, Meta(ge=0, le=60)] = 2.0
    """Longest pause of quiet noise that is put before, and after, three of four utterances; not in a first
    epoch from short to long. So a model does not write into silence."""


@dataclass(frozen=True)
class TrainConfig:
    """Content of the configuration file."""

    data: DataSettings
    features: FeatureSettings = field(default_factory=FeatureSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: CtcTraining = field(default_factory=CtcTraining)
    noise: NoiseSettings | None = None
    """Noise and speeds; none: the audio as it is."""


def train(
    config: str | Path,
    output: str | Path,
    resume: bool = False,
    kind: type[SpeechModel] = SpeechModel,
) -> TrainedModel:
    """Train the recognizer that a TOML file describes.

    Under torchrun, ranks share each batch; the result is that of one process up to rounding. A checkpoint
    is written after every epoch, and every `checkpoint_steps` steps.

    Args:
        config: the file.
        output: folder of the model.
        resume: continue a run that was interrupted, or that shall have more epochs.
        kind: what is trained; another kind has other labels.

    Raises:
        InputError: a mistake in the file or the data; ``overlap`` if utterances or speakers are in the
            training set and the test set; ``output-exists``; ``conflict`` if another run is resumed.
        HoldfastError: ``diverged`` if the loss is not finite.
    """
    settings, output = read_config(config, TrainConfig, "the configuration"), Path(output)
    check_output(output, resume)
    with joined() as ranks, threads(settings.training.threads):
        return _train(settings, Path(config).resolve().parent, output, ranks, kind)


def _train(
    config: TrainConfig, folder: Path, output: Path, ranks: Ranks, kind: type[SpeechModel]
) -> TrainedModel:
    # 1. Read both sets, and refuse what is in both.
    utterances, rejected = read_manifest(folder / config.data.train)
    test, new_speakers = [], None
    if config.data.test:
        test, _ = read_manifest(folder / config.data.test)
        new_speakers = check_disjoint(utterances, test, config.data.shared_speakers)
    texts = [each.text for each in utterances]
    alphabet = kind.alphabet_type.of_texts(texts, config.network.bigrams, config.data.alphabet)
    torch.manual_seed(config.training.seed)
    model = kind(Description(config.features, config.network, alphabet.labels))
    screening = screen(utterances, model)
    refuse_same_sound(screening.examples, test, config.features.rate)
    if len(screening.examples) < ranks.size:
        raise InputError("fewer utterances than ranks", code="out-of-range", place="data.train")
    # 2. Train from the last checkpoint.
    noises = []
    if config.noise is not None and config.noise.files:
        noises = read_noise(folder / config.noise.files, config.features.rate)
    trainer = CtcTrainer(config, model, screening.examples, noises, output / STATE, ranks)
    trainer.run()
    # 3. Write the model; the checkpoint stays, for more epochs.
    scored = None
    if ranks.rank == 0:
        how = {"history": trainer.history, "utterances": len(screening.examples)}
        model.description = Description(config.features, config.network, alphabet.labels, how)
        write_model(output, model.description, model.network)
        scored = score_utterances(model, model.decoder(), test) if test else None
    return TrainedModel(
        output,
        sum(each.numel() for each in model.network.parameters()),
        model.network.look_ahead,
        len(screening.examples),
        screening.seconds,
        trainer.history,
        [*rejected, *screening.excluded],
        dict(screening.unknown.most_common()),
        scored,
        new_speakers,
        ranks.rank,
    )


class CtcTrainer(Trainer):
    """A run of a recognizer.

    Args:
        config: all settings.
        model: is trained.
        examples: the training set.
        noises: recordings; none: white noise.
        path: file of the checkpoint.
        ranks: who shares each batch.
    """

    settings: CtcTraining

    def __init__(
        self,
        config: TrainConfig,
        model: SpeechModel,
        examples: Sequence[Example],
        noises: Sequence[Array],
        path: Path,
        ranks: Ranks,
    ) -> None:
        plan = _plan(config, examples, noises)
        super().__init__(model.network, config.training, examples, path, plan, ranks)
        self.config, self.model, self.noises = config, model, noises
        self.pauses: Array = np.zeros((len(examples), 2), int)
        """Of the epoch; see `draw_pauses`."""

    def lengths(self, epoch: int) -> NDArray[np.float64]:
        """Frames of each example in an epoch, the pauses that are drawn for it included: [examples]."""
        self.pauses = self.draw_pauses(epoch)
        frames: NDArray[np.float64] = np.array([each.frames for each in self.examples], np.float64)
        frames += self.pauses.sum(1) / self.config.features.hop
        return frames

    def loss(self, places: Sequence[int], epoch: int) -> Tensor:
        """CTC's loss, the sum over the examples."""
        features, lengths = padded([self.frames(place, epoch) for place in places])
        targets = [self.examples[place].target for place in places]
        outputs, valid_outputs = self.model.network(features, lengths)
        return functional.ctc_loss(
            outputs.transpose(0, 1),  # [T', B, L]
            torch.tensor([label for target in targets for label in target]),
            valid_outputs,
            torch.tensor([len(target) for target in targets]),
            BLANK,
            "sum",
        )

    def draw_pauses(self, epoch: int) -> Array:
        """Samples of the pauses before and after each example: [examples, 2]."""
        rng = np.random.default_rng([self.settings.seed, _PAUSES, epoch])
        longest = self.settings.pause_s * (epoch > 0 or not self.settings.sortagrad)
        # Short ones are more frequent; half of the sides have none.
        seconds = longest * rng.random((len(self.examples), 2)) ** 3
        seconds *= rng.random(seconds.shape) < 0.5
        return np.round(seconds * self.config.features.rate).astype(int)

    def frames(self, place: int, epoch: int) -> Tensor:
        """Features of an example, varied as the settings say; [T, F]."""
        example, features = self.examples[place], self.config.features
        part = example.utterance
        samples = read_audio(part.path, features.rate, part.start_s, part.duration_s).samples
        rng = np.random.default_rng([self.settings.seed, _NOISE, epoch, place])
        frames = frames_needed(example.target) * self.model.network.stride
        shortest = features.window + features.hop * frames
        before, after = self.pauses[place]
        noise, pauses = self.config.noise, (int(before), int(after))
        samples = vary(samples, features.rate, noise, self.noises, rng, shortest, pauses)
        return log_features(samples, features)


def _plan(config: TrainConfig, examples: Sequence[Example], noises: Sequence[Array]) -> str:
    """Hash of all that determines a step: settings without the number of epochs, sounds, texts, noise."""
    config = replace(config, training=replace(config.training, epochs=1))
    rows = [[each.fingerprint, each.target] for each in examples]
    content = {"config": asdict(config), "examples": rows}
    return fingerprint(content, (each.tobytes() for each in noises))
