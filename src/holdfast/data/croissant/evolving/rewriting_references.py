"""What refers to another part of a description: keys, sources, containers and references between fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.document.model import Container, Metadata, Node, RecordSet, Source
from holdfast.data.croissant.document.terms import Entry, Thing

if TYPE_CHECKING:
    from holdfast.data.croissant.evolving.rewriting import Rewriter

REFERENCES = frozenset({"cr:fileObject", "cr:fileSet", "cr:recordSet"})
_NAMED = {
    "file_object": "cr:fileObject",
    "file_set": "cr:fileSet",
    "record_set": "cr:recordSet",
    "field": "cr:field",
}
_NAMING = frozenset({*_NAMED.values(), "sc:distribution"})
_BY_ID = "what refers to another part does so by @id"


class References:
    """Writes references again, each by the id and the kind of what it refers to.

    Args:
        rewriter: writes everything else.
        metadata: the model, which knows what every reference means.
        nodes: its nodes by pointer.
        things: the document's things by pointer.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        metadata: Metadata,
        nodes: dict[str, Node],
        things: dict[str, Thing],
    ) -> None:
        self._rewriter = rewriter
        self._nodes = nodes
        self._things = things
        self._file_sets = {part.id for part in metadata.file_sets}

    def reference(self, value: Any, at: str) -> Any:
        """An id that stands bare becomes an object with it."""
        if not isinstance(value, str):
            return value
        self._rewriter.tell(at, f"{value} -> {{@id}}", _BY_ID)
        return {"@id": value}

    def keys(self, entry: Entry, thing: Thing) -> Any:
        """A record set's key: the ids of its fields in full."""
        node = self._nodes.get(thing.at)
        resolved = node.key if isinstance(node, RecordSet) else ()
        made = []
        for index, value in enumerate(entry.values):
            is_plain = value.thing is None or value.thing.is_reference
            written = value.thing.id if value.thing is not None else value.value
            meant = resolved[index] if len(resolved) == len(entry.values) else written
            if not is_plain or not isinstance(meant, str):
                made.append(self._rewriter.again(value.value, value.at))
                continue
            if meant != written:
                self._rewriter.tell(
                    value.at, f"{written} -> {meant}", "a key names its field in full"
                )
            elif value.thing is None:
                self._rewriter.tell(value.at, f"{written} -> {{@id}}", _BY_ID)
            made.append({"@id": meant})
        return made if len(made) != 1 else made[0]

    def sources(self, entry: Entry, thing: Thing) -> Any:
        """Sources, references and containers."""
        made = [self._source(value.value, value.at) for value in entry.values]
        return made if len(made) != 1 else made[0]

    def _source(self, raw: Any, at: str) -> Any:
        """What it names by its kind, and the rest as it stands."""
        node, thing = self._nodes.get(at), self._things.get(at)
        known = isinstance(node, (Source, Container)) and bool(node.target)
        if isinstance(raw, str):
            return self.reference(node.target if known else raw, at)  # type: ignore[union-attr]
        if thing is None:
            return self._rewriter.again(raw, at)
        if not known or thing.is_reference:
            return self._rewriter.thing(thing)
        assert isinstance(node, (Source, Container))
        return self._rewriter.thing(thing, self._naming(thing, node))

    def _naming(self, thing: Thing, node: Source | Container) -> dict[str, tuple[str, Any]]:
        """Pointer of the property that names the target -> the term and value that it has now."""
        entries = [entry for entry in thing.entries if entry.term in _NAMING]
        if len(entries) > 1:  # it contradicts itself: only what the model believed is known
            entries = [entry for entry in entries if _given(entry) == node.target]
        if len(entries) != 1 or _given(entries[0]) is None:
            return {}
        (entry,) = entries
        if isinstance(node, Source):
            kind = node.kind
        else:
            kind = "file_set" if node.target in self._file_sets else "file_object"
        was = "cr:fileObject" if entry.term == "sc:distribution" else entry.term
        term = _NAMED.get(kind, was)
        if term != was:
            what = f"{entry.key} -> {term.removeprefix('cr:')}"
            self._rewriter.tell(entry.at, what, "a source calls what it names by its kind")
        if isinstance(entry.values[0].value, str):
            self._rewriter.tell(entry.at, f"{node.target} -> {{@id}}", _BY_ID)
        return {entry.at: (term, {"@id": node.target})}


def nodes_of(metadata: Metadata) -> dict[str, Node]:
    """Every node of the model that is a separate JSON object, by pointer."""
    found: list[Node] = [*metadata.file_objects, *metadata.file_sets, *metadata.record_sets]
    for resources in (metadata.file_objects, metadata.file_sets):
        for part in resources:
            found += part.contained_in
    for _, field in metadata.fields():
        parent = field.parent_field
        sources = [field.source, *field.references]
        sources += [parent.source, parent.references] if parent is not None else []
        found += [field, *(one for one in sources if one is not None)]
    return {node.at: node for node in found}


def _given(entry: Entry) -> str | None:
    """The one id that a property names."""
    given = [value.thing.id if value.thing else value.value for value in entry.values]
    return given[0] if len(given) == 1 and isinstance(given[0], str) else None
