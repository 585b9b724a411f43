"""The objects of a description, written again: recommended names, references as objects, no old terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.data.croissant.document.model import (
    Field,
    FileObject,
    FileSet,
    Metadata,
    Node,
    RecordSet,
    Version,
)
from holdfast.data.croissant.document.reading import Document
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.terms import Entry, Thing, term_of
from holdfast.data.croissant.evolving.old_terms import OldTerms
from holdfast.data.croissant.evolving.rewriting_references import REFERENCES, References, nodes_of
from holdfast.data.croissant.evolving.shifts import Shift
from holdfast.data.croissant.evolving.target_contexts import Spelling

_CONFORMS = re.compile(r"https?://(?:www\.)?mlcommons\.org/croissant/\d+(?:\.\d+)*/?")
_SINGLE = frozenset(
    {"cr:source", "cr:extract", "cr:parentField", "cr:isArray", "cr:arrayShape", "cr:repeated"}
)
_TYPES: dict[type[Node], str] = {
    FileObject: "cr:FileObject",
    FileSet: "cr:FileSet",
    RecordSet: "cr:RecordSet",
    Field: "cr:Field",
}


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
        self._nodes = nodes_of(metadata)
        self._things = {thing.at: thing for thing in document.terms.everything()}
        self._used: set[str] = set()
        self._references = references = References(self, metadata, self._nodes, self._things)
        self._old = OldTerms(metadata, to, self.tell)
        self._special: dict[str, Callable[[Entry, Thing], Any]] = {
            "cr:dataType": self._types,
            "cr:equivalentProperty": self._properties,
            "cr:containedIn": references.sources,
            "cr:key": references.keys,
            "cr:source": references.sources,
            "cr:references": references.sources,
            "cr:data": self._rows,
            "cr:examples": self._rows,
        }

    def dataset(self, thing: Thing) -> dict[str, Any]:
        """The whole description."""
        made = self.thing(thing)
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

    def tell(self, at: str, what: str, why: str) -> None:
        """Note a change."""
        self.changes.append(Shift(at, what, why))

    def _contexts_changed(self, thing: Thing) -> None:
        top = thing.raw if "@context" in thing.raw else self._document.value
        given = top.get("@context") if isinstance(top, Mapping) else None
        if given != self._spelling.written:
            self.tell("/@context", "the recommended context", f"version {self._to} recommends it")
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
                self.tell(
                    at, f"conformsTo {wanted}", f"the description is of version {self._to} now"
                )
            return made | {"conformsTo": value}
        self.tell("", f"conformsTo {wanted}", f"the description is of version {self._to} now")
        ordered: dict[str, Any] = {}
        for key, part in made.items():
            ordered[key] = part
            if key == "description":
                ordered["conformsTo"] = value
        return ordered if "conformsTo" in ordered else {"conformsTo": value} | made

    def thing(
        self, thing: Thing, instead: Mapping[str, tuple[str, Any]] | None = None
    ) -> dict[str, Any]:
        """An object, written again.

        Args:
            thing: the object.
            instead: pointer of a property -> the term and value that take its place.
        """
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
            self.tell(
                thing.at, f"@id {identity}", "every part has an @id, by which others refer to it"
            )
        if identity is not None:
            made["@id"] = identity
        for entry in thing.entries:
            if instead and entry.at in instead:
                term, value = instead[entry.at]
                self._put(made, term, value, entry)
            else:
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
                self.tell(
                    thing.types_at, f"{written} -> {name}", "types have the recommended names"
                )
            names.append(name)
        names = list(dict.fromkeys(names))
        if own and own not in names:
            if not names:
                self.tell(thing.at, f"@type {own}", "every part says what it is")
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
        value = special(entry, thing) if special else self.again(entry.raw, entry.at)
        if entry.term in REFERENCES and not special:
            value = self._references.reference(value, entry.at)
        if term in _SINGLE and isinstance(value, list) and len(value) == 1:
            value = value[0]
        if term == "cr:source" and isinstance(node, RecordSet):
            value = self.again(entry.raw, entry.at)
        self._put(made, term, value, entry)

    def _put(self, made: dict[str, Any], term: str, value: Any, entry: Entry) -> None:
        key = self._spelling.key(term, entry.key)
        if key != entry.key:
            self.tell(entry.at, f"{entry.key} -> {key}", "terms have the recommended names")
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
            self.tell(
                entry.at, f"{entry.key} joins {key}", "the same term stood here in two spellings"
            )
        made[key] = value

    def again(self, raw: Any, at: str) -> Any:
        """A value as it stands, with every thing in it written again."""
        if isinstance(raw, list):
            made = [self.again(part, f"{at}/{index}") for index, part in enumerate(raw)]
            boxed = len(raw) == 1 and isinstance(raw[0], dict) and "@value" in raw[0]
            return made[0] if boxed and not isinstance(made[0], dict) else made
        if not isinstance(raw, dict):
            return raw
        thing = self._things.get(at)
        if thing is not None:
            return self.thing(thing)
        if raw.keys() == {"@set"}:  # a list by another name
            made = self.again(raw["@set"], f"{at}/@set")
            return made[0] if isinstance(made, list) and len(made) == 1 else made
        if raw.keys() == {"@value"} or (
            raw.keys() == {"@value", "@language"}
            and raw["@language"] == self._document.terms.context.language
        ):
            return raw["@value"]
        return {key: self.again(part, f"{at}/{escaped(key)}") for key, part in raw.items()}

    def _types(self, entry: Entry, thing: Thing) -> Any:
        names = []
        for value in entry.values:
            if isinstance(value.value, str):
                term = term_of(value.value, thing.context)
                name = self._spelling.name(self._old.data_type(term, thing.at), value.value)
                if name != value.value:
                    self.tell(
                        value.at, f"{value.value} -> {name}", "types have the recommended names"
                    )
                names.append(name)
            elif value.thing is not None and value.thing.is_reference and value.thing.id:
                names.append(
                    self._spelling.name(term_of(value.thing.id, thing.context), value.thing.id)
                )
            else:
                names.append(self.again(value.value, value.at))
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
                name(one) if isinstance(one, str) else self.again(one, f"{entry.at}/{i}")
                for i, one in enumerate(raw)
            ]
        return name(raw) if isinstance(raw, str) else self.again(raw, entry.at)

    def _rows(self, entry: Entry, thing: Thing) -> Any:
        value = entry.values[0].value if len(entry.values) == 1 else entry.raw
        node = self._nodes.get(thing.at)
        return self._old.rows(value, node, entry) if isinstance(node, RecordSet) else value
