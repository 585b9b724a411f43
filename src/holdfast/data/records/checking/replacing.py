"""Where the bytes come from that a damaged record lacks: another copy, or the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import google_crc32c
import numpy as np
import pyarrow as pa

from holdfast.data.records.checking.inspecting import Inspected
from holdfast.data.records.checking.originals import Originals
from holdfast.data.records.checking.verifying import read_manifest
from holdfast.data.records.format import layout
from holdfast.data.records.format.layout import Contents, Index
from holdfast.data.records.format.manifest import Manifest
from holdfast.data.records.reading.stores import CutFile, MissingFile, Store
from holdfast.data.records.writing import transcoding
from holdfast.data.records.writing.generations import same
from holdfast.data.records.writing.planning import Plan, Rejected, SourceChanged
from holdfast.data.records.writing.settings import Settings
from holdfast.errors import InputError, LimitError
from holdfast.remote import Buffer

Range = tuple[int, int]
_NUMBER = re.compile(r"(\d{6,})\.pcr")


class Known(NamedTuple):
    """What all records of a dataset have in common."""

    texts: Mapping[str, str]
    """What each notes: settings and programs."""
    schema: pa.Schema
    """`id` and the user's columns."""


class Maker(Protocol):
    """Something that has a record's bytes."""

    name: str

    def make(self, now: Inspected, expected: Index, known: Known) -> Iterator[tuple[int, Buffer]]:
        """Bytes for what is damaged.

        Args:
            now: the record as it is.
            expected: what its sums were.
            known: of its dataset.

        Yields:
            (where they belong, bytes); whether they are right is seen later.
        """


class Replica:
    """A second copy of the dataset, from which the damaged ranges are read."""

    name = "replica"

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fetched = 0

    def make(self, now: Inspected, expected: Index, known: Known) -> Iterator[tuple[int, Buffer]]:
        """See `Maker`. Metadata come first: they tell which pieces of a group are damaged."""
        ranges = now.damaged[:1] if now.contents is None else now.damaged
        try:
            parts = self._store.read_many(now.path, ranges)
        except (MissingFile, CutFile):
            return
        for (start, _), part in zip(ranges, parts, strict=True):
            self.fetched += len(part)
            yield start, part

    def manifest(self, records: Iterable[Inspected]) -> tuple[Manifest | None, str]:
        """The copy's manifest; None and why if it has none, or lacks an intact record of the dataset.

        Args:
            records: of the dataset that lacks a manifest.
        """
        manifest, _, reason = read_manifest(self._store)
        if manifest is None:
            return None, f"the replica's manifest: {reason}"
        rows = dict(zip(manifest.paths, manifest.records, strict=True))
        for record in records:
            row = rows.get(record.path)
            if row is None or (record.footer is not None and not same(row, record.footer)):
                return None, f"the replica is another dataset: it has no such {record.path}"
        return manifest, ""


class Again:
    """What the dataset was written from; its images are transcoded anew."""

    name = "source"

    def __init__(self, originals: Originals) -> None:
        self._originals = originals
        self._plans: dict[tuple[tuple[str, str], ...], Plan] = {}

    def make(self, now: Inspected, expected: Index, known: Known) -> Iterator[tuple[int, Buffer]]:
        """See `Maker`."""
        try:
            if now.contents is not None:
                yield from self._pieces(now, now.contents)
            else:
                yield from self._record(now.path, expected, known)
        except (InputError, LimitError, SourceChanged):
            return  # not what it was written from, or written by another writer

    def _pieces(self, now: Inspected, contents: Contents) -> Iterator[tuple[int, Buffer]]:
        """Those pieces of the images with a damaged one that have the right sum."""
        settings = Settings.from_texts(contents.settings)
        for row in _rows(now, contents):
            id_ = contents.ids[row]
            example = self._originals.examples([id_]).get(id_)
            if example is None:
                continue
            image = transcoding.image(example, settings)
            for group, piece in enumerate(image.pieces):
                start = now.regions[group + 1][0] + int(contents.starts[row, group])
                if len(piece) == contents.lengths[row, group] and (
                    google_crc32c.value(bytes(piece)) == contents.piece_sums[row, group]
                ):
                    yield start, piece

    def _record(self, path: str, expected: Index, known: Known) -> Iterator[tuple[int, Buffer]]:
        """The whole record, if it comes out as it was."""
        number = _NUMBER.fullmatch(path.rpartition("/")[2])
        plan = self._plan(known.texts)
        records = list(plan.records())
        if number is None or int(number[1]) >= len(records):
            return
        images = []
        for one in plan.read(records[int(number[1])]):
            if isinstance(one, Rejected):
                continue
            with suppress(LimitError):  # the writer set it aside
                images.append(transcoding.image(one, plan.settings))
        if not images:
            return
        parts, index = layout.encode(
            images,
            pa.schema([column for column in known.schema if column.name != "id"]),
            groups=len(plan.settings.scans_end),
            settings=known.texts,
            msssim=expected.msssim,
            measured=expected.measured,
        )
        if same(index, expected):
            yield 0, b"".join(parts)

    def _plan(self, texts: Mapping[str, str]) -> Plan:
        key = tuple(sorted(texts.items()))
        if key not in self._plans:
            self._plans[key] = Plan.of(self._originals.source, Settings.from_texts(texts), {})
        return self._plans[key]


def _rows(now: Inspected, contents: Contents) -> list[int]:
    """The images with a damaged piece."""
    rows: set[int] = set()
    for start, end in now.damaged:
        for group, (first, last) in enumerate(now.regions[1:]):
            if first <= start < last:
                places = contents.starts[:, group] + first
                # Pieces that begin before the damage ends, and end after it begins.
                begins = int(np.searchsorted(places, start, side="right")) - 1
                ends = int(np.searchsorted(places, end, side="left"))
                rows.update(range(begins, ends))
    return sorted(rows)


def size_of(ranges: Sequence[Range]) -> int:
    """Bytes in all."""
    return sum(end - start for start, end in ranges)
