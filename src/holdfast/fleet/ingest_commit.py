"""From staged batches to a store, in one step that either happens or does not.

New Parquet files are written beside the old ones and flushed to the disk; replacing `store.json` is the
commit. Files in which nothing changes are listed again as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import InputError
from holdfast.files import sync
from holdfast.fleet.formats.columns import flat, replaced, row_key, with_cluster, with_codes
from holdfast.fleet.ingest_attempts import Attempts
from holdfast.fleet.ingest_recovery import explain, lost_attempts
from holdfast.fleet.ingest_staging import ROW_GROUP_ROWS, SCHEMAS, Stage, coded_table, store_writer
from holdfast.fleet.schema import ATTEMPTS, NODES, TABLES
from holdfast.fleet.store import STAGING, Store, write_manifest

# What makes a row of a small table the same row again.
IDENTITY = {
    "health": ("cluster", "time_s", "node", "check", "severity", "result", "message", "xid"),
    # Two components of a node may fail in one second: the cause tells them apart.
    "node_outages": ("cluster", "node", "start_s", "state", "cause"),
    "controller_events": (
        *("cluster", "time_s", "event", "job_id", "job_id_raw", "preemptor", "node"),
    ),
    "qos": ("qos",),
    "rejects": ("source", "line", "reason", "raw"),
}


@dataclass(frozen=True)
class Commit:
    """What a commit starts from."""

    folder: Path
    old: Store | None
    stages: Sequence[Stage]
    number: int  # 1, 2, ...: names the files of this commit
    read_again: Set[str] = frozenset()  # Sources of which earlier rejects are replaced
    # The clusters of the log and the nodes of each
    owners: dict[str, set[str]] = field(default_factory=dict)
    # Small table -> rows of this commit that another row stands for
    merged: dict[str, int] = field(default_factory=dict)

    def write(self, name: str, pieces: Iterable[pa.Table]) -> str:
        """Write one Parquet file of a table; gives its name for `store.json`."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        part = f"{name}/{self.number:04d}-000.parquet"
        with store_writer(self.folder / part, coded_table(name).schema) as writer:
            for rows in pieces:
                writer.write_table(with_codes(rows), row_group_size=ROW_GROUP_ROWS)
        sync(self.folder / part)
        return part


def commit(
    folder: Path,
    old: Store | None,
    stages: Sequence[Stage],
    facts: Mapping[str, Any],
    read_again: Set[str] = frozenset(),
) -> Store:
    """Bring staged rows into the store.

    Args:
        folder: the store.
        old: the store as it is; None: there is none yet.
        stages: the sources, read to their ends.
        facts: what `store.json` says of this ingest: "sources", "timezone" ...
        read_again: sources of which earlier rejects are replaced.

    Returns:
        the new store.

    Raises:
        OSError: if a file cannot be written; the store is then as it was.
    """
    notes = [note for each in facts["sources"] for note in each["facts"].get("inferred", ())]
    number = 1 + (int(old.facts.get("commits", 0)) if old else 0)
    work = Commit(folder, old, stages, number, read_again)
    work.owners.update(cluster_nodes(work))
    small = {name: small_table(work, name) for name in IDENTITY}
    tables = {name: files for name, (files, _) in small.items()}
    zones = {source["facts"].get("zone") or "UTC" for source in facts["sources"]}
    attempts = _attempts(
        work,
        small["node_outages"][1](),
        small["controller_events"][1](),
        hours_repeat=zones != {"UTC"},
    )
    tables["attempts"] = attempts.pop("files")
    tables["nodes"], nodes, inferred = attempts.pop("nodes")
    # Of a source that is gone the store keeps how far it went.
    known = [*(each["facts"] for each in facts["sources"]), old.facts if old else {}]
    until_s = max(each.get("until_s", 0) for each in known)
    if span := attempts["time_range"]:
        span[1] = max(span[1], int(until_s))
    counts = {
        **attempts["counts"],
        "nodes": nodes,
        "health_events": _count(folder, tables["health"]),
        "node_outages": _count(folder, tables["node_outages"]),
        "rejected": _count(folder, tables["rejects"]),
    }
    write_manifest(
        folder,
        {
            **facts,
            **attempts,
            "node_total": facts.get("node_total") or (old and old.facts.get("node_total")),
            "commits": number,
            "until_s": until_s,
            "tables": tables,
            "counts": counts,
            "node_outages_merged": work.merged.get("node_outages", 0),
            "time_range": attempts["time_range"] or _event_range(old, small),
            "clusters": sorted(work.owners),
            "inferred": [*notes, *inferred, *attempts["inferred"]],
        },
    )
    return Store.open(folder)


