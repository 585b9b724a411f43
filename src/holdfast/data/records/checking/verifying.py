"""A dataset read to the last byte: every sum, every image, the manifest against the records, the source."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from holdfast.answer import Answer, Section, Value, measured
from holdfast.answer import Finding as Sentence
from holdfast.data.records.checking.inspecting import (
    Finding,
    Inspected,
    damage,
    inspect,
    scans_end,
    undecidable,
)
from holdfast.data.records.checking.originals import Originals
from holdfast.data.records.format.layout import (
    Contents,
    Index,
    LayoutError,
    OtherVersion,
    decode_contents,
)
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.reading.records import in_order
from holdfast.data.records.reading.stores import MissingFile, Store, open_store
from holdfast.data.records.sources import Source
from holdfast.data.records.writing.generations import LOCK, REJECTED
from holdfast.errors import InputError, StoreError
from holdfast.numbers import counted, size

MOST_NAMED = 1000
"""Findings, and files of no record, that a result names; all are counted."""

THREADS = 4
SUFFIX = ".pcr"
_KNOWN = frozenset({NAME, REJECTED, LOCK})

Progress = Callable[[int, int], None]
"""(bytes that were looked at, bytes in all)"""


@dataclass(frozen=True)
class Verified(Answer):
    """What `verify` found."""

    url: str
    records: int
    """Record files that were looked at."""
    images: int
    """Images that they hold, as far as their metadata can be read."""
    bytes: int
    """Bytes that were looked at: of the manifest and of every record."""
    compared: int
    """Images that were compared with their source."""
    errors: tuple[Finding, ...]
    """What is wrong, in the order of the records; at most `MOST_NAMED`, or as many as were asked for."""
    error_count: int
    """Total number of errors."""
    remarks: tuple[str, ...]
    """Notes that are not errors: files that no manifest names, and what could not be checked."""
    unknown: tuple[Finding, ...] = ()
    """Images that could not be compared with their source, and why; at most as many as `errors`."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, and everything that was asked for could be checked."""
        return not self.error_count and not self.unknown

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return asdict(self) | {"ok": self.ok}

    @property
    def exit_code(self) -> int:
        """0 if all is well."""
        return int(not self.ok)

    def values(self) -> Sequence[Value]:
        """What was looked at, and what is wrong."""
        return measured(
            self,
            records="",
            images="",
            bytes="bytes",
            compared="images, higher",
            error_count=", lower",
            unknown="images, lower",
        )

    def findings(self) -> Sequence[Sentence]:
        """The verdict, and what was looked at."""
        counts = f"{counted(self.images, 'image')} in {counted(self.records, 'record')}"
        verdict = "Damaged" if self.errors else "Cannot tell" if self.unknown else "OK"
        found = [Sentence(f"{counts}, {size(self.bytes)}.", lead=f"{verdict}:")]
        if self.compared:
            compared = counted(self.compared, "image")
            found.append(Sentence(f"{compared} compared with the source, by coefficients."))
        return [*found, *map(Sentence, self.remarks)]

    def sections(self) -> Sequence[Section]:
        """The errors, and what was not compared."""
        sections = []
        if self.errors or not self.unknown:
            more = self.error_count - len(self.errors)
            caption = f"And {more:,} more." if more else ""
            sentence = f"{counted(self.error_count, 'error')}."
            sections.append(damage("errors", sentence, self.errors, caption))
        if self.unknown:
            sentence = f"{counted(len(self.unknown), 'image')} not compared with the source."
            sections.append(damage("unknown", sentence, self.unknown))
        return sections


