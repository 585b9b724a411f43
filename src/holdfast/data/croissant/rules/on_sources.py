"""CR40x to CR42x: what a field is taken from, what of it, and whether sources can be joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.data.croissant.document.model import Extract, Field, Node, RecordSet, Source
from holdfast.data.croissant.document.vocabulary import format_of
from holdfast.data.croissant.planning.joins import AMBIGUOUS, NOT_JOINED
from holdfast.data.croissant.planning.origins import CIRCULAR, Fields
from holdfast.data.croissant.planning.plan import Planner
from holdfast.data.croissant.rules import forms
from holdfast.data.croissant.rules.context import Context, malformed
from holdfast.data.croissant.rules.on_fields import source_cycle
from holdfast.data.croissant.rules.roles import EXTRACTS, TARGETS
from holdfast.data.croissant.rules.table import ERROR, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import and_others, bare, called, did_you_mean, quoted
from holdfast.errors import InputError

# What a source may be said to name -> what that is, and its class.
_KINDS = {
    "fileObject": ("file_object", "FileObject"),
    "fileSet": ("file_set", "FileSet"),
    "recordSet": ("record_set", "RecordSet"),
    "field": ("field", "Field"),
}
_OF_FILES = ("fileObject", "fileSet", "distribution")
_TABLES = frozenset({"csv", "tsv", "parquet", "arrow", "arff"})
_MEDIA = ("image/", "audio/", "video/")
_INSTEAD = "Take a column of the table; a transform follows a jsonPath into its values."


@rule(
    "CR401",
    ERROR,
    "DataSource",
    "Name one of fileObject, fileSet, recordSet or field by its @id.",
    must=True,
)
def no_target(context: Context) -> Iterator[Breach]:
    """A source names a file, a set of files, a record set or a field."""
    for field, role, source in context.sources:
        if not source.target and context.lacks(source, *TARGETS, "sc:distribution"):
            yield Breach(source.at, f"the {role} of {called(field)} names nothing")


@rule("CR402", ERROR, "DataSource", "Give the @id of something in this description.", must=True)
def dangling_source(context: Context) -> Iterator[Breach]:
    """What a source names is in the description."""
    missing: dict[str, list[tuple[Field, str, Source]]] = {}
    distribution = not context.lacks(context.metadata, "sc:distribution")
    for field, role, source in context.sources:
        if source.target and source.kind == "unknown" and not context.is_reported(source.target):
            homeless = source.property_name in _OF_FILES and not context.resources
            if homeless and distribution:
                continue  # not a file, which another rule reports
            missing.setdefault("" if homeless else source.target, []).append((field, role, source))
    for target, uses in missing.items():
        field, role, source = uses[0]
        why, hint = (
            "and there is no distribution",
            "Give distribution, with a FileObject for each file.",
        )
        if target:
            why = "which is not in this description"
            hint = context.did_you_mean(target, _options(context, source))
        named = f"the {role} of {called(field)} names {quoted(source.target)}"
        yield Breach(_place(source), f"{named}, {why}{and_others(len(uses) - 1)}", hint)


def _place(source: Source) -> str:
    """Where a source names its target."""
    term = (
        "sc:distribution"
        if source.property_name == "distribution"
        else f"cr:{source.property_name}"
    )
    return source.where(term)


def _options(context: Context, source: Source) -> list[str]:
    """Ids of the kind that a source should name; of every kind where it does not say."""
    if source.property_name == "field":
        return list(context.fields)
    if source.property_name == "recordSet":
        return list(context.record_sets)
    if source.property_name in _OF_FILES:
        return list(context.resources)
    return [*context.fields, *context.resources, *context.record_sets]


@rule(
    "CR403",
    ERROR,
    "DataSource",
    "Keep one: a source is one thing; references join others.",
    must=True,
)
def many_targets(context: Context) -> Iterator[Breach]:
    """A source names one thing."""
    for field, role, source in context.sources:
        if several := _several(source, TARGETS):
            at, names = several
            yield Breach(at, f"the {role} of {called(field)} names {names}")


def _several(node: Node, terms: Sequence[str]) -> tuple[str, str] | None:
    """Where the second of some properties stands, and all that do; None where one does at most."""
    given = [term for term in terms if term in node.written]
    return (node.where(given[1]), " and ".join(map(bare, given))) if len(given) > 1 else None


@rule("CR404", WARNING, "DataSource", must=True)
def wrong_kind(context: Context) -> Iterator[Breach]:
    """The property that names a source fits what it names."""
    wrong: dict[tuple[str, str], list[Source]] = {}
    for field, role, source in context.sources:
        fitting, _ = _KINDS.get(source.property_name, (source.kind, ""))
        if source.property_name == "distribution" and not context.old:
            fitting = ""
        if source.kind not in ("unknown", fitting):
            wrong.setdefault((source.property_name, source.target), []).append(source)
        elif role == "references" and source.kind == "record_set":
            yield Breach(
                _place(source),
                f"{called(field)} references the RecordSet {quoted(source.target)}, not a field",
                "Give the @id of the field whose values these are.",
                ERROR,
            )
    for (said, target), uses in wrong.items():
        right, name = next(
            (said, name) for said, (of, name) in _KINDS.items() if of == uses[0].kind
        )
        yield Breach(
            _place(uses[0]),
            f"{said} names {quoted(target)}, which is a {name}{and_others(len(uses) - 1)}",
            f"Write {right} in place of {said}.",
        )


@rule(
    "CR405", ERROR, "Extract", "One of fullpath, filename, content, lines, lineNumbers.", must=True
)
def unknown_file_property(context: Context) -> Iterator[Breach]:
    """A fileProperty is one of the five that the standard has."""
    for extract in _extracts(context):
        value = extract.file_property
        if value is not None and value.split(":")[-1] not in forms.FILE_PROPERTIES:
            message = f"{quoted(value)} is not a property of files"
            hint = did_you_mean(value, forms.FILE_PROPERTIES)
            yield Breach(extract.where("cr:fileProperty"), message, hint)


def _extracts(context: Context) -> Iterator[Extract]:
    return (source.extract for _, _, source in context.sources if source.extract)


@rule("CR406", ERROR, "Extract", "Keep one: a column, a property of files, or a JSONPath.")
def many_extracts(context: Context) -> Iterator[Breach]:
    """One thing is extracted."""
    for field, _, source in context.sources:
        if source.extract and (several := _several(source.extract, EXTRACTS)):
            at, names = several
            yield Breach(at, f"the extract of {called(field)} has {names}")


@rule("CR407", ERROR, "Extract", "Give column, fileProperty or jsonPath.")
def no_extract(context: Context) -> Iterator[Breach]:
    """An extract says what is extracted."""
    for field, _, source in context.sources:
        if source.extract and context.lacks(source.extract, *EXTRACTS):
            slip = context.instead(context.thing(source.extract))
            at, why = (slip.entry.at, f": {slip.fault}") if slip else (source.extract.at, "")
            message = f"the extract of {called(field)} says nothing{why}"
            yield Breach(at, message, key=slip is not None)


@rule("CR409", ERROR, "Extract", "Correct the path.", must=True)
def bad_json_path(context: Context) -> Iterator[Breach]:
    """A JSONPath is one."""
    steps = (step for _, _, source in context.sources for step in source.transforms)
    return malformed(context, (*_extracts(context), *steps), forms.json_path, "cr:jsonPath")


@rule("CR410", ERROR, "Extract", _INSTEAD)
def unfit_extract(context: Context) -> Iterator[Breach]:
    """A JSONPath is taken of JSON."""
    for field, _, source in context.sources:
        resource, extract = context.resources.get(source.target), source.extract
        if resource is None or extract is None or extract.json_path is None:
            continue
        formats = resource.encoding_formats
        if formats and all(format_of(one) in _TABLES or one.startswith(_MEDIA) for one in formats):
            taken = f"{called(field)} takes a JSONPath of {quoted(resource.id)}"
            message = f"{taken}, whose format {quoted(formats[0])} has no JSON"
            yield Breach(extract.where("cr:jsonPath"), message)


@rule(
    "CR421",
    ERROR,
    "Joins",
    "Let a field of one reference a field of the other (references).",
    must=True,
)
def unjoined(context: Context) -> Iterator[Breach]:
    """The sources of a record set are joined by references."""
    # What a load does first, without looking for files; it stops at the same places.
    planner = Planner(None, Fields(context.metadata), None)
    circles = any(True for _ in source_cycle(context))
    told = set()  # of record sets that take their values from such a one
    for records in context.metadata.record_sets:
        mixed = records.data is not None and any(field.source for field in records.fields)
        if mixed or _lost_a_join(context, records):  # as other rules tell
            continue
        try:
            planner.outline(records, records.fields)
        except InputError as error:
            planned = error.code in (NOT_JOINED, AMBIGUOUS)
            if error.place not in told and (planned or (error.code == CIRCULAR and not circles)):
                told.add(error.place)
                hint = "" if error.code == NOT_JOINED else error.remedy or ""
                yield Breach(error.place or records.at, f"{error.problem}: {error.found}", hint)


def _lost_a_join(context: Context, records: RecordSet) -> bool:
    """Whether references of a record set lead nowhere, as another rule tells."""
    return any(_leads_nowhere(context, field) for field in context.fields_of(records))


def _leads_nowhere(context: Context, field: Field) -> bool:
    thing, parent = context.thing(field), field.parent_field
    ends: list[Source | None] = list(field.references)
    if field.references and "cr:source" in field.written:
        ends.append(field.source)
    if parent:
        ends += [parent.source, parent.references]
    meant = thing is not None and context.is_meant(thing, "cr:references")
    return (
        meant
        or any(end is None or end.kind == "unknown" or end.target == field.id for end in ends)
        or any(end.kind == "record_set" for end in field.references)
    )


@rule("CR423", ERROR, "Joins", "Reference a field of another record set.")
def references_itself(context: Context) -> Iterator[Breach]:
    """A field references another field."""
    for field, role, source in context.sources:
        if role == "references" and source.target == field.id and field.source:
            yield Breach(source.at, f"{called(field)} references itself")
