"""Croissant: the records of a description, as `holdfast.data.croissant` loads them, that have an image."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.data.croissant import Dataset
from holdfast.data.croissant.files.members import Member
from holdfast.data.records.sources.columns import LABEL, Columns, Kind, named_label, plain_type
from holdfast.data.records.sources.croissant_fields import (
    by_short_names,
    chosen,
    class_names,
    columns_of,
    description_at,
)
from holdfast.data.records.sources.croissant_images import Beginning, Fault, Image, Images
from holdfast.data.records.sources.example import (
    Example,
    Options,
    check_ids,
    check_range,
    image_kind,
    named_as_image,
    no_images,
)
from holdfast.data.records.sources.joining import FILE_NAME
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.croissant import LazyRecordSet

_FILES, _BYTES = 256, 16
"""Records in memory at a time: where images are files, and where they stand in the records."""
_MOST_WAITING = 4
"""Maximum number of idle passes through the records, kept to be continued."""


class Croissant:
    """The records of one record set, in its order, each with its image.

    The id is a column called `id`, else the path of the image's file, else the record set's key, else
    record set and number. Where it is the path, columns that say no more than that are left out; else a
    `file_name` that says no more, for a table beside a folder of images has its rows' files there.
    """

    def __init__(self, where: str, options: Options) -> None:
        self._dataset = Dataset(description_at(Path(where)) or where)
        self._path = self._dataset.path
        records, image = chosen(self._dataset.metadata, options, self._path)
        self._name = records.id
        fields = columns_of(records, image, options)
        self._images = Images(self._dataset, self._dataset.records(self._name, columns=[image.id]))
        self._others = (
            self._dataset.records(self._name, columns=[field.id for field in fields])
            if fields
            else None
        )
        _check_bytes(self._images.records, self._path)
        self._types = _types(self._others)
        self._options = by_short_names(fields, options)
        if self._options.id is None and "id" not in self._types and not self._images.are_files:
            self._options = replace(self._options, id=self._key())
        self._check_id()
        self._columns = Columns(self._options, self._path)
        self._lock = threading.Lock()
        self._waiting: list[_Pass] = []
        self._ids: list[str] = []
        self._sizes = array("q")
        self._numbers = array("q")  # of the records that have an image
        self._labels = (0, -1)  # the lowest and the highest number that a label has
        self.ignored: list[tuple[str, str]] = []
        self._declare()
        self._index()
        if not self._ids:
            raise no_images(self._path, self.ignored, f"images in the record set {self._name}")
        check_ids(self._ids, None, self._path, self._other_ids())
        names = class_names(self._dataset.metadata, fields, self._options.label or LABEL)
        known = self._labels[0] >= 0 and self._labels[1] < len(names)
        self.schema: pa.Schema = _with_classes(self._columns.settle(), names if known else [])

    def __len__(self) -> int:
        """How many records have an image."""
        return len(self._ids)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """Id and image bytes of every record."""
        return zip(self._ids, self._sizes, strict=True)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The records with the numbers from `start` to before `stop`."""
        check_range(start, stop, len(self))
        at = start
        with self._pass_before(start) as going:
            for images, rows in going.through(self._numbers[start:stop]):
                for data, row in zip(self._images.contents(images), rows, strict=True):
                    if isinstance(data, Exception):
                        raise data
                    if data is None:
                        return  # there was an image when the source was listed
                    self._columns.take_id(row, self._path, self._ids[at])
                    yield Example(self._ids[at], data, self._columns.values(row))
                    at += 1

    # -- what the records are ----------------------------------------------------------------------

    def _key(self) -> str | None:
        """The field that is the record set's key, if it can be an id."""
        records = self._images.records.record_set
        names = [field.short for field in records.fields if (field.id,) == records.key]
        kinds = [self._types[name] for name in names if name in self._types]
        fits = any(pa.types.is_string(kind) or pa.types.is_integer(kind) for kind in kinds)
        return names[0] if fits else None

    def _check_id(self) -> None:
        name = self._options.id
        if name is not None and name not in self._types:
            raise InputError(
                "the record set does not have this field",
                code="unknown-name",
                path=self._path,
                place=self._name,
                found=name,
                expected=", ".join(self._types) or "a field besides the image",
            )

    def _other_ids(self) -> str:
        """What to do where ids are not unique."""
        if self._images.are_files and self._options.id is None and "id" in self._types:
            return (
                "leave that field out (drop=['id'], --drop id): then the files' paths are the ids"
            )
        return "name a field with a unique value per record: id= (--id)"

    def _declare(self) -> None:
        """The columns have the types that the description or its files say."""
        for name, kind in self._types.items():
            if name != (self._options.id or "id"):
                for final in self._columns.renamed({name: kind}):
                    self._columns.declare(final, Kind(kind), self._path, f"field {name}")

    def _index(self) -> None:
        """Go through the records once: what their images are, the ids, the classes of the label."""
        texts = {name for name, kind in self._types.items() if pa.types.is_string(kind)}
        needed = {self._options.id or "id", self._options.label or LABEL}
        repeating = texts  # columns that have said no more than the path so far
        places: list[str] = []  # the archive of each image, if it is in one
        named = False
        number = 0
        for images, rows in _Pass(self._images, self._only(texts | needed)).batches():
            for image, row, found in zip(
                images, rows, self._images.beginnings(images), strict=True
            ):
                place = f"{self._name}/{number:06d}"
                path = image.fullpath if isinstance(image, Member) else None
                id_ = self._columns.take_id(row, self._path, place)
                reason = _unusable(found, path)
                number += 1
                if reason is not None or not isinstance(found, Beginning):
                    self.ignored.append((path or id_ or _file_in(row) or place, reason or ""))
                    continue
                repeating = {name for name in repeating if _says(row.get(name), path)}
                for name, value in self._columns.renamed(row).items():
                    if name == LABEL:
                        self._columns.check(name, value, self._path, place)
                        if isinstance(value, int):
                            self._labels = (
                                min(self._labels[0], value),
                                max(self._labels[1], value),
                            )
                named = named or id_ is not None
                self._ids.append(id_ or path or place)
                self._sizes.append(found.size)
                self._numbers.append(number - 1)
                places.append(_archive_of(image))
        if self._images.are_files:
            for name in repeating if not named else repeating & {FILE_NAME}:
                self._columns.leave_out(LABEL if name == self._options.label else name)
        if not named and len(set(self._ids)) < len(self._ids):  # archives may use the same names
            self._ids = [
                f"{place}/{id_}" if place else id_
                for place, id_ in zip(places, self._ids, strict=True)
            ]

    def _only(self, names: set[str]) -> LazyRecordSet | None:
        """The records with some of their other columns."""
        if self._others is None:
            return None
        asked = [
            field.id
            for name, field in zip(self._types, self._others.column_fields(), strict=True)
            if name in names and field is not None
        ]
        return self._dataset.records(self._name, columns=asked) if asked else None

    @contextmanager
    def _pass_before(self, start: int) -> Iterator[_Pass]:
        """A pass that has not come to an image yet: one that waits, or a new one from the first record."""
        number = self._numbers[start] if start < len(self) else 0
        with self._lock:
            able = [one for one in self._waiting if one.at <= number]
            going = max(able, key=lambda one: one.at, default=None)
            if going is not None:
                self._waiting.remove(going)
        if going is None:
            going = _Pass(self._images, self._others)
        yield going  # a pass that failed or was interrupted is not continued
        with self._lock:
            self._waiting = sorted([*self._waiting, going], key=lambda one: one.at)[-_MOST_WAITING:]


