"""What a user asks for in ``filters=``, as conditions on fields."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.planning.origins import Step, leaves, nearest
from holdfast.data.croissant.scanning.casting import INTEGERS
from holdfast.data.croissant.scanning.types import duckdb_type
from holdfast.errors import InputError
from holdfast.tables import literal

Filters = Mapping[str, Any] | str
"""``{"split": "train", "label": [1, 2]}`` (equality, or one of), or a SQL expression over short names."""


@dataclass(frozen=True)
class Use:
    """One field that a condition looks at: its value, after further steps of the fields above it."""

    field: Field
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Condition:
    """Something that must be true of a record.

    Attributes:
        text: SQL, with `place(i)` where the value of ``uses[i]`` belongs.
        uses: the fields it looks at.
        strict: it is never true of a field that is null, so that it may be asked before a join.
    """

    text: str
    uses: tuple[Use, ...]
    strict: bool

    def sql(self, values: Sequence[str]) -> str:
        """The condition on expressions, one for each use."""
        text = self.text
        for index, value in enumerate(values):
            text = text.replace(place(index), f"({value})")
        return text

    def seen_through(self, uses: Sequence[Use]) -> Condition:
        """The same condition on other fields: those from which its own fields are made."""
        return replace(self, uses=tuple(uses))


def place(index: int) -> str:
    """Where a condition's text has the value of its `index`-th use."""
    return f'"holdfast use {index}"'


def conditions(
    connection: duckdb.DuckDBPyConnection, records: RecordSet, filters: Filters | None
) -> list[Condition]:
    """Conditions on the fields of a record set.

    Raises:
        InputError: a field that the record set does not have, a value that does not fit its type, or an
            expression that is not valid SQL.
    """
    if isinstance(filters, str):
        return list(_expression(connection, records, filters))
    if not filters:
        return []
    return [
        _equal(connection, field_named(records, name), value) for name, value in filters.items()
    ]


def field_named(records: RecordSet, name: str) -> Field:
    """A field, or a sub-field, by its id, key or short name.

    Raises:
        InputError: if there is none.
    """
    try:
        return records.field(name)
    except KeyError as error:
        known = {part.short: part for part in leaves(records)}
        for part in known.values():
            if name in (part.id, part.key, part.short, part.id.removeprefix(f"{records.id}/")):
                return part
        names = list(dict.fromkeys([*(part.short for part in records.fields), *known]))
        raise InputError(
            f"the record set {records.id!r} has no field of that name",
            code="unknown-name",
            found=repr(name),
            expected=nearest(name, names) or f"one of {', '.join(names)}",
        ) from error


