"""Counts, in few passes over a resource, how many of each field's values do not fit or do not match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import duckdb

from holdfast.data.croissant.document.model import Field, Metadata
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.planning.origins import Origin
from holdfast.data.croissant.planning.values import apply
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


@dataclass(frozen=True)
class Tested:
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
    connection: duckdb.DuckDBPyConnection,
    resources: Resources,
    metadata: Metadata,
    resource: str,
    members: Sequence[Member],
    fields: Sequence[tuple[Field, Origin]],
    rows: int | None,
) -> tuple[int, list[Tested]]:
    """Test the fields that take their values from one resource, those left out that are whole files.

    Args:
        connection: DuckDB.
        resources: the files.
        metadata: the description.
        resource: the id of a file or set of files.
        members: its files.
        fields: each with where its values come from.
        rows: look at so many at most.

    Returns:
        How many records were looked at, and the fields.

    Raises:
        InputError: files that cannot be read as the fields say.
    """
    formats = metadata.resource(resource).encoding_formats
    looked_at = [
        (field, origin)
        for field, origin in fields
        if not any(reads_content(of, source) for of, source in origin.steps)
    ]
    extracts = [origin.source.extract for _, origin in looked_at]
    scan = open_scan(connection, resources, resource, formats, extracts, members)
    try:
        relation = f"(SELECT * FROM {scan.relation}" + (f" LIMIT {rows})" if rows else ")")
        tests = [
            _test(field, raw, origin)
            for field, origin in looked_at
            if not (raw := scan.columns[extract_key(origin.source.extract)]).late
        ]
        [total, *fitting] = _asked(connection, relation, ["count(*)", *(t.fitting for t in tests)])
        misfits = _odd(
            connection,
            relation,
            {
                test.field.id: test.misfits
                for test, number in zip(tests, fitting, strict=True)
                if test.misfits and number < total
            },
        )
        unmatched = _odd(
            connection,
            relation,
            {test.field.id: test.unmatched for test in tests if test.unmatched},
        )
        return total, [
            Tested(test.field, misfits.get(test.field.id), unmatched.get(test.field.id))
            for test in tests
        ]
    except duckdb.Error as error:
        raise InputError(
            f"the resource {resource!r} cannot be read", found=str(error).splitlines()[0]
        ) from error
    finally:
        scan.close()


class _Test(NamedTuple):
    """What is asked of the values of a field, in SQL.

    Attributes:
        fitting: in how many records the value fits; something that reads the column where all do.
        misfits: the three numbers of `Odd`; ``""`` where all fit.
        unmatched: the same of values that the regular expression does not match; ``""`` without one.
    """

    field: Field
    fitting: str
    misfits: str
    unmatched: str


def _test(field: Field, raw: Column, origin: Origin) -> _Test:
    value = apply(raw, origin.steps)
    unmatched = _unmatched(raw, origin)
    if value.sql == raw.sql:
        return _Test(field, f"count({raw.sql})", "", unmatched)
    # In a list, for a value that is missing is another thing than one that does not fit.
    attempt = f"TRY([{value.sql}])"
    misfit = f"({raw.sql} IS NOT NULL AND {attempt} IS NULL)"
    example = f"min({_shown(raw.sql)}) FILTER ({misfit})"
    misfits = f"[count_if({misfit})::VARCHAR, count({raw.sql})::VARCHAR, {example}]"
    return _Test(field, f"count({attempt})", misfits, unmatched)


def _unmatched(raw: Column, origin: Origin) -> str:
    """`_Test.unmatched` of a field with such steps."""
    *before, (field, source) = origin.steps
    if not any(step.regex is not None for step in source.transforms):
        return ""
    # As text, for a value may match and be no value of the type; and what it is without the expression.
    text = replace(field, data_types=("sc:Text",), array_shape=(-1,) * len(shape(field)) or None)
    taking_all = [
        step if step.regex is None else replace(step, regex=_ANYTHING) for step in source.transforms
    ]
    kept, matched = (
        apply(raw, (*before, (text, replace(source, transforms=tuple(steps)))))
        for steps in (taking_all, source.transforms)
    )
    one, other = f"TRY({kept.sql})", f"TRY({matched.sql})"
    if element(matched.type):
        of = f"list_filter({_flat(one, kept)}, lambda part: part IS NOT NULL)"
        pairs = f"list_zip({_flat(one, kept)}, {_flat(other, matched)})"
        odd = f"list_filter({pairs}, lambda pair: pair[1] IS NOT NULL AND pair[2] IS NULL)"
        lacking = f"list_transform({odd}, lambda pair: pair[1])"
    else:
        of, lacking = f"[{one}]", "[]::VARCHAR[]"
    whole = f"[CAST({raw.sql} AS VARCHAR)]"
    lacking = (
        f"CASE WHEN {one} IS NULL THEN NULL WHEN {other} IS NULL THEN {whole} ELSE {lacking} END"
    )
    of = f"CASE WHEN {one} IS NULL THEN NULL WHEN {other} IS NULL THEN {whole} ELSE {of} END"
    example = f"min({_shown(f'list_min({lacking})')})"
    return f"[sum(len({lacking}))::VARCHAR, sum(len({of}))::VARCHAR, {example}]"


def _flat(sql: str, column: Column) -> str:
    """Lists of lists as one list."""
    inner = element(column.type)
    while inner is not None and (inner := element(inner)) is not None:
        sql = f"flatten({sql})"
    return sql


def _shown(text: str) -> str:
    return f"left(CAST({text} AS VARCHAR), {EXAMPLE})"


def _odd(
    connection: duckdb.DuckDBPyConnection, relation: str, counts: Mapping[str, str]
) -> dict[str, Odd]:
    """Field id -> its odd values, of those that have any."""
    found = zip(counts, _asked(connection, relation, list(counts.values())), strict=True)
    return {
        name: Odd(int(number), int(of), example)
        for name, [number, of, example] in found
        if number and number != "0"
    }


def _asked(
    connection: duckdb.DuckDBPyConnection, relation: str, aggregates: Sequence[str]
) -> list[Any]:
    """What aggregates over a relation give."""
    found: list[Any] = []
    for start in range(0, len(aggregates), AT_ONCE):
        asked = ", ".join(aggregates[start : start + AT_ONCE])
        [row] = connection.sql(f"SELECT {asked} FROM {relation}").fetchall()
        found += row
    return found
