"""Logs that are being written, followed: each look reads what is new and commits it to the store.

Of a file that grows only its new bytes are read (`ingest_growth`); a file in a format that makes sense
only as a whole is read again when it changes. How far each was read stands in `store.json`, so it
changes with the rows in one step and outlives the process. What is read twice adds nothing twice: rows
have keys, and what was rejected in lines that are read again is replaced.

A file is known by what it begins with and by its place on the disk: it may be renamed (log rotation)
and goes on where it was; one that was cut off or replaced is read from its beginning.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.fleet.formats import recognise
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.opening import first_bytes
from holdfast.fleet.ingest_access import disk_errors, existing_store, only_writer
from holdfast.fleet.ingest_commit import commit
from holdfast.fleet.ingest_growth import (
    Form,
    Growth,
    Piece,
    continues,
    count_lines,
    end_of_settled,
    form_of,
    growth_of,
    mark,
    pieces,
)
from holdfast.fleet.ingest_staging import STAGING, Stage, fingerprint
from holdfast.fleet.ingestion import files_under, zone_of
from holdfast.fleet.store import MANIFEST, Store, sweep

MOST_REJECTED = 0.01
"""Share of a file's records above which rejects are told as a problem."""

_ROWS = ("attempts", "health", "node_outages", "controller_events", "nodes", "qos")
_COUNTED = ("rows", "steps", "rejected")

Entry = dict[str, Any]
State = tuple[int, int, int]
"""Inode, size and time of change of a file."""


@dataclass(frozen=True)
class Look:
    """What one look at the logs found."""

    rows: int
    """Rows that were read; some may replace what the store had."""
    files: int
    """Files that are followed."""
    problems: Mapping[str, str]
    """Path -> what is wrong with the file, for those that cannot be read as they are."""
    committed: bool
    """Whether the store has changed."""


@dataclass(frozen=True)
class _Reading:
    """What was read of one file and waits for the commit."""

    entry: Entry
    stages: list[Stage]
    superseded: dict[str, int]
    rows: int


@dataclass
class Follower:
    """Follows files and the files in folders into one store.

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
    """Each file as it was when it was last read."""
    _waiting: set[Path] = field(default_factory=set)
    """Files of which something was left for the next look."""
    _problems: dict[Path, str] = field(default_factory=dict)

    def look(self) -> Look:
        """Read what is new.

        Returns:
            how much it was, and which files cannot be read: they are left alone until they change.

        Raises:
            StoreError: if the store cannot be written, or something else writes it just now.
            InputError: if there is no such time zone.
        """
        state = _states(self._files())
        for gone in (self._seen.keys() | self._problems.keys()) - state.keys():
            self._seen.pop(gone, None)
            self._problems.pop(gone, None)
        if not (self.store / MANIFEST).exists():
            self._seen.clear()
        changed = {path for path in state if state[path] != self._seen.get(path)}
        todo = [path for path in state if path in changed or path in self._waiting]
        rows, committed = 0, False
        if todo or not (self.store / MANIFEST).exists():
            with only_writer(self.store), disk_errors(self.store):
                sweep(self.store)
                rows, committed = self._read(todo, changed, state)
        return Look(rows, len(state), self._troubles(), committed)

    def _files(self) -> Iterator[Path]:
        for path in self.paths:
            if path.is_dir():
                yield from files_under(path, self.store)
            elif path.exists():
                yield from self._rotated(path)
                yield path

    def _rotated(self, path: Path) -> Iterator[Path]:
        """The file that was at a path before, if it was renamed with something left to read."""
        for entry in _entries(_manifest(self.store)):
            growth = growth_of(entry)
            if growth is None or entry["path"] != str(path):
                continue
            if growth.inode == path.stat().st_ino:
                continue
            for other in path.parent.iterdir():
                if other.is_file() and other != path and other.stat().st_ino == growth.inode:
                    yield other

    def _troubles(self) -> dict[str, str]:
        told = {str(path): text for path, text in self._problems.items()}
        for entry in _entries(_manifest(self.store)):
            read, rejected = entry["rows"] + entry["steps"], entry["rejected"]
            if entry.get("watched") and rejected > MOST_REJECTED * (read + rejected):
                text = f"{rejected:,} of {read + rejected:,} records could not be used"
                told.setdefault(entry["path"], text)
        return told

    # --- Reading ---------------------------------------------------------------------------------

    def _read(
        self,
        todo: Sequence[Path],
        changed: set[Path],
        state: Mapping[Path, State],
    ) -> tuple[int, bool]:
        """Read the files and commit: rows, and whether the store changed."""
        old = existing_store(self.store)
        entries = _entries(old)
        zone = self.timezone or (str(old.facts["timezone"]) if old else "UTC")
        options = ReadOptions(timezone=zone_of(zone), cluster=self.cluster)
        _clear(self.store)
        readings: list[_Reading] = []
        for path in todo:
            self._problems.pop(path, None)
            self._waiting.discard(path)
            reader = _Reader(self.store, path, len(readings), options, zone, path not in changed)
            try:
                reading = reader.read(entries)
            except Exception as error:  # one bad file must not keep the others out
                reader.discard()
                self._problems[path] = _sentence(path, error)
            else:
                if reader.waits:
                    self._waiting.add(path)
                if reading is not None:
                    readings.append(reading)
            self._seen[path] = state[path]
        committed = old is None or any(reading.stages for reading in readings)
        if committed:
            for reading in readings:
                _replace(entries, reading.entry)
            superseded = {k: v for reading in readings for k, v in reading.superseded.items()}
            stages = [stage for reading in readings for stage in reading.stages]
            facts = {"sources": self._folded(entries), "timezone": zone}
            commit(self.store, old, stages, facts, superseded)
        _clear(self.store)
        return sum(reading.rows for reading in readings), committed

    def _folded(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries, those of followed files that are gone as one for each folder and format."""
        kept: list[Entry] = []
        sums: dict[tuple[str, str], Entry] = {}
        for entry in entries:
            gone = entry.get("watched") and not Path(entry["path"]).exists()
            if not gone and not entry.get("files_gone"):
                kept.append(entry)
                continue
            folder = entry["path"] if entry.get("files_gone") else str(Path(entry["path"]).parent)
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
            total["files_gone"] += entry.get("files_gone", 1)
            for name in _COUNTED:
                total[name] += entry[name]
        return [*kept, *sums.values()]


