"""The images of a trial out of a dataset of records: for training, for probes, and held out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.data.records.decoding import decode
from holdfast.data.records.prefixes import assemble
from holdfast.data.records.reading import Records
from holdfast.data.records.stores import Buffer
from holdfast.data.records.tuning.training import Batch
from holdfast.errors import InputError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

Integers = npt.NDArray[np.int64]


class RecordsFeed:
    """Feeds a trial from a dataset of records; see `training.Feed`.

    Training reads whole records up to the fidelity of the epoch. The images of the probes and those held
    out are read alone, in full, once: a lower fidelity of the same image is the first of its pieces.

    Args:
        records: the dataset.
        label: a column of whole numbers or of text.
        side: images are resized to [side, side] pixels.
        batch_size: images a batch.
        hold_out: the share of images that training never sees.
        probe_batches: how many fixed batches.
        seed: of the split, the choice of the fixed batches, and the order.
    """

    def __init__(
        self,
        records: Records,
        *,
        label: str,
        side: int,
        batch_size: int,
        hold_out: float,
        probe_batches: int,
        seed: int,
    ) -> None:
        self._records, self._side, self._batch_size = records, side, batch_size
        self._seed = seed
        self.groups = records.groups
        self._labels, self.classes = _labels(records, label)
        counts = records.manifest.counts
        self._first = np.concatenate([[0], np.cumsum(counts)])
        total = int(counts.sum())
        self._test, train = split(total, hold_out, seed)
        self.images = len(train)
        self._kept = np.zeros(total, bool)
        self._kept[train] = True
        drawn = np.random.default_rng((seed, 1)).permutation(train)
        self._fixed = drawn[: probe_batches * batch_size]
        self._pieces: dict[int, list[Buffer]] = {}
        self._training_bytes = 0

    def bytes_read(self) -> int:
        """Bytes read from the store for training so far."""
        return self._training_bytes

    @property
    def probe_bytes(self) -> int:
        """Bytes of the images on which gradients are compared; they are read once."""
        return sum(len(piece) for image in self._fixed for piece in self._pieces.get(image, ()))

    def batches(self, epoch: int, fidelity: int) -> Iterator[Batch]:
        """The training batches of an epoch, shuffled, at a fidelity."""
        before = self._records.store.bytes_read
        draw = np.random.default_rng((self._seed, 2, epoch))
        images, numbers = [], []
        for record in draw.permutation(len(self._records)):
            prefix = self._records.read(int(record), fidelity)
            start = int(self._first[record])
            for place in range(len(prefix)):
                if self._kept[start + place]:
                    turned = int(prefix.contents.orientations[place])
                    images.append(self._pixels(prefix.image(place), turned))
                    numbers.append(start + place)
        self._training_bytes += self._records.store.bytes_read - before
        order = draw.permutation(len(images))
        for part in _parts(order, self._batch_size):
            chosen = torch.stack([images[place] for place in part])
            yield chosen, self._labels_of([numbers[place] for place in part])

    def fixed(self, fidelity: int) -> Iterator[Batch]:
        """The batches on which gradients are compared: always the same, not augmented."""
        return self._alone(self._fixed, fidelity, keep=True)

    def held_out(self) -> Iterator[Batch]:
        """The images that training never sees, at full fidelity."""
        return self._alone(self._test, self.groups, keep=False)

    def _alone(self, numbers: Integers, fidelity: int, keep: bool) -> Iterator[Batch]:
        for part in _parts(numbers, self._batch_size):
            images = [self._image(int(number), fidelity, keep) for number in part]
            yield torch.stack(images), self._labels_of(part.tolist())

    def _image(self, number: int, fidelity: int, keep: bool) -> Any:
        record = int(np.searchsorted(self._first, number, side="right")) - 1
        place = number - int(self._first[record])
        pieces = self._pieces.get(number)
        if pieces is None:
            pieces = self._records.pieces(record, place)
            if keep:
                self._pieces[number] = pieces
        contents = self._records.contents(record)
        data = assemble(contents, place, pieces[:fidelity])
        return self._pixels(data, int(contents.orientations[place]))

    def _pixels(self, data: bytes, orientation: int) -> Any:
        """[3, side, side] float32 in 0..1."""
        decoded = decode(data, at_least=self._side, orientation=orientation)
        image = torch.as_tensor(decoded).permute(2, 0, 1)[None].to(torch.float32) / 255
        size = (self._side, self._side)
        return torch.nn.functional.interpolate(image, size, mode="bilinear", antialias=True)[0]

    def _labels_of(self, numbers: Sequence[int]) -> Any:
        return torch.as_tensor(self._labels[np.asarray(numbers)])


def split(images: int, hold_out: float, seed: int) -> tuple[Integers, Integers]:
    """Numbers of the images held out, and of the others, drawn by the seed; both ascending."""
    if not 0 < hold_out < 1 or not 0 < round(images * hold_out) < images:
        raise InputError(
            "the share held out leaves nothing to test or nothing to train",
            place="hold_out",
            found=f"{hold_out:g} of {images:,} images",
            expected="a share such as 0.2",
        )
    drawn = np.random.default_rng((seed, 0)).permutation(images)
    count = round(images * hold_out)
    return np.sort(drawn[:count]), np.sort(drawn[count:])


def _parts(numbers: Integers, size: int) -> Iterator[Integers]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _labels(records: Records, column: str) -> tuple[Integers, int]:
    """The class of each image [images], and how many classes there are."""
    schema = records.manifest.schema
    if column not in schema.names:
        raise InputError(
            "the dataset has no such column",
            path=records.url,
            place="label",
            found=column,
            expected=", ".join(name for name in schema.names if name != "id") or "a label column",
            remedy="name the column that holds the class",
        )
    values = pa.concat_arrays(
        [
            chunk
            for record in range(len(records))
            for chunk in records.contents(record).table[column].chunks
        ]
    )
    names = (schema.field(column).metadata or {}).get(b"names")
    if values.null_count:
        raise InputError(
            "some images have no label", path=records.url, place=column,
            found=f"{values.null_count:,} of {len(values):,}",
        )  # fmt: skip
    if pa.types.is_integer(values.type):
        labels = values.to_numpy().astype(np.int64)
        classes = max(len(json.loads(names)) if names else 0, int(labels.max()) + 1)
        if labels.min() < 0:
            raise InputError(
                "a class is a number from 0",
                path=records.url,
                place=column,
                found=str(labels.min()),
            )
        return labels, classes
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        found, codes = np.unique(np.asarray(values.to_pylist()), return_inverse=True)
        return codes.astype(np.int64), len(found)
    raise InputError(
        "the column does not hold classes",
        path=records.url,
        place=column,
        found=str(values.type),
        expected="whole numbers or text",
    )
