"""The objects of a description, written again: recommended names, references as objects, no old terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.data.croissant.document.model import (
    Container,
    Field,
    FileObject,
    FileSet,
    Metadata,
    Node,
    RecordSet,
    Source,
    Version,
)
from holdfast.data.croissant.document.reading import Document
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.terms import Entry, Thing, term_of
from holdfast.data.croissant.evolving.old_terms import OldTerms
from holdfast.data.croissant.evolving.target_contexts import Spelling

_CONFORMS = re.compile(r"https?://(?:www\.)?mlcommons\.org/croissant/\d+(?:\.\d+)*/?")
_SINGLE = frozenset(
    {"cr:source", "cr:extract", "cr:parentField", "cr:isArray", "cr:arrayShape", "cr:repeated"}
)
_REFERENCES = frozenset({"cr:fileObject", "cr:fileSet", "cr:recordSet"})
_TYPES: dict[type[Node], str] = {
    FileObject: "cr:FileObject",
    FileSet: "cr:FileSet",
    RecordSet: "cr:RecordSet",
    Field: "cr:Field",
}
_NAMED = {
    "file_object": "cr:fileObject",
    "file_set": "cr:fileSet",
    "record_set": "cr:recordSet",
    "field": "cr:field",
}


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

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return asdict(self)


class Rewriter:
    """Writes a document's things again.

    Args:
        document: as it was read.
        metadata: its model, which knows what every reference means.
        spelling: how terms are written.
        to: the version that is migrated to.
    """

    def __init__(
        self, document: Document, metadata: Metadata, spelling: Spelling, to: Version
    ) -> None:
        self.changes: list[Shift] = []
        self.lost: list[Shift] = []
        self._document = document
        self._metadata = metadata
        self._spelling = spelling
        self._to = to
        self._nodes = {node.at: node for node in _nodes(metadata)}
        self._things = {thing.at: thing for thing in document.terms.everything()}
        self._used: set[str] = set()
        self._old = OldTerms(metadata, to, self._tell)
        self._special: dict[str, Callable[[Entry, Thing], Any]] = {
            "cr:dataType": self._types,
            "cr:equivalentProperty": self._properties,
            "cr:containedIn": self._containers,
            "cr:key": self._keys,
            "cr:source": self._source,
            "cr:references": self._source,
            "cr:data": self._rows,
            "cr:examples": self._rows,
        }

    def dataset(self, thing: Thing) -> dict[str, Any]:
        """The whole description."""
        made = self._thing(thing)
        made.pop("@type", None)
        self._spelling.prune(made)
        head: dict[str, Any] = {"@context": self._spelling.written}
        head["@type"] = self._type_names(thing, "sc:Dataset")
        self._contexts_changed(thing)
        for root in self._document.terms.roots:
            if root.at not in self._used:
                self.lost.append(
                    Shift(root.at, "an object beside the dataset", "nothing refers to it")
                )
        return head | self._conforming(made)

    def _tell(self, at: str, what: str, why: str) -> None:
        self.changes.append(Shift(at, what, why))

    def _contexts_changed(self, thing: Thing) -> None:
        top = thing.raw if "@context" in thing.raw else self._document.value
        given = top.get("@context") if isinstance(top, Mapping) else None
        if given != self._spelling.written:
            self._tell("/@context", "the recommended context", f"version {self._to} recommends it")
        for name, value in self._spelling.dropped:
            self.lost.append(
                Shift(
                    f"/@context/{escaped(name)}",
                    f"{name} = {value}",
                    "the recommended context defines the name otherwise; keys that used it are spelt out",
                )
            )

    def _conforming(self, made: dict[str, Any]) -> dict[str, Any]:
        """Say which version this is, after the description if it was not said before."""
        wanted = f"http://mlcommons.org/croissant/{self._to}"
        given = made.get("conformsTo")
        values = given if isinstance(given, list) else [] if given is None else [given]
        texts = [one["@id"] if isinstance(one, dict) and "@id" in one else one for one in values]
        others = [one for one in texts if not (isinstance(one, str) and _CONFORMS.fullmatch(one))]
        value = [wanted, *others] if others else wanted
        if given is not None:
            if given != value:
                at = self._metadata.where("dct:conformsTo")
                self._tell(
                    at, f"conformsTo {wanted}", f"the description is of version {self._to} now"
                )
            return made | {"conformsTo": value}
        self._tell("", f"conformsTo {wanted}", f"the description is of version {self._to} now")
        ordered: dict[str, Any] = {}
        for key, part in made.items():
            ordered[key] = part
            if key == "description":
                ordered["conformsTo"] = value
        return ordered if "conformsTo" in ordered else {"conformsTo": value} | made

    def _thing(self, thing: Thing) -> dict[str, Any]:
        described = self._document.terms.resolve(thing)
        if (
            described is not thing
            and self._nodes.get(thing.at) is None
            and described.at not in self._used
        ):
            root = any(described is one for one in self._document.terms.roots)
            thing = described if root else thing
        self._used.add(thing.at)
        node = self._nodes.get(thing.at)
        made: dict[str, Any] = {}
        own = _TYPES.get(type(node), "") if node else ""
        if types := self._type_names(thing, own):
            made["@type"] = types
        identity = thing.id
        if (
            identity is None
            and isinstance(node, (FileObject, FileSet, RecordSet, Field))
            and node.id
        ):
            identity = node.id
            self._tell(
                thing.at, f"@id {identity}", "every part has an @id, by which others refer to it"
            )
        if identity is not None:
            made["@id"] = identity
        for entry in thing.entries:
            self._entry(entry, thing, node, made)
        if isinstance(node, RecordSet):
            self._old.split_types(node, made)
        return made

    def _type_names(self, thing: Thing, own: str) -> Any:
        """The types as the new context names them; Croissant's classes as Croissant's."""
        names = []
        for written, term in zip(thing.types_written, thing.types, strict=False):
            meant = own if own and term.split(":")[-1] == own.split(":")[-1] else term
            name = self._spelling.name(meant, written)
            if name != written and thing.types_at is not None:
                self._tell(
                    thing.types_at, f"{written} -> {name}", "types have the recommended names"
                )
            names.append(name)
        names = list(dict.fromkeys(names))
        if own and own not in names:
            if not names:
                self._tell(thing.at, f"@type {own}", "every part says what it is")
            names.insert(0, own)
        if not names:
            return None
        return names if len(names) > 1 else names[0]

    def _entry(self, entry: Entry, thing: Thing, node: Node | None, made: dict[str, Any]) -> None:
        term = self._old.renamed(entry, node)
        if term is None:  # said in another way now
            return
        done = self._old.replaced(entry, node)
        if done is not None:
            for new, value in done:
                self._put(made, new, value, entry)
            return
        special = self._special.get(term)
        value = special(entry, thing) if special else self._again(entry.raw, entry.at, thing)
        if entry.term in _REFERENCES and not special:
            value = self._reference(value, entry)
        if term in _SINGLE and isinstance(value, list) and len(value) == 1:
            value = value[0]
        if term == "cr:source" and isinstance(node, RecordSet):
            value = self._again(entry.raw, entry.at, thing)
        self._put(made, term, value, entry)

    def _put(self, made: dict[str, Any], term: str, value: Any, entry: Entry) -> None:
        key = self._spelling.key(term, entry.key)
        if key != entry.key:
            self._tell(entry.at, f"{entry.key} -> {key}", "terms have the recommended names")
        if key in made and made[key] != value:
            before = made[key] if isinstance(made[key], list) else [made[key]]
            value = [
                *before,
                *(
                    one
                    for one in (value if isinstance(value, list) else [value])
                    if one not in before
                ),
            ]
            self._tell(
                entry.at, f"{entry.key} joins {key}", "the same term stood here in two spellings"
            )
        made[key] = value

    def _again(self, raw: Any, at: str, inside: Thing) -> Any:
        """A value as it stands, with every thing in it written again."""
        if isinstance(raw, list):
            made = [self._again(part, f"{at}/{index}", inside) for index, part in enumerate(raw)]
            boxed = len(raw) == 1 and isinstance(raw[0], dict) and "@value" in raw[0]
            return made[0] if boxed and not isinstance(made[0], dict) else made
        if not isinstance(raw, dict):
            return raw
        thing = self._things.get(at)
        if thing is not None:
            return self._thing(thing)
        if raw.keys() == {"@set"}:  # a list by another name
            made = self._again(raw["@set"], f"{at}/@set", inside)
            return made[0] if isinstance(made, list) and len(made) == 1 else made
        if raw.keys() == {"@value"} or (
            raw.keys() == {"@value", "@language"}
            and raw["@language"] == self._document.terms.context.language
        ):
            return raw["@value"]
        return {key: self._again(part, f"{at}/{escaped(key)}", inside) for key, part in raw.items()}

    def _types(self, entry: Entry, thing: Thing) -> Any:
        names = []
        for value in entry.values:
            if isinstance(value.value, str):
                term = term_of(value.value, thing.context)
                name = self._spelling.name(self._old.data_type(term, thing.at), value.value)
                if name != value.value:
                    self._tell(
                        value.at, f"{value.value} -> {name}", "types have the recommended names"
                    )
                names.append(name)
            elif value.thing is not None and value.thing.is_reference and value.thing.id:
                names.append(
                    self._spelling.name(term_of(value.thing.id, thing.context), value.thing.id)
                )
            else:
                names.append(self._again(value.value, value.at, thing))
        return (
            names
            if len(names) != 1 or (isinstance(entry.raw, list) and len(entry.raw) > 1)
            else names[0]
        )

    def _properties(self, entry: Entry, thing: Thing) -> Any:
        def name(text: Any) -> Any:
            if not isinstance(text, str) or ":" not in text:
                return text
            return self._spelling.name(term_of(text, thing.context), text)

        raw = entry.raw
        if isinstance(raw, list):
            return [
                name(one) if isinstance(one, str) else self._again(one, f"{entry.at}/{i}", thing)
                for i, one in enumerate(raw)
            ]
        return name(raw) if isinstance(raw, str) else self._again(raw, entry.at, thing)

    def _reference(self, value: Any, entry: Entry) -> Any:
        if isinstance(value, str):
            self._tell(
                entry.at, f"{value} -> {{@id}}", "what refers to another part does so by @id"
            )
            return {"@id": value}
        return value

    def _containers(self, entry: Entry, thing: Thing) -> Any:
        made = []
        for value in entry.values:
            if isinstance(value.value, str):
                made.append(
                    self._reference(
                        value.value, Entry(entry.term, entry.key, value.at, value.value, (), None)
                    )
                )
            else:
                made.append(self._sourced(value.value, value.at, thing))
        return made if len(made) != 1 else made[0]

    def _keys(self, entry: Entry, thing: Thing) -> Any:
        node = self._nodes.get(thing.at)
        resolved = node.key if isinstance(node, RecordSet) else ()
        made = []
        for index, value in enumerate(entry.values):
            written = value.thing.id if value.thing is not None else value.value
            meant = resolved[index] if len(resolved) == len(entry.values) else written
            if not isinstance(meant, str) or (
                value.thing is not None and not value.thing.is_reference
            ):
                made.append(self._again(value.value, value.at, thing))
                continue
            if meant != written:
                self._tell(value.at, f"{written} -> {meant}", "a key names its field in full")
            elif value.thing is None:
                self._tell(
                    value.at, f"{written} -> {{@id}}", "what refers to another part does so by @id"
                )
            made.append({"@id": meant})
        return made if len(made) != 1 else made[0]

    def _source(self, entry: Entry, thing: Thing) -> Any:
        made = [self._sourced(value.value, value.at, thing) for value in entry.values]
        return made if len(made) != 1 else made[0]

    def _sourced(self, raw: Any, at: str, inside: Thing) -> Any:
        """A source, reference or container: what it names by its kind, and the rest as it stands."""
        node = self._nodes.get(at)
        thing = self._things.get(at)
        if isinstance(raw, str) and isinstance(node, Source) and node.target:
            self._tell(at, f"{raw} -> {{@id}}", "what refers to another part does so by @id")
            return {"@id": node.target}
        if thing is None:
            return self._again(raw, at, inside)
        if not isinstance(node, (Source, Container)) or not node.target or thing.is_reference:
            return self._thing(thing)
        self._used.add(thing.at)
        kind = node.kind if isinstance(node, Source) else self._kind(node.target)
        made: dict[str, Any] = {}
        if types := self._type_names(thing, ""):
            made["@type"] = types
        if thing.id is not None:
            made["@id"] = thing.id
        for entry in thing.entries:
            if entry.term in (*_NAMED.values(), "sc:distribution") and self._names(
                entry, node.target
            ):
                term = _NAMED.get(
                    kind, "cr:fileObject" if entry.term == "sc:distribution" else entry.term
                )
                if term != entry.term and entry.term != "sc:distribution":
                    named = (entry.key, self._spelling.key(term, entry.key))
                    self._tell(
                        entry.at,
                        f"{named[0]} -> {named[1]}",
                        "a source names a resource as what it is",
                    )
                elif not isinstance(entry.raw, Mapping):
                    self._tell(
                        entry.at,
                        f"{entry.raw} -> {{@id}}",
                        "what refers to another part does so by @id",
                    )
                self._put(made, term, {"@id": node.target}, entry)
            else:
                self._entry(entry, thing, node, made)
        return made

    def _names(self, entry: Entry, target: str) -> bool:
        """Whether a property names what the model took the source to be."""
        given = [value.thing.id if value.thing else value.value for value in entry.values]
        return len(given) == 1 and isinstance(given[0], str)

    def _kind(self, target: str) -> str:
        for part in self._metadata.file_sets:
            if part.id == target:
                return "file_set"
        return "file_object"

    def _rows(self, entry: Entry, thing: Thing) -> Any:
        value = entry.values[0].value if len(entry.values) == 1 else entry.raw
        node = self._nodes.get(thing.at)
        return self._old.rows(value, node, entry) if isinstance(node, RecordSet) else value


def _nodes(metadata: Metadata) -> list[Node]:
    """Every node of the model that stands for an object of its own."""
    found: list[Node] = [*metadata.file_objects, *metadata.file_sets, *metadata.record_sets]
    for resources in (metadata.file_objects, metadata.file_sets):
        for part in resources:
            found += part.contained_in
    for _, field in metadata.fields():
        found.append(field)
        found += [one for one in (field.source, *field.references) if one is not None]
        if field.parent_field is not None:
            found += [
                one for one in (field.parent_field.source, field.parent_field.references) if one
            ]
    return found
