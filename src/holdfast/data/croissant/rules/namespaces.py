"""Namespaces that the @context misspells, and the description as it reads with the right ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.data.croissant.document.reading import Document
from holdfast.data.croissant.document.resolving import resolve
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.terms import term_of
from holdfast.data.croissant.document.vocabulary import (
    CONTEXTS,
    DATA_TYPES,
    KNOWN_TERMS,
    NAMESPACES,
    OTHER_PREFIXES,
    PREFIXES,
)

_MEANT: Mapping[str, str] = {
    **OTHER_PREFIXES,
    **PREFIXES,
    **{name: CONTEXTS["1.0"][name] for name in ("@vocab", "sc")},
}
_NEEDED = ("sc", "cr", "dct")
"""Without their terms nothing can be loaded, or the version is not known."""


class Misspelt(NamedTuple):
    """A namespace in the @context at the top, under whose right name more words are known.

    Attributes:
        at: its pointer.
        name: the prefix that stands for it, or ``@vocab``.
        iri: what is written there.
        meant: what the name stands for in descriptions.
        needed: whether the description says nothing without it.
    """

    at: str
    name: str
    iri: str
    meant: str
    needed: bool


def corrected(document: Document) -> tuple[Document, tuple[Misspelt, ...]]:
    """A description with the right namespaces in its @context, and those that were misspelt.

    Whoever declares a namespace of their own, under whatever name, leaves no known word unknown by it.
    """
    value, found = document.value, []
    for at, name, iri in list(definitions(value)):
        meant = _MEANT.get(name, iri)
        if NAMESPACES.get(iri) == NAMESPACES.get(meant):
            continue
        better = _with(value, at, meant)
        if _known(better) > _known(value):
            value = better
            found.append(Misspelt(at, name, iri, meant, NAMESPACES[meant] in _NEEDED))
    if not found:
        return document, ()
    return replace(document, parsed=replace(document.parsed, value=value)), tuple(found)


def definitions(value: Any) -> Iterator[tuple[str, str, str]]:
    """Every address in the @context at the top: its pointer, its name, it."""
    written = value.get("@context") if isinstance(value, dict) else None
    lists = isinstance(written, list)
    for place, part in enumerate(written if isinstance(written, list) else [written]):
        at = f"/@context/{place}" if lists else "/@context"
        for name, meant in part.items() if isinstance(part, dict) else ():
            if isinstance(meant, str) and not name.startswith("@base"):
                yield f"{at}/{escaped(name)}", name, meant


def _with(value: Mapping[str, Any], at: str, meant: str) -> dict[str, Any]:
    """The description with another namespace at a pointer into its @context."""
    _, _, *place, name = at.split("/")
    written = value["@context"]
    if not place:
        return {**value, "@context": {**written, name: meant}}
    index = int(place[0])
    part = {**written[index], name: meant}
    return {**value, "@context": [*written[:index], part, *written[index + 1 :]]}


def _known(value: Any) -> int:
    """How many of a description's keys, types and data types are words that are known."""
    number = 0
    for thing in resolve(value).everything():
        number += sum(name in KNOWN_TERMS or name in DATA_TYPES for name in thing.types)
        number += sum(entry.term in KNOWN_TERMS for entry in thing.entries)
        number += sum(
            isinstance(one.value, str) and term_of(one.value, thing.context) in DATA_TYPES
            for one in thing.values("cr:dataType")
        )
    return number
