"""One training of the benchmark: a small CNN on a dataset of records, at one fidelity or with the tuner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from holdfast.data import records
from holdfast.data.records.loading.items import Recipe

HOLD_OUT = 0.2
"""Share of the images that training never sees."""
WIDTH = 16
"""Channels of the first convolution."""


def small_cnn(classes: int) -> torch.nn.Module:
    """Four convolutions with batch normalization, then one linear layer."""
    channels = [3, WIDTH, 2 * WIDTH, 4 * WIDTH, 4 * WIDTH]
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(channels):
        layers += [
            torch.nn.Conv2d(before, after, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(after),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
    head = [torch.nn.AdaptiveAvgPool2d(3), torch.nn.Flatten(), torch.nn.Dropout(0.3)]
    return torch.nn.Sequential(*layers, *head, torch.nn.Linear(9 * channels[-1], classes))


def train(
    place: str,
    fidelity: int | None,
    *,
    seed: int,
    epochs: int,
    side: int,
    batch_size: int,
    learning_rate: float,
    probe_batches: int,
    **tuning: Any,
) -> dict[str, Any]:
    """Train, and test once at the end on the images held out, in full.

    Args:
        place: the dataset; its `label` is the class.
        fidelity: of every epoch; None: the tuner chooses.
        seed: of split, order, weights and augmentation.
        epochs: how many.
        side: images are resized to [side, side] pixels.
        batch_size: images a batch.
        learning_rate: the highest of a one-cycle schedule.
        probe_batches: batches on which gradients are compared.
        tuning: settings of `Tuner`.
    """

    def pair(item: dict[str, Any]) -> tuple[Any, int] | None:
        if item["id"] in held_out:
            return None
        pixels = item["image"][None].float() / 255
        shown = functional.interpolate(pixels, (side, side), mode="bilinear", antialias=True)
        return shown[0], item["label"]

    images = records.samples(place, count=None).rows
    ids = [row["id"] for row in images]
    count = round(len(ids) * HOLD_OUT)
    drawn = np.random.default_rng((seed, 0)).permutation(len(ids))
    kept = np.sort(drawn[count:])
    probed = np.random.default_rng((seed, 1)).permutation(kept)[: probe_batches * batch_size]
    held_out: frozenset[str] = frozenset()
    tests = records.Dataset(place, at_least=side, transform=pair, rank=0, ranks=1).indexed()
    tested = [tests[int(number)] for number in np.sort(drawn[:count])]
    held_out = frozenset(ids[number] for number in drawn[:count])
    dataset = records.Dataset(
        place, columns=["label"], seed=seed, at_least=side, transform=pair, rank=0, ranks=1
    )
    recipe = Recipe(("label",), at_least=side, transform=pair)
    reader = records.open_records(place)  # not the dataset's, which counts what training reads
    fixed = records.FixedBatches(reader, probed, batch_size=batch_size, recipe=recipe)
    before = dataset.traffic.bytes

    torch.manual_seed(seed)
    model = small_cnn(1 + max(row["columns"]["label"] for row in images))
    policy = records.GradientCosine() if fidelity is None else records.Fixed(fidelity)
    if fidelity is not None:
        tuning |= {"warmup": 0, "last_full": 0}
    probe = records.Probe(model, functional.cross_entropy, fixed)
    tuner = records.Tuner(dataset.groups, epochs, probe, policy, **tuning)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    draws = torch.Generator().manual_seed(seed)
    rows: list[dict[str, Any]] = []
    for epoch in range(epochs):
        dataset.set_epoch(epoch)
        dataset.set_fidelity(tuner.fidelity(epoch))
        model.train()
        losses = []
        for number, (shown, labels) in enumerate(_batches(dataset, batch_size)):
            share = (epoch + number * batch_size / len(kept)) / epochs
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * one_cycle(share)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(shifted_and_mirrored(shown, draws)), labels)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        read = int(dataset.traffic.bytes - before)
        before += read
        chosen = tuner.history[-1].fidelity
        rows.append(
            {"epoch": epoch, "fidelity": chosen, "bytes": read, "loss": float(np.mean(losses))}
        )

    model.eval()
    with torch.inference_mode():
        found = model(torch.stack([image for image, _ in tested])).argmax(1)
    correct = int((found == torch.tensor([label for _, label in tested])).sum())
    bytes_read = sum(row["bytes"] for row in rows)
    full = records.info(place).groups[-1].bytes * epochs
    return {
        "epochs": rows,
        "scores": [
            {"epoch": choice.epoch} | score.to_dict()
            for choice in tuner.history
            for score in choice.scores
        ],
        "tested": count,
        "correct": correct,
        "accuracy": correct / count,
        "bytes_read": bytes_read,
        "probe_bytes": fixed.nbytes,
        "saving": full / (bytes_read + fixed.nbytes),
    }


def _batches(dataset: records.Dataset, batch_size: int) -> Iterator[tuple[Any, Any]]:
    """Batches without the images held out; a last one of a single image is left out (BatchNorm)."""
    batch: list[Any] = []
    for item in dataset:
        batch += [] if item is None else [item]
        if len(batch) == batch_size:
            yield _stacked(batch)
            batch = []
    if len(batch) > 1:
        yield _stacked(batch)


def _stacked(batch: list[Any]) -> tuple[Any, Any]:
    images, labels = zip(*batch, strict=True)
    return torch.stack(images), torch.tensor(labels)


def one_cycle(share: float) -> float:
    """The learning rate's share of its peak: a linear rise over the first 30 %, then half a cosine.

    Source: Smith and Topin, "Super-convergence", arXiv 1708.07120.
    """
    if share < 0.3:
        return 0.04 + 0.96 * share / 0.3
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (share - 0.3) / 0.7))


def shifted_and_mirrored(images: Any, draws: torch.Generator) -> Any:
    """All images of a batch [B, C, S, S] moved by up to a sixteenth of their side; half are mirrored."""
    side = images.shape[-1]
    reach = side // 16
    moved = functional.pad(images, (reach,) * 4, mode="replicate")
    top, left = torch.randint(0, 2 * reach + 1, (2,), generator=draws).tolist()
    moved = moved[:, :, top : top + side, left : left + side]
    mirrored = torch.rand(len(images), generator=draws) < 0.5
    return torch.where(mirrored[:, None, None, None], moved.flip(3), moved)
