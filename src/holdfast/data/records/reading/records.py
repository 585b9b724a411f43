"""Records of a dataset, each read at the fidelity that is wanted with one request.

`Records.read(record, g)` asks for the bytes [0, ends[g]) of a record's file: every image at fidelity g.
With a prefix that is there already it asks for [ends[have], ends[g]) only. What arrives is checked region
by region; damage is traced to the images and groups that it hit, and all others stay usable.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import google_crc32c
import numpy as np
import pyarrow as pa

from holdfast.data.records.format import layout
from holdfast.data.records.format.layout import Contents, Index, LayoutError
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.reading.prefixes import (
    MISMATCH,
    Damaged,
    Fault,
    Prefix,
    assemble,
    damaged,
    holds,
    trace,
)
from holdfast.data.records.reading.stores import CutFile, MissingFile, Store, open_store
from holdfast.errors import HoldfastError, InputError, StoreError
from holdfast.remote import Buffer

if TYPE_CHECKING:
    from holdfast.data.records.reading.caching import Cache


__all__ = ["Damaged", "Fault", "Prefix", "Records", "open_records"]

SUFFIX = ".pcr"
_KEPT_CONTENTS = 64


class Records:
    """The records of one dataset, in the order of its manifest; safe to use from many threads.

    It can be pickled; the copy opens its store anew.

    Args:
        store: the folder, or the one that a single record lies in.
        paths: [R] the records' files.
        indexes: [R] what the manifest (or a record's footer) says about each.
        manifest: None where a single record was opened.
        cache: keeps what was read on a local disk.
    """

    def __init__(
        self,
        store: Store,
        paths: Sequence[str],
        indexes: Sequence[Index],
        manifest: Manifest | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.store = store
        self.paths = tuple(paths)
        self.indexes = tuple(indexes)
        self.cache = cache
        self._manifest = manifest
        self._contents: OrderedDict[int, Contents] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        state["_contents"] = OrderedDict()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.paths)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of open files and connections; reading opens them again."""
        self.store.close()

    @property
    def url(self) -> str:
        """Where the dataset lies; for a single record, the folder that it lies in."""
        return self.store.url

    @property
    def groups(self) -> int:
        """G, the highest fidelity."""
        return self.indexes[0].groups if self.indexes else self.manifest.groups

    @property
    def manifest(self) -> Manifest:
        """The dataset's manifest; for a single record, one made from what the record says."""
        if self._manifest is None:
            self._manifest = _manifest_of(self.paths[0], self.indexes[0], self.contents(0))
        return self._manifest

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes of the column `label`, if it has them."""
        return self.manifest.classes()

    def read(self, record: int, fidelity: int | None = None, have: Prefix | None = None) -> Prefix:
        """All images of a record at a fidelity, with one request (none, if `have` or the cache has all).

        Args:
            record: its number.
            fidelity: 1..G; None for all groups.
            have: a prefix of the record; only what it lacks is read.

        Returns:
            The prefix; its `faults` name what of it is damaged. Its buffers up to the fidelity of `have`
            are those of `have`.

        Raises:
            Damaged: if nothing of it can be used: the metadata is damaged, or the file is not the
                record that the manifest names.
            MissingFile: if there is no such file.
            StoreError: if the store does not give it.
        """
        index = self.indexes[record]
        wanted = checked_fidelity(fidelity, self.groups, self.url)
        if have is not None and (have.record, have.index.sums) != (record, index.sums):
            raise ValueError(f"a prefix of record {have.record}, not of {record}")
        if have is not None and have.fidelity >= wanted:
            return have
        first = 0 if have is None else have.fidelity + 1
        buffers, wrong = self._regions(record, first, wanted + 1)
        contents = self._decoded(record, buffers[0]) if have is None else have.contents
        faults: list[Fault] = list(have.faults) if have is not None else []
        bad = None if have is None or have.bad is None else have.bad.copy()
        if wrong and bad is None:
            bad = np.zeros(contents.lengths.shape, bool)
        for group in wrong:
            assert bad is not None
            buffer = buffers[group - first]
            faults += trace(self.paths[record], contents, group, buffer, bad[:, group - 1])
        return Prefix(
            record=record,
            path=self.paths[record],
            index=index,
            contents=contents,
            buffers=(*(have.buffers if have is not None else ()), *buffers),
            faults=tuple(faults),
            bad=bad if bad is not None and bad.any() else None,
        )

    def contents(self, record: int) -> Contents:
        """The metadata of a record: kept if it was read lately, else read with one request.

        Raises:
            Damaged: if it is.
        """
        with self._lock:
            known = self._contents.get(record)
            if known is not None:
                self._contents.move_to_end(record)
                return known
        return self._decoded(record, self._regions(record, 0, 1)[0][0])

    def pieces(self, record: int, image: int, fidelity: int | None = None) -> list[Buffer]:
        """The pieces of one image alone, read together: for random access.

        Args:
            record: the record's number.
            image: the image's number in it.
            fidelity: 1..G; None for all groups.

        Raises:
            Damaged: if one of them is, or the record's metadata.
            MissingFile: if the record's file does not exist.
        """
        contents, index, groups = (
            self.contents(record),
            self.indexes[record],
            checked_fidelity(fidelity, self.groups, self.url),
        )
        starts = contents.starts[:, :groups] + np.array(index.ends[:groups])
        ranges = list(
            zip(starts[image].tolist(), starts[image + 1].tolist(), strict=True)
        )  # [groups]
        for last in (False, True):
            faults, found = self._read_pieces(record, contents, image, ranges)
            if not faults:
                return found
            if not last:
                self.store.forget(self.paths[record])
        raise damaged(faults)

    def image(self, record: int, image: int, fidelity: int | None = None) -> bytes:
        """One image as a file, by its pieces alone; raises as `pieces`."""
        pieces = self.pieces(record, image, fidelity)
        return assemble(self.contents(record), image, pieces)

    def _read_pieces(
        self, record: int, contents: Contents, image: int, ranges: Sequence[tuple[int, int]]
    ) -> tuple[list[Fault], list[Buffer]]:
        path, name = self.paths[record], contents.ids[image]
        try:
            found = self.store.read_many(path, ranges)
        except MissingFile as error:
            raise self._vanished(path) from error
        except CutFile as error:
            return [Fault(path, name, None, error.problem)], []
        sums = contents.piece_sums[image].tolist()
        faults = [
            Fault(path, name, group, MISMATCH)
            for group, (piece, crc) in enumerate(zip(found, sums, strict=False), 1)
            if google_crc32c.value(bytes(piece)) != crc
        ]
        return faults, found

    def _regions(self, record: int, first: int, stop: int) -> tuple[list[Buffer], list[int]]:
        """The regions [first, stop) of a record, and which of them are not what was written.

        What the cache has comes from there, the rest with one request.
        """
        index = self.indexes[record]
        kept = [] if self.cache is None else self.cache.get(index, first, stop)
        start = first + len(kept)
        if start == stop:
            return kept, []
        fetched = self._fetch(record, start, stop)
        wrong = _wrong(index, start, fetched)
        if wrong:
            # Once more: the fault may lie in the transfer, or another file took this one's place.
            self.store.forget(self.paths[record])
            again = self._fetch(record, wrong[0], wrong[-1] + 1)
            fetched[wrong[0] - start : wrong[-1] + 1 - start] = again
            wrong = _wrong(index, start, fetched)
        if self.cache is not None and not wrong:
            self.cache.put(index, start, stop, fetched)
        return kept + fetched, wrong

    def _fetch(self, record: int, first: int, stop: int) -> list[Buffer]:
        """Regions [first, stop) with one request; those beyond the end of a cut file are short."""
        path, ends = self.paths[record], self.indexes[record].ends
        start = ends[first - 1] if first else 0
        try:
            data = self.store.read(path, start, ends[stop - 1])
        except CutFile as error:
            data = error.data
        except MissingFile as error:
            raise self._vanished(path) from error
        view = memoryview(data)
        cuts = [start, *ends[first:stop]]
        return [view[a - start : b - start] for a, b in pairwise(cuts)]

    def _vanished(self, path: str) -> MissingFile:
        """The error of a record that the manifest names and the store does not have.

        This is not damage to single images, which training may skip: the dataset itself is gone.
        """
        return MissingFile(
            path=self.store.where(path),
            expected="a record that the dataset's manifest names",
            remedy="the dataset was moved, deleted or rewritten since it was opened: open it again; "
            "holdfast data records verify lists what is missing",
        )

    def _decoded(self, record: int, region: Buffer) -> Contents:
        """The metadata out of region 0."""
        path, index = self.paths[record], self.indexes[record]
        try:
            contents = layout.decode_contents(region, index)
        except LayoutError as error:
            reason = self._why(record, region) or error.reason
            raise damaged([Fault(path, None, error.region, reason)]) from error
        with self._lock:
            self._contents[record] = contents
            while len(self._contents) > _KEPT_CONTENTS:
                self._contents.popitem(last=False)
        return contents

    def _why(self, record: int, region: Buffer) -> str | None:
        """Whether a record whose metadata is not what the manifest says is whole, but another one."""
        if self._manifest is None:
            return None
        try:
            tail, size = self.store.tail(self.paths[record], layout.MAX_FOOTER)
            footer = layout.decode_footer(bytes(tail), size)
        except (HoldfastError, LayoutError):
            return None
        index = self.indexes[record]
        if footer.sums[0] == index.sums[0]:
            return None
        return "the file is a whole record, but not the one that the manifest names"


def _wrong(index: Index, first: int, buffers: Sequence[Buffer]) -> list[int]:
    """The regions, of those from `first` on, that are cut or do not have their sums."""
    return [
        region for region, buffer in enumerate(buffers, first) if not holds(index, region, buffer)
    ]


def open_records(
    url: str | os.PathLike[str],
    store: Store | None = None,
    cache: Cache | None = None,
    **options: Any,
) -> Records:
    """Open a dataset by its folder, or a single `.pcr` file.

    Args:
        url: of the folder or file: a local path, or any URL that `open_store` takes.
        store: of the dataset's folder, or the one the record lies in; else one is opened by the URL.
        cache: keeps what is read on a local disk.
        options: for the store.

    Raises:
        InputError: if there is no dataset, or its manifest or the record's footer cannot be read.
        StoreError: if the store does not give it.
    """
    text = os.fspath(url).rstrip("/")
    folder, _, name = text.rpartition("/")
    if not folder or folder.endswith(":/"):  # the root of a disk or of a store, or this folder
        folder = text.removesuffix(name) or "."
    if name.endswith(SUFFIX):
        beside = store or open_store(folder, **options)
        try:
            return Records(beside, [name], [_footer(beside, name)], None, cache)
        except (InputError, StoreError):  # a dataset may have such a name, too
            if not (store.exists(NAME) if store else beside.exists(f"{name}/{NAME}")):
                raise
    if name == NAME:
        text = folder
    store = store or open_store(text or "/", **options)
    manifest = _read_manifest(store)
    return Records(store, manifest.paths, manifest.records, manifest, cache)


def _read_manifest(store: Store) -> Manifest:
    try:
        return Manifest.from_bytes(bytes(store.read_all(NAME)))
    except MissingFile as error:
        raise _no_manifest(store) from error
    except LayoutError as error:
        raise InputError(
            "the manifest is damaged",
            code="damaged",
            path=store.where(NAME),
            found=error.reason,
            remedy="run holdfast data records repair --replica, or holdfast data records write again",
        ) from error


def _no_manifest(store: Store) -> InputError:
    try:
        records = len(store.records())
    except HoldfastError:
        records = 0  # most web servers do not list their files
    if records:
        return InputError(
            "the folder contains records but no manifest: it was lost, or the write has not finished",
            code="not-found",
            path=store.where(NAME),
            found=f"{records:,} record{'s' if records > 1 else ''}",
            remedy="run holdfast data records write again to resume, or repair --replica",
        )
    return InputError(
        "no dataset found",
        code="not-found",
        path=store.where(""),
        found=f"no {NAME}",
        expected="a folder that holdfast data records write made, or a .pcr file",
    )


def _footer(store: Store, name: str) -> Index:
    tail, size = store.tail(name, layout.MAX_FOOTER)
    try:
        return layout.decode_footer(bytes(tail), size)
    except LayoutError as error:
        raise InputError(
            "the file cannot be read as a record",
            code="damaged",
            path=store.where(name),
            found=error.reason,
            remedy="holdfast data records repair restores the footer where a manifest has it",
        ) from error


def _manifest_of(path: str, index: Index, contents: Contents) -> Manifest:
    try:
        ends = tuple(int(end) for end in contents.settings.get("scans_end", "").split(","))
    except ValueError:
        ends = ()
    if len(ends) != index.groups:
        ends = tuple(range(1, index.groups + 1))
    return Manifest(
        paths=(path,),
        records=(index,),
        scans_end=ends,
        schema=pa.schema(list(contents.columns.schema)),
        notes=dict(contents.settings),
    )


def checked_fidelity(fidelity: object, groups: int, path: str | None = None) -> int:
    """A fidelity (None and "full": the highest) as a number of groups.

    Raises:
        InputError: if the dataset does not have it.
    """
    if fidelity is None or fidelity == "full":
        return groups
    if (
        isinstance(fidelity, bool)
        or not isinstance(fidelity, (int, np.integer))
        or not 1 <= fidelity <= groups
    ):
        raise InputError(
            "the dataset does not have this fidelity",
            code="out-of-range",
            path=path,
            place="fidelity",
            found=str(fidelity),
            expected=f"1 to {groups}, or full",
        )
    return int(fidelity)


Outcome = TypeVar("Outcome")


def in_order(
    work: Callable[[int], Outcome], count: int, threads: int
) -> Generator[Outcome, None, None]:
    """Results of `work` for 0..count - 1 in order; a few more than `threads` are held at a time."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Outcome]] = deque()
        try:
            for number in range(count):
                waiting.append(pool.submit(work, number))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()
