"""The columns of a source: one type for each, agreed over all images before the first is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.data.records.format.layout import RESERVED
from holdfast.data.records.sources.example import Options
from holdfast.errors import InputError

LABEL = "label"
JSON_TEXT = {b"encoding": b"json"}
"""Field metadata of a column whose texts are JSON: values that had parts of their own."""
MOST_CLASSES = 1 << 16
"""A label with more different texts than this stays text."""

_EXACT = 1 << 53  # whole numbers up to here are exact as float64
_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Kind:
    """The type of a column, or of one value."""

    type: pa.DataType
    json: bool = False

    def __str__(self) -> str:
        if self.json:
            return "values with parts (JSON)"
        if pa.types.is_list(self.type):
            return f"lists of {Kind(self.type.value_type)}"
        return _WORDS.get(self.type, str(self.type))


NULL = Kind(pa.null())
INT = Kind(pa.int64())
FLOAT = Kind(pa.float64())
TEXT = Kind(pa.string())
BYTES = Kind(pa.binary())
JSON = Kind(pa.string(), json=True)
_WORDS = {
    pa.null(): "no value",
    pa.bool_(): "true or false",
    pa.int64(): "whole numbers",
    pa.float64(): "numbers",
    pa.string(): "text",
    pa.binary(): "bytes",
}


def kind_of(value: object) -> Kind:
    """The kind of one value as JSON gives it; dictionaries and lists are JSON."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return Kind(pa.bool_())
    if isinstance(value, int):
        return INT
    if isinstance(value, float):
        return FLOAT
    if isinstance(value, str):
        return TEXT
    if isinstance(value, bytes):
        return BYTES
    return JSON


def joined(one: Kind, two: Kind) -> Kind | None:
    """The kind that holds values of both, None if there is none."""
    if one == two or two == NULL:
        return one
    if one == NULL:
        return two
    if {one, two} == {INT, FLOAT}:
        return FLOAT
    return None


