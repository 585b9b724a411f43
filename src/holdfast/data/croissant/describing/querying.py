"""Questions to DuckDB whose answer is one row."""

from __future__ import annotations

from typing import Any

import duckdb


def one_row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    """The only row of a query; fetched whole, so that the connection is free again."""
    (row,) = connection.execute(query).fetchall()
    return tuple(row)
