"""Where values and files come from: sources, extracts, transforms, containers."""

from __future__ import annotations

from dataclasses import replace

from holdfast.data.croissant.document.identities import Identities
from holdfast.data.croissant.document.model import Extract, Source, Transform
from holdfast.data.croissant.document.plain_values import (
    flag,
    integer,
    place,
    text,
    text_of,
    texts,
)
from holdfast.data.croissant.document.terms import Thing, Value
from holdfast.data.croissant.document.vocabulary import canonical

_TARGETS = {
    "cr:fileObject": "fileObject",
    "cr:fileSet": "fileSet",
    "cr:recordSet": "recordSet",
    "cr:field": "field",
    "sc:distribution": "distribution",
}


def source(value: Value, thing: Thing, identities: Identities) -> Source | None:
    """A source, or what references refer to.

    Args:
        value: a text, a bare reference or a DataSource.
        thing: the node that it stands in.
        identities: what ids mean.
    """
    if value.thing is None:
        if not isinstance(value.value, str):
            return None
        target, kind = identities.find(value.value, "@id", thing.context)
        return Source(at=value.at, target=target, kind=kind, property_name="@id")
    node = identities.described(value.thing)
    name, property_name = _target(node)
    target, kind = identities.find(name, property_name, node.context) if name else ("", "unknown")
    extract = next((_extract(inner, identities) for inner in node.values("cr:extract")), None)
    return Source(
        **place(node),
        target=target,
        kind=kind,
        property_name=property_name,
        extract=extract,
        transforms=transforms(node, identities),
        format=text(node, "cr:format"),
        sampling_rate=integer(node, "cr:samplingRate"),
    )


def containers(thing: Thing, identities: Identities) -> tuple[Source, ...]:
    """What a resource is contained in."""
    found = (source(value, thing, identities) for value in thing.values("cr:containedIn"))
    return tuple(inner for inner in found if inner is not None and inner.target)


def transforms(node: Thing, identities: Identities) -> tuple[Transform, ...]:
    """The steps of a source, in their order."""
    return tuple(
        _transform(identities.described(value.thing))
        for value in node.values("cr:transform")
        if value.thing is not None
    )


def _target(node: Thing) -> tuple[str, str]:
    """What a source names, and the property that names it."""
    for term, said in _TARGETS.items():
        for value in node.values(term):
            name = text_of(value) or (text(value.thing, "sc:name") if value.thing else None)
            if name:
                return name, said
    if node.id and not node.id.startswith("_:"):
        return node.id, "@id"
    return "", next((said for term, said in _TARGETS.items() if node.entry(term)), "")


def _extract(value: Value, identities: Identities) -> Extract:
    if value.thing is None:
        return Extract(at=value.at)
    node = identities.described(value.thing)
    properties = texts(node, "cr:fileProperty")
    return Extract(
        **place(node),
        column=text(node, "cr:column"),
        file_property=canonical(properties[0]).removeprefix("cr:") if properties else None,
        json_path=text(node, "cr:jsonPath"),
    )


def _transform(node: Thing) -> Transform:
    plain = Transform(
        **place(node),
        regex=text(node, "cr:regex"),
        separator=text(node, "cr:separator"),
        replace=text(node, "cr:replace"),
        json_path=text(node, "cr:jsonPath"),
        format=text(node, "cr:format"),
        sampling_rate=integer(node, "cr:samplingRate"),
        read_lines=flag(node, "cr:readLines"),
        un_archive=flag(node, "cr:unArchive"),
    )
    return (
        plain
        if plain.separator is not None
        else replace(plain, separator=text(node, "cr:delimiter"))
    )
