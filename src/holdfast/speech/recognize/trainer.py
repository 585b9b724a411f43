"""A training run of any network of speech: epochs, batches, ranks, and a checkpoint to resume from.

All random numbers follow from the seed, the epoch and the example. So weights, the optimizer's moments and
the place in the epoch are all that a resumed run needs: it ends with the same bits.
"""

from __future__ import annotations

import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor, nn

from holdfast.errors import HoldfastError, InputError
from holdfast.files import write_whole
from holdfast.progress import track
from holdfast.speech.recognize.model import DESCRIPTION
from holdfast.speech.recognize.network import Count, Positive
from holdfast.speech.recognize.ranks import ALONE, Ranks, sum_gradients, summed

STATE = "state.pt"
Above = Annotated[float, Meta(gt=0, lt=1e9)]
ORDER = 0
"""What random numbers are for: the order of the examples. Other numbers are for what a subclass draws."""


@dataclass(frozen=True)
class TrainingSettings:
    """How the network is trained."""

    epochs: Positive = 20
    """Passes over the training set."""
    batch: Positive = 32
    """Largest number of examples per step, over all ranks."""
    learning_rate: Above = 1e-3
    """Of the first epoch."""
    anneal: Annotated[float, Meta(ge=1, le=10)] = 1.1
    """The learning rate is divided by this after each epoch."""
    largest_norm: Above = 400.0
    """Gradients with a larger norm are scaled down to it."""
    sortagrad: bool = True
    """Whether the first epoch goes from short to long examples."""
    seed: Count = 0
    """Random seed (same seed, same result)."""
    threads: Positive = 1
    """Threads of torch per rank; sums depend on it."""
    checkpoint_steps: Positive = 500
    """Steps between checkpoints, beside that of each epoch."""


class Trainer(ABC):
    """A run: its place, its optimizer, and how both are saved. A subclass has the examples.

    Args:
        network: is trained.
        settings: how.
        examples: the training set, as the subclass reads it.
        path: file of the checkpoint.
        plan: hash of all that determines the run; see `fingerprint`.
        ranks: who shares each batch.
    """

    def __init__(
        self,
        network: nn.Module,
        settings: TrainingSettings,
        examples: Sequence[Any],
        path: Path,
        plan: str,
        ranks: Ranks = ALONE,
    ) -> None:
        self.network, self.settings, self.examples = network, settings, examples
        self.path, self.plan, self.ranks = path, plan, ranks
        self.parameters = list(network.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, settings.learning_rate)
        self.history: list[dict[str, float]] = []
        """One row ``{"epoch", "loss"}`` per complete epoch; loss per example."""
        self.step, self.total = 0, 0.0
        """Steps of the epoch, and the sum of their losses."""

    @abstractmethod
    def lengths(self, epoch: int) -> NDArray[np.float64]:
        """Length of each example in an epoch, in any unit: [examples]."""

    @abstractmethod
    def loss(self, places: Sequence[int], epoch: int) -> Tensor:
        """Sum of the losses of some examples."""

    def run(self) -> None:
        """Train to the last epoch.

        Raises:
            HoldfastError: ``diverged``.
        """
        if self.path.exists():
            self.load()
        self.network.train()
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
                loss = self.total / sum(map(len, batches))
                self.history.append({"epoch": epoch + 1, "loss": loss})
                self.step, self.total = 0, 0.0
                self.save()
                tracker.advance(1)

    def batches(self, epoch: int) -> list[list[int]]:
        """Places of the examples of each batch, of about equal length so that little is padded.

        The first epoch goes from short to long (SortaGrad, DS2 3.2); in others, lengths are varied by up
        to a fourth before sorting, and batches come in random order.
        """
        lengths = self.lengths(epoch)
        rng = np.random.default_rng([self.settings.seed, ORDER, epoch])
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
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch[self.ranks.rank :: self.ranks.size], epoch)
        (loss / len(batch)).backward()  # type: ignore[no-untyped-call]
        sum_gradients(self.parameters)
        total = float(summed(loss.detach()))
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.largest_norm)
        if not np.isfinite(total) or not bool(norm.isfinite()):
            error = HoldfastError(
                f"epoch {epoch + 1}, step {self.step + 1}: the loss is not finite\n"
                "  remedy: lower training.learning_rate or training.largest_norm"
            )
            error.code = "diverged"
            raise error  # the last checkpoint stays as it is
        self.optimizer.step()
        return total

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
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        content = io.BytesIO()
        torch.save(state, content)
        self.path.parent.mkdir(parents=True, exist_ok=True)
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
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history, self.step, self.total = state["history"], state["step"], state["total"]


def fingerprint(settings: Any, contents: Iterable[bytes] = ()) -> str:
    """Hash of all that determines a run.

    Args:
        settings: as JSON; keys are sorted.
        contents: sounds and the like.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for each in contents:
        digest.update(each)
    return digest.hexdigest()


def check_output(folder: Path, resume: bool) -> None:
    """Refuse a folder that has a model or a checkpoint, if no run is resumed.

    Raises:
        InputError: ``output-exists``.
    """
    if not resume and ((folder / DESCRIPTION).exists() or any(folder.glob("*.pt"))):
        raise InputError(
            "the folder has a model",
            code="output-exists",
            path=folder,
            remedy="name another folder, or --resume",
        )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
