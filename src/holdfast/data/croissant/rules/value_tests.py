"""Counts, in few passes over a resource, how many of each field's values do not fit or do not match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import duckdb

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.planning.origins import Origin
from holdfast.data.croissant.planning.selecting import expect_columns
from holdfast.data.croissant.planning.values import apply, apply_to, list_keys
from holdfast.data.croissant.scanning.columns import Column, extract_key
from holdfast.data.croissant.scanning.nested import element
from holdfast.data.croissant.scanning.scans import open_scan
from holdfast.data.croissant.scanning.transforms import reads_content
from holdfast.data.croissant.scanning.types import shape
from holdfast.errors import InputError

AT_ONCE = 500
"""Tests in one query; the resource is read once for so many."""
EXAMPLE = 60
"""Characters of a value that a message shows."""
_ANYTHING = "((?s:.*))"  # a regular expression that takes every value as it is


class Odd(NamedTuple):
    """Values that are not as their field says: how many, of how many, and the smallest of them as text."""

    number: int
    of: int
    example: str


class Tested(NamedTuple):
    """One field's values; None where all are as it says.

    Attributes:
        field: the field.
        misfits: records whose value does not fit the field's type.
        unmatched: values, also those in lists, that its regular expression does not match.
    """

    field: Field
    misfits: Odd | None
    unmatched: Odd | None


def test_values(
    dataset: Dataset,
    resource: str,
    members: Sequence[Member],
    fields: Sequence[tuple[Field, Origin]],
    rows: int | None,
) -> tuple[int, list[Tested]]:
    """Test the fields that take their values from one resource, those left out that are whole files.

    Args:
        dataset: the description, opened.
        resource: the id of a file or set of files.
        members: its files.
        fields: each with where its values come from.
        rows: look at so many at most.

    Returns:
        How many records were looked at, and the fields.

    Raises:
        InputError: files that cannot be read as the fields say.
    """
    formats = dataset.metadata.resource(resource).encoding_formats
    looked_at = [
        (field, origin)
        for field, origin in fields
        if not any(reads_content(of, source) for of, source in origin.steps)
    ]
    extracts = [origin.source.extract for _, origin in looked_at]
    with dataset.connect() as connection:
        lists = list_keys(origin for _, origin in looked_at)
        scan = open_scan(
            connection, dataset.resources, resource, formats, extracts, members, lists=lists
        )
        try:
            tests = [
                (
                    field,
                    _misfits(raw, apply_to(connection, scan.relation, raw, origin.steps)),
                    _unmatched(raw, origin),
                )
                for field, origin in looked_at
                if not (raw := scan.columns[extract_key(origin.source.extract)]).late
            ]
            looks = list(dict.fromkeys(look for _, *both in tests for look in both if look))
            total, found = _looked(connection, scan.relation, looks, rows)
            odd = dict(zip(looks, found, strict=True))
            return total, [Tested(f, odd[m], odd[u] if u else None) for f, m, u in tests]
        except duckdb.Error as error:
            problem = f"the resource {resource!r} cannot be read"
            raise InputError(
                problem, code="unreadable", found=str(error).splitlines()[0]
            ) from error
        finally:
            scan.close()


class _Look(NamedTuple):
    """What is looked at in each record, in SQL.

    Attributes:
        value: null where there is none.
        odd: the value as text where it is odd, else null.
        many: both are lists: of the values that there are, and of the odd ones.
    """

    value: str
    odd: str
    many: bool = False


def _misfits(raw: Column, value: Column) -> _Look:
    """The values that do not fit the type of the last field."""
    if value.sql == raw.sql:
        return _Look(raw.sql, "NULL::VARCHAR")
    # In a list, for a value that is missing is another thing than one that does not fit.
    return _Look(raw.sql, f"CASE WHEN TRY([{value.sql}]) IS NULL THEN {_text(raw)} END")


def _unmatched(raw: Column, origin: Origin) -> _Look | None:
    """The values in which an expression or a path of the last field finds nothing; None without one."""
    *before, (field, source) = origin.steps
    paths = [n for n, step in enumerate(source.transforms) if step.json_path is not None]
    if not paths and not any(step.regex is not None for step in source.transforms):
        return None
    # As text, for a value may match and be no value of the type; and what it is without the expression.
    text = replace(field, data_types=("sc:Text",), array_shape=(-1,) * len(shape(field)) or None)
    taking_all = [
        step if step.regex is None else replace(step, regex=_ANYTHING) for step in source.transforms
    ]
    if paths:  # what it is before the first path
        text, taking_all = replace(text, array_shape=None), taking_all[: paths[0]]
    kept, matched = (
        apply(raw, (*before, (text, replace(source, transforms=tuple(steps)))))
        for steps in (taking_all, source.transforms)
    )
    one, other = f"TRY({kept.sql})", f"TRY({matched.sql})"
    lost = f"({one} IS NOT NULL AND {other} IS NULL)"
    if paths and element(matched.type):
        lost = f"({one} IS NOT NULL AND coalesce(len({other}), 0) = 0)"
    if paths or not element(matched.type):
        return _Look(one, f"CASE WHEN {lost} THEN {_text(raw)} END")
    # Where there are lists after the expression alone, the whole value was lost, else elements.
    values = f"list_filter({_flat(one, kept)}, lambda part: part IS NOT NULL)"
    pairs = f"list_zip({_flat(one, kept)}, {_flat(other, matched)})"
    odd = f"list_filter({pairs}, lambda pair: pair[1] IS NOT NULL AND pair[2] IS NULL)"
    odd = f"list_transform({odd}, lambda pair: pair[1])"
    whole = f"CASE WHEN {lost} THEN [{_text(raw)}] ELSE"
    return _Look(f"{whole} {values} END", f"{whole} {odd} END", many=True)


def _flat(sql: str, column: Column) -> str:
    """Lists of lists as one list."""
    inner = element(column.type)
    while inner is not None and (inner := element(inner)) is not None:
        sql = f"flatten({sql})"
    return sql


def _text(raw: Column) -> str:
    return f"CAST({raw.sql} AS VARCHAR)"


def _looked(
    connection: duckdb.DuckDBPyConnection, relation: str, looks: Sequence[_Look], rows: int | None
) -> tuple[int, list[Odd | None]]:
    """How many records there are, and what each look finds."""
    total, found = 0, []
    for start in range(0, max(len(looks), 1), AT_ONCE):
        values, counts = ["true AS here"], ["count(here)"]
        for n, look in enumerate(looks[start : start + AT_ONCE]):
            values.append(f"{look.value} AS v{n}, {look.odd} AS o{n}")
            smallest = f"left(min({f'list_min(o{n})' if look.many else f'o{n}'}), {EXAMPLE})"
            number = "sum(len({}))" if look.many else "count({})"
            counts.append(f"{number.format(f'o{n}')}, {number.format(f'v{n}')}, {smallest}")
        expect_columns(connection, len(counts), tried=True)
        # Not over SELECT *, which has none of the columns that DuckDB adds to files.
        limit = f" LIMIT {rows}" if rows else ""
        inner = f"SELECT {', '.join(values)} FROM {relation}{limit}"
        [row] = connection.sql(f"SELECT {', '.join(counts)} FROM ({inner})").fetchall()
        total = row[0]
        triples = zip(*[iter(row[1:])] * 3, strict=True)
        found += [Odd(*triple) if triple[0] else None for triple in triples]
    return total, found
