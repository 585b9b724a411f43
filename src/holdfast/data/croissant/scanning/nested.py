"""DuckDB's types as text, taken apart: the elements of lists, the members of structs and maps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from holdfast.data.croissant.scanning.columns import Column

_names = count()


def element(duckdb_type: str) -> str | None:
    """The type of a list's or array's elements; None of anything else."""
    return duckdb_type[:-1].rpartition("[")[0] if duckdb_type.endswith("]") else None


def members(duckdb_type: str) -> dict[str, str] | None:
    """The members of a struct, name -> type; None of anything else."""
    if not duckdb_type.startswith("STRUCT(") or element(duckdb_type):
        return None
    from duckdb import sqltype

    return {name: str(kind) for name, kind in sqltype(duckdb_type).children}


def map_value(duckdb_type: str) -> str | None:
    """The type of a map's values; None of anything else."""
    if not duckdb_type.startswith("MAP(") or element(duckdb_type):
        return None
    from duckdb import sqltype

    return str(dict(sqltype(duckdb_type).children)["value"])


def each(column: Column, change: Callable[[Column], Column]) -> Column:
    """A change of every element of a list."""
    inner = element(column.type)
    if inner is None:
        return change(column)
    name = f"each{next(_names)}"
    changed = change(Column(name, inner))
    if changed.sql == name:
        return Column(column.sql, changed.type + "[]") if changed.type != inner else column
    return Column(
        f"list_transform({column.sql}, lambda {name}: {changed.sql})", changed.type + "[]"
    )


def each_value(column: Column, change: Callable[[Column], Column]) -> Column:
    """A change of every value in lists however deep."""
    if element(column.type) is None:
        return change(column)
    return each(column, lambda inner: each_value(inner, change))
