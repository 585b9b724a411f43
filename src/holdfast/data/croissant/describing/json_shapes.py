"""The columns of JSON: keys of the objects, by the structure that all of them together have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from holdfast.data.croissant.describing.shapes import NESTED, Shape, can_be_step, step
from holdfast.data.croissant.describing.walking import opened
from holdfast.data.croissant.scanning.local_paths import paths_sql
from holdfast.errors import InputError

JSON = "application/json"
LINES = "application/jsonlines"
_DEPTH = 3  # keys that lead to a list of records
_HEAD = 1 << 22  # bytes in which a line of JSON should end
_WHOLE = "unstructured"
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
        path: its JSONPath, such as ``$.images[*]``; "" where each file (or line) is the list itself; ``$``
            where each of several files is one of the objects.
        name: the key that holds it; "" where it is the file itself.
        structure: key -> what `json_group_structure` of DuckDB says of its values.
    """

    path: str
    name: str
    structure: dict[str, Any]


def json_structure(encoding: str, paths: Sequence[Path]) -> Any:
    """The structure that all values of JSON files have together; lines and arrays are lists of values."""
    forms = {_form(encoding, path) for path in paths}
    if len(forms) > 1:
        raise InputError("some of these files hold an array, others an object", code="conflict")
    (form,) = forms
    ((found,),) = _ask(f"SELECT json_group_structure(json) FROM {_objects(form, paths)}")
    return _structure(form, found)


def _form(encoding: str, path: Path) -> str:
    """How DuckDB calls the way in which values stand in a file."""
    if encoding == LINES:
        return "newline_delimited"
    return "array" if _first_sign(path) == b"[" else _WHOLE


def _objects(form: str, paths: Sequence[Path], *more: str) -> str:
    """The values of JSON files as a relation with a column `json`."""
    most = max(16_777_216, *(path.stat().st_size + 1 for path in paths))
    options = (
        f"format = '{form}'",
        "hive_partitioning = false",
        f"maximum_object_size = {min(most, 2**32 - 1)}",
        *more,
    )
    return f"read_json_objects({paths_sql(paths)}, {', '.join(options)})"


def _ask(query: str) -> list[tuple[Any, ...]]:
    # A database that met values nested thousands deep answers no more: others need theirs.
    with duckdb.connect() as probe:
        probe.execute("SET threads = 1")  # several would put the keys in another order each time
        try:
            return probe.execute(query).fetchall()
        except (duckdb.FatalException, duckdb.InternalException):
            raise InputError("too deeply nested", code="unsupported") from None


def _structure(form: str, found: str | None) -> Any:
    structure = json.loads(found) if found else None
    return structure if form == _WHOLE else [structure]


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
    found = list(_lists(structure, "$", _DEPTH))
    return found or ([Records("$", "", structure)] if several and structure else [])


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
        if sizes and sizes + listed > 1:
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
