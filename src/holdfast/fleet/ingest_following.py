"""Files and folders that are watched: what changed since the last look goes to the store.

A changed file is ingested again: what the store has already is not added twice, and what was rejected of
the file before is replaced. Of logs that are written line by line (JSON lines, slurmctld.log) only the new
lines are read; how far such a file was read stands in its entry in `store.json`, which changes with the
rows in one step and outlives the process. A log is known by its place on the disk and by its beginning:
renamed (rotated) it continues where it was, cut off or replaced it is read from its beginning.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.fleet.formats import recognise
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.ingest_access import disk_errors, existing_store, only_writer
from holdfast.fleet.ingest_commit import commit
from holdfast.fleet.ingest_staging import STAGING, Stage, fingerprint
from holdfast.fleet.ingestion import files_under, zone_of
from holdfast.fleet.store import MANIFEST, Store, sweep
from holdfast.opening import first_bytes, is_compressed

MOST_REJECTED = 0.01
"""Share of a file's records above which rejects are told as a problem."""
CHUNK_BYTES = 32 << 20
_HEAD_BYTES = 4096

_JSON_LINES = ("health-jsonl", "gcm")
_LINES = (*_JSON_LINES, "slurmctld")
"""Formats in which every line is a record by itself."""
_ROWS = ("attempts", "health", "node_outages", "controller_events", "nodes", "qos")
_COUNTED = ("rows", "steps", "rejected")

Entry = dict[str, Any]
State = tuple[int, int, int]
"""Inode, size and time of change of a file."""


@dataclass(frozen=True)
class Look:
    """What one look at the logs found."""

    rows: int
    """Rows more than when the files were read before."""
    files: int
    """Files that are watched."""
    problems: Mapping[str, str]
    """Path -> what is wrong with the file, for those that are not in the store as they are."""
    committed: bool
    """Whether the store has changed."""


@dataclass(frozen=True)
class _Growth:
    """How far a log of lines was read; it stands in the file's entry in `store.json`."""

    device: int
    inode: int
    head_bytes: int
    head: str
    """Digest of the first `head_bytes`: tells the file from one that took its place."""
    offset: int
    """Bytes that were read."""
    line: int
    """Lines that were read."""


