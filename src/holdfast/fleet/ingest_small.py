"""The small tables of a commit: health events, outages, nodes and the like, each row once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import InputError
from holdfast.fleet.formats.columns import flat, replaced, row_key, with_cluster
from holdfast.fleet.ingest_staging import SCHEMAS
from holdfast.fleet.ingest_writing import Commit
from holdfast.fleet.schema import NODES, TABLES

Node = tuple[str, str]  # (cluster, name)

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


def small_table(work: Commit, name: str) -> tuple[list[str], Callable[[], pa.Table]]:
    """Old and new rows of a table, each once; its files, and how to read it."""
    schema = TABLES[name]
    old_files = list(work.old.facts["tables"].get(name, [])) if work.old else []
    staged = staged_rows(work, name)
    read_again = work.read_again if name == "rejects" else ()
    if old_files and not len(staged) and not read_again and not _renamed(work):
        return old_files, lambda: _stored_rows(work, name)
    before = _stored_rows(work, name)
    if read_again:
        again = pc.is_in(before["source"], value_set=pa.array(sorted(read_again)))
        before = before.filter(pc.invert(again))
    rows = pa.concat_tables([before, staged])
    if not len(rows):
        return [work.write(name, rows)], lambda: rows
    keys = row_key(*(rows[column] for column in IDENTITY[name]))
    if "key" in schema.names:
        rows = replaced(rows, "key", keys)
    once = rows.take(pa.array(last_of_each(rows, keys)))
    work.merged[name] = len(rows) - len(once)
    return [work.write(name, once)], lambda: once


def _stored_rows(work: Commit, name: str, *, named: bool = True) -> pa.Table:
    """The rows of the store as it is; `named`: each with its cluster where the log has several now."""
    schema = TABLES[name]
    files = work.old.files(name) if work.old else []
    read = [pq.read_table(file, schema=schema) for file in files]
    rows = with_cluster(pa.concat_tables([schema.empty_table(), *read]), work.old_cluster)
    # A second cluster may have come: rows of before it that name none must still fit one.
    return _with_cluster(work, rows) if named and "cluster" in schema.names else rows


def _renamed(work: Commit) -> bool:
    """Whether stored rows get a cluster: the store has just come to hold more than one."""
    return work.old is not None and len(work.owners) > max(
        1, len(work.old.facts.get("clusters", ()))
    )


def last_of_each(rows: pa.Table, keys: pa.Array) -> npt.NDArray[np.int64]:
    """One row per key, in the order of the table: the last, but a period that has ended first."""
    values = flat(keys).to_numpy()
    over = np.ones(len(values), bool)
    if "end_s" in rows.column_names:
        over = flat(pc.is_valid(rows["end_s"])).to_numpy(zero_copy_only=False)
    order = np.lexsort((np.arange(len(values)), over, values))
    last = np.append(values[order][1:] != values[order][:-1], True)[: len(order)]
    return np.sort(order[last])


def staged_rows(work: Commit, name: str) -> pa.Table:
    """The staged rows of a table, each with its cluster where the log has several.

    Raises:
        InputError: if a source does not state the cluster and its nodes do not tell.
    """
    tables = [SCHEMAS[name].empty_table(), *(each.read(name) for each in work.stages)]
    if "cluster" in SCHEMAS[name].names:
        tables = [_with_cluster(work, table) for table in tables]
    return pa.concat_tables(tables)


def _with_cluster(work: Commit, rows: pa.Table) -> pa.Table:
    """The rows with the log's only cluster, else with the only one that has their nodes."""
    if len(work.owners) <= 1:
        return with_cluster(rows, next(iter(work.owners), ""))
    stated, nodes = rows["cluster"].to_pylist(), rows["node"].to_pylist()
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


def cluster_nodes(work: Commit, attempt_clusters: Iterable[str]) -> dict[str, set[str]]:
    """The clusters that the store and the staged rows name, and the nodes of each."""
    owners: dict[str, set[str]] = {name: set() for name in attempt_clusters if name}
    for name in ("nodes", "node_outages", "health", "controller_events", "seen_nodes"):
        tables = [each.read(name) for each in work.stages]
        if name in TABLES:
            tables.append(_stored_rows(work, name, named=False))
        for table in tables:
            pairs = table.select(["cluster", "node"]).group_by(["cluster", "node"]).aggregate([])
            for row in pairs.to_pylist():
                if row["cluster"]:
                    owners.setdefault(row["cluster"], set()).add(row["node"])
    return owners


def merge_nodes(work: Commit) -> tuple[list[str], int, list[str]]:
    """The inventory, and the nodes that only logs name: files, rows, what was inferred."""
    known: dict[Node, dict[str, Any]] = {}
    seen: dict[Node, int | None] = {}
    stored = _stored_rows(work, "nodes")
    for row in pa.concat_tables([stored, staged_rows(work, "nodes")]).to_pylist():
        node = (row["cluster"] or "", row["node"])
        if row["inferred"]:
            _most(seen, node, row["gpus"])
        else:
            known[node] = row
    for row in staged_rows(work, "seen_nodes").to_pylist():
        _most(seen, (row["cluster"] or "", row["node"]), row["gpus"])
    guessed = sorted(set(seen) - set(known))
    blank = dict.fromkeys(NODES.names)
    rows = [known[node] for node in sorted(known)]
    rows += [
        {**blank, "cluster": node[0], "node": node[1], "gpus": seen[node], "inferred": True}
        for node in guessed
    ]
    inferred = []
    if guessed:
        inferred.append(
            f"{len(guessed)} of {len(rows)} nodes come from the node lists of jobs, not from an "
            "inventory; a node's GPUs are the most that one job had on it."
        )
    return [work.write("nodes", pa.Table.from_pylist(rows, schema=NODES))], len(rows), inferred


def _most(seen: dict[Node, int | None], node: Node, gpus: int | None) -> None:
    before = seen.get(node)
    seen[node] = before if gpus is None else gpus if before is None else max(before, gpus)
