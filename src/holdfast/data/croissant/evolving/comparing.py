"""What changed from one version of a description to the next, and the version number it calls for."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import (
    Field,
    FileObject,
    FileSet,
    Metadata,
    Node,
    RecordSet,
)
from holdfast.data.croissant.document.reading import DescriptionSource, Document, read_document
from holdfast.data.croissant.document.vocabulary import ATOMIC_TYPES
from holdfast.data.croissant.documenting.canonical import plain, said_of
from holdfast.data.croissant.evolving.changes import Change, Difference, GroupName
from holdfast.data.croissant.evolving.inline_records import by_id
from holdfast.data.croissant.evolving.versions import Bump
from holdfast.data.croissant.fetching.access import Access
from holdfast.data.croissant.files.hashing import checksum_of, parse_size
from holdfast.errors import InputError

SAME = "the data are unchanged"
MORE = "existing data remain available unchanged"
GONE = "existing data are no longer available unchanged"
DOUBT = "records may differ; only the data can show it"
LIVE = "the files of a live dataset are expected to grow"
_REASONS: dict[Bump, str] = {"none": SAME, "patch": SAME, "minor": MORE, "major": GONE}
_QUOTED = 60

_WITHOUT_BUMP = {
    "sc:version": "the versions are held against the changes",
    "cr:sdVersion": "the description has its own version",
    "sc:dateModified": "a date that any change moves",
    "dct:conformsTo": "the data are as they were, however they are described",
}
# Compared as parts of the model; and how a part is called.
_PARTS = frozenset({"sc:distribution", "cr:recordSet", "cr:field", "cr:subField", "cr:annotation"})
_KINDS: dict[type[Node], tuple[str, GroupName]] = {
    FileObject: ("file", "resources"),
    FileSet: ("set", "resources"),
    RecordSet: ("record-set", "record sets"),
    Field: ("field", "fields"),
}
# What of a model's node is no statement of it.
_PLACES = frozenset({"at", "written", "types", "said", "kind"})


class Property(NamedTuple):
    """One property of a part, in both descriptions, and what a change of it means."""

    term: str
    values: Sequence[Any]
    bump: Bump = "patch"
    certain: bool = True
    label: str = ""


def diff(
    old: DescriptionSource, new: DescriptionSource, access: Access | None = None
) -> Difference:
    """Everything that one description says otherwise than another, and what that means for its version.

    Parts are told apart by their ``@id``: what has another is removed and added. How something is written
    does not count: prefixes and aliases of terms, http or https for schema.org, the order of keys, of
    resources, record sets and fields, or a list of one.

    Args:
        old: the older description, as `open_description` takes it.
        new: the newer one.
        access: how the network may be used, where one is a URL.

    Raises:
        InputError: if one of them cannot be read as a JSON object, or both are stdin.
    """
    if str(old) == str(new) == "-":
        raise InputError(
            "stdin holds one description, and two are compared",
            code="conflict",
            remedy="name a file or a URL for one of them",
        )
    documents = read_document(old, access), read_document(new, access)
    before, after = (build(document) for document in documents)
    roots = [plain(document) for document in documents]
    changes = [
        *_metadata(before, after, roots[0], roots[1]),
        *_parts(documents, before, after),
    ]
    versions = [_normal(root.get("cr:sdVersion")) for root in roots]
    return Difference(
        old=documents[0].path,
        new=documents[1].path,
        changes=tuple(changes),
        old_version=before.dataset_version,
        new_version=after.dataset_version,
        live=after.is_live,
        description_version_changed=versions[0] != versions[1],
        unverified=tuple(_unverified(before, after)),
    )


def _metadata(
    before: Metadata, after: Metadata, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[Change]:
    """What is said of the dataset itself."""
    for term in dict.fromkeys((*new, *old)):
        left, right = _normal(old.get(term)), _normal(new.get(term))
        if term.startswith("@") or term in _PARTS or left == right:
            continue
        label = term.split(":")[-1] if term.startswith(("sc:", "cr:", "dct:")) else term
        verb = "added" if not left else "removed" if not right else "changed"
        detail = f" from {short(old[term])} to {short(new[term])}" if verb == "changed" else ""
        yield Change(
            kind=f"{label}-{verb}",
            group="metadata",
            bump="none" if term in _WITHOUT_BUMP else "patch",
            message=f"{label} was {verb}{detail}",
            reason=_WITHOUT_BUMP.get(term, SAME),
            old=old.get(term),
            new=new.get(term),
            old_at=before.where(term) if term in old else None,
            new_at=after.where(term) if term in new else None,
        )


def _parts(
    documents: tuple[Document, Document], before: Metadata, after: Metadata
) -> Iterator[Change]:
    """Files, record sets and fields, paired by their ids."""
    old, new = _by_id(before), _by_id(after)
    things = [{thing.at: thing for thing in one.terms.everything()} for one in documents]
    for key in dict.fromkeys((*old, *new)):
        _, record_set, identity = key
        left, right = old.get(key), new.get(key)
        part = right or left
        assert part is not None
        name, group = _KINDS[type(part)]
        if left is None or right is None:
            whole = ("record-set", "", record_set)
            if record_set and (whole not in old or whole not in new):
                continue  # it came or went with its record set
            gone = right is None
            grows = after.is_live and group == "resources" and not gone
            bump: Bump = "major" if gone else "none" if grows else "minor"
            yield Change(
                kind=f"{name}-{'removed' if gone else 'added'}",
                group=group,
                bump=bump,
                subject=identity,
                message=f"{name} {identity} was {'removed' if gone else 'added'}",
                reason=LIVE if grows else _REASONS[bump],
                old=identity if gone else None,
                new=None if gone else identity,
                old_at=left.at if left else None,
                new_at=right.at if right else None,
            )
            continue
        properties = list(_properties(left, right, live=after.is_live))
        compared = {one.term for one in properties} | _ALSO | _PARTS
        others = [
            said_of(all_of[one.at], compared) if one.at in all_of else {}
            for all_of, one in zip(things, (left, right), strict=True)
        ]
        for term in sorted(others[0].keys() | others[1].keys()):
            values = [_normal(one.get(term)) for one in others]
            properties.append(Property(term, values))
        for one in properties:
            before_it, after_it = one.values
            if before_it == after_it:
                continue
            label = one.label or f"{one.term.rpartition(':')[2].lower()}-changed"
            yield Change(
                kind=f"{name}-{label}",
                group=group,
                bump=one.bump,
                certain=one.certain,
                subject=identity,
                message=f"{name} {identity}: {label.replace('-', ' ')} from {short(before_it)} "
                f"to {short(after_it)}",
                reason=_REASONS[one.bump] if one.certain else DOUBT,
                old=before_it,
                new=after_it,
                old_at=left.where(one.term),
                new_at=right.where(one.term),
            )


def _by_id(metadata: Metadata) -> dict[tuple[str, str, str], Any]:
    """Every part by its kind, its record set where it is a field, and its id."""
    tops = (*metadata.file_objects, *metadata.file_sets, *metadata.record_sets)
    found: dict[tuple[str, str, str], Any] = {}
    for part in tops:
        found[_KINDS[type(part)][0], "", part.id] = part
    for records, part in metadata.fields():
        found["field", records.id, part.id] = part
    return found


# Terms that `_properties` compares under another term.
_ALSO = frozenset(
    {"sc:sha256", "cr:md5", "sc:md5", "cr:isArray", "cr:repeated", "cr:isEnumeration"}
    | {"sc:encoding", "cr:encoding", "sc:charset", "cr:charset", "sc:encodingFormat"}
)


def _properties(old: Any, new: Any, *, live: bool) -> Iterator[Property]:
    """What the model knows of a part."""
    for term in ("name", "description"):
        given = [getattr(part, term) for part in (old, new)]
        told = [_told(old, given[0]), _told(new, given[1])]
        yield Property(f"sc:{term}", (told if given[0] != given[1] else (None, None)))
    if isinstance(old, FileObject):
        yield from _file(old, new, live=live)
    elif isinstance(old, FileSet):
        yield from _file_set(old, new)
    elif isinstance(old, RecordSet):
        yield from _record_set(old, new)
    else:
        yield from _field(old, new)


def _told(part: Any, text: str | None) -> str | None:
    """A name or description; a name that only repeats the id says nothing."""
    own = (part.id, getattr(part, "short", ""), getattr(part, "key", ""))
    return None if text in own else text


def _file(old: FileObject, new: FileObject, *, live: bool) -> Iterator[Property]:
    sums = [checksum_of(part.sha256, part.md5) for part in (old, new)]
    comparable = bool(sums[0] and sums[1] and sums[0].algorithm == sums[1].algorithm)
    same = comparable and sums[0] == sums[1]
    texts = [one and str(one) for one in sums]
    if comparable:
        yield Property("sc:sha256", texts, "major", False, "checksum-changed")
    else:
        yield Property("sc:sha256", texts, label="checksum-stated")
    sizes = [parse_size(part.content_size) for part in (old, new)]
    other_bytes = bool(sizes[0] and sizes[1] and sizes[0].exact and sizes[1].exact) and not same
    bump: Bump = "none" if live and not sums[1] else "major" if other_bytes else "patch"
    same_size = sizes[0] == sizes[1]
    stated = old.content_size, old.content_size if same_size else new.content_size
    certain = same or bump == "none" or not (sizes[0] and sizes[1])
    yield Property("sc:contentSize", stated, bump, certain, "size-changed")
    yield Property("sc:contentUrl", (old.content_url, new.content_url), "patch", same, "moved")
    inside = [sorted({one.target for one in part.contained_in}) for part in (old, new)]
    yield Property("cr:containedIn", inside, "patch" if same else "major", same)
    yield Property("sc:sameAs", [sorted(set(part.same_as)) for part in (old, new)])
    yield from _format(old, new)


def _file_set(old: FileSet, new: FileSet) -> Iterator[Property]:
    yield from _format(old, new)
    for term, attribute in (
        ("cr:includes", "includes"),
        ("cr:excludes", "excludes"),
        ("cr:containedIn", "contained_in"),
    ):
        left, right = (
            sorted({getattr(one, "target", one) for one in getattr(part, attribute)})
            for part in (old, new)
        )
        # Without includes or a container, a set takes what lies beside the description.
        fewer = (
            not set(right) <= set(left) if attribute == "excludes" else not set(left) <= set(right)
        )
        less = fewer or (attribute != "excludes" and not left)
        yield Property(term, (left, right), "major" if less else "minor", False)


def _format(old: FileObject | FileSet, new: FileObject | FileSet) -> Iterator[Property]:
    """Media types, and the encoding of text, which decides what its bytes say."""
    formats = [
        sorted({one.partition(";")[0].strip() for one in part.encoding_formats})
        for part in (old, new)
    ]
    yield Property("sc:encodingFormat", formats)
    charsets = [(part.charset or "utf-8").lower() for part in (old, new)]
    yield Property("sc:encodingFormat", charsets, "major", False, "charset-changed")


def _record_set(old: RecordSet, new: RecordSet) -> Iterator[Property]:
    keys = [sorted(set(part.key)) for part in (old, new)]
    yield Property("cr:key", keys, "major" if keys[0] else "patch")
    enumeration = ("sc:Enumeration",)
    types = [
        sorted({*part.data_types, *(enumeration if part.is_enumeration else ())})
        for part in (old, new)
    ]
    yield Property("cr:dataType", types, label="type-changed")
    yield Property("cr:examples", [by_id(part.examples, part.fields) for part in (old, new)])
    if (old.data is None) != (new.data is None):
        moved = [None if part.data is None else "inline" for part in (old, new)]
        yield Property("cr:data", moved, "major", False, "records-moved")
        return
    left, right = (by_id(part.data, part.fields) or [] for part in (old, new))
    # A field that came or went is a change of its own, not one of every record.
    shared = {key for row in left for key in row} & {key for row in right for key in row}
    texts = [Counter(_text(row, shared) for row in side) for side in (left, right)]
    lost, come = texts[0] - texts[1], texts[1] - texts[0]
    listed = {"sc:Enumeration", "cr:Split"} & set(types[1])
    bump: Bump = "major" if lost or (come and not listed) else "minor" if come else "patch"
    told = f"{lost.total()} removed", f"{come.total()} added"
    order = [[_text(row, shared) for row in side] for side in (left, right)]
    if order[0] != order[1]:
        yield Property("cr:data", told, bump, bool(lost or listed or not come), "records-changed")
    else:
        yield Property("cr:data", (None, None))


def _text(row: Mapping[str, Any], keys: set[str]) -> str:
    return json.dumps({key: row[key] for key in sorted(row.keys() & keys)}, sort_keys=True)


def _field(old: Field, new: Field) -> Iterator[Property]:
    types = [sorted(set(part.data_types)) for part in (old, new)]
    atomic = [{one for one in side if one in ATOMIC_TYPES} for side in types]
    # Whether numbers of one type are those of another, only the values can tell.
    made_of = [{ATOMIC_TYPES[one].replace("integer", "float") for one in side} for side in atomic]
    certain = atomic[0] == atomic[1] or (all(made_of) and made_of[0] != made_of[1])
    stored: Bump = "patch" if atomic[0] == atomic[1] else "major"
    yield Property("cr:dataType", types, stored, certain, "type-changed")
    lists = [list(part.array_shape or (-1,)) if part.is_list else None for part in (old, new)]
    sizes = [list(part or ()) for part in lists]
    refined = len(sizes[0]) == len(sizes[1]) and all(
        left == right or -1 in (left, right) for left, right in zip(*sizes, strict=True)
    )
    yield Property("cr:arrayShape", lists, "patch" if refined else "major", label="shape-changed")
    yield Property("cr:source", [_bare(part.source) for part in (old, new)], "major", False)
    values = [[part.value] if part.has_value else None for part in (old, new)]
    yield Property("cr:value", values, "major")
    references = [sorted({one.target for one in part.references}) for part in (old, new)]
    yield Property("cr:references", references, "major", False)
    yield Property("cr:parentField", [_bare(part.parent_field) for part in (old, new)], "major")
    meanings = [sorted(set(part.equivalent_properties)) for part in (old, new)]
    yield Property("cr:equivalentProperty", meanings)


def _bare(node: Any) -> Any:
    """A node of the model as plain JSON, without the places and what is unset."""
    if isinstance(node, tuple):
        return [_bare(one) for one in node]
    if not isinstance(node, Node):
        return node
    made = {
        part.name: _bare(getattr(node, part.name))
        for part in dataclasses.fields(node)
        if part.name not in _PLACES
    }
    return {name: value for name, value in made.items() if value not in (None, False, "", [])}


def _unverified(before: Metadata, after: Metadata) -> Iterator[str]:
    """Files in both, outside of archives, whose bytes no pair of checksums compares."""
    old = {part.id: part for part in before.file_objects}
    for part in after.file_objects:
        if part.id in old and not part.contained_in and not part.is_repository:
            sums = [checksum_of(one.sha256, one.md5) for one in (old[part.id], part)]
            if not (sums[0] and sums[1] and sums[0].algorithm == sums[1].algorithm):
                yield part.id


def _normal(value: Any) -> list[str]:
    """A property's values for comparison: JSON-LD's lists have no order, and one value needs no list."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return sorted(json.dumps(_leaf(one), sort_keys=True, ensure_ascii=False) for one in values)


def _leaf(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"@value"}:
            return value["@value"]
        return {key: _normal(part) for key, part in value.items()}
    return value


def short(value: Any) -> str:
    """A value as a message quotes it: JSON, cut off where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…"
