"""A fleet store: a folder of Parquet files that any engine reads, and `store.json` that lists them.

`store.json` is the store: a file that it does not list does not exist for a reader. So a commit
writes new files first and then replaces `store.json` by a rename, and an interrupted one leaves
nothing but files that the next ingest removes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from holdfast.errors import StoreError
from holdfast.files import Lock, LockHeldError, atomic_file, draft_target
from holdfast.fleet.schema import STORE_VERSION, TABLES

MANIFEST = "store.json"
LOCK = ".lock"
STAGING = ".staging"  # What an ingest has read until it commits
PARQUET_END = b"PAR1"
SIMULATION = "simulation"  # The format of the only source of a store that was simulated


def store_error(code: str, text: str) -> StoreError:
    """A `StoreError` whose code says what a caller can do about it.

    Args:
        code: ``not-found``, ``damaged``, ``newer-version``, ``older-version``, ``output-exists``,
            ``conflict`` (a simulated and a real log), ``in-use`` or ``unwritable``.
        text: the message: the folder, what was found, the remedy.
    """
    error = StoreError(text)
    error.code = code
    return error


@dataclass(frozen=True)
class Store:
    """An opened store."""

    path: Path  # The folder
    # `store.json`: tables and their files, sources, time zone, duplicates_flag, counts ...
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open a store for reading.

        Raises:
            StoreError: if there is none, it is damaged, or a holdfast of another version wrote it.
        """
        folder = Path(path)
        if not (folder / MANIFEST).is_file():
            what = "is not a fleet store" if folder.exists() else "does not exist"
            raise store_error(
                "not-found",
                f"{folder}: the store {what}\n"
                f"  expected: a folder with {MANIFEST}\n"
                f"  remedy: make one with `holdfast fleet ingest LOG... -o {folder}`",
            )
        try:
            facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            version = int(facts["version"])
            if version == STORE_VERSION:
                dict.items(facts["tables"])  # raises unless it is a table
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise store_error(
                "damaged",
                f"{folder / MANIFEST}: the store's list of tables cannot be read\n"
                f"  found: {error}\n"
                "  remedy: ingest the logs again into a new store",
            ) from error
        if version != STORE_VERSION:
            raise store_error(
                "newer-version" if version > STORE_VERSION else "older-version",
                f"{folder}: another version of holdfast wrote this store\n"
                f"  found: store version {version}\n"
                f"  expected: version {STORE_VERSION}\n"
                "  remedy: upgrade holdfast, or ingest the logs again into a new store",
            )
        return cls(folder, facts)

    @property
    def is_simulated(self) -> bool:
        """Whether its log was simulated, not written by a cluster."""
        sources = self.facts.get("sources", [])
        return any(source.get("format") == SIMULATION for source in sources)

    def files(self, name: str) -> list[Path]:
        """The Parquet files of a table.

        Raises:
            StoreError: if one of them is missing or cut off.
        """
        files = [self.path / part for part in self.facts["tables"].get(name, [])]
        for file in files:
            if not file.is_file() or not _is_whole(file):
                damage = "cannot be read: it is cut off or overwritten"
                raise store_error(
                    "damaged",
                    f"{file}: a file of the store {damage if file.is_file() else 'is missing'}\n"
                    "  remedy: ingest the logs again into a new store",
                )
        return files


def _is_whole(file: Path) -> bool:
    """Whether a Parquet file ends as one does."""
    with file.open("rb") as opened:
        opened.seek(0, os.SEEK_END)
        opened.seek(max(opened.tell() - len(PARQUET_END), 0))
        return opened.read() == PARQUET_END


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Replace `store.json`: this is the moment at which a commit happens."""
    text = json.dumps({"version": STORE_VERSION, **facts}, indent=1, sort_keys=True)
    with atomic_file(folder / MANIFEST) as file:
        file.write(f"{text}\n".encode())


def sweep(folder: Path) -> None:
    """Remove the Parquet files that an interrupted commit left behind."""
    listed = set()
    if (folder / MANIFEST).is_file():
        store = Store.open(folder)
        listed = {folder / part for parts in store.facts["tables"].values() for part in parts}
    for name in TABLES:
        for file in (folder / name).glob("*"):
            if file not in listed and file.suffix == ".parquet":
                file.unlink()
    for file in folder.glob(".*.part"):
        if draft_target(file.name) == MANIFEST:
            file.unlink()


# --- Writing: one ingest at a time, into a store of its own kind or an empty folder ----------------


def existing_store(folder: Path) -> Store | None:
    """The store in a folder; None if the folder is missing or empty.

    Raises:
        StoreError: if something else is there, or a store that real logs cannot extend.
    """
    if (folder / MANIFEST).exists():
        store = Store.open(folder)
        if not store.is_simulated:
            return store
        raise store_error(
            "conflict",
            f"{folder}: cannot add a real log to a store that holds a simulated one\n"
            "  remedy: name a new or an empty folder",
        )
    if folder.exists() and not folder.is_dir():
        raise store_error("output-exists", f"{folder}: the store path is a file")
    own = {STAGING, LOCK, *TABLES}
    if folder.is_dir() and any(entry.name not in own for entry in folder.iterdir()):
        raise store_error(
            "output-exists",
            f"{folder}: the folder is not empty and is not a store\n"
            "  remedy: name a new or an empty folder",
        )
    return None


@contextmanager
def writing(folder: Path) -> Iterator[Store | None]:
    """Hold the store for writing: gives it as it is, without what an interrupted ingest left.

    Raises:
        StoreError: if another ingest holds it, or it cannot be written; it is then as it was before.
    """
    existing_store(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Lock(folder / LOCK):
            _clear(folder)
            try:
                yield existing_store(folder)
            finally:
                with suppress(OSError):  # then the next ingest clears it
                    _clear(folder)
    except LockHeldError as error:
        raise store_error(
            "in-use",
            f"{folder}: another ingest is writing this store\n  remedy: wait until it has ended",
        ) from error
    except (OSError, duckdb.IOException) as error:
        raise store_error(
            "unwritable",
            f"{folder}: the store could not be written and is as it was before\n"
            f"  found: {error}\n"
            "  remedy: free some space and rerun the same command",
        ) from error


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    sweep(folder)
