"""What a dataset knows of single images, and the images themselves, found by their ids."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.data.records.extracting.values import LABEL, class_of, json_row
from holdfast.data.records.format.layout import Contents
from holdfast.data.records.reading.records import Records, open_records
from holdfast.data.records.reading.stores import Store
from holdfast.errors import InputError


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
    ids: Collection[str] = (),
    store: Store | None = None,
) -> Samples:
    """The metadata of some images; only that is read, of the records that hold them.

    Args:
        url: the dataset, or a single `.pcr` file.
        start: number of the first image.
        count: how many; None for all that follow.
        ids: these images instead, in the order of the dataset.
        store: reads the dataset, instead of one opened by its URL.

    Raises:
        InputError: if there is no dataset, or an id is not in it.
        Damaged: if the metadata of a record that is needed is.
    """
    with open_records(url, store=store) as records:
        images = records.manifest.images
        if ids:
            places = _find(records, ids)
        else:
            stop = images if count is None else min(images, start + count)
            places = _between(records, start, stop)
        rows = tuple(_row(records, record, image) for record, image in places)
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
        groups = groups_of(records, fidelity)
        record, image = next(_find(records, [id]))
        return records.image(record, image, groups)


def groups_of(records: Records, fidelity: int | Literal["full"]) -> int:
    """A fidelity as a number of groups.

    Raises:
        InputError: if the dataset does not have it.
    """
    groups = records.groups if fidelity == "full" else fidelity
    if isinstance(groups, bool) or not isinstance(groups, int) or not 1 <= groups <= records.groups:
        raise InputError(
            "the dataset does not have this fidelity",
            code="out-of-range",
            path=records.url,
            found=str(fidelity),
            expected=f"1 to {records.groups}, or full",
        )
    return groups


def _between(records: Records, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Record and row of the images [start, stop)."""
    first = 0
    for record, index in enumerate(records.indexes):
        for image in range(max(start - first, 0), min(stop - first, index.images)):
            yield record, image
        first += index.images


def _find(records: Records, ids: Collection[str]) -> Iterator[tuple[int, int]]:
    """Record and row of the images with these ids; records are gone through until all are found."""
    missing = set(ids)
    for record in range(len(records)):
        if not missing:
            return
        for image, id_ in enumerate(records.contents(record).ids):
            if id_ in missing:
                missing.remove(id_)
                yield record, image
    if missing:
        example = records.contents(0).ids[0] if len(records) else "none"
        raise InputError(
            "no image has this id",
            code="not-found",
            path=records.url,
            found=repr(min(missing)),
            expected=f"ids such as {example!r}",
            remedy="holdfast data records cat lists them",
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
