"""The types of fields in DuckDB and Arrow.

| data type | DuckDB | Arrow |
|---|---|---|
| sc:Text, sc:URL, cr:Label, enumerations, anything without an atomic type | VARCHAR | string |
| sc:Integer, cr:Int8 ... cr:UInt64 | BIGINT, TINYINT ... UBIGINT | int64, int8 ... uint64 |
| sc:Float, sc:Number, cr:Float64 | DOUBLE | double |
| cr:Float32, cr:Float16 | FLOAT, FLOAT | float, halffloat |
| sc:Boolean | BOOLEAN | bool |
| sc:Date; with a time of day in its format | DATE; TIMESTAMP | date32; timestamp[us] |
| sc:DateTime; with an offset or zone, in UTC | TIMESTAMP; TIMESTAMPTZ | timestamp[us]; timestamp[us, UTC] |
| sc:DateTime with nanoseconds, of Parquet, Arrow or a format | TIMESTAMP_NS | timestamp[ns] |
| sc:Time | TIME | time64[us] |
| sc:ImageObject, sc:AudioObject, sc:VideoObject | BLOB | binary |
| cr:BoundingBox | DOUBLE[4] | fixed_size_list<double>[4] |
| cr:SegmentationMask that is not an image: a polygon's points | DOUBLE[2][] | list of pairs |

Arrays: an unknown size is a list, a known one a fixed-size list, so that a batch becomes a tensor without a
copy; ``arrayShape`` "-1,3" is a list of fixed-size lists of 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.scanning.formats import date_format, is_date_type

if TYPE_CHECKING:
    import pyarrow as pa

_SCALARS = {
    "sc:Text": "VARCHAR",
    "sc:URL": "VARCHAR",
    "sc:Integer": "BIGINT",
    "sc:Float": "DOUBLE",
    "sc:Number": "DOUBLE",
    "sc:Boolean": "BOOLEAN",
    "sc:Date": "DATE",
    "sc:DateTime": "TIMESTAMP",
    "sc:Time": "TIME",
    "sc:ImageObject": "BLOB",
    "sc:AudioObject": "BLOB",
    "sc:VideoObject": "BLOB",
    "cr:Int8": "TINYINT",
    "cr:Int16": "SMALLINT",
    "cr:Int32": "INTEGER",
    "cr:Int64": "BIGINT",
    "cr:UInt8": "UTINYINT",
    "cr:UInt16": "USMALLINT",
    "cr:UInt32": "UINTEGER",
    "cr:UInt64": "UBIGINT",
    "cr:Float16": "FLOAT",
    "cr:Float32": "FLOAT",
    "cr:Float64": "DOUBLE",
}
_LARGEST_ARRAY = 100_000  # of DuckDB's fixed-size arrays


def data_type(field: Field) -> str | None:
    """The data type that decides how values are kept: the first of the field's that has values."""
    if "cr:BoundingBox" in field.data_types:
        return "cr:BoundingBox"
    known = [name for name in field.data_types if name in _SCALARS]
    if "cr:SegmentationMask" in field.data_types and "sc:ImageObject" not in known:
        return "cr:SegmentationMask"
    return known[0] if known else None


def shape(field: Field) -> tuple[int, ...]:
    """The sizes of a field's array, -1 for unknown; () for a single value.

    The four numbers of a bounding box are one value, and so are the points of a mask, also where
    ``arrayShape`` counts them.
    """
    if not field.is_list:
        return ()
    sizes = field.array_shape or (-1,)
    if data_type(field) == "cr:BoundingBox" and sizes[-1] == 4:
        return sizes[:-1]
    if data_type(field) == "cr:SegmentationMask" and sizes[-1] == 2:
        return sizes[:-2]
    return sizes


def value_format(field: Field) -> str | None:
    """How the values are written: what the source says, or the last transform that says it."""
    if field.source is None:
        return None
    said = [step.format for step in field.source.transforms if step.format]
    return field.source.format or (said[-1] if said else None)


def scalar_type(field: Field) -> str:
    """The DuckDB type of one value of a field."""
    kind = data_type(field)
    if kind == "cr:BoundingBox":
        return "DOUBLE[4]"
    if kind == "cr:SegmentationMask":
        return "DOUBLE[2][]"
    written = value_format(field)
    if written and is_date_type(kind):
        parsed = date_format(written, kind)
        if kind == "sc:DateTime" and parsed.zone:
            return "TIMESTAMP WITH TIME ZONE"
        if kind == "sc:Date" and parsed.time:
            return "TIMESTAMP WITH TIME ZONE" if parsed.zone else "TIMESTAMP"
        if kind == "sc:DateTime" and parsed.nanoseconds:
            return "TIMESTAMP_NS"
    if kind == "sc:DateTime" and not written and field.zoned:
        return "TIMESTAMP WITH TIME ZONE"
    return _SCALARS.get(kind or "", "VARCHAR")


def duckdb_type(field: Field) -> str:
    """The DuckDB type that a field declares.

    Raises:
        InputError: a date's format that no parser here knows.
    """
    return scalar_type(field) + "".join(
        f"[{size}]" if 0 < size <= _LARGEST_ARRAY else "[]" for size in reversed(shape(field))
    )


def arrow_type(field: Field) -> pa.DataType:
    """The Arrow type that a field declares.

    Raises:
        InputError: a date's format that no parser here knows.
    """
    import pyarrow as pa

    if data_type(field) == "cr:Float16":
        made = pa.float16()
        for size in reversed(shape(field)):
            made = pa.list_(made, size if 0 < size <= _LARGEST_ARRAY else -1)
        return made
    return arrow_of(duckdb_type(field))


def arrow_of(duckdb: str) -> pa.DataType:
    """The Arrow type of a DuckDB type that is a scalar, or arrays of one."""
    import pyarrow as pa

    if duckdb.endswith("]"):
        inner, _, size = duckdb[:-1].rpartition("[")
        return pa.list_(arrow_of(inner), int(size) if size else -1)
    return {
        "VARCHAR": pa.string(),
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "UTINYINT": pa.uint8(),
        "USMALLINT": pa.uint16(),
        "UINTEGER": pa.uint32(),
        "UBIGINT": pa.uint64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIME": pa.time64("us"),
        "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMP_NS": pa.timestamp("ns"),
        "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
        "BLOB": pa.binary(),
    }[duckdb]
