"""Who may write a store: one ingest at a time, into a store of its own kind or an empty folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.files import Lock, LockHeldError
from holdfast.fleet.ingest_staging import STAGING
from holdfast.fleet.schema import TABLES
from holdfast.fleet.store import MANIFEST, Store, store_error, sweep

LOCK = ".lock"


def existing_store(folder: Path) -> Store | None:
    """The store in a folder; None if the folder is missing or empty.

    Raises:
        StoreError: if something else is there, or a store that real logs cannot extend.
    """
    if (folder / MANIFEST).exists():
        store = Store.open(folder)
        if store.is_simulated:
            raise store_error(
                "conflict",
                f"{folder}: cannot add a real log to a store that holds a simulated one\n"
                "  remedy: name a new or an empty folder",
            )
        return store
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
    with _only_writer(folder):
        try:
            _clear(folder)
            yield existing_store(folder)
        except OSError as error:
            raise store_error(
                "unwritable",
                f"{folder}: the store could not be written and is as it was before\n"
                f"  found: {error}\n"
                "  remedy: free some space and rerun the same command",
            ) from error
        finally:
            with suppress(OSError):  # then the next ingest clears it
                _clear(folder)


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    sweep(folder)


def _only_writer(folder: Path) -> Lock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Lock(folder / LOCK)
    except LockHeldError as error:
        raise store_error(
            "in-use",
            f"{folder}: another ingest is writing this store\n  remedy: wait until it has ended",
        ) from error
    except OSError as error:
        raise store_error(
            "unwritable", f"{folder}: the store cannot be written\n  found: {error}"
        ) from error
