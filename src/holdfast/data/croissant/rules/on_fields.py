"""CR32x: fields: where their values come from, what type they are, how many there are."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.model import Field, RecordSet, Source
from holdfast.data.croissant.document.vocabulary import DATA_TYPES
from holdfast.data.croissant.rules import forms, kinds
from holdfast.data.croissant.rules.context import Context, about, cycles, malformed, way_round
from holdfast.data.croissant.rules.table import ERROR, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import bare, did_you_mean, quoted

_ORIGINS = ("cr:source", "cr:value", "cr:subField")


@rule("CR321", ERROR, "Field", "Give source, value or subField.", must=True)
def no_source(context: Context) -> Iterator[Breach]:
    """A field states where its values come from."""
    for records in context.metadata.record_sets:
        for field in () if _is_inline(records) else context.fields_of(records):
            if context.lacks(field, *_ORIGINS, "cr:references"):
                yield about(field, "has no source, value or subField", "cr:source")


def _is_inline(records: RecordSet) -> bool:
    return records.data is not None or "cr:data" in records.written


@rule("CR323", ERROR, "Field", "Keep one of the two.")
def source_and_value(context: Context) -> Iterator[Breach]:
    """A field has a source or a constant value, not both."""
    for field in context.all_fields:
        if "cr:source" in field.written and "cr:value" in field.written:
            yield about(field, "has a source and a constant value", "cr:value")


@rule(
    "CR324", ERROR, "DataType", "Give dataType, such as sc:Text, sc:Integer or sc:Float.", must=True
)
def no_type(context: Context) -> Iterator[Breach]:
    """A field has a data type, or takes that of the field its values come from."""
    for field in context.all_fields:
        # Of a field that is named wrongly or has no type, that is reported there.
        follows = any(
            part.kind in ("field", "unknown") and part.property_name for part in _named(field)
        )
        typed = field.data_types or field.sub_fields or follows
        if not typed and context.lacks(field, "cr:dataType"):
            yield about(field, "has no dataType", "cr:dataType")


@rule("CR325", WARNING, "DataType", "Correct it, or declare the vocabulary it is from.")
def unknown_type(context: Context) -> Iterator[Breach]:
    """A data type is one that its vocabulary has."""
    for node in (*context.metadata.record_sets, *context.all_fields):
        for at, value, name in context.terms_at(node, "cr:dataType"):
            ours = name.startswith("cr:")
            if name not in DATA_TYPES and (ours or name.startswith("sc:")):
                near = did_you_mean(name, DATA_TYPES)
                if ours or near:
                    yield Breach(at, f"{quoted(value)} is not a data type of its vocabulary", near)


@rule("CR327", ERROR, "Field", 'Add "isArray": true, or take out arrayShape.', must=True)
def shape_of_no_array(context: Context) -> Iterator[Breach]:
    """Only an array has a shape."""
    for field in context.all_fields:
        lacking = not field.is_list and context.lacks(field, "cr:isArray")
        denied = context.value(field, "cr:isArray") is False
        if "cr:arrayShape" in field.written and (lacking or denied):
            wrong = "missing" if lacking else "false"
            yield about(field, f"has an arrayShape, and isArray is {wrong}", "cr:arrayShape")


@rule(
    "CR328",
    ERROR,
    "Field",
    'Write it like "-1,3": sizes with commas, -1 where a size varies.',
    must=True,
)
def bad_shape(context: Context) -> Iterator[Breach]:
    """An array's shape is a list of sizes."""
    return malformed(context, context.all_fields, forms.array_shape, "cr:arrayShape")


@rule("CR329", ERROR, "Field", "Keep isArray; repeated is what version 1.0 called it.")
def array_or_not(context: Context) -> Iterator[Breach]:
    """What isArray and repeated say agrees."""
    for field in context.all_fields:
        array, repeated = (context.value(field, term) for term in ("cr:isArray", "cr:repeated"))
        if isinstance(array, bool) and isinstance(repeated, bool) and array is not repeated:
            message = f"isArray is {quoted(array)} and repeated is {quoted(repeated)}"
            yield Breach(field.where("cr:repeated"), message)


@rule("CR330", ERROR, "Field", "Correct the value, or dataType.")
def misfit_value(context: Context) -> Iterator[Breach]:
    """A constant value fits the type of its field."""
    for field in context.all_fields:
        kind = kinds.kind(field.data_types)
        plain = field.has_value and not field.sub_fields and not field.inherited
        if plain and not kinds.fits(field.value, kind, many=field.is_list):
            types = " and ".join(field.data_types)
            at = field.where("cr:value")
            yield Breach(at, f"the value {quoted(field.value)} does not fit {types}")


@rule("CR332", ERROR, "Hierarchical RecordSets", "Give parentField both a source and references.")
def half_parent(context: Context) -> Iterator[Breach]:
    """A parentField has both sides of its join."""
    for field in context.all_fields:
        parent = field.parent_field
        thing = context.thing(parent) if parent else None
        if parent is None or thing is None or thing.is_reference:
            continue
        for term in ("cr:source", "cr:references"):
            if context.lacks(parent, term):
                message = f"parentField of {quoted(field.id)} has no {bare(term)}"
                yield Breach(parent.at, message)


@rule("CR333", ERROR, "Field", "Take out one source of the circle.")
def source_cycle(context: Context) -> Iterator[Breach]:
    """No field takes its values from itself."""
    origins: dict[str, list[str]] = {}
    for field in context.all_fields:
        ends = origins.setdefault(field.id, [])
        ends += [sub.id for sub in field.sub_fields]
        if field.source:
            ends.append(field.source.target)
        elif not (field.has_value or field.sub_fields):
            ends += [part.target for part in field.references]
    for circle in cycles(origins):
        steps = zip(circle, (*circle[1:], circle[0]), strict=True)
        places = [
            part.at
            for name, after in steps
            for part in _named(context.fields[name][1])
            if part.target == after
        ]
        at = places[0] if places else context.fields[circle[0]][1].at
        yield Breach(at, f"sources go round: {way_round(circle)}")


def _named(field: Field) -> list[Source]:
    return [part for part in (field.source, *field.references) if part]
