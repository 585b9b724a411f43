"""Keys and references of tables: what the data and the names together say.

Values alone prove nothing: in a small table many a column happens to have no value twice, and 1, 2, 3 are
in every table of three rows. So a key's name must say that it is meant to be one; and a column that
references another table must name it or its key, or hold exactly the texts that a small table explains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import duckdb

from holdfast.data.croissant.describing.naming import root, words
from holdfast.data.croissant.describing.querying import about_distinct, count_values, may_be
from holdfast.data.croissant.describing.shapes import Table

IDS = frozenset({"id", "key", "uuid", "guid"})
# Words that end the name of a first column whose values are the rows' names; so does the table's own name,
# as in `planet` of planets.
KEYLIKE = IDS | {
    "hash", "md5", "sha256", "code", "slug", "isbn", "doi", "email", "url", "uri",
    "name", "label", "title", "file", "filename", "path",
}  # fmt: skip
_COUNTERS = frozenset({"unnamed", "index", "number", "no", "num", "nr", "row"})
_ENOUGH = 10  # rows from which all values being different is not a coincidence
_MOST_PAIRED = 6  # columns of which pairs are tried
_SUFFIXES = IDS | {"fk", "ref", "code", "hash"}
# Words that say of a table no more than that it is one.
_PLAIN = set(map(root, (
    "table", "list", "lookup", "enum", "enumeration", "dim", "tbl", "data", "info", "metadata",
    "record", "dataset", "all", "master", "definition",
)))  # fmt: skip
_VAGUE = KEYLIKE | {
    "number", "no", "num", "date", "type", "value", "text", "description", "index", "",
}  # fmt: skip
_LARGEST_LOOKUP = 1_000


@dataclass(frozen=True)
class Reference:
    """A column whose values are all among a key's.

    Attributes:
        target: the other table's name.
        key: its key column.
        values: distinct values of the column.
        of: values of the key.
        closeness: 2 if the column's name names the other table, 1 if its key, 0 if only its texts do.
    """

    target: str
    key: str
    values: int
    of: int
    closeness: int


def find_key(connection: duckdb.DuckDBPyConnection, table: Table) -> tuple[str, ...]:
    """The column, or the pair of columns, that is a table's key; () where none is, or none is named so."""
    if table.rows < 2 or not table.complete:
        return ()
    likely = list(dict.fromkeys(_likely(table)))
    for names in (likely[:1], likely[1:]):  # the likeliest alone: mostly there it ends
        if unique := _unique(connection, table, _as_text(table, names)):
            return (unique,)
    ids = [name for name in table.comparable if _last(name) in IDS | {"code"}]
    if table.rows < 4 or len(ids) > _MOST_PAIRED:
        return ()
    pairs = {" and ".join(pair): pair for pair in combinations(ids, 2)}
    columns = {name: _together(table, pair) for name, pair in pairs.items()}
    return pairs.get(_unique(connection, table, columns), ())


def _unique(connection: duckdb.DuckDBPyConnection, table: Table, columns: Mapping[str, str]) -> str:
    """The first column that has a value in every row, and no two rows the same; "" if none has.

    Values are counted one by one only of columns that may have so many: counting takes memory.
    """
    about = about_distinct(connection, table.relation, columns) if len(columns) > 1 else {}
    for name, sql in columns.items():
        if may_be(about.get(name, table.rows), table.rows):
            values = count_values(connection, table.relation, {name: sql})[name]
            if values.rows == values.distinct == table.rows:
                return name
    return ""


def _as_text(table: Table, names: Iterable[str]) -> dict[str, str]:
    return {name: f"CAST({table.sql[name]} AS VARCHAR)" for name in names}


def _together(table: Table, pair: Sequence[str]) -> str:
    """Two columns as one of lists, which has a value where both do."""
    one, other = _as_text(table, pair).values()
    return f"CASE WHEN {one} IS NOT NULL AND {other} IS NOT NULL THEN [{one}, {other}] END"


