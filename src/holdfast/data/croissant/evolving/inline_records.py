"""Records that stand in a description itself, under the ids of their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.data.croissant.document.model import Field


def by_id(given: Any, fields: Sequence[Field]) -> Any:
    """Records with the ids of fields as keys, whichever name was written; other JSON as it stands."""
    if isinstance(given, (list, tuple)):
        return [by_id(row, fields) for row in given]
    if not isinstance(given, Mapping) or "@id" in given:  # examples may be a resource
        return given
    named: dict[str | None, Field] = {}
    for name in ("short", "name", "key", "id"):
        named |= {getattr(part, name): part for part in fields}
    made = {}
    for key, value in given.items():
        part = named.get(key)
        if part is None or (part.id != key and part.id in given):
            made[key] = value
        else:
            made[part.id] = by_id(value, part.sub_fields) if part.sub_fields else value
    return made
