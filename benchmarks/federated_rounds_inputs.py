"""What `federated_rounds.py` and its peers train on: 1,000 clients of 20 examples, and a small network."""

from __future__ import annotations

import numpy as np

CLIENTS, EXAMPLES, FEATURES, CLASSES = 1000, 20, 32, 10
PER_ROUND, BATCH, RATE = 100, 10, 0.1


def clients():
    """Inputs and labels of each client, and of a test set."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(CLASSES, FEATURES))
    parts = []
    for n in [EXAMPLES] * CLIENTS + [2000]:
        y = rng.integers(0, CLASSES, n)
        x = centers[y] + 1.5 * rng.normal(size=(n, FEATURES))
        parts.append((x.astype(np.float32), y))
    return parts[:-1], parts[-1]


def network():
    """The network, with the same first weights everywhere."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))
