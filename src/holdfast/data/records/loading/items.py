"""From one image of a record to the item that training sees: columns, pixels, and what comes of damage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.data.records.jpeg import decoding
from holdfast.data.records.jpeg.decoding import DecodeError
from holdfast.data.records.loading.cropping import Sizing
from holdfast.data.records.loading.faults import FaultLog, OnFault
from holdfast.data.records.loading.streaming import Read
from holdfast.data.records.reading.prefixes import Damaged, Fault, Prefix
from holdfast.errors import InputError, LimitError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

LEFT_OUT: Any = type("LeftOut", (), {"__repr__": lambda _: "LEFT_OUT"})()
"""Stands in the place of an image that is not served."""


class Undecodable(ValueError):
    """An image of which the decoder makes nothing."""


@dataclass(frozen=True)
class Recipe:
    """How an item is made of an image.

    Args:
        columns: which of the user's columns it has.
        decode: whether its image is pixels, not bytes.
        at_least: of DCT-scaled decoding.
        transform: what is done with the item.
        sizing: how its image is cropped and resized; None to leave it as it is.
    """

    columns: tuple[str, ...]
    decode: bool = True
    at_least: int | None = None
    transform: Callable[[dict[str, Any]], Any] | None = None
    sizing: Sizing | None = None

    def make(
        self,
        row: Mapping[str, Any],
        data: bytes,
        orientation: int,
        drawn_by: tuple[int, int, int] = (0, 0, 0),
    ) -> Any:
        """The item of an image.

        Args:
            row: `id` and the columns.
            data: the image as a file.
            orientation: of EXIF, still to be applied.
            drawn_by: (seed, epoch, number of the image in the dataset), on which alone its crop depends.

        Raises:
            Undecodable: if it does not decode; what the transform raises is passed on.
        """
        image: Any = data
        if self.decode:
            try:
                if self.sizing is None:
                    pixels = decoding.decode(data, at_least=self.at_least, orientation=orientation)
                else:
                    divisor, size = self.sizing.reader(lambda: np.random.default_rng(drawn_by))
                    pixels = size(decoding.decode(data, divisor=divisor, orientation=orientation))
            except DecodeError as error:
                raise Undecodable(error.reason) from error
            except LimitError as error:
                raise Undecodable(f"{error.problem}: {error.needed}") from error
            image = torch.from_numpy(pixels).permute(2, 0, 1)  # [3, H, W], a view of [H, W, 3]
        item = {**row, "image": image}
        return item if self.transform is None else self.transform(item)


class Shelf:
    """A prefix, and its columns as Python values."""

    __slots__ = ("names", "orientations", "prefix", "rows")

    def __init__(self, prefix: Prefix, columns: Sequence[str]) -> None:
        self.prefix = prefix
        table = prefix.contents.table
        self.names = ("id", *columns)
        self.rows = list(
            zip(prefix.contents.ids, *(table[name].to_pylist() for name in columns), strict=True)
        )
        self.orientations = prefix.contents.orientations.tolist()

    def row(self, image: int) -> dict[str, Any]:
        """`id` and the columns of one image."""
        return dict(zip(self.names, self.rows[image], strict=True))


class Kitchen:
    """Makes the items of one iteration, on many threads, and sees to what is damaged.

    Args:
        recipe: how an item is made.
        on_fault: what comes of damage.
        log: where it is noted.
        passed_over: record's path -> ids of images that are not served.
        drawn_by: (record, number in it) -> what the random crop of an image is drawn by.
    """

    def __init__(
        self,
        recipe: Recipe,
        on_fault: OnFault,
        log: FaultLog,
        passed_over: Mapping[str, frozenset[str]],
        drawn_by: Callable[[int, int], tuple[int, int, int]],
    ) -> None:
        self._recipe, self._on_fault, self._log = recipe, on_fault, log
        self._passed_over, self._drawn_by = passed_over, drawn_by
        self._lock = threading.Lock()
        self.degraded = 0
        """Images served below their fidelity for damage."""

    def shelve(self, prefix: Prefix) -> Shelf:
        """What items are made from."""
        for fault in prefix.faults:
            if fault.image is None:  # of a whole group, though its pieces are undamaged
                self._log.add(fault, left_out=False)
        return Shelf(prefix, self._recipe.columns)

    def item(self, read: Read, image: int, fidelity: int) -> Any:
        """The item of one image, or `LEFT_OUT`.

        Args:
            read: of its record.
            image: its number in the record.
            fidelity: at which it is wanted.

        Raises:
            Damaged: if it is, and the policy is to raise.
            StoreError: if the store did not give the record, whatever the policy.
        """
        if read.error is not None:
            return self._lost(read.error)
        shelf: Shelf = read.data
        prefix = shelf.prefix
        passed_over = self._passed_over.get(prefix.path)
        if passed_over is not None and prefix.contents.ids[image] in passed_over:
            return LEFT_OUT
        try:
            data = prefix.image(image, fidelity)
        except Damaged as error:
            return self._instead(shelf, image, fidelity, error)
        try:
            return self._make(shelf, image, data)
        except Undecodable as error:
            name = prefix.contents.ids[image]
            return self._instead(shelf, image, fidelity, undecodable(prefix.path, name, error))

    def _make(self, shelf: Shelf, image: int, data: bytes) -> Any:
        drawn_by = self._drawn_by(shelf.prefix.record, image)
        return self._recipe.make(shelf.row(image), data, shelf.orientations[image], drawn_by)

    def _lost(self, error: BaseException) -> Any:
        """What comes of an image whose record could not be read at all."""
        if not isinstance(error, Damaged):
            raise error
        for fault in error.faults:
            self._log.add(fault, left_out=True)
        if self._on_fault == "raise":
            raise error
        return LEFT_OUT

    def _instead(self, shelf: Shelf, image: int, fidelity: int, error: Damaged) -> Any:
        """What is served instead of a damaged image."""
        item: Any = LEFT_OUT
        if self._on_fault == "degrade":
            item = self._below(shelf, image, fidelity)
        for fault in error.faults:
            self._log.add(fault, left_out=item is LEFT_OUT)
        if self._on_fault == "raise":
            raise error
        return item

    def _below(self, shelf: Shelf, image: int, fidelity: int) -> Any:
        """The image at the highest fidelity below that one at which it is undamaged."""
        prefix = shelf.prefix
        if prefix.contents.opaque[image]:
            return LEFT_OUT
        for lower in range(min(fidelity - 1, prefix.intact(image)), 0, -1):
            data = prefix.image(image, lower)
            try:
                item = self._make(shelf, image, data)
            except Undecodable:
                continue
            with self._lock:
                self.degraded += 1
            return item
        return LEFT_OUT


def undecodable(path: str, image: str, error: Undecodable) -> Damaged:
    """The error of an image that is undamaged in its record, but does not decode."""
    fault = Fault(path, image, None, f"it does not decode: {error}")
    remedy = 'remedy: it was stored as it came; on_fault="skip" leaves such images out'
    return Damaged(f"{fault}\n  {remedy}", [fault])


def check_columns(columns: Sequence[str] | None, present: Sequence[str]) -> tuple[str, ...]:
    """The user's columns that items have.

    Args:
        columns: which are wanted; None for all.
        present: `id` and the user's columns.

    Raises:
        InputError: if one is not there, or stands in the way of the image.
    """
    if isinstance(columns, str):
        columns = (columns,)
    there = [name for name in present if name != "id"]
    wanted = tuple(there if columns is None else [name for name in columns if name != "id"])
    for name in wanted:
        if name not in there:
            raise InputError(
                "the dataset does not have this column",
                code="unknown-name",
                place="columns",
                found=name,
                expected=", ".join(there) or "none, for it has none but id",
            )
    if "image" in wanted:
        raise InputError(
            "the dataset has a column named image, which an item uses for the image",
            code="conflict",
            place="columns",
            found="image",
            remedy="name the columns that you want without it: Dataset(..., columns=[...])",
        )
    return wanted
