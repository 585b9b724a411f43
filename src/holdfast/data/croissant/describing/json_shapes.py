"""The columns of JSON: keys of the objects, by the structure that all of them together have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from holdfast.data.croissant.describing.querying import one_row
from holdfast.data.croissant.describing.shapes import Shape, can_be_step, step
from holdfast.data.croissant.describing.walking import opened
from holdfast.data.croissant.scanning.sql_text import texts
from holdfast.errors import InputError

JSON = "application/json"
LINES = "application/jsonlines"
_HEAD = 1 << 22  # bytes in which a line of JSON should end
_BLANK = b"\xef\xbb\xbf \t\r\n"

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
        path: its JSONPath, such as ``$.images[*]``; "" where each file (or line) is the list itself.
        name: the key that holds it; "" where it is the file itself.
        structure: key -> what `json_group_structure` of DuckDB says of its values.
    """

    path: str
    name: str
    structure: dict[str, Any]


def json_structure(encoding: str, paths: Sequence[Path]) -> Any:
    """The structure that all values of JSON files have together; lines and arrays are lists of values."""
    whole = [path for path in paths if encoding == JSON and _first_sign(path) != b"["]
    if whole and len(whole) < len(paths):
        raise InputError("some of these files hold an array, others an object")
    form = "unstructured" if whole else "newline_delimited" if encoding == LINES else "array"
    most = max(16_777_216, *(path.stat().st_size + 1 for path in paths))
    query = (
        f"SELECT json_group_structure(json) FROM read_json_objects({texts(map(str, paths))}, "
        f"format = '{form}', maximum_object_size = {min(most, 2**32 - 1)})"
    )
    # A database that met values nested thousands deep answers no more: others need theirs.
    with duckdb.connect() as probe:
        probe.execute("SET threads = 1")  # several would put the keys in another order each time
        try:
            (found,) = one_row(probe, query)
        except (duckdb.FatalException, duckdb.InternalException):
            raise InputError("its values are nested too deep") from None
    structure = json.loads(found) if found else None
    return structure if whole else [structure]


def holds_lines(path: Path) -> bool:
    """Whether a JSON file holds several values, one on each line."""
    with opened(path) as file:
        first, _, rest = file.read(_HEAD).lstrip(_BLANK).partition(b"\n")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(rest.strip())


def _first_sign(path: Path) -> bytes:
    with opened(path) as file:
        return file.read(_HEAD).lstrip(_BLANK)[:1]


def find_records(structure: Any) -> list[Records]:
    """The lists of objects in a file, by the structure of its value: itself, or what its keys hold."""
    if isinstance(structure, list) and structure and isinstance(structure[0], dict):
        return [Records("", "", structure[0])]
    if not isinstance(structure, dict):
        return []
    return [
        Records(f"${step(key)}[*]", key, value[0])
        for key, value in structure.items()
        if isinstance(value, list) and value and isinstance(value[0], dict) and can_be_step(key)
    ]


def json_shapes(records: Records) -> tuple[Shape, ...]:
    """The columns of a list of objects; keys whose values are always empty objects are left out."""
    shapes = []
    for key, structure in records.structure.items():
        where = {"json_path": f"{records.path}{step(key)}"} if records.path else {"column": key}
        if shape := _shape(key, structure, where, ()):
            shapes.append(shape)
    return tuple(shapes)


def _shape(key: str, structure: Any, where: dict[str, str], inner: tuple[str, ...]) -> Shape | None:
    sizes = 0
    while isinstance(structure, list):
        structure = structure[0] if structure else "NULL"
        sizes += 1
    given: dict[str, Any] = {"name": key, "inner": inner, "sizes": (-1,) * sizes, **where}
    if isinstance(structure, dict):
        parts = tuple(
            shape
            for name, value in structure.items()
            if (shape := _shape(name, value, where, (*inner, name)))
        )
        return Shape(**given, parts=parts) if parts else None
    remarks = {
        "NULL": "no row has a value: taken as text",
        "JSON": "values of several types: taken as text",
    }
    return Shape(**given, data_types=(_TYPES[structure],), remark=remarks.get(structure, ""))
