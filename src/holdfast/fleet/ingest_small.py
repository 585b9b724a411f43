"""The small tables of a commit: health events, outages, nodes and the like, each row once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.fleet.formats.columns import flat, row_key
from holdfast.fleet.ingest_index import Ints
from holdfast.fleet.ingest_staging import SEEN_NODES
from holdfast.fleet.ingest_writing import Commit
from holdfast.fleet.schema import NODES, TABLES

# What makes a row of a small table the same row again.
IDENTITY = {
    "health": ("time_s", "node", "check", "severity", "result", "message", "xid"),
    "node_outages": ("node", "start_s", "state"),
    "controller_events": ("time_s", "event", "job_id", "job_id_raw", "preemptor", "node"),
    "qos": ("qos",),
    "rejects": ("source", "line", "reason", "raw"),
}


def small_table(work: Commit, name: str) -> tuple[list[str], Callable[[], pa.Table]]:
    """Old and new rows of a table, each once; its files, and how to read it."""
    schema = TABLES[name]
    old_files = list(work.old.facts["tables"].get(name, [])) if work.old else []

    def stored(files: Sequence[str]) -> pa.Table:
        read = [pq.read_table(work.folder / file, schema=schema) for file in files]
        return pa.concat_tables([schema.empty_table(), *read])

    staged = pa.concat_tables([schema.empty_table(), *(each.read(name) for each in work.stages)])
    superseded = work.superseded if name == "rejects" else {}
    if old_files and not len(staged) and not superseded:
        return old_files, lambda: stored(old_files)
    rows = pa.concat_tables([_without(stored(old_files), superseded), staged])
    keys = row_key(*(rows[column] for column in IDENTITY[name]))
    if "key" in schema.names:
        place = schema.get_field_index("key")
        rows = rows.set_column(place, schema.field(place), keys)
    rows = rows.take(pa.array(last_of_each(rows, keys)))
    return [work.write(name, rows)], lambda: rows


def _without(rejects: pa.Table, superseded: Mapping[str, int]) -> pa.Table:
    """The rejects but those of lines that were read again."""
    for source, line in superseded.items():
        again = pc.and_(
            pc.equal(rejects["source"], source), pc.greater_equal(rejects["line"], line)
        )
        rejects = rejects.filter(pc.invert(again))
    return rejects


def last_of_each(rows: pa.Table, keys: pa.Array) -> Ints:
    """One row a key, in the order of the table: the last, but a period that has ended first."""
    values = flat(keys).to_numpy()
    over = np.ones(len(values), bool)
    if "end_s" in rows.column_names:
        over = flat(pc.is_valid(rows["end_s"])).to_numpy(zero_copy_only=False)
    order = np.lexsort((np.arange(len(values)), over, values))
    last = np.append(values[order][1:] != values[order][:-1], True)[: len(order)]
    return np.sort(order[last])


def merge_nodes(work: Commit) -> tuple[list[str], int, list[str]]:
    """The inventory, and the nodes that only logs name: files, rows, what was inferred."""
    old = [NODES.empty_table()]
    if work.old:
        old += [pq.read_table(file, schema=NODES) for file in work.old.files("nodes")]
    known: dict[str, dict[str, Any]] = {}
    seen: dict[str, int | None] = {}
    for row in pa.concat_tables([*old, *(each.read("nodes") for each in work.stages)]).to_pylist():
        if row["inferred"]:
            _most(seen, row["node"], row["gpus"])
        else:
            known[row["node"]] = row
    names = pa.concat_tables(
        [SEEN_NODES.empty_table(), *(each.read("seen_nodes") for each in work.stages)]
    )
    most = names.group_by("node").aggregate([("gpus", "max")])
    for node, gpus in zip(most["node"].to_pylist(), most["gpus_max"].to_pylist(), strict=True):
        _most(seen, node, gpus)
    guessed = sorted(set(seen) - set(known))
    blank = dict.fromkeys(NODES.names)
    rows = [known[node] for node in sorted(known)]
    rows += [{**blank, "node": node, "gpus": seen[node], "inferred": True} for node in guessed]
    inferred = []
    if guessed:
        inferred.append(
            f"{len(guessed)} of {len(rows)} nodes come from the node lists of jobs, not from an "
            "inventory; a node's GPUs are the most that one job had on it."
        )
    return [work.write("nodes", pa.Table.from_pylist(rows, schema=NODES))], len(rows), inferred


def _most(seen: dict[str, int | None], node: str, gpus: int | None) -> None:
    before = seen.get(node)
    seen[node] = before if gpus is None else gpus if before is None else max(before, gpus)
