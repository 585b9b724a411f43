"""A federated run as a TOML file: data, clients, model, rule, training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.federated.datasets import Split, chosen, held_out, read_examples, split_examples
from holdfast.federated.engine import run
from holdfast.federated.models import model_named
from holdfast.federated.results import FederatedRun
from holdfast.federated.training import Settings
from holdfast.federated.updates import Array, write_weights

Examples = tuple[Array, Array]
_TEST, _CLIENTS = range(2)
"""What random numbers are for."""


@dataclass(frozen=True)
class DataSettings:
    """Where examples come from, and how clients share them."""

    path: str
    """An ``.npz`` file with x and y, or a folder with one folder of images per class."""
    clients: int = 10
    """Number of clients."""
    split: Split = "even"
    """``even``, or ``dirichlet``: clients have different classes."""
    alpha: float = 0.5
    """Of the Dirichlet distribution; smaller: clients differ more."""
    test_share: float = 0.2
    """Share of the examples held out to measure accuracy."""
    size: int = 32
    """Pixels to which images of a folder are resized."""


@dataclass(frozen=True)
class RunConfig:
    """Content of the file."""

    data: DataSettings
    model: str = "cnn"
    """``linear``, ``mlp``, ``cnn``, or ``module:function``."""
    rule: Mapping[str, Any] = field(default_factory=lambda: {"name": "fedavg"})
    """``name``, and the rule's parameters."""
    training: Settings = field(default_factory=Settings)
    output: str = "run"
    """Folder of the run, relative to the file."""


def run_config(path: str | Path, resume: bool = False) -> FederatedRun:
    """Run the federated learning that a TOML file describes.

    Writes ``state.safetensors`` after every round and ``weights.safetensors`` at the end.

    Args:
        path: the file.
        resume: continue a run that was interrupted, or that shall have more rounds.

    Raises:
        InputError: a mistake in the file or the data; what `run` refuses.
    """
    config = read_config(path, RunConfig, "the configuration")
    folder = Path(path).resolve().parent
    clients, test = client_data(config, folder)
    (x, y), seed = next(iter(test.values())), config.training.seed
    model = model_named(config.model, x.shape[1:], int(y.max()) + 1, seed, folder)
    output = folder / config.output
    rule, parameters = rule_settings(config)
    result = run(
        model,
        clients,
        test=test,
        rule=rule,
        settings=config.training,
        folder=output,
        resume=resume,
        **parameters,
    )
    write_weights(output / "weights.safetensors", result.weights)
    return result


def rule_settings(config: RunConfig) -> tuple[str, dict[str, Any]]:
    """Name and parameters of the rule.

    Raises:
        InputError: ``missing-key``.
    """
    parameters = dict(config.rule)
    if "name" not in parameters:
        raise InputError("missing key", code="missing-key", place="rule.name")
    return str(parameters.pop("name")), parameters


def client_data(config: RunConfig, folder: Path) -> tuple[dict[str, Examples], dict[str, Examples]]:
    """Data of the clients, and device -> held-out data."""
    settings, seed = config.data, config.training.seed
    check_data(settings)
    examples = read_examples(folder / settings.path, settings.size)
    rng = np.random.default_rng([seed, _TEST])
    train, test = held_out(len(examples[0]), settings.test_share, rng)
    learned = chosen(examples, train)
    rng = np.random.default_rng([seed, _CLIENTS])
    parts = split_examples(learned[1], settings.clients, settings.split, settings.alpha, rng)
    clients = {f"client-{n}": chosen(learned, places) for n, places in enumerate(parts)}
    return clients, {"all": chosen(examples, test)}


def check_data(settings: DataSettings) -> None:
    """Refuse impossible splits.

    Raises:
        InputError: ``out-of-range``.
    """
    limits = {
        "clients": (settings.clients >= 1, "1 or more"),
        "alpha": (0 < settings.alpha < np.inf, "above 0"),
        "test_share": (0 < settings.test_share < 1, "above 0 and below 1"),
        "size": (settings.size >= 8, "8 or more"),
    }
    for name, (valid, expected) in limits.items():
        if not valid:
            found = str(getattr(settings, name))
            problem, place = "setting out of range", f"data.{name}"
            raise InputError(
                problem, code="out-of-range", place=place, found=found, expected=expected
            )
