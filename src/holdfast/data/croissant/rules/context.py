"""A description and its look-ups, as rules see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

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
from holdfast.data.croissant.document.terms import Thing, Value, term_of
from holdfast.data.croissant.rules.roles import Part, parts
from holdfast.data.croissant.rules.spelling import NEEDED, Misspelt, misspelt
from holdfast.data.croissant.rules.table import Breach, Severity
from holdfast.data.croissant.rules.wording import bare, called, nearest, question, quoted

T = TypeVar("T")
Named: TypeAlias = FileObject | FileSet | RecordSet | Field

_SAY_ONE_THING = ("transform", "extract")
_MOST_COMPARED = 50_000  # ids, in search of what was meant: half a second


class Context:
    """A description and the look-ups that several rules need, each made once.

    Attributes:
        document: the description.
        metadata: what it says.
    """

    def __init__(self, document: Document, metadata: Metadata) -> None:
        self.document = document
        self.metadata = metadata
        self._compared = 0

    @property
    def old(self) -> bool:
        """Whether it is of version 0.8, where names are ids."""
        return self.metadata.version == "0.8"

    @cached_property
    def resources(self) -> dict[str, FileObject | FileSet]:
        """Files and sets of files by id."""
        return _first((part.id, part) for part in self.resources_written)

    @property
    def resources_written(self) -> tuple[FileObject | FileSet, ...]:
        """Files, then sets of files, also those whose id another one has."""
        return (*self.metadata.file_objects, *self.metadata.file_sets)

    @cached_property
    def record_sets(self) -> dict[str, RecordSet]:
        """Record sets by id."""
        return _first((part.id, part) for part in self.metadata.record_sets)

    @cached_property
    def all_fields(self) -> list[Field]:
        """Every field at every depth."""
        return [field for _, field in self.metadata.fields()]

    @cached_property
    def fields(self) -> dict[str, tuple[RecordSet, Field]]:
        """Fields by id, each with its record set."""
        return _first((field.id, (records, field)) for records, field in self.metadata.fields())

    @cached_property
    def ids(self) -> dict[str, str]:
        """The id of each file, record set and field by its pointer; in version 0.8, one made of names."""
        nodes = (*self.resources_written, *self.metadata.record_sets, *self.all_fields)
        return {node.at: node.id for node in nodes}

    @cached_property
    def _fields_of(self) -> dict[str, list[Field]]:
        fields: dict[str, list[Field]] = {records.at: [] for records in self.metadata.record_sets}
        for records, field in self.metadata.fields():
            fields[records.at].append(field)
        return fields

    def fields_of(self, records: RecordSet) -> list[Field]:
        """The fields of a record set, at every depth."""
        return self._fields_of[records.at]

    @cached_property
    def sources(self) -> list[tuple[Field, str, Source]]:
        """Everything that names another part: the field, the role ("source", "references"), it."""
        sources = []
        for field in self.all_fields:
            parts = [("source", field.source)]
            parts += [("references", part) for part in field.references]
            if field.parent_field:
                parts += [("source", field.parent_field.source)]
                parts += [("references", field.parent_field.references)]
            sources += [(field, role, part) for role, part in parts if part]
        return sources

    @cached_property
    def parts(self) -> list[Part]:
        """Every object with its role, in the order of the description."""
        return list(parts(self.document.terms))

    @cached_property
    def things(self) -> dict[str, Thing]:
        """Every object that stands for something, by its pointer."""
        return {thing.at: thing for thing in self.document.terms.everything()}

    @cached_property
    def misspelt(self) -> list[Misspelt]:
        """Properties that are not known where they stand."""
        return misspelt(self.parts)

    @cached_property
    def _meant(self) -> set[tuple[str, str]]:
        """Pointer of an object, and a term that a misspelt property of it was meant to be."""
        return {(slip.part.thing.at, slip.meant) for slip in self.misspelt if slip.meant}

    @cached_property
    def _hidden(self) -> set[str]:
        """Ids and names that stand under a misspelt property, where nothing looks for them."""
        found = {slip.entry.raw for slip in self.misspelt if isinstance(slip.entry.raw, str)}
        ahead = [slip.entry.raw for slip in self.misspelt]
        while ahead:
            value = ahead.pop()
            if isinstance(value, dict):
                found |= {
                    name for key in ("@id", "name") if isinstance(name := value.get(key), str)
                }
                ahead += value.values()
            elif isinstance(value, list):
                ahead += value
        return found

    def is_reported(self, word: str) -> bool:
        """Whether an id is unknown for a reason that another rule tells: its part could not be read."""
        owners = {records.id for records in self.metadata.record_sets if not records.fields}
        return word in self._hidden or word.rpartition("/")[0] in owners

    def meant(self, word: str, ids: Collection[str]) -> str:
        """The id that is nearest to one that is unknown, or ``""``.

        Where a large description has many that are unknown, only the first are looked at: each takes time
        that grows with the number of ids.
        """
        self._compared += len(ids)
        return nearest(word, ids) if self._compared <= _MOST_COMPARED else ""

    def did_you_mean(self, word: str, ids: Collection[str]) -> str:
        """The question after the id that was meant; ``""`` where none is near."""
        return question(self.meant(word, ids))

    def is_meant(self, thing: Thing, term: str) -> bool:
        """Whether a misspelt property of an object was most likely meant to be a term."""
        return (thing.at, term) in self._meant

    @cached_property
    def _instead(self) -> dict[str, Misspelt]:
        found: dict[str, Misspelt] = {}
        for slip in self.misspelt:
            groups = NEEDED.get(slip.part.role, ()) if slip.part.role in _SAY_ONE_THING else ()
            if groups and self.lacks(slip.part.thing, *groups[0]) and not slip.meant:
                found.setdefault(slip.part.thing.at, slip)
        return found

    def instead(self, thing: Thing | None) -> Misspelt | None:
        """The unknown property that a transform or an extract has in place of those that it may have."""
        return self._instead.get(thing.at) if thing else None

    def thing(self, node: Node) -> Thing | None:
        """The object that a node of the model was made of; None for one made of a text."""
        return self.things.get(node.at)

    def lacks(self, node: Node | Thing, *terms: str) -> bool:
        """Whether an object has none of some properties, under no spelling that was reported already."""
        thing = node if isinstance(node, Thing) else self.thing(node)
        if thing is None:
            return False  # a value that is not an object was reported
        has = {
            entry.term
            for entry in thing.entries
            if (entry.raw is not None and entry.raw != []) or entry.term == "cr:value"
        }
        return has.isdisjoint(terms) and not any((thing.at, term) in self._meant for term in terms)

    def values(self, node: Node, term: str) -> Iterator[tuple[str, Any]]:
        """The JSON values of a property, each with its pointer; those of a list one by one."""
        for value in self._values(node, term):
            several = isinstance(value.value, list)  # a list of records is one value of JSON-LD
            if several:
                yield from ((f"{value.at}/{place}", item) for place, item in enumerate(value.value))
            else:
                yield value.at, value.value

    def value(self, node: Node, term: str) -> Any:
        """The one value of a property; None if there is none, or several."""
        values = [value.value for value in self._values(node, term)]
        return values[0] if len(values) == 1 else None

    def terms_at(self, node: Node, term: str) -> Iterator[tuple[str, str, str]]:
        """Values that are terms themselves: pointer, as written, canonical."""
        thing = self.thing(node)
        for value in self._values(node, term):
            name = value.thing.id if value.thing else value.value
            if thing and isinstance(name, str):
                yield value.at, name, term_of(name, thing.context)

    def _values(self, node: Node, term: str) -> Iterator[Value]:
        thing = self.thing(node)
        return thing.values(term) if thing else iter(())


def below(field: Field) -> Iterator[Field]:
    """A field and its sub-fields, at every depth."""
    yield field
    for sub in field.sub_fields:
        yield from below(sub)


def about(
    node: Named, message: str, term: str = "", hint: str = "", severity: Severity | None = None
) -> Breach:
    """That something is said of a node, at one of its properties or at itself."""
    return Breach(node.where(term), f"{called(node)} {message}", hint, severity)


def missing(context: Context, nodes: Iterable[Named], *terms: str) -> Iterator[Breach]:
    """That things have none of some properties; the first is the one that is asked for."""
    for node in nodes:
        if context.lacks(node, *terms):
            yield about(node, f"has no {bare(terms[0])}", terms[0])


def malformed(
    context: Context, nodes: Iterable[Node], check: Callable[[str], str], *terms: str
) -> Iterator[Breach]:
    """Texts under some properties that a check says something is wrong with."""
    for node in nodes:
        for term in terms:
            for at, value in context.values(node, term):
                if isinstance(value, str) and (wrong := check(value)):
                    yield Breach(at, f"{bare(term)} {quoted(value)} {wrong}")


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The cycles found by a depth-first search: each as its nodes in order, no two sharing a node.

    Linear in nodes and edges; no recursion. Edges to unknown nodes are ignored.
    """
    state: dict[str, int] = {}  # 1: on the path, 2: done
    circles: list[list[str]] = []
    taken: set[str] = set()
    for start in edges:
        if start in state:
            continue
        path, ahead = [start], [iter(edges[start])]
        state[start] = 1
        while path:
            step = next((node for node in ahead[-1] if node in edges), None)
            if step is None:
                state[path.pop()] = 2
                ahead.pop()
            elif step not in state:
                state[step] = 1
                path.append(step)
                ahead.append(iter(edges[step]))
            elif state[step] == 1:
                circle = path[path.index(step) :]
                if taken.isdisjoint(circle):
                    taken.update(circle)
                    circles.append(circle)
    return circles


def way_round(circle: Iterable[str]) -> str:
    """A circle as messages show it."""
    names = list(circle)
    return " > ".join(quoted(name) for name in (*names, names[0]))


def _first(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """A dictionary in which the first of equal keys stays."""
    found: dict[str, T] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found
