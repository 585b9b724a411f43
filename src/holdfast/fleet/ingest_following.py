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
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.errors import InputError
from holdfast.fleet.formats import recognise
from holdfast.fleet.formats.batch import Format, ReadOptions
from holdfast.fleet.ingest_access import disk_errors, existing_store, only_writer
from holdfast.fleet.ingest_commit import commit
from holdfast.fleet.ingest_staging import STAGING, Stage, fingerprint
from holdfast.fleet.ingestion import files_under, source_entry, zone_of
from holdfast.fleet.store import MANIFEST, Store, sweep
from holdfast.opening import first_bytes, is_compressed

MOST_REJECTED = 0.01
"""Share of a file's records above which rejects are reported as a problem."""
_HEAD_BYTES = 4096
_TAIL_BYTES = 1 << 20

_JSON_LINES = ("health-jsonl", "gcm", "nvsentinel")
_LINES = (*_JSON_LINES, "slurmctld")
"""Formats in which every line is a record by itself."""
_COUNTED = ("rows", "steps", "rejected")

Entry = dict[str, Any]
State = tuple[int, int, int]
"""Inode, size and time of change of a file."""


@dataclass(frozen=True)
class Look:
    """What one look at the logs found."""

    rows: int
    """Rows that the store has more."""
    files: int
    """Files that are watched."""
    problems: Mapping[str, str]
    """Path -> what is wrong with the file, for those that are not in the store as they are."""
    committed: bool
    """Whether the store has changed."""


