"""From logs to a store: `holdfast fleet ingest`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.answer import Answer, Finding, Section, Unknown
from holdfast.errors import InputError
from holdfast.fleet.formats import by_name, detect, recognise
from holdfast.fleet.formats.batch import Format, ReadOptions
from holdfast.fleet.formats.xid import XID
from holdfast.fleet.ingest_commit import commit
from holdfast.fleet.ingest_staging import Stage, content_of, fingerprint
from holdfast.fleet.ingest_zones import zones_to_read_in
from holdfast.fleet.log import FleetLog
from holdfast.fleet.moments import iso_time
from holdfast.fleet.schema import TABLES, Row
from holdfast.fleet.store import Store, writing
from holdfast.fleet.wording import listed, table
from holdfast.numbers import counted
from holdfast.progress import track

_SHOWN_REJECTS = 3
_DAMAGE = ("unreadable", "damaged", "invalid-syntax")  # Errors that set a file of a folder aside
_ROWS = tuple(name for name in TABLES if name != "rejects")
# What the terminal and the page show of a store
_COUNTED = (
    *("attempts", "attempts_recovered", "jobs", "steps_skipped", "rejected", "nodes"),
    *("health_events", "node_outages", "node_outages_merged"),
)
_TABLE_SUFFIXES = {".csv", ".tsv", ".parquet"}


@dataclass(frozen=True)
class IngestResult(Answer):
    """What a store holds after an ingest."""

    store: str
    attempts: int  # Accounting records, each once, and recovered attempts
    attempts_recovered: int  # Those of them that accounting lost, rebuilt from steps
    jobs: int  # Distinct job ids
    steps_skipped: int  # Step records in the sources: they are not jobs
    rejected: int  # Records that could not be used; the table `rejects` has them
    nodes: int
    health_events: int
    node_outages: int
    # Outages of this call that its sources have twice, or that the store had already
    node_outages_merged: int
    # Was `sacct --duplicates` used: "present", "missing" (failures are hidden) or "unknown"
    duplicates_flag: str
    # First and last time of an attempt (without any: of an outage or event), ISO 8601 in UTC
    time_range: tuple[str, str] | None
    # Every source of the store: path, format, rows, steps, rejected
    sources: list[Row] = field(default_factory=list)
    # Sources of this call that the store had already
    already_known: list[str] = field(default_factory=list)
    # Files in the given folders that are in no known format
    not_recognised: list[str] = field(default_factory=list)
    # Files in the given folders that cannot be read, such as damaged archives, each with the reason
    unreadable: list[str] = field(default_factory=list)
    # What the store holds that no source says, in sentences
    inferred: list[str] = field(default_factory=list)
    # Live sources that did not answer, each with its state and age
    live_troubles: list[str] = field(default_factory=list)
    state_conflicts: int = 0  # Attempts on whose State logs disagree, at least
    strange_checks: int = 0  # Failed checks on nodes that no attempt and no inventory names
    strangers: list[str] = field(default_factory=list)  # Those nodes

    def written(self) -> Mapping[str, Path]:
        """The store."""
        return {"store": Path(self.store)}

    def sections(self) -> Sequence[Section]:
        """What is in the store?"""
        text = f"The store holds {counted(self.attempts, 'attempt')}"
        if self.attempts_recovered:
            text += f", {self.attempts_recovered:,} of them recovered from steps,"
        if self.time_range:
            text += f" from {self.time_range[0]} to {self.time_range[1]}"
        rows = [{"what": n.replace("_", " "), "count": getattr(self, n)} for n in _COUNTED]
        shown = table(rows, "what count", what="In the store", count="")
        return [Section("store", "What is in the store?", f"{text}.", [], [shown])]

    def unknowns(self) -> Sequence[Unknown]:
        """Whether logs disagree, and whether events name nodes that no attempt has."""
        from holdfast.fleet.gaps import gap, strangers

        found = [gap("live", source=text) for text in self.live_troubles]
        if self.strange_checks:
            found.append(strangers(self.strange_checks, self.strangers))
        if self.state_conflicts:
            found.append(gap("conflicts", attempts=counted(self.state_conflicts, "attempt")))
        return found

    def findings(self) -> Sequence[Finding]:
        """What is in the store, what was skipped, and what the logs hide."""
        found = list(super().findings())
        if self.duplicates_flag == "missing":
            found.insert(
                0,
                Finding(
                    "earlier attempts of requeued jobs, and with them most node failures, are missing. "
                    "Export again with -D.",
                    lead="WARNING: this log was written without `sacct -D`:",
                ),
            )
        skipped = {
            "Ingested before, skipped": self.already_known,
            "No known format, skipped": self.not_recognised,
            "Cannot be read, skipped": self.unreadable,
        }
        found += [Finding(f"{why}: {listed(names)}") for why, names in skipped.items() if names]
        return found + [Finding(sentence) for sentence in self.inferred]


@dataclass(frozen=True)
class _Source:
    path: Path
    format: Format
    key: str
    listed: bool  # Whether it was found in a folder, not named by the user


def ingest(
    sources: Sequence[str | Path],
    store: str | Path,
    *,
    format: str | None = None,
    timezone: str | None = None,
    cluster: str = "",
    max_reject_share: float = 0.01,
    column_map: str | Path | None = None,
    nodes: int | None = None,
) -> IngestResult:
    """Read logs into a store; what the store has already is not added twice.

    The store changes in one step at the end, or not at all.

    Args:
        sources: files, or folders whose recognised files are taken.
        store: the folder of the store; made if missing, else added to.
        format: name of the format of every source; None: by content.
        timezone: zone of times that are written without one, for example ``"Europe/Berlin"``;
            None: UTC, unless another source has the same jobs and says when.
        cluster: name for sources that carry none.
        max_reject_share: share of the records of one source above which it is refused.
        column_map: TOML map for CSV and Parquet: files that no format recognises are read by it.
        nodes: nodes of the fleet, for node-failure logs, which do not name those that never failed.

    Returns:
        what the store holds now.

    Raises:
        InputError: if a source cannot be read, is in no known format, or has too many rejects; if two
            have the same jobs in two zones (``conflict``).
        StoreError: if the store cannot be written, is in use, is of a newer version, or holds a
            simulation.
    """
    zone = zone_of(timezone or "UTC")
    folder = Path(store)
    options = ReadOptions(
        timezone=zone,
        cluster=cluster,
        column_map=None if column_map is None else Path(column_map),
    )
    settings = (zone.key, cluster, column_map, nodes)
    fallback = None if column_map is None else by_name("mapped")
    found, strangers, damaged = _find(sources, format, fallback, folder, settings)
    merged = 0
    with writing(folder) as old:
        had = {entry["fingerprint"] for entry in old.facts["sources"]} if old else set()
        new = list({each.key: each for each in found if each.key not in had}.values())
        known = [str(each.path) for each in found if each.key in had]
        if new or old is None:
            read = _read_all(new, folder, options, damaged, old)
            for source, stage in read:
                stage.note_zone(content_of(source.path), zone.key, stated=timezone is not None)
            while shifts := zones_to_read_in(old, [(str(s.path), stage) for s, stage in read]):
                for place, shift in shifts.items():
                    source, stage = read[place]
                    stage.discard()
                    zone = zone_of(shift.zones[0])
                    own = replace(options, timezone=zone)
                    read[place : place + 1] = _read_all([source], folder, own, {}, old)
                    # Another source has said it: that settles others in turn.
                    read[place][1].note_zone(content_of(source.path), zone.key, stated=True)
                    read[place][1].facts["inferred"] = [shift.note]
            if damaged and not read and not known:
                raise next(iter(damaged.values()))
            for source, stage in read:
                _check_rejects(source.path, stage, max_reject_share, folder)
            entries = [*(old.facts["sources"] if old else [])]
            entries += [source_entry(s.path, s.format.name, s.key, stage) for s, stage in read]
            facts = {"sources": entries, "timezone": zone.key, "node_total": nodes}
            old = commit(folder, old, [stage for _, stage in read], facts)
            merged = old.facts["node_outages_merged"]
    return in_store(old, known, strangers, damaged, merged)


# --- Sources -------------------------------------------------------------------------------------


def _find(
    sources: Sequence[str | Path],
    name: str | None,
    fallback: Format | None,
    store: Path,
    settings: Sequence[object],
) -> tuple[list[_Source], list[str], dict[str, InputError]]:
    """The files to read, each with its format, those in no known format and those that are damaged.

    `fallback` is for tables that no format recognises, where the user says what their columns mean.
    """
    chosen = None if name is None else by_name(name)
    found = []
    strangers = []
    damaged = {}

    def add(path: Path, known: Format, in_folder: bool) -> None:
        key = fingerprint(content_of(path), known.name, settings)
        found.append(_Source(path, known, key, in_folder))

    for source in map(Path, sources):
        if not source.exists():
            raise InputError(
                "file not found", code="not-found", path=source, remedy="check the path"
            )
        if not source.is_dir():
            known = chosen or (recognise(source) or fallback if fallback else detect(source))
            add(source, known, False)
            continue
        for file in files_under(source, store):
            try:
                kind = chosen or recognise(file)
            except InputError as error:
                damaged[str(file)] = error
                continue
            if kind is None and _TABLE_SUFFIXES.intersection(file.suffixes):
                kind = fallback
            if kind is None:
                strangers.append(str(file))
            else:
                add(file, kind, True)
    if not found and damaged:
        raise next(iter(damaged.values()))
    if not found:
        raise InputError(
            "no file is in a known log format",
            code="unknown-format",
            path=", ".join(map(str, sources)),
            found=", ".join(Path(each).name for each in strangers[:5]) or "no file",
            expected="for example the output of `sacct --parsable2 --duplicates`",
            remedy="name the format with --format NAME",
        )
    return found, strangers, damaged


def files_under(folder: Path, store: Path) -> Iterator[Path]:
    """The files of a folder, in order, without hidden ones and those of the store."""
    inside = store.resolve()
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.is_file() and not hidden and inside not in file.resolve().parents:
            yield file


def zone_of(name: str) -> ZoneInfo:
    """The time zone of a name.

    Raises:
        InputError: if there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(
            f"time zone not found: {name!r}",
            code="unknown-name",
            expected="a name of the tz database, for example UTC or Europe/Berlin",
            remedy="correct --timezone",
        ) from error


