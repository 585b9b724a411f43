"""Files and folders that are watched: a file that has changed is ingested again, whole.

What the store has already is not added twice, and rejects of the file are replaced. `sacct` is a query, so
a spool of its answers is such a folder. Of a file that is watched by its name, the rotated ones beside it
(``.1``, ``-20260101.gz``) are read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path

from holdfast.errors import InputError
from holdfast.fleet.formats import detect
from holdfast.fleet.formats.batch import Format, ReadOptions
from holdfast.fleet.formats.xid import XID
from holdfast.fleet.ingest_commit import commit
from holdfast.fleet.ingest_staging import Stage, content_of, fingerprint
from holdfast.fleet.ingest_zones import zones_to_read_in
from holdfast.fleet.ingestion import files_under, source_entry, with_jobs, zone_of
from holdfast.fleet.schema import Row
from holdfast.fleet.store import MANIFEST, Store, existing_store, writing
from holdfast.opening import first_bytes, is_compressed

MOST_REJECTED = 0.01  # Share of a file's records above which rejects are reported as a problem

State = tuple[int, int, int]  # Inode, size and time of change of a file


@dataclass(frozen=True)
class Look:
    """What one look at the logs found."""

    rows: int = 0  # Attempts, health events and node outages that the store has more
    # Path -> what is wrong with the file, for those that are not in the store as they are
    problems: Mapping[str, str] = field(default_factory=dict)
    committed: bool = False  # Whether the store has changed


@dataclass
class Follower:
    """Brings files, and the files in folders, into one store whenever they change.

    Args:
        paths: files, which need not be there yet, and folders.
        store: the folder of the store; made by the first look if it is missing.
        timezone: zone of times that are written without one; None: the store's, or UTC.
        cluster: name for sources that carry none.
        clusters: folder -> that name for what is in it.
    """

    paths: Sequence[Path]
    store: Path
    timezone: str | None = None
    cluster: str = ""
    clusters: Mapping[Path, str] = field(default_factory=dict)
    _seen: dict[Path, State] = field(default_factory=dict)  # Each file as it was at the last look
    # Each file as it was when it was last read
    _done: dict[Path, State] = field(default_factory=dict)
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
        before, self._seen = self._seen, self._states()
        self._problems = {p: text for p, text in self._problems.items() if p in self._seen}
        if is_new := not (self.store / MANIFEST).exists():
            self._done.clear()
        changed = [path for path, state in self._seen.items() if state != self._done.get(path)]
        committed = False
        rows = 0
        if changed or is_new:
            with writing(self.store) as old:
                new = self._read(old, changed, before)
                committed = new is not old
                rows = _rows(new) - _rows(old)
        return Look(rows, self._troubles(), committed)

    def _states(self) -> dict[Path, State]:
        """What tells that a file has changed; without files that were just removed."""
        states = {}
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
            every = entry["rows"] + entry["steps"] + entry["rejected"]
            rejected = entry["rejected"]
            if entry.get("watched") and rejected > MOST_REJECTED * every:
                text = f"{rejected:,} of {every:,} records could not be used"
                found.setdefault(entry["path"], text)
        return found

    def _read(
        self, old: Store | None, paths: Sequence[Path], before: Mapping[Path, State]
    ) -> Store | None:
        """The store with what is new in the files; `old` if nothing is."""
        zone = self.timezone or (str(old.facts["timezone"]) if old else "UTC")
        timezone = zone_of(zone)
        stated = self.timezone is not None or any(
            entry["facts"].get("zone_stated") for entry in _entries(old)
        )
        known = {entry["fingerprint"] for entry in _entries(old)}
        read = []
        for number, path in enumerate(sorted(paths, key=_has_no_year)):
            stage = Stage(self.store, f"{number}")
            self._problems.pop(path, None)
            try:
                kind = detect(path) if first_bytes(path).strip() else None
                # Until a line's end it is being written, unless nothing has come since the last look.
                if kind and self._seen[path] != before.get(path) and not _is_whole(path):
                    continue
                if kind:
                    cluster = self.clusters.get(path.parent, self.cluster)
                    options = ReadOptions(timezone=timezone, cluster=cluster)
                    jobs = with_jobs(options, old, [each for _, each in read])
                    read += _staged(path, kind, stage, jobs, known, stated)
            except Exception as error:  # one bad file must not keep the others out
                self._problems[path] = _sentence(error)
                stage.discard()
            self._done[path] = self._seen[path]
        if old is not None and not read:
            return old
        try:
            return self._commit(old, read, zone)
        except InputError:  # of one file, say of an unknown cluster: each by itself
            store = old or self._commit(None, [], zone)
            # Those that name clusters first: the others must fit them.
            for entry, stage in sorted(read, key=lambda each: each[1].rows("attempts") == 0):
                try:
                    store = self._commit(store, [(entry, stage)], zone)
                except InputError as error:
                    self._problems[Path(entry["path"])] = _sentence(error)
                    self._done.pop(Path(entry["path"]), None)  # another file may tell: try again
            return store

    def _commit(self, old: Store | None, read: Sequence[tuple[Row, Stage]], zone: str) -> Store:
        again = {entry["path"] for entry, _ in read}
        shifts = zones_to_read_in(old, [(entry["path"], stage) for entry, stage in read])
        for shift in shifts.values():
            raise shift.refused()
        # Files of a spool that are gone are forgotten: their rows stay, the list of sources stays short.
        kept = [
            entry
            for entry in _entries(old)
            if entry["path"] not in again
            and (not entry.get("watched") or Path(entry["path"]).exists())
        ]
        facts = {"sources": kept + [entry for entry, _ in read], "timezone": zone}
        return commit(self.store, old, [stage for _, stage in read], facts, again)


def _has_no_year(path: Path) -> bool:
    """Whether it is a kernel log, of whose times the jobs tell the year: they are read first."""
    with suppress(InputError, OSError):  # what is wrong with a file is said when it is read
        return detect(path) is XID
    return False


def _is_whole(path: Path) -> bool:
    """Whether a file is compressed, or ends with a line's end."""
    if is_compressed(path):
        return True
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() == b"\n"


def _staged(
    path: Path, kind: Format, stage: Stage, options: ReadOptions, known: Set[str], stated: bool
) -> Iterator[tuple[Row, Stage]]:
    """The file's entry and rows, unless the store knows it."""
    # The settings of an `ingest` with the same options: a file that it read is known.
    settings = (str(options.timezone), options.cluster, None, None)
    content = content_of(path)
    key = fingerprint(content, kind.name, settings)
    if key not in known:
        for batch in kind.batches(path, options):
            stage.add(batch)
        stage.note_zone(content, str(options.timezone), stated=stated)
        yield {**source_entry(path, kind.name, key, stage), "watched": True}, stage


def _entries(store: Store | None) -> list[Row]:
    return [] if store is None else [dict(entry) for entry in store.facts["sources"]]


def _rows(store: Store | None) -> int:
    counts = {} if store is None else store.facts["counts"]
    return sum(counts.get(name, 0) for name in ("attempts", "health_events", "node_outages"))


def _sentence(error: Exception) -> str:
    """What is wrong, in one line."""
    if isinstance(error, InputError):
        place = f"{error.place}: " if error.place else ""
        found = f" (found: {error.found})" if error.found else ""
        return f"{place}{error.problem}{found}"
    return " ".join(str(error).split()) or type(error).__name__
