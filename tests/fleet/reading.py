"""Reading a source in one go, as the tests of the formats do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.fleet.formats.batch import Format, ReadOptions
from holdfast.fleet.schema import TABLES
from holdfast.opening import first_bytes


def read(known: Format, path: Path, options: ReadOptions | None = None) -> dict[str, pa.Table]:
    """Every table of a source, whole; each in the schema of its name."""
    assert known.name == "mapped" or known.sniff(first_bytes(path), path)
    pieces: dict[str, list[pa.Table]] = {}
    for batch in known.batches(path, options or ReadOptions()):
        for name, table in batch.tables.items():
            assert table.schema.equals(TABLES[name]), name
            pieces.setdefault(name, []).append(table)
    return {name: pa.concat_tables(tables) for name, tables in pieces.items()}


def rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as tuples of the named columns."""
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def rejected(tables: dict[str, pa.Table]) -> list[tuple[int, str]]:
    """(line, reason) of every reject."""
    return [(line, reason) for line, reason in rows(tables["rejects"], "line", "reason")]
