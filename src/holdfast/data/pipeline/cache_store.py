"""Samples that are computed once: a cache in memory or on disk, by the sample's position in the source.

A store only ever saves work: what is absent, stale, torn or beyond the budget is a miss, and the sample is
computed again. Samples are stored as bytes, so that a stage that changes its input in place cannot change
the cache.

A cache is an SQLite database: on disk one file in a folder, named by the key of source and stages, with a
checksum per sample. SQLite writes samples whole or not at all, lets several processes fill one file, and
ends a file at its budget.
"""

from __future__ import annotations

import pickle
import sqlite3
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.data.pipeline.encoding import decode, encode
from holdfast.errors import InputError

PAGE = 4096
# Time to wait for another process that writes.
PATIENCE_S = 30.0
SUFFIX = ".samples"
COLUMNS = "(position INTEGER PRIMARY KEY, checksum INTEGER, data BLOB)"


class Store:
    """A cache of at most `budget` bytes: in a folder, where it outlives the process, or in memory.

    Args:
        folder: made if there is none; None: in memory, where samples may be of any type.
        key: of the source and of the stages below the cache; files of other keys are removed.
        budget: bytes.

    Raises:
        InputError: `conflict` if the folder holds other files, `unwritable` if it cannot be written.
    """

    def __init__(self, folder: Path | None, key: str, budget: float) -> None:
        self._path = folder / f"{key[:40]}{SUFFIX}" if folder else Path(":memory:")
        self._key, self._budget = key, budget
        self._encode, self._decode = (encode, decode) if folder else (pickle.dumps, pickle.loads)
        self._lock = threading.RLock()
        self._full = False
        # Samples, or files, that were damaged; files of other sources or stages.
        self.torn = self.stale = 0
        # The type of a sample that cannot be stored: nothing more is stored.
        self.refused: str | None = None
        try:
            if folder:
                self._clean(folder)
            self._database = self._open()
        except (OSError, sqlite3.OperationalError) as error:
            raise InputError(
                "the cache cannot be written", code="unwritable", path=folder, found=str(error)
            ) from error

    def _clean(self, folder: Path) -> None:
        """Remove the files of other keys."""
        folder.mkdir(parents=True, exist_ok=True)
        others = [path for path in sorted(folder.iterdir()) if path.stem != self._path.stem]
        if foreign := [path.name for path in others if not path.suffix.startswith(SUFFIX)]:
            raise InputError(
                "this folder is not a cache",
                code="conflict",
                path=folder,
                found=foreign[0],
                remedy="name a separate folder, which need not exist",
            )
        for path in others:
            self.stale += path.suffix == SUFFIX
            path.unlink(missing_ok=True)

    def get(self, position: int) -> tuple[Any] | None:
        """The sample, in a tuple of one; None if it is absent."""
        query = "SELECT checksum, data FROM samples WHERE position = ?"
        for checksum, data in self._execute(query, [position]):
            if type(data) is bytes and checksum == self._checksum(position, data):
                return (self._decode(data),)
            self.torn += 1
            self._execute("DELETE FROM samples WHERE position = ?", [position])
        return None

    def put(self, position: int, sample: Any) -> None:
        """Store a sample, if there is room."""
        if self._full:
            return
        try:
            data = self._encode(sample)
        except (InputError, pickle.PicklingError, TypeError, AttributeError):
            self._full, self.refused = True, type(sample).__qualname__
            return
        row = position, self._checksum(position, data), data
        self._execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", row)

    def some(self, count: int) -> list[int]:
        """Positions of samples, drawn at random."""
        rows = self._execute("SELECT position FROM samples ORDER BY random() LIMIT ?", [count])
        return [position for (position,) in rows]

    def clear(self) -> None:
        """Forget all: it is of stages that have changed."""
        self.stale += 1
        self._execute("DELETE FROM samples")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path, timeout=PATIENCE_S, check_same_thread=False, isolation_level=None
        )
        try:
            # A power failure may tear the file: checksums find that.
            database.execute("PRAGMA synchronous = OFF")
            database.execute(f"PRAGMA max_page_count = {max(1, int(self._budget // PAGE))}")
            database.execute(f"CREATE TABLE IF NOT EXISTS samples {COLUMNS}")
        except sqlite3.OperationalError as error:
            self._full |= "full" in str(error)  # a budget of less than two pages
            if not self._full:
                raise
        except sqlite3.DatabaseError:
            database.close()
            self._remove()
            return self._open()
        return database

    def _execute(self, statement: str, values: Any = ()) -> list[Any]:
        """Rows; none if the file is full or damaged. A damaged one is begun anew."""
        with self._lock:
            try:
                return self._database.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                # A full disk ends the cache, not the training; what others write is not waited for twice.
                self._full |= "full" in str(error)
            except sqlite3.DatabaseError:
                self._database.close()
                self._remove()
                self._database = self._open()
            return []

    def _remove(self) -> None:
        self.torn += 1
        for suffix in ("", "-journal"):
            with suppress(OSError):
                Path(f"{self._path}{suffix}").unlink()

    def _checksum(self, position: int, data: bytes) -> int:
        return zlib.crc32(data, zlib.crc32(f"{self._key} {position}".encode()))
