"""What a dataset knows of single images, and the images themselves, found by their ids."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from holdfast.data.records.format.layout import Contents
from holdfast.data.records.reading.records import Records, checked_fidelity, open_records
from holdfast.data.records.reading.stores import Store
from holdfast.errors import InputError
from holdfast.plain import plain


@dataclass(frozen=True)
class Samples:
    """Rows of a dataset's metadata."""

    rows: tuple[dict[str, Any], ...]
    """One an image, in order; `bytes` are those of the image at each fidelity, [G]."""
    images: int
    """How many the dataset has."""

    def to_dict(self) -> list[dict[str, Any]]:
        """The rows."""
        return list(self.rows)


def samples(
    url: str | os.PathLike[str],
    *,
    start: int = 0,
    count: int | None = 10,
    store: Store | None = None,
) -> Samples:
    """The metadata of some images; only that is read, of the records that hold them.

    Args:
        url: the dataset, or a single `.pcr` file.
        start: number of the first image.
        count: how many; None for all that follow.
        store: reads the dataset, instead of one opened by its URL.

    Raises:
        InputError: if there is no dataset.
        Damaged: if the metadata of a record that is needed is.
    """
    with open_records(url, store=store) as records:
        images = records.manifest.images
        stop = images if count is None else min(images, start + count)
        rows = tuple(_row(records, *place) for place in _between(records, start, stop))
    return Samples(rows, images)


def image_bytes(
    url: str | os.PathLike[str],
    id: str,
    *,
    fidelity: int | Literal["full"] = "full",
    store: Store | None = None,
) -> bytes:
    """The file of one image at a fidelity; of the images, only its pieces are read.

    Raises:
        InputError: if there is no dataset, or the id is not in it.
        Damaged: if the image is.
    """
    with open_records(url, store=store) as records:
        groups = checked_fidelity(fidelity, records.groups, records.url)
        record, image = _find(records, id)
        return records.image(record, image, groups)


def _between(records: Records, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Record and row of the images [start, stop)."""
    first = 0
    for record, index in enumerate(records.indexes):
        for image in range(max(start - first, 0), min(stop - first, index.images)):
            yield record, image
        first += index.images


def _find(records: Records, id_: str) -> tuple[int, int]:
    """Record and row of the image with this id; records are gone through until it is found."""
    for record in range(len(records)):
        ids = records.contents(record).ids
        if id_ in ids:
            return record, ids.index(id_)
    raise InputError(
        "no image has this id",
        code="not-found",
        path=records.url,
        found=repr(id_),
        expected="an id that holdfast data records cat lists",
    )


def _row(records: Records, record: int, image: int) -> dict[str, Any]:
    contents = records.contents(record)
    schema = records.manifest.schema
    row = contents.table.slice(image, 1).to_pylist()[0]
    found: dict[str, Any] = {"id": row["id"], "record": records.paths[record], "image": image}
    if LABEL in schema.names:
        found["class"] = class_of(row[LABEL], records.classes)
    return found | {
        "columns": json_row(row, schema),
        "width": row["pcr.width"],
        "height": row["pcr.height"],
        "orientation": row["pcr.orientation"],
        "opaque": row["pcr.reason"],
        "source_bytes": row["pcr.source_size"],
        "bytes": _sizes(contents, image),
    }


def _sizes(contents: Contents, image: int) -> list[int]:
    """[G] bytes of an image at each fidelity, with its end marker."""
    sizes = contents.lengths[image].cumsum(dtype="int64")
    return [int(size) + (0 if contents.opaque[image] else 2) for size in sizes]


LABEL = "label"


def json_row(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The user's columns of one image: bytes in base64, times as ISO texts, JSON texts as what they say.

    Args:
        row: name -> value; others than the schema's are left out.
        schema: the columns.
    """
    return {
        column.name: _json_value(row[column.name], column)
        for column in schema
        if column.name != "id"
    }


def _json_value(value: Any, column: pa.Field) -> Any:
    if isinstance(value, str) and (column.metadata or {}).get(b"encoding") == b"json":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return plain(value)


def class_of(label: Any, classes: list[str] | None) -> str | None:
    """The name of a label's class, None where it has none."""
    if classes is None or not isinstance(label, int) or not 0 <= label < len(classes):
        return None
    return classes[label]


def json_line(row: Mapping[str, Any]) -> bytes:
    """One line of JSON."""
    return (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()