def _count(folder: Path, files: Sequence[str]) -> int:
    return sum(pq.read_metadata(folder / file).num_rows for file in files)


# --- Attempts ------------------------------------------------------------------------------------


def _attempts(
    work: Commit, outages: pa.Table, events: pa.Table, *, hours_repeat: bool
) -> dict[str, Any]:
    """Deduplicate, recover, number and write the attempts; gives what `store.json` says of them."""
    cluster = next(iter(work.owners)) if len(work.owners) == 1 else ""
    scratch = work.folder / STAGING / "commit"
    with closing(Attempts(_stored(work), _staged(work), cluster, scratch)) as attempts:
        before = attempts.drop_recovered()
        # A log that is read again disagrees again: the larger count is a bound.
        known = work.old.facts.get("state_conflicts", 0) if work.old else 0
        conflicts = max(attempts.merge_duplicates(hours_repeat=hours_repeat), known)
        recovered = _recover(work, attempts, before, outages, events)
        inferred = []
        if len(recovered):
            attempts.add_rows(recovered)
            inferred.append(
                f"{len(recovered)} attempts that accounting lost were recovered from steps that "
                "began before their job."
            )
        folder = work.folder / "attempts"
        folder.mkdir(exist_ok=True)
        files = attempts.write(folder, f"{work.number:04d}")
        for file in files:
            sync(file)
        return {
            "nodes": merge_nodes(work, attempts.database),
            "files": [file.relative_to(work.folder).as_posix() for file in files]
            or [work.write("attempts", [])],
            "counts": attempts.counts(),
            "duplicates_flag": attempts.duplicates_flag(),
            "time_range": attempts.time_range(),
            "cluster": cluster,
            "inferred": inferred,
            "state_conflicts": conflicts,
        }


def _stored(work: Commit) -> list[Path]:
    return work.old.files("attempts") if work.old else []


def _staged(work: Commit) -> list[Path]:
    return [file for stage in work.stages for file in stage.files()]


def _recover(
    work: Commit, attempts: Attempts, before: pa.Table, outages: pa.Table, events: pa.Table
) -> pa.Table:
    """The attempts that accounting lost: those found now and those found by earlier ingests."""
    steps = pa.concat_tables([coded_table("steps"), *(each.read("steps") for each in work.stages)])
    steps = with_cluster(steps, attempts.cluster)
    found = pa.concat_tables([lost_attempts(steps, _owners(attempts, steps)), before])
    if not len(found):
        return found
    found = found.take(pa.array(last_of_each(found.drop_columns("end_s"), found["key"])))
    names = [
        row
        for name in ("seen_nodes", "nodes")
        for piece in _pieces(work, name, named=False)
        for row in piece.to_pylist()
    ]
    known = [
        {row["node"] for row in names if row.get("inferred", True) is of} for of in (True, False)
    ]
    return explain(found, _owners(attempts, found), outages, events, known)


def _owners(attempts: Attempts, rows: pa.Table) -> pa.Table:
    """The attempts, whole, of the same job and submission as `rows`."""
    return attempts.submitted_with(rows) if len(rows) else ATTEMPTS.empty_table()


def _event_range(
    old: Store | None, small: Mapping[str, tuple[list[str], Callable[[], pa.Table]]]
) -> list[float] | None:
    """First and last time of a log without attempts: of the store, and of what is new."""
    outages = small["node_outages"][1]()
    health = small["health"][1]()
    times = list(old.facts["time_range"] or ()) if old else []
    for column in (outages["start_s"], outages["end_s"], health["time_s"]):
        times += [time for time in pc.min_max(column).as_py().values() if time is not None]
    return [min(times), max(times)] if times else None


# --- Small tables: health events, outages, nodes and the like, each row once -----------------------

# Tables whose rows never change: new ones go to a file of their own, and what is there stays as it is.
APPENDED = ("health", "controller_events")
_MOST_SMALL_FILES = 16  # of fewer rows than a row group: then they become one


