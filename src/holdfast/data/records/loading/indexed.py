"""A dataset by the numbers of its images, for samplers that decide on the order themselves."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.data.records.loading import place
from holdfast.data.records.loading.faults import DamageBudget
from holdfast.data.records.loading.items import LEFT_OUT, Kitchen, Shelf
from holdfast.data.records.loading.streaming import Read
from holdfast.data.records.loading.traffic import Traffic
from holdfast.data.records.reading.prefixes import Damaged
from holdfast.errors import MissingExtraError

if TYPE_CHECKING:
    from holdfast.data.records.loading.dataset import Dataset

try:
    from torch.utils.data import Dataset as MapDataset
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

HELD = 256 << 20


class Indexed(MapDataset):  # type: ignore[misc]
    """A dataset by image number, for samplers: ``DataLoader(data.indexed(), sampler=...)``.

    A record is read whole, and held for the next of its images; it is read further if the fidelity was
    raised meanwhile. An image that is left out for damage is missing in its batch; asked for alone, it is
    an error.
    """

    def __init__(self, dataset: Dataset, cache_bytes: int = HELD) -> None:
        self._dataset, self._held_bytes = dataset, cache_bytes
        self._shelves: OrderedDict[int, Shelf] = OrderedDict()
        self._held = 0
        self._budget: tuple[int, DamageBudget] | None = None  # the process it was made in

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_shelves": OrderedDict(), "_held": 0, "_budget": None}

    def __len__(self) -> int:
        """Images of the whole dataset."""
        return self._dataset.images

    def __getitem__(self, image: int) -> Any:
        """The item of one image; raises as `Dataset`'s."""
        found = self.__getitems__([image])
        return found[0] if found else self._dataset[image]

    def __getitems__(self, images: Sequence[int]) -> list[Any]:
        """The items of some images, without those that are left out."""
        data = self._dataset
        kitchen, items = data.kitchen(data.epoch), []
        plan = data.at(images)
        for record, index, fidelity in zip(*(column.tolist() for column in plan), strict=True):
            read = Read(record, fidelity, 0, 0, 0)
            try:
                read.data = self._shelf(kitchen, record, fidelity)
            except Damaged as error:
                read.error = error
            item = kitchen.item(read, index, fidelity)
            if item is not LEFT_OUT:
                items.append(item)
        left_out = len(plan.records) - len(items)
        data.count(Traffic(images=len(items), skipped=left_out, degraded=kitchen.degraded))
        if self._budget is None or self._budget[0] != os.getpid():
            processes = data.place[1] * place.of_workers()[1]
            self._budget = os.getpid(), data.damage_budget(-(-data.images // processes))
        self._budget[1].spend(len(plan.records), left_out)
        return items

    def _shelf(self, kitchen: Kitchen, record: int, fidelity: int) -> Shelf:
        shelf = self._shelves.pop(record, None)
        have = None if shelf is None else shelf.prefix
        if have is not None:
            self._held -= have.nbytes
        if shelf is None or have is None or have.fidelity < fidelity:
            shelf = kitchen.shelve(self._dataset.records_here().read(record, fidelity, have))
        self._shelves[record] = shelf
        self._held += shelf.prefix.nbytes
        while self._held > self._held_bytes and len(self._shelves) > 1:
            self._held -= self._shelves.popitem(last=False)[1].prefix.nbytes
        return shelf
