"""What changed in fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.data.croissant.document.model import Field, Node, RecordSet, Source
from holdfast.data.croissant.evolving.changes import (
    DOUBT,
    GONE,
    MORE,
    SAME,
    Change,
    GroupName,
    short,
)
from holdfast.data.croissant.evolving.comparing_types import compare_types
from holdfast.data.croissant.evolving.matching import Names, pair_fields, source_value
from holdfast.data.croissant.evolving.versions import Bump

SPLIT = "cr:Split"


@dataclass(frozen=True)
class Pair:
    """A record set in both descriptions, with what its fields need to know of their surroundings."""

    old: RecordSet
    new: RecordSet
    names: Names
    splits: frozenset[str]
    repacked: frozenset[str]
    joined: bool


def compare_fields(old: Sequence[Field], new: Sequence[Field], pair: Pair) -> Iterator[Change]:
    """Fields of one record set or field: what came, what went, and what changed in the others."""
    found = pair_fields(old, new, pair.names)
    for gone in found.removed:
        yield Change(
            kind="field-removed",
            group=_field_group(gone, pair),
            bump="major",
            subject=gone.id,
            message=f"field {gone.id} was removed",
            reason=GONE,
            old=gone.id,
            old_at=gone.at,
        )
    for come in found.added:
        yield Change(
            kind="field-added",
            group=_field_group(come, pair),
            bump="minor",
            subject=come.id,
            message=f"field {come.id} was added",
            reason=MORE,
            new=come.id,
            new_at=come.at,
        )
    for before, after in found.both:
        yield from _field(before, after, pair)
        yield from compare_fields(before.sub_fields, after.sub_fields, pair)
        yield from compare_fields(before.annotations, after.annotations, pair)


def _field_group(part: Field, pair: Pair) -> GroupName:
    targets = {one.target.rsplit("/", 1)[0] for one in part.references}
    return "splits" if targets & pair.splits or pair.new.id in pair.splits else "fields"


def _field(old: Field, new: Field, pair: Pair) -> Iterator[Change]:
    group = _field_group(new, pair)

    def change(
        kind: str,
        bump: Bump,
        message: str,
        reason: str,
        values: tuple[Any, Any],
        term: str,
        *,
        certain: bool = True,
    ) -> Change:
        return Change(
            kind=f"field-{kind}",
            group=group,
            bump=bump,
            certain=certain,
            subject=new.id,
            message=f"field {new.id}: {message}",
            reason=reason,
            old=values[0],
            new=values[1],
            old_at=old.where(term),
            new_at=new.where(term),
        )

    # An id that changed only because its record set was renamed is not a second change.
    if old.short != new.short:
        renamed = "records no longer have a field of the name it had"
        yield change(
            "renamed", "major", f"it was called {old.id}", renamed, (old.id, new.id), "@id"
        )
    yield from _type(old, new, change)
    yield from _shape(old, new, change)
    sources = [source_value(one.source, names) for one, names in ((old, pair.names), (new, {}))]
    if sources[0] != sources[1]:
        target = sources[1]["from"] if sources[1] else None
        repacked = (
            target in pair.repacked and sources[0] is not None and sources[0]["from"] == target
        )
        yield change(
            "source-changed",
            "patch" if repacked else "major",
            f"its source went from {short(sources[0])} to {short(sources[1])}",
            "its file has another format now; if values differ, it is MAJOR" if repacked else DOUBT,
            (sources[0], sources[1]),
            "cr:source",
            certain=False,
        )
    if (old.has_value, old.value) != (new.has_value, new.value):
        message = f"its value went from {short(old.value)} to {short(new.value)}"
        yield change("value-changed", "major", message, GONE, (old.value, new.value), "cr:value")
    references = [_targets(old.references, pair.names), _targets(new.references, {})]
    if references[0] != references[1]:
        yield change(
            "references-changed",
            "major" if pair.joined else "patch",
            f"it references {short(references[1])}, not {short(references[0])}",
            "records bring in other values through it" if pair.joined else SAME,
            (references[0], references[1]),
            "cr:references",
            certain=not pair.joined,
        )
    parents = [_parent(old, pair.names), _parent(new, {})]
    if parents[0] != parents[1]:
        message = "what it is grouped by changed"
        yield change(
            "parent-changed", "major", message, GONE, (parents[0], parents[1]), "cr:parentField"
        )
    equals = [sorted(set(one.equivalent_properties)) for one in (old, new)]
    if equals[0] != equals[1]:
        message = f"it means {short(equals[1])}, not {short(equals[0])}"
        values = (equals[0], equals[1])
        yield change("meaning-changed", "patch", message, SAME, values, "cr:equivalentProperty")
    yield from compare_words(old, new, f"field {new.id}", "field", group, new.id)


def _type(old: Field, new: Field, change: Any) -> Iterator[Change]:
    relation = compare_types(old.data_types, new.data_types)
    if relation == "same":
        return
    bumps: dict[str, Bump] = {
        "wider": "minor",
        "narrower": "major",
        "other": "major",
        "meaning": "patch",
    }
    words = {
        "wider": "widened",
        "narrower": "narrowed",
        "other": "changed",
        "meaning": "said differently",
    }
    reasons = {
        "wider": "every value equals the one it was",
        "narrower": "values that it could have are gone",
        "other": "its values read as something else",
        "meaning": SAME,
    }
    left, right = sorted(set(old.data_types)), sorted(set(new.data_types))
    yield change(
        f"type-{words[relation].replace(' ', '-')}",
        bumps[relation],
        f"its type was {words[relation]} from {short(left)} to {short(right)}",
        reasons[relation],
        (left, right),
        "cr:dataType",
    )


def _shape(old: Field, new: Field, change: Any) -> Iterator[Change]:
    if old.is_list != new.is_list:
        message = (
            "a record now holds many values of it"
            if new.is_list
            else "a record now holds one value of it"
        )
        yield change(
            "array-changed", "major", message, GONE, (old.is_list, new.is_list), "cr:isArray"
        )
        return
    # A list whose shape is not said is one of unknown length.
    left, right = ((one.array_shape or (-1,)) if one.is_list else None for one in (old, new))
    if left != right:
        refined = (
            not left
            or not right
            or (
                len(left) == len(right)
                and all(a == b or -1 in (a, b) for a, b in zip(left, right, strict=True))
            )
        )
        yield change(
            "shape-changed",
            "patch" if refined else "major",
            f"its shape went from {short(left)} to {short(right)}",
            SAME if refined else GONE,
            (left and list(left), right and list(right)),
            "cr:arrayShape",
        )


def _targets(references: Sequence[Source], names: Names) -> list[str]:
    return sorted({names.get(one.target, one.target) for one in references if one.target})


def _parent(part: Field, names: Names) -> dict[str, Any] | None:
    if part.parent_field is None:
        return None
    return {
        "source": source_value(part.parent_field.source, names),
        "references": source_value(part.parent_field.references, names),
    }


def compare_words(
    old: Node, new: Node, what: str, kind: str, group: GroupName, subject: str
) -> Iterator[Change]:
    """Names and descriptions; a name that only repeats the id says nothing."""
    for attribute in ("name", "description"):
        left, right = (_said(part, attribute) for part in (old, new))
        if left != right and getattr(old, attribute) != getattr(new, attribute):
            yield Change(
                kind=f"{kind}-{attribute}-changed",
                group=group,
                bump="patch",
                subject=subject,
                message=f"{what}: its {attribute} changed",
                reason=SAME,
                old=left,
                new=right,
                old_at=old.where(f"sc:{attribute}"),
                new_at=new.where(f"sc:{attribute}"),
            )


def _said(part: Any, attribute: str) -> str | None:
    text: str | None = getattr(part, attribute)
    own = (part.id, getattr(part, "short", ""), getattr(part, "key", ""))
    return None if attribute == "name" and text in own else text
