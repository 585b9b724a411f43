"""CR016 to CR018: the kind of value that each property takes, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.data.croissant.document.terms import Entry, Value
from holdfast.data.croissant.rules.clauses import CONTEXT, FIELD, REQUIRED
from holdfast.data.croissant.rules.findings import Severity
from holdfast.data.croissant.rules.roles import Role
from holdfast.data.croissant.rules.table import Breach, Context, quoted, rule

ERROR = Severity.ERROR


def _of(kind: str, terms: str) -> dict[str, str]:
    return dict.fromkeys(terms.split(), kind)


# Term -> what its values are. "thing": an object; "named": an object, or the text that names it.
KINDS: dict[str, str] = {
    **_of(
        "text", "sc:name sc:description sc:contentUrl sc:encodingFormat sc:sha256 cr:md5 cr:citeAs"
    ),
    **_of(
        "text",
        "cr:includes cr:excludes cr:column cr:fileProperty cr:jsonPath cr:regex cr:separator",
    ),
    **_of(
        "text", "cr:replace cr:format cr:arrayShape sc:datePublished sc:dateCreated sc:dateModified"
    ),
    **_of("text or number", "sc:contentSize sc:version cr:sdVersion"),
    **_of(
        "boolean",
        "cr:isArray cr:repeated cr:isLiveDataset cr:isEnumeration cr:readLines cr:unArchive",
    ),
    **_of("integer", "cr:samplingRate"),
    **_of(
        "object", "sc:distribution cr:recordSet cr:subField cr:parentField cr:extract cr:transform"
    ),
    **_of("object", "cr:annotation"),
    **_of(
        "named", "cr:source cr:fileObject cr:fileSet cr:field cr:references cr:key cr:containedIn"
    ),
    **_of(
        "named",
        "cr:dataType cr:equivalentProperty sc:url sc:license sc:creator sc:publisher sc:sameAs",
    ),
    **_of("named", "sc:keywords dct:conformsTo sc:usageInfo"),
}
_WORDS = {
    "named": "a text or an object with @id",
    "boolean": "true or false",
    "integer": "a whole number",
}

# Terms of which a thing has one value; of `cr:field` and `cr:recordSet`, a source.
_ONE = frozenset(
    [
        "sc:contentUrl",
        "sc:contentSize",
        "sc:sha256",
        "cr:md5",
        "cr:source",
        "cr:extract",
        "cr:column",
        "cr:fileProperty",
        "cr:jsonPath",
        "cr:regex",
        "cr:separator",
        "cr:replace",
        "cr:format",
        "cr:arrayShape",
        "cr:isArray",
        "cr:repeated",
        "cr:parentField",
        "cr:fileObject",
        "cr:fileSet",
        "cr:isLiveDataset",
        "sc:url",
        "sc:version",
        "sc:datePublished",
        "cr:samplingRate",
    ]
)
# Objects of these stand for what their @id names.
_ADDRESSED = frozenset(
    ["sc:url", "dct:conformsTo", "cr:dataType", "cr:equivalentProperty", "sc:sameAs"]
)
_NOT_EMPTY = frozenset(
    [
        "sc:name",
        "sc:description",
        "sc:contentSize",
        "dct:conformsTo",
        "cr:citeAs",
        "cr:dataType",
        "cr:source",
        "cr:references",
        "cr:key",
        "cr:containedIn",
        "cr:fileObject",
        "cr:fileSet",
        "cr:recordSet",
        "cr:field",
        "sc:url",
        "sc:contentUrl",
        "sc:encodingFormat",
        "cr:column",
        "cr:jsonPath",
        "cr:regex",
        "cr:includes",
        "cr:fileProperty",
        "cr:format",
        "cr:arrayShape",
        "sc:datePublished",
    ]
)
# These may be told by an object, which is empty where nothing is in it.
_TOLD = frozenset(["sc:license", "sc:creator", "sc:publisher", "sc:keywords", "sc:usageInfo"])
_MAY_LACK = frozenset(
    ["sc:contentSize", "cr:citeAs", "sc:creator", "sc:publisher", "sc:keywords", "sc:usageInfo"]
)


@rule("CR016", ERROR, FIELD, must=True)
def wrong_kind(context: Context) -> Iterator[Breach]:
    """Every value is of the kind that its property takes."""
    for role, entry in _entries(context):
        kind = _kind(role, entry)
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
    return KINDS.get(entry.term, "")


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


@rule("CR015", ERROR, CONTEXT, "Keep one of the two.", must=True)
def two_spellings(context: Context) -> Iterator[Breach]:
    """No property that has one value is written twice under different keys."""
    for part in context.parts:
        first: dict[str, Entry] = {}
        for entry in part.thing.entries if part.role not in ("other", "reference") else ():
            other = first.setdefault(entry.term, entry)
            if other is not entry and entry.term in (*_ONE, "sc:name", "sc:description"):
                yield Breach(
                    entry.at,
                    f"{quoted(entry.key)} is the same property as {quoted(other.key)}",
                    key=True,
                )


@rule("CR017", ERROR, REQUIRED, "Keep one value.", must=True)
def several_values(context: Context) -> Iterator[Breach]:
    """Where one value is meant, one stands."""
    for role, entry in _entries(context):
        one = entry.term in _ONE or (
            role == "source" and entry.term in ("cr:field", "cr:recordSet")
        )
        if role in ("file_set", "file_object") and entry.term == "sc:url":
            one = False
        if entry.term in ("sc:name", "sc:description"):
            texts = [value for value in entry.values if isinstance(value.value, str)]
            if isinstance(entry.raw, list) and len(texts) > 1 and texts == list(entry.values):
                yield Breach(
                    entry.at,
                    f"{quoted(entry.key)} has {len(texts)} texts of one language",
                    severity=Severity.WARNING,
                )
        if one and len(entry.values) > 1:
            yield Breach(entry.at, f"{quoted(entry.key)} has {len(entry.values)} values")


@rule("CR018", ERROR, REQUIRED, "Write something, or take the property out.", must=True)
def empty_value(context: Context) -> Iterator[Breach]:
    """No value that is needed is empty."""
    for role, entry in _entries(context):
        needed = entry.term not in _MAY_LACK and (
            entry.term != "sc:description" or role == "dataset"
        )
        for value in entry.values if entry.term in _NOT_EMPTY | _TOLD else ():
            blank = isinstance(value.value, str) and not value.value.strip()
            if blank or (entry.term in _TOLD and value.value == {}):
                severity = None if needed else Severity.WARNING
                yield Breach(value.at, f"{quoted(entry.key)} is empty", severity=severity)
    for part in context.parts:
        if part.thing.raw.get("@id") == "" and part.role != "other":
            yield Breach(f"{part.thing.at}/@id", '"@id" is empty', "Give it an id.")


def _entries(context: Context) -> Iterator[tuple[Role, Entry]]:
    """The properties of everything that has a role."""
    for part in context.parts:
        if part.role not in ("other", "reference"):
            for entry in part.thing.entries:
                yield part.role, entry
