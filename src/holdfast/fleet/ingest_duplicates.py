"""Rows that several sources, or a source and the store, have of one attempt: one row is left.

The row that knows most of the end wins: a final state over RUNNING or PENDING, then the later end,
then the later source. What it lacks (a column that its source did not print) comes from the others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from holdfast.fleet.ingest_index import NULL, Index, Part, Sign
from holdfast.fleet.schema import ATTEMPTS

_ROWS_AT_ONCE = 400_000
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
    """Replace the rows of each attempt that has several by one, in a new part in `folder`."""
    several = index.keep.copy()
    several[index.keep] = repeated(index.key[index.keep])
    count = int(several.sum())
    if not count:
        return
    buckets = count // _ROWS_AT_ONCE + 1
    parts = []
    folder.mkdir(parents=True, exist_ok=True)
    for bucket in range(buckets):
        chosen = several & (index.key % buckets == bucket)
        merged = _merge(index.gather(chosen), _rank(index, chosen))
        path = folder / f"merged-{bucket:04d}.arrow"
        with ipc.new_file(str(path), ATTEMPTS) as writer:
            writer.write_table(merged)
        parts.append(Part(path, len(merged), stored=False))
    index.keep &= ~several
    index.extend(parts)


def _rank(index: Index, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """0 for the row that wins over all other chosen ones, then 1, 2 ..."""
    rows = np.flatnonzero(chosen)
    over = index.has(Sign.OVER)[rows]
    end = index.end[rows]
    best_first = np.lexsort((-rows, -np.where(end == NULL, 0, end), ~over))
    rank = np.empty(len(rows), np.int64)
    rank[best_first] = np.arange(len(rows))
    return rank


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