def sql_value(value: Any) -> str:
    """A Python value as a SQL literal.

    Raises:
        InputError: if SQL has none for it.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"'{value}'::DOUBLE"
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, datetime.datetime):
        return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} {literal(str(value))}"
    if isinstance(value, (datetime.date, datetime.time)):
        return f"{'DATE' if isinstance(value, datetime.date) else 'TIME'} {literal(str(value))}"
    raise InputError(
        "a filter's value is of a type that columns do not have",
        code="invalid-value",
        found=f"{value!r} ({type(value).__name__})",
        expected="text, a number, true or false, a date, a time, None, or a list of those",
    )


def _equal(connection: duckdb.DuckDBPyConnection, field: Field, value: Any) -> Condition:
    many = isinstance(value, (list, tuple, set, frozenset))
    wanted = list(value) if many else [value]
    kind = duckdb_type(replace(field, is_array=False, repeated=False, array_shape=None))
    if kind == "TIMESTAMP":  # an offset counts; without one a value is compared as written
        kind = "TIMESTAMP WITH TIME ZONE"
    if field.sub_fields:
        raise InputError(
            f"the field {field.short!r} has sub-fields and cannot be compared as a whole",
            code="unsupported",
            expected=f"one of {', '.join(sub.short for sub in field.sub_fields)}",
        )
    given = [sql_value(part) for part in wanted if part is not None]
    for text in given:
        _check_fits(connection, field, text, kind)
    casts = [f"CAST({text} AS {kind})" for text in given]
    if field.is_list:
        tests = [f"list_contains({place(0)}, {text})" for text in casts]
    elif casts:
        tests = [f"{place(0)} IN ({', '.join(casts)})" if casts[1:] else f"{place(0)} = {casts[0]}"]
    else:
        tests = []
    if None in wanted:
        tests.append(f"{place(0)} IS NULL")
    return Condition(" OR ".join(tests) or "FALSE", (Use(field),), None not in wanted)


def _check_fits(connection: duckdb.DuckDBPyConnection, field: Field, text: str, kind: str) -> None:
    # A cast rounds 1.5 to 2, cuts the hour off a time, and takes any number but 0 for true.
    number = kind in INTEGERS or (kind == "BOOLEAN" and not text.startswith("'"))
    wide = "DOUBLE" if number else {"DATE": "TIMESTAMP"}.get(kind, "VARCHAR")
    exact = (
        "made IS NOT NULL"
        if wide == "VARCHAR"
        else f"CAST(made AS {wide}) = CAST({text} AS {wide})"
    )
    made = f"SELECT TRY_CAST({text} AS {kind}) AS made"
    try:
        [[exactly]] = connection.execute(f"SELECT {exact} FROM ({made})").fetchall()
        fits = bool(exactly)
    except duckdb.Error:
        fits = False
    if not fits:
        raise InputError(
            f"a filter on {field.short!r} has a value that its type cannot take",
            code="invalid-value",
            found=text,
            expected=f"a value of {', '.join(field.data_types) or kind}",
        )


def _expression(
    connection: duckdb.DuckDBPyConnection, records: RecordSet, text: str
) -> Iterator[Condition]:
    """The parts of a SQL expression that must all be true, each with the fields it names."""
    query = f"SELECT 1 FROM records WHERE {text}\n"
    [[answer]] = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    tree = json.loads(answer)
    nodes = [statement["node"] for statement in tree.get("statements", ())]
    plain = (
        len(nodes) == 1 and nodes[0].get("type") == "SELECT_NODE" and not nodes[0].get("modifiers")
    )
    plain = plain and not nodes[0].get("group_expressions") and nodes[0].get("where_clause")
    if not plain:
        raise InputError(
            "a filter is not a SQL expression",
            code="invalid-syntax",
            found=text,
            expected="such as: split = 'train' AND label > 3",
            remedy=str(tree.get("error_message") or "write one condition, without SELECT or WHERE"),
        )
    where = nodes[0]["where_clause"]
    for part in where["children"] if where.get("type") == "CONJUNCTION_AND" else [where]:
        uses: list[Use] = []
        _name_places(part, records, uses, frozenset())
        tree["statements"][0]["node"]["where_clause"] = part
        [[sql]] = connection.execute(
            "SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]
        ).fetchall()
        yield Condition(sql.partition(" WHERE ")[2], tuple(uses), strict=False)


def _inner(records: RecordSet, field: Field, names: list[str]) -> tuple[Field, list[str]]:
    """The sub-field that ``pair.size`` means, and what is left of the names."""
    while names and not field.is_list:
        subs = {sub.short.rpartition("/")[2]: sub for sub in field.sub_fields}
        subs |= {sub.id: sub for sub in field.sub_fields} | {
            sub.key: sub for sub in field.sub_fields
        }
        if names[0] not in subs:
            break
        field, names = subs[names[0]], names[1:]
    ends = {leaf.id: leaf for leaf in leaves(records)}
    return ends.get(field.id, field), names


def _column(records: RecordSet, name: str, rest: list[str]) -> tuple[Field, list[str]]:
    """The field that a column's names mean, and the names that are left.

    As in SQL, capitals matter only between fields, and the record set may stand before its field.
    """
    try:
        return field_named(records, name), rest
    except InputError as error:
        alike = {part.id: part for part in records.fields if part.short.lower() == name.lower()}
        if len(alike) == 1:
            return next(iter(alike.values())), rest
        if rest and name in (records.id, records.name):
            return _column(records, rest[0], rest[1:])
        raise InputError(
            error.problem,
            code="unknown-name",
            found=error.found,
            expected=error.expected,
            remedy=f"if it is text and no field, put it in single quotes: {literal(name)}",
        ) from error


def _name_places(part: Any, records: RecordSet, uses: list[Use], own: frozenset[str]) -> None:
    """Put a place where the tree of an expression names a field; the names of lambdas are their own."""
    if isinstance(part, list):
        for inner in part:
            _name_places(inner, records, uses, own)
        return
    if not isinstance(part, dict):
        return
    if part.get("class") == "COLUMN_REF":
        name, *rest = part["column_names"]
        if name in own:
            return
        field, rest = _column(records, name, rest)
        field, rest = _inner(records, field, rest)
        found = next((i for i, use in enumerate(uses) if use.field.id == field.id), len(uses))
        if found == len(uses):
            uses.append(Use(field))
        part["column_names"] = [place(found).strip('"'), *rest]
        return
    if part.get("class") == "SUBQUERY":
        raise InputError(
            "a filter contains a query",
            code="unsupported",
            expected="an expression over the record's fields",
            remedy="use Dataset.sql for queries over several record sets",
        )
    if part.get("class") == "LAMBDA":
        left = part["lhs"]
        if left.get("class") == "COLUMN_REF" and len(left["column_names"]) == 1:
            own |= {left["column_names"][0]}
        for inner in left.get("children", ()):
            own |= {inner["column_names"][0]} if inner.get("class") == "COLUMN_REF" else set()
        _name_places(part["expr"], records, uses, own)
        return
    for inner in part.values():
        _name_places(inner, records, uses, own)
