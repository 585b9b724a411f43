"""Training with CTC: SortaGrad, noise, several ranks, and a resumed run that ends with the same bits.

All random numbers follow from the seed, the epoch and the utterance. So weights, the optimizer's moments
and the place in the epoch are all that a resumed run needs.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor
from torch.nn import functional

from holdfast.config import read_config
from holdfast.errors import HoldfastError, InputError
from holdfast.files import write_whole
from holdfast.progress import track
from holdfast.speech.recognize.alphabet import BLANK, frames_needed
from holdfast.speech.recognize.audio import Array, read_audio
from holdfast.speech.recognize.features import FeatureSettings, log_features
from holdfast.speech.recognize.manifests import check_disjoint, read_manifest
from holdfast.speech.recognize.model import DESCRIPTION, Description, SpeechModel
from holdfast.speech.recognize.network import Count, NetworkSettings, Positive, padded
from holdfast.speech.recognize.noise import NoiseSettings, read_noise, vary
from holdfast.speech.recognize.ranks import Ranks, joined, sum_gradients, summed
from holdfast.speech.recognize.results import TrainedModel
from holdfast.speech.recognize.scoring import score_utterances
from holdfast.speech.recognize.screening import Example, refuse_same_sound, screen

STATE = "state.pt"
Above = Annotated[float, Meta(gt=0, lt=1e9)]
_ORDER, _NOISE, _PAUSES = range(3)
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
class TrainingSettings:
    """How the network is trained."""

    epochs: Positive = 20
    """Passes over the training set."""
    batch: Positive = 32
    """Largest number of utterances per step, over all ranks."""
    optimizer: Literal["adam", "nesterov"] = "adam"
    """Adam, or SGD with Nesterov's momentum."""
    learning_rate: Above = 1e-3
    """Of the first epoch."""
    momentum: Annotated[float, Meta(gt=0, lt=1)] = 0.99
    """Of Nesterov's SGD."""
    anneal: Annotated[float, Meta(ge=1, le=10)] = 1.1
    """The learning rate is divided by this after each epoch."""
    largest_norm: Above = 400.0
    """Gradients with a larger norm are scaled down to it."""
    sortagrad: bool = True
    """Whether the first epoch goes from short to long utterances."""
    pause_s: Annotated[float, Meta(ge=0, le=60)] = 2.0
    """Longest pause of quiet noise that is put before, and after, three of four utterances; not in a first
    epoch from short to long. So a model does not write into silence."""
    seed: Count = 0
    """Random seed (same seed, same result)."""
    threads: Positive = 1
    """Threads of torch per rank; sums depend on it."""
    checkpoint_steps: Positive = 500
    """Steps between checkpoints, beside that of each epoch."""


