"""Records that stand in a description itself, under the ids of their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.data.croissant.document.model import Field


def by_id(given: Any, fields: Sequence[Field]) -> Any:
    """Records with the ids of fields as keys, whichever name was written; other JSON as it stands."""
    named: dict[str | None, Field] = {}
    for name in ("short", "name", "key", "id"):
        named |= {getattr(part, name): part for part in fields}
    rows = given if isinstance(given, (list, tuple)) else [given]
    made = [_row(row, named) if isinstance(row, Mapping) else row for row in rows]
    return made if rows is given else made[0]


def _row(row: Mapping[str, Any], named: Mapping[str | None, Field]) -> Mapping[str, Any]:
    if "@id" in row:  # examples may be a resource
        return row
    made = {}
    for key, value in row.items():
        part = named.get(key)
        if part is None or (part.id != key and part.id in row):
            made[key] = value
        else:
            made[part.id] = by_id(value, part.sub_fields) if part.sub_fields else value
    return made