# --- Reading -------------------------------------------------------------------------------------


def _read_all(
    sources: Sequence[_Source],
    folder: Path,
    options: ReadOptions,
    damaged: dict[str, InputError],
    old: Store | None,
) -> list[tuple[_Source, Stage]]:
    """The sources with their rows; files of folders that turn out damaged go to `damaged` instead."""
    read = []
    sizes = {source.path: source.path.stat().st_size for source in sources}
    with track("reading", sum(sizes.values())) as bar:
        # Kernel logs last: their times may have no year, and the jobs tell it.
        for source in sorted(sources, key=lambda each: each.format is XID):
            bar.describe(source.path.name)
            size = sizes[source.path]
            stage = Stage(folder, source.key)
            shown = 0
            known = with_jobs(options, old, [each for _, each in read])
            try:
                for batch in source.format.batches(source.path, known):
                    stage.add(batch)
                    # A compressed source has more bytes than its file: the bar waits at the end.
                    bar.advance(min(batch.offset, size) - shown)
                    shown = min(batch.offset, size)
            except InputError as error:
                own = error.path == str(source.path)  # else of a column map
                if not (source.listed and own and error.code in _DAMAGE):
                    raise
                stage.discard()
                damaged[str(source.path)] = error
                continue
            bar.advance(size - shown)
            read.append((source, stage))
    return sorted(read, key=lambda each: sources.index(each[0]))


