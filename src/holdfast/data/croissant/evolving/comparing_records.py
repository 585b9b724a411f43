"""What changed in record sets."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.model import Metadata, RecordSet
from holdfast.data.croissant.evolving.changes import (
    GONE,
    MORE,
    SAME,
    Change,
    GroupName,
    short,
)
from holdfast.data.croissant.evolving.comparing_fields import (
    SPLIT,
    Pair,
    compare_fields,
    compare_words,
)
from holdfast.data.croissant.evolving.comparing_rows import compare_examples, compare_rows
from holdfast.data.croissant.evolving.matching import Matches


def compare_record_sets(
    old: Metadata, new: Metadata, matches: Matches, repacked: frozenset[str]
) -> Iterator[Change]:
    """Record sets, their keys, inline records and fields.

    Args:
        old: the older description.
        new: the newer description.
        matches: which is which.
        repacked: newer ids of resources that are stored in another format than they were.
    """
    for gone in matches.record_sets.removed:
        yield Change(
            kind="record-set-removed",
            group=_group(gone),
            bump="major",
            subject=gone.id,
            message=f"record set {gone.id} was removed",
            reason=GONE,
            old=gone.id,
            old_at=gone.at,
        )
    for come in matches.record_sets.added:
        yield Change(
            kind="record-set-added",
            group=_group(come),
            bump="minor",
            subject=come.id,
            message=f"record set {come.id} was added, of {len(come.fields)} fields",
            reason=MORE,
            new=come.id,
            new_at=come.at,
        )
    split_ids = frozenset(one.id for one in new.record_sets if SPLIT in one.data_types)
    for before, after in matches.record_sets.both:
        joined = _is_joined(before) or _is_joined(after)
        around = Pair(before, after, matches.names, split_ids, repacked, joined)
        yield from _record_set(around)
        yield from compare_fields(before.fields, after.fields, around)
        yield from compare_fields(before.annotations, after.annotations, around)


def _group(part: RecordSet) -> GroupName:
    return "splits" if SPLIT in part.data_types else "record sets"


def _is_joined(part: RecordSet) -> bool:
    """Whether its records bring in fields from elsewhere, so that a reference decides what they hold."""
    leaves = [leaf for field in part.fields for leaf in field.leaves()]
    origins = {
        leaf.source.target.split("/")[0] for leaf in leaves if leaf.source and leaf.source.target
    }
    return len(origins) > 1


def _record_set(pair: Pair) -> Iterator[Change]:
    old, new = pair.old, pair.new
    group = _group(new)
    if old.id != new.id:
        yield Change(
            kind="record-set-renamed",
            group=group,
            bump="major",
            subject=new.id,
            message=f"record set {old.id} is now called {new.id}",
            reason="its records can no longer be had under the name they had",
            old=old.id,
            new=new.id,
            old_at=old.where("@id"),
            new_at=new.where("@id"),
        )
    keys = [sorted({pair.names.get(one, one) for one in old.key}), sorted(set(new.key))]
    if keys[0] != keys[1]:
        yield Change(
            kind="key-changed",
            group=group,
            bump="major" if keys[0] else "patch",
            subject=new.id,
            message=f"record set {new.id}: its key went from {short(keys[0])} to {short(keys[1])}",
            reason="what told records apart no longer does" if keys[0] else SAME,
            old=keys[0],
            new=keys[1],
            old_at=old.where("cr:key"),
            new_at=new.where("cr:key"),
        )
    left, right = (set(_types(one)) for one in (old, new))
    if left != right:
        splits = SPLIT in left ^ right
        yield Change(
            kind="record-type-changed",
            group="splits" if splits else group,
            bump="patch",
            subject=new.id,
            message=f"record set {new.id}: its type went from {short(sorted(left))} "
            f"to {short(sorted(right))}",
            reason=SAME,
            old=sorted(left),
            new=sorted(right),
            old_at=old.where("cr:dataType"),
            new_at=new.where("cr:dataType"),
        )
    yield from compare_words(old, new, f"record set {new.id}", "record-set", group, new.id)
    yield from compare_rows(old, new, pair.names, "splits" if group == "splits" else "data")
    yield from compare_examples(old, new, pair.names)


def _types(part: RecordSet) -> tuple[str, ...]:
    return (*part.data_types, *(("sc:Enumeration",) if part.is_enumeration else ()))
