"""CR42x: whether the sources of a record set can be joined."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.model import Field, RecordSet, Source
from holdfast.data.croissant.rules import kinds
from holdfast.data.croissant.rules.clauses import JOINS
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.findings import ERROR, WARNING
from holdfast.data.croissant.rules.table import Breach, rule
from holdfast.data.croissant.rules.wording import called, quoted


@rule(
    "CR421",
    ERROR,
    JOINS,
    "Let a field of one reference a field of the other (references).",
    must=True,
)
def unjoined(context: Context) -> Iterator[Breach]:
    """The sources of a record set are joined by references."""
    for records in context.metadata.record_sets:
        needed = list(_needed(context, records))
        if not needed or _lost_a_join(records):
            continue
        anchor = needed[0][0]
        reached = _reached(context, records, anchor)
        for origin, field, source in needed:
            if origin not in reached:
                reached.add(origin)
                yield Breach(
                    source.at,
                    f"{called(records)} takes {called(field)} from {quoted(origin)} "
                    f"and others from {quoted(anchor)}, and no references join the two",
                )


def _lost_a_join(records: RecordSet) -> bool:
    """Whether a field that references another has a source that names nothing, as another rule tells."""
    return any(
        field.references
        and "cr:source" in field.written
        and (field.source is None or field.source.kind == "unknown")
        for field in _every(records)
    )


def _needed(context: Context, records: RecordSet) -> Iterator[tuple[str, Field, Source]]:
    """What a record set's fields are taken from: the resource or record set, for each field."""
    for field in _every(records):
        source = field.source
        if source is None and not (field.has_value or field.sub_fields or records.data is not None):
            source = next(iter(field.references), None)
        origin = _origin(context, records, source)
        if source and origin:
            yield origin, field, source


def _origin(context: Context, records: RecordSet, source: Source | None) -> str:
    """The resource or the record set that a source is in; ``""`` for this record set, or if unknown."""
    if source is None or source.kind == "unknown":
        return ""
    if source.kind == "field":
        owner = context.fields[source.target][0].id
        return "" if owner == records.id else owner
    return source.target


def _reached(context: Context, records: RecordSet, anchor: str) -> set[str]:
    """All that joins lead to from one origin, over any number of references."""
    joins: dict[str, set[str]] = {}
    for field in _every(records):
        parent = field.parent_field
        own = field.source or next(iter(field.references), None)
        pairs: list[tuple[Source | None, Source | None]] = [
            (own, part) for part in field.references
        ]
        if parent:
            pairs.append((parent.source, parent.references))
        for one, other in pairs:
            ends = {_origin(context, records, one), _origin(context, records, other)} - {""}
            for end in ends:
                joins.setdefault(end, set()).update(ends)
    reached: set[str] = set()
    ahead = [anchor]
    while ahead:
        origin = ahead.pop()
        if origin in reached:
            continue
        reached.add(origin)
        ahead += joins.get(origin, ())
        ahead += _inside(context, origin)
    return reached


def _inside(context: Context, origin: str) -> Iterator[str]:
    """What the fields of a record set are taken from, and what they reference; of a resource, nothing."""
    records = context.record_sets.get(origin)
    if records:
        for field in _every(records):
            for source in (field.source, *field.references):
                if inner := _origin(context, records, source):
                    yield inner


def _every(records: RecordSet) -> Iterator[Field]:
    ahead = [*reversed((*records.fields, *records.annotations))]
    while ahead:
        field = ahead.pop()
        yield field
        ahead += reversed((*field.sub_fields, *field.annotations))


@rule("CR422", WARNING, JOINS, "Give both fields the same type; else no values are equal.")
def type_mismatch(context: Context) -> Iterator[Breach]:
    """A field has the type of the field that it references."""
    for _, field, role, source in context.sources:
        target = context.fields.get(source.target) if role == "references" else None
        if target is None or field.parent_field or field.inherited:
            continue
        one, other = kinds.kind(field.data_types), kinds.kind(target[1].data_types)
        if not kinds.comparable(one, other):
            yield Breach(
                field.where("cr:dataType"),
                f"{called(field)} is {' and '.join(field.data_types)}, and "
                f"{quoted(source.target)}, which it references, is {' and '.join(target[1].data_types)}",
            )


@rule("CR423", ERROR, JOINS, "Reference a field of another record set.")
def references_itself(context: Context) -> Iterator[Breach]:
    """A field references another field."""
    for _, field, role, source in context.sources:
        if role == "references" and source.target == field.id and field.source:
            yield Breach(source.at, f"{called(field)} references itself")
