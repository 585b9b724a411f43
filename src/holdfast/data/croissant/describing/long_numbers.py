"""Numbers with more digits than their type holds: such columns are described as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb

from holdfast.data.croissant.describing.querying import in_turn, one_row
from holdfast.data.croissant.describing.shapes import Shape
from holdfast.data.croissant.scanning.casting import text
from holdfast.data.croissant.scanning.columns import Column


def read_through(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    shapes: Sequence[Shape],
    columns: Mapping[str, Column],
) -> tuple[Shape, ...]:
    """Columns of JSON, each of which can be read; as text where they hold too long numbers."""
    tests = {shape.name: _too_long(text(columns[shape.name]).sql, shape) for shape in shapes}
    return _as_text(connection, relation, shapes, tests)


def exact(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    shapes: Sequence[Shape],
    columns: Mapping[str, Column],
) -> tuple[Shape, ...]:
    """Decimal numbers as text, where floating point cannot hold them all."""
    tests = {
        shape.name: f"count_if(TRY_CAST(CAST({column.sql} AS DOUBLE) AS {column.type}) "
        f"IS DISTINCT FROM {column.sql})"
        for shape in shapes
        if shape.data_types == ("sc:Float",)
        and (column := columns[shape.name]).type.startswith("DECIMAL")
    }
    return _as_text(connection, relation, shapes, tests)


def _too_long(written: str, shape: Shape) -> str:
    """How many numbers of a column of JSON its type cannot hold, as SQL that reads every value."""
    if shape.sizes or shape.parts or shape.data_types[0] not in ("sc:Integer", "sc:Float"):
        return f"0 * count({written})"
    if shape.data_types[0] == "sc:Integer":
        return f"count({written}) - count(TRY_CAST({written} AS BIGINT))"
    whole, number = f"regexp_full_match({written}, '-?[0-9]{{16,}}')", f"CAST({written} AS DOUBLE)"
    return f"count_if(isinf({number}) OR ({whole} AND printf('%.0f', {number}) <> {written}))"


def _as_text(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    shapes: Sequence[Shape],
    tests: Mapping[str, str],
) -> tuple[Shape, ...]:
    """The columns, as text where a test (name -> SQL) counts a number that its type cannot hold."""
    inexact = set()
    for names in in_turn(tests):
        chosen = ", ".join(tests[name] for name in names)
        counts = one_row(connection, f"SELECT {chosen} FROM {relation}")
        inexact |= {name for name, count in zip(names, counts, strict=True) if count}
    remark = "numbers of more digits, or larger, than a type of numbers holds: taken as text"
    return tuple(
        replace(shape, data_types=("sc:Text",), remark=remark) if shape.name in inexact else shape
        for shape in shapes
    )
