"""DeepSA: a small network at the server that classifies uploads (Ma et al., arXiv 2105.06256).

The server has a little data of its own. It plays rounds with it, spoils some of the updates, and learns to
tell them from the others by features of each tensor's step; updates that it takes for unreliable are left
out, and FedAvg averages the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from holdfast.errors import InputError
from holdfast.federated.aggregation import combine
from holdfast.federated.faults import moved
from holdfast.federated.training import Data, FlatModel, Task, train_client
from holdfast.federated.updates import Array, Update, Weights

ROUNDS, CLIENTS, HIDDEN, FIT_STEPS = 10, 10, 16, 300
Classifier = dict[str, Array]
"""Arrays ``deepsa.0.weight`` ... of the network, beside the other state of a rule."""


def features(current: Weights, updates: Sequence[Update]) -> Array:
    """What the classifier sees of each update, [updates, 2 tensors].

    Of each floating-point tensor's step: the logarithm of its norm over the median norm, and its cosine to
    the median step.
    """
    columns = []
    for name, array in current.items():
        if array.dtype.kind != "f":
            continue  # a counter
        steps = np.stack([np.subtract(u.weights[name], array, dtype=float) for u in updates])
        steps = steps.reshape(len(updates), -1)
        norms = np.linalg.norm(steps, axis=1) + 1e-12
        middle = np.median(steps, axis=0)
        cosines = steps @ middle / (norms * (np.linalg.norm(middle) + 1e-12))
        columns += [np.log(norms / np.median(norms)).clip(-5, 5), cosines]
    return np.stack(columns, axis=1)


def reliable(seen: Array, classifier: Classifier) -> Array:
    """Which updates the classifier takes for reliable, [updates] of bool."""
    first, second = (
        (classifier[f"deepsa.{n}.weight"], classifier[f"deepsa.{n}.bias"]) for n in (0, 2)
    )
    hidden = np.tanh(seen @ first[0].T + first[1])
    return np.asarray((hidden @ second[0].T + second[1])[:, 0] > 0)


def train_classifier(model: FlatModel, proxy: Data, task: Task) -> Classifier:
    """Learn to tell spoiled updates from others, on the server's own data.

    Args:
        model: with the global weights loaded.
        proxy: the server's data.
        task: how clients train.

    Raises:
        InputError: ``no-data`` if the data is less than two examples per simulated client.
    """
    x, y = proxy
    if len(x) < 2 * CLIENTS:
        raise InputError(
            "the server's own data is too small",
            code="no-data",
            place="proxy",
            found=f"{len(x)} examples",
            expected=f"{2 * CLIENTS} or more",
        )
    rng = np.random.default_rng(task.seed)
    first = model.weights()
    current, seen, labels = first, [], []
    for number in range(ROUNDS):
        # 1. Honest updates of simulated clients.
        model.load(current)
        updates = []
        for k, places in enumerate(np.array_split(rng.permutation(len(x)), CLIENTS)):
            model.reset()
            own = replace(task, seed=(*task.seed, number, k))
            updates.append(train_client(model, (x[places], y[places]), own))
        # 2. Up to four of ten are spoiled.
        bad = rng.random(CLIENTS) < rng.uniform(0.0, 0.4)
        mixed = [_spoiled(u, current, rng) if b else u for u, b in zip(updates, bad, strict=True)]
        seen.append(features(current, mixed))
        labels.append(~bad)
        current, _ = combine("fedavg", current, updates, {}, {})
    model.load(first)
    return _fitted(np.concatenate(seen), np.concatenate(labels))


def _spoiled(update: Update, current: Weights, rng: np.random.Generator) -> Update:
    """An update with noise of its own size or more, or with its step turned around."""
    if rng.random() < 0.5:
        return moved(update, current, -rng.uniform(0.5, 3.0))
    scale = rng.uniform(1.0, 10.0)
    weights = {
        name: array
        + (scale * np.std(array - current[name]) * rng.normal(size=array.shape)).astype(array.dtype)
        for name, array in update.weights.items()
    }
    return replace(update, weights=weights)


def _fitted(seen: Array, labels: Array) -> Classifier:
    network = nn.Sequential(nn.Linear(seen.shape[1], HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
    network = network.double()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02, weight_decay=1e-3)
    inputs, targets = torch.from_numpy(seen), torch.from_numpy(labels.astype(float))
    for _ in range(FIT_STEPS):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(inputs)[:, 0], targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {f"deepsa.{name}": part.detach().numpy() for name, part in network.named_parameters()}
