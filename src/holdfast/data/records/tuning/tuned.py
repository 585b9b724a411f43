"""`tune`: a trial on a dataset that tells which fidelity its training needs, and what that saves."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.data.records.describing import groups_of
from holdfast.data.records.reading.records import Records
from holdfast.data.records.tuning.policies import (
    Fixed,
    GradientCosine,
    LossPlateau,
    MsSsim,
    Policy,
)
from holdfast.errors import InputError
from holdfast.stats import wilson_interval

if TYPE_CHECKING:
    from holdfast.data.records.tuning.feeding import RecordsFeed
    from holdfast.data.records.tuning.models import MakeModel
    from holdfast.data.records.tuning.training import Trial
    from holdfast.data.records.tuning.tuner import Tuner

PolicyName = Literal["gradient", "msssim", "loss"]
SMALLEST_SIDE = 16
"""Pixels: the built-in model halves the sides four times."""


@dataclass(frozen=True)
class Tuned:
    """Result of a trial."""

    url: str
    groups: int
    """G: full fidelity."""
    threshold: float | None
    """Threshold of the scores (or of MS-SSIM); None for a policy without one."""
    epochs: list[dict[str, Any]]
    """One row per epoch: epoch, fidelity, bytes, bytes_full, loss, reason."""
    scores: list[dict[str, Any]]
    """One row per probe and fidelity: epoch, fidelity, score, error, low, high, freedom, surely_above."""
    fidelities: list[dict[str, Any]]
    """One row per fidelity: fidelity, scans_end, bytes (of one pass), cumulative_fraction, msssim."""
    images: int
    """Number of training images."""
    tested: int
    """Number of held-out images."""
    correct: int
    """Held-out images classified correctly at the end."""
    bytes_read: int
    """Bytes read for training, over all epochs."""
    probe_bytes: int
    """Bytes read for the images on which gradients were compared; read once."""
    correct_full: int | None
    """Held-out images classified correctly by a second training at full fidelity, if requested."""
    bytes_full: int
    """Bytes that training at full fidelity reads: measured if it was run, else computed."""
    skipped: dict[str, str]
    """Image -> why it was left out: it is damaged."""
    settings: dict[str, Any]

    @property
    def saving(self) -> float:
        """How many times fewer bytes were read than in full, those of the probes counted."""
        return self.bytes_full / (self.bytes_read + self.probe_bytes)

    @property
    def accuracy(self) -> float:
        """Share of the held-out images whose class was found."""
        return self.correct / self.tested

    @property
    def accuracy_full(self) -> float | None:
        """The same after a training at full fidelity, if it was asked for."""
        return None if self.correct_full is None else self.correct_full / self.tested

    @property
    def usual(self) -> int:
        """The fidelity at which most epochs were read; of equals the highest."""
        chosen: list[int] = [row["fidelity"] for row in self.epochs]
        return max(set(chosen), key=lambda fidelity: (chosen.count(fidelity), fidelity))

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "url": self.url,
            "groups": self.groups,
            "fidelity": self.usual,
            "accuracy": self.accuracy,
            "accuracy_interval": list(wilson_interval(self.correct, self.tested)),
            "accuracy_full": self.accuracy_full,
            "images": self.images,
            "tested": self.tested,
            "bytes_read": self.bytes_read,
            "probe_bytes": self.probe_bytes,
            "bytes_full": self.bytes_full,
            "saving": self.saving,
            "threshold": self.threshold,
            "epochs": self.epochs,
            "scores": self.scores,
            "fidelities": self.fidelities,
            "skipped": self.skipped,
            "settings": self.settings,
        }


def tune(
    url: str | os.PathLike[str],
    *,
    model: str | MakeModel | None = None,
    epochs: int = 30,
    label: str = "label",
    policy: PolicyName | Policy = "gradient",
    threshold: float | None = None,
    every: int = 5,
    warmup: int = 2,
    last_full: int = 1,
    patience: int = 2,
    probe_batches: int = 10,
    batch_size: int = 32,
    side: int = 64,
    learning_rate: float = 3e-3,
    hold_out: float = 0.2,
    against_full: bool = False,
    while_bound: bool = False,
    device: str = "cpu",
    seed: int = 0,
    **options: Any,
) -> Tuned:
    """Train a classifier on a dataset with the tuner, and tell what it chose and what that saved.

    Args:
        url: the dataset's folder, or a URL that `open_store` takes.
        model: ``"module:function"`` or a function, from the number of classes to an `nn.Module`; by
            default a small CNN.
        epochs: how many.
        label: the column of the class.
        policy: ``"gradient"`` (cosine), ``"msssim"`` (the quality table), ``"loss"`` (plateau), or a
            policy of your own.
        threshold: of the score (0.8) or of MS-SSIM (0.95).
        every: a probe in every so many epochs.
        warmup: first epochs in full.
        last_full: last epochs in full.
        patience: probes in a row that must allow a lower fidelity.
        probe_batches: batches on which gradients are compared.
        batch_size: images a batch.
        side: images are resized to [side, side] pixels.
        learning_rate: the highest of a one-cycle schedule.
        hold_out: the share of images held out for the accuracy.
        against_full: train once more at full fidelity, with the same seed, to compare.
        while_bound: lower the fidelity only while training waits for storage.
        device: of torch.
        seed: of split, order, weights and augmentation.
        options: for the store, as of `open_store`.

    Raises:
        InputError: if there is no dataset, no such column, or a setting is out of range.
        MissingExtraError: if torch is not installed.
    """
    from holdfast.data.records.tuning.feeding import RecordsFeed
    from holdfast.data.records.tuning.models import named_model

    if side < SMALLEST_SIDE:
        raise InputError(
            "images of this size are too small to train on",
            code="out-of-range",
            place="side",
            found=f"{side} pixels",
            expected=f"{SMALLEST_SIDE} pixels or more",
        )
    settings = {
        "model": _name(model),
        "policy": policy if isinstance(policy, str) else type(policy).__name__,
        "epochs": epochs,
        "every": every,
        "warmup": warmup,
        "last_full": last_full,
        "patience": patience,
        "probe_batches": probe_batches,
        "batch_size": batch_size,
        "side": side,
        "learning_rate": learning_rate,
        "hold_out": hold_out,
        "while_bound": while_bound,
        "seed": seed,
    }
    make = named_model(model)

    def run(policy: PolicyName | Policy, threshold: float | None, last_full: int) -> _Run:
        feed = RecordsFeed(
            url,
            label=label,
            side=side,
            batch_size=batch_size,
            hold_out=hold_out,
            probe_batches=probe_batches,
            seed=seed,
            **options,
        )
        tuning = {
            "epochs": epochs,
            "every": every,
            "patience": patience,
            "warmup": warmup,
            "last_full": last_full,
            "storage_bound": feed.storage_bound if while_bound else None,
        }
        chosen, limit = _policy(policy, threshold, feed.records)
        try:
            trial, tuner = _trial(feed, make, chosen, tuning, learning_rate, device, seed)
        finally:
            feed.close()
        return _Run(feed, trial, tuner, limit)

    tuned = run(policy, threshold, last_full)
    full = run(Fixed(tuned.feed.groups), None, 0).trial if against_full else None
    return _told(str(url), tuned, full, settings)


def _name(model: str | MakeModel | None) -> str:
    if model is None:
        return "small_cnn"
    return model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)


class _Run(NamedTuple):
    """A trial and what it was done with."""

    feed: RecordsFeed
    trial: Trial
    tuner: Tuner
    threshold: float | None


def _policy(
    policy: PolicyName | Policy, threshold: float | None, records: Records
) -> tuple[Policy, float | None]:
    """The policy, and its threshold if it has one."""
    if policy == "gradient":
        policy = GradientCosine()
    elif policy == "msssim":
        policy = MsSsim(tuple(records.manifest.msssim()))
    elif policy == "loss":
        policy = LossPlateau()
    elif isinstance(policy, str):
        raise InputError(
            "unknown policy",
            code="unknown-name",
            place="policy",
            found=policy,
            expected="gradient, msssim or loss",
        )
    if threshold is not None:
        if not isinstance(policy, (GradientCosine, MsSsim)):
            raise InputError(
                "this policy has no threshold",
                code="conflict",
                place="threshold",
                found=str(threshold),
            )
        policy = replace(policy, threshold=threshold)
    return policy, getattr(policy, "threshold", None)


def _trial(
    feed: RecordsFeed,
    make: MakeModel,
    policy: Policy,
    tuning: dict[str, Any],
    learning_rate: float,
    device: str,
    seed: int,
) -> tuple[Trial, Tuner]:
    import torch

    from holdfast.data.records.tuning.gradients import Probe
    from holdfast.data.records.tuning.training import shifted_and_mirrored, train
    from holdfast.data.records.tuning.tuner import Tuner

    # The seed decides the weights, and the caller's generators go on as if nothing had been.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make(feed.classes).to(device)
        probe = Probe(
            model,
            torch.nn.functional.cross_entropy,
            lambda fidelity: (
                (images.to(device), labels.to(device)) for images, labels in feed.fixed(fidelity)
            ),
        )
        tuner = Tuner(feed.groups, probe=probe, policy=policy, **tuning)
        trial = train(
            model,
            feed,
            tuner,
            learning_rate=learning_rate,
            seed=seed,
            augment=shifted_and_mirrored,
        )
    return trial, tuner


def _told(url: str, run: _Run, full: Trial | None, settings: dict[str, Any]) -> Tuned:
    """The result, out of what was measured."""
    feed, trial, tuner, threshold = run
    skipped = feed.skipped()
    if not trial.tested:
        raise InputError(
            "all held-out images are damaged",
            code="no-data",
            path=url,
            found="; ".join(f"{image}: {reason}" for image, reason in list(skipped.items())[:3]),
            remedy="write the dataset again from undamaged images",
        )
    manifest = feed.records.manifest
    full_bytes = [manifest.bytes_at(feed.groups)] * len(trial.epochs)
    if full is not None:
        full_bytes = [one.bytes_read for one in full.epochs]
    epochs = [
        {
            "epoch": one.epoch,
            "fidelity": one.fidelity,
            "bytes": one.bytes_read,
            "bytes_full": in_full,
            "loss": one.loss,
            "reason": choice.reason,
        }
        for one, choice, in_full in zip(trial.epochs, tuner.history, full_bytes, strict=True)
    ]
    scores = [
        {"epoch": choice.epoch}
        | score.to_dict()
        | {"surely_above": None if threshold is None else _known(score.surely_above(threshold))}
        for choice in tuner.history
        for score in choice.scores
    ]
    fidelities = [
        {
            "fidelity": group.group,
            "scans_end": group.scans_end,
            "bytes": group.bytes,
            "cumulative_fraction": group.cumulative_fraction,
            "msssim": group.msssim,
        }
        for group in groups_of(manifest)
    ]
    return Tuned(
        url=url,
        groups=feed.groups,
        threshold=threshold,
        epochs=epochs,
        scores=scores,
        fidelities=fidelities,
        images=feed.images - len(skipped.keys() - feed.held_out_ids),
        tested=trial.tested,
        correct=trial.correct,
        bytes_read=sum(one.bytes_read for one in trial.epochs),
        probe_bytes=feed.probe_bytes,
        correct_full=None if full is None else full.correct,
        bytes_full=sum(full_bytes),
        skipped=skipped,
        settings=settings,
    )


def _known(value: float) -> float | None:
    return value if value == value else None
