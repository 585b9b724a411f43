"""A federated run as a TOML file: data, clients, model, rule, training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from holdfast.config import invalid_value, read_config, unknown_key
from holdfast.errors import InputError
from holdfast.federated.aggregation import rule_named
from holdfast.federated.datasets import (
    DataSettings,
    Examples,
    chosen,
    held_out,
    read_examples,
    split_examples,
)
from holdfast.federated.engine import run
from holdfast.federated.models import model_named
from holdfast.federated.processing import capture
from holdfast.federated.results import FederatedRun
from holdfast.federated.secure_aggregation import Privacy
from holdfast.federated.sensor import PROFILES, Profile, read_profiles
from holdfast.federated.training import Settings
from holdfast.federated.updates import write_weights

ByName = dict[str, Examples]
_TEST, _CLIENTS, _NOISE, _HELD_OUT_NOISE = range(4)
"""What random numbers are for."""


@dataclass(frozen=True)
class DeviceSettings:
    """What takes the photos of the clients."""

    profiles: str = ""
    """TOML file of device profiles (default: the nine that are included)."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Device -> its share of the clients, up to a factor (default: all devices alike)."""


@dataclass(frozen=True)
class RunConfig:
    """Content of the file."""

    data: DataSettings
    model: str = "cnn"
    """``linear``, ``mlp``, ``cnn``, or ``module:function``."""
    rule: Mapping[str, Any] = field(default_factory=lambda: {"name": "fedavg"})
    """``name``, and the rule's parameters."""
    training: Settings = field(default_factory=Settings)
    devices: DeviceSettings | None = None
    """Simulated devices; none: clients have the examples as they are."""
    compare: Sequence[Mapping[str, Any]] = ()
    """Rules that `study` compares, each like `rule`; the first is the baseline."""
    privacy: Privacy | None = None
    """Secure aggregation and differential privacy; none: updates are in the clear."""
    ledger: bool = False
    """Whether to write a contribution ledger in the folder of the run."""
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
    clients, test, proxy = client_data(config, folder)
    model = configured_model(config, folder, clients, test, proxy)
    output = folder / config.output
    rule, parameters = rule_settings(config.rule)
    result = run(
        model,
        clients,
        test=test,
        rule=rule,
        settings=config.training,
        folder=output,
        resume=resume,
        ledger=config.ledger,
        privacy=config.privacy,
        proxy=proxy,
        **parameters,
    )
    write_weights(output / "weights.safetensors", result.weights)
    return result


def configured_model(
    config: RunConfig,
    folder: Path,
    clients: Mapping[str, Examples],
    test: Mapping[str, Examples],
    proxy: Examples | None = None,
) -> nn.Module:
    """The model of the file, with an output for each class of `client_data`'s examples.

    A rare class may be in one part alone: the labels of all parts count.
    """
    parts = [*clients.values(), *test.values(), *([proxy] if proxy else [])]
    classes = 1 + max(int(labels.max()) for _, labels in parts if len(labels))
    return model_named(config.model, parts[0][0].shape[1:], classes, config.training.seed, folder)


def rule_settings(table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and parameters of the rule.

    Raises:
        InputError: ``missing-key``, or what `rule_named` refuses.
    """
    parameters = dict(table)
    if "name" not in parameters:
        raise InputError("missing key", code="missing-key", place="rule.name")
    name = str(parameters.pop("name"))
    # Other keys would be taken for arguments of `run`.
    rule_named(name, parameters, {"learning_rate": 1.0, "population": 1})
    return name, parameters


def client_data(config: RunConfig, folder: Path) -> tuple[ByName, ByName, Examples | None]:
    """Data of the clients, device -> held-out data, and the server's own data.

    A client whose photos a device takes is named ``device/client-7``.
    """
    settings, seed = config.data, config.training.seed
    learned, test = train_and_test(config, folder)
    rng = np.random.default_rng([seed, _CLIENTS])
    proxy = None
    if settings.proxy_share:
        learned, proxy = held_out(learned, settings.proxy_share, rng)
    parts = split_examples(learned[1], settings.clients, settings.split, settings.alpha, rng)
    if config.devices is None:
        clients = {f"client-{n}": chosen(learned, places) for n, places in enumerate(parts)}
        return clients, {"all": test}, proxy
    profiles = device_profiles(config.devices, folder)
    # Client k of n has the device in whose part of the shares (k + 1/2) / n lies.
    shares = [config.devices.shares.get(name, 1.0) for name in profiles]
    ends = np.cumsum(shares) / sum(shares)
    owned = np.searchsorted(ends, (np.arange(len(parts)) + 0.5) / len(parts))
    clients = {}
    for number, places in enumerate(parts):
        photos, labels = chosen(learned, places)
        device = list(profiles)[owned[number]]
        taken = capture(photos, profiles[device], [seed, _NOISE, number])
        clients[f"{device}/client-{number}"] = taken, labels
    tests = {n: photographed(test, p, seed, k) for k, (n, p) in enumerate(profiles.items())}
    return clients, tests, proxy


def train_and_test(config: RunConfig, folder: Path) -> tuple[Examples, Examples]:
    """The examples of the file, and those that are held out."""
    examples = read_examples(folder / config.data.path, config.data.size)
    rng = np.random.default_rng([config.training.seed, _TEST])
    return held_out(examples, config.data.test_share, rng)


def device_profiles(settings: DeviceSettings, folder: Path) -> dict[str, Profile]:
    """Devices of the configuration, in the order of their shares.

    Raises:
        InputError: a mistake in the file of profiles; ``unknown-key`` or ``invalid-value`` of a share.
    """
    profiles = read_profiles(folder / settings.profiles if settings.profiles else PROFILES)
    for name, share in settings.shares.items():
        if name not in profiles:
            raise unknown_key(name, profiles, "devices.shares")
        if not 0 < share < np.inf:
            place = f"devices.shares.{name}"
            raise invalid_value("invalid share", None, place, share, "above 0")
    return {name: profiles[name] for name in settings.shares or profiles}


def photographed(data: Examples, profile: Profile, seed: int, number: int) -> Examples:
    """Held-out examples as a device would have taken them."""
    return capture(data[0], profile, [seed, _HELD_OUT_NOISE, number]), data[1]
