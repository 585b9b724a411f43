"""The DuckDB of a dataset: one database in memory, and a separate connection for every query."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref

import duckdb

from holdfast.data.croissant.scanning.local_paths import remove_own
from holdfast.errors import InputError


class Engine:
    """Opened at the first query; what does not fit into memory is spilled into a temporary folder.

    Args:
        memory_limit: such as ``"4GiB"``; None for four fifths of the machine's memory.
        threads: None for one a core.
    """

    def __init__(self, memory_limit: str | None = None, threads: int | None = None) -> None:
        self._memory_limit = memory_limit
        self._threads = threads
        self._lock = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._process = 0
        self._spilled: weakref.finalize[..., Engine] | None = None

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection for one query at a time, in any thread; the caller closes it.

        Raises:
            InputError: a memory limit or number of threads that DuckDB does not take.
        """
        with self._lock:
            if (
                self._database is None or self._process != os.getpid()
            ):  # threads do not survive a fork
                self._open()
            assert self._database is not None
            return self._database.cursor()

    def _open(self) -> None:
        folder = tempfile.mkdtemp(prefix="holdfast-spill-")
        self._process = os.getpid()
        self._spilled = weakref.finalize(self, remove_own, folder, self._process)
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": folder,
            "autoinstall_known_extensions": False,
            "allow_community_extensions": False,
            "preserve_insertion_order": True,
        }
        if self._memory_limit is not None:
            config["memory_limit"] = self._memory_limit
        if self._threads is not None:
            config["threads"] = self._threads
        try:
            self._database = duckdb.connect(":memory:", config=config)
            self._database.execute("SET GLOBAL TimeZone = 'UTC'")
        except duckdb.Error as error:
            raise InputError(
                "DuckDB does not take these settings",
                code="invalid-value",
                found=f"memory_limit={self._memory_limit!r}, threads={self._threads!r}: {error}",
                expected='such as memory_limit="4GiB", threads=8',
            ) from error

    def close(self) -> None:
        """Close the database and remove what was spilled."""
        with self._lock:
            if self._database is not None and self._process == os.getpid():
                self._database.close()
            if self._spilled is not None:
                self._spilled()
            self._database = self._spilled = None
