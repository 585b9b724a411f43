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
from holdfast.data.croissant.planning.values import apply, apply_to, as_text, list_keys
from holdfast.data.croissant.scanning.columns import Column, extract_key
from holdfast.data.croissant.scanning.nested import element
from holdfast.data.croissant.scanning.scans import open_scan
from holdfast.data.croissant.scanning.transforms import reads_content
from holdfast.data.croissant.scanning.types import scalar_type, shape
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
        unmatched: records whose value, or one in whose list, its regular expression does not match.
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
    """

    value: str
    odd: str


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
    if (
        paths and field.listed
    ):  # such lists may be empty; that all are, is a remark on the record set
        return None
    # As text, for a value may match and be no value of the type; and what it is without the expression.
    text = replace(field, array_shape=(-1,) * len(shape(field)) or None)
    if scalar_type(field) != "BLOB":  # whose bytes are seldom a text
        text = replace(text, data_types=("sc:Text",))
    plain = text
    taking_all = [
        step if step.regex is None else replace(step, regex=_ANYTHING) for step in source.transforms
    ]
    if paths:  # what it is before the first path
        plain, taking_all = as_text(field), taking_all[: paths[0]]
    kept, matched = (
        apply(raw, (*before, (of, replace(source, transforms=tuple(steps)))))
        for of, steps in ((plain, taking_all), (text, source.transforms))
    )
    one, other = f"TRY({kept.sql})", f"TRY({matched.sql})"
    lost = f"{other} IS NULL"
    if element(matched.type) and not paths:  # a list from which something is missing
        lost = f"{_held(other, matched)} < {_held(one, kept)}"
    return _Look(one, f"CASE WHEN {one} IS NOT NULL AND {lost} THEN {_text(raw)} END")


def _held(sql: str, column: Column) -> str:
    """How many values there are in lists, also in lists of lists."""
    inner = element(column.type)
    while inner is not None and (inner := element(inner)) is not None:
        sql = f"flatten({sql})"
    return f"coalesce(list_count({sql}), 0)"


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
            counts.append(f"count(o{n}), count(v{n}), left(min(o{n}), {EXAMPLE})")
        expect_columns(connection, len(counts), tried=True)
        # Not over SELECT *, which has none of the columns that DuckDB adds to files.
        limit = f" LIMIT {rows}" if rows else ""
        inner = f"SELECT {', '.join(values)} FROM {relation}{limit}"
        [row] = connection.sql(f"SELECT {', '.join(counts)} FROM ({inner})").fetchall()
        total = row[0]
        triples = zip(*[iter(row[1:])] * 3, strict=True)
        found += [Odd(*triple) if triple[0] else None for triple in triples]
    return total, found
