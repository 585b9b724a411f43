"""Descriptions written: the layout that the standard's own examples have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.files import write_whole

# What stands first and last in an object; the rest keeps its order.
_FIRST = (
    "@context",
    "@graph",
    "@type",
    "@id",
    "name",
    "description",
    "conformsTo",
    "dct:conformsTo",
)
_LAST = ("distribution", "recordSet")


def render_json(description: Mapping[str, Any]) -> str:
    """The text of a description.

    Two spaces a level, ``@context`` first, the dataset's own properties before its files and record sets;
    everything else keeps its order. NaN and the infinities, which JSON lacks, become null.
    """
    return json.dumps(_ordered(description), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(
    description: Mapping[str, Any], path: str | Path, *, overwrite: bool = False
) -> Path:
    """Write a description, whole or not at all; where it stands.

    Raises:
        InputError: a file is there already, and `overwrite` is false.
        HoldfastError: if the file cannot be written.
    """
    target = Path(path)
    if target.exists() and not overwrite:
        raise InputError(
            "the file exists",
            code="output-exists",
            path=target,
            remedy="name another file, or allow it to be overwritten (--overwrite)",
        )
    # What has no place in UTF-8, such as the odd bytes of a file's name, is written as an escape of JSON.
    write_whole(target, render_json(description).encode(errors="backslashreplace"))
    return target


def _ordered(description: Mapping[str, Any]) -> dict[str, Any]:
    keys = [key for key in _FIRST if key in description]
    keys += [key for key in description if key not in _FIRST and key not in _LAST]
    keys += [key for key in _LAST if key in description]
    return {key: _finite(description[key]) for key in keys}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
