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
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from holdfast.errors import InputError
from holdfast.federated.aggregation import combine
from holdfast.federated.training import Data, FlatModel, Task, train_client
from holdfast.federated.updates import Array, Update, Weights, flat, trained, unflat

ROUNDS, CLIENTS, HIDDEN, FIT_STEPS = 10, 10, 16, 300


def features(current: Weights, updates: Sequence[Update]) -> Array:
    """What the classifier sees of each update, [updates, 2 tensors].

    Of each floating-point tensor's step: the logarithm of its norm over the median norm, and its cosine to
    the median step.
    """
    columns = []
    for name, array in sorted(trained(current, ()).items()):
        steps = np.stack([np.ravel(u.weights[name] - array.astype(float)) for u in updates])
        norms = np.linalg.norm(steps, axis=1) + 1e-12
        middle = np.median(steps, axis=0)
        cosines = steps @ middle / (norms * (np.linalg.norm(middle) + 1e-12))
        columns += [np.log(norms / np.median(norms)), cosines]
    return np.stack(columns, axis=1)


def reliable(current: Weights, updates: Sequence[Update], classifier: Array) -> Array:
    """Which updates a classifier takes for reliable, [updates] of bool."""
    seen = features(current, updates)
    network = _network(seen.shape[1])
    vector_to_parameters(torch.from_numpy(classifier), network.parameters())
    return np.asarray(network(torch.from_numpy(seen))[:, 0] > 0)


def train_classifier(model: FlatModel, proxy: Data, task: Task) -> Array:
    """Learn to tell spoiled updates from others, on the server's own data.

    Args:
        model: with the global weights; it is left with others.
        proxy: the server's data.
        task: how clients train.

    Returns:
        The parameters of the classifier [n], which a rule has in its state.

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
    current, seen, labels = model.weights(), [], []
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
    return _fitted(np.concatenate(seen), np.concatenate(labels))


def _spoiled(update: Update, current: Weights, rng: np.random.Generator) -> Update:
    """An update with its step turned around, or with noise of its own size or more."""
    vector = flat(update.weights)
    step = vector - flat(current)
    change = -rng.uniform(1.5, 4.0) * step
    if rng.random() < 0.5:
        change = rng.normal(scale=rng.uniform(1.0, 10.0) * step.std(), size=len(step))
    return replace(update, weights=unflat(vector + change, current))


def _network(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)).double()


def _fitted(seen: Array, labels: Array) -> Array:
    network = _network(seen.shape[1])
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02, weight_decay=1e-3)
    inputs, targets = torch.from_numpy(seen), torch.from_numpy(labels.astype(float))
    for _ in range(FIT_STEPS):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(inputs)[:, 0], targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return parameters_to_vector(network.parameters()).detach().numpy()
