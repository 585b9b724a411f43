"""A fleet store: a folder of Parquet files that any engine reads, and `store.json` that lists them.

`store.json` is the store: a file that it does not list does not exist for a reader. So a commit
writes new files first and then replaces `store.json` by a rename, and an interrupted one leaves
nothing but files that the next ingest removes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import StoreError
from holdfast.files import atomic_file, draft_target
from holdfast.fleet.schema import STORE_VERSION, TABLES

MANIFEST = "store.json"
PARQUET_END = b"PAR1"
SIMULATION = "simulation"
"""The format of the only source of a store that was simulated."""


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

    path: Path
    """The folder."""
    facts: Mapping[str, Any]
    """`store.json`: tables and their files, sources, time zone, duplicates_flag, counts ..."""

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open a store for reading.

        Raises:
            StoreError: if there is none, it is damaged, or a newer holdfast wrote it.
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
            if version <= STORE_VERSION:
                dict.items(facts["tables"])  # raises unless it is a table
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise store_error(
                "damaged",
                f"{folder / MANIFEST}: the store's list of tables cannot be read\n"
                f"  found: {error}\n"
                "  remedy: ingest the logs again into a new store",
            ) from error
        if version > STORE_VERSION:
            raise store_error(
                "newer-version",
                f"{folder}: a newer holdfast wrote this store\n"
                f"  found: store version {version}\n"
                f"  expected: version {STORE_VERSION} or older\n"
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
            if file.is_file() and _is_whole(file):
                continue
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
    listed: set[Path] = set()
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
