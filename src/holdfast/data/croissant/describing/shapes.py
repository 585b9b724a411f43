"""What a table holds: its columns, and the columns inside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from holdfast.data.croissant.describing.groups import Group

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
NESTED = "structures in lists of lists, or many levels deep: taken as text, the JSON of each"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One column, or one part of a structured one.

    Attributes:
        name: its header, or its key.
        data_types: canonical; empty where it has parts.
        column: the header of the column that it is taken from; "" where `json_path` takes it.
        json_path: a JSONPath over the whole file; "" where `column` takes it.
        inner: keys from the column down to this part; None for every element of a list.
        content: the key of a structure that holds the bytes of a file beside its name.
        format: how text is read as a date; "" where it is written as ISO 8601 has it.
        sizes: of an array's dimensions, -1 where they vary; empty for single values.
        parts: the members of a structure, or of each structure in an array.
        classes: names of a label's classes: the value is a place in them.
        remark: what a reader should know about how its type was found.
    """

    name: str
    data_types: tuple[str, ...] = ()
    column: str = ""
    json_path: str = ""
    inner: tuple[str | None, ...] = ()
    content: str = ""
    format: str = ""
    sizes: tuple[int, ...] = ()
    parts: tuple[Shape, ...] = ()
    classes: tuple[str, ...] = ()
    remark: str = ""

    @property
    def transform_path(self) -> str:
        """The JSONPath from the column's value to this part; "" where it is the whole value."""
        return _path_of((*self.inner, *([self.content] if self.content else [])))

    @property
    def is_number(self) -> bool:
        """Whether its values are whole numbers."""
        return self.data_types[0] == "sc:Integer" or "Int" in self.data_types[0]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Files of one set of columns, as they were read.

    Attributes:
        group: the files, and what their names tell.
        name: a name for its records.
        shapes: the columns, in the files' order.
        rows: how many were looked at.
        relation: its rows: SQL that may stand after FROM.
        sql: name of each column of single numbers or texts -> an expression over `relation`, NULL where a
            row has no value.
        complete: every row was looked at.
        remarks: what could not be told.
    """

    group: Group
    name: str
    shapes: tuple[Shape, ...]
    rows: int
    relation: str
    sql: Mapping[str, str]
    complete: bool = True
    remarks: tuple[str, ...] = ()

    @cached_property
    def comparable(self) -> dict[str, str]:
        """The columns whose values can be keys, each with its kind: "number" or "text"."""
        found = {}
        for shape in self.shapes:
            if shape.name in self.sql and not shape.format:
                if shape.is_number:
                    found[shape.name] = "number"
                elif shape.data_types[0] in ("sc:Text", "sc:URL"):
                    found[shape.name] = "text"
        return found


def _path_of(keys: tuple[str | None, ...]) -> str:
    """Keys as a JSONPath below a value: ``a[*].b``, or ``$.a['b c']`` where a key needs quoting."""
    path = "".join("[*]" if key is None else step(key) for key in keys)
    plain = all(key is None or _PLAIN.fullmatch(key) for key in keys)
    return path.removeprefix(".") if plain else f"${path}"


def step(key: str) -> str:
    """One key as a step of a JSONPath."""
    if _PLAIN.fullmatch(key):
        return f".{key}"
    return f'["{key}"]' if "'" in key else f"['{key}']"


def can_be_step(key: str) -> bool:
    """Whether a JSONPath can name a key: no path has both quotation marks, or a backslash."""
    return "\\" not in key and not {"'", '"'} <= set(key)
