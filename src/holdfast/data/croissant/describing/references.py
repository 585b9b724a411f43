"""References between tables: columns whose values are all among another table's key.

That the values are there proves little: 1, 2, 3 are in every table of three rows. So the column's name must
name the other table or its key, or the column must hold exactly the texts that a small table explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb

from holdfast.data.croissant.describing.keys import IDS, KEYLIKE
from holdfast.data.croissant.describing.naming import root, words
from holdfast.data.croissant.describing.querying import one_row
from holdfast.data.croissant.describing.shapes import Table

_SUFFIXES = IDS | {"fk", "ref", "code", "hash"}
# Words that say of a table no more than that it is one.
_PLAIN = {
    root(word)
    for word in (
        *(
            "table",
            "list",
            "lookup",
            "enum",
            "enumeration",
            "dim",
            "tbl",
            "data",
            "info",
            "metadata",
        ),
        *("record", "dataset", "all", "master", "definition"),
    )
}
_VAGUE = KEYLIKE | {
    "number",
    "no",
    "num",
    "date",
    "type",
    "value",
    "text",
    "description",
    "index",
    "",
}
_LARGEST_LOOKUP = 1_000


@dataclass(frozen=True)
class Reference:
    """A column whose values are all among a key's.

    Attributes:
        target: the other table's name.
        key: its key column.
        values: distinct values of the column.
        of: values of the key.
        named: its name says so; else only its texts do.
    """

    target: str
    key: str
    values: int
    of: int
    named: bool = True


@dataclass(frozen=True)
class Contained:
    """How many distinct values a column has, and how many of them are among so many of a key."""

    values: int
    found: int
    of: int


def find_references(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    tables: Mapping[str, Table],
    keys: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, Reference], list[str]]:
    """The references of one table.

    Args:
        connection: that can read every table's relation.
        name: the table's.
        tables: all of them, by name.
        keys: of those that have one, the key's columns.

    Returns:
        Column -> what it references, and a sentence about each that looks like a reference but is none.
    """
    found: dict[str, Reference] = {}
    remarks: list[str] = []
    table = tables[name]
    for shape, kind in table.comparable() if table.complete else ():
        own = keys.get(name) == (shape.name,)
        named: dict[int, list[Reference]] = {}
        for target, key in _targets(name, kind, tables, keys):
            closeness = _closeness(shape.name, target, key, own)
            explains = kind == "text" and not own and tables[target].rows <= _LARGEST_LOOKUP
            if not (closeness or (explains and tables[target].rows < table.rows)):
                continue
            counted = contained(
                connection,
                (table.relation, table.sql[shape.name]),
                (tables[target].relation, tables[target].sql[key]),
            )
            reference = Reference(target, key, counted.values, counted.of, closeness > 0)
            if not closeness:
                if 2 <= counted.values == counted.found == counted.of:
                    named.setdefault(0, []).append(reference)
            elif 0 < counted.values == counted.found:
                named.setdefault(closeness, []).append(reference)
            elif counted.found:
                remarks.append(
                    f"{counted.values - counted.found:,} of {counted.values:,} values of {shape.name!r} "
                    f"are not among {key!r} of {target!r}: no reference"
                )
        best = named[max(named)] if named else []
        if len(best) == 1:
            found[shape.name] = best[0]
        elif best:
            others = ", ".join(repr(each.target) for each in best)
            remarks.append(f"{shape.name!r} may reference any of {others}: no reference")
    return found, remarks


def contained(
    connection: duckdb.DuckDBPyConnection, values: tuple[str, str], among: tuple[str, str]
) -> Contained:
    """Count the distinct values of one column that are among those of another.

    Args:
        connection: that can read both.
        values: a relation, and an expression over it.
        among: the other relation, and an expression of the same type over it.
    """
    (relation, value), (other, key) = values, among
    query = f"""
        WITH held AS (SELECT DISTINCT {value} AS x FROM {relation} WHERE {value} IS NOT NULL),
             known AS (SELECT DISTINCT {key} AS x FROM {other} WHERE {key} IS NOT NULL)
        SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM held SEMI JOIN known USING (x)),
               (SELECT count(*) FROM known)
    """
    return Contained(*one_row(connection, query))


def _targets(
    name: str, kind: str, tables: Mapping[str, Table], keys: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """Other tables with a key of one column that holds values of a kind."""
    for target, key in keys.items():
        if target != name and len(key) == 1:
            kinds = {shape.name: each for shape, each in tables[target].comparable()}
            if kinds[key[0]] == kind:
                yield target, key[0]


def _closeness(column: str, target: str, key: str, own: bool) -> int:
    """Whether a column's name names another table (2), or what its key alone is called (1), or not (0).

    Args:
        column: the column's name.
        target: the other table's.
        key: the other table's key.
        own: whether the column is its own table's key, which two tables of the same things share.
    """
    named = words(column)
    parts = [root(word) for word in named]
    subject = [root(word) for word in words(target)]
    subject = [word for word in subject if word not in _PLAIN] or subject
    about = parts[:-1] if named and named[-1] in _SUFFIXES else parts
    if (
        about
        and subject
        and (about == subject or (about != parts and about[-len(subject) :] == subject))
    ):
        return 2
    specific = [root(word) for word in words(key)]
    if parts == specific and not own and not set(named) <= _VAGUE:
        return 1
    return 0
