"""The columns of Parquet and Arrow files, by their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.describing.shapes import NESTED, Shape

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = "application/x-parquet"
ARROW = "application/vnd.apache.arrow.file"
_MEDIA = {"Image": "sc:ImageObject", "Audio": "sc:AudioObject", "Video": "sc:VideoObject"}


def read_schema(encoding: str, path: Path) -> pa.Schema:
    """The schema of a Parquet or Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if encoding == PARQUET:
        return pq.read_schema(path)
    with pa.memory_map(str(path)) as file:
        try:
            return pa.ipc.open_file(file).schema
        except pa.ArrowInvalid:
            file.seek(0)
            return pa.ipc.open_stream(file).schema


def arrow_shapes(schema: pa.Schema) -> tuple[tuple[Shape, ...], list[str]]:
    """The columns of an Arrow schema.

    Raw bytes have a data type only where the `datasets` library wrote one into the schema.

    Returns:
        The columns, and a sentence about each part that no data type can describe.
    """
    reader = _Reader(_features(schema))
    shapes = [reader.read(field, (), reader.features.get(field.name)) for field in schema]
    return tuple(shape for shape in shapes if shape is not None), reader.remarks


class _Reader:
    """Reads one schema; what it could not describe gathers in `remarks`."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        self.features = features
        self.remarks: list[str] = []

    def read(
        self, field: pa.Field, inner: tuple[str, ...], feature: Any, *, listed: bool = False
    ) -> Shape | None:
        """One column, or one member (whose path ends `inner`) of a column; `listed`: of one in a list."""
        import pyarrow as pa

        column, *rest = (*inner, field.name)
        if not field.name:
            self.remarks.append(
                f"a column without a name ({field.type}) cannot be described: left out"
            )
            return None
        kind, sizes = field.type, []
        while (size := _size(kind)) is not None:
            sizes.append(size)
            kind = kind.value_type
            feature = _element(feature)
        given: dict[str, Any] = {
            "name": field.name,
            "column": column,
            "inner": tuple(rest),
            "sizes": tuple(sizes),
        }
        declared = feature.get("_type") if isinstance(feature, dict) else None
        if pa.types.is_struct(kind):
            names = {part.name for part in kind}
            media = _MEDIA.get(declared or "")
            if names == {"bytes", "path"} and media:
                return Shape(**given, data_types=(media,), content="bytes")
            if sizes and len(sizes) + listed > 1:
                return Shape(**given, data_types=("sc:Text",), remark=NESTED)
            inside = listed or bool(sizes)
            read = (
                self.read(part, (column, *rest), _member(feature, part.name), listed=inside)
                for part in kind
            )
            parts = tuple(shape for shape in read if shape)
            return Shape(**given, parts=parts) if parts else None
        if _is_binary(kind):
            if found := _MEDIA.get(declared or ""):
                return Shape(**given, data_types=(found,))
        else:
            found, remark = _scalar(kind)
            if found:
                classes = feature.get("names") if declared == "ClassLabel" else None
                labels = tuple(map(str, classes)) if isinstance(classes, list) else ()
                return Shape(**given, data_types=(found,), classes=labels, remark=remark)
        self.remarks.append(
            f"the column {'.'.join((column, *rest))!r} ({field.type}) has no data type that can describe "
            "it: left out"
        )
        return None


def _size(kind: pa.DataType) -> int | None:
    """The size of a list type, -1 where it varies; None for other types."""
    from pyarrow import types

    if types.is_fixed_size_list(kind):
        return int(kind.list_size)
    tests = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    return -1 if any(test(kind) for test in tests) else None


def _is_binary(kind: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_fixed_size_binary(kind):
        return True
    tests = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(test(kind) for test in tests)


def _scalar(kind: pa.DataType) -> tuple[str, str]:
    """The data type of an Arrow type, and what a reader should know; "" where none can hold it."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return _scalar(kind.value_type)
    if types.is_integer(kind):
        return f"cr:{'U' if types.is_unsigned_integer(kind) else ''}Int{kind.bit_width}", ""
    if types.is_floating(kind):
        return f"cr:Float{kind.bit_width}", ""
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "sc:Text", ""
    if types.is_boolean(kind):
        return "sc:Boolean", ""
    if types.is_date(kind):
        return "sc:Date", ""
    if types.is_time(kind):
        return "sc:Time", ""
    if types.is_timestamp(kind):
        return "sc:DateTime", ""
    if types.is_decimal(kind):
        if kind.scale == 0 and kind.precision <= 18:
            return "sc:Integer", ""
        return "sc:Float", f"{kind} is read as binary floating point"
    if types.is_null(kind):
        return "sc:Text", "no row has a value: taken as text"
    return "", ""


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    """What the `datasets` library wrote about the columns into the schema."""
    try:
        written = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = written["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _element(feature: Any) -> Any:
    """The feature of a list's elements: written as ``[x]`` or ``{"feature": x}``."""
    if isinstance(feature, list) and feature:
        return feature[0]
    return feature.get("feature") if isinstance(feature, dict) else None


def _member(feature: Any, name: str) -> Any:
    return feature.get(name) if isinstance(feature, dict) else None
