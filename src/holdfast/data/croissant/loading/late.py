"""Bytes of files, put into batches after the query: in order, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.planning.assembling import LATE
from holdfast.data.croissant.scanning.encodings import decoded

BATCH_BYTES = 64 << 20
_UNKNOWN = 1 << 20  # what a file of unknown size is reckoned with

Wanted = dict[tuple[int, int], Member]
"""Files to read: number of the late column and place among its members -> the file."""


def settled(actual: pa.DataType, declared: pa.DataType | None = None) -> pa.DataType:
    """The type that a column has once its bytes are read, and that it is declared as where that is safe."""
    if is_late(actual):
        return pa.string() if _kind(actual) == "VARCHAR" else pa.binary()
    alike = declared is not None and declared.num_fields == actual.num_fields
    inner = [
        settled(actual.field(i).type, declared.field(i).type if alike and declared else None)
        for i in range(actual.num_fields)
    ]
    if pa.types.is_struct(actual):
        return pa.struct([pa.field(actual.field(i).name, kind) for i, kind in enumerate(inner)])
    if pa.types.is_fixed_size_list(actual):
        return pa.list_(inner[0], actual.list_size)
    if pa.types.is_list(actual):
        return pa.list_(inner[0])
    if declared == pa.float16() and pa.types.is_floating(actual):
        return declared
    return actual


def is_late(kind: pa.DataType) -> bool:
    """Whether a column stands for bytes still to be read."""
    return bool(pa.types.is_struct(kind) and kind.num_fields == 1 and _name(kind).startswith(LATE))


def has_late(kind: pa.DataType) -> bool:
    """Whether a column has such values anywhere in it."""
    return is_late(kind) or any(has_late(kind.field(i).type) for i in range(kind.num_fields))


def filled(
    batch: pa.RecordBatch, late: Sequence[Sequence[Member]], resources: Resources
) -> Iterator[pa.RecordBatch]:
    """A batch with its bytes, in as many parts as keep each near `BATCH_BYTES`.

    Args:
        batch: as the query gives it.
        late: for each late column's number, the files among which it chooses.
        resources: reads them.

    Raises:
        InputError: a file that cannot be read, or is not text where text is declared.
    """
    if not any(has_late(column.type) for column in batch.columns):
        yield batch
        return
    start, rows = 0, min(batch.num_rows, 1024)
    while start < batch.num_rows:
        part = batch.slice(start, rows)
        wanted: Wanted = {}
        for column in part.columns:
            _collect(column, late, wanted)
        size = sum(_UNKNOWN if one.size is None else one.size for one in wanted.values())
        if size > BATCH_BYTES and part.num_rows > 1:
            rows = max(1, part.num_rows // 2)
            continue
        data = dict(zip(wanted, resources.read(list(wanted.values())), strict=True))
        columns = [_replaced(column, wanted, data, resources) for column in part.columns]
        yield pa.RecordBatch.from_arrays(columns, names=part.schema.names)
        start += part.num_rows
        rows = rows if size > BATCH_BYTES // 4 else min(rows * 2, 65536)


def _name(kind: pa.DataType) -> str:
    return str(kind.field(0).name)


def _kind(kind: pa.DataType) -> str:
    return _name(kind).rpartition(" ")[2]


def _number(kind: pa.DataType) -> int:
    return int(_name(kind).removeprefix(LATE).partition(" ")[0])


def _collect(column: pa.Array, late: Sequence[Sequence[Member]], wanted: Wanted) -> None:
    if is_late(column.type):
        number = _number(column.type)
        for place in pc.struct_field(column, [0]).to_pylist():
            if place is not None:
                wanted.setdefault((number, place), late[number][place])
    elif not has_late(column.type):
        return
    elif pa.types.is_struct(column.type):
        for i in range(column.type.num_fields):
            _collect(pc.struct_field(column, [i]), late, wanted)
    else:
        _collect(pc.list_flatten(column), late, wanted)


def _replaced(
    column: pa.Array, wanted: Wanted, data: dict[tuple[int, int], bytes], resources: Resources
) -> pa.Array:
    if is_late(column.type):
        number, text = _number(column.type), _kind(column.type) == "VARCHAR"
        places = [(number, place) for place in pc.struct_field(column, [0]).to_pylist()]
        if text:
            texts = {
                at: decoded(data[at], resources.encoding(wanted[at].resource), wanted[at])
                for at in dict.fromkeys(places)
                if at in data
            }
            return pa.array(map(texts.get, places), pa.binary()).cast(pa.string())
        return pa.array([data.get(at) for at in places], pa.binary())
    if not has_late(column.type):
        return column
    missing = pc.is_null(column)
    if pa.types.is_struct(column.type):
        parts = [
            _replaced(pc.struct_field(column, [i]), wanted, data, resources)
            for i in range(column.type.num_fields)
        ]
        names = [column.type.field(i).name for i in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(parts, names=names, mask=missing)
    values = _replaced(pc.list_flatten(column), wanted, data, resources)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(pc.cast(lengths, pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, values, mask=missing)
