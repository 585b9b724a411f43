"""Images that a program gives one after another as dicts: the way in for every other format."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.data.records.sources.columns import JSON, Columns, kind_of
from holdfast.data.records.sources.example import (
    Example,
    Options,
    check_ids,
    check_range,
    no_images,
)
from holdfast.errors import InputError

IMAGE = "image"


class Rows:
    """Dicts of one image each: the bytes of its file under "image", its id under "id", and its columns.

    They are taken once, in their order, which any iterator has. The bytes go to a temporary file, so that
    memory holds the columns alone; the file is gone with this object. Without an id the number is one.
    """

    def __init__(self, rows: Iterable[Mapping[str, object]], options: Options) -> None:
        self._source = Path("rows")
        self._columns = Columns(options, self._source)
        self._image = options.image or IMAGE
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._spool.close)
        self._ends = array("q", [0])  # [N + 1] where each image ends in the spool
        self._ids: list[str] = []
        self._rows: list[dict[str, object]] = []
        self.ignored: list[tuple[str, str]] = []
        for number, row in enumerate(rows):
            self._take(row, f"row {number:,}")
        if not self._ids:
            raise no_images(self._source, [], 'dicts such as {"image": b"...", "label": 3}')
        check_ids(self._ids, None, self._source)
        self._spool.flush()
        self.schema: pa.Schema = self._columns.settle()

    def _take(self, row: Mapping[str, object], place: str) -> None:
        """Note one row, and put its image aside."""
        values = {
            name: value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
            for name, value in row.items()
        }
        image = values.pop(self._image, None)
        if not isinstance(image, (bytes, bytearray, memoryview)):
            raise InputError(
                "a row has no image",
                code="missing-key",
                path=self._source,
                place=f"{place}, {self._image}",
                found=type(image).__name__,
                expected="the bytes of an image's file",
                remedy="give the file as it is stored, not its pixels",
            )
        id_ = self._columns.take_id(values, self._source, place)
        for name, value in values.items():
            self._check_json(name, value, place)
        self._columns.see(values, self._source, place)
        self._ids.append(f"{len(self._ids):06d}" if id_ is None else id_)
        self._rows.append(values)
        self._spool.write(image)
        self._ends.append(self._ends[-1] + len(image))

    def _check_json(self, name: str, value: object, place: str) -> None:
        """Refuse a value with parts that JSON, as which it is kept, cannot hold."""
        if kind_of(value) != JSON:
            return
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                "a value of a row cannot be stored",
                code="invalid-value",
                path=self._source,
                place=f"{place}, {name}",
                found=f"a {type(value).__name__} ({error})",
                expected="a number, text, bytes, or lists and dicts of numbers and texts",
                remedy=f"convert it, or leave it out with drop=[{name!r}]",
            ) from error

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._ids)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """Id and image bytes of every row."""
        return zip(self._ids, np.diff(self._ends).tolist(), strict=True)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The rows with the numbers from `start` to before `stop`."""
        check_range(start, stop, len(self))
        for number in range(start, stop):
            begin, end = self._ends[number], self._ends[number + 1]
            data = os.pread(self._spool.fileno(), end - begin, begin)
            yield Example(self._ids[number], data, self._columns.values(self._rows[number]))