@dataclass(frozen=True)
class _Reading:
    """What was read of one file and waits for the commit."""

    path: Path
    entry: Entry
    stage: Stage | None
    """None: only the path of the file has changed."""
    superseded: dict[str, int]
    rows: int


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
    """Each file as it was when it was last read."""
    _waiting: set[Path] = field(default_factory=set)
    """Files of which something was left for the next look."""
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
            growth = _growth_of(entry)
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
        self, todo: Sequence[Path], changed: set[Path], state: Mapping[Path, State]
    ) -> tuple[int, bool]:
        """Read the files and commit: rows, and whether the store changed."""
        old = existing_store(self.store)
        entries = _entries(old)
        zone = self.timezone or (str(old.facts["timezone"]) if old else "UTC")
        options = ReadOptions(timezone=zone_of(zone), cluster=self.cluster)
        _clear(self.store)
        readings: list[_Reading] = []
        for number, path in enumerate(todo):
            self._problems.pop(path, None)
            self._waiting.discard(path)
            stage = Stage(self.store, f"follow-{number}")
            try:
                reading = self._reading(path, stage, entries, options, quiet=path not in changed)
            except Exception as error:  # one bad file must not keep the others out
                self._problems[path] = _sentence(error)
                reading = None
            if reading is None:
                stage.discard()
                self._seen[path] = state[path]
            else:
                readings.append(reading)
        if old is not None and not any(reading.stage for reading in readings):
            self._seen.update({reading.path: state[reading.path] for reading in readings})
            return 0, False
        try:
            self._commit(old, readings, zone)
            done = readings
        except (
            InputError
        ):  # of one file, say of an unknown cluster: it must not keep the others out
            done = []
            if old is None:
                self._commit(None, [], zone)
            # Those that name clusters first: the others must fit them.
            for reading in sorted(readings, key=lambda each: not _names_clusters(each)):
                try:
                    self._commit(existing_store(self.store), [reading], zone)
                except InputError as error:
                    self._problems[reading.path] = _sentence(error)
                    self._seen.pop(reading.path, None)  # another file may tell: try again
                else:
                    done.append(reading)
        self._seen.update({reading.path: state[reading.path] for reading in done})
        _clear(self.store)
        return sum(reading.rows for reading in done), bool(done) or old is None

    def _commit(self, old: Store | None, readings: Sequence[_Reading], zone: str) -> None:
        entries = _entries(old)
        for reading in readings:
            _replace(entries, reading.entry)
        superseded = {k: v for reading in readings for k, v in reading.superseded.items()}
        stages = [reading.stage for reading in readings if reading.stage]
        facts = {"sources": _folded(entries), "timezone": zone}
        commit(self.store, old, stages, facts, superseded)

    def _reading(
        self,
        path: Path,
        stage: Stage,
        entries: Sequence[Entry],
        options: ReadOptions,
        *,
        quiet: bool,
    ) -> _Reading | None:
        """What is new of a file; None if nothing is.

        Raises:
            InputError: if the file is in no known format or cannot be read.
        """
        if not first_bytes(path).strip():
            return None
        known = recognise(path)
        if known is None:
            raise InputError(
                "unknown log format",
                code="unknown-format",
                path=path,
                remedy="move it out of the folder that is watched",
            )
        if known.name in _LINES and not is_compressed(path):
            return self._new_lines(path, known, stage, entries, options, quiet=quiet)
        key = fingerprint(path, known.name, _settings(options))
        if any(entry["fingerprint"] == key for entry in entries):
            return None
        if not (quiet or is_compressed(path) or _ends_with_a_line(path)):
            self._waiting.add(path)  # it is being written
            return None
        for batch in known.batches(path, options, 0):
            stage.add(batch)
        entry = _entry(path, known, key, stage, {})
        same = (each for each in entries if each["path"] == str(path))
        had = max((each["rows"] for each in same), default=0)
        return _Reading(path, entry, stage, {str(path): 0}, max(entry["rows"] - had, 0))

    def _new_lines(
        self,
        path: Path,
        known: Format,
        stage: Stage,
        entries: Sequence[Entry],
        options: ReadOptions,
        *,
        quiet: bool,
    ) -> _Reading | None:
        """The lines that a log has more than when it was last read."""
        before = _entry_of(path, known, entries)
        growth = _growth_of(before)
        offset, line = (growth.offset, growth.line) if growth else (0, 0)
        superseded = {} if growth else {str(path): 0}
        with TemporaryDirectory(prefix="holdfast-follow-") as scratch:
            for data in _pieces(path, offset, loose=quiet and known.name in _JSON_LINES):
                for batch in _parsed(known, data, line, path, options, Path(scratch)):
                    stage.add(batch)
                offset += len(data)
                line += data.count(b"\n")
        if path.stat().st_size > offset:
            self._waiting.add(path)
        if growth and offset == growth.offset:
            moved = before["path"] != str(path)
            return _Reading(path, {**before, "path": str(path)}, None, {}, 0) if moved else None
        if not growth and not offset:
            return None
        new = _mark(path, offset, line)
        key = f"followed-{new.device:x}-{new.inode:x}-{new.head}"
        entry = _entry(path, known, key, stage, before if growth else {})
        rows = _counts(stage)["rows"]
        return _Reading(path, {**entry, "growth": asdict(new)}, stage, superseded, rows)


def _pieces(path: Path, offset: int, *, loose: bool) -> Iterator[bytes]:
    """Whole lines from an offset on, a bounded number of bytes at a time.

    Args:
        path: the file.
        offset: bytes that were read.
        loose: take a last line without its end, if it is whole.
    """
    with path.open("rb") as file:
        file.seek(offset)
        rest = b""
        while data := file.read(CHUNK_BYTES):
            rest += data
            cut = rest.rfind(b"\n") + 1
            if cut:
                yield rest[:cut]
            rest = rest[cut:]
    if loose and rest:
        with suppress(ValueError):
            json.loads(rest)
            yield rest


