"""Small models and batches for the tuner's tests, and the bitwise image of a training run."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn


def batches_of(images, labels, sizes, noise=(0.0,), seed=0):
    """Fidelity g (1..len(noise)) -> the batches, with noise added to the images at each."""

    def give(fidelity: int):
        draw = np.random.default_rng((seed, fidelity))
        spread = noise[fidelity - 1]
        start = 0
        for size in sizes:
            part = images[start : start + size]
            blurred = part + spread * draw.normal(size=part.shape)
            yield (
                torch.as_tensor(blurred, dtype=torch.get_default_dtype()),
                torch.as_tensor(labels[start : start + size]),
            )
            start += size

    return give


def image_batches(count=4, size=6, noise=(1.0, 0.2, 0.0), classes=3, seed=0):
    """Random images [size, 3, 8, 8] of a few classes."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(classes, size=count * size)
    images = draw.normal(size=(count * size, 3, 8, 8)) + labels[:, None, None, None]
    return batches_of(images, labels, [size] * count, noise, seed)


class DisturbingCNN(nn.Module):
    """Has everything that a forward pass can leave a trace in."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3)
        )
        self.frozen = nn.BatchNorm2d(4)
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(4 * 8 * 8, 3))
        self.unused = nn.Linear(2, 2)
        self.generator = generator
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("replaced", torch.zeros(3), persistent=False)
        self.register_buffer("absent", None)

    def forward(self, images):
        self.calls += 1
        self.replaced = self.replaced + torch.rand(3)
        jitter = random.random() + float(torch.rand(()))
        jitter += np.random.random()  # noqa: NPY002
        if self.generator is not None:
            jitter += float(torch.rand((), generator=self.generator))
        return self.head(self.frozen(self.body(images)).flatten(1)) * (1 + 0.01 * jitter)


def everything(model: nn.Module, *others: Any) -> str:
    """All that a training run holds, bit by bit: two runs in the same state give the same."""
    kept = [
        [(name, _raw(value)) for name, value in model.named_parameters()],
        [(name, _raw(value)) for name, value in model.named_buffers()],
        [(name, _raw(value.grad)) for name, value in model.named_parameters()],
        [(name, module.training) for name, module in model.named_modules()],
        [value.requires_grad for value in model.parameters()],
        random.getstate(),
        [_raw(part) for part in np.random.get_state()],  # noqa: NPY002
        _raw(torch.get_rng_state()),
        [_plain(other) for other in others],
    ]
    return repr(kept)


def seed_all(seed: int) -> None:
    """Seed the global generators."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def _raw(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes())
    return (str(value.dtype), value.tobytes()) if isinstance(value, np.ndarray) else value


def _plain(other: Any) -> Any:
    if hasattr(other, "state_dict"):
        return _plain(other.state_dict())
    if isinstance(other, torch.Generator):
        return _raw(other.get_state())
    if isinstance(other, np.random.Generator):
        return repr(other.bit_generator.state)
    if isinstance(other, dict):
        return [(str(key), _plain(value)) for key, value in other.items()]
    if isinstance(other, (list, tuple)):
        return [_plain(value) for value in other]
    return _raw(other)
