"""The folder of a dataset while it is written: one writer at a time, the old records beside the new ones.

    OUT/manifest.parquet          names the records of one generation; renamed into place last
    OUT/rejected.jsonl            what was set aside, if anything was
    OUT/records-<16 hex>/NNNNNN.pcr
    OUT/.writing.lock             held by the writer, removed when it is done

A generation is a folder of records. While a new one is written, the manifest still names the old one;
when the manifest names the new one, the old one is removed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from holdfast.data.records.format import layout, manifest
from holdfast.data.records.format.layout import Contents, Image, Index, LayoutError
from holdfast.data.records.format.manifest import Manifest
from holdfast.data.records.sources import Example
from holdfast.errors import HoldfastError, InputError, StoreError
from holdfast.files import Lock, LockHeldError, draft_target, sync, write_whole

REJECTED = "rejected.jsonl"
LOCK = ".writing.lock"

_GENERATION = re.compile(r"records-[0-9a-f]{16}")
_RECORD = re.compile(r"\d{6,}\.pcr")


def generation_name(plan: int) -> str:
    """The folder of the records of a plan (64 bits)."""
    return f"records-{plan:016x}"


def record_path(generation: str, number: int) -> str:
    """The path of a record from the dataset's folder."""
    return f"{generation}/{number:06d}.pcr"


def check_target(folder: Path) -> None:
    """Refuse a folder that holds other things than a dataset; nothing is changed.

    Raises:
        InputError: if there is something else, or a file, in its place.
    """
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            "a dataset cannot be written here",
            code="unwritable",
            path=folder,
            found=error.strerror,
            expected="a new folder, an empty one, or a dataset, which is replaced",
        ) from error
    foreign = [name for name in names if not _is_own(name)]
    has_manifest = manifest.NAME in names
    if has_manifest and _read_manifest(folder) is not None:
        return  # what else its owner has put there is left alone
    if has_manifest and not any(_GENERATION.fullmatch(name) for name in names):
        foreign.insert(0, f"a {manifest.NAME} that is none of a dataset")
    if foreign:
        more = f" and {len(foreign) - 3:,} more" if len(foreign) > 3 else ""
        raise InputError(
            "the folder contains files that are not a dataset",
            code="output-exists",
            path=folder,
            found=", ".join(foreign[:3]) + more,
            expected="a new folder, an empty one, or a dataset, which is replaced",
            remedy="name another folder",
        )


def _is_own(name: str) -> bool:
    return (
        name in (manifest.NAME, REJECTED, LOCK)
        or _GENERATION.fullmatch(name) is not None
        or _is_draft(name)
    )


def _is_draft(name: str) -> bool:
    target = draft_target(name)
    return target is not None and (
        target in (manifest.NAME, REJECTED) or _RECORD.fullmatch(target) is not None
    )


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a dataset for writing; the kernel gives the lock back when its holder is killed.

    Raises:
        StoreError: if another process holds it, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / LOCK, remove=True)
    except LockHeldError:
        raise StoreError(
            f"{folder}: another process is writing this dataset\n"
            "  remedy: wait until it has ended, or name another folder"
        ) from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    with lock:
        yield


@dataclass(frozen=True)
class Stored:
    """A record on the disk, whole."""

    data: memoryview
    index: Index
    contents: Contents

    def pieces(self, row: int) -> list[memoryview]:
        """[G] the pieces of one of its images."""
        starts = self.contents.starts
        return [
            self.data[end + starts[row, group] : end + starts[row + 1, group]]
            for group, end in enumerate(self.index.ends[:-1])
        ]

    def image(self, row: int, example: Example) -> Image:
        """One of its images, with the columns that the source gives it now."""
        table = self.contents.table

        def own(name: str) -> Any:
            return table[f"pcr.{name}"][row].as_py()

        return Image(
            id=example.id,
            pieces=self.pieces(row),
            width=own("width"),
            height=own("height"),
            orientation=own("orientation"),
            reason=own("reason"),
            source_size=own("source_size"),
            stripped_size=own("stripped_size"),
            source_sum=own("source_xxh3"),
            columns=example.columns,
        )


def same(one: Index, other: Index) -> bool:
    """Whether two records are the same, byte for byte: all their sums are."""
    return layout.encode_footer(one) == layout.encode_footer(other)