class _Reader:
    """Reads what is new of one file."""

    def __init__(
        self,
        store: Path,
        path: Path,
        number: int,
        options: ReadOptions,
        zone: str,
        quiet: bool,
    ) -> None:
        self.store, self.path, self.options, self.quiet = store, path, options, quiet
        self.settings = (zone, options.cluster, (None, None), *[None] * 5)
        self.stages = {
            settled: Stage(store, f"follow-{number}-{name}")
            for settled, name in ((True, "settled"), (False, "tail"))
        }
        self.waits = False

    def discard(self) -> None:
        """Forget what was staged."""
        for stage in self.stages.values():
            stage.discard()

    def read(self, entries: Sequence[Entry]) -> _Reading | None:
        """What is new; None if nothing is.

        Raises:
            InputError: if the file is in no known format or cannot be read.
        """
        if not first_bytes(self.path).strip():
            return None
        entry = self._entry(entries)
        known = self._format(entry)
        form = form_of(self.path, known.name, self.options.delimiter)
        if form is None:
            return self._whole(known, entries)
        if entry is not None:
            return self._grown(known, form, growth_of(entry), entry)
        key = fingerprint(self.path, known.name, self.settings)
        growth = self._ingested_before(key, form, entries)
        self.quiet = self.quiet or growth is not None
        return self._grown(known, form, growth, entry)

    def _format(self, entry: Entry | None) -> Format:
        found = recognise(self.path)
        if found is None:
            raise InputError(
                "unknown log format",
                code="unknown-format",
                path=self.path,
                remedy="move it out of the folder that is watched",
            )
        if entry is not None and entry["format"] != found.name:
            raise InputError(
                "the file was in another format before",
                code="conflict",
                path=self.path,
                found=found.name,
                expected=str(entry["format"]),
                remedy="give it another name",
            )
        return found

    def _entry(self, entries: Sequence[Entry]) -> Entry | None:
        """What the store knows of this file: by its place on the disk, or by its path."""
        found = self.path.stat()
        place = (found.st_dev, found.st_ino)
        candidates = []
        for entry in entries:
            growth = growth_of(entry)
            if growth is None:
                continue
            here = (growth.device, growth.inode) == place
            if (here or entry["path"] == str(self.path)) and continues(self.path, growth):
                candidates.append((here, growth.offset, entry))
        return max(candidates, key=lambda each: each[:2])[2] if candidates else None

    def _ingested_before(self, key: str, form: Form, entries: Sequence[Entry]) -> Growth | None:
        """Where to go on with a file that `ingest` has read to its end, not by following it."""
        for entry in entries:
            if entry["fingerprint"] == key:
                offset = end_of_settled(self.path, form)
                counts = {name: int(entry[name]) for name in _COUNTED}
                return mark(self.path, offset, count_lines(self.path, offset), offset, counts)
        return None

    def _grown(
        self, known: Format, form: Form, growth: Growth | None, entry: Entry | None
    ) -> _Reading | None:
        """Read on from what is settled."""
        offset, line = (0, 0) if growth is None else (growth.offset, growth.line)
        counts = dict.fromkeys(_COUNTED, 0) if growth is None else dict(growth.counts)
        tail_before = {} if entry is None else {n: entry[n] - counts[n] for n in _COUNTED}
        superseded = {}
        if entry is not None and tail_before["rejected"]:
            superseded[str(entry["path"])] = line + 1
        end, taken = offset, 0
        with TemporaryDirectory(prefix="holdfast-follow-") as scratch:
            for piece in pieces(self.path, form, offset, line, quiet=self.quiet):
                stage = self.stages[piece.settled]
                for batch in _parsed(known, form, piece, self.path, self.options, Path(scratch)):
                    stage.add(batch)
                end = piece.end
                if piece.settled:
                    offset, line = piece.end, piece.line + piece.data.count(b"\n")
                taken += len(piece.data)
        self.waits = self.path.stat().st_size > end
        if not taken or (growth is not None and end == growth.read and offset == growth.offset):
            self.discard()
            if entry is None or entry["path"] == str(self.path):
                return None
            return _Reading({**entry, "path": str(self.path)}, [], {}, 0)
        settled, tail = (_counts(self.stages[key]) for key in (True, False))
        if entry is None and growth is not None:  # its tail is among what was counted
            counts = {name: counts[name] - tail[name] for name in _COUNTED}
            tail_before = tail
        counts = {name: counts[name] + settled[name] for name in _COUNTED}
        new = mark(self.path, offset, line, end, counts)
        stages = [stage for stage in self.stages.values() if stage.journal.parts]
        made = {
            "path": str(self.path),
            "format": known.name,
            "fingerprint": f"followed-{new.device:x}-{new.inode:x}-{new.head}",
            **{name: counts[name] + tail[name] for name in _COUNTED},
            "facts": _facts({} if entry is None else entry["facts"], self.stages[True]),
            "growth": new.to_dict(),
            "watched": True,
        }
        rows = max(0, settled["rows"] + tail["rows"] - tail_before.get("rows", 0))
        return _Reading(made, stages, superseded, rows)

    def _whole(self, known: Format, entries: Sequence[Entry]) -> _Reading | None:
        """Read a file again from its beginning, if it is not as it was."""
        key = fingerprint(self.path, known.name, self.settings)
        if any(entry["fingerprint"] == key for entry in entries):
            return None
        stage = self.stages[True]
        for batch in known.batches(self.path, self.options, 0):
            stage.add(batch)
        counts = _counts(stage)
        made = {
            "path": str(self.path),
            "format": known.name,
            "fingerprint": key,
            **counts,
            "facts": stage.journal.facts,
            "watched": True,
        }
        return _Reading(made, [stage], {str(self.path): 0}, counts["rows"])


