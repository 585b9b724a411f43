"""Input pipelines to explain and tune: texts behind a slow store, and pictures that are made up."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(__file__).parent


class Compose:
    """Transforms in a row."""

    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        """Apply them."""
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Articles(Dataset[Any]):
    """Compressed texts, each behind 5 ms of latency as of an object store."""

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.transform = transform
        text = (FOLDER / "loaders.py").read_bytes()
        self.store = [zlib.compress(text[number:]) for number in range(256)]

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        """A text by number."""
        time.sleep(0.005)
        return self.transform(self.store[index])


def tokenize(text: bytes) -> torch.Tensor:
    """Hash words into 1,000 tokens."""
    words = text.decode().split()[:128]
    tokens = [zlib.crc32(word.encode()) % 1000 for word in words]
    return torch.tensor(tokens + [0] * (128 - len(tokens)))


def articles() -> DataLoader[Any]:
    """The loader with PyTorch's defaults: no workers, so that each text waits for the one before."""
    return DataLoader(Articles(Compose([zlib.decompress, tokenize])), batch_size=8, shuffle=True)


def training() -> tuple[DataLoader[Any], Callable[[Any], object]]:
    """A loader and a training step that takes its batches."""
    weights = torch.randn(1000, 1000)

    def step(batch: torch.Tensor) -> None:
        for _ in range(4):
            weights @ torch.nn.functional.one_hot(batch[0], 1000).T.float() @ weights[:128]

    return DataLoader(Articles(Compose([zlib.decompress, tokenize])), batch_size=8), step
