"""How much devices differ to a model: train on one, test on another; and which stage costs most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.config import read_config
from holdfast.federated.configuration import (
    DeviceSettings,
    Examples,
    RunConfig,
    configured_model,
    device_profiles,
    photographed,
    train_and_test,
)
from holdfast.federated.engine import run
from holdfast.federated.processing import STAGES
from holdfast.federated.sensor import Profile, Stages
from holdfast.federated.updates import Record
from holdfast.numbers import percent
from holdfast.report import figures
from holdfast.stats import NORMAL_95


@dataclass(frozen=True)
class Characterization(Answer):
    """Accuracy across devices, and what each stage of the image signal processor costs."""

    devices: list[str]
    """Names, in the order of the rows and columns of `accuracy`."""
    accuracy: list[list[float]]
    """[trained on, tested on] share of correct answers."""
    stages: list[Record]
    """Rows ``{"stage", "alternative", "loss", "ci95"}``, largest loss first: accuracy lost on photos of
    the reference device where this stage alone is another."""
    title = "Devices that differ"

    @property
    def gap(self) -> float:
        """Mean accuracy on the device that a model was trained on less that on other devices."""
        table = np.array(self.accuracy)
        own = np.eye(len(table), dtype=bool)
        others = table[~own] if len(table) > 1 else table
        return float(table[own].mean() - others.mean())

    def values(self) -> Sequence[Value]:
        """The gap between devices."""
        return [Value("gap", self.gap, better="lower")]

    def sections(self) -> Sequence[Section]:
        """The heat map and the stages."""
        pairs = [
            {"trained on": trained, "tested on": tested, "accuracy": self.accuracy[i][j]}
            for i, trained in enumerate(self.devices)
            for j, tested in enumerate(self.devices)
        ]
        others = [row for row in pairs if row["trained on"] != row["tested on"]]
        worst = min(others or pairs, key=lambda row: row["accuracy"])
        sentence = (
            f"A model loses {100 * self.gap:.1f} points of accuracy on devices that it was not trained "
            f"on; worst is {worst['trained on']} tested on {worst['tested on']}, "
            f"{percent(worst['accuracy'])}."
        )
        drawn = figures.heat_map(pairs, "tested on", "trained on", "accuracy", "Accuracy")
        table = Table(pa.Table.from_pylist(pairs), detail=True)
        asked = "How much does a model lose on another device?"
        return [Section("devices", asked, sentence, [drawn], [table]), self._stages()]

    def _stages(self) -> Section:
        first = self.stages[0]
        stage = first["stage"].replace("_", " ").capitalize()
        low, high = first["ci95"]
        sentence = (
            f"{stage} costs most: {first['alternative']} instead of the reference loses "
            f"{100 * first['loss']:.1f} points [{100 * low:.1f}, {100 * high:.1f}]."
        )
        if low <= 0:
            sentence = f"Cannot tell: no loss is surely above 0. {sentence}"
        rows = [
            {
                "stage": f"{row['stage']}: {row['alternative']}",
                "loss": row["loss"],
                "low": row["ci95"][0],
                "high": row["ci95"][1],
            }
            for row in self.stages
        ]
        columns = {
            "stage": ColumnFormat(),
            "loss": ColumnFormat("Accuracy lost", "%", digits=1, interval=("low", "high")),
        }
        drawn = figures.intervals(
            rows, "stage", "loss", "low", "high", "Accuracy lost", reference=0
        )
        how = How(
            "loss = accuracy with the reference stages - accuracy with one stage replaced, same photos",
            {"reference": "FBDD, PPG, gray world, sRGB, gamma, JPEG 85"},
            source="HeteroSwitch, arXiv 2403.04207, section 3",
            notes="Intervals are 95 % for independent samples; the photos are the same, so they are wide.",
        )
        table = Table(pa.Table.from_pylist(rows), columns)
        return Section("stages", "Which stage costs most?", sentence, [drawn], [table], how)


def characterize(path: str | Path) -> Characterization:
    """Train on the photos of each device, and test on those of every device.

    Args:
        path: TOML file of a run; ``training.rounds`` are passes over the photos, its devices and model are
            used, its rule and clients are not.

    Raises:
        InputError: a mistake in the file or the data.
    """
    config = read_config(path, RunConfig, "the configuration")
    folder = Path(path).resolve().parent
    photos, held_out = train_and_test(config, folder)
    settings = config.devices or DeviceSettings()
    profiles = device_profiles(settings, folder)
    seed = config.training.seed
    tests = {n: photographed(held_out, p, seed, k) for k, (n, p) in enumerate(profiles.items())}
    with progress.track("training", len(profiles) + 1, "devices") as bar:
        # 1. A model per device, tested on all.
        accuracy = []
        for profile in profiles.values():
            row = _trained(config, folder, photos, profile, tests)
            accuracy.append([row[name] for name in profiles])
            bar.advance(1)
        # 2. A model of the reference stages, tested on each alternative of each stage.
        reference = replace(next(iter(profiles.values())), stages=Stages())
        variants = {("", ""): reference}
        for stage, alternatives in STAGES.items():
            for alternative in [*alternatives][1:]:
                choice: Record = {stage: alternative}
                variants[stage, alternative] = replace(reference, stages=Stages(**choice))
        tests = {key: photographed(held_out, each, seed, 0) for key, each in variants.items()}
        row = _trained(config, folder, photos, reference, tests)
        bar.advance(1)
    before = row.pop(("", ""))
    n = len(held_out[0])
    losses = [_loss(stage, other, before, after, n) for (stage, other), after in row.items()]
    losses.sort(key=lambda each: -each["loss"])
    return Characterization(list(profiles), accuracy, losses)


def _trained(
    config: RunConfig,
    folder: Path,
    photos: Examples,
    profile: Profile,
    tests: Mapping[Any, Examples],
) -> dict[Any, float]:
    """Accuracy by device of a model that was trained on photos of one."""
    seed = config.training.seed
    taken = photographed(photos, profile, seed + 1, 0)
    model = configured_model(config, folder, {"": taken}, tests)
    settings = replace(config.training, evaluate_every=config.training.rounds, faults={})
    return run(model, [taken], test=tests, settings=settings).accuracy


def _loss(stage: str, alternative: str, before: float, after: float, n: int) -> Record:
    """A row of `Characterization.stages`."""
    error = NORMAL_95 * ((before * (1 - before) + after * (1 - after)) / n) ** 0.5
    loss = before - after
    ci95 = [loss - error, loss + error]
    return {"stage": stage, "alternative": alternative, "loss": loss, "ci95": ci95}
