"""Inline data and constants as SQL: what the description itself holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.planning.filters import sql_value
from holdfast.data.croissant.scanning.columns import Column
from holdfast.tables import literal


def constant(value: Any) -> Column:
    """A field's ``value`` as a column: plain values by their own type, lists and objects as JSON."""
    kind = _kind([value])
    return Column(_written(value, kind), kind)


def inline_table(
    data: Sequence[Mapping[str, Any]], fields: Sequence[Field]
) -> tuple[str, list[Column]]:
    """Inline records as a relation, with a column for each field and `n`, their place.

    Args:
        data: the records as written; a field stands there under its id, key or short name.
        fields: the fields wanted; a record without one has null there.
    """
    values = [[_value(row, field) for row in data] for field in fields]
    kinds = [_kind(column) for column in values]
    columns = [Column(f"d{i}", kind) for i, kind in enumerate(kinds)]
    names = ", ".join([*(column.sql for column in columns), "n"])
    rows = [
        f"({', '.join([*(_written(c[i], k) for c, k in zip(values, kinds, strict=True)), str(i)])})"
        for i in range(len(data))
    ]
    if not rows:
        nulls = ", ".join(f"NULL::{column.type} AS {column.sql}" for column in columns)
        return f"(SELECT {nulls}{', ' if nulls else ''}0 AS n WHERE FALSE)", columns
    return f"(VALUES {', '.join(rows)}) AS inline({names})", columns


def _value(row: Mapping[str, Any], field: Field) -> Any:
    for name in (field.id, field.key, field.short):
        if name in row:
            return row[name]
    return None


def _kind(values: Sequence[Any]) -> str:
    """The narrowest DuckDB type that holds all of the values."""
    present = [value for value in values if value is not None]
    if all(isinstance(value, str) for value in present):
        return "VARCHAR"
    if all(isinstance(value, bool) for value in present):
        return "BOOLEAN"
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in present):
        return "BIGINT"
    if all(type(value) in (int, float) for value in present):
        return "DOUBLE"
    return "JSON"


def _written(value: Any, kind: str) -> str:
    if value is None:
        return f"NULL::{kind}"
    if kind == "JSON":
        return f"{literal(json.dumps(value, ensure_ascii=False))}::JSON"
    text = sql_value(value)
    return f"{text}::{kind}" if kind in ("BIGINT", "DOUBLE") else text