def _parsed(
    known: Format, data: bytes, line: int, path: Path, options: ReadOptions, scratch: Path
) -> Iterator[Batch]:
    """The rows of a piece; its rejects with their places in the whole file."""
    file = scratch / path.name
    file.write_bytes(data)
    for batch in known.batches(file, options, 0):
        tables = dict(batch.tables)
        if "rejects" in tables and len(tables["rejects"]):
            rejects = tables["rejects"]
            lines = pc.add(rejects["line"], line)
            rejects = rejects.set_column(rejects.schema.get_field_index("line"), "line", lines)
            names = pa.array([str(path)] * len(rejects), pa.string())
            place = rejects.schema.get_field_index("source")
            tables["rejects"] = rejects.set_column(place, "source", names)
        yield Batch(tables, 0, batch.steps, batch.facts)


def _settings(options: ReadOptions) -> tuple[object, ...]:
    """The settings of an `ingest` with the same options: a file that it read is known."""
    return (str(options.timezone), options.cluster, (None, None), *[None] * 5)


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _mark(path: Path, offset: int, line: int) -> _Growth:
    found, head_bytes = path.stat(), min(_HEAD_BYTES, offset)
    return _Growth(found.st_dev, found.st_ino, head_bytes, _digest(path, head_bytes), offset, line)


def _digest(path: Path, count: int) -> str:
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(count), digest_size=12).hexdigest()


# --- Entries of `store.json` ---------------------------------------------------------------------


def _entry(path: Path, known: Format, key: str, stage: Stage, before: Entry) -> Entry:
    """What the store notes of a file, with what it noted of the lines before."""
    counts = _counts(stage)
    facts = dict(before.get("facts", {}))
    for name, value in stage.journal.facts.items():
        counted = isinstance(value, int) and not isinstance(value, bool)
        facts[name] = facts.get(name, 0) + value if counted else value
    return {
        "path": str(path),
        "format": known.name,
        "fingerprint": key,
        **{name: counts[name] + before.get(name, 0) for name in _COUNTED},
        "facts": facts,
        "watched": True,
    }


def _growth_of(entry: Mapping[str, Any]) -> _Growth | None:
    """How far a log of lines was read; None if the entry is of no such file."""
    try:
        return _Growth(**entry["growth"])
    except (KeyError, TypeError):
        return None


def _entry_of(path: Path, known: Format, entries: Sequence[Entry]) -> Entry:
    """What the store notes of this log: by its place on the disk, or by its path; else empty."""
    found = path.stat()
    candidates = []
    for entry in entries:
        growth = _growth_of(entry)
        if growth is None or entry["format"] != known.name or found.st_size < growth.offset:
            continue
        here = (growth.device, growth.inode) == (found.st_dev, found.st_ino)
        same = here or entry["path"] == str(path)
        if same and _digest(path, growth.head_bytes) == growth.head:
            candidates.append((here, growth.offset, entry))
    return max(candidates, key=lambda each: each[:2])[2] if candidates else {}


def _replace(entries: list[Entry], made: Entry) -> None:
    """Put an entry in the place of the one that it continues."""
    growth = _growth_of(made)
    for place, entry in enumerate(entries):
        before = _growth_of(entry)
        moved = growth and before and (growth.device, growth.inode) == (before.device, before.inode)
        if moved or (entry["path"] == made["path"] and entry["format"] == made["format"]):
            entries[place] = made
            return
    entries.append(made)


def _folded(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, those of watched files that are gone as one for each folder and format."""
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


def _names_clusters(reading: _Reading) -> bool:
    return reading.stage is not None and reading.stage.journal.rows("attempts") > 0


def _counts(stage: Stage) -> dict[str, int]:
    journal = stage.journal
    return {
        "rows": sum(journal.rows(name) for name in _ROWS),
        "steps": journal.steps,
        "rejected": journal.rows("rejects"),
    }


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


def _sentence(error: Exception) -> str:
    """What is wrong, in one line."""
    if isinstance(error, InputError):
        place = f"{error.place}: " if error.place else ""
        found = f" (found: {error.found})" if error.found else ""
        return f"{place}{error.problem}{found}"
    return " ".join(str(error).split()) or type(error).__name__
