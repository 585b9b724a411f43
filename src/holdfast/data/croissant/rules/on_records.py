"""CR30x: record sets, their keys, and the records that stand in the description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.rules import kinds
from holdfast.data.croissant.rules.context import Context, about, below
from holdfast.data.croissant.rules.table import ERROR, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import and_others, called, quoted


@rule("CR302", ERROR, "RecordSet", "Give the @id of a field of this record set.", must=True)
def unknown_key(context: Context) -> Iterator[Breach]:
    """A key names fields of its record set."""
    for records, at, name, field in _keys(context):
        if records.fields and not field:
            owner = context.fields.get(name)
            where = f"a field of {quoted(owner[0].id)}" if owner else "not one of its fields"
            message = f"the key of {called(records)} names {quoted(name)}, which is {where}"
            ids = [field.id for field in records.fields]
            yield Breach(at, message, context.did_you_mean(name, ids))


def _keys(context: Context) -> Iterator[tuple[RecordSet, str, str, Field | None]]:
    """Keys: the record set, a pointer, what is written there, the field that it means."""
    for records in context.metadata.record_sets:
        written = [(at, name) for at, name, _ in context.terms_at(records, "cr:key") if name]
        # What the key names in full, where relative ids have a base.
        meant = records.key if len(records.key) == len(written) else [name for _, name in written]
        for (at, name), whole in zip(written, meant, strict=True):
            yield records, at, name, _resolves(records, whole) or _resolves(records, name)


def _resolves(records: RecordSet, name: str) -> Field | None:
    """The field of a record set, at any depth, that a key means: by id or, failing that, by short name."""
    everything = [field for top in records.fields for field in below(top)]
    by_id = (field for field in everything if field.id == name)
    by_name = (field for field in everything if name in (field.key, field.short, field.name))
    return next(by_id, None) or next(by_name, None)


@rule("CR304", ERROR, "Embedding data", "Write data as a list of objects, one for each record.")
def malformed_data(context: Context) -> Iterator[Breach]:
    """Records in the description are JSON objects."""
    for records in context.metadata.record_sets:
        for term, right in (("cr:data", dict), ("cr:examples", (dict, str))):
            found = context.values(records, term)
            wrong = [(at, value) for at, value in found if not isinstance(value, right)]
            for at, value in wrong[:1]:
                said = "is not a record (a JSON object)"
                yield Breach(at, f"{quoted(value)} {said}{and_others(len(wrong) - 1)}")


@rule("CR305", ERROR, "Embedding data", "Name each value by the @id of its field.", must=True)
def unknown_data_field(context: Context) -> Iterator[Breach]:
    """Records in the description have values of known fields only."""
    for records, rows in _inline(context, "cr:data"):
        yield from _unknown(context, records, rows)


def _unknown(context: Context, records: RecordSet, rows: list[Row]) -> Iterator[Breach]:
    if not records.fields:
        return
    names = {field.key: field for field in records.fields}
    shorts = {name: f.key for f in records.fields for name in (f.name, f.id, f.short) if name}
    wrong: dict[str, list[str]] = {}
    for at, row in rows:
        for key in row:
            if key not in names:
                wrong.setdefault(key, []).append(f"{at}/{escaped(key)}")
    for key, places in wrong.items():
        whole = shorts.get(key)
        yield Breach(
            places[0],
            f"{quoted(key)} is not a field of {called(records)}{and_others(len(places) - 1)}",
            f"Write {quoted(whole)}." if whole else context.did_you_mean(key, names),
            WARNING if whole else None,
            key=True,
        )


@rule("CR308", ERROR, "Embedding data", "Correct the value, or the field's dataType.")
def misfit_data(context: Context) -> Iterator[Breach]:
    """Values in the description fit the types of their fields."""
    for records, rows in _inline(context, "cr:data"):
        for field in records.fields:
            kind = kinds.kind(field.data_types)
            misfits = [
                (f"{at}/{escaped(key)}", row[key])
                for at, row in rows
                for key in dict.fromkeys((field.key, field.short))
                if key in row and not field.sub_fields
                if not kinds.fits(row[key], kind, many=field.is_list)
            ]
            for at, value in misfits[:1]:
                types = f"{' and '.join(field.data_types)}, the type of field {quoted(field.key)}"
                message = f"{quoted(value)} does not fit {types}{and_others(len(misfits) - 1)}"
                yield Breach(at, message)


@rule("CR310", WARNING, "Embedding data", "Leave out data, or the sources of the fields.")
def data_and_source(context: Context) -> Iterator[Breach]:
    """Records stand in the description, or come from files, not both."""
    for records, _ in _inline(context, "cr:data"):
        sourced = [field for field in records.fields if field.source]
        # Where all have a source, that counts, and data are passed over; else nothing joins the two.
        severity = ERROR if len(sourced) < len(records.fields) else WARNING
        for field in sourced[:1]:
            said = f"has data, and field {quoted(field.id)} a source"
            yield about(records, said, "cr:data", severity=severity)


@rule("CR311", ERROR, "Embedding data", "Give the records, or leave data out.", must=True)
def no_records(context: Context) -> Iterator[Breach]:
    """Data in the description are one record or more."""
    for records in context.metadata.record_sets:
        if context.value(records, "cr:data") == []:
            yield about(records, "has data without a record", "cr:data")


Row = tuple[str, Mapping[str, Any]]


def _inline(context: Context, term: str) -> Iterator[tuple[RecordSet, list[Row]]]:
    """Record sets with records of their own, each row with its pointer."""
    for records in context.metadata.record_sets:
        found = context.values(records, term)
        rows: list[Row] = [(at, row) for at, row in found if isinstance(row, dict)]
        if rows:
            yield records, rows