def _likely(table: Table) -> Iterator[str]:
    """Columns that may be the key by their names and places, the most likely first."""
    subject = [root(word) for word in words(table.name)]
    for name in table.comparable:
        *about, last = words(name) or [""]
        if last in IDS and [root(word) for word in about] in ([], subject):
            yield name
    first = table.shapes[0].name
    if first not in table.comparable:
        return
    if _last(first) in KEYLIKE or [root(word) for word in words(first)] == subject:
        yield first
    if table.rows < _ENOUGH:
        return
    if table.comparable[first] == "number" and _COUNTERS & set(words(first)):
        yield first
    for name in table.comparable:
        if _last(name) in IDS | {"hash"}:
            yield name


def _last(name: str) -> str:
    return (words(name) or [""])[-1]


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
    table, own = tables[name], keys.get(name)
    possible: dict[str, list[Reference]] = defaultdict(list)
    nearly: dict[str, list[str]] = defaultdict(list)
    targets = [(other, key[0]) for other, key in keys.items() if other != name and len(key) == 1]
    about = None
    for target, key in targets if table.complete else ():
        if about is None and _is_lookup(tables[target], key, table):
            texts = {
                one: table.sql[one] for one, kind in table.comparable.items() if kind == "text"
            }
            about = about_distinct(connection, table.relation, texts)
        asked = _candidates(table, own, target, key, tables[target], about or {})
        columns = {column: table.sql[column] for column in asked}
        among = (tables[target].relation, tables[target].sql[key])
        for column, counted in count_values(connection, table.relation, columns, among).items():
            values, (found,), of = counted.distinct, counted.matches, tables[target].rows
            if asked[column]:
                fits = 0 < values == found
            else:
                fits = 2 <= values == found == of
            if fits:
                possible[column].append(Reference(target, key, values, of, asked[column]))
            elif asked[column] and found:
                nearly[column].append(
                    f"{values - found:,} of {values:,} values of {column!r} are not in {key!r} of "
                    f"{target!r}: no reference written"
                )
    return _closest(table, possible, nearly)


def _is_lookup(target: Table, key: str, table: Table) -> bool:
    """Whether a table is small enough to explain the texts of a column of another."""
    small = 2 <= target.rows <= min(_LARGEST_LOOKUP, table.rows - 1)
    return small and target.comparable[key] == "text"


def _candidates(
    table: Table,
    own: tuple[str, ...] | None,
    target: str,
    key: str,
    other: Table,
    about: Mapping[str, int],
) -> dict[str, int]:
    """The columns that may reference a table's key, each with its closeness.

    `about` has the number of distinct values of each column of text, roughly.
    """
    kind = other.comparable[key]
    alike = [column for column, each in table.comparable.items() if each == kind]
    names = {target, other.name}  # `images` is called so in its file, though its id may be longer
    close = {
        column: max(_closeness(column, each, key, own == (column,)) for each in names)
        for column in alike
    }
    lookup = _is_lookup(other, key, table)
    return {
        name: close[name]
        for name in alike
        if close[name] or (lookup and own != (name,) and may_be(about[name], other.rows))
    }


def _closest(
    table: Table, possible: Mapping[str, Sequence[Reference]], nearly: Mapping[str, list[str]]
) -> tuple[dict[str, Reference], list[str]]:
    """The reference of each column whose name tells one from the others; remarks about the rest."""
    found: dict[str, Reference] = {}
    remarks: list[str] = []
    for column in table.comparable:
        remarks += nearly.get(column, [])
        references = possible.get(column, ())
        closeness = max((each.closeness for each in references), default=0)
        best = [each for each in references if each.closeness == closeness]
        if len(best) == 1:
            found[column] = best[0]
        elif best:
            others = ", ".join(repr(each.target) for each in best)
            remarks.append(f"{column!r} could reference any of {others}: no reference written")
    return found, remarks


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
    ends = about != parts and about[-len(subject) :] == subject
    if about and subject and (about == subject or ends):
        return 2
    specific = [root(word) for word in words(key)]
    return int(parts == specific and not own and not set(named) <= _VAGUE)
