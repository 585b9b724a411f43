"""What a description says as nested lists, told from its JSON by other means than those under test."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from holdfast.data.croissant.document.model import Field, Metadata, RecordSet

LEFT_OUT = {"at", "written", "types", "inherited", "version", "conforms_to", "properties"}


def said(metadata: Metadata) -> dict[str, Any]:
    """The model as plain JSON: what 0.8, 1.0 and 1.1 say differently is said in one way.

    Lists are lists of unknown length where no shape is said, a record's key is its field's id, a source is
    called by what it is, a checksum of 32 digits is an MD5, and the words for splits are Croissant's.
    """
    found = _plain(metadata)
    found["is_live"] = metadata.is_live
    for part in found["file_objects"]:
        if part["sha256"] and len(part["sha256"].strip()) == 32:
            part["md5"], part["sha256"] = part["sha256"], None
    for records, built in zip(metadata.record_sets, found["record_sets"], strict=True):
        built["data"] = _rows(records, records.data)
        built["examples"] = _rows(records, records.examples)
        types = {*built["data_types"], *(["sc:Enumeration"] if records.is_enumeration else [])}
        built["data_types"] = sorted(types - {"cr:Split"})
    return json.loads(json.dumps(found, sort_keys=True))


def _plain(node: Any) -> Any:
    if isinstance(node, Field):
        made = {
            field.name: _plain(getattr(node, field.name))
            for field in dataclasses.fields(node)
            if field.name not in LEFT_OUT | {"repeated", "key", "array_shape", "is_array"}
        }
        made["list"] = list(node.array_shape or (-1,)) if node.is_list else None
        made["data_types"] = sorted(
            {"cr:Split" if name == "wd:Q3985153" else name for name in node.data_types}
        )
        return made
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        skip = LEFT_OUT | {"property_name"}
        return {
            field.name: _plain(getattr(node, field.name))
            for field in dataclasses.fields(node)
            if field.name not in skip
        }
    if isinstance(node, (tuple, list)):
        return [_plain(one) for one in node]
    return node


def _rows(records: RecordSet, rows: Any) -> Any:
    """Inline records under the ids of their fields."""
    if not isinstance(rows, (list, tuple)):
        return rows
    names = {
        name: one.id for one in records.fields for name in (one.short, one.name, one.id) if name
    }
    names |= {one.id: one.id for one in records.fields}
    return [
        {names.get(key, key): value for key, value in row.items()} if isinstance(row, dict) else row
        for row in rows
    ]
