"""The small pieces of SQL from which a query is put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.planning.filters import Condition
from holdfast.data.croissant.planning.values import apply
from holdfast.data.croissant.scanning.casting import INTEGERS
from holdfast.data.croissant.scanning.columns import Column, identifier
from holdfast.tables import literal

if TYPE_CHECKING:
    import duckdb


_MANY = 400
_FLOATS = ("FLOAT", "DOUBLE")
_QUOTED_OR_END = re.compile(r"""'[^']*'|"[^"]*"|\n""")


def selected(
    relation: str, columns: Sequence[Column], orders: Sequence[str], tests: Sequence[str]
) -> str:
    """Columns ``v0``, ``v1``, ... of a relation, then its orders, where all tests are true."""
    chosen = [f"{column.sql} AS v{i}" for i, column in enumerate(columns)]
    text = f"SELECT {', '.join([*chosen, *orders]) or '1 AS one'}\nFROM {relation}"
    return f"{text}\nWHERE {' AND '.join(tests)}" if tests else text


def condition_sql(condition: Condition, value: Callable[[Field], Column]) -> str:
    """A condition on the columns that `value` gives."""
    columns = [apply(nested(use.field, value), use.steps) for use in condition.uses]
    return f"({condition.sql([column.sql for column in columns])})"


def equal(left: Column, right: Column) -> str:
    """A join's test: both values are the same; null and NaN equal nothing.

    Numbers that one side holds as text are compared as numbers, so that 7, "7" and "007" are the same key;
    text that is not a number equals none.
    """
    one, other = left.type, right.type
    first, second = comparable(left.sql, one), comparable(right.sql, other)
    if one == other:
        return f"{first} = {second}"
    if one == "VARCHAR":
        return f"{_read_as(left.sql, other)} = {second}"
    if other == "VARCHAR":
        return f"{first} = {_read_as(right.sql, one)}"
    numbers = (*INTEGERS, *_FLOATS)
    if one in numbers and other in numbers:
        if (one in _FLOATS) == (other in _FLOATS):
            return f"{first} = {second}"
        # As DOUBLE, in which DuckDB compares them, integers from 2**53 on would be rounded.
        whole = (f"TRY_CAST({value} AS HUGEINT)" for value in (first, second))
        return f"({first} = {second} AND {' = '.join(whole)})"
    if all(kind.startswith(("DATE", "TIMESTAMP")) for kind in (one, other)):
        return f"{first} = {second}"
    return f"CAST({left.sql} AS VARCHAR) = CAST({right.sql} AS VARCHAR)"


def comparable(sql: str, kind: str) -> str:
    """A key as joins compare it: NaN, which equals itself in DuckDB, becomes null.

    Uses isnan: for a Parquet column, DuckDB evaluates ``= 'nan'`` to false from its statistics.
    """
    return f"CASE WHEN isnan({sql}) THEN NULL ELSE {sql} END" if kind in _FLOATS else sql


def _read_as(sql: str, kind: str) -> str:
    if kind in INTEGERS:  # a cast would round 1.5
        return (
            f"CASE WHEN regexp_full_match({sql}, '[+-]?[0-9]+') THEN TRY_CAST({sql} AS {kind}) END"
        )
    return comparable(f"TRY_CAST({sql} AS {kind})", kind)


def expect_columns(
    connection: duckdb.DuckDBPyConnection, number: int, *, tried: bool = False
) -> None:
    """Let the next query have so many columns.

    Of many, DuckDB does not look for what their expressions have in common: the time for that grows with
    the square of their number, and is more than it saves. Nor where they are `tried`: what they share it
    would compute first, outside of any TRY.
    """
    left_out = "common_subexpressions" if tried or number > _MANY else ""
    connection.execute(f"SET disabled_optimizers = '{left_out}'")


def indented(text: str) -> str:
    """A query inside another; the ends of lines in its constants and names stay as they are."""
    return "  " + _QUOTED_OR_END.sub(lambda one: "\n  " if one[0] == "\n" else one[0], text)


def nested(field: Field, value: Callable[[Field], Column], in_list: bool = False) -> Column:
    """A field's value, put together from its leaves.

    Args:
        field: a leaf, a field with sub-fields, or a group (whose value is one column).
        value: the column of a leaf or a group.
        in_list: it stands in a repeated field already, so that its leaves hold a list each.
    """
    if not field.sub_fields or field.parent_field is not None:
        return value(field)
    if not field.is_list or in_list:
        parts = [(sub.key, nested(sub, value, in_list)) for sub in field.sub_fields]
        return _struct(parts)
    lists = [(leaf, value(leaf)) for leaf in _value_leaves(field)]
    first = lists[0][1].sql
    lengths = f"greatest({', '.join(f'len({column.sql})' for _, column in lists)})"
    uneven = " OR ".join(f"len({column.sql}) <> {lengths}" for _, column in lists)
    message = literal(f"the parts of the repeated field {field.id!r} are not equally long")

    def item(leaf: Field) -> Column:
        column = next(column for other, column in lists if other.id == leaf.id)
        return Column(f"({column.sql})[i]", column.type.rpartition("[")[0])

    parts = [(sub.key, nested(sub, item, True)) for sub in field.sub_fields]
    made = _struct(parts)
    check = (
        f"CASE WHEN {uneven} THEN error({message}) ELSE {lengths} END"
        if len(lists) > 1
        else f"len({first})"
    )
    sql = f"list_transform(range(1, {check} + 1), lambda i: {made.sql})"
    missing = " AND ".join(f"{column.sql} IS NULL" for _, column in lists)
    return Column(f"CASE WHEN {missing} THEN NULL ELSE {sql} END", f"{made.type}[]")


def _struct(parts: list[tuple[str, Column]]) -> Column:
    values = ", ".join(f"{identifier(key)} := {column.sql}" for key, column in parts)
    types = ", ".join(f"{identifier(key)} {column.type}" for key, column in parts)
    return Column(f"struct_pack({values})", f"STRUCT({types})")


def _value_leaves(field: Field) -> Iterator[Field]:
    for sub in field.sub_fields:
        if sub.sub_fields and sub.parent_field is None:
            yield from _value_leaves(sub)
        else:
            yield sub