def small_table(work: Commit, name: str) -> tuple[list[str], Callable[[], pa.Table]]:
    """Old and new rows of a table, each once; its files, and how to read it."""
    old_files = list(work.old.facts["tables"].get(name, [])) if work.old else []
    read_again = work.read_again if name == "rejects" else ()
    # Rows that name no cluster get the log's only one, as long as it is the only one.
    renamed = work.old and work.old.facts["clusters"] != sorted(work.owners)
    staged = any(stage.rows(name) for stage in work.stages)
    if old_files and not (staged or read_again or renamed):
        return old_files, lambda: _pieces(work, name)[0]
    if old_files and name in APPENDED and not renamed:
        files, fresh = _appended(work, name, old_files)
        return files, lambda: fresh
    before, *new = _pieces(work, name)
    if read_again:
        again = pc.is_in(flat(before["source"]), value_set=pa.array(sorted(read_again)))
        before = before.filter(pc.invert(again))
    rows = pa.concat_tables([before, *new]).combine_chunks()
    if len(rows):
        keys = row_key(*(rows[column] for column in IDENTITY[name]))
        if "key" in rows.column_names:
            rows = replaced(rows, "key", keys)
        count, rows = len(rows), rows.take(pa.array(last_of_each(rows, keys)))
        work.merged[name] = count - len(rows)
    return [work.write(name, [rows])], lambda: rows


def _appended(work: Commit, name: str, old_files: Sequence[str]) -> tuple[list[str], pa.Table]:
    """The files of a table after new rows, and those of them that it had not."""
    pieces = [coded_table(name), *(stage.read(name) for stage in work.stages)]
    new = pa.concat_tables([_with_cluster(work, piece) for piece in pieces]).combine_chunks()
    keys = row_key(*(new[column] for column in IDENTITY[name]))
    rows = replaced(new, "key", keys).take(pa.array(last_of_each(new, keys)))
    known = pc.is_in(rows["key"], value_set=_keys_near(work, rows, old_files))
    fresh = rows.filter(pc.invert(known))
    if not len(fresh):
        return list(old_files), fresh
    small = [
        file for file in old_files if pq.read_metadata(work.folder / file).num_rows < ROW_GROUP_ROWS
    ]
    if len(small) <= _MOST_SMALL_FILES:
        return [*old_files, work.write(name, [fresh])], fresh
    joined = coded_table(name, *(work.folder / file for file in small))
    kept = [file for file in old_files if file not in small]
    return [*kept, work.write(name, [pa.concat_tables([joined, fresh])])], fresh


def _keys_near(work: Commit, rows: pa.Table, files: Sequence[str]) -> pa.Array:
    """Identities that files have of the time of some rows, from row groups that may have them."""
    times = pc.min_max(rows["time_s"]).as_py()
    found = [pa.chunked_array([], pa.int64())]
    for file in files if len(rows) else ():
        with pq.ParquetFile(work.folder / file) as opened:
            place = opened.schema_arrow.names.index("time_s")
            groups = []
            for number in range(opened.num_row_groups):
                of = opened.metadata.row_group(number).column(place).statistics
                unknown = of is None or not of.has_min_max  # of a store that an older version wrote
                if unknown or (of.min <= times["max"] and of.max >= times["min"]):
                    groups.append(number)
            found.append(opened.read_row_groups(groups, columns=["key"])["key"])
    return pa.concat_arrays(
        [chunk for each in found for chunk in each.chunks] or [pa.array([], pa.int64())]
    )


def _pieces(work: Commit, name: str, *, named: bool = True) -> list[pa.Table]:
    """The rows that the store has of a table, then those of each source.

    `named`: each with its cluster, also where the log has several.
    """
    files = work.old.files(name) if work.old and name in TABLES else []
    pieces = [coded_table(name, *files), *(stage.read(name) for stage in work.stages)]
    named = named and "cluster" in SCHEMAS[name].names
    return [_with_cluster(work, piece) for piece in pieces] if named else pieces


