"""Select the files that can contain the requested records, by name alone; and names of splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb

from holdfast.data.croissant.document.model import Field, RecordSet, Source
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.planning.filters import Condition, field_named
from holdfast.data.croissant.planning.origins import Fields, Origin, nearest
from holdfast.data.croissant.planning.values import apply
from holdfast.data.croissant.scanning.columns import Column, extract_key
from holdfast.errors import InputError

_NAMED = {("fileProperty", name): Column(name, "VARCHAR") for name in ("fullpath", "filename")}


def possible(
    connection: duckdb.DuckDBPyConnection,
    members: list[Member],
    conditions: Sequence[Condition],
    needs: Mapping[str, Origin],
) -> list[Member]:
    """The members whose names do not rule them out: nothing is fetched for it.

    Args:
        connection: evaluates the conditions on the list of names, as it would on their rows.
        members: the files of one resource.
        conditions: on fields that are taken out of that resource.
        needs: field id -> its origin in the resource.
    """
    tests = []
    for condition in conditions:
        origins = [needs[use.field.id] for use in condition.uses]
        if all(extract_key(origin.source.extract) in _NAMED for origin in origins):
            values = [
                apply(_NAMED[extract_key(origin.source.extract)], (*origin.steps, *use.steps)).sql
                for origin, use in zip(origins, condition.uses, strict=True)
            ]
            tests.append(f"({condition.sql(values)})")
    if not tests or not members:
        return members
    import pyarrow as pa

    listing = pa.table(
        {
            "fullpath": [member.fullpath for member in members],
            "filename": [member.filename for member in members],
            "place": range(len(members)),
        }
    )
    with connection.cursor() as cursor:
        cursor.register("listing", listing)
        rows = cursor.execute(
            f"SELECT place FROM listing WHERE {' AND '.join(tests)} ORDER BY place"
        ).fetchall()
    return [members[place] for (place,) in rows]


def named_splits(
    fields: Fields,
    records: RecordSet,
    filters: Mapping[str, Any],
    load: Callable[[RecordSet], list[dict[str, Any]]],
) -> dict[str, Any]:
    """Filters whose values may be any name that a record set of splits gives them.

    A field that references a record set of splits or an enumeration can be asked for by that record set's
    other columns: ``cr:TrainingSplit`` or a URL instead of ``train``.

    Args:
        fields: the description's fields.
        records: the record set that is filtered.
        filters: as given.
        load: the records of a small record set.

    Raises:
        InputError: a value that no split has.
    """
    made = dict(filters)
    for name, value in filters.items():
        field = field_named(records, name)
        wanted = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
        reference = _named_elsewhere(fields, field)
        if reference is None or not all(isinstance(part, str) for part in wanted):
            continue
        owner, target = fields.find(reference.target)
        rows = load(owner)
        found = [_label(str(part), rows, target, owner) for part in wanted]
        made[name] = [label for labels in found for label in labels]
    return made


def _named_elsewhere(fields: Fields, field: Field, depth: int = 0) -> Source | None:
    """The reference of a field, or of the field it is taken from, to a record set of names."""
    for reference in field.references:
        if reference.kind == "field":
            owner, _ = fields.find(reference.target)
            if _names_things(owner) or _is_split(field):
                return reference
    if field.source is not None and field.source.kind == "field" and depth < 20:
        return _named_elsewhere(fields, fields.find(field.source.target)[1], depth + 1)
    return None


def _names_things(records: RecordSet) -> bool:
    return (
        "cr:Split" in records.data_types
        or "sc:Enumeration" in records.data_types
        or records.is_enumeration
        or records.data is not None
    )


def _is_split(field: Field) -> bool:
    return "cr:Split" in field.data_types or "wd:Q3985153" in field.data_types


def _label(wanted: str, rows: list[dict[str, Any]], target: Field, owner: RecordSet) -> list[Any]:
    labels = [row[target.key] for row in rows]
    if wanted in labels:
        return [wanted]
    found = [row[target.key] for row in rows if wanted in row.values()]
    if not found and "cr:Split" in owner.data_types:
        known = [str(label) for label in labels]
        raise InputError(
            f"no split of {owner.id!r} has that name",
            code="unknown-name",
            found=repr(wanted),
            expected=nearest(wanted, known) or f"one of {', '.join(known)}",
        )
    return found or [wanted]
