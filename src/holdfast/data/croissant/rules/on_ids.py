"""CR02x: ids and references; names, where they are ids; and what each object is."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.terms import Thing
from holdfast.data.croissant.rules.clauses import FIELD, IDS, MODIFIED, RECORD_SET, REQUIRED
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.findings import ERROR, WARNING
from holdfast.data.croissant.rules.roles import TARGETS, Part, Role
from holdfast.data.croissant.rules.table import Breach, rule
from holdfast.data.croissant.rules.wording import did_you_mean, quoted

_NAMED: tuple[Role, ...] = ("file_object", "file_set", "record_set", "field", "annotation")
_CLASSES: dict[Role, tuple[str, ...]] = {
    "dataset": ("sc:Dataset",),
    "file_object": ("cr:FileObject", "cr:FileSet"),
    "file_set": ("cr:FileSet", "cr:FileObject"),
    "record_set": ("cr:RecordSet",),
    "field": ("cr:Field", "cr:SubField"),
    "annotation": ("cr:Field", "cr:SubField"),
}


@rule("CR021", ERROR, IDS, "Put _ or - in place of the space, here and in the references.")
def space_in_id(context: Context) -> Iterator[Breach]:
    """No id has a space in it."""
    for at, identity in _ids(context):
        if "%20" in identity or any(letter.isspace() for letter in identity):
            yield Breach(at, f"the id {quoted(identity)} has a space in it")


@rule("CR022", ERROR, IDS, "Give each its own id.", must=True)
def id_twice(context: Context) -> Iterator[Breach]:
    """No two objects have the same id."""
    first: dict[str, str] = {}
    for at, identity in _ids(context):
        if first.setdefault(identity, at) != at:
            line, _ = context.document.place(first[identity])
            yield Breach(
                at, f"the id {quoted(identity)} was given to another object in line {line}"
            )


@rule("CR023", WARNING, IDS, "Use letters, digits and - _ . / alone.")
def odd_id(context: Context) -> Iterator[Breach]:
    """An id has only letters that an IRI may have."""
    for at, identity in _ids(context):
        odd = [letter for letter in identity if letter in '<>"{}|\\^`' or ord(letter) < 32]
        if odd and not any(letter.isspace() for letter in odd):
            yield Breach(
                at, f"the id {quoted(identity)} has a {quoted(odd[0])} in it, which no IRI may have"
            )


def _ids(context: Context) -> Iterator[tuple[str, str]]:
    """The ids of files, record sets and fields, each at its place; in version 0.8, made of names."""
    for part in context.parts:
        if part.role not in _NAMED:
            continue
        if not context.old:
            if part.thing.id_at and part.thing.id:
                yield part.thing.id_at, part.thing.id
        elif name := next(
            (v for v in part.thing.values("sc:name") if isinstance(v.value, str)), None
        ):
            yield name.at, context.ids.get(part.thing.at, name.value)


@rule("CR024", WARNING, IDS, "Give it an @id.", must=True)
def no_id(context: Context) -> Iterator[Breach]:
    """Files, record sets and fields have an id."""
    without: dict[tuple[str, str], list[Part]] = {}
    for part in context.parts:
        named = part.role in _NAMED and part.role != "annotation"
        lacks = part.thing.id is None and "@id" not in part.thing.raw
        if named and not context.old and lacks and not context.is_meant(part.thing, "@id"):
            parent = part.parent.at if part.parent else ""
            without.setdefault((part.role, parent), []).append(part)
    for (role, _), parts in without.items():
        more = f" (and {len(parts) - 1} more here)" if len(parts) > 1 else ""
        yield Breach(
            parts[0].thing.at,
            f"the {role.replace('_', ' ')} has no @id: nothing can refer to it{more}",
        )


@rule("CR025", ERROR, IDS, "Give it a name; later versions call it @id.", must=True)
def no_name(context: Context) -> Iterator[Breach]:
    """In version 0.8, files, record sets and fields have a name."""
    for part in context.parts:
        if part.role in _NAMED and context.old and context.lacks(part.thing, "sc:name"):
            yield Breach(part.thing.at, f"the {part.role.replace('_', ' ')} has no name")


@rule("CR026", WARNING, IDS, must=True)
def text_for_reference(context: Context) -> Iterator[Breach]:
    """A reference is an object with an @id."""
    terms = ("cr:fileObject", "cr:fileSet", "cr:recordSet", "cr:field", "cr:containedIn", "cr:key")
    known = set(context.ids.values())
    for part in context.parts:
        if context.old or part.role not in ("source", "file_object", "file_set", "record_set"):
            continue
        for entry in part.thing.entries:
            own = (part.role == "record_set") == (entry.term == "cr:key")
            typed = part.thing.context.definitions.get(entry.key)
            if entry.term not in terms or not own or (typed and typed.type in ("@id", "@vocab")):
                continue
            for value in entry.values:
                # A text that names nothing is told by the rule about what it should name.
                if isinstance(value.value, str) and value.value in known:
                    right = '{"@id": ' + quoted(value.value) + "}"
                    yield Breach(
                        value.at,
                        f"{quoted(value.value)} is a text, no reference",
                        f"Write {right}.",
                    )
                elif value.thing and _names_nothing(value.thing):
                    yield Breach(
                        value.at,
                        f"{quoted(value.value)} has no @id, and so refers to nothing",
                        'Write {"@id": ...} with the id of what is meant.',
                        ERROR,
                    )


def _names_nothing(thing: Thing) -> bool:
    """Whether an object neither names anything nor is anything itself."""
    named = isinstance(thing.raw.get("@id"), str) or any(
        thing.entry(term) for term in (*TARGETS, "sc:distribution", "sc:name")
    )
    return not named and not thing.types_written


@rule("CR101", ERROR, REQUIRED, 'Write "@type": "sc:Dataset".', must=True)
def no_dataset(context: Context) -> Iterator[Breach]:
    """The description is of a Dataset."""
    yield from _of_other_class(context, ("dataset",), "description")


@rule("CR201", ERROR, MODIFIED, 'Write "@type": "cr:FileObject" or "cr:FileSet".', must=True)
def no_resource(context: Context) -> Iterator[Breach]:
    """What distribution holds is a FileObject or a FileSet."""
    yield from _of_other_class(context, ("file_object", "file_set"), "resource")


@rule("CR300", ERROR, RECORD_SET, 'Write "@type": "cr:RecordSet".', must=True)
def no_record_set(context: Context) -> Iterator[Breach]:
    """What recordSet holds is a RecordSet."""
    yield from _of_other_class(context, ("record_set",), "record set")


@rule("CR320", ERROR, FIELD, 'Write "@type": "cr:Field".', must=True)
def no_field(context: Context) -> Iterator[Breach]:
    """What field, subField and annotation hold is a Field."""
    yield from _of_other_class(context, ("field",), "field")
    for breach in _of_other_class(context, ("annotation",), "annotation"):
        yield breach._replace(severity=WARNING)


def _of_other_class(context: Context, roles: tuple[Role, ...], what: str) -> Iterator[Breach]:
    """Things of some roles that lack the class that their place asks for."""
    for part in context.parts:
        if part.role not in roles:
            continue
        thing, right = part.thing, _CLASSES[part.role]
        if thing.types_at is None and context.is_meant(thing, "@type"):
            continue
        if thing.types_at is None:
            yield Breach(thing.at, f"the {what} has no @type, where {right[0]} is expected")
        elif not set(right) & set(thing.types):
            written = thing.types_written
            found = quoted(written[0] if len(written) == 1 else list(written))
            near = did_you_mean(thing.types[0], right) if thing.types else ""
            yield Breach(
                thing.types_at,
                f"the {what} has the @type {found}, where {right[0]} is expected",
                near,
            )