class Generation:
    """The records of one plan in a dataset's folder."""

    def __init__(self, folder: Path, name: str, named: Mapping[str, Index]) -> None:
        """The folder of the records; `make` makes it.

        Args:
            folder: the dataset's folder, held for writing.
            name: of the folder of the records.
            named: path -> index of the records that the manifest in place names.
        """
        self.name = name
        self._folder = folder
        self._named = named
        self.live = any(path.startswith(f"{name}/") for path in named)

    def make(self) -> None:
        """Make the folder, empty; or leave what is there."""
        with disk_errors(self._folder):
            (self._folder / self.name).mkdir(exist_ok=True)
            sync(self._folder)

    def stored(self, number: int) -> Stored | None:
        """A record that is there and whole: every sum agrees."""
        try:
            data = (self._folder / record_path(self.name, number)).read_bytes()
            index = layout.decode_footer(data, len(data))
            contents = layout.decode_contents(data, index)
        except (OSError, LayoutError):
            return None
        stored = Stored(memoryview(data), index, contents)
        sums = (
            xxhash.xxh3_64_intdigest(stored.data[slice(*index.region(region))])
            for region in range(index.groups + 1)
        )
        return stored if tuple(sums) == index.sums else None

    def fits(self, number: int, index: Index | None) -> bool:
        """Whether a record (None: none of this number) may be put in place without hurting readers.

        In a generation that the manifest names, only what the manifest says may take a record's place.
        """
        if not self.live:
            return True
        named = self._named.get(record_path(self.name, number))
        if index is None or named is None:
            return index is named
        return same(index, named)

    def put(self, number: int, parts: list[bytes | memoryview]) -> None:
        """Put a record in place, whole, on the disk."""
        with disk_errors(self._folder):
            write_whole(self._folder / record_path(self.name, number), *parts)


def live_manifest(folder: Path) -> Manifest | None:
    """The manifest in place; None if there is none that can be read."""
    return _read_manifest(folder)


def publish(folder: Path, made: Manifest, rejected: bytes) -> int:
    """Make a manifest that of the dataset, then remove what it does not name.

    Args:
        folder: the dataset's folder, held for writing.
        made: names records that are all in place.
        rejected: what `rejected.jsonl` shall hold; nothing: no such file.

    Returns:
        Bytes of the manifest.
    """
    data = made.to_bytes()
    with disk_errors(folder):
        if rejected:
            _put(folder / REJECTED, rejected)
        _put(folder / manifest.NAME, data)
        if not rejected:
            (folder / REJECTED).unlink(missing_ok=True)
        _remove_all_but(folder, frozenset(made.paths))
        sync(folder)
    return len(data)


def sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed; the caller holds the lock."""
    with disk_errors(folder):
        for place in (folder, *_generations(folder)):
            for entry in list(place.iterdir()):
                if _is_draft(entry.name):
                    entry.unlink(missing_ok=True)


def _put(path: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return
    write_whole(path, data)


def _remove_all_but(folder: Path, paths: frozenset[str]) -> None:
    """Remove records that no longer belong to the dataset, and folders that become empty."""
    for generation in _generations(folder):
        for entry in list(generation.iterdir()):
            is_named = f"{generation.name}/{entry.name}" in paths
            if _RECORD.fullmatch(entry.name) and not is_named:
                entry.unlink()
        with contextlib.suppress(OSError):  # not empty: somebody's file lies there
            generation.rmdir()


def _generations(folder: Path) -> list[Path]:
    return [
        entry
        for entry in sorted(folder.iterdir())
        if _GENERATION.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
    ]


def _read_manifest(folder: Path) -> Manifest | None:
    try:
        return Manifest.from_bytes((folder / manifest.NAME).read_bytes())
    except (OSError, LayoutError):
        return None


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk and its like into an error that says what has become of the dataset."""
    try:
        yield
    except OSError as error:
        raise _unwritable(folder, error) from error
    except HoldfastError as error:  # of a file written whole
        if isinstance(error.__cause__, OSError):
            raise _unwritable(folder, error.__cause__) from error
        raise


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{folder}: the dataset cannot be written; what the manifest names is as it was before\n"
        f"  found: {error.strerror}\n"
        "  remedy: make room, or make it writable, and rerun the same command: "
        "it resumes where it stopped"
    )
