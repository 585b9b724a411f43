"""A description as JSON whose keys and types are canonical terms, however it was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.data.croissant.document.reading import Document
from holdfast.data.croissant.document.terms import Entry, Thing, Value


def plain(document: Document) -> dict[str, Any]:
    """The dataset as canonical JSON; empty where the document describes none.

    Version 0.8 wrote under ``citation`` what is ``citeAs`` since.
    """
    dataset = document.terms.dataset
    root = {} if dataset is None else _thing(dataset)
    if document.terms.legacy and "cr:citeAs" not in root and "sc:citation" in root:
        root["cr:citeAs"] = root.pop("sc:citation")
    return root


def vocabulary_properties(document: Document, prefix: str) -> Iterator[tuple[Entry, Any]]:
    """Every property of a vocabulary on any object, with its value as canonical JSON; depth first."""
    for thing in document.terms.everything():
        for entry in thing.entries:
            if entry.term.startswith(prefix):
                yield entry, _values(entry, thing)


def _thing(thing: Thing) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if thing.id is not None:
        properties["@id"] = thing.id
    if thing.types:
        properties["@type"] = list(thing.types) if len(thing.types) > 1 else thing.types[0]
    for entry in thing.entries:
        value = _values(entry, thing)
        if entry.term in properties:  # the same term in two spellings
            value = [*listed(properties[entry.term]), *listed(value)]
        properties[entry.term] = value
    return properties


def listed(value: Any) -> list[Any]:
    """The values of a property: a list of one needs no brackets, and none is none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _values(entry: Entry, thing: Thing) -> Any:
    values = [_value(value, thing) for value in entry.values]
    return values[0] if len(values) == 1 else values


def _value(value: Value, thing: Thing) -> Any:
    if value.thing is not None:
        return _thing(value.thing)
    if value.language is not None and value.language != thing.context.language:
        return {"@value": value.value, "@language": value.language}
    return value.value
