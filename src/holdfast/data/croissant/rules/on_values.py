"""CR015 to CR019: the kind of value that each property takes, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.data.croissant.document.terms import Entry, Value
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.roles import Role
from holdfast.data.croissant.rules.table import ERROR, Breach, rule
from holdfast.data.croissant.rules.wording import quoted


class Takes(NamedTuple):
    """What a property takes.

    Attributes:
        kind: of value: text, object, ...; "named" is an object, or a text that names one; ``""`` for any.
        one: a thing has one value of it.
        needed: whether it must not be empty.
    """

    kind: str = ""
    one: bool = False
    needed: bool = False


def _takes(table: str) -> dict[str, Takes]:
    """Terms with what they take, from lines ``kind | one or many | filled | terms``."""
    cells = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return {
        term: Takes(kind, number == "one", filled == "needed")
        for kind, number, filled, terms in cells
        for term in terms.split()
    }


TAKES = _takes("""
    text           | one  | needed | sc:contentUrl sc:datePublished cr:column cr:fileProperty cr:jsonPath
    text           | one  | needed | cr:regex cr:format cr:arrayShape
    text           | one  |        | sc:sha256 cr:md5 cr:separator cr:replace
    text           | many | needed | sc:name sc:description sc:encodingFormat cr:includes
    text           | many |        | cr:citeAs
    text           | many |        | cr:excludes sc:dateCreated sc:dateModified
    text or number | one  |        | sc:contentSize
    text or number | one  |        | sc:version
    text or number | many |        | cr:sdVersion
    boolean        | one  |        | cr:isArray cr:repeated cr:isLiveDataset
    boolean        | many |        | cr:isEnumeration cr:readLines cr:unArchive
    integer        | one  |        | cr:samplingRate
    object         | one  |        | cr:extract cr:parentField
    object         | many |        | sc:distribution cr:subField cr:transform cr:annotation
    object         | many | needed | cr:recordSet
    named          | one  | needed | sc:url cr:source cr:fileObject cr:fileSet
    named          | many | needed | sc:license dct:conformsTo cr:dataType cr:field cr:references
    named          | many | needed | cr:key cr:containedIn
    named          | many |        | sc:creator sc:publisher sc:keywords sc:usageInfo
    named          | many |        | sc:sameAs cr:equivalentProperty
""")
_ANY = Takes()
_WORDS = {
    "named": "a text or an object with @id",
    "boolean": "true or false",
    "integer": "a whole number",
}
# Objects of these stand for what their @id names; of those, for what they tell of it.
_ADDRESSED = {"sc:url", "dct:conformsTo", "cr:dataType", "cr:equivalentProperty", "sc:sameAs"}


@rule("CR016", ERROR, "Field", must=True)
def wrong_kind(context: Context) -> Iterator[Breach]:
    """Every value is of the kind that its property takes."""
    for role, entry in _entries(context):
        kind = _kind(role, entry)
        if sizes := _sizes(entry):
            message = f"{quoted(entry.key)} is {quoted(entry.raw)}; expected a text"
            yield Breach(entry.at, message, f"Write {quoted(sizes)}.")
            continue
        for value in entry.values if kind else ():
            if not _is(value, kind) or (entry.term in _ADDRESSED and _is_nameless(value)):
                expected = _WORDS.get(kind, f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}")
                hint = f"Write {expected}."
                if kind == "text" and value.thing:
                    hint += ' For texts in several languages, let @context say "@container": "@language".'
                yield Breach(
                    value.at,
                    f"{quoted(entry.key)} is {quoted(value.value)}; expected {expected}",
                    hint,
                )
    for part in context.parts:
        identity = part.thing.raw.get("@id", "")
        if not isinstance(identity, str):
            yield Breach(
                f"{part.thing.at}/@id",
                f'"@id" is {quoted(identity)}; expected a text',
                "Write a text.",
            )


def _kind(role: Role, entry: Entry) -> str:
    """What the values of a property are, where it stands."""
    if entry.term in ("cr:recordSet", "sc:distribution") and role != "dataset":
        return "named"
    if entry.term == "cr:field" and role == "record_set":
        return "object"
    return TAKES.get(entry.term, _ANY).kind


def _sizes(entry: Entry) -> str:
    """The text that a shape written as a number or a list of numbers was meant to be; ``""`` otherwise."""
    sizes = entry.raw if isinstance(entry.raw, list) else [entry.raw]
    whole = all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    return ",".join(map(str, sizes)) if entry.term == "cr:arrayShape" and whole else ""


def _is(value: Value, kind: str) -> bool:
    found: Any = value.value
    if kind == "boolean":
        return isinstance(found, bool)
    if kind == "integer":
        return isinstance(found, int) and not isinstance(found, bool)
    if kind == "object":
        return value.thing is not None
    if kind == "named":
        return isinstance(found, str) or value.thing is not None
    if kind == "text or number":
        return isinstance(found, str | int | float) and not isinstance(found, bool)
    return isinstance(found, str) or _names(value)


def _is_nameless(value: Value) -> bool:
    """Whether an object that should name something does not."""
    return value.thing is not None and value.thing.id is None and "@value" not in value.thing.raw


def _names(value: Value) -> bool:
    """Whether an object stands for a text: a reference to an address."""
    return value.thing is not None and value.thing.is_reference


@rule("CR015", ERROR, "Appendix 1 JSON-LD context", "Keep one of the two.", must=True)
def two_spellings(context: Context) -> Iterator[Breach]:
    """No property that has one value is written twice under different keys."""
    for part in context.parts:
        first: dict[str, Entry] = {}
        for entry in part.thing.entries if part.role not in ("other", "reference") else ():
            other = first.setdefault(entry.term, entry)
            single = TAKES.get(entry.term, _ANY).one or entry.term in ("sc:name", "sc:description")
            if other is not entry and single:
                yield Breach(
                    entry.at,
                    f"{quoted(entry.key)} is the same property as {quoted(other.key)}",
                    key=True,
                )


@rule("CR017", ERROR, "Required", "Keep one value.", must=True)
def several_values(context: Context) -> Iterator[Breach]:
    """Where one value is meant, one stands."""
    for role, entry in _entries(context):
        one = TAKES.get(entry.term, _ANY).one or (
            role == "source" and entry.term in ("cr:field", "cr:recordSet")
        )
        if role in ("file_set", "file_object") and entry.term == "sc:url":
            one = False
        if one and len(entry.values) > 1:
            yield Breach(entry.at, f"{quoted(entry.key)} has {len(entry.values)} values")


@rule("CR018", ERROR, "Required", "Write something, or take the property out.", must=True)
def empty_value(context: Context) -> Iterator[Breach]:
    """No value that is needed is empty."""
    for role, entry in _entries(context):
        needed = TAKES.get(entry.term, _ANY).needed
        if entry.term == "sc:description" and role != "dataset":
            needed = False
        for value in entry.values if needed else ():
            blank = isinstance(value.value, str) and not value.value.strip()
            if blank or (entry.term == "sc:license" and value.value == {}):
                yield Breach(value.at, f"{quoted(entry.key)} is empty")
    for part in context.parts:
        if part.thing.raw.get("@id") == "" and part.role != "other":
            yield Breach(f"{part.thing.at}/@id", '"@id" is empty', "Give it an id.")


def _entries(context: Context) -> Iterator[tuple[Role, Entry]]:
    """The properties of everything that has a role."""
    for part in context.parts:
        if part.role not in ("other", "reference"):
            for entry in part.thing.entries:
                yield part.role, entry