def last_of_each(rows: pa.Table, keys: pa.Array) -> npt.NDArray[np.int64]:
    """One row per key, in the order of the table: the last, but a period that has ended first."""
    values = flat(keys).to_numpy()
    over = np.ones(len(values), bool)
    if "end_s" in rows.column_names:
        over = flat(pc.is_valid(rows["end_s"])).to_numpy(zero_copy_only=False)
    order = np.lexsort((np.arange(len(values)), over, values))
    last = np.append(values[order][1:] != values[order][:-1], True)[: len(order)]
    return np.sort(order[last])


def _with_cluster(work: Commit, rows: pa.Table) -> pa.Table:
    """The rows with the log's only cluster, else with the only one that has their nodes."""
    if len(work.owners) <= 1:
        return with_cluster(rows, next(iter(work.owners), ""))
    stated = rows["cluster"].to_pylist()
    nodes = rows["node"].to_pylist()
    unnamed = {node for cluster, node in zip(stated, nodes, strict=True) if not cluster}
    fits = [name for name, own in work.owners.items() if unnamed & own]
    if unnamed and (len(fits) != 1 or None in unnamed):
        raise InputError(
            "the cluster of a source is unknown: the log has several and its nodes do not tell",
            code="unknown-cluster",
            found=f"nodes such as {min(map(str, unnamed))}, in " + (", ".join(fits) or "none"),
            expected="one of the clusters " + ", ".join(work.owners),
            remedy="ingest the sources of each cluster by themselves, with --cluster NAME",
        )
    return with_cluster(rows, fits[0]) if unnamed else rows


def cluster_nodes(work: Commit) -> dict[str, set[str]]:
    """The clusters that the store and the staged rows name, and the nodes of each."""
    owners = {}
    for file in [*_stored(work), *_staged(work)]:
        for name in pc.unique(pq.read_table(file, columns=["cluster"])["cluster"]).to_pylist():
            if name:
                owners[name] = set()
    for table in ("nodes", "node_outages", "health", "controller_events", "seen_nodes"):
        pairs = [
            piece.select(["cluster", "node"])
            for piece in (stage.read(table) for stage in work.stages)
        ]
        for file in work.old.files(table) if work.old and table in TABLES else []:
            with duckdb.connect() as database:  # what is distinct, in bounded memory
                named = database.read_parquet(str(file)).project("cluster, node").distinct()
                pairs.append(named.to_arrow_table())
        for piece in pairs:
            cluster, node = flat(piece["cluster"]), flat(piece["node"])
            distinct = pa.table({"cluster": cluster, "node": node}).group_by(["cluster", "node"])
            for row in distinct.aggregate([]).to_pylist():
                if row["cluster"]:
                    owners.setdefault(row["cluster"], set()).add(row["node"])
    return owners


# What an inventory that came later says counts (`sinfo -R` says no more than reasons); of a node whose GPUs
# none tells, the most that one job had on it. A reason goes with the state of its inventory.
_ONE_ROW_A_NODE = """SELECT cluster, node,
        coalesce(arg_max(gpus, place) FILTER (NOT inferred), max(gpus)) AS gpus,
        arg_max(cpus, place) AS cpus, arg_max(state, place) AS state,
        arg_max_null(reason, place) FILTER (state IS NOT NULL OR reason IS NOT NULL) AS reason,
        bool_and(inferred) AS inferred
    FROM (SELECT * REPLACE (coalesce(cluster, '') AS cluster), row_number() OVER () AS place FROM rows)
    GROUP BY cluster, node ORDER BY inferred, cluster, node"""


def merge_nodes(
    work: Commit, database: duckdb.DuckDBPyConnection
) -> tuple[list[str], int, list[str]]:
    """The inventory, and the nodes that only logs name: files, rows, what was inferred."""
    seen = pa.concat_tables(_pieces(work, "seen_nodes"))
    seen = seen.append_column("inferred", pa.array(np.ones(len(seen), bool)))
    rows = pa.concat_tables([*_pieces(work, "nodes"), seen], promote_options="default")
    nodes = database.register("rows", rows).sql(_ONE_ROW_A_NODE).to_arrow_table().cast(NODES)
    guessed = pc.sum(nodes["inferred"]).as_py()
    inferred = [
        f"{guessed} of {len(nodes)} nodes come from the node lists of jobs, not from an "
        "inventory; a node's GPUs are the most that its jobs had on it at one moment."
    ]
    return [work.write("nodes", [nodes])], len(nodes), inferred if guessed else []
