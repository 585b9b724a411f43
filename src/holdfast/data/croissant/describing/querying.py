"""Questions to DuckDB: those of one row, and those that many columns are asked at once.

DuckDB takes about a millisecond to plan each expression of a query, however few rows there are. So what is
asked of every column is one expression over their values stacked below each other, not one for each column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import duckdb

_TOGETHER = 1_000  # columns of one query: of each, 2,048 values are in memory at once
_ROUGHLY, _FEW = 0.3, 5  # many times what approx_count_distinct is off by
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Values:
    """What the values of a column are.

    Attributes:
        rows: that have a value.
        distinct: how many different values.
        matches: how many of these are in each of the lists that were asked about.
    """

    rows: int
    distinct: int
    matches: tuple[int, ...] = ()


def one_row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    """The only row of a query; fetched whole, so that the connection is free again."""
    (row,) = connection.execute(query).fetchall()
    return tuple(row)


def in_turn(columns: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Columns, as many at a time as a query may have."""
    rest = iter(columns)
    while some := list(islice(rest, _TOGETHER)):
        yield some


def stacked(relation: str, *lists: Sequence[str]) -> str:
    """A relation with the values of many columns below each other.

    Args:
        relation: what stands after FROM.
        lists: of SQL expressions over it, those of a list all of one type.

    Returns:
        What stands after FROM: for each row and each `place` in the lists, `v0` is the value of that
        expression of the first list, `v1` that of the second, NULL where a list is shorter.
    """
    values = (f"unnest([{', '.join(each)}]) AS v{place}" for place, each in enumerate(lists))
    longest = max(map(len, lists))
    return f"(SELECT {', '.join(values)}, unnest(range({longest})) AS place FROM {relation})"


def about_distinct(
    connection: duckdb.DuckDBPyConnection, relation: str, columns: Mapping[str, str]
) -> dict[str, int]:
    """About how many different values each column has, in one pass of little memory.

    Args:
        connection: that can read the relation.
        relation: what stands after FROM.
        columns: name -> SQL expression over it.
    """
    counted = dict.fromkeys(columns, 0)
    for names in in_turn(columns):
        # Hashes, so that columns of any types can be stacked; that of NULL would count as a value.
        hashes = [
            f"CASE WHEN {columns[name]} IS NOT NULL THEN hash({columns[name]}) END"
            for name in names
        ]
        query = f"SELECT place, approx_count_distinct(v0) FROM {stacked(relation, hashes)} GROUP BY place"
        for place, distinct in connection.execute(query).fetchall():
            counted[names[place]] = distinct
    return counted


def may_be(about: int, exactly: int) -> bool:
    """Whether a number of distinct values that is known roughly may be this one."""
    return abs(about - exactly) <= _ROUGHLY * exactly + _FEW


def count_values(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    columns: Mapping[str, str],
    *known: tuple[str, str],
) -> dict[str, Values]:
    """Count the values of columns, and how many of them are known elsewhere.

    Args:
        connection: that can read all relations.
        relation: what stands after FROM.
        columns: name -> SQL expression over it, all of one type.
        known: lists of values, none of which is there twice: a relation, and an expression over it.
    """
    joins = "".join(
        f" LEFT JOIN (SELECT {sql} AS x FROM {other}) AS k{place} ON v0 = k{place}.x"
        for place, (other, sql) in enumerate(known)
    )
    found = "".join(f", count(k{place}.x)" for place in range(len(known)))
    counted = dict.fromkeys(columns, Values(0, 0, (0,) * len(known)))
    for names in in_turn(columns):
        rows = stacked(relation, [columns[name] for name in names])
        once = f"SELECT place, v0, count(*) AS n FROM {rows} WHERE v0 IS NOT NULL GROUP BY ALL"
        query = f"SELECT place, sum(n)::BIGINT, count(*){found} FROM ({once}){joins} GROUP BY place"
        for place, number, distinct, *among in connection.execute(query).fetchall():
            counted[names[place]] = Values(number, distinct, tuple(among))
    return counted
