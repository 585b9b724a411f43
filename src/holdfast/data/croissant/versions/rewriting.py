"""The objects of a description, written again: recommended names, references as objects, no old terms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.data.croissant.cards.canonical import listed
from holdfast.data.croissant.document.model import (
    Field,
    FileObject,
    FileSet,
    Metadata,
    Node,
    RecordSet,
    Source,
)
from holdfast.data.croissant.document.reading import Document
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.terms import Entry, Thing, term_of
from holdfast.data.croissant.versions.target_contexts import NEWEST, Spelling

_CONFORMS = re.compile(r"https?://(?:www\.)?mlcommons\.org/croissant/\d+(?:\.\d+)*/?")
_MD5 = re.compile(r"\s*+[0-9a-fA-F]{32}\s*+")
_TYPES: dict[type[Node], str] = {
    FileObject: "cr:FileObject",
    FileSet: "cr:FileSet",
    RecordSet: "cr:RecordSet",
    Field: "cr:Field",
}
# What names the target of a source: by the kind of the target.
_NAMED = {
    "file_object": "cr:fileObject",
    "file_set": "cr:fileSet",
    "record_set": "cr:recordSet",
    "field": "cr:field",
}
_NAMING = frozenset({*_NAMED.values(), "sc:distribution"})
_REFERRING = frozenset(
    {"cr:source", "cr:references", "cr:containedIn", "cr:fileObject", "cr:fileSet"}
)
_SINGLE = frozenset({"cr:extract", "cr:parentField", "cr:isArray", "cr:arrayShape", "cr:repeated"})

NAMES = "terms and types have the recommended names"
BY_ID = "parts have an @id, by which others refer to them"
NEWER = "newer versions say it so"


@dataclass(frozen=True)
class Shift:
    """One thing that is written otherwise than before.

    Attributes:
        at: pointer into the old document.
        what: what was done.
        why: the reason, the same for all changes of a kind.
    """

    at: str
    what: str
    why: str


class Rewriter:
    """Writes a document's things again.

    Args:
        document: as it was read.
        metadata: its model, which knows what every reference means.
        spelling: how terms are written.
    """

    def __init__(self, document: Document, metadata: Metadata, spelling: Spelling) -> None:
        self.changes: list[Shift] = []
        self._terms = document.terms
        self._metadata = metadata
        self._spelling = spelling
        self._nodes = {node.at: node for node in _nodes(metadata)}
        self._things = {thing.at: thing for thing in self._terms.everything()}
        self._used: set[str] = set()

    def dataset(self, thing: Thing) -> dict[str, Any]:
        """The whole description."""
        made = self._thing(thing)
        types = made.pop("@type", "sc:Dataset")
        conforming = self._conforming(made)
        self._spelling.prune(made)
        return {"@context": self._spelling.written, "@type": types, **conforming}

    def unused(self) -> list[str]:
        """Pointers of objects beside the dataset to which nothing refers."""
        return [root.at for root in self._terms.roots if root.at not in self._used]

    def tell(self, at: str, what: str, why: str) -> None:
        """Note a change."""
        self.changes.append(Shift(at, what, why))

    def _conforming(self, made: dict[str, Any]) -> dict[str, Any]:
        """Say which version this is, after the description if it was not said before."""
        wanted = f"http://mlcommons.org/croissant/{NEWEST}"
        given = made.get("conformsTo")
        texts = [one.get("@id") if isinstance(one, dict) else one for one in listed(given)]
        others = [one for one in texts if not _CONFORMS.fullmatch(str(one))]
        value = [wanted, *others] if others else wanted
        if given != value:
            at = self._metadata.where("dct:conformsTo")
            self.tell(at, f"conformsTo {wanted}", NEWER)
        ordered = {}
        for key, part in made.items():
            ordered[key] = part
            if key == "description":
                ordered.setdefault("conformsTo", value)
        return ordered | {"conformsTo": value}

    def _thing(self, thing: Thing) -> dict[str, Any]:
        """An object, written again; what a reference refers to stands in its place the first time."""
        described = self._terms.resolve(thing)
        if described.at not in self._used and thing.at not in self._nodes:
            thing = described
        self._used.add(thing.at)
        node = self._nodes.get(thing.at)
        made: dict[str, Any] = {}
        types = self._names(thing.types_written, thing, thing.types_at or thing.at)
        own = _TYPES.get(type(node), "") if node else ""
        if own and own not in types:
            types.insert(0, own)
            self.tell(thing.at, f"@type {own}", NAMES)
        if types:
            made["@type"] = types if len(types) > 1 else types[0]
        identity = thing.id
        if identity is None and own:
            identity = node.id  # type: ignore[union-attr]
            self.tell(thing.at, f"@id {identity}", BY_ID)
        if identity:
            made["@id"] = identity
        for entry in thing.entries:
            told = len(self.changes)
            said = self._entry(entry, thing, node)
            for term, value in said:
                self._put(made, term, value, entry)
            if told == len(self.changes) and [value for _, value in said] != [entry.raw]:
                text = isinstance(entry.raw, str)
                whats = [f"{entry.raw} -> {value}" if text else entry.key for _, value in said]
                self.tell(entry.at, ", ".join(whats) or f"{entry.key} removed", BY_ID)
        return made

    def _entry(self, entry: Entry, thing: Thing, node: Node | None) -> list[tuple[str, Any]]:
        """The terms and values that say now what an entry said."""
        term, first = entry.term, entry.values[0] if len(entry.values) == 1 else None
        if isinstance(node, Source) and (named := self._named(entry, thing, node)):
            return [named]
        if isinstance(node, RecordSet):
            if term == "cr:isEnumeration":
                return [("cr:dataType", "sc:Enumeration")] if node.is_enumeration else []
            if term == "cr:key" and len(node.key) == len(entry.values):
                return [(term, _unboxed([{"@id": one} for one in node.key]))]
            if term in ("cr:data", "cr:examples"):
                return [(term, by_id(first.value if first else entry.raw, node.fields))]
        if isinstance(node, Field) and term == "cr:repeated":
            array = {"cr:isArray": True, "cr:arrayShape": "-1"} if node.repeated else {}
            return [pair for pair in array.items() if pair[0] not in node.written]
        text = first.value if first and isinstance(first.value, str) else ""
        md5 = term == "sc:sha256" and _MD5.fullmatch(text)
        if md5 and isinstance(node, FileObject) and not node.md5:
            return [("cr:md5", text)]
        legacy = self._metadata.version == "0.8" and thing is self._terms.dataset
        if legacy and term == "sc:citation" and text and not self._metadata.cite_as:
            return [("cr:citeAs", text)]
        if term in ("cr:dataType", "cr:equivalentProperty"):
            written = [value.thing.id if value.thing else value.value for value in entry.values]
            colons = term == "cr:equivalentProperty"
            return [(term, _unboxed(self._names(written, thing, entry.at, colons=colons)))]
        if term in _REFERRING and not (term == "cr:source" and isinstance(node, RecordSet)):
            value = _unboxed([self._reference(value.value, value.at) for value in entry.values])
        else:
            value = self._again(entry.raw, entry.at)
        if term in _SINGLE and isinstance(value, list):
            value = _unboxed(value)
        return [("cr:separator" if term == "cr:delimiter" else term, value)]

    def _reference(self, raw: Any, at: str) -> Any:
        """A bare id becomes an object with it."""
        if not isinstance(raw, str):
            return self._again(raw, at)
        return {"@id": getattr(self._nodes.get(at), "target", "") or raw}

    def _named(self, entry: Entry, thing: Thing, node: Source) -> tuple[str, Any] | None:
        """What names the target of a source: by the kind that it is, and by its id."""
        naming = [one for one in thing.entries if one.term in _NAMING]
        # Of several, which may contradict one another, each stays what it is.
        if entry not in naming or len(naming) > 1 or not node.target:
            return None
        was = "cr:fileObject" if entry.term == "sc:distribution" else entry.term
        return _NAMED.get(node.kind, was), {"@id": node.target}

    def _put(self, made: dict[str, Any], term: str, value: Any, entry: Entry) -> None:
        key = self._spelling.key(term, entry.key)
        if key != entry.key:
            why = NAMES if term == entry.term else NEWER
            self.tell(entry.at, f"{entry.key} -> {key}", why)
        if key in made and made[key] != value:
            value = [
                *listed(made[key]),
                *(one for one in listed(value) if one not in listed(made[key])),
            ]
        made[key] = value

    def _again(self, raw: Any, at: str) -> Any:
        """A value as it stands, with every thing in it written again."""
        if isinstance(raw, list):
            made = [self._again(part, f"{at}/{index}") for index, part in enumerate(raw)]
            boxed = len(raw) == 1 and isinstance(raw[0], dict) and "@value" in raw[0]
            return made[0] if boxed and not isinstance(made[0], dict) else made
        if not isinstance(raw, dict):
            return raw
        thing = self._things.get(at)
        if thing is not None:
            return self._thing(thing)
        if raw.keys() == {"@set"}:  # a list by another name
            made = self._again(raw["@set"], f"{at}/@set")
            return _unboxed(made) if isinstance(made, list) else made
        plain_language = raw.get("@language") == self._terms.context.language
        if raw.keys() == {"@value"} or (raw.keys() == {"@value", "@language"} and plain_language):
            return raw["@value"]
        return {key: self._again(part, f"{at}/{escaped(key)}") for key, part in raw.items()}

    def _names(
        self, written: Iterable[Any], thing: Thing, at: str, *, colons: bool = False
    ) -> list[Any]:
        """Types and properties as the new context names them; with `colons`, those that have a prefix."""
        names = []
        for text in written:
            name = text
            if isinstance(text, str) and (":" in text or not colons):
                name = self._spelling.name(term_of(text, thing.context), text)
            if name != text:
                self.tell(at, f"{text} -> {name}", NAMES)
            names.append(name)
        return list(dict.fromkeys(names))


def _nodes(metadata: Metadata) -> Iterator[Node]:
    """Every node of the model that is a separate JSON object."""
    for resource in (*metadata.file_objects, *metadata.file_sets):
        yield resource
        yield from resource.contained_in
    yield from metadata.record_sets
    for _, field in metadata.fields():
        parent = field.parent_field
        sources = [field.source, *field.references]
        sources += [parent.source, parent.references] if parent is not None else []
        yield from (one for one in (field, *sources) if one is not None)


def _unboxed(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def by_id(records: Any, fields: Sequence[Field]) -> Any:
    """Records with the ids of fields as keys, whichever name was written; other JSON as it stands."""
    named: dict[str | None, Field] = {}
    for name in ("short", "name", "key", "id"):
        named |= {getattr(part, name): part for part in fields}
    rows = records if isinstance(records, (list, tuple)) else [records]
    made = [_row(row, named) if isinstance(row, Mapping) else row for row in rows]
    return made if rows is records else made[0]


def _row(row: Mapping[str, Any], named: Mapping[str | None, Field]) -> Mapping[str, Any]:
    if "@id" in row:  # examples may be a resource
        return row
    made = {}
    for key, value in row.items():
        part = named.get(key)
        if part is None or (part.id != key and part.id in row):
            made[key] = value
        else:
            made[part.id] = by_id(value, part.sub_fields) if part.sub_fields else value
    return made
