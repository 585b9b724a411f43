"""From staged batches to a store, in one step that either happens or does not.

New Parquet files are written beside the old ones; replacing `store.json` is the commit. Files in
which nothing changes are listed again as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc

from holdfast.fleet.formats.columns import flat, row_key
from holdfast.fleet.ingest_duplicates import merge_duplicates
from holdfast.fleet.ingest_index import NULL, Index, Ints, Mask, Part, Sign, cluster_names, named
from holdfast.fleet.ingest_recovery import explain, lost_attempts
from holdfast.fleet.ingest_signs import duplicates_flag
from holdfast.fleet.ingest_small import (
    IDENTITY,
    cluster_nodes,
    last_of_each,
    merge_nodes,
    small_table,
)
from holdfast.fleet.ingest_staging import STAGING, Stage
from holdfast.fleet.ingest_writing import ROW_GROUP_ROWS, Commit
from holdfast.fleet.schema import ATTEMPTS, STEPS
from holdfast.fleet.store import Store, sweep, write_manifest

_FILE_ROWS = 1_000_000
_SMALL_ROWS = 50_000
_MOST_SMALL_FILES = 24
_WRITERS = 2


def commit(
    folder: Path,
    old: Store | None,
    stages: Sequence[Stage],
    facts: Mapping[str, Any],
    superseded: Mapping[str, int] | None = None,
) -> Store:
    """Bring staged rows into the store.

    Args:
        folder: the store.
        old: the store as it is; None: there is none yet.
        stages: the sources, read to their ends.
        facts: what `store.json` says of this ingest: "sources", "timezone" ...
        superseded: source -> line: what was rejected of it from that line on was read again.

    Returns:
        the new store.

    Raises:
        OSError: if a file cannot be written; the store is then as it was.
    """
    number = 1 + (int(old.facts.get("commits", 0)) if old else 0)
    work = Commit(folder, old, stages, number, superseded or {})
    work.owners.update(cluster_nodes(work, cluster_names(_parts(work))))
    small = {name: small_table(work, name) for name in IDENTITY}
    tables = {name: files for name, (files, _) in small.items()}
    attempts = _attempts(work, small["node_outages"][1](), small["controller_events"][1]())
    tables["attempts"] = attempts.files
    tables["nodes"], nodes, inferred = merge_nodes(work)
    counts = {
        **attempts.counts,
        "nodes": nodes,
        "health_events": _count(folder, tables["health"]),
        "node_outages": _count(folder, tables["node_outages"]),
        "rejected": _count(folder, tables["rejects"]),
    }
    write_manifest(
        folder,
        {
            **facts,
            "node_total": facts.get("node_total") or (old and old.facts.get("node_total")),
            "commits": number,
            "tables": tables,
            "counts": counts,
            "node_outages_merged": work.merged.get("node_outages", 0),
            "duplicates_flag": attempts.duplicates_flag,
            "time_range": attempts.time_range or _event_range(small),
            "cluster": attempts.cluster,
            "clusters": sorted(work.owners),
            "inferred": [*inferred, *attempts.inferred],
        },
    )
    sweep(folder)
    return Store.open(folder)


def _count(folder: Path, files: Sequence[str]) -> int:
    return sum(pq.read_metadata(folder / file).num_rows for file in files)


# --- Attempts ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Attempts:
    files: list[str]
    counts: dict[str, int]
    duplicates_flag: str
    time_range: list[int] | None
    cluster: str
    inferred: list[str]


def _attempts(work: Commit, outages: pa.Table, events: pa.Table) -> _Attempts:
    """Deduplicate, recover, number and write the attempts."""
    parts = _parts(work)
    index = Index(cluster=next(iter(work.owners)) if len(work.owners) == 1 else "")
    index.extend(parts)
    scratch = work.folder / STAGING / "commit"
    recovered_before = index.gather(index.has(Sign.RECOVERED))
    index.keep &= ~index.has(Sign.RECOVERED)
    merge_duplicates(index, scratch)
    recovered = _recover(work, index, recovered_before, outages, events)
    if len(recovered):
        scratch.mkdir(parents=True, exist_ok=True)
        path = scratch / "recovered.arrow"
        with ipc.new_file(str(path), ATTEMPTS) as writer:
            writer.write_table(recovered)
        index.extend([Part(path, len(recovered), stored=False)])
    order, first = _chains(index)
    number = _numbers(order, first, len(index.key))
    runtime = _after_resizing(index, order, first)
    inferred = []
    if len(recovered):
        inferred.append(
            f"{len(recovered)} attempts that accounting lost were recovered from steps that began "
            "before their job."
        )
    return _Attempts(
        files=_write(work, index, number, runtime),
        counts={
            "attempts": int(index.keep.sum()) - len(recovered),
            "attempts_recovered": len(recovered),
            "jobs": int(first.sum()),
        },
        duplicates_flag=duplicates_flag(index, order, first),
        time_range=_time_range(index),
        cluster=index.cluster,
        inferred=inferred,
    )


def _parts(work: Commit) -> list[Part]:
    stored = work.old.files("attempts") if work.old else []
    parts = [Part(file, pq.read_metadata(file).num_rows, stored=True) for file in stored]
    for stage in work.stages:
        for part in stage.journal.parts:
            if "attempts" in part:
                file, _, rows = part["attempts"]
                parts.append(Part(stage.folder / file, rows, stored=False))
    return parts


def _recover(
    work: Commit, index: Index, before: pa.Table, outages: pa.Table, events: pa.Table
) -> pa.Table:
    """The attempts that accounting lost: those found now and those found by earlier ingests."""
    steps = pa.concat_tables([STEPS.empty_table(), *(each.read("steps") for each in work.stages)])
    place = steps.schema.get_field_index("cluster")
    cluster = pc.if_else(pc.equal(steps["cluster"], ""), index.cluster, steps["cluster"])
    steps = steps.set_column(place, "cluster", cluster)
    found = pa.concat_tables([lost_attempts(steps, _rows_of(index, steps)), before])
    if not len(found):
        return found
    found = found.take(pa.array(last_of_each(found.drop_columns("end_s"), found["key"])))
    owners = _rows_of(index, found)
    start_of = dict(zip(_job_keys(owners), owners["start_s"].to_pylist(), strict=True))
    starts = {
        key: start_of[job]
        for key, job in zip(found["key"].to_pylist(), _job_keys(found), strict=True)
        if start_of.get(job) is not None
    }
    return explain(found, starts, outages, events)


def _job_keys(rows: pa.Table) -> list[int]:
    """The keys of the rows of the same job and submission that accounting has."""
    plain = pa.array(np.zeros(len(rows), bool))
    keys: list[int] = row_key(
        flat(rows["cluster"]), flat(rows["job_id_raw"]), flat(rows["submit_s"]), plain
    ).to_pylist()
    return keys


def _rows_of(index: Index, rows: pa.Table) -> pa.Table:
    """The attempts, whole, of the same job and submission as `rows`."""
    if not len(rows):
        return ATTEMPTS.empty_table()
    wanted = np.array(_job_keys(rows), np.int64)
    return index.gather(index.keep & np.isin(index.key, wanted))


def _chains(index: Index) -> tuple[Ints, Mask]:
    """Kept rows sorted by job, then by submission and start; and which are the first of a job."""
    kept = np.flatnonzero(index.keep)
    order = kept[np.argsort(index.group[kept], kind="stable")]
    group = index.group[order]
    first = np.concatenate([[True], group[1:] != group[:-1]]) if len(order) else np.zeros(0, bool)
    again = np.flatnonzero(~first)
    if len(again):
        several = np.zeros(len(order), bool)
        several[again] = several[again - 1] = True
        rows = order[several]
        never = np.iinfo(np.int64).max
        start = np.where(index.start[rows] == NULL, never, index.start[rows])
        submit = np.where(index.submit[rows] == NULL, start, index.submit[rows])
        order[several] = rows[np.lexsort((start, submit, index.group[rows]))]
    return order, first


def _numbers(order: Ints, first: Mask, rows: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """1, 2, 3 ... within each job, for every row."""
    number = np.zeros(rows, np.int32)
    if len(order):
        position = np.arange(len(order))
        begins = np.maximum.accumulate(np.where(first, position, 0))
        number[order] = position - begins + 1
    return number


def _after_resizing(index: Index, order: Ints, first: Mask) -> dict[int, int]:
    """Row -> its seconds on its own nodes, where it repeats the start of the row before a resize."""
    if not len(order):
        return {}
    rows, before = order[1:], order[:-1]
    repeats = (
        ~first[1:]
        & index.has(Sign.RESIZING)[before]
        & (index.start[rows] == index.start[before])
        & (index.start[rows] != NULL)
        & (index.end[rows] != NULL)
        & (index.end[before] != NULL)
    )
    seconds = index.end[rows[repeats]] - index.end[before[repeats]]
    return dict(zip(rows[repeats].tolist(), np.maximum(seconds, 0).tolist(), strict=True))


def _time_range(index: Index) -> list[int] | None:
    times = np.concatenate([index.start[index.keep], index.end[index.keep]])
    times = times[times != NULL]
    if not len(times):
        times = index.submit[index.keep & (index.submit != NULL)]
    return [int(times.min()), int(times.max())] if len(times) else None


def _event_range(small: Mapping[str, tuple[list[str], Callable[[], pa.Table]]]) -> list[int] | None:
    """First and last time of a log without attempts."""
    outages, health = small["node_outages"][1](), small["health"][1]()
    spans = [
        pc.min_max(each).as_py()
        for each in (outages["start_s"], outages["end_s"], health["time_s"])
    ]
    times = [value for span in spans for value in span.values() if value is not None]
    return [int(min(times)), int(max(times))] if times else None


def _write(
    work: Commit,
    index: Index,
    number: np.ndarray[Any, np.dtype[np.int32]],
    runtime: Mapping[int, int],
) -> list[str]:
    """Write the kept rows; files of the store in which nothing changes stay."""
    files: list[str] = []
    chunks: list[list[tuple[Part, slice]]] = []
    size = _FILE_ROWS
    # A log that is watched leaves a file at every poll: now and then they become one.
    small = sum(part.stored and part.rows < _SMALL_ROWS for part in index.parts)
    join_below = _SMALL_ROWS if small > _MOST_SMALL_FILES else 0
    for part, rows in index.slices():
        if part.rows == 0 or not index.keep[rows].any():
            continue
        stays = part.stored and part.rows >= join_below
        if stays and _unchanged(part, rows, index, number, runtime):
            files.append(part.path.relative_to(work.folder).as_posix())
            continue
        # Recovered attempts are looked at again by every commit: in a file of their own, the large
        # ones can stay.
        alone = bool(index.has(Sign.RECOVERED)[rows].any())
        if size >= _FILE_ROWS or alone:
            chunks.append([])
            size = 0
        chunks[-1].append((part, rows))
        size = _FILE_ROWS if alone else size + part.rows

    def write_chunk(place: int) -> str:
        def rows_of_chunk(write: Callable[[pa.Table], None]) -> None:
            waiting: list[pa.Table] = []
            for part, rows in chunks[place]:
                low = rows.start
                for piece in part.pieces():
                    where = slice(low, low + len(piece))
                    low = where.stop
                    waiting.append(_patched(piece, where, index, number, runtime))
                    if sum(map(len, waiting)) >= ROW_GROUP_ROWS:
                        write(pa.concat_tables(waiting))
                        waiting = []
            if waiting:
                write(pa.concat_tables(waiting))

        return work.write_many("attempts", f"{place:03d}", rows_of_chunk)

    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="commit") as workers:
        files += workers.map(write_chunk, range(len(chunks)))
    return files or [work.write("attempts", ATTEMPTS.empty_table())]


def _unchanged(
    part: Part,
    rows: slice,
    index: Index,
    number: np.ndarray[Any, np.dtype[np.int32]],
    runtime: Mapping[int, int],
) -> bool:
    """Whether a stored part may stay as it is."""
    if not index.keep[rows].all() or (number[rows] != index.attempt[rows]).any():
        return False
    own = _within(runtime, rows)
    if own:
        stored = part.read(["runtime_s"])["runtime_s"].take(pa.array(list(own))).to_pylist()
        if stored != list(own.values()):
            return False
    names = part.read(["cluster"])["cluster"] if index.cluster else None
    return names is None or not pc.any(pc.equal(names, ""), min_count=0).as_py()


def _within(runtime: Mapping[int, int], rows: slice) -> dict[int, int]:
    """The runtimes of rows in the range, by their places in it."""
    return {row - rows.start: runtime[row] for row in runtime if rows.start <= row < rows.stop}


def _patched(
    table: pa.Table,
    rows: slice,
    index: Index,
    number: np.ndarray[Any, np.dtype[np.int32]],
    runtime: Mapping[int, int],
) -> pa.Table:
    """The kept rows of a piece as the store has them."""
    table = named(table, index.cluster)
    place = ATTEMPTS.get_field_index("attempt")
    table = table.set_column(place, ATTEMPTS.field("attempt"), pa.array(number[rows]))
    own = _within(runtime, rows)
    if own:
        values = table["runtime_s"].to_pylist()
        for row, value in own.items():
            values[row] = value
        place = ATTEMPTS.get_field_index("runtime_s")
        table = table.set_column(place, ATTEMPTS.field("runtime_s"), pa.array(values, pa.int64()))
    keep = index.keep[rows]
    return table if keep.all() else table.filter(pa.array(keep))


def iso(seconds: int) -> str:
    """Seconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
