"""Pipelines with a slow stage of a chosen kind at a chosen position; nothing else takes time."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

KINDS = ("cpu", "gil", "latency", "bandwidth")
POSITIONS = ("source", "transform 1: first", "transform 2: second", "collate")
BLOCK = bytes(1 << 20)
SECONDS = 0.004  # per sample


def cpu(samples: int, _: int) -> None:
    """Compute without the interpreter lock."""
    until = time.thread_time() + SECONDS * samples
    while time.thread_time() < until:
        hashlib.sha256(BLOCK).digest()


def gil(samples: int, _: int) -> None:
    """Compute in Python."""
    until = time.thread_time() + SECONDS * samples
    while time.thread_time() < until:
        sum(range(100))


def latency(samples: int, _: int) -> None:
    threading.Event().wait(SECONDS * samples)


def bandwidth(_: int, count: int) -> None:
    """Wait in proportion to the bytes: 2 MB per second."""
    threading.Event().wait(count / 2e6)


def nothing(_: int, __: int) -> None:
    pass


SLOW: dict[str, Callable[[int, int], None]] = {
    "cpu": cpu,
    "gil": gil,
    "latency": latency,
    "bandwidth": bandwidth,
}


class Compose:
    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Samples(Dataset[Any]):
    """Vectors of 4 to 16 kB, by index."""

    def __init__(self, transform: Callable[[Any], Any], read: Callable[[int, int], None]) -> None:
        self.transform, self.read = transform, read

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> Any:
        sample = torch.full((1000 + 1000 * (index * 7 % 4),), float(index))
        self.read(1, sample.nbytes)
        return self.transform(sample)


def collate(samples: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def pipeline(kind: str, position: str, workers: int, **settings: Any) -> DataLoader[Any]:
    """The loader with the slow stage."""
    at = {place: SLOW[kind] if place == position else nothing for place in POSITIONS}

    def first(sample: Any) -> Any:
        at[POSITIONS[1]](1, sample.nbytes)
        return sample

    def second(sample: Any) -> Any:
        at[POSITIONS[2]](1, sample.nbytes)
        return sample

    def joined(samples: Any) -> Any:
        if not isinstance(samples, list):  # without batches
            return samples
        at["collate"](len(samples), sum(sample.nbytes for sample in samples))
        return collate(samples)

    dataset = Samples(Compose([first, second]), at["source"])
    settings = {"batch_size": 4, "collate_fn": joined, "shuffle": True, **settings}
    return DataLoader(dataset, num_workers=workers, **settings)