class Columns:
    """Gathers the kinds of all columns, then turns each row into values of the agreed types.

    Args:
        options: which columns to drop, and which becomes the label.
        source: the source, for messages.
    """

    def __init__(self, options: Options, source: Path) -> None:
        self._options = options
        self._source = source
        self._kinds: dict[str, Kind] = {}
        self._first: dict[str, tuple[Path, str]] = {}  # where a column's kind was last settled
        self._wide: dict[str, int] = {}  # a whole number that float64 does not hold
        self._label_values: set[str] | None = set()
        self._label_fits = True
        self._classes: dict[str, int] | None = None
        self._schema: pa.Schema | None = None

    def renamed(self, row: Mapping[str, object]) -> dict[str, object]:
        """A row under the names that the columns will have, without those that are dropped."""
        label = self._options.label
        named = {}
        for name, value in row.items():
            if name in self._options.drop:
                continue
            if label is not None and label != LABEL:
                if name == label:
                    name = LABEL
                elif name == LABEL:
                    continue  # replaced by the one that was named
            named[name] = value
        return named

    def take_id(self, row: dict[str, object], path: Path, place: str) -> str | None:
        """Remove the id from a row: the column that the user named, else one called `id`.

        Returns:
            None if the row has none.
        """
        name = self._options.id or "id"
        if name not in row or name in self._options.drop:
            return None
        value = row.pop(name)
        text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        if not text or "\0" in text or not is_unicode(text):
            raise InputError(
                "the id of an image is neither a text nor an integer",
                code="invalid-value",
                path=path,
                place=place,
                found=repr(value)[:80],
                remedy=f"name another column with id=, or leave it out with drop=[{name!r}]",
            )
        return text

    def see(self, row: Mapping[str, object], path: Path, place: str) -> None:
        """Take one image's values into account.

        Args:
            row: name -> value, without the id.
            path: the file that they are from.
            place: where in it.

        Raises:
            InputError: if a value does not agree with those before.
        """
        for name, value in self.renamed(row).items():
            self.declare(name, kind_of(value), path, place)
            self.check(name, value, path, place)

    def check(self, name: str, value: object, path: Path, place: str) -> None:
        """Take one value of a column that was declared into account.

        Raises:
            InputError: if no column can hold it.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            self._see_int(name, value, path, place)
        elif isinstance(value, str):
            self._see_text(name, value, path, place)

    def declare(self, name: str, kind: Kind, path: Path, place: str) -> None:
        """Take into account that a column has values of a kind.

        Raises:
            InputError: if that does not agree with what was seen before.
        """
        if name not in self._kinds:
            if name.startswith(RESERVED) or not name:
                raise InputError(
                    f"a column must not be called {name!r}",
                    code="conflict",
                    path=path,
                    place=place,
                    expected=f"any name that does not begin with {RESERVED!r}",
                    remedy=f"rename it, or leave it out with drop=[{name!r}]",
                )
            self._kinds[name] = NULL
        before = self._kinds[name]
        both = joined(before, kind)
        if both is None or (both == FLOAT and name in self._wide):
            raise self._conflict(name, kind, path, place)
        if both != before:
            self._kinds[name] = both
            self._first[name] = path, place

    def _conflict(self, name: str, kind: Kind, path: Path, place: str) -> InputError:
        first_path, first_place = self._first[name]
        wide = self._wide.get(name)
        before = f"{self._kinds[name]}" + (f" such as {wide}" if wide is not None else "")
        return InputError(
            f"the values of column {name!r} are not of one type",
            code="conflict",
            path=path,
            place=place,
            found=str(kind),
            expected=f"{before}, as in {first_path.name}, {first_place}",
            remedy=f"make them of one type, or leave the column out with drop=[{name!r}]",
        )

    def _see_int(self, name: str, value: int, path: Path, place: str) -> None:
        if value not in _INT64 and not pa.types.is_unsigned_integer(self._kinds[name].type):
            raise InputError(
                f"a whole number of column {name!r} does not fit into 64 bits",
                code="out-of-range",
                path=path,
                place=place,
                found=str(value)[:60],
                remedy=f"write it as text, or leave the column out with drop=[{name!r}]",
            )
        if abs(value) > _EXACT:
            self._wide.setdefault(name, value)
            if self._kinds[name] == FLOAT:
                raise self._conflict(name, INT, path, place)
        if name == LABEL and value not in _INT32:
            self._label_fits = False

    def _see_text(self, name: str, value: str, path: Path, place: str) -> None:
        if not is_unicode(value):
            raise InputError(
                f"a text of column {name!r} is not valid Unicode",
                code="invalid-value",
                path=path,
                place=place,
                found=repr(value[:60]),
                remedy=f"correct it, or leave the column out with drop=[{name!r}]",
            )
        if name == LABEL and self._label_values is not None:
            self._label_values.add(value)
            if len(self._label_values) > MOST_CLASSES:
                self._label_values = None

    def leave_out(self, name: str) -> None:
        """Forget a column that was declared."""
        self._kinds.pop(name, None)

    def settle(self) -> pa.Schema:
        """The schema of what was seen: columns in the order of their names, the label first."""
        if self._options.label is not None and LABEL not in self._kinds:
            raise InputError(
                f"no image has the column {self._options.label!r} that shall become the label",
                code="unknown-name",
                path=self._source,
                found=", ".join(sorted(self._kinds)) or "no column at all",
                remedy="name one of these with label=",
            )
        names = sorted(self._kinds, key=lambda name: (name != LABEL, name))
        self._schema = pa.schema([self._field(name) for name in names])
        return self._schema

    def _field(self, name: str) -> pa.Field:
        kind = self._kinds[name]
        if name == LABEL:
            if kind == TEXT and self._label_values is not None:
                classes = sorted(self._label_values)
                self._classes = {text: number for number, text in enumerate(classes)}
                return named_label(classes)
            whole = pa.types.is_integer(kind.type) or kind.type == pa.bool_()
            if whole and self._label_fits:
                return pa.field(LABEL, pa.int32())
        if kind == NULL:
            return pa.field(
                name, pa.string()
            )  # a column of nulls, and a type that every reader knows
        return pa.field(name, kind.type, metadata=JSON_TEXT if kind.json else None)

    def values(self, row: Mapping[str, object]) -> dict[str, object]:
        """A value of the agreed type for every column, None where the row has none."""
        if self._schema is None:
            raise RuntimeError("the columns are not settled yet")
        named = self.renamed(row)
        return {field.name: self._value(named.get(field.name), field) for field in self._schema}

    def _value(self, value: object, field: pa.Field) -> object:
        if value is None:
            return None
        if field.name == LABEL and self._classes is not None:
            return self._class(str(value))
        if self._kinds[field.name].json:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if pa.types.is_list(field.type):
            assert isinstance(value, list)
            return [_scalar(one, field.type.value_type) for one in value]
        return _scalar(value, field.type)

    def _class(self, name: str) -> int:
        assert self._classes is not None
        if name not in self._classes:
            raise InputError(
                "a label that was not there when the source was listed",
                code="source-changed",
                path=self._source,
                found=repr(name)[:80],
                remedy="leave the source as it is while it is read, then start again",
            )
        return self._classes[name]


def _scalar(value: object, type_: pa.DataType) -> object:
    if pa.types.is_float64(type_) and isinstance(value, int):
        return float(value)
    if pa.types.is_integer(type_) and isinstance(value, bool):
        return int(value)
    return value


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values, however they are stored."""
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return type_


def is_unicode(text: str) -> bool:
    """Whether a text has a UTF-8 form: names of files and escapes in JSON may have none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def named_label(names: list[str]) -> pa.Field:
    """The field of a label whose classes have names: class i is ``names[i]``."""
    metadata = {b"names": json.dumps(names, ensure_ascii=False).encode()}
    return pa.field(LABEL, pa.int32(), metadata=metadata)