class _Pass:
    """One way through the records: their images, where these are files not yet read, and other columns."""

    def __init__(self, images: Images, others: LazyRecordSet | None) -> None:
        self._most = _FILES if images.are_files else _BYTES
        rows = repeat({}) if others is None else _rows(others, self._most)
        self._pairs = zip(images.rows(self._most), rows, strict=others is not None)
        self._batch: list[tuple[Image, dict[str, Any]]] = []
        self.at = 0
        """The number of the first record that can still be had."""

    def batches(self) -> Iterator[tuple[list[Image], list[dict[str, Any]]]]:
        """All records, a batch at a time."""
        while self._next():
            yield _apart(self._batch)

    def through(self, numbers: Sequence[int]) -> Iterator[tuple[list[Image], list[dict[str, Any]]]]:
        """The records with these numbers, which rise, those of one batch at a time."""
        left = list(numbers)
        while left:
            if left[0] >= self.at + len(self._batch) and not self._next():
                return
            here = [number for number in left if number < self.at + len(self._batch)]
            if here:
                yield _apart([self._batch[number - self.at] for number in here])
                left = left[len(here) :]

    def _next(self) -> bool:
        self.at += len(self._batch)
        self._batch = list(islice(self._pairs, self._most))
        return bool(self._batch)


def _apart(
    pairs: Sequence[tuple[Image, dict[str, Any]]],
) -> tuple[list[Image], list[dict[str, Any]]]:
    return [image for image, _ in pairs], [dict(row) for _, row in pairs]


def _rows(records: LazyRecordSet, at_once: int) -> Iterator[dict[str, Any]]:
    names = records.short_names()
    for batch in records.batches(at_once):
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _types(records: LazyRecordSet | None) -> dict[str, pa.DataType]:
    """Short name -> type of every column."""
    if records is None:
        return {}
    kinds = (plain_type(field.type) for field in records.schema)
    # A column of half precision is one of single precision, which every reader knows.
    singles = (pa.float32() if kind == pa.float16() else kind for kind in kinds)
    return dict(zip(records.short_names(), singles, strict=True))


def _with_classes(schema: pa.Schema, names: list[str]) -> pa.Schema:
    """The schema, its label with the names of its classes where these are known and it has numbers."""
    place = schema.get_field_index(LABEL)
    if not names or place < 0 or schema.field(place) != pa.field(LABEL, pa.int32()):
        return schema
    return schema.set(place, named_label(names))


def _check_bytes(records: LazyRecordSet, path: Path) -> None:
    kind = plain_type(records.schema.field(0).type)
    if kind != pa.binary():
        raise InputError(
            "the image field does not contain image bytes",
            code="unsupported",
            path=path,
            place=records.columns[0],
            found=str(kind),
            expected="the content of files, or a column of bytes",
            remedy="name another field with image= (--image)",
        )


def _unusable(found: Beginning | Fault | None, path: str | None) -> str | None:
    """Why there is no image to be stored, None if there is one."""
    if found is None:
        return "the record has no image"
    if isinstance(found, InputError):
        return ": ".join(part for part in (found.problem, found.found) if part)
    if isinstance(found, OSError):
        return f"cannot be read: {found.strerror or found}"
    if not found.size:
        return "empty"
    if image_kind(found.data) is not None:
        return None
    if path is not None and named_as_image(path):
        return "named as an image, but its first bytes are of none"
    return "not an image by its first bytes"


def _file_in(row: dict[str, Any]) -> str | None:
    """What a record without an image calls it, if it does."""
    return next((v for v in row.values() if isinstance(v, str) and named_as_image(v)), None)


def _says(value: object, path: str | None) -> bool:
    return path is not None and value in (path, PurePosixPath(path).name)


def _archive_of(image: Image) -> str:
    """The name of the outermost archive that holds an image, empty if there is none."""
    if not isinstance(image, Member) or image.inside is None:
        return ""
    return PurePosixPath(str(image.location)).stem