def verify(
    url: str | Path,
    *,
    against: str | Path | Source | None = None,
    threads: int | None = None,
    limit: int = MOST_NAMED,
    on_progress: Progress | None = None,
    **options: Any,
) -> Verified:
    """Read every byte of a dataset, or of one record, and say what is wrong with it.

    Looked at are the seal of the manifest; header, metadata, footer and every group and piece of every
    record against their sums; the manifest against the records; that no id stands twice; and that the
    pieces of each image are a progressive JPEG of the stated size, cut where its scans end.

    Args:
        url: of the dataset's folder, or of one `.pcr` file.
        against: the source. Each image is then compared with it: the DCT coefficients of a transcoded
            one, the bytes of an opaque one, and the values of the columns.
        threads: how many records are looked at side by side; each takes up to 64 MiB of memory.
        limit: how many errors are named; all are counted.
        on_progress: called with the bytes that were looked at and those there are.
        options: for the store (`open_store`).

    Raises:
        InputError: if there is neither a manifest nor a record, or another version of the format wrote it.
        StoreError: if the store fails.
    """
    originals = None if against is None else Originals(against)
    folder, single = _place(url)
    with open_store(folder, **options) as store:
        work = _plan(store, single)
        report = _Report(limit, work)
        progress = _Progress(work, on_progress)

        def look(number: int) -> Inspected:
            path, index = work.records[number]
            compare = None if originals is None else originals.compare
            inspected = inspect(store, path, index, on_bytes=progress.add, compare=compare)
            store.forget(path)
            return inspected

        for inspected in in_order(look, len(work.records), threads or THREADS):
            report.take(inspected)
            if originals is not None and inspected.contents is not None:
                originals.hold(inspected.contents.ids)
        report.look_for_twins(store)
        if originals is not None and single is None:
            report.say_missing(originals, rejected_ids(store))
    return Verified(
        url=str(url),
        records=len(work.records),
        images=report.images,
        bytes=progress.done,
        compared=0 if originals is None else originals.compared,
        errors=tuple(report.errors),
        error_count=report.count,
        remarks=(*work.remarks, *report.remarks),
        unknown=() if originals is None else tuple(originals.unknown[:limit]),
    )


def _place(url: str | Path) -> tuple[str, str | None]:
    """(URL of the folder, the record in it that was named)."""
    text = str(url)
    if not text.endswith(SUFFIX) or ("://" not in text and Path(text).is_dir()):
        return text, None
    folder, _, name = text.rpartition("/")
    return folder or ".", name


# --- What is to be looked at ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    manifest: Manifest | None
    """None: it is missing or damaged, or a single record is looked at."""
    manifest_bytes: int
    records: Sequence[tuple[str, Index | None]]
    """Each record's file, and what the manifest says about it."""
    errors: Sequence[Finding]
    remarks: Sequence[str]


def _plan(store: Store, single: str | None) -> _Work:
    if single is not None:
        return _Work(None, 0, [(single, None)], (), ())
    manifest, size, reason = read_manifest(store)
    if manifest is not None and not manifest.records:
        raise InputError(
            "the dataset has no records to verify", code="no-data", path=store.where(NAME)
        )
    if manifest is not None:
        try:
            files = [path for path in store.list() if path not in _KNOWN]
        except StoreError:
            files = None
        named = tuple(zip(manifest.paths, manifest.records, strict=True))
        return _Work(manifest, size, named, (), _strangers(files, manifest))
    try:
        records: list[tuple[str, Index | None]] = [(path, None) for path in store.records()]
    except StoreError:
        records = []
    if size == 0 and not records:
        raise InputError(
            "no dataset found",
            code="not-found",
            path=store.where(""),
            found=reason,
            expected=f"a {NAME} and the records that it names",
        )
    error = Finding(None, None, None, f"{NAME}: {reason}")
    remark = (
        "the records were found by listing the folder; more than one generation may be among them"
    )
    return _Work(None, size, records, (error,), (remark,) if records else ())


def read_manifest(store: Store) -> tuple[Manifest | None, int, str]:
    """(the manifest of a dataset, its bytes, why it cannot be read)."""
    try:
        data = store.read_all(NAME)
    except MissingFile:
        return None, 0, "the file is missing"
    try:
        return Manifest.from_bytes(data), len(data), ""
    except OtherVersion as error:
        raise undecidable(store.where(NAME), error) from error
    except LayoutError as error:
        return None, len(data), error.reason


def _strangers(files: Sequence[str] | None, manifest: Manifest) -> list[str]:
    if files is None:
        return ["the store does not list its files: whether some belong to no record is not known"]
    named = set(manifest.paths)
    strangers = [path for path in files if path not in named]
    remarks = [f"no manifest names {path}" for path in strangers[:MOST_NAMED]]
    if len(strangers) > MOST_NAMED:
        remarks.append(f"and {len(strangers) - MOST_NAMED:,} more that no manifest names")
    return remarks


