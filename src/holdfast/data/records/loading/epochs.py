"""Order of the images in an epoch, their location, and the fidelity at which they are served."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from holdfast.data.records.format.manifest import Manifest
from holdfast.data.records.loading.ordering import Int64s, Order, epoch_order
from holdfast.data.records.loading.streaming import Plan
from holdfast.data.records.tuning.mixture import Mixture


@dataclass
class Epochs:
    """The dataset's images, as known before any record is read.

    Args:
        manifest: manifest of the dataset.
        seed: seed of the order and of mixtures.
        window: approximate number of images shuffled together.
        shuffle: whether to shuffle.
    """

    manifest: Manifest
    seed: int
    window: int
    shuffle: bool

    def __post_init__(self) -> None:
        self._first: Int64s = np.append(0, np.cumsum(self.manifest.counts)).astype(np.int64)
        self.order(0)

    def order(self, epoch: int) -> Order:
        """The global order of an epoch."""
        return epoch_order(
            self.manifest.counts,
            seed=self.seed,
            epoch=epoch,
            window=self.window,
            shuffle=self.shuffle,
        )

    def identity(self) -> dict[str, Any]:
        """Parameters of the order besides the seed and the epoch, as JSON."""
        return {
            "images": self.manifest.images,
            "records": xxhash.xxh3_64_hexdigest(self._first.astype("<i8").tobytes()),
            "shuffle": self.shuffle,
            "window": self.window,
        }

    def plan(self, images: Int64s, epoch: int, fidelity: int | Mixture) -> Plan:
        """Location of some images, and the fidelity at which each is served.

        Args:
            images: [n] numbers in the dataset.
            epoch: that a mixture is drawn for.
            fidelity: of all of them, or drawn for each.
        """
        records = np.searchsorted(self._first, images, side="right") - 1
        if isinstance(fidelity, Mixture):
            drawn = fidelity.draw(
                records if fidelity.by == "record" else images,
                seed=self.seed,
                epoch=epoch,
                groups=self.manifest.groups,
            ).astype(np.int64)
        else:
            drawn = np.full(len(images), fidelity)
        return Plan(records, images - self._first[records], drawn)

    def drawn_by(self, epoch: int) -> Callable[[int, int], tuple[int, int, int]]:
        """(record, number in it) -> seed, epoch and number in the dataset of an image."""
        seed, first = abs(self.seed), self._first.tolist()
        return lambda record, index: (seed, epoch, first[record] + index)

    def numbers(self, images: Sequence[int]) -> Int64s:
        """Numbers from 0 of images that may be counted from the end.

        Raises:
            IndexError: if there is no such image.
        """
        count = self.manifest.images
        numbers = np.array([operator.index(image) for image in images], np.int64)
        for wrong in numbers[(numbers < -count) | (numbers >= count)].tolist():
            raise IndexError(f"image {wrong} of {count}")
        numbers[numbers < 0] += count
        return numbers
