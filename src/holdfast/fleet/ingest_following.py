"""Files and folders that are watched: what changed since the last look goes to the store.

A new or changed file is ingested again: what the store has already is not added twice, and rejects of
the file are replaced. `sacct` is a query, so a spool of its answers is such a folder. Of logs that are
written line by line (JSON lines, slurmctld.log) only the new lines are read. How far such a log was read
stands in its entry in `store.json`, which changes with the rows in one step and outlives the process. It
is known by its beginning: cut off or replaced, it is read anew. Of a file that is watched by its name,
the rotated ones beside it (``.1``, ``-20260101.gz``) are read too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.errors import InputError
from holdfast.fleet.formats import detect
from holdfast.fleet.formats.batch import Format, ReadOptions
from holdfast.fleet.ingest_access import existing_store, writing
from holdfast.fleet.ingest_commit import commit
from holdfast.fleet.ingest_staging import Stage, fingerprint
from holdfast.fleet.ingestion import files_under, source_entry, zone_of
from holdfast.fleet.store import MANIFEST, Store
from holdfast.opening import first_bytes, is_compressed

MOST_REJECTED = 0.01
"""Share of a file's records above which rejects are reported as a problem."""
_HEAD_BYTES = 4096
_TAIL_BYTES = 1 << 20

_JSON_LINES = ("health-jsonl", "gcm", "nvsentinel")
_LINES = (*_JSON_LINES, "slurmctld")
"""Formats in which every line is a record by itself."""

Entry = dict[str, Any]
State = tuple[int, int, int]
"""Inode, size and time of change of a file."""


@dataclass(frozen=True)
class Look:
    """What one look at the logs found."""

    rows: int = 0
    """Rows that the store has more."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Path -> what is wrong with the file, for those that are not in the store as they are."""
    committed: bool = False
    """Whether the store has changed."""


@dataclass
class Follower:
    """Brings files, and the files in folders, into one store whenever they change.

    Args:
        paths: files, which need not be there yet, and folders.
        store: the folder of the store; made by the first look if it is missing.
        timezone: zone of times that are written without one; None: the store's, or UTC.
        cluster: name for sources that carry none.
    """

    paths: Sequence[Path]
    store: Path
    timezone: str | None = None
    cluster: str = ""
    _seen: dict[Path, State] = field(default_factory=dict)
    """Each file as it was at the last look."""
    _done: dict[Path, State] = field(default_factory=dict)
    """Each file as it was when it was last read to its end."""
    _problems: dict[Path, str] = field(default_factory=dict)

    def look(self) -> Look:
        """Read what is new.

        Returns:
            how much it was, and which files cannot be read (they are left alone until they change) or
            do not fit into the store (they are tried again at every look).

        Raises:
            StoreError: if the store cannot be written, or something else writes it just now.
            InputError: if the time zone is unknown.
        """
        now, before = self._states(), self._seen
        self._seen = now
        self._problems = {path: text for path, text in self._problems.items() if path in now}
        is_new = not (self.store / MANIFEST).exists()
        if is_new:
            self._done.clear()
        changed = [path for path, state in now.items() if state != self._done.get(path)]
        committed, rows = False, 0
        if changed or is_new:
            with writing(self.store) as old:
                committed = self._read(old, changed, before)
                rows = _rows(existing_store(self.store)) - _rows(old)
        return Look(rows, self._troubles(), committed)

    def _states(self) -> dict[Path, State]:
        """What tells that a file has changed; without files that were just removed."""
        states: dict[Path, State] = {}
        for path in self._files():
            with suppress(FileNotFoundError):
                found = path.stat()
                states[path] = (found.st_ino, found.st_size, found.st_mtime_ns)
        return states

    def _files(self) -> Iterator[Path]:
        for path in self.paths:
            if path.is_dir():
                yield from files_under(path, self.store)
            else:
                yield from sorted(path.parent.glob(f"{escape(path.name)}[.-][0-9]*"))
                yield path

    def _troubles(self) -> dict[str, str]:
        found = {str(path): text for path, text in self._problems.items()}
        for entry in _entries(existing_store(self.store)):
            every, rejected = entry["rows"] + entry["steps"] + entry["rejected"], entry["rejected"]
            if entry.get("watched") and rejected > MOST_REJECTED * every:
                text = f"{rejected:,} of {every:,} records could not be used"
                found.setdefault(entry["path"], text)
        return found

    def _read(self, old: Store | None, paths: Sequence[Path], before: Mapping[Path, State]) -> bool:
        """Read the files and commit; whether the store changed."""
        zone = self.timezone or (str(old.facts["timezone"]) if old else "UTC")
        options = ReadOptions(timezone=zone_of(zone), cluster=self.cluster)
        read: list[tuple[Entry, Stage]] = []
        for number, path in enumerate(paths):
            self._problems.pop(path, None)
            stage = Stage(self.store, f"{number}")
            quiet = self._seen[path] == before.get(path)
            try:
                entry = self._read_new(path, stage, _entries(old), options, quiet=quiet)
            except Exception as error:  # one bad file must not keep the others out
                self._problems[path] = _sentence(error)
                self._done[path] = self._seen[path]
                stage.discard()
                entry = None
            if entry is not None:
                read.append((entry, stage))
        if old is not None and not read:
            return False
        try:
            self._commit(old, read, zone)
        except InputError:  # of one file, say of an unknown cluster: each by itself
            if old is None:
                self._commit(None, [], zone)
            # Those that name clusters first: the others must fit them.
            for entry, stage in sorted(read, key=lambda each: each[1].rows("attempts") == 0):
                try:
                    self._commit(existing_store(self.store), [(entry, stage)], zone)
                except InputError as error:
                    self._problems[Path(entry["path"])] = _sentence(error)
                    self._done.pop(Path(entry["path"]), None)  # another file may tell: try again
        return True

    def _commit(self, old: Store | None, read: Sequence[tuple[Entry, Stage]], zone: str) -> None:
        again = {entry["path"] for entry, _ in read}
        # Files of a spool that are gone are forgotten: their rows stay, the list of sources stays short.
        kept = [
            entry
            for entry in _entries(old)
            if entry["path"] not in again
            and (not entry.get("watched") or Path(entry["path"]).exists())
        ]
        facts = {"sources": kept + [entry for entry, _ in read], "timezone": zone}
        anew = {entry["path"] for entry, _ in read if not entry.get("growth", {}).get("start")}
        commit(self.store, old, [stage for _, stage in read], facts, anew)

    def _read_new(
        self,
        path: Path,
        stage: Stage,
        entries: Sequence[Entry],
        options: ReadOptions,
        *,
        quiet: bool,
    ) -> Entry | None:
        """The entry of a file whose new rows are staged; None if nothing is new, or it is being written.

        Raises:
            InputError: if the file is in no known format or cannot be read.
        """
        state = self._seen[path]
        if not first_bytes(path).strip():
            self._done[path] = state
            return None
        known = detect(path)
        before: Entry = {}
        growth: Entry = {}
        if known.name in _LINES and not is_compressed(path):
            before = next((entry for entry in entries if _continues(path, known, entry)), {})
            start = before["growth"]["offset"] if before else 0
            end = _last_line_end(path, loose=quiet and known.name in _JSON_LINES)
            head = _digest(path, min(_HEAD_BYTES, end))
            key = f"followed-{head}"
            growth = {"start": start, "offset": end, "head": head}
            is_new = start < end
            options = replace(options, start=start, end=end)
        else:
            end = state[1]
            # Until a line's end it is being written, unless nothing has come since the last look.
            if not (quiet or is_compressed(path) or _last_line_end(path) == end):
                return None
            key = fingerprint(path, known.name, _settings(options))
            is_new = not any(entry["fingerprint"] == key for entry in entries)
        if quiet or end == state[1]:
            self._done[path] = state
        if not is_new:
            return None
        stage.facts = dict(before.get("facts", {}))
        for batch in known.batches(path, options):
            stage.add(batch)
        entry = {**source_entry(path, known.name, key, stage), "watched": True}
        for name in ("rows", "steps", "rejected"):
            entry[name] += before.get(name, 0)
        return {**entry, "growth": growth} if growth else entry


