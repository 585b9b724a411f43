"""Trainings of `speech_study.py`: which there are, and running them, two at a time and resumable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from holdfast.speech.recognize import train
from speech_study_scores import evaluate

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "speech"
SPEAKERS = ("george", "jackson", "lucas", "theo")
BARE = {"noise": None, "training.pause_s": 0.0}
VARIANTS: dict[str, Mapping[str, Any]] = {
    "recipe": {},
    "no augmentation": BARE,
    "no pauses": {"training.pause_s": 0.0},
    "absolute level": {"features.level": "absolute"},
    "no batch normalization": {"network.batch_norm": False},
    "no SortaGrad": {"training.sortagrad": False},
    "no row convolution": {"network.look_ahead": 0},
    "no convolution": {
        "network.convolutions": [],
        "features.window_s": 0.04,
        "features.hop_s": 0.04,
    },
}
"""What is changed in the recipe; without convolution, frames are as far apart as its outputs."""
AUGMENTATION = ("recipe", "no augmentation")
"""Variants that are trained for every speaker."""
STRINGS, LONGEST = 1200, 3
SHORT = {"training.epochs": 8, "training.learning_rate": 3e-3}
"""Of the runs with a speaker left out, of about 140 CPU seconds; they train on up to three digits."""
BRIEF = {"training.epochs": 5, "training.anneal": 1.6}
"""Of the further seeds of the official split."""


@dataclass(frozen=True)
class Run:
    """A training."""

    name: str
    data: str
    """``official``, or the speaker that is left out."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Place in the configuration -> value."""

    @property
    def variant(self) -> str:
        """The name without its number or speaker."""
        return self.name.rsplit("-", 1)[0]


def planned() -> list[Run]:
    """All trainings, the most important first."""
    official = [
        Run(f"official-{seed}", "official", {**(BRIEF if seed else {}), "training.seed": seed})
        for seed in range(3)
    ]
    left_out = [
        Run(f"{variant}-{speaker}", speaker, {**SHORT, **changes, "training.seed": seed})
        for variant, changes in VARIANTS.items()
        for seed, speaker in enumerate(SPEAKERS)
        # All speakers with and without augmentation; one for each other part.
        if variant in AUGMENTATION or speaker == SPEAKERS[-1]
    ]
    return [*official, *left_out]


def train_all(runs: Sequence[Run], work: Path, fsdd: Path, jobs: int) -> None:
    """Train what is not trained yet."""
    for name in dict.fromkeys(run.data for run in runs):
        if not (work / name / "test.jsonl").exists():
            sizes = {"--left-out": name, "--train": STRINGS, "--longest": LONGEST, "--test": 140}
            words = (
                [] if name == "official" else [str(word) for pair in sizes.items() for word in pair]
            )
            script = [sys.executable, EXAMPLE / "digits.py", fsdd, work / name, *words]
            subprocess.run(script, check=True)
    # On SIGTERM the workers note their CPU seconds and end, too.
    signal.signal(signal.SIGTERM, _exit)
    with get_context("spawn").Pool(jobs, _own_session) as pool:
        pool.starmap(_train, [(run, work) for run in runs], chunksize=1)
        pool.close()
        pool.join()


def _own_session() -> None:
    """Sessions of their own have a fair share of a busy machine."""
    os.setsid()
    signal.signal(signal.SIGTERM, _exit)


def _exit(*_: Any) -> None:
    sys.exit(1)


def cpu_seconds(run: Run, work: Path) -> float:
    """CPU seconds of a training, all tries together."""
    text = (work / "runs" / run.name / "cpu.jsonl").read_text()
    return sum(float(line) for line in text.splitlines())


def config_of(run: Run, work: Path) -> dict[str, Any]:
    """The configuration: the example's, with the changes."""
    config: dict[str, Any] = tomllib.loads((EXAMPLE / "digits.toml").read_text())
    config["data"] = {"train": str(work / run.data / "train.jsonl")}
    for place, value in run.changes.items():
        part, _, key = place.partition(".")
        if value is None:
            del config[part]
        else:
            config[part] = {**config[part], key: value}
    return config


def _train(run: Run, work: Path) -> None:
    torch.set_num_threads(1)
    folder = work / "runs" / run.name
    if (folder / "model.json").exists():
        evaluate(folder, work, run.data)
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(run, work.resolve()), indent=1))
    begin = time.process_time()
    try:
        train(folder / "config.json", folder, resume=True)
    finally:
        seconds = time.process_time() - begin
        with (folder / "cpu.jsonl").open("a") as file:
            file.write(f"{seconds:.1f}\n")
    (folder / "state.pt").unlink()
    evaluate(folder, work, run.data)
    print(f"{run.name}: {seconds:.0f} CPU s", flush=True)
