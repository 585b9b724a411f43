"""Counts, in one pass over a resource, how many of each field's values do not fit or do not match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from holdfast.data.croissant.document.model import Field, Metadata, Transform
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.planning.origins import Origin
from holdfast.data.croissant.planning.values import apply
from holdfast.data.croissant.scanning.columns import Column, extract_key
from holdfast.data.croissant.scanning.scans import open_scan
from holdfast.data.croissant.scanning.transforms import reads_content
from holdfast.errors import InputError

AT_ONCE = 100
"""Fields whose values one query looks at: DuckDB's time for one with more grows with their square."""
EXAMPLE = 60
"""Characters of a value that a message shows."""


@dataclass(frozen=True)
class Tested:
    """One field's values.

    Attributes:
        field: the field.
        values: how many there are, missing ones left out.
        misfits: how many do not fit the field's type.
        misfit: the smallest of them, as text.
        unmatched: how many its regular expression does not match.
        unmatching: the smallest of them, as text.
    """

    field: Field
    values: int
    misfits: int
    misfit: str
    unmatched: int
    unmatching: str


def test_values(
    connection: duckdb.DuckDBPyConnection,
    resources: Resources,
    metadata: Metadata,
    resource: str,
    members: Sequence[Member],
    fields: Sequence[tuple[Field, Origin]],
    rows: int | None,
) -> list[Tested]:
    """Test the fields that take their values from one resource.

    Args:
        connection: DuckDB.
        resources: the files.
        metadata: the description.
        resource: the id of a file or set of files.
        members: its files.
        fields: each with where its values come from.
        rows: look at so many at most.

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
        tests: list[tuple[Field, str]] = []
        for field, origin in looked_at:
            raw = scan.columns[extract_key(origin.source.extract)]
            if not raw.late:
                tests.append((field, _counts(raw, origin, field)))
        relation = f"(SELECT * FROM {scan.relation}" + (f" LIMIT {rows})" if rows else ")")
        return [
            one
            for start in range(0, len(tests), AT_ONCE)
            for one in _run(connection, relation, tests[start : start + AT_ONCE])
        ]
    except duckdb.Error as error:
        raise InputError(
            f"the resource {resource!r} cannot be read", found=str(error).splitlines()[0]
        ) from error
    finally:
        scan.close()


def _run(
    connection: duckdb.DuckDBPyConnection, relation: str, tests: Sequence[tuple[Field, str]]
) -> list[Tested]:
    query = f"SELECT {', '.join(test for _, test in tests)} FROM {relation}"
    [found] = connection.sql(query).fetchall()
    rows_of_five = zip(*[iter(found)] * 5, strict=True)
    return [
        Tested(field, values, misfits, misfit or "", unmatched, unmatching or "")
        for (field, _), (values, misfits, misfit, unmatched, unmatching) in zip(
            tests, rows_of_five, strict=True
        )
    ]


def _counts(raw: Column, origin: Origin, field: Field) -> str:
    """Five expressions: values, misfits, the smallest misfit, unmatched, the smallest of those."""
    value = apply(raw, origin.steps)
    text = f"left(CAST({raw.sql} AS VARCHAR), {EXAMPLE})"
    misfit = f"({raw.sql} IS NOT NULL AND TRY([{value.sql}]) IS NULL)"
    unmatched = "false"
    if regex(field) is not None:
        unmatched = f"({raw.sql} IS NOT NULL AND TRY([{value.sql}]) = [NULL])"
    return (
        f"count({raw.sql}), count_if({misfit}), min({text}) FILTER ({misfit}), "
        f"count_if({unmatched}), min({text}) FILTER ({unmatched})"
    )


def regex(field: Field) -> Transform | None:
    """The field's own regular expression."""
    steps = () if field.source is None else field.source.transforms
    return next((step for step in steps if step.regex is not None), None)