def with_jobs(options: ReadOptions, old: Store | None, read: Sequence[Stage]) -> ReadOptions:
    """The options with the last time of the jobs that are known: it tells the year of kernel logs."""
    stored = old.facts["time_range"][1] if old and old.facts["counts"]["attempts"] else 0
    return replace(options, last_job_s=max([stored, *(stage.last_s for stage in read)]))


def _check_rejects(path: Path, stage: Stage, most: float, folder: Path) -> None:
    """Refuse a source of which too much could not be used.

    Raises:
        InputError: naming the reject file, with the first reasons.
    """
    rejected = stage.rows("rejects")
    used = stage.steps + stage.rows(*_ROWS)
    if rejected <= most * (rejected + used):
        return
    file = folder.with_name(folder.name + ".rejects.csv")
    rejects = stage.read("rejects").to_pylist()
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, ["source", "line", "reason", "raw"])
        writer.writeheader()
        writer.writerows(rejects)
    raise InputError(
        f"{rejected} of {rejected + used} records cannot be used",
        code="too-many-rejects",
        path=path,
        found="; ".join(f"line {row['line']}: {row['reason']}" for row in rejects[:_SHOWN_REJECTS]),
        expected=f"at most {most:.2%} of the records",
        remedy=f"look at {file}; allow more with --max-reject-share",
    )


def source_entry(path: Path, format_name: str, key: str, stage: Stage) -> Row:
    """What `store.json` says of a source."""
    return {
        "path": str(path),
        "format": format_name,
        "fingerprint": key,
        "rows": stage.rows(*_ROWS),
        "steps": stage.steps,
        "rejected": stage.rows("rejects"),
        "facts": stage.facts,
    }


# --- The store -----------------------------------------------------------------------------------


def in_store(
    store: Store,
    known: Sequence[str] = (),
    strangers: Sequence[str] = (),
    damaged: Mapping[str, InputError] = MappingProxyType({}),
    merged: int = 0,
) -> IngestResult:
    """What a store holds; the rest is what an ingest noticed (see `IngestResult`)."""
    facts = store.facts
    span = store.facts["time_range"]
    entries = facts["sources"]
    log = FleetLog(store) if facts["counts"]["health_events"] else None
    return IngestResult(
        store=str(store.path),
        **facts["counts"],
        steps_skipped=sum(entry["steps"] for entry in entries),
        node_outages_merged=merged,
        duplicates_flag=facts["duplicates_flag"],
        time_range=span and (iso_time(span[0]), iso_time(span[1])),
        sources=[{k: v for k, v in entry.items() if k != "facts"} for entry in entries],
        already_known=list(known),
        not_recognised=list(strangers),
        unreadable=[f"{path}: {error.found or error.problem}" for path, error in damaged.items()],
        inferred=list(facts["inferred"]),
        state_conflicts=facts["state_conflicts"],
        strange_checks=log.strange_checks if log else 0,
        strangers=log.strangers if log else [],
    )