@dataclass(frozen=True)
class _Reading:
    """What was read of one file and waits for the commit."""

    path: Path
    entry: Entry
    stage: Stage
    rejects_replaced: bool


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
            InputError: if there is no such time zone.
        """
        now, before = _states(self._files()), self._seen
        self._seen = now
        self._problems = {path: text for path, text in self._problems.items() if path in now}
        is_new = not (self.store / MANIFEST).exists()
        if is_new:
            self._done.clear()
        todo = [path for path, state in now.items() if state != self._done.get(path)]
        committed, rows = False, 0
        if todo or is_new:
            with only_writer(self.store), disk_errors(self.store):
                sweep(self.store)
                old = existing_store(self.store)
                had = _rows(old)
                committed = self._read(old, todo, before)
                rows = _rows(existing_store(self.store)) - had
        return Look(rows, len(now), self._troubles(), committed)

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
            read, rejected = entry["rows"] + entry["steps"], entry["rejected"]
            if entry.get("watched") and rejected > MOST_REJECTED * (read + rejected):
                text = f"{rejected:,} of {read + rejected:,} records could not be used"
                found.setdefault(entry["path"], text)
        return found

    # --- Reading ---------------------------------------------------------------------------------

    def _read(self, old: Store | None, todo: Sequence[Path], before: Mapping[Path, State]) -> bool:
        """Read the files and commit; whether the store changed."""
        zone = self.timezone or (str(old.facts["timezone"]) if old else "UTC")
        options = ReadOptions(timezone=zone_of(zone), cluster=self.cluster)
        _clear(self.store)
        readings: list[_Reading] = []
        for number, path in enumerate(todo):
            self._problems.pop(path, None)
            stage = Stage(self.store, f"follow-{number}")
            quiet = self._seen[path] == before.get(path)
            try:
                reading = self._reading(path, stage, _entries(old), options, quiet=quiet)
            except Exception as error:  # one bad file must not keep the others out
                self._problems[path] = _sentence(error)
                self._done[path] = self._seen[path]
                stage.discard()
                reading = None
            if reading is not None:
                readings.append(reading)
        if old is not None and not readings:
            return False
        try:
            self._commit(old, readings, zone)
        except InputError:  # of one file, say of an unknown cluster: see above
            if old is None:
                self._commit(None, [], zone)
            # Those that name clusters first: the others must fit them.
            readings.sort(key=lambda each: each.stage.journal.rows("attempts") == 0)
            for reading in readings:
                try:
                    self._commit(existing_store(self.store), [reading], zone)
                except InputError as error:
                    self._problems[reading.path] = _sentence(error)
                    self._done.pop(reading.path, None)  # another file may tell: try again
        _clear(self.store)
        return True

    def _commit(self, old: Store | None, readings: Sequence[_Reading], zone: str) -> None:
        made = [reading.entry for reading in readings]
        again = {(entry["path"], entry["format"]) for entry in made}
        kept = [e for e in _entries(old) if (e["path"], e["format"]) not in again]
        facts = {"sources": _folded([*kept, *made]), "timezone": zone}
        replaced = {str(each.path) for each in readings if each.rejects_replaced}
        commit(self.store, old, [reading.stage for reading in readings], facts, replaced)

    def _reading(
        self,
        path: Path,
        stage: Stage,
        entries: Sequence[Entry],
        options: ReadOptions,
        *,
        quiet: bool,
    ) -> _Reading | None:
        """What is new of a file; None if nothing is, or if it is being written.

        Raises:
            InputError: if the file is in no known format or cannot be read.
        """
        state = self._seen[path]
        if not first_bytes(path).strip():
            self._done[path] = state
            return None
        known = recognise(path)
        if known is None:
            raise InputError(
                "unknown log format",
                code="unknown-format",
                path=path,
                remedy="move it out of the folder that is watched",
            )
        is_lines = known.name in _LINES and not is_compressed(path)
        before: Entry = {}
        start, end = 0, state[1]
        if is_lines:
            before = next((entry for entry in entries if _continues(path, known, entry)), {})
            start = before["growth"]["offset"] if before else 0
            end = _last_line_end(path, loose=quiet and known.name in _JSON_LINES)
            key = f"followed-{_digest(path, min(_HEAD_BYTES, end))}"
        else:
            key = fingerprint(path, known.name, _settings(options))
            # Until a line's end it is being written, unless nothing has come since the last look.
            if not (quiet or is_compressed(path) or _last_line_end(path) == end):
                return None
        if quiet or end == state[1]:
            self._done[path] = state
        if start >= end or any(entry["fingerprint"] == key for entry in entries if not is_lines):
            return None
        stage.journal.facts = dict(before.get("facts", {}))
        stage.journal.steps = before.get("steps", 0)
        for batch in known.batches(path, replace(options, end=end if is_lines else None), start):
            stage.add(batch)
        entry = {**source_entry(path, known.name, key, stage), "watched": True}
        for name in ("rows", "rejected"):
            entry[name] += before.get(name, 0)
        if is_lines:
            head = min(_HEAD_BYTES, end)
            entry["growth"] = {"offset": end, "head_bytes": head, "head": _digest(path, head)}
        return _Reading(path, entry, stage, rejects_replaced=not before)


def _continues(path: Path, known: Format, entry: Entry) -> bool:
    """Whether an entry is of this log, as it was when it was shorter."""
    try:
        growth = entry["growth"]
        return (
            (entry["path"], entry["format"]) == (str(path), known.name)
            and path.stat().st_size >= growth["offset"]
            and _digest(path, growth["head_bytes"]) == growth["head"]
        )
    except (KeyError, TypeError):
        return False


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


# --- Entries of `store.json` ---------------------------------------------------------------------


def _folded(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, those of watched files that are gone as one for each folder and format."""
    kept: list[Entry] = []
    sums: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        gone = entry.get("files_gone", 0)
        if not gone and not (entry.get("watched") and not Path(entry["path"]).exists()):
            kept.append(entry)
            continue
        folder = entry["path"] if gone else str(Path(entry["path"]).parent)
        total = sums.setdefault(
            (folder, entry["format"]),
            {
                **dict.fromkeys((*_COUNTED, "files_gone"), 0),
                "path": folder,
                "format": entry["format"],
                "fingerprint": "",
                "facts": {},
            },
        )
        total["files_gone"] += gone or 1
        for name in _COUNTED:
            total[name] += entry[name]
    return [*kept, *sums.values()]


def _states(paths: Iterable[Path]) -> dict[Path, State]:
    """What tells that a file has changed, in the order of the paths; without those just removed."""
    states: dict[Path, State] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.stat()
            states[path] = (found.st_ino, found.st_size, found.st_mtime_ns)
    return states


def _entries(store: Store | None) -> list[Entry]:
    return [] if store is None else [dict(entry) for entry in store.facts["sources"]]


def _rows(store: Store | None) -> int:
    if store is None:
        return 0
    tables = ("attempts", "health", "node_outages", "controller_events", "qos")
    files = [file for name in tables for file in store.files(name)]
    return sum(pq.read_metadata(file).num_rows for file in files)


def _clear(store: Path) -> None:
    """Remove what an earlier look left staged; not what an interrupted ingest did."""
    for left in (store / STAGING).glob("follow-*"):
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(store / STAGING / "commit", ignore_errors=True)


def _sentence(error: Exception) -> str:
    """What is wrong, in one line."""
    if isinstance(error, InputError):
        place = f"{error.place}: " if error.place else ""
        found = f" (found: {error.found})" if error.found else ""
        return f"{place}{error.problem}{found}"
    return " ".join(str(error).split()) or type(error).__name__
