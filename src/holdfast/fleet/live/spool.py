"""A spool: the files to which a live source appends what it got, and how far it is.

The files are in formats that `ingest` reads, so that a store fed live is the store of a bulk ingest of the
spool. First the data reach the disk, then the cursor: a writer that is killed between the two asks again
for what it has, and the store knows such rows by their identity. A line that was cut off is removed when
the spool is opened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.files import Journal, write_whole
from holdfast.fleet.ingest_staging import content_of
from holdfast.fleet.moments import moment
from holdfast.fleet.store import existing_store

ROLL_BYTES = 8 << 20
"""Size from which a file is left behind: the last one is read again whenever it grows."""

CURSOR = ".cursor.json"  # hidden from `ingest`


class Spool:
    """The folder of one source, written by one process.

    Args:
        folder: made if missing.
        clock: epoch seconds now; a new hour begins a new file.

    Attributes:
        cursor: what the source noted at its last `commit`; {} at first, and where it cannot be read.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock
        self._open: dict[str, Journal] = {}  # Stem -> the file that it grows
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("[!.]*-*"):
            with Journal(path) as file:
                file.append(b"")  # cuts what a killed writer left
        self.cursor: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            self.cursor = dict(json.loads((folder / CURSOR).read_bytes()))

    def append(self, stem: str, lines: Iterable[bytes], suffix: str, header: bytes = b"") -> None:
        """Add lines to the newest file of a stem; they are on the disk when this returns.

        Args:
            stem: what the files hold: "jobs", "health".
            lines: without their ends.
            suffix: of the file's name.
            header: the first line of each file, if its format needs one.
        """
        block = b"".join(line + b"\n" for line in lines)
        if not block:
            return
        journal = self._newest(stem, suffix)
        if header and not journal.path.stat().st_size:
            block = header + b"\n" + block
        journal.append(block)

    def _newest(self, stem: str, suffix: str) -> Journal:
        hour = f"{stem}-{moment(self._clock()):%Y%m%dT%H}"
        path = self.folder / f"{hour}-0000.{suffix}"
        for last in sorted(self.folder.glob(f"{hour}-*"))[-1:]:  # earlier ones may be gone
            is_full = last.stat().st_size >= ROLL_BYTES
            path = last.with_stem(f"{hour}-{int(last.stem[-4:]) + is_full:04d}")
        journal = self._open.get(stem)
        if journal is None or journal.path != path:
            if journal is not None:
                journal.close()
            journal = self._open[stem] = Journal(path)
        return journal

    def replace(self, name: str, content: bytes) -> None:
        """Write a file whole, unless it has this content."""
        path = self.folder / name
        if not path.exists() or path.read_bytes() != content:
            write_whole(path, content)

    def commit(self, **cursor: Any) -> None:
        """Note how far the source is, after its data."""
        self.cursor |= cursor
        write_whole(self.folder / CURSOR, json.dumps(self.cursor).encode())

    def prune(self, store: Path, keep_s: float) -> None:
        """Remove files that have not grown for `keep_s` and that the store has read to their ends."""
        known = existing_store(store)
        sources = known.facts["sources"] if known else ()
        read = {each["path"]: each["facts"].get("content") for each in sources}
        growing = {journal.path for journal in self._open.values()}
        for path in set(self.folder.glob("[!.]*-*")) - growing:
            is_old = path.stat().st_mtime < self._clock() - keep_s
            if is_old and read.get(str(path)) == content_of(path):
                path.unlink()

    def close(self) -> None:
        """Let another process write."""
        for journal in self._open.values():
            journal.close()
        self._open.clear()
