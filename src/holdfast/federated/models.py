"""Models that a configuration can name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.errors import InputError
from holdfast.targets import load


def linear(shape: Sequence[int], classes: int) -> nn.Module:
    """Logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: Sequence[int], classes: int) -> nn.Module:
    """One hidden layer of 64 units."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), 64), nn.ReLU(), nn.Linear(64, classes)
    )


def cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """Three convolutions with group normalization, which has no statistics that differ between devices.

    Raises:
        InputError: ``unsupported`` if the inputs are not images.
    """
    if len(shape) != 3:
        raise InputError(
            "the model cnn takes images",
            code="unsupported",
            place="model",
            found=f"inputs of shape {list(shape)}",
            expected="[channels, height, width]",
            remedy="name linear or mlp",
        )
    layers: list[nn.Module] = []
    for before, width in pairwise([shape[0], 16, 32, 64]):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU()]
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
    # Pooling takes twice as long where the channels of a pixel are not side by side.
    model.register_forward_pre_hook(_channels_last)
    return model


def _channels_last(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    return inputs[0].contiguous(memory_format=torch.channels_last)


MODELS = {"linear": linear, "mlp": mlp, "cnn": cnn}
"""Name -> what makes it from the shape of one input and the number of classes."""


def model_named(
    name: str, shape: Sequence[int], classes: int, seed: int, folder: Path
) -> nn.Module:
    """A model with random weights.

    Args:
        name: in `MODELS`, or ``module:function`` of a module beside the configuration or installed; the
            function takes the shape of one input and the number of classes.
        shape: of one input.
        classes: number of classes.
        seed: of the weights.
        folder: of the configuration.

    Raises:
        InputError: ``unknown-name``, or ``not-found`` for a module or function that does not exist.
    """
    module, colon, function = name.partition(":")
    if name not in MODELS and not colon:
        raise InputError(
            "unknown model",
            code="unknown-name",
            place="model",
            found=name,
            expected=f"one of {', '.join(MODELS)}, or module:function",
        )
    file = folder / f"{module}.py"
    target = f"{file}:{function}" if file.is_file() else name
    make = MODELS.get(name) or load(target, "model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(shape, classes)
