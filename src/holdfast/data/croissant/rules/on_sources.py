"""CR40x and CR41x: what a field is taken from, and what of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.data.croissant.document.model import Field, Node, Source
from holdfast.data.croissant.rules import forms
from holdfast.data.croissant.rules.clauses import DATA_SOURCE, EXTRACT, JOINS
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.findings import ERROR, NOTE, WARNING
from holdfast.data.croissant.rules.roles import EXTRACTS, TARGETS
from holdfast.data.croissant.rules.table import Breach, rule
from holdfast.data.croissant.rules.wording import bare, called, did_you_mean, question, quoted

_KINDS = {
    "fileObject": "file_object",
    "fileSet": "file_set",
    "recordSet": "record_set",
    "field": "field",
}
_NAMES = {
    "file_object": "FileObject",
    "file_set": "FileSet",
    "record_set": "RecordSet",
    "field": "Field",
}


@rule(
    "CR401",
    ERROR,
    DATA_SOURCE,
    "Name one of fileObject, fileSet, recordSet or field by its @id.",
    must=True,
)
def no_target(context: Context) -> Iterator[Breach]:
    """A source names a file, a set of files, a record set or a field."""
    for _, field, role, source in context.sources:
        if not source.target and context.lacks(source, *TARGETS, "sc:distribution"):
            yield Breach(source.at, f"the {role} of {called(field)} names nothing")


@rule("CR402", ERROR, DATA_SOURCE, "Give the @id of something in this description.", must=True)
def dangling_source(context: Context) -> Iterator[Breach]:
    """What a source names is in the description."""
    missing: dict[str, list[tuple[Field, str, Source]]] = {}
    distribution = not context.lacks(context.metadata, "sc:distribution")
    for _, field, role, source in context.sources:
        if source.target and source.kind == "unknown" and not context.is_told(source.target):
            of_files = source.said in ("fileObject", "fileSet", "distribution")
            if of_files and not context.resources and distribution:
                continue  # what stands there is no file, as another rule tells
            lacks = of_files and not context.resources
            missing.setdefault("" if lacks else source.target, []).append((field, role, source))
    for target, uses in missing.items():
        field, role, source = uses[0]
        why = "which is not in this description" if target else "and there is no distribution"
        yield Breach(
            _place(source),
            f"the {role} of {called(field)} names {quoted(source.target)}, {why}"
            f"{_and_others(uses)}",
            question(context.meant(target, _options(context, source)))
            if target
            else "Give distribution, with a FileObject for each file.",
        )


def _and_others(uses: Sequence[object]) -> str:
    return f" (and {len(uses) - 1} more)" if len(uses) > 1 else ""


def _place(source: Source) -> str:
    """Where a source names its target."""
    term = "sc:distribution" if source.said == "distribution" else f"cr:{source.said}"
    return source.where(term)


def _options(context: Context, source: Source) -> list[str]:
    """Ids of the kind that a source should name; of every kind where it does not say."""
    if source.said == "field":
        return list(context.fields)
    if source.said == "recordSet":
        return list(context.record_sets)
    if source.said in ("fileObject", "fileSet", "distribution"):
        return list(context.resources)
    return [*context.fields, *context.resources, *context.record_sets]


@rule(
    "CR403",
    ERROR,
    DATA_SOURCE,
    "Keep one: a source is one thing; references join others.",
    must=True,
)
def many_targets(context: Context) -> Iterator[Breach]:
    """A source names one thing."""
    for _, field, role, source in context.sources:
        given = [term for term in TARGETS if term in source.written]
        if len(given) > 1:
            names = " and ".join(bare(term) for term in given)
            yield Breach(source.where(given[1]), f"the {role} of {called(field)} names {names}")


@rule("CR404", WARNING, DATA_SOURCE, must=True)
def wrong_kind(context: Context) -> Iterator[Breach]:
    """The property that names a source fits what it names."""
    wrong: dict[tuple[str, str], list[Source]] = {}
    for _, field, role, source in context.sources:
        fitting = None if source.said == "distribution" and not context.old else source.kind
        if source.kind not in ("unknown", _KINDS.get(source.said, fitting)):
            wrong.setdefault((source.said, source.target), []).append(source)
        elif role == "references" and source.kind == "record_set":
            yield Breach(
                _place(source),
                f"{called(field)} references the RecordSet {quoted(source.target)}, not a field",
                "Give the @id of the field whose values these are.",
            )
    for (said, target), uses in wrong.items():
        kind = uses[0].kind
        right = next(name for name in _KINDS if _KINDS[name] == kind)
        yield Breach(
            _place(uses[0]),
            f"{said} names {quoted(target)}, which is a {_NAMES[kind]}{_and_others(uses)}",
            f"Write {right} in place of {said}.",
        )


@rule("CR405", ERROR, EXTRACT, "One of fullpath, filename, content, lines, lineNumbers.", must=True)
def unknown_file_property(context: Context) -> Iterator[Breach]:
    """A fileProperty is one of the five that the standard has."""
    for _, _, _, source in context.sources:
        value = source.extract.file_property if source.extract else None
        if (
            source.extract
            and value is not None
            and value.split(":")[-1] not in forms.FILE_PROPERTIES
        ):
            yield Breach(
                source.extract.where("cr:fileProperty"),
                f"{quoted(value)} is no property of files",
                did_you_mean(value, forms.FILE_PROPERTIES),
            )


@rule("CR406", ERROR, EXTRACT, "Keep one: a column, a property of files, or a JSONPath.")
def many_extracts(context: Context) -> Iterator[Breach]:
    """One thing is extracted."""
    for _, field, _, source in context.sources:
        given = [term for term in EXTRACTS if source.extract and term in source.extract.written]
        if source.extract and len(given) > 1:
            names = " and ".join(bare(term) for term in given)
            yield Breach(
                source.extract.where(given[1]), f"the extract of {called(field)} has {names}"
            )


@rule("CR407", ERROR, EXTRACT, "Give column, fileProperty or jsonPath.")
def no_extract(context: Context) -> Iterator[Breach]:
    """An extract says what is extracted."""
    for _, field, _, source in context.sources:
        if source.extract and context.lacks(source.extract, *EXTRACTS):
            yield Breach(source.extract.at, f"the extract of {called(field)} says nothing")


@rule(
    "CR408", WARNING, EXTRACT, "Say what of the file: a column, a property of files, or a JSONPath."
)
def whole_file(context: Context) -> Iterator[Breach]:
    """A field that is taken from a file says what of the file."""
    for _, field, role, source in context.sources:
        files = source.kind in ("file_object", "file_set")
        if (
            files
            and not source.transforms
            and context.lacks(source, "cr:extract")
            and not field.sub_fields
        ):
            yield Breach(
                source.at, f"the {role} of {called(field)} is a whole file, with no extract"
            )


@rule("CR409", ERROR, EXTRACT, "Correct the path.", must=True)
def bad_json_path(context: Context) -> Iterator[Breach]:
    """A JSONPath is one."""
    for _, _, _, source in context.sources:
        nodes: list[Node] = [part for part in (source.extract, *source.transforms) if part]
        for node in nodes:
            value = context.value(node, "cr:jsonPath")
            if isinstance(value, str) and (wrong := forms.json_path(value)):
                yield Breach(node.where("cr:jsonPath"), f"jsonPath {quoted(value)} {wrong}")


@rule("CR410", WARNING, EXTRACT, "Correct the extract, or encodingFormat.")
def unfit_extract(context: Context) -> Iterator[Breach]:
    """What is extracted fits the format of the file."""
    for _, field, _, source in context.sources:
        resource = context.resources.get(source.target)
        column = source.extract.column if source.extract else None
        if resource is None or column is None or not resource.encoding_formats:
            continue
        if all(
            form.startswith(("image/", "audio/", "video/")) for form in resource.encoding_formats
        ):
            yield Breach(
                source.extract.where("cr:column") if source.extract else source.at,
                f"{called(field)} takes the column {quoted(column)} of {quoted(resource.id)}, "
                f"whose format {quoted(resource.encoding_formats[0])} has no columns",
            )


@rule("CR411", NOTE, JOINS, "Make the field the key of its record set, or reference the key.")
def not_a_key(context: Context) -> Iterator[Breach]:
    """What a field references is the key of its record set."""
    for _, field, role, source in context.sources:
        target = context.fields.get(source.target) if role == "references" else None
        known = target and target[0].key and all(name in context.fields for name in target[0].key)
        if target and known and target[1].id not in target[0].key:
            yield Breach(
                _place(source),
                f"{called(field)} references {quoted(source.target)}, which is not the key of "
                f"{quoted(target[0].id)}",
            )
