"""Fixed batches of a dataset at any fidelity, each image read once: what probes take gradients of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.data.records.arguments import check_number
from holdfast.data.records.loading.items import Recipe, Undecodable, check_columns, undecodable
from holdfast.data.records.reading.prefixes import assemble
from holdfast.data.records.reading.records import Records, open_records
from holdfast.errors import MissingExtraError
from holdfast.remote import Buffer

try:
    from torch.utils.data import default_collate
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error


class FixedBatches:
    """The same images of a dataset, in batches, at the fidelity asked for.

        fixed = FixedBatches.drawn("s3://bucket/photos", batch_size=64, transform=plain_pair)
        probe = Probe(model, loss, fixed)

    A `Probe` takes batches of images and labels: `transform` makes a pair of an item, without
    augmentation. Each image is read alone, in full, when it is first asked for, and kept as it was
    stored: a lower fidelity of it is the first of its pieces.

    Args:
        records: the dataset.
        images: [n] numbers of images in the dataset, in the order of the batches.
        batch_size: images a batch; the last batch has the rest.
        recipe: how an item is made of an image.
        collate: list of items -> batch.
    """

    def __init__(
        self,
        records: Records,
        images: Sequence[int] | npt.NDArray[np.int64],
        *,
        batch_size: int,
        recipe: Recipe,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        self._records, self._batch_size = records, batch_size
        self._images = [int(image) for image in images]
        self._recipe, self._collate = recipe, collate
        self._first = np.concatenate([[0], np.cumsum(records.manifest.counts)])
        self._pieces: dict[int, list[Buffer]] = {}

    @classmethod
    def drawn(
        cls,
        url: str | os.PathLike[str] | Records,
        *,
        batch_size: int,
        batches: int = 10,
        seed: int = 0,
        columns: Sequence[str] | None = None,
        at_least: int | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        **options: Any,
    ) -> FixedBatches:
        """Batches of images drawn from the whole dataset, without repeats.

        Args:
            url: the dataset's folder, or opened `Records`.
            batch_size: images a batch.
            batches: how many; ten are usual.
            seed: of the draw. Under `torch.distributed`, give each rank another.
            columns: which of the dataset's columns items have; None for all.
            at_least: as of `Dataset`.
            transform: item -> what is collated; without augmentation.
            collate: list of these -> batch, such as (images, labels).
            options: for the store.

        Raises:
            InputError: if there is no dataset, or a column that it does not have is asked for.
        """
        check_number("batch_size", batch_size, 1)
        check_number("batches", batches, 1)
        records = url if isinstance(url, Records) else open_records(url, **options)
        names = check_columns(columns, records.manifest.schema.names)
        total = records.manifest.images
        drawn = np.random.default_rng(seed).permutation(total)[: batches * batch_size]
        recipe = Recipe(names, at_least=at_least, transform=transform)
        return cls(records, drawn, batch_size=batch_size, recipe=recipe, collate=collate)

    @property
    def nbytes(self) -> int:
        """Bytes of images that were read and are kept."""
        return sum(len(piece) for pieces in self._pieces.values() for piece in pieces)

    def __call__(self, fidelity: int) -> Iterator[Any]:
        """The batches at a fidelity, 1 to G.

        Raises:
            Damaged: if an image is damaged.
        """
        for start in range(0, len(self._images), self._batch_size):
            batch = self._images[start : start + self._batch_size]
            yield self._collate([self._item(image, fidelity) for image in batch])

    def _item(self, image: int, fidelity: int) -> Any:
        record = int(np.searchsorted(self._first, image, side="right")) - 1
        place = image - int(self._first[record])
        pieces = self._pieces.get(image)
        if pieces is None:
            pieces = self._pieces[image] = self._records.pieces(record, place)
        contents = self._records.contents(record)
        row = {"id": contents.ids[place]}
        row |= {name: contents.table[name][place].as_py() for name in self._recipe.columns}
        data = assemble(contents, place, pieces[:fidelity])
        try:
            return self._recipe.make(row, data, int(contents.orientations[place]))
        except Undecodable as error:
            path = self._records.manifest.paths[record]
            raise undecodable(path, contents.ids[place], error) from None
