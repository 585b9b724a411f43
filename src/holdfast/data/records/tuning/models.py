"""The model that a trial trains: a small built-in one, or the user's by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

from holdfast.errors import InputError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

MakeModel: TypeAlias = Callable[[int], Any]
"""Number of classes -> an `nn.Module` from images [B, 3, S, S] to logits [B, classes]."""


def small_cnn(classes: int, width: int = 16) -> Any:
    """Four blocks of convolution, BatchNorm, ReLU and pooling, then a linear layer.

    Args:
        classes: how many.
        width: channels of the first block; the others have 2, 4 and 4 times as many.
    """
    channels = [3, width, 2 * width, 4 * width, 4 * width]
    layers: list[Any] = []
    for before, after in pairwise(channels):
        layers += [
            torch.nn.Conv2d(before, after, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(after),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
    # Averaged to 3x3, so that images of any side from 16 pixels do.
    head = [torch.nn.AdaptiveAvgPool2d(3), torch.nn.Flatten(), torch.nn.Dropout(0.3)]
    return torch.nn.Sequential(*layers, *head, torch.nn.Linear(9 * channels[-1], classes))


def named_model(name: str | MakeModel | None) -> MakeModel:
    """The function that makes the model.

    Args:
        name: ``"module:function"``; a function of the number of classes; None for `small_cnn`.

    Raises:
        InputError: if the module or the function is not there.
    """
    if name is None:
        return small_cnn
    if callable(name):
        return name
    module, separator, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function) if separator else None
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"the model cannot be imported: {error}",
            code="not-found",
            place="model",
            found=name,
            expected="module:function, where the function takes the number of classes",
            remedy="run where the module can be imported, or put its folder into PYTHONPATH",
        ) from error
    if not callable(found):
        raise InputError(
            "invalid model",
            code="invalid-value",
            place="model",
            found=name,
            expected="module:function, where the function takes the number of classes",
        )
    made: MakeModel = found
    return made
