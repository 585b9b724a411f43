"""Rows that several sources, or a source and the store, have of one attempt: one row is left.

The row that knows most of the end wins: a final state over RUNNING or PENDING, then the later end,
then the longer runtime, then the row with more columns. What it lacks (a column that its source did
not print) comes from the others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from holdfast.fleet.formats.columns import flat
from holdfast.fleet.ingest_index import NULL, Index, Part, Sign
from holdfast.fleet.schema import ATTEMPTS

Mask = npt.NDArray[np.bool_]

_ROWS_AT_ONCE = 400_000
# The cluster is the same in all rows of an attempt by now, the end goes with the state.
_INFORMATIVE = [name for name in ATTEMPTS.names if name not in ("cluster", "key", "end_s")]
_EITHER = ("out_of_memory", "sigterm")


def repeated(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which keys occur more than once."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    same = np.zeros(len(keys), bool)
    equal = ordered[1:] == ordered[:-1]
    same[order[1:][equal]] = True
    same[order[:-1][equal]] = True
    return same


def merge_duplicates(index: Index, folder: Path) -> None:
    """Leave one row of each attempt that has several.

    Where the best row has all that the others have, as in two logs of the same days, they are
    dropped and it stays in its file. Otherwise one row made of all goes to a new part in `folder`.
    """
    several = index.keep.copy()
    several[index.keep] = repeated(index.key[index.keep])
    rows = np.flatnonzero(several)
    if not len(rows):
        return
    filled, runtime = _knowledge(index, several)
    over, end = index.has(Sign.OVER)[rows], index.end[rows]
    size = np.bitwise_count(filled).astype(np.int64)
    # By attempt, the row that wins first.
    order = np.lexsort(
        (rows, -size, -runtime, -np.where(end == NULL, 0, end), ~over, index.key[rows])
    )
    key = index.key[rows][order]
    best = np.append(True, key[1:] != key[:-1])
    attempt = np.cumsum(best) - 1
    lacking = (filled[order] & ~filled[order][best][attempt]) != 0
    patchwork = np.bincount(attempt, weights=lacking) > 0  # [attempt]
    index.keep[rows[order][~best | patchwork[attempt]]] = False
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows))
    mixed = np.zeros(len(index.key), bool)
    mixed[rows[order][patchwork[attempt]]] = True
    _merge_in_buckets(index, mixed, rank[mixed[rows]], folder)


def _merge_in_buckets(index: Index, mixed: Mask, rank: npt.NDArray[np.int64], folder: Path) -> None:
    """Make one row of each attempt out of its rows, a bounded number at a time."""
    count = int(mixed.sum())
    if not count:
        return
    buckets = count // _ROWS_AT_ONCE + 1
    bucket_of = index.key % buckets
    parts = []
    folder.mkdir(parents=True, exist_ok=True)
    for bucket in range(buckets):
        chosen = mixed & (bucket_of == bucket)
        merged = _merge(index.gather(chosen), rank[chosen[mixed]])
        path = folder / f"merged-{bucket:04d}.arrow"
        with ipc.new_file(str(path), ATTEMPTS) as writer:
            writer.write_table(merged)
        parts.append(Part(path, len(merged), stored=False))
    index.extend(parts)


def _knowledge(index: Index, chosen: Mask) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """For each chosen row which columns say something, a bit each, and its runtime (0: unknown)."""
    filled: list[npt.NDArray[np.uint64]] = []
    runtime: list[npt.NDArray[np.int64]] = []
    for where, rows in index.rows(chosen):
        table = rows.filter(pa.array(chosen[where]))
        bits = np.zeros(len(table), np.uint64)
        for place, name in enumerate(_INFORMATIVE):
            says = _says(table[name]).astype(np.uint64)
            bits |= says << np.uint64(place)
        filled.append(bits)
        seconds = flat(pc.fill_null(table["runtime_s"], 0)).to_numpy()
        runtime.append(np.asarray(seconds, np.int64))
    return np.concatenate(filled), np.concatenate(runtime)


def _says(column: pa.ChunkedArray) -> Mask:
    """Whether each value says something: not null, not empty, not false."""
    if pa.types.is_boolean(column.type):
        says = column
    elif pa.types.is_list(column.type):
        says = pc.greater(pc.list_value_length(column), 0)
    elif pa.types.is_string(column.type):
        says = pc.not_equal(column, "")
    else:
        says = pc.is_valid(column)
    return np.asarray(flat(pc.fill_null(says, False)).to_numpy(zero_copy_only=False), bool)


def _merge(rows: pa.Table, rank: npt.NDArray[np.int64]) -> pa.Table:
    """One row for each key: every column from the best row that has it."""
    import duckdb

    columns = []
    for field in ATTEMPTS:
        name = f'"{field.name}"'
        if field.name == "key":
            columns.append("key")
        elif field.name in _EITHER:
            columns.append(f"bool_or({name}) AS {name}")
        elif pa.types.is_list(field.type):
            columns.append(
                f"coalesce(arg_min({name}, rank) FILTER (len({name}) > 0), []) AS {name}"
            )
        elif pa.types.is_string(field.type):
            filled = f"arg_min({name}, rank) FILTER ({name} <> '')"
            columns.append(f"coalesce({filled}, arg_min({name}, rank)) AS {name}")
        elif field.name == "end_s":
            # A row that is over must not take the end of an older one that was not.
            columns.append(f"arg_min({name}, rank) AS {name}")
        else:
            columns.append(f"arg_min({name}, rank) FILTER ({name} IS NOT NULL) AS {name}")
    rows = rows.append_column("rank", pa.array(rank))
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '1GB'")
        connection.register("rows", rows)
        found: pa.Table = connection.sql(
            f"SELECT {', '.join(columns)} FROM rows GROUP BY key ORDER BY key"
        ).to_arrow_table()
    return found.cast(ATTEMPTS)
