"""One measured step of the Croissant benchmark, in a process of its own; prints what it took as JSON.

    python benchmarks/croissant_load_steps.py CONTENDER STEP FOLDER

CONTENDER is holdfast, polars, duckdb, or mlcroissant (with an interpreter that has it). Libraries are
imported before the clock starts; opening the description or the table is in the measured time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

CAP = "800MiB"
"""DuckDB's share of the cap of 1 GiB; the rest is the interpreter, the libraries and one batch."""
JOIN = "SELECT event, user, amount, name FROM events LEFT JOIN users ON events.user = users.id"


def holdfast_arrow(folder: Path) -> Callable[[], Any]:
    from holdfast.data.croissant.loading.dataset import Dataset

    return lambda: Dataset(folder).records("rows").to_arrow().num_rows


def holdfast_dicts(folder: Path) -> Callable[[], Any]:
    from holdfast.data.croissant.loading.dataset import Dataset

    return lambda: sum(1 for _ in Dataset(folder).records("rows"))


def holdfast_join(folder: Path, ordered: bool = False) -> Callable[[], Any]:
    from holdfast.data.croissant.loading.dataset import Dataset

    def join() -> int:
        records = Dataset(folder, memory_limit=CAP).records("joined", ordered=ordered)
        return sum(batch.num_rows for batch in records.batches())

    return join


def holdfast_join_in_order(folder: Path) -> Callable[[], Any]:
    return holdfast_join(folder, ordered=True)


def holdfast_split(folder: Path) -> Callable[[], Any]:
    from holdfast.data.croissant.loading.dataset import Dataset

    cache = folder / "cache"
    return lambda: (
        Dataset(folder, cache=cache)
        .records("rows", filters={"split": "validation"})
        .to_arrow()
        .num_rows
    )


def holdfast_fields(folder: Path) -> Callable[[], Any]:
    from holdfast.data.croissant.loading.dataset import Dataset
    from holdfast.data.croissant.rules.checking import validate

    def work() -> int:
        assert validate(folder).valid
        return Dataset(folder).records("rows").to_arrow().num_rows

    return work


def duckdb_arrow(folder: Path) -> Callable[[], Any]:
    import duckdb

    return lambda: duckdb.connect().read_csv(str(folder / "table.csv")).to_arrow_table().num_rows


def duckdb_dicts(folder: Path) -> Callable[[], Any]:
    import duckdb

    def dicts() -> int:
        result = duckdb.connect().execute(f"FROM read_csv('{folder / 'table.csv'}')")
        names, count = [column[0] for column in result.description or ()], 0
        while rows := result.fetchmany(65536):
            count += sum(1 for _ in (dict(zip(names, row, strict=True)) for row in rows))
        return count

    return dicts


def duckdb_join(folder: Path, query: str = JOIN) -> Callable[[], Any]:
    import duckdb

    def join() -> int:
        with duckdb.connect() as connection:
            connection.execute(f"SET memory_limit = '{CAP}'")
            connection.execute(f"SET temp_directory = '{folder / 'spill'}'")
            for name in ("events", "users"):
                path = folder / f"{name}.parquet"
                connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{path}')")
            reader = connection.sql(query).to_arrow_reader(65536)
            return sum(batch.num_rows for batch in reader)

    return join


def duckdb_join_in_order(folder: Path) -> Callable[[], Any]:
    return duckdb_join(folder, f"{JOIN} ORDER BY event")


def polars_arrow(folder: Path) -> Callable[[], Any]:
    import polars

    return lambda: polars.read_csv(folder / "table.csv").to_arrow().num_rows


def polars_dicts(folder: Path) -> Callable[[], Any]:
    import polars

    return lambda: sum(1 for _ in polars.read_csv(folder / "table.csv").iter_rows(named=True))


def polars_join(folder: Path, order: Literal["none", "left"] = "none") -> Callable[[], Any]:
    import polars

    def join() -> int:
        events, users = (
            polars.scan_parquet(folder / f"{name}.parquet") for name in ("events", "users")
        )
        joined = events.join(users, left_on="user", right_on="id", how="left", maintain_order=order)
        return int(joined.collect(engine="streaming").height)

    return join


def polars_join_in_order(folder: Path) -> Callable[[], Any]:
    return polars_join(folder, "left")


def mlcroissant_arrow(folder: Path) -> Callable[[], Any]:
    import mlcroissant
    import pyarrow as pa

    def arrow() -> int:
        dataset = mlcroissant.Dataset(folder / "metadata.json")
        return int(pa.Table.from_pylist(list(dataset.records("rows"))).num_rows)

    return arrow


def mlcroissant_dicts(folder: Path) -> Callable[[], Any]:
    import mlcroissant

    return lambda: sum(1 for _ in mlcroissant.Dataset(folder / "metadata.json").records("rows"))


mlcroissant_fields = mlcroissant_dicts


def main() -> None:
    contender, step, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    work = globals()[f"{contender}_{step}"](folder)
    begin = time.perf_counter()
    rows = work()
    print(json.dumps({"seconds": time.perf_counter() - begin, "rows": rows}))


if __name__ == "__main__":
    main()
