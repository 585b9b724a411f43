"""A trial: a short training whose fidelity the tuner chooses, measured epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast import progress
from holdfast.data.records.tuning.tuner import Tuner
from holdfast.errors import MissingExtraError

if TYPE_CHECKING:
    from holdfast.data.records.tuning.feeding import RecordsFeed

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

Batch = tuple[Any, Any]
"""Images [B, 3, S, S] float32 in 0..1, labels [B] int64."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch of a trial."""

    epoch: int
    fidelity: int
    loss: float
    """Mean training loss."""
    bytes_read: int
    """From the store, for training."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial gave."""

    epochs: tuple[Epoch, ...]
    correct: int
    """Held-out images whose class was found."""
    tested: int
    """Held-out images."""


def train(
    model: Any,
    feed: RecordsFeed,
    tuner: Tuner,
    *,
    learning_rate: float,
    seed: int,
    augment: Callable[[Any, Any], Any] | None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Trial:
    """Train a model, each epoch at the fidelity that the tuner chooses, and test it once at the end.

    AdamW with a one-cycle schedule; cross-entropy.

    Args:
        model: an `nn.Module`.
        feed: the images.
        tuner: with as many epochs as there are to be.
        learning_rate: the highest of the schedule.
        seed: of the augmentation.
        augment: (images, generator) -> images, for training batches only.
        on_epoch: called after each epoch.
    """
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    draws = torch.Generator().manual_seed(seed)
    done: list[Epoch] = []
    with progress.track("training", tuner.epochs, "epochs") as bar:
        for epoch in range(tuner.epochs):
            fidelity = tuner.fidelity(epoch, loss=done[-1].loss if done else None)
            before, total, images_seen = feed.bytes_read(), 0.0, 0
            model.train()
            for images, labels in feed.batches(epoch, fidelity):
                shown = images if augment is None else augment(images, draws)
                share = (epoch + images_seen / feed.images) / tuner.epochs
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate * one_cycle(share)
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(shown.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(labels)
                images_seen += len(labels)
            read = feed.bytes_read() - before
            done.append(Epoch(epoch, fidelity, total / max(1, images_seen), read))
            if on_epoch is not None:
                on_epoch(done[-1])
            bar.advance(1)
    return Trial(tuple(done), *_tested(model, feed, device))


def one_cycle(share: float) -> float:
    """The learning rate's share of its peak: a linear rise over the first 30 %, then half a cosine.

    Args:
        share: of the training that is done, 0 to 1.

    Source: Smith and Topin, "Super-convergence", arXiv 1708.07120.
    """
    if share < 0.3:
        return 0.04 + 0.96 * share / 0.3
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (share - 0.3) / 0.7))


def shifted_and_mirrored(images: Any, draws: Any) -> Any:
    """Augmentation: all images of a batch moved by up to a sixteenth of their side; half are mirrored.

    Args:
        images: [B, C, S, S].
        draws: a `torch.Generator`.
    """
    reach = images.shape[-1] // 16
    moved = torch.nn.functional.pad(images, (reach,) * 4, mode="replicate")
    top, left = torch.randint(0, 2 * reach + 1, (2,), generator=draws).tolist()
    side = images.shape[-1]
    moved = moved[:, :, top : top + side, left : left + side]
    mirrored = torch.rand(len(images), generator=draws) < 0.5
    return torch.where(mirrored[:, None, None, None], moved.flip(3), moved)


def _tested(model: Any, feed: RecordsFeed, device: Any) -> tuple[int, int]:
    """Held-out images whose class was found, and held-out images."""
    model.eval()
    correct = tested = 0
    with torch.inference_mode():
        for images, labels in feed.held_out():
            found = model(images.to(device)).argmax(1).cpu()
            correct += int((found == labels).sum())
            tested += len(labels)
    return correct, tested