def _continues(path: Path, known: Format, entry: Entry) -> bool:
    """Whether an entry is of this log, as it was when it was shorter."""
    growth = entry.get("growth", {})
    return (
        (entry["path"], entry["format"]) == (str(path), known.name)
        and path.stat().st_size >= growth.get("offset", 0) > 0
        and _digest(path, min(_HEAD_BYTES, growth["offset"])) == growth["head"]
    )


def _last_line_end(path: Path, *, loose: bool = False) -> int:
    """Bytes up to the end of the last whole line; `loose`: JSON needs no line break to be whole."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        low = max(size - _TAIL_BYTES, 0)
        file.seek(low)
        tail = file.read()
    cut = tail.rfind(b"\n") + 1
    if loose and tail[cut:]:
        with suppress(ValueError):
            json.loads(tail[cut:])
            return size
    return low + cut if cut else 0


def _settings(options: ReadOptions) -> tuple[object, ...]:
    """The settings of an `ingest` with the same options: a file that it read is known."""
    return (str(options.timezone), options.cluster, (None, None), *[None] * 5)


def _digest(path: Path, count: int) -> str:
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(count), digest_size=12).hexdigest()


def _entries(store: Store | None) -> list[Entry]:
    return [] if store is None else [dict(entry) for entry in store.facts["sources"]]


def _rows(store: Store | None) -> int:
    if store is None:
        return 0
    tables = ("attempts", "health", "node_outages", "controller_events", "qos")
    files = [file for name in tables for file in store.files(name)]
    return sum(pq.read_metadata(file).num_rows for file in files)


def _sentence(error: Exception) -> str:
    """What is wrong, in one line."""
    if isinstance(error, InputError):
        place = f"{error.place}: " if error.place else ""
        found = f" (found: {error.found})" if error.found else ""
        return f"{place}{error.problem}{found}"
    return " ".join(str(error).split()) or type(error).__name__
