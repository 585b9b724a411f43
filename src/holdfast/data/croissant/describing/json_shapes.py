"""The columns of JSON: keys of the objects, by the structure that all of them together have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.data.croissant.describing.shapes import Shape, can_be_step, step

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
