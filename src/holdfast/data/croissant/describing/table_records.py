"""The record sets of tables: one record for each row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.data.croissant.describing.description import Json, Note, reference_to
from holdfast.data.croissant.describing.record_sets import (
    RecordSets,
    reference_to_field,
    table_field,
)
from holdfast.data.croissant.describing.relations import Reference
from holdfast.data.croissant.describing.shapes import Shape, Table
from holdfast.numbers import counted

_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)


def add_fields(records: RecordSets, name: str, table: Table, encoding: str) -> Json:
    """Make the record set of a table, still without references.

    Args:
        records: where it goes.
        name: its id.
        table: the table.
        encoding: the media type of its files.
    """
    resource = records.distribution.files(table.group.places, name, encoding)
    fields = []
    for shape in table.shapes:
        record_set = table_field(shape, name, resource, records.ids)
        records.fields[name, shape.name] = record_set
        if shape.classes:
            classes = records.classes(
                f"{name}_{record_set['@id'].rpartition('/')[2]}", shape.classes, numbered=True
            )
            record_set["references"] = reference_to_field(classes)
        fields.append(record_set)
    fields += records.split_field(table.group, name, resource)
    places = table.group.places
    where = str(places[0].path) if len(places) == 1 else f"{len(places):,} files"
    record_set = records.add(name, f"The rows of {where}.", fields, table.name)
    records.notes += _notes(name, table)
    return record_set


def add_key(records: RecordSets, record_set: Json, key: Sequence[str]) -> None:
    """State a table's key."""
    name = record_set["@id"]
    ids = [reference_to(records.fields[name, column]["@id"]) for column in key]
    if ids:
        record_set["key"] = ids[0] if len(ids) == 1 else ids
        columns = " and ".join(map(repr, key))
        text = f"key {columns}: unique in every row"
        records.notes.append(Note(name, "inferred", text))


def add_references(
    records: RecordSets,
    record_set: Json,
    references: Mapping[str, Reference],
) -> None:
    """State what a table's columns reference in other tables."""
    name = record_set["@id"]
    for column, reference in references.items():
        field = records.fields[name, column]
        if "references" in field:
            continue
        key = records.fields[reference.target, reference.key]
        field["references"] = reference_to_field(key["@id"])
        evidence = (
            f"all {reference.values:,} values are among the {reference.of:,} of {reference.key!r}"
            + ("" if reference.closeness else "; its name does not say so")
        )
        text = f"{column!r} references {reference.target!r}: {evidence}"
        records.notes.append(Note(name, "inferred", text))


def _notes(name: str, table: Table) -> list[Note]:
    looked = "" if table.complete else " read: types may not hold for the rest"
    notes = [Note(name, "inferred", f"{counted(table.rows, 'row')}{looked}")]
    notes += [Note(name, "unknown", remark) for remark in table.remarks]
    first = table.group.places[0].path
    if "=" in first.rpartition("/")[0]:
        said = f"the folders of {first!r} name values that no column has: add a field with a regex"
        notes.append(Note(name, "unknown", said))
    for shape in _below(table.shapes):
        if shape.remark:
            notes.append(Note(name, "inferred", f"{shape.name!r}: {shape.remark}"))
    return notes


def _below(shapes: Sequence[Shape]) -> list[Shape]:
    return [each for shape in shapes for each in (shape, *_below(shape.parts))]
