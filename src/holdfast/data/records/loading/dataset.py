"""A dataset of records as torch sees it: iterated over in a seeded order, or asked for single images."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from holdfast.data.records.arguments import check_choice, check_number
from holdfast.data.records.loading import place, resuming
from holdfast.data.records.loading.cropping import CropMode, Size, Sizing
from holdfast.data.records.loading.epochs import Epochs
from holdfast.data.records.loading.faults import DamageBudget, FaultLog, OnFault
from holdfast.data.records.loading.indexed import HELD, Indexed
from holdfast.data.records.loading.items import (
    LEFT_OUT,
    Kitchen,
    Recipe,
    Undecodable,
    check_columns,
    undecodable,
)
from holdfast.data.records.loading.ordering import (
    Deal,
    Int64s,
    Leg,
    Uneven,
    length,
    remaining,
    within,
)
from holdfast.data.records.loading.resuming import Cursor
from holdfast.data.records.loading.streaming import Pace, Plan, Stream
from holdfast.data.records.loading.traffic import Board, Fidelity, Meter, Since, Traffic
from holdfast.data.records.reading.caching import Cache
from holdfast.data.records.reading.prefixes import Damaged, Fault
from holdfast.data.records.reading.records import Records, open_records
from holdfast.data.records.tuning.mixture import Mixture
from holdfast.errors import InputError, MissingExtraError

try:
    from torch.utils.data import IterableDataset
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

CONNECTIONS = 8
PREFETCH = 128 << 20
_CHUNK_BYTES = 64 << 10
_CHUNK_IMAGES = 16
_ON_FAULT = ("raise", "skip", "degrade")


class Dataset(IterableDataset):  # type: ignore[misc]
    """A dataset of records for training.

        data = Dataset("s3://bucket/photos", fidelity=3, at_least=256, transform=crop)
        for item in data: ...                    # {"id": ..., "label": ..., "image": uint8 [3, H, W]}
        loader = Loader(data, batch_size=256, num_workers=8)

    Iterating gives this rank's images of one epoch, in an order that depends on nothing but the seed, the
    epoch and the sizes of the records. Records of the windows to come are read ahead, several at once;
    images are decoded on threads, and come in order. An iteration that reaches its end moves on to the
    next epoch, except inside of the workers of a torch `DataLoader`: there, call `set_epoch` before each
    epoch, or use `Loader`.

    Args:
        url: the dataset's folder, a single `.pcr` file, or opened `Records`.
        fidelity: groups that are read of each record: 1..G, ``"full"``, or a `Mixture`.
        columns: which of the dataset's columns items have besides `id`; None for all.
        seed: of the order and of a mixture.
        shuffle: without it images come as they are stored.
        window: about how many images are shuffled together (see `epoch_order`); their records are held
            in memory, in each worker.
        decode: give pixels; without it ``item["image"]`` is the image's file, cut at its fidelity.
        at_least: decode at 1/2, 1/4 or 1/8, the smallest whose shorter side has this many pixels.
        crop: side, or (height, width), of the image that is delivered (see `Sizing`): all have one size.
        crop_mode: ``"random"``, a random resized crop to train on, drawn by the seed, the epoch and the
            image's number; or ``"center"``, to evaluate on.
        resize: an int for the length of the shorter side, or (height, width); with `crop`, before a center
            crop.
        transform: item -> what is delivered; called on the threads that decode.
        threads: that decode; None for this process's share of the processors, 0 for none.
        prefetch: bytes that are read ahead of the present window.
        connections: records that are read at once, at most; it begins with two.
        cache: keeps what was read on a local disk: a `Cache`, or its folder.
        rank, ranks: which share of the epoch is read here, of how many; None for those of
            `torch.distributed`, if it is initialised, or the only one.
        uneven: what is done if ranks cannot have equally many images (see `Deal`).
        on_fault: what comes of damaged images (see `OnFault`). A record that is missing and a store that
            fails are errors always.
        max_damaged: share of an epoch's images, 0 to 1, that may be left out for damage (the quarantine's
            among them); more is an error. Each worker judges the part of the epoch that it reads.
        quarantine: a file that lists images left out for damage, which are passed over from then on.
        options: for the store, as of `open_store`.

    Raises:
        InputError: if there is no dataset, or it does not have what is asked for.
        StoreError: if its store does not give it.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Records,
        *,
        fidelity: Fidelity = "full",
        columns: Sequence[str] | None = None,
        seed: int = 0,
        shuffle: bool = True,
        window: int = 1024,
        decode: bool = True,
        at_least: int | None = None,
        crop: Size | None = None,
        crop_mode: CropMode = "random",
        resize: Size | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        threads: int | None = None,
        prefetch: int = PREFETCH,
        connections: int = CONNECTIONS,
        cache: Cache | str | os.PathLike[str] | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
        on_fault: OnFault = "raise",
        max_damaged: float = 0.05,
        quarantine: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(cache, (str, os.PathLike)):
            cache = Cache(cache)
        self.records = (
            url if isinstance(url, Records) else open_records(url, cache=cache, **options)
        )
        manifest = self.records.manifest
        self.images = manifest.images
        """Images of the whole dataset, over all ranks."""
        self._ends = manifest.ends.reshape(-1, self.groups + 1)
        self._epochs = Epochs(manifest, seed, window, shuffle)
        self._recipe = Recipe(
            check_columns(columns, manifest.schema.names),
            decode,
            at_least,
            transform,
            None if crop is None and resize is None else Sizing(crop, crop_mode, resize),
        )
        if self._recipe.sizing is not None and (not decode or at_least is not None):
            raise InputError(
                "crop and resize choose the scale at which an image is decoded",
                code="conflict",
                place="crop, resize",
                found=f"decode={decode}, at_least={at_least}",
                remedy="leave decode and at_least out",
            )
        check_number("threads", threads, 0)
        check_number("prefetch", prefetch, 0)
        check_number("connections", connections, 1)
        check_number("at_least", at_least, 1)
        check_number("max_damaged", max_damaged, 0, 1)
        check_choice("on_fault", on_fault, _ON_FAULT)
        self._threads, self._prefetch, self._connections = threads, prefetch, connections
        self._rank, self._ranks = place.check_rank(rank, ranks)
        self._deal = Deal(uneven=uneven)
        self._on_fault: OnFault = on_fault
        self._max_damaged = max_damaged
        self._log = FaultLog(quarantine)
        self._board = Board(self.groups)
        self._board.fidelity = fidelity
        self._cursor = Cursor()
        self._since = Since()
        self._batched = False
        self._used_in, self._meter = os.getpid(), Meter(self.records.store)

    # --- what it is --------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """Seed of the order and of mixtures."""
        return self._epochs.seed

    @property
    def groups(self) -> int:
        """G, the highest fidelity."""
        return self.records.groups

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes of the column `label`, if it has them."""
        return self.records.classes

    def __len__(self) -> int:
        """Images of this rank in a whole epoch; `images` are those of all ranks."""
        rank, ranks = self.place
        return int(Deal(ranks, uneven=self._deal.uneven).shards(self.images)[1][rank])

    @property
    def place(self) -> tuple[int, int]:
        """This rank, and how many there are."""
        return place.of_ranks(self._rank, self._ranks)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # A worker that is spawned does not know torch.distributed's ranks.
        state["_rank"], state["_ranks"] = self.place
        del state["_meter"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._used_in, self._meter = os.getpid(), Meter(self.records.store)

    # --- what is set while it is used --------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration is of."""
        return self._board.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch; workers that persist see it too."""
        check_number("epoch", epoch, 0)
        self._board.epoch = epoch

    @property
    def fidelity(self) -> int | Mixture:
        """What is read at present."""
        return self._board.fidelity

    def set_fidelity(self, fidelity: Fidelity) -> None:
        """Read this much from the next window on that is not being read yet, in all workers."""
        self._board.fidelity = fidelity

    def state_dict(self) -> dict[str, Any]:
        """Position of the iteration in this process, for `load_state_dict`; JSON.

        It counts the images that were delivered here. Workers of a `DataLoader` read ahead of its
        consumer: `Loader` keeps a separate state.
        """
        return self.encode_state(self._cursor)

    def load_state_dict(self, state: Mapping[str, Any]) -> tuple[int, tuple[Leg, ...]]:
        """Go on where `state_dict` was taken, on any number of ranks and workers.

        With as many ranks and workers and the same batches, the same images follow in the same order. With
        others, the images of the epoch that no rank had seen are dealt anew: each comes once. The state's
        seed and epoch are taken over.

        Returns:
            The epoch, and its legs that are behind.

        Raises:
            InputError: if the state is of another dataset, window or order.
        """
        seed, epoch, legs = resuming.decode(state, self._epochs.identity())
        self._epochs.seed = seed
        self.begin_at(epoch, legs)
        return epoch, legs

    # --- what happened -----------------------------------------------------------------------------

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What was found damaged, by any worker of this rank, each once."""
        return self._log.all()

    @property
    def traffic(self) -> Traffic:
        """What was read and waited for, by all workers of this rank."""
        return self._board.traffic()

    def storage_bound(self, threshold: float = 0.1) -> bool | None:
        """Whether the consumer waited for storage since this was last asked; None if it read nothing.

        Args:
            threshold: share of its time above which it counts as bound (see `Traffic.storage_share`).
        """
        passed = self._since(self.traffic)
        return passed.storage_share > threshold if passed.images else None

    # --- what a loader asks for --------------------------------------------------------------------

    def in_batches(self, batch: int, drop_last: bool) -> Dataset:
        """A view of this dataset, with its settings and counters, that gives lists of items."""
        view = object.__new__(type(self))
        view.__dict__ |= self.__dict__
        view._deal = replace(self._deal, batch=batch, drop_last=drop_last)
        view._cursor, view._since, view._batched = Cursor(), Since(), True
        return view

    def deal(self, workers: int) -> Deal:
        """How an epoch is dealt to the ranks and to this many workers of each."""
        return replace(self._deal, ranks=self.place[1], workers=workers)

    def encode_state(self, cursor: Cursor) -> dict[str, Any]:
        """The state of one who counts for himself."""
        now = cursor.now(self.epoch)
        return resuming.encode(self._epochs.identity(), self.seed, self.place, now)

    def begin_at(self, epoch: int, legs: Sequence[Leg]) -> None:
        """Begin the next iteration after some legs of an epoch."""
        self._cursor.load(epoch, legs)
        self.set_epoch(epoch)

    def count(self, passed: Traffic) -> None:
        """Add to the counters of this process, and what its store has given meanwhile."""
        for amount in (passed, self._meter()):
            self._board.add(place.worker(), amount)

    # --- iterating ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        (worker, workers), (rank, _) = place.of_workers(), self.place
        deal, cursor = self.deal(workers), self._cursor
        legs, delivered = cursor.begin(self.epoch, deal)
        left = remaining(self.images, legs)
        # In a resumed leg, the first worker of this loader is the one whose turn it is.
        turn = (worker + delivered[rank]) % workers
        cuts = deal.cuts(length(left), rank, turn, delivered[rank])
        places = within(left, int(cuts[0]), int(cuts[-1]))
        with closing(self._chunks(places, cursor.epoch)) as chunks:
            if self._batched:
                yield from _in_batches(chunks, np.diff(cuts).tolist())
                return
            for items in chunks:
                for item in items:
                    cursor.steps += 1
                    if item is not LEFT_OUT:
                        yield item
        if place.worker() is None:
            cursor.finish()
            self.set_epoch(cursor.epoch)

    def _chunks(self, places: Int64s, epoch: int) -> Generator[list[Any]]:
        """The items at some places of the order, counted."""
        records = self.records_here()
        order = self._epochs.order(epoch)
        kitchen, budget = self.kitchen(epoch), self.damage_budget(length(places))
        stream = Stream(
            (self.plan(stretch.images, epoch) for stretch in order.stretches(places)),
            size=lambda record, fidelity: int(self._ends[record, fidelity]),
            fetch=lambda record, fidelity: kitchen.shelve(records.read(record, fidelity)),
            make=kitchen.item,
            pace=self._pace(),
        )
        began, seen = perf_counter(), Traffic()
        try:
            for chunk in stream:
                skipped = sum(item is LEFT_OUT for item in chunk)
                now = Traffic(
                    images=seen.images + len(chunk) - skipped,
                    skipped=seen.skipped + skipped,
                    degraded=kitchen.degraded,
                    storage_s=stream.storage_s,
                    decode_s=stream.decode_s,
                    reading_s=perf_counter() - began,
                )
                self.count(now - seen)
                seen = now
                budget.spend(len(chunk), skipped)
                yield chunk
        finally:
            if stream.close():
                self.count(Traffic())

    def kitchen(self, epoch: int) -> Kitchen:
        """What makes the items of an epoch, and passes over what the quarantine lists now."""
        return Kitchen(
            self._recipe,
            self._on_fault,
            self._log,
            self._log.quarantined(),
            self._epochs.drawn_by(epoch),
        )

    def damage_budget(self, images: int) -> DamageBudget:
        """How many of some images of an epoch may be left out."""
        return DamageBudget(self._max_damaged, images, self.images, self._log)

    def plan(self, images: Int64s, epoch: int) -> Plan:
        """Where some images lie, and at which fidelity they are to be served now."""
        return self._epochs.plan(images, epoch, self.fidelity)

    def _pace(self) -> Pace:
        threads = self._threads
        if threads is None:
            threads = place.processors() if self._recipe.decode or self._recipe.transform else 0
        each = int(self._ends[:, -1].sum()) // max(1, self.images)
        chunk = max(1, min(_CHUNK_IMAGES, _CHUNK_BYTES // max(1, each)))
        ahead = 2 * threads + (-(-self._deal.batch // chunk) if self._batched else 0)
        return Pace(threads, self._connections, self._prefetch, chunk, ahead)

    # --- single images -----------------------------------------------------------------------------

    def __getitem__(self, image: int) -> Any:
        """The item of one image by its number in the dataset, 0 to `images` - 1, or from the end.

        Only the image's own pieces are read (and its record's metadata, if it was not lately).

        Raises:
            IndexError: if there is no such image.
            Damaged: if it is damaged.
            MissingFile: if its record does not exist.
        """
        plan = self.at([operator.index(image)])
        record, index, fidelity = (int(column[0]) for column in plan)
        try:
            return self._single(record, index, fidelity)
        except Damaged as error:
            for fault in error.faults:
                self._log.add(fault, left_out=False)
            for lower in range(fidelity - 1, 0, -1) if self._on_fault == "degrade" else ():
                with suppress(Damaged):
                    return self._single(record, index, lower)
            raise
        finally:
            self.count(Traffic())

    def at(self, images: Sequence[int]) -> Plan:
        """Where some images lie, by numbers that may be counted from the end."""
        return self.plan(self._epochs.numbers(images), self.epoch)

    def _single(self, record: int, image: int, fidelity: int) -> Any:
        records = self.records_here()
        data = records.image(record, image, fidelity)
        contents = records.contents(record)
        names = ("id", *self._recipe.columns)
        row = {name: contents.table[name][image].as_py() for name in names}
        try:
            drawn_by = self._epochs.drawn_by(self.epoch)(record, image)
            return self._recipe.make(row, data, int(contents.orientations[image]), drawn_by)
        except Undecodable as error:
            raise undecodable(records.paths[record], row["id"], error) from error

    def indexed(self, cache_bytes: int = HELD) -> Indexed:
        """The same images for a sampler: map-style, with records that were read kept for the next images.

        Args:
            cache_bytes: of records, in each process.
        """
        return Indexed(self, cache_bytes)

    def records_here(self) -> Records:
        """The records, with no lock that another process's thread may have held when this was forked."""
        if self._used_in != os.getpid():
            fresh = Records.__new__(Records)
            fresh.__setstate__(self.records.__getstate__())
            fresh.cache = copy.copy(fresh.cache)
            self.records, self._used_in = fresh, os.getpid()
            self._meter = Meter(fresh.store)
        return self.records


def _in_batches(chunks: Iterator[list[Any]], sizes: Sequence[int]) -> Iterator[list[Any]]:
    """Lists of as many places, without those that are left out."""
    images: list[Any] = []
    for size in sizes:
        while len(images) < size:
            images += next(chunks)
        batch, images = images[:size], images[size:]
        yield [item for item in batch if item is not LEFT_OUT]
