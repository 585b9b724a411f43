"""Rows of a dataset as JSON holds them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from holdfast.plain import plain

LABEL = "label"


def json_row(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The user's columns of one image: bytes in base64, times as ISO texts, JSON texts as what they say.

    Args:
        row: name -> value; others than the schema's are left out.
        schema: the columns.
    """
    return {
        column.name: _json_value(row[column.name], column)
        for column in schema
        if column.name != "id"
    }


def _json_value(value: Any, column: pa.Field) -> Any:
    if isinstance(value, str) and (column.metadata or {}).get(b"encoding") == b"json":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return plain(value)


def class_of(label: Any, classes: list[str] | None) -> str | None:
    """The name of a label's class, None where it has none."""
    if classes is None or not isinstance(label, int) or not 0 <= label < len(classes):
        return None
    return classes[label]


def json_line(row: Mapping[str, Any]) -> bytes:
    """One line of JSON."""
    return (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()
