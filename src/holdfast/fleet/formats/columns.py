"""Columns turned into tables: one conversion per distinct string, row keys, missing columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.schema import Row

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Bits: TypeAlias = npt.NDArray[np.uint64]


def whole(values: Column | npt.NDArray[Any] | Sequence[Any]) -> pa.Array:
    """The column as one array (no chunks); values that are none yet become one."""
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def flat(values: Column) -> pa.Array:
    """The column as one array of plain strings or values (no chunks, no dictionary)."""
    array = whole(values)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def coded(values: Column) -> pa.Array:
    """The column as one array of codes into its distinct values; lists have theirs coded."""
    array = whole(values)
    if pa.types.is_list(array.type):
        # A slice of a list keeps the values of all.
        items = coded(array.flatten())
        offsets = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array), 0))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), offsets.cast(pa.int32())])
        return pa.ListArray.from_arrays(offsets, items, mask=pc.is_null(array))
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def by_distinct(values: Column, convert: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Apply `convert` once to each distinct string; null stays null.

    Args:
        values: strings.
        convert: what one string becomes; None for null.
        kind: the Arrow type of the result; the strings in lists are coded.
    """
    texts = coded(values)
    found = values_of([convert(text) for text in texts.dictionary.to_pylist()], kind)
    found = coded(found) if pa.types.is_list(kind) else found
    return pc.take(found, texts.indices, boundscheck=False)


def recoded(values: Column, convert: Callable[[str], str | None]) -> pa.DictionaryArray:
    """As `by_distinct` for texts that repeat: codes into what the distinct ones become."""
    texts = coded(values)
    found = coded(by_distinct(texts.dictionary, convert, pa.string()))
    return pa.DictionaryArray.from_arrays(found.indices.take(texts.indices), found.dictionary)


def values_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of plain values, whatever a damaged source put among them.

    Whole numbers beyond the type become its limits, which `clean` rejects; what is not text where text
    belongs is spelled out.
    """
    if pa.types.is_integer(kind):
        low, high = limits(kind)
        values = [None if value is None else int(max(low, min(high, value))) for value in values]
    elif pa.types.is_string(kind):
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, UnicodeEncodeError):  # numbers, lists; lone surrogates of JSON
            values = [
                None if v is None else str(v).encode(errors="replace").decode() for v in values
            ]
    return pa.array(values, kind)


def rows_table(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    """A table in `schema` from rows of plain values; columns that no row has are null or empty."""
    there = [field for field in schema if any(field.name in row for row in rows)]
    columns = {
        field.name: values_of([row.get(field.name) for row in rows], field.type) for field in there
    }
    return table_of(schema, columns)


def replaced(table: pa.Table, name: str, values: Column) -> pa.Table:
    """The table with other values in one of its columns; coded, if they were."""
    place = table.schema.get_field_index(name)
    field = table.schema.field(place)
    values = coded(values) if pa.types.is_dictionary(field.type) else values
    return table.set_column(place, field, values)


def with_cluster(table: pa.Table, cluster: str) -> pa.Table:
    """The rows with `cluster` where they state none."""
    if not cluster or "cluster" not in table.column_names:
        return table
    stated = flat(table["cluster"])
    filled = pc.if_else(pc.equal(pc.fill_null(stated, ""), ""), pa.scalar(cluster), stated)
    return replaced(table, "cluster", filled)


def limits(kind: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    info = np.iinfo(kind.to_pandas_dtype())
    return int(info.min), int(info.max)


def row_key(*columns: Column) -> pa.Array:
    """A 64-bit hash of each row over the given columns: equal rows, equal keys, on every machine.

    Args:
        columns: strings, integers, floats or booleans of one length; null differs from every value.
    """
    length = len(columns[0])
    state = np.full(length, 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        with np.errstate(over="ignore"):
            state = _mix(state * np.uint64(0xD1342543DE82EF95) + _bits(whole(column)))
    return pa.array(state.view(np.int64))


def _bits(array: pa.Array) -> Bits:
    """64 bits for each value: equal for equal values."""
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        bits = by_distinct(array, text_key, pa.int64())
    elif pa.types.is_floating(array.type):
        bits = pa.array(flat(pc.fill_null(array, 0.0)).cast(pa.float64()).to_numpy().view(np.int64))
    else:
        bits = array.cast(pa.int64())
    absent = pc.is_null(array).to_numpy(zero_copy_only=False)
    values = flat(pc.fill_null(bits, 0)).to_numpy().view(np.uint64).copy()
    values = _mix(values)
    values[absent] = np.uint64(0x5851F42D4C957F2D)
    return values


def text_key(text: str) -> int:
    """A 64-bit hash of one string."""
    return int.from_bytes(
        hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True
    )


def _mix(
    values: Bits,
) -> Bits:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def table_of(
    schema: pa.Schema,
    columns: Mapping[str, Column | npt.NDArray[Any] | Sequence[Any] | int],
    *,
    codes: bool = False,
) -> pa.Table:
    """A table in `schema` from the columns that a format has; those it lacks are null or empty.

    Args:
        schema: of the table.
        columns: by name: columns of one length, what `pa.array` makes one of, or the text or number that
            all rows have.
        codes: strings other than identities are coded.
    """
    several = {k: whole(each) for k, each in columns.items() if not isinstance(each, str | int)}
    length = max(map(len, several.values()), default=0)
    every = {
        k: pa.repeat(each, length) for k, each in columns.items() if k not in several
    } | several
    arrays = [
        _fitted(every[field.name], field.type, codes)
        if field.name in every
        else _absent(field, length)
        for field in schema
    ]
    table = pa.Table.from_arrays(arrays, names=schema.names)
    return with_codes(table) if codes else table


def with_codes(table: pa.Table) -> pa.Table:
    """The table with its texts coded, save job ids: most of those are distinct."""
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        texts = kind.value_type if pa.types.is_list(kind) else kind
        if pa.types.is_string(texts) and name != "job_id":
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, coded(table[name]))
    return table


def _fitted(array: pa.Array, kind: pa.DataType, codes: bool) -> pa.Array:
    items = array.type.value_type if pa.types.is_list(array.type) else array.type
    if codes and pa.types.is_dictionary(items):
        return array
    if pa.types.is_integer(kind) and pa.types.is_int64(array.type) and kind != array.type:
        low, high = (pa.scalar(limit, array.type) for limit in limits(kind))
        array = pc.min_element_wise(
            pc.max_element_wise(array, low, skip_nulls=False), high, skip_nulls=False
        )
    return array.cast(kind)


def _absent(field: pa.Field, length: int) -> pa.Array:
    if pa.types.is_list(field.type):
        offsets = pa.array(np.zeros(length + 1, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array([], field.type.value_type))
    if pa.types.is_boolean(field.type):
        return pa.array(np.zeros(length, bool))
    return pa.nulls(length, field.type)
