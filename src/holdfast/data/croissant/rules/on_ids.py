"""CR02x: ids and references; names, where they are ids; and what each object is."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.terms import Thing, Value
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.roles import TARGETS, Part, Role
from holdfast.data.croissant.rules.table import ERROR, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import did_you_mean, quoted

_CLASSES: dict[Role, tuple[str, ...]] = {
    "dataset": ("sc:Dataset",),
    "file_object": ("cr:FileObject", "cr:FileSet"),
    "file_set": ("cr:FileSet", "cr:FileObject"),
    "record_set": ("cr:RecordSet",),
    "field": ("cr:Field", "cr:SubField"),
    "annotation": ("cr:Field", "cr:SubField"),
}


@rule(
    "CR021",
    ERROR,
    "ID and Reference Mechanism",
    "Put _ or - in place of the space, here and in the references.",
)
def space_in_id(context: Context) -> Iterator[Breach]:
    """No id has a space in it."""
    for at, identity in _ids(context):
        if "%20" in identity or any(letter.isspace() for letter in identity):
            yield Breach(at, f"the id {quoted(identity)} has a space in it")


@rule("CR022", ERROR, "ID and Reference Mechanism", "Give each its own id.", must=True)
def id_twice(context: Context) -> Iterator[Breach]:
    """No two objects have the same id."""
    first: dict[str, str] = {}
    for at, identity in _ids(context):
        if first.setdefault(identity, at) != at:
            line, _ = context.document.place(first[identity])
            message = f"the id {quoted(identity)} was given to another object in line {line}"
            yield Breach(at, message)


def _ids(context: Context) -> Iterator[tuple[str, str]]:
    """The ids of files, record sets and fields, each at its place; in version 0.8, made of names."""
    for part in _named(context):
        thing = part.thing
        if not context.old and thing.id_at and thing.id:
            yield thing.id_at, thing.id
        names = [value for value in thing.values("sc:name") if isinstance(value.value, str)]
        for name in names[:1] if context.old else ():
            yield name.at, context.ids.get(thing.at, name.value)


def _named(context: Context) -> Iterator[Part]:
    """Files, record sets and fields."""
    return (part for part in context.parts if part.role in _CLASSES and part.role != "dataset")


def _noun(part: Part) -> str:
    return part.role.replace("_", " ")


@rule(
    "CR025",
    ERROR,
    "ID and Reference Mechanism",
    "Give it a name; later versions call it @id.",
    must=True,
)
def no_name(context: Context) -> Iterator[Breach]:
    """In version 0.8, files, record sets and fields have a name."""
    for part in _named(context) if context.old else ():
        if context.lacks(part.thing, "sc:name"):
            yield Breach(part.thing.at, f"the {_noun(part)} has no name")


@rule("CR026", WARNING, "ID and Reference Mechanism", must=True)
def text_for_reference(context: Context) -> Iterator[Breach]:
    """A reference is an object with an @id."""
    known = set(context.ids.values())
    for value in _references(context):
        # An unknown name is reported by the rule for its target.
        said = quoted(value.value)
        if isinstance(value.value, str) and value.value in known:
            right = '{"@id": ' + said + "}"
            yield Breach(value.at, f"{said} is a text, not a reference", f"Write {right}.")
        elif value.thing and _names_nothing(value.thing):
            hint = 'Write {"@id": ...} with the id of what is meant.'
            yield Breach(value.at, f"{said} has no @id, and so refers to nothing", hint, ERROR)


def _references(context: Context) -> Iterator[Value]:
    """What stands where another object is named, and the @context does not make ids of texts."""
    terms = (*TARGETS, "cr:containedIn", "cr:key")
    for part in context.parts:
        if context.old or part.role not in ("source", "file_object", "file_set", "record_set"):
            continue
        for entry in part.thing.entries:
            own = (part.role == "record_set") == (entry.term == "cr:key")
            typed = part.thing.context.definitions.get(entry.key)
            if entry.term in terms and own and not (typed and typed.type in ("@id", "@vocab")):
                yield from entry.values


def _names_nothing(thing: Thing) -> bool:
    """Whether an object neither names anything nor is anything itself."""
    named = thing.id is not None or any(
        thing.entry(term) for term in (*TARGETS, "sc:distribution", "sc:name")
    )
    return not named and not thing.types_written


@rule("CR101", ERROR, "Required", 'Write "@type": "sc:Dataset".', must=True)
def no_dataset(context: Context) -> Iterator[Breach]:
    """The description is of a Dataset."""
    if context.document.terms.dataset is None and not context.document.parsed.slips:
        held = quoted(context.document.value)
        hint = 'Write {"@context": ..., "@type": "sc:Dataset", ...}, or name the file that has it.'
        yield Breach("", f"{held} found where an object with a dataset is expected", hint)
    yield from _of_other_class(context, "description", "dataset")


@rule(
    "CR201",
    ERROR,
    "Modified and Added Properties",
    'Write "@type": "cr:FileObject" or "cr:FileSet".',
    must=True,
)
def no_resource(context: Context) -> Iterator[Breach]:
    """What distribution holds is a FileObject or a FileSet."""
    return _of_other_class(context, "resource", "file_object", "file_set")


@rule("CR300", ERROR, "RecordSet", 'Write "@type": "cr:RecordSet".', must=True)
def no_record_set(context: Context) -> Iterator[Breach]:
    """What recordSet holds is a RecordSet."""
    return _of_other_class(context, "record set", "record_set")


@rule("CR320", ERROR, "Field", 'Write "@type": "cr:Field".', must=True)
def no_field(context: Context) -> Iterator[Breach]:
    """What field, subField and annotation hold is a Field."""
    yield from _of_other_class(context, "field", "field")
    for breach in _of_other_class(context, "annotation", "annotation"):
        yield breach._replace(severity=WARNING)


def _of_other_class(context: Context, what: str, *roles: Role) -> Iterator[Breach]:
    """Things of some roles that lack the class that their place asks for."""
    for part in context.parts:
        thing, right = part.thing, _CLASSES.get(part.role, ())
        if part.role not in roles or not set(right).isdisjoint(thing.types):
            continue
        expected = f"where {right[0]} is expected"
        if thing.types_at is not None:
            written = thing.types_written
            found = quoted(written[0] if len(written) == 1 else list(written))
            near = did_you_mean(thing.types[0], right) if thing.types else ""
            yield Breach(thing.types_at, f"the {what} has the @type {found}, {expected}", near)
        elif not context.is_meant(thing, "@type"):
            yield Breach(thing.at, f"the {what} has no @type, {expected}")
