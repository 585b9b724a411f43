"""The columns of JSON: keys of the objects, by the structure that all of them together have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from holdfast.data.croissant.describing.shapes import NESTED, Shape, can_be_step, step
from holdfast.data.croissant.scanning.json_layouts import layout_of, options_of
from holdfast.data.croissant.scanning.opening import Opening
from holdfast.errors import InputError

JSON = "application/json"
LINES = "application/jsonlines"
_DEPTH = 3  # keys that lead to a list of records
_DEEPEST = (
    20  # members within members; a description takes two levels of JSON for each, and reads 100
)

_TYPES = {
    "BIGINT": "sc:Integer",
    "UBIGINT": "sc:Integer",
    "DOUBLE": "sc:Float",
    "BOOLEAN": "sc:Boolean",
    "VARCHAR": "sc:Text",
    "NULL": "sc:Text",
    "JSON": "sc:Text",
}


@dataclass(frozen=True)
class Records:
    """A list of objects in JSON files.

    Attributes:
        path: its JSONPath, such as ``$.images[*]``; "" where each file (or line) is the list itself; ``$``
            where each of several files is one of the objects.
        name: the key that holds it; "" where it is the file itself.
        structure: key -> what `json_group_structure` of DuckDB says of its values.
    """

    path: str
    name: str
    structure: dict[str, Any]


def json_structure(opening: Opening, encoding: str) -> Any:
    """The structure that all values of JSON files have together; lines and arrays are lists of values."""
    layout = layout_of(opening, "jsonl" if encoding == LINES else "json")
    values = f"read_json_objects({options_of(opening, layout)})"
    # A database that met values nested thousands deep answers no more: others need theirs.
    with duckdb.connect() as probe:
        probe.execute("SET threads = 1")  # several would put the keys in another order each time
        try:
            rows = probe.execute(f"SELECT json_group_structure(json) FROM {values}").fetchall()
        except (duckdb.FatalException, duckdb.InternalException):
            raise InputError("too deeply nested", code="unsupported") from None
    structure = json.loads(rows[0][0] or "null")
    return structure if layout == "unstructured" else [structure]


def find_records(structure: Any, *, several: bool = False) -> list[Records]:
    """The lists of objects in a file, by the structure of its value: itself, or what its keys hold.

    Args:
        structure: of the file's value.
        several: of all values of several files: objects without such lists are a list themselves.
    """
    if isinstance(structure, list) and structure and isinstance(structure[0], dict):
        return [Records("", "", structure[0])]
    if not isinstance(structure, dict):
        return []
    lists = list(_lists(structure, "$", _DEPTH))
    return lists or ([Records("$", "", structure)] if several and structure else [])


def _lists(structure: Mapping[str, Any], path: str, depth: int) -> Iterator[Records]:
    """The lists of objects that an object's keys hold, or the keys of objects in it."""
    for key, value in structure.items():
        if not key or not can_be_step(key):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield Records(f"{path}{step(key)}[*]", key, value[0])
        elif isinstance(value, dict) and depth > 1:
            yield from _lists(value, f"{path}{step(key)}", depth - 1)


def json_shapes(records: Records) -> tuple[Shape, ...]:
    """The columns of a list of objects; empty keys, and those of always empty objects, are left out."""
    shapes = []
    for key, structure in records.structure.items():
        where = {"json_path": f"{records.path}{step(key)}"} if records.path else {"column": key}
        if shape := _shape(key, structure, where, ()):
            shapes.append(shape)
    return tuple(shapes)


def _shape(
    key: str,
    structure: Any,
    where: dict[str, str],
    inner: tuple[str | None, ...],
    *,
    listed: bool = False,
) -> Shape | None:
    """One column, or one member (`inner` leads to it) of a column; `listed`: of one that is in a list."""
    sizes = 0
    if not key:
        return None
    while isinstance(structure, list):
        structure = structure[0] if structure else "NULL"
        sizes += 1
    given: dict[str, Any] = {"name": key, "inner": inner, "sizes": (-1,) * sizes, **where}
    if isinstance(structure, dict):
        if (sizes and sizes + listed > 1) or len(inner) > _DEEPEST:
            return Shape(**given, data_types=("sc:Text",), remark=NESTED)
        if sizes and inner:  # a path that begins with a key asks the elements of the column itself
            inner = (*inner, None)
        parts = tuple(
            shape
            for name, value in structure.items()
            if (shape := _shape(name, value, where, (*inner, name), listed=listed or sizes > 0))
        )
        return Shape(**given, parts=parts) if parts else None
    remarks = {
        "NULL": "no row has a value: taken as text",
        "JSON": "values of several types: taken as text",
    }
    return Shape(**given, data_types=(_TYPES[structure],), remark=remarks.get(structure, ""))
