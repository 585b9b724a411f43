"""The images of a trial out of a dataset of records: for training, for probes, and held out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.data.records.loading.dataset import Dataset
from holdfast.data.records.loading.items import Recipe
from holdfast.data.records.reading.records import Records, open_records
from holdfast.data.records.tuning.fixed import FixedBatches
from holdfast.data.records.tuning.training import Batch
from holdfast.errors import InputError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

Integers = npt.NDArray[np.int64]
_Shown = tuple[Any, int]


class RecordsFeed:
    """The images of a trial, from a dataset of records.

    Training reads whole records up to the fidelity of the epoch, by a `Dataset`. The images of the probes
    and those held out are read alone, in full, once: a lower fidelity of the same image is the first of
    its pieces.

    Args:
        url: the dataset.
        label: a column of whole numbers or of text.
        side: images are resized to [side, side] pixels.
        batch_size: images a batch.
        hold_out: the share of images that training never sees.
        probe_batches: how many fixed batches.
        seed: of the split, the choice of the fixed batches, and the order.
        options: for the store.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        label: str,
        side: int,
        batch_size: int,
        hold_out: float,
        probe_batches: int,
        seed: int,
        **options: Any,
    ) -> None:
        # Another reader than the dataset's, so that the dataset counts what training reads, and no more.
        self.records = open_records(url, **options)
        self.groups = self.records.groups
        self._side, self._batch_size = side, batch_size
        self._labels, self.classes, ids = _labels(self.records, label)
        test, train = split(len(self._labels), hold_out, seed)
        self.images = len(train)
        self._numbers = {name: number for number, name in enumerate(ids)}
        self.held_out_ids = frozenset(ids[number] for number in test.tolist())
        drawn = np.random.default_rng((seed, 1)).permutation(train)[: probe_batches * batch_size]
        alone: dict[str, Any] = {
            "batch_size": batch_size,
            "recipe": Recipe((), at_least=side, transform=self._numbered),
            "collate": self._batch,
            "on_fault": "skip",
        }
        self._fixed = FixedBatches(self.records, drawn, **alone)
        self._test = FixedBatches(self.records, test, keep=False, **alone)
        self._dataset = Dataset(
            url,
            columns=[],
            seed=seed,
            at_least=side,
            transform=self._shown,
            on_fault="skip",
            max_damaged=0.5,
            rank=0,
            ranks=1,
            **options,
        )

    def close(self) -> None:
        """Let go of files and connections."""
        self.records.close()
        self._dataset.records.close()

    def bytes_read(self) -> int:
        """Bytes read from the store for training so far."""
        return int(self._dataset.traffic.bytes)

    def storage_bound(self) -> bool:
        """Whether training waited for storage since this was last asked."""
        return bool(self._dataset.storage_bound())

    @property
    def probe_bytes(self) -> int:
        """Bytes of the images on which gradients are compared; they are read once."""
        return self._fixed.nbytes

    def skipped(self) -> dict[str, str]:
        """Image -> why it was left out of training, probes and test: it is damaged."""
        apart = [*self._fixed.faults.values(), *self._test.faults.values()]
        faults = [*self._dataset.faults, *(fault for each in apart for fault in each)]
        return {fault.image or fault.record: fault.reason for fault in faults}

    def batches(self, epoch: int, fidelity: int) -> Iterator[Batch]:
        """The training batches of an epoch, shuffled, at a fidelity."""
        self._dataset.set_epoch(epoch)
        self._dataset.set_fidelity(fidelity)
        batch: list[_Shown] = []
        for item in self._dataset:
            if item is not None:
                batch.append(item)
            if len(batch) == self._batch_size:
                yield self._batch(batch)
                batch = []
        if len(batch) > 1:  # BatchNorm has no statistics of one image
            yield self._batch(batch)

    def fixed(self, fidelity: int) -> Iterator[Batch]:
        """The batches on which gradients are compared: always the same, not augmented."""
        return self._fixed(fidelity)

    def held_out(self) -> Iterator[Batch]:
        """The images that training never sees, at full fidelity."""
        return self._test(self.groups)

    def _shown(self, item: dict[str, Any]) -> _Shown | None:
        """What training sees of an item: nothing if it is held out."""
        return None if item["id"] in self.held_out_ids else self._numbered(item)

    def _numbered(self, item: dict[str, Any]) -> _Shown:
        """The image, [3, side, side] float32 in 0..1, and its number."""
        pixels = item["image"][None].to(torch.float32) / 255
        size = (self._side, self._side)
        resized = torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        return resized[0], self._numbers[item["id"]]

    def _batch(self, shown: Sequence[_Shown]) -> Batch:
        images, numbers = zip(*shown, strict=True)
        return torch.stack(images), torch.as_tensor(self._labels[np.asarray(numbers)])


def split(images: int, hold_out: float, seed: int) -> tuple[Integers, Integers]:
    """Numbers of the images held out, and of the others, drawn by the seed; both ascending."""
    if not 0 < hold_out < 1 or not 0 < round(images * hold_out) < images:
        raise InputError(
            "the held-out share leaves nothing to test or nothing to train on",
            code="out-of-range",
            place="hold_out",
            found=f"{hold_out:g} of {images:,} images",
            expected="a share such as 0.2",
        )
    drawn = np.random.default_rng((seed, 0)).permutation(images)
    count = round(images * hold_out)
    return np.sort(drawn[:count]), np.sort(drawn[count:])


def _labels(records: Records, column: str) -> tuple[Integers, int, list[str]]:
    """The class of each image [images], how many classes there are, and the images' ids."""
    schema = records.manifest.schema
    if column not in schema.names:
        raise InputError(
            "the dataset does not have this column",
            code="unknown-name",
            path=records.url,
            place="label",
            found=column,
            expected=", ".join(name for name in schema.names if name != "id") or "a label column",
            remedy="name the column that holds the class",
        )
    tables = [
        records.contents(record).table.select(["id", column]) for record in range(len(records))
    ]
    table = pa.concat_tables(tables)
    values, ids = table[column].combine_chunks(), table["id"].to_pylist()
    names = records.manifest.classes(column) or ()
    if values.null_count:
        raise InputError(
            "some images have no label", code="missing-key", path=records.url, place=column,
            found=f"{values.null_count:,} of {len(values):,}",
        )  # fmt: skip
    if pa.types.is_integer(values.type):
        labels = values.to_numpy().astype(np.int64)
        classes = max(len(names), int(labels.max()) + 1)
        if labels.min() < 0:
            raise InputError(
                "a class must be 0 or more",
                code="out-of-range",
                path=records.url,
                place=column,
                found=str(labels.min()),
            )
        return labels, classes, ids
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        found, codes = np.unique(np.asarray(values.to_pylist()), return_inverse=True)
        return codes.astype(np.int64), len(found), ids
    raise InputError(
        "the column does not contain classes",
        code="invalid-value",
        path=records.url,
        place=column,
        found=str(values.type),
        expected="whole numbers or text",
    )
