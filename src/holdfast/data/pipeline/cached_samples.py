"""Samples of a map-style dataset that are computed once, in memory that all workers share.

Whole samples are cached, or what the first steps of a Compose give: then the dataset still reads its
sample, and later steps, such as random ones, still run. A sample is stored as bytes, so that nobody can
change the cache.
"""

from __future__ import annotations

import copy
import mmap
import threading
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np

from holdfast.data.pipeline.encoding import decode, encode
from holdfast.data.pipeline.stages import unsupported
from holdfast.errors import InputError

# Settings of a cache: its size, and after how many steps of the Compose it lies; absent: whole samples.
CACHE = ("cache_bytes", "cache_steps")
# Attributes of a dataset that hold a transform, or a Compose of several.
CHAINS = ("transform", "transforms", "target_transform", "joint_transform", "augment", "preprocess")


def cached(dataset: Any, budget: int, steps: int | None = None) -> Any:
    """The same dataset with a cache; it is not changed.

    Args:
        dataset: with a length, read by whole numbers below it.
        budget: bytes; samples beyond it are computed each time.
        steps: of the Compose, that come before the cache; None: all the dataset does.

    Raises:
        InputError: `unsupported` without a length, or without so many steps.
    """
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise unsupported(
            "the samples of this dataset cannot be cached", dataset, expected="a length"
        )
    if steps is not None and steps > len(steps_of(dataset)):
        raise unsupported("no transform of so many steps", dataset, expected=f"{steps} steps")
    return CachedSamples(dataset, Memory(len(dataset), budget), steps)


def steps_of(dataset: Any) -> list[Any]:
    """The steps of the dataset's Compose; empty without one."""
    found: list[Any] = []
    rechained(dataset, lambda steps: found.extend(steps) or steps)
    return found


def rechained(dataset: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    """A copy of the dataset with other steps in its first Compose.

    Args:
        dataset: it is not changed.
        change: from the steps, the new ones.
    """
    other = copy.copy(dataset)
    fields = getattr(other, "__dict__", {})
    for name in CHAINS:
        chain: Any = fields.get(name)
        steps = getattr(chain, "transforms", None)
        if isinstance(steps, (list, tuple)) and steps:
            fields[name] = chain = copy.copy(chain)
            chain.transforms = type(steps)(change(list(steps)))
            return other
    if "dataset" in fields:  # such as a Subset
        fields["dataset"] = rechained(fields["dataset"], change)
    return other


class Memory:
    """Samples by their number, in anonymous memory that forked workers and threads share.

    Args:
        samples: numbers that a sample may have.
        budget: bytes; they are taken as they are filled.
    """

    def __init__(self, samples: int, budget: int) -> None:
        self._data = mmap.mmap(-1, max(1, budget))
        # Offset and size of each sample, shape [samples + 1, 2]; in the last row how much is used.
        table = mmap.mmap(-1, 16 * (samples + 1))
        self._table = np.frombuffer(table, np.int64).reshape(-1, 2)
        self._lock = get_context("fork").Lock()

    def __reduce__(self) -> Any:
        remedy = "use multiprocessing_context='fork', or threads"
        raise unsupported("workers that are not forked cannot share a cache", self, remedy=remedy)

    def _has_row(self, number: Any) -> bool:
        whole = isinstance(number, (int, np.integer))
        return whole and 0 <= int(number) < len(self._table) - 1

    def get(self, number: Any) -> tuple[Any] | None:
        """The sample, in a tuple of one; None if it is absent."""
        if not self._has_row(number):
            return None
        offset, size = self._table[number].tolist()
        return (decode(self._data[offset : offset + size]),) if size else None

    def put(self, number: Any, sample: Any) -> None:
        """Store a sample, if there is room and its type can be stored."""
        if not self._has_row(number):
            return
        try:
            data = encode(sample)
        except InputError:
            return
        with self._lock:
            start = int(self._table[-1, 0])
            if self._table[number, 1] or start + len(data) > len(self._data):
                return
            self._table[-1, 0] = start + len(data)
        self._data[start : start + len(data)] = data
        # The size last: whoever sees it sees the sample.
        self._table[number, 0] = start
        self._table[number, 1] = len(data)


class CachedSamples:
    """A dataset whose samples come out of a memory; everything else is the dataset's own."""

    def __init__(self, dataset: Any, memory: Memory, steps: int | None) -> None:
        self.memory, self.whole = memory, steps is None
        self.current = threading.local()
        self.dataset = dataset
        if steps is not None:
            self.dataset = rechained(
                dataset, lambda all_: [_First(all_[:steps], self), *all_[steps:]]
            )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name in (
            "dataset",
            "__getitems__",
        ):  # while it is copied; batches are read sample by sample
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitem__(self, index: Any) -> Any:
        if self.whole:
            return self.once(index, self.dataset.__getitem__, index)
        self.current.index = index
        return self.dataset[index]

    def once(self, index: Any, function: Callable[[Any], Any], argument: Any) -> Any:
        """What the function gave for this index the first time."""
        hit = self.memory.get(index)
        if hit is not None:
            return hit[0]
        result = function(argument)
        self.memory.put(index, result)
        return result


class _First:
    """The first steps of a Compose, as one."""

    def __init__(self, steps: list[Any], samples: CachedSamples) -> None:
        self.steps, self.samples = steps, samples

    def __call__(self, sample: Any) -> Any:
        return self.samples.once(self.samples.current.index, self.run, sample)

    def run(self, sample: Any) -> Any:
        """The steps, one after another."""
        for step in self.steps:
            sample = step(sample)
        return sample