def _parsed(
    known: Format, form: Form, piece: Piece, path: Path, options: ReadOptions, scratch: Path
) -> Iterator[Batch]:
    """The rows of a piece; its rejects with their places in the whole file."""
    file = scratch / path.name
    file.write_bytes(form.header + piece.data)
    for batch in known.batches(file, options, 0):
        tables = dict(batch.tables)
        if "rejects" in tables and len(tables["rejects"]):
            rejects = tables["rejects"]
            lines = pc.add(rejects["line"], piece.line - form.lines)
            rejects = rejects.set_column(rejects.schema.get_field_index("line"), "line", lines)
            names = pa.array([str(path)] * len(rejects), pa.string())
            place = rejects.schema.get_field_index("source")
            tables["rejects"] = rejects.set_column(place, "source", names)
        yield Batch(tables, 0, batch.steps, batch.facts)


def _counts(stage: Stage) -> dict[str, int]:
    journal = stage.journal
    return {
        "rows": sum(journal.rows(name) for name in _ROWS),
        "steps": journal.steps,
        "rejected": journal.rows("rejects"),
    }


def _facts(before: Mapping[str, Any], stage: Stage) -> dict[str, Any]:
    """What the reader noticed so far: counts add up, of all else the last counts."""
    facts = dict(before)
    for name, value in stage.journal.facts.items():
        counted = isinstance(value, int) and not isinstance(value, bool)
        facts[name] = facts.get(name, 0) + value if counted else value
    return facts


def _replace(entries: list[Entry], made: Entry) -> None:
    """Put an entry in the place of the one that it continues."""
    growth = growth_of(made)
    for place, entry in enumerate(entries):
        before = growth_of(entry)
        moved = (
            growth is not None
            and before is not None
            and (before.device, before.inode, before.head)
            == (growth.device, growth.inode, growth.head)
        )
        if moved or (entry["path"] == made["path"] and entry["format"] == made["format"]):
            entries[place] = made
            return
    entries.append(made)


def _states(paths: Iterable[Path]) -> dict[Path, State]:
    """What tells that a file has changed, in the order of the paths; without those just removed."""
    states: dict[Path, State] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.stat()
            states[path] = (found.st_ino, found.st_size, found.st_mtime_ns)
    return states


def _manifest(store: Path) -> Store | None:
    return Store.open(store) if (store / MANIFEST).exists() else None


def _entries(store: Store | None) -> list[Entry]:
    return [] if store is None else [dict(entry) for entry in store.facts["sources"]]


def _clear(store: Path) -> None:
    """Remove what an earlier look left staged; not what an interrupted ingest did."""
    for left in (store / STAGING).glob("follow-*"):
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(store / STAGING / "commit", ignore_errors=True)


def _sentence(path: Path, error: Exception) -> str:
    """What is wrong, in one line."""
    if isinstance(error, InputError):
        place = f"{error.place}: " if error.place else ""
        found = f" (found: {error.found})" if error.found else ""
        return f"{place}{error.problem}{found}"
    return " ".join(str(error).split()) or type(error).__name__
