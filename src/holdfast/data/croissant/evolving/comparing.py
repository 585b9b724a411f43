"""What changed from one version of a description to the next, and the version number it calls for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import Metadata
from holdfast.data.croissant.document.reading import DescriptionSource, Document, read_document
from holdfast.data.croissant.documenting.canonical import plain
from holdfast.data.croissant.evolving.changes import GROUPS, SAME, Change, Difference, short
from holdfast.data.croissant.evolving.comparing_records import compare_record_sets
from holdfast.data.croissant.evolving.comparing_resources import compare_resources
from holdfast.data.croissant.evolving.matching import Matches, match
from holdfast.data.croissant.evolving.versions import Bump
from holdfast.data.croissant.fetching.access import Access
from holdfast.errors import InputError

# Compared as parts of the model, or only ways of writing.
_ELSEWHERE = frozenset({"@context", "@type", "@id", "sc:distribution", "cr:recordSet"})
_WITHOUT_BUMP = {
    "sc:version": "the versions are held against the changes",
    "cr:sdVersion": "the description has its own version",
    "sc:dateModified": "a date that any change moves",
    "dct:conformsTo": "the data are as they were, however they are described",
}


def diff(
    old: DescriptionSource, new: DescriptionSource, access: Access | None = None
) -> Difference:
    """Everything that one description says otherwise than another, and what that means for its version.

    How something is written does not count: prefixes and aliases of terms, http or https for schema.org,
    the order of keys, of resources, record sets and fields, or a list of one.

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
    roots = [_said(document) for document in documents]
    matches = match(before, after)
    changes = [
        *_metadata(before, after, roots[0], roots[1]),
        *compare_resources(matches, live=after.is_live),
        *compare_record_sets(before, after, matches, _repacked(matches)),
    ]
    return Difference(
        old=documents[0].path,
        new=documents[1].path,
        changes=tuple(sorted(changes, key=lambda change: GROUPS.index(change.group))),
        old_version=before.dataset_version,
        new_version=after.dataset_version,
        live=after.is_live,
        description_version_changed=_normal(roots[0].get("cr:sdVersion"))
        != _normal(roots[1].get("cr:sdVersion")),
    )


def _said(document: Document) -> dict[str, Any]:
    """What is said of the dataset; version 0.8 wrote under ``citation`` what is ``citeAs`` since."""
    root = plain(document)
    if document.terms.legacy and "cr:citeAs" not in root and "sc:citation" in root:
        root["cr:citeAs"] = root.pop("sc:citation")
    return root


def _repacked(matches: Matches) -> frozenset[str]:
    """Newer ids of resources that are stored in another format than they were."""
    pairs: list[tuple[Any, Any]] = [*matches.files.both, *matches.file_sets.both]
    return frozenset(
        new.id for old, new in pairs if set(old.encoding_formats) != set(new.encoding_formats)
    )


def _metadata(
    before: Metadata, after: Metadata, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[Change]:
    for term in dict.fromkeys((*new, *old)):
        left, right = _normal(old.get(term)), _normal(new.get(term))
        if term in _ELSEWHERE or left == right:
            continue
        label = term.split(":")[-1] if term.startswith(("sc:", "cr:", "dct:")) else term
        verb = "added" if not left else "removed" if not right else "changed"
        bump: Bump = "none" if term in _WITHOUT_BUMP else "patch"
        detail = f" from {short(old[term])} to {short(new[term])}" if verb == "changed" else ""
        yield Change(
            kind=f"{label}-{verb}",
            group="metadata",
            bump=bump,
            message=f"{label} was {verb}{detail}",
            reason=_WITHOUT_BUMP.get(term, SAME),
            old=old.get(term),
            new=new.get(term),
            old_at=before.where(term) if term in old else None,
            new_at=after.where(term) if term in new else None,
        )


def _normal(value: Any) -> list[str]:
    """A property's values for comparison: JSON-LD's lists have no order, and one value needs no list."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return sorted(json.dumps(_bare(one), sort_keys=True, ensure_ascii=False) for one in values)


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"@value"}:
            return value["@value"]
        return {key: _normal(part) for key, part in value.items()}
    return value
