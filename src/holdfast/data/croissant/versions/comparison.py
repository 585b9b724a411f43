"""What changed from one version of a description to the next, and the version number it calls for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.data.croissant.cards.canonical import listed, plain
from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import Metadata
from holdfast.data.croissant.document.reading import DescriptionSource, Document, read_document
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.files.hashing import checksum_of
from holdfast.data.croissant.versions.changes import Change, Difference, GroupName
from holdfast.data.croissant.versions.migration import migrate
from holdfast.data.croissant.versions.version_numbers import Bump
from holdfast.errors import InputError

SAME = "the data are unchanged"
MORE = "existing data remain available unchanged"
GONE = "existing data are no longer available unchanged"
DOUBT = "records may differ; only the data can show it"
_REASONS: dict[Bump, str] = {"none": SAME, "patch": SAME, "minor": MORE, "major": GONE}
_QUOTED = 60

_WITHOUT_BUMP = {
    "sc:version": "the versions are held against the changes",
    "cr:sdVersion": "the description has its own version",
    "sc:dateModified": "a date that any change moves",
    "dct:conformsTo": "the data are as they were, however they are described",
}
_CHECKSUMS = ("sc:sha256", "cr:md5")
# Of the properties of parts: those whose change breaks what read the data (MAJOR), those that may change
# the values, which only the data can tell (MAJOR for caution), and where the same bytes may lie (PATCH).
_BREAKS = frozenset({"cr:key", "cr:value", "cr:parentField"})
_MAY_BREAK = frozenset(
    {*_CHECKSUMS, "sc:encodingFormat", "sc:encoding", "cr:containedIn", "cr:includes"}
    | {"cr:excludes", "cr:data", "cr:dataType", "cr:source", "cr:references"}
    | {"cr:arrayShape", "cr:isArray", "cr:repeated"}
)
_ADDRESSES = frozenset({"sc:contentUrl", "sc:contentSize"})
# What holds parts -> what they are called.
_PARTS = {
    "sc:distribution": "file",
    "cr:recordSet": "record-set",
    **dict.fromkeys(("cr:field", "cr:subField", "cr:annotation"), "field"),
}
_GROUPS: dict[str, GroupName] = {
    "": "metadata",
    "file": "resources",
    "set": "resources",
    "record-set": "record sets",
    "field": "fields",
}
_ORDERED = (
    "cr:transform",
    "cr:data",
    "cr:examples",
    "cr:value",
)  # the order of their values counts

# What a part is called, the record set that a field is in, and the @id.
Key = tuple[str, str, str]
_DATASET: Key = ("", "", "")


def diff(
    old: DescriptionSource, new: DescriptionSource, access: Access | None = None
) -> Difference:
    """Everything that one description says otherwise than another, and what that means for its version.

    Parts are told apart by their ``@id``: what has another is removed and added. How something is written
    does not count: prefixes and aliases of terms, http or https for schema.org, the order of keys, of
    resources, record sets and fields, a list of one, or the version of the format.

    Args:
        old: the older description, as `open_description` takes it.
        new: the newer one.
        access: how the network may be used, where one is a URL.

    Raises:
        InputError: if one of them cannot be read as a description of a dataset, or both are stdin.
    """
    if str(old) == str(new) == "-":
        raise InputError(
            "stdin holds one description, and two are compared",
            code="conflict",
            remedy="name a file or a URL for one of them",
        )
    documents = read_document(old, access), read_document(new, access)
    before, after = (build(document) for document in documents)
    left, right = (_parts(document) for document in documents)
    return Difference(
        old=documents[0].path,
        new=documents[1].path,
        changes=tuple(_changes(left, right, before, after)),
        old_version=before.dataset_version,
        new_version=after.dataset_version,
        unverified=tuple(_unverified(before, after)),
    )


def _parts(document: Document) -> dict[Key, dict[str, Any]]:
    """The dataset and every part of it, each with its own properties, as version 1.1 says them."""
    newest = plain(read_document(migrate(document).metadata))
    own = {term: part for term, part in plain(document).items() if term not in _PARTS}
    return dict(_flat(newest, _DATASET)) | {_DATASET: own}


def _flat(thing: Mapping[str, Any], key: Key) -> Iterator[tuple[Key, dict[str, Any]]]:
    yield key, {term: value for term, value in thing.items() if term not in _PARTS}
    name, record_set, identity = key
    for term, what in _PARTS.items():
        for part in listed(thing.get(term)):
            if isinstance(part, Mapping):
                called = "set" if "cr:FileSet" in listed(part.get("@type")) else what
                inside = identity if name == "record-set" else record_set
                yield from _flat(part, (called, inside, part.get("@id", "")))


def _changes(
    old: dict[Key, dict[str, Any]],
    new: dict[Key, dict[str, Any]],
    before: Metadata,
    after: Metadata,
) -> Iterator[Change]:
    """What came, what went, and the properties that changed of what is in both."""
    places = _places(before), _places(after)
    for key in dict.fromkeys((*old, *new)):
        name, record_set, identity = key
        place = _GROUPS[name], identity
        nodes = places[0].get(place, before), places[1].get(place, after)
        if key in old and key in new:
            yield from _of_properties(key, old[key], new[key], nodes)
        elif not record_set or all(("record-set", "", record_set) in one for one in (old, new)):
            yield _of_part(key, nodes, gone=key in old)


def _of_part(key: Key, nodes: tuple[Any, Any], *, gone: bool) -> Change:
    """A part that came or went."""
    name, _, identity = key
    bump: Bump = "major" if gone else "minor"
    verb = "removed" if gone else "added"
    return Change(
        kind=f"{name}-{verb}",
        group=_GROUPS[name],
        bump=bump,
        subject=identity,
        message=f"{name} {identity} was {verb}",
        reason=_REASONS[bump],
        old=identity if gone else None,
        new=None if gone else identity,
        old_at=nodes[0].at if gone else None,
        new_at=None if gone else nodes[1].at,
    )


def _of_properties(
    key: Key,
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    nodes: tuple[Any, Any],
) -> Iterator[Change]:
    """What is said otherwise of a part that is in both."""
    name, _, identity = key
    for term in dict.fromkeys((*right, *left)):
        old, new = left.get(term), right.get(term)
        if term.startswith("@") or _normal(old, term) == _normal(new, term):
            continue
        verb = "added" if old is None else "removed" if new is None else "changed"
        label = term.split(":")[-1] if term.startswith(("sc:", "cr:", "dct:")) else term
        bump, certain = _bump(term, verb, _GROUPS[name])
        detail = f" from {short(old)} to {short(new)}" if verb == "changed" else ""
        reason = _REASONS[bump] if certain else DOUBT
        yield Change(
            kind="-".join(filter(None, (name, label, verb))),
            group=_GROUPS[name],
            bump=bump,
            certain=certain,
            subject=identity,
            message=f"{name} {identity}: ".lstrip(" :") + f"{label} was {verb}{detail}",
            reason=_WITHOUT_BUMP.get(term, reason),
            old=old,
            new=new,
            old_at=None if old is None else nodes[0].where(term),
            new_at=None if new is None else nodes[1].where(term),
        )


def _bump(term: str, verb: str, group: GroupName) -> tuple[Bump, bool]:
    """What a changed property calls for, and whether the descriptions alone prove it."""
    if group == "metadata":
        return ("none" if term in _WITHOUT_BUMP else "patch"), True
    if term in _CHECKSUMS and verb != "changed":  # from one alone nothing follows
        return "patch", False
    if term == "cr:key" and verb == "added":
        return "patch", True
    bump: Bump = "major" if term in _BREAKS | _MAY_BREAK else "patch"
    return bump, term not in _MAY_BREAK | _ADDRESSES


def _places(metadata: Metadata) -> dict[tuple[str, str], Any]:
    """The nodes of the model by what they are and their ids: they know where they stand."""
    resources = (*metadata.file_objects, *metadata.file_sets)
    found: dict[tuple[str, str], Any] = {("resources", one.id): one for one in resources}
    found |= {("record sets", one.id): one for one in metadata.record_sets}
    return found | {("fields", one.id): one for _, one in metadata.fields()}


def _unverified(before: Metadata, after: Metadata) -> Iterator[str]:
    """Files in both, outside of archives, whose bytes no pair of checksums compares."""
    old = {part.id: part for part in before.file_objects}
    for part in after.file_objects:
        if part.id in old and not part.contained_in and not part.is_repository:
            sums = [checksum_of(one.sha256, one.md5) for one in (old[part.id], part)]
            if not (sums[0] and sums[1] and sums[0].algorithm == sums[1].algorithm):
                yield part.id


def _normal(value: Any, term: str = "") -> Any:
    """A property's values for comparison: JSON-LD's lists have no order, and one value needs no list."""
    if term in _CHECKSUMS and isinstance(value, str):
        return str(checksum_of(value) or value)
    values = [json.dumps(_leaf(one), sort_keys=True) for one in listed(value)]
    return values if term in _ORDERED else sorted(values)


def _leaf(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"@value"}:
            return value["@value"]
        return {key: _normal(part, key) for key, part in value.items()}
    return value


def short(value: Any) -> str:
    """A value as a message quotes it: JSON, cut off where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…"
