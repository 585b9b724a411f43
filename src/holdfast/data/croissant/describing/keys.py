"""Keys of tables: columns whose values tell the rows apart, and whose names say that they are meant to.

Values alone prove nothing: in a small table many a column happens to have no value twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import duckdb

from holdfast.data.croissant.describing.naming import root, words
from holdfast.data.croissant.describing.querying import one_row
from holdfast.data.croissant.describing.shapes import Table

IDS = frozenset({"id", "key", "uuid", "guid"})
# Words that end the name of a first column whose values are the rows' names; so does the table's own name,
# as in `planet` of planets.
KEYLIKE = IDS | {
    *("hash", "md5", "sha256", "code", "slug", "isbn", "doi", "email", "url", "uri"),
    *("name", "label", "title", "file", "filename", "path"),
}
_COUNTERS = frozenset({"unnamed", "index", "number", "no", "num", "nr", "row"})
_ENOUGH = 10  # rows for which it is no accident that all values differ
_MOST_PAIRED = 6  # columns of which pairs are tried


def find_key(connection: duckdb.DuckDBPyConnection, table: Table) -> tuple[str, ...]:
    """The column, or the pair of columns, that is a table's key; () where none is, or none is named so."""
    if table.rows < 2 or not table.complete:
        return ()
    for name in dict.fromkeys(_likely(table)):
        if is_unique(connection, table, (name,)):
            return (name,)
    ids = [shape.name for shape, _ in table.comparable() if _last(shape.name) in IDS | {"code"}]
    if table.rows < 4 or len(ids) > _MOST_PAIRED:
        return ()
    return next((pair for pair in combinations(ids, 2) if is_unique(connection, table, pair)), ())


def is_unique(connection: duckdb.DuckDBPyConnection, table: Table, names: tuple[str, ...]) -> bool:
    """Whether every row has values there, and no two rows the same."""
    sql = [table.sql[name] for name in names]
    full = " AND ".join(f"{value} IS NOT NULL" for value in sql)
    rows = f"SELECT {', '.join(sql)} FROM {table.relation} WHERE {full}"
    distinct = f"SELECT count(*) FROM (SELECT DISTINCT * FROM ({rows}))"
    found = one_row(connection, f"SELECT (SELECT count(*) FROM ({rows})), ({distinct})")
    return found == (table.rows, table.rows)


def _likely(table: Table) -> Iterator[str]:
    """Columns that may be the key by their names and places, the most likely first."""
    subject = [root(word) for word in words(table.name)]
    columns = list(table.comparable())
    for shape, _ in columns:
        *about, last = words(shape.name) or [""]
        if last in IDS and [root(word) for word in about] in ([], subject):
            yield shape.name
    if not columns or columns[0][0] is not table.shapes[0]:
        return
    first, kind = columns[0]
    if _last(first.name) in KEYLIKE or [root(word) for word in words(first.name)] == subject:
        yield first.name
    if table.rows < _ENOUGH:
        return
    if kind == "number" and _COUNTERS & set(words(first.name)):
        yield first.name
    for shape, _ in columns:
        if _last(shape.name) in IDS | {"hash"}:
            yield shape.name


def _last(name: str) -> str:
    return (words(name) or [""])[-1]