@dataclass(frozen=True)
class TrainConfig:
    """Content of the configuration file."""

    data: DataSettings
    features: FeatureSettings = field(default_factory=FeatureSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
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
    if not resume and any((output / name).exists() for name in (STATE, DESCRIPTION)):
        raise InputError(
            "the folder has a model",
            code="output-exists",
            path=output,
            remedy="name another folder, or --resume",
        )
    with joined() as ranks, _threads(settings.training.threads):
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
    refuse_same_sound(screening.examples, test, model)
    if len(screening.examples) < ranks.size:
        raise InputError("fewer utterances than ranks", code="out-of-range", place="data.train")
    # 2. Train from the last checkpoint.
    noises = []
    if config.noise is not None and config.noise.files:
        noises = read_noise(folder / config.noise.files, config.features.rate)
    output.mkdir(parents=True, exist_ok=True)
    plan = _plan(config, screening.examples, noises)
    trainer = Trainer(config, model, screening.examples, noises, output / STATE, plan, ranks)
    trainer.run()
    # 3. Write the model; the checkpoint stays, for more epochs.
    scored = None
    if ranks.rank == 0:
        how = {"history": trainer.history, "utterances": len(screening.examples)}
        model.description = Description(config.features, config.network, alphabet.labels, how)
        model.save(output)
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


class Trainer:
    """A run: its place, its optimizer, and how both are saved.

    Args:
        config: all settings.
        model: is trained.
        examples: the training set.
        noises: recordings; none: white noise.
        path: file of the checkpoint.
        plan: hash of all that determines the run.
        ranks: who shares each batch.
    """

    def __init__(
        self,
        config: TrainConfig,
        model: SpeechModel,
        examples: Sequence[Example],
        noises: Sequence[Array],
        path: Path,
        plan: str,
        ranks: Ranks,
    ) -> None:
        self.config, self.settings, self.model = config, config.training, model
        self.examples, self.noises = examples, noises
        self.path, self.plan, self.ranks = path, plan, ranks
        self.parameters = list(model.network.parameters())
        rate = self.settings.learning_rate
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.parameters, rate)
        if self.settings.optimizer == "nesterov":
            self.optimizer = torch.optim.SGD(
                self.parameters, rate, self.settings.momentum, nesterov=True
            )
        self.history: list[dict[str, float]] = []
        """One row ``{"epoch", "loss"}`` per complete epoch; loss per utterance."""
        self.step, self.total = 0, 0.0
        """Steps of the epoch, and the sum of their losses."""
        self.pauses: Array = np.zeros((len(examples), 2), int)
        """Of the epoch; see `draw_pauses`."""

    def run(self) -> None:
        """Train to the last epoch.

        Raises:
            HoldfastError: ``diverged``.
        """
        if self.path.exists():
            self.load()
        self.model.network.train()
        epochs = self.settings.epochs
        with track("training", epochs, "epochs") as tracker:
            tracker.advance(len(self.history))
            while len(self.history) < epochs:
                epoch = len(self.history)
                for group in self.optimizer.param_groups:
                    group["lr"] = self.settings.learning_rate / self.settings.anneal**epoch
                batches = self.batches(epoch)
                for batch in batches[self.step :]:
                    self.total += self.train_on(batch, epoch)
                    self.step += 1
                    done = f"epoch {epoch + 1}, step {self.step} of {len(batches)}"
                    tracker.describe(f"{done}, loss {self.total / self.step:.3f}")
                    if self.step % self.settings.checkpoint_steps == 0:
                        self.save()
                loss = self.total / len(self.examples)
                self.history.append({"epoch": epoch + 1, "loss": loss})
                self.step, self.total = 0, 0.0
                self.save()
                tracker.advance(1)

    def batches(self, epoch: int) -> list[list[int]]:
        """Places of the examples of each batch, of about equal length so that little is padded.

        The first epoch goes from short to long (SortaGrad, DS2 3.2); in others, lengths are varied by up
        to a fourth before sorting, and batches come in random order.
        """
        lengths = np.array([each.frames for each in self.examples], dtype=np.float64)
        self.pauses = self.draw_pauses(epoch)
        lengths += self.pauses.sum(1) / self.config.features.hop
        rng = np.random.default_rng([self.settings.seed, _ORDER, epoch])
        sorts = self.settings.sortagrad and not epoch
        if not sorts:
            lengths *= rng.uniform(0.8, 1.25, len(lengths))
        count = -(-len(lengths) // self.settings.batch)
        batches = np.array_split(np.argsort(lengths, kind="stable"), count)
        order = range(count) if sorts else rng.permutation(count)
        return [batches[place].tolist() for place in order]

    def train_on(self, batch: Sequence[int], epoch: int) -> float:
        """One step; the sum of the losses of the batch, before the step.

        Raises:
            HoldfastError: ``diverged``.
        """
        own = batch[self.ranks.rank :: self.ranks.size]
        features, lengths = padded([self.frames(place, epoch) for place in own])
        targets = [self.examples[place].target for place in own]
        self.optimizer.zero_grad(set_to_none=True)
        outputs, valid_outputs = self.model.network(features, lengths)
        loss = functional.ctc_loss(
            outputs.transpose(0, 1),  # [T', B, L]
            torch.tensor([label for target in targets for label in target]),
            valid_outputs,
            torch.tensor([len(target) for target in targets]),
            BLANK,
            "sum",
        )
        (loss / len(batch)).backward()  # type: ignore[no-untyped-call]
        sum_gradients(self.parameters)
        total = float(summed(loss.detach()))
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.largest_norm)
        if not np.isfinite(total) or not bool(norm.isfinite()):
            raise DivergedError(epoch + 1, self.step + 1)
        self.optimizer.step()
        return total

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

    def save(self) -> None:
        """Replace the checkpoint (rank 0).

        Raises:
            HoldfastError: if it cannot be written.
        """
        if self.ranks.rank:
            return
        state = {
            "plan": self.plan,
            "history": self.history,
            "step": self.step,
            "total": self.total,
            "model": self.model.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        content = io.BytesIO()
        torch.save(state, content)
        write_whole(self.path, content.getbuffer())

    def load(self) -> None:
        """Continue from the checkpoint.

        Raises:
            InputError: ``damaged``, or ``conflict`` if another run wrote it.
        """
        try:
            state = torch.load(self.path, weights_only=True)  # executes nothing in the file
            plan = state["plan"]
        except Exception as error:  # whatever its unpickler meets
            raise InputError(
                "not the checkpoint of a training run",
                code="damaged",
                path=self.path,
                found=f"{type(error).__name__}: {error}".splitlines()[0],
                remedy="remove the folder and train again",
            ) from error
        if plan != self.plan:
            raise InputError(
                "the checkpoint is of a run with other settings or data",
                code="conflict",
                path=self.path,
                found=plan[:12],
                expected=self.plan[:12],
                remedy="name another output folder, or restore the settings; epochs may change",
            )
        self.model.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history, self.step, self.total = state["history"], state["step"], state["total"]


class DivergedError(HoldfastError):
    """A loss or gradient that is not finite; the last checkpoint stays as it is."""

    code = "diverged"

    def __init__(self, epoch: int, step: int) -> None:
        super().__init__(
            f"epoch {epoch}, step {step}: the loss is not finite\n"
            "  remedy: lower training.learning_rate or training.largest_norm"
        )


def _plan(config: TrainConfig, examples: Sequence[Example], noises: Sequence[Array]) -> str:
    """Hash of all that determines a step: settings without the number of epochs, sounds, texts, noise."""
    config = replace(config, training=replace(config.training, epochs=1))
    rows = [[each.fingerprint, each.target] for each in examples]
    content: Mapping[str, Any] = {"config": asdict(config), "examples": rows}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for each in noises:
        digest.update(each.tobytes())
    return digest.hexdigest()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
