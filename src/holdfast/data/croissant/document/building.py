"""The model of a description, built from its things; what cannot be understood is left out."""

from __future__ import annotations

from re import compile as pattern
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.document.identities import Identities
from holdfast.data.croissant.document.model import (
    FileObject,
    FileSet,
    Metadata,
    Version,
)
from holdfast.data.croissant.document.plain_values import (
    flag,
    loose_text,
    place,
    plain,
    text,
    text_of,
    texts,
)
from holdfast.data.croissant.document.record_sets import RecordSets
from holdfast.data.croissant.document.sources import containers
from holdfast.data.croissant.document.terms import Terms, Thing

if TYPE_CHECKING:
    from holdfast.data.croissant.document.reading import Document

_CONFORMS = pattern(r"https?://(?:www\.)?mlcommons\.org/croissant/(\d+)\.(\d+)/?")
_ATTRIBUTES = frozenset(
    (
        *("sc:name", "sc:description", "sc:url", "sc:license", "sc:creator", "sc:publisher"),
        *("sc:keywords", "sc:datePublished", "sc:dateModified", "sc:version"),
        *("sc:distribution", "cr:citeAs", "cr:isLiveDataset", "cr:recordSet", "dct:conformsTo"),
    )
)


def build(document: Document) -> Metadata:
    """What a description says, in any version and spelling; never raises.

    What cannot be understood is left out of the model; the rules report it.
    """
    terms = document.terms
    dataset = terms.dataset
    if dataset is None:
        return Metadata(at="", version="1.0")
    conforms_to = texts(dataset, "dct:conformsTo")
    version = _version(conforms_to, terms)
    identities = Identities(terms, dataset, legacy=version == "0.8")
    resources = [(thing, _is_set(thing)) for thing in identities.resources]
    return Metadata(
        **place(dataset),
        version=version,
        conforms_to=conforms_to,
        name=text(dataset, "sc:name"),
        description=text(dataset, "sc:description"),
        url=loose_text(dataset, "sc:url"),
        licenses=plain(dataset, "sc:license"),
        creators=plain(dataset, "sc:creator"),
        publishers=plain(dataset, "sc:publisher"),
        keywords=_keywords(dataset),
        date_published=text(dataset, "sc:datePublished"),
        date_modified=text(dataset, "sc:dateModified"),
        dataset_version=loose_text(dataset, "sc:version"),
        cite_as=text(dataset, "cr:citeAs"),
        is_live=flag(dataset, "cr:isLiveDataset"),
        file_objects=tuple(
            _file_object(thing, identities) for thing, many in resources if not many
        ),
        file_sets=tuple(_file_set(thing, identities) for thing, many in resources if many),
        record_sets=RecordSets(identities).build(),
        properties=_properties(dataset),
    )


def _version(conforms_to: tuple[str, ...], terms: Terms) -> Version:
    """The newest version that is named, as far as it is known here."""
    named = [
        (int(said[1]), int(said[2])) for name in conforms_to if (said := _CONFORMS.fullmatch(name))
    ]
    if not named:
        return "0.8" if terms.legacy else "1.0"
    newest = max(named)
    return "1.1" if newest >= (1, 1) else "1.0" if newest >= (1, 0) else "0.8"


def _keywords(dataset: Thing) -> tuple[str, ...]:
    """The keywords as texts; of a DefinedTerm, its name."""
    found = (
        text(value.thing, "sc:name") or value.thing.id if value.thing else text_of(value)
        for value in dataset.values("sc:keywords")
    )
    return tuple(word for word in found if word)


def _properties(dataset: Thing) -> dict[str, tuple[Any, ...]]:
    """What the model has no attribute for."""
    properties: dict[str, tuple[Any, ...]] = {}
    for entry in dataset.entries:
        if entry.term not in _ATTRIBUTES and not entry.term.startswith("@"):
            values = tuple(value.value for value in entry.values)
            properties[entry.term] = properties.get(entry.term, ()) + values
    return properties


def _is_set(thing: Thing) -> bool:
    """Whether a resource is a set of files: by its type, else by what it has."""
    if "cr:FileSet" in thing.types or "cr:FileObject" in thing.types:
        return "cr:FileSet" in thing.types
    return thing.entry("cr:includes") is not None and thing.entry("sc:contentUrl") is None


def _resource(thing: Thing, identities: Identities) -> dict[str, Any]:
    """What files and sets of files both have."""
    return place(thing) | {
        "id": identities.of(thing),
        "name": text(thing, "sc:name"),
        "description": text(thing, "sc:description"),
        "encoding_formats": texts(thing, "sc:encodingFormat"),
        "encoding": text(thing, "sc:charset") or text(thing, "sc:encoding"),
        "contained_in": containers(thing, identities),
    }


def _file_object(thing: Thing, identities: Identities) -> FileObject:
    return FileObject(
        **_resource(thing, identities),
        content_url=loose_text(thing, "sc:contentUrl"),
        content_size=loose_text(thing, "sc:contentSize"),
        sha256=text(thing, "sc:sha256"),
        md5=text(thing, "cr:md5"),
    )


def _file_set(thing: Thing, identities: Identities) -> FileSet:
    includes, excludes = texts(thing, "cr:includes"), texts(thing, "cr:excludes")
    return FileSet(**_resource(thing, identities), includes=includes, excludes=excludes)
