"""Which thing an id means: ids as written in versions from 1.0, names in version 0.8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.data.croissant.document.contexts import Context
from holdfast.data.croissant.document.model import Kind
from holdfast.data.croissant.document.plain_values import text, things
from holdfast.data.croissant.document.terms import Terms, Thing

# The property that names a target -> the kinds that it may name, in order of preference.
_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "fileObject": ("file_object", "file_set"),
    "fileSet": ("file_set", "file_object"),
    "distribution": ("file_object", "file_set"),
    "recordSet": ("record_set",),
    "field": ("field",),
}
_ORDER: tuple[Kind, ...] = ("file_object", "file_set", "record_set", "field")
_NODES = frozenset({"cr:FileObject", "cr:FileSet", "cr:RecordSet", "cr:Field"})


class Identities:
    """The resources, record sets and fields of a dataset, and what they are called.

    Nodes that stand beside the dataset in a graph are found through the references to them, each in the
    first place that refers to it.

    Args:
        terms: the document's things.
        dataset: the one that is the dataset.
        legacy: whether names are ids, as in version 0.8.
    """

    def __init__(self, terms: Terms, dataset: Thing, *, legacy: bool) -> None:
        self.legacy = legacy
        self._terms = terms
        self._placed = {dataset.at}
        self._ids: dict[str, str] = {}  # by pointer
        self._index: dict[str, dict[Kind, str]] = {}
        self.parts: dict[str, list[Thing]] = {}
        """Pointer of a record set or field -> the fields, sub-fields and annotations in it."""
        self.resources = list(self._below(dataset, "sc:distribution"))
        self.record_sets = list(self._below(dataset, "cr:recordSet"))
        for thing in self.resources:
            kind: Kind = "file_set" if "cr:FileSet" in thing.types else "file_object"
            self._name(thing, kind, None)
        for thing in self.record_sets:
            self._name(thing, "record_set", None)
            self._name_fields(thing)

    def of(self, thing: Thing) -> str:
        """The id of a resource, record set or field: its pointer if it has neither id nor name."""
        return self._ids[thing.at]

    def find(self, target: str, property_name: str, context: Context) -> tuple[str, Kind]:
        """The id and kind of what is named; the name itself and "unknown" if there is nothing of it.

        Args:
            target: the name as written.
            property_name: the property that names it, or "@id".
            context: what ids mean where it is written.
        """
        things = self._index.get(self._identity(target, context), {})
        for kind in (*_KINDS.get(property_name, ()), *_ORDER):
            if kind in things:
                return things[kind], kind
        return target, "unknown"

    def placed(self, thing: Thing) -> Thing | None:
        """What a reference to a node beside the dataset stands for; None where it has its place already."""
        whole = self._terms.resolve(thing)
        if whole is thing:
            return thing
        if whole.at in self._placed:
            return None
        self._placed.add(whole.at)
        return whole

    def described(self, thing: Thing) -> Thing:
        """A source, extract or transform that stands beside the dataset, in its place."""
        whole = self._terms.resolve(thing)
        return thing if _NODES & set(whole.types) else whole

    def _below(self, thing: Thing, *terms: str) -> Iterator[Thing]:
        for inner in things(thing, *terms):
            whole = self.placed(inner)
            if whole is not None:
                yield whole

    def _name_fields(self, record_set: Thing) -> None:
        stack = [(record_set, ("cr:field", "cr:annotation"))]
        while stack:
            thing, terms = stack.pop()
            for term in terms:
                inner = list(self._below(thing, term))
                self.parts[f"{thing.at}|{term}"] = inner
                for part in inner:
                    self._name(part, "field", self.of(thing))
                    stack.append((part, ("cr:subField", "cr:annotation")))

    def _name(self, thing: Thing, kind: Kind, parent: str | None) -> None:
        name = text(thing, "sc:name")
        if name and parent is not None and not name.startswith(f"{parent}/"):
            name = f"{parent}/{name}"
        first, second = (name, thing.id) if self.legacy else (thing.id, name)
        identity = first or second or thing.at
        self._ids[thing.at] = identity
        key = self._identity(identity, thing.context)
        self._index.setdefault(key, {}).setdefault(kind, identity)

    def _identity(self, name: str, context: Context) -> str:
        return name if self.legacy else context.identity(name)