def rejected_ids(store: Store) -> set[str]:
    """The ids that the writer set aside: they are missing with good reason."""
    try:
        lines = bytes(store.read_all(REJECTED)).splitlines()
    except MissingFile:
        return set()
    ids = set()
    for line in lines:
        with suppress(ValueError, LookupError, TypeError):
            ids.add(str(json.loads(line)["id"]))
    return ids


class _Progress:
    """Bytes that were looked at, by all threads."""

    def __init__(self, work: _Work, on_progress: Progress | None) -> None:
        self.done = work.manifest_bytes
        self._total = self.done + sum(index.size for _, index in work.records if index is not None)
        self._tell = on_progress
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self.done += size
            self._total = max(self._total, self.done)
            if self._tell is not None:
                self._tell(self.done, self._total)


# --- What was found ------------------------------------------------------------------------------


class _Report:
    """What the records are found to be, one after another."""

    def __init__(self, limit: int, work: _Work) -> None:
        self.errors: list[Finding] = []
        self.count = 0
        self.images = 0
        self.remarks: list[str] = []
        self._limit = limit
        self._manifest = work.manifest
        self._ids: list[tuple[str, int, npt.NDArray[np.uint64]]] = []
        self._unread = 0
        for error in work.errors:
            self._add(error)

    def _add(self, finding: Finding) -> None:
        self.count += 1
        if len(self.errors) < self._limit:
            self.errors.append(finding)

    def take(self, found: Inspected) -> None:
        """Add what is wrong with a record, by itself and as part of the dataset."""
        if self._manifest is not None and found.contents is not None:
            for reason in _contradictions(self._manifest, found.contents):
                found.say(f"metadata: {reason}")
        for finding in found.findings:
            self._add(finding)
        if found.contents is None:
            self._unread += 1
            return
        ids = [xxhash.xxh3_64_intdigest(id_.encode()) for id_ in found.contents.ids]
        self.images += len(ids)
        self._ids.append((found.path, found.regions[0][1], np.array(ids, np.uint64)))

    def look_for_twins(self, store: Store) -> None:
        """Add ids that stand twice in the dataset. Sums of them are compared, then those that agree."""
        if not self._ids:
            return
        sums = np.concatenate([ids for _, _, ids in self._ids])
        ends = np.cumsum([len(ids) for _, _, ids in self._ids])
        order = np.argsort(sums, kind="stable")
        again = np.flatnonzero(sums[order][1:] == sums[order][:-1])
        for at in again.tolist():
            first, second = order[at : at + 2].tolist()
            (one_path, one), (path, id_) = (self._id(store, ends, row) for row in (first, second))
            if one == id_:
                self._add(Finding(path, id_, None, f"{one_path} has an image of this id too"))

    def _id(self, store: Store, ends: npt.NDArray[np.int64], row: int) -> tuple[str, str]:
        """(record, id) of one of the images that were taken."""
        record = int(np.searchsorted(ends, row, side="right"))
        path, block_end, ids = self._ids[record]
        contents = decode_contents(store.read(path, 0, block_end))
        return path, contents.ids[row - int(ends[record]) + len(ids)]

    def say_missing(self, originals: Originals, rejected: set[str]) -> None:
        """Add the images of the source that the dataset lacks, if every record could be read."""
        if self._unread:
            self.remarks.append(
                f"{self._unread:,} records cannot be read: whether the dataset lacks other images of the "
                "source is not known"
            )
            return
        for id_ in originals.missing():
            if id_ not in rejected:
                self._add(
                    Finding(None, id_, None, "the source has this image, the dataset lacks it")
                )


def _contradictions(manifest: Manifest, contents: Contents) -> Iterator[str]:
    """What a record's metadata say otherwise than the manifest."""
    groups = scans_end(contents)
    if groups is not None and groups != manifest.scans_end:
        yield f"its groups end with the scans {groups}, those of the manifest with {manifest.scans_end}"
    fields = list(contents.columns.schema)
    if len(fields) != len(manifest.schema) or not all(
        one.equals(other, check_metadata=True)
        for one, other in zip(fields, manifest.schema, strict=False)
    ):
        yield "its columns are not those of the manifest"
