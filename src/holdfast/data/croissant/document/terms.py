"""A description as a graph of things: every key resolved to the term that it stands for, in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.data.croissant.document.contexts import Context
from holdfast.data.croissant.document.slips import Slip
from holdfast.data.croissant.document.vocabulary import BY_NAME, SHARED_NAMES, canonical


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an entry.

    Attributes:
        at: its pointer.
        value: plain JSON: what stands in ``@value``, or the value as it is written.
        thing: the thing that an object stands for; None for texts, numbers and the like.
        language: of a text, where it names one or its context does.
        kind: the type that the text is said to have.
    """

    at: str
    value: Any
    thing: Thing | None = None
    language: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of an object.

    Attributes:
        term: canonical, such as ``cr:source``.
        key: as written.
        at: the pointer of its value.
        raw: its value as written.
        values: the same one by one: lists, sets and language maps are taken apart.
        iri: what the context alone makes of the key; None where it means nothing. It differs from the
            term's IRI where the term was known by its name only.
    """

    term: str
    key: str
    at: str
    raw: Any
    values: tuple[Value, ...]
    iri: str | None


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of the description.

    Attributes:
        at: its pointer.
        id: its ``@id`` as written.
        types: its canonical ``@type``s.
        types_written: the same as written.
        types_at: the pointer of its ``@type``; None if it has none.
        id_at: the pointer of its ``@id``; None if it has none.
        entries: its keys in their order, without ``@context``, ``@id`` and ``@type``.
        context: what keys and types mean inside it.
        raw: the object as written.
    """

    at: str
    id: str | None
    types: tuple[str, ...]
    types_written: tuple[Any, ...]
    types_at: str | None
    id_at: str | None
    entries: tuple[Entry, ...]
    context: Context = field(repr=False)
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def is_reference(self) -> bool:
        """Whether this only names a thing that is described elsewhere."""
        return self.id is not None and not self.types_written and not self.entries

    def values(self, term: str) -> Iterator[Value]:
        """Every value of a term."""
        for entry in self.entries:
            if entry.term == term:
                yield from entry.values

    def entry(self, term: str) -> Entry | None:
        """The last entry of a term."""
        last = None
        for entry in self.entries:
            if entry.term == term:
                last = entry
        return last

    def inner(self) -> Iterator[Thing]:
        """The things that stand directly in this one."""
        for entry in self.entries:
            for value in entry.values:
                if value.thing is not None:
                    yield value.thing


@dataclass(frozen=True, slots=True)
class Terms:
    """All the things of a description.

    Attributes:
        dataset: the one that is the dataset; None if there is no object at all.
        roots: the objects at the top, of which the dataset is one.
        context: what the document declares at its top.
        declared: whether it declares a context at all; the recommended one is used otherwise.
        legacy: whether the vocabulary of version 0.8 is used.
        slips: what cannot be understood in contexts.
    """

    dataset: Thing | None
    roots: tuple[Thing, ...]
    context: Context
    declared: bool
    legacy: bool
    slips: tuple[Slip, ...]
    _roots_by_id: Mapping[str, Thing] = field(repr=False)

    def resolve(self, thing: Thing) -> Thing:
        """What a reference refers to, if that stands at the top; else the thing itself."""
        if not thing.is_reference or thing.id is None:
            return thing
        return self._roots_by_id.get(thing.context.identity(thing.id), thing)

    def everything(self) -> Iterator[Thing]:
        """Every thing, depth first."""
        stack = list(reversed(self.roots))
        while stack:
            thing = stack.pop()
            yield thing
            stack.extend(reversed(list(thing.inner())))


def term_of(name: str, context: Context) -> str:
    """The canonical term that a type, or another name of a term, stands for."""
    return known_term(context.meant(name), name, shared=True)


def known_term(iri: str | None, name: str, *, shared: bool) -> str:
    """The canonical term of an IRI, or of a name to which the context gives none.

    Terms that land in schema.org's namespace (or in that of Croissant) for want of a definition are taken
    by their names, unless schema.org has them too and `shared` is not said.
    """
    term = canonical(iri) if iri else name
    prefix, colon, local = term.partition(":")
    if not colon:
        return BY_NAME.get(term) or (term if term.startswith("@") else f"sc:{term}")
    if prefix in ("sc", "cr") and (shared or local not in SHARED_NAMES or prefix == "cr"):
        return BY_NAME.get(local, term)
    return term
