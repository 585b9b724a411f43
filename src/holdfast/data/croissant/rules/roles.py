"""What each object of a description is, by where it stands: a file, a field, a source, ..."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from holdfast.data.croissant.document.terms import Terms, Thing

Role = Literal[
    "dataset",
    "file_object",
    "file_set",
    "record_set",
    "field",
    "annotation",
    "parent_field",
    "source",
    "extract",
    "transform",
    "reference",
    "other",
]

TARGETS = ("cr:fileObject", "cr:fileSet", "cr:recordSet", "cr:field")
EXTRACTS = ("cr:column", "cr:fileProperty", "cr:jsonPath")
STEPS = (
    "cr:regex",
    "cr:separator",
    "cr:replace",
    "cr:jsonPath",
    "cr:format",
    "cr:samplingRate",
    "cr:readLines",
    "cr:unArchive",
)

# The role of what stands under a term of a thing of a role; "other" for the rest.
_FIELD: dict[str, Role] = {
    "cr:subField": "field",
    "cr:annotation": "annotation",
    "cr:source": "source",
    "cr:references": "source",
    "cr:parentField": "parent_field",
}
_BELOW: dict[Role, dict[str, Role]] = {
    "dataset": {"sc:distribution": "file_object", "cr:recordSet": "record_set"},
    "file_object": {"cr:containedIn": "source"},
    "file_set": {"cr:containedIn": "source"},
    "record_set": {"cr:field": "field", "cr:annotation": "annotation", "cr:source": "source"},
    "field": _FIELD,
    "annotation": _FIELD,
    "parent_field": {"cr:source": "source", "cr:references": "source"},
    "source": {
        "cr:extract": "extract",
        "cr:transform": "transform",
        "sc:distribution": "reference",
        "cr:fileObject": "reference",
        "cr:fileSet": "reference",
        "cr:recordSet": "reference",
        "cr:field": "reference",
    },
}


@dataclass(frozen=True, slots=True)
class Part:
    """A thing and its role; `parent` is the thing that it stands in, None for the dataset."""

    role: Role
    thing: Thing
    parent: Thing | None


def parts(terms: Terms) -> Iterator[Part]:
    """Every thing with its role, depth first, those that are only referred to at their first reference."""
    if terms.dataset is None:
        return
    seen: set[str] = set()
    ahead = [Part("dataset", terms.dataset, None)]
    while ahead:
        part = ahead.pop()
        if part.thing.at in seen:
            continue
        seen.add(part.thing.at)
        yield part
        below = _BELOW.get(part.role, {})
        inner = [
            _part(below.get(entry.term, "other"), value.thing, part.thing, terms)
            for entry in part.thing.entries
            for value in entry.values
            if value.thing is not None
        ]
        ahead += reversed(inner)


def _part(role: Role, thing: Thing, parent: Thing, terms: Terms) -> Part:
    if role == "source" and thing.is_reference:
        return Part("reference", thing, parent)
    if role in ("file_object", "record_set", "field", "annotation"):
        thing = terms.resolve(thing)
        if thing.is_reference:
            return Part("reference", thing, parent)
    if role == "file_object" and "cr:FileObject" not in thing.types:
        patterns = thing.entry("cr:includes") and not thing.entry("sc:contentUrl")
        role = "file_set" if "cr:FileSet" in thing.types or patterns else role
    return Part(role, thing, parent)
