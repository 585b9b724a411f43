"""Records as Hugging Face `datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.data.croissant.document.model import Field
from holdfast.errors import MissingExtraError

try:
    import datasets
    from datasets.table import InMemoryTable
except ImportError as error:
    raise MissingExtraError("datasets", "hf") from error

if TYPE_CHECKING:
    from holdfast.data.croissant.loading.lazy_table import LazyTable


def hf_dataset(table: LazyTable, fields: Sequence[Field | None]) -> datasets.Dataset:
    """The whole table as a `datasets.Dataset`, with features for images and audio."""
    whole = table.to_arrow()
    features = hf_features(whole.schema, fields)
    columns = [
        _stored(column, feature)
        for column, feature in zip(whole.columns, features.values(), strict=True)
    ]
    made = pa.Table.from_arrays(columns, schema=features.arrow_schema)
    return datasets.Dataset(InMemoryTable(made), info=datasets.DatasetInfo(features=features))


def hf_stream(table: LazyTable, fields: Sequence[Field | None]) -> datasets.IterableDataset:
    """The table as a `datasets.IterableDataset`, read anew in each pass."""

    def rows() -> Iterator[dict[str, Any]]:
        yield from table.rows()

    features = hf_features(table.schema, fields)
    return datasets.IterableDataset.from_generator(rows, features=features)


def hf_features(schema: pa.Schema, fields: Sequence[Field | None]) -> datasets.Features:
    """The features of a table: images and audio as such, wherever they stand; the rest as Arrow says."""
    return datasets.Features(
        {part.name: _feature(part.type, field) for part, field in zip(schema, fields, strict=True)}
    )


def _feature(kind: pa.DataType, field: Field | None) -> Any:
    if pa.types.is_list(kind):
        return datasets.List(_feature(kind.value_type, field))
    if pa.types.is_fixed_size_list(kind):
        return datasets.List(_feature(kind.value_type, field), length=kind.list_size)
    if pa.types.is_struct(kind):
        subs = {sub.key: sub for sub in field.sub_fields} if field is not None else {}
        return {
            kind.field(i).name: _feature(kind.field(i).type, subs.get(kind.field(i).name))
            for i in range(kind.num_fields)
        }
    types = field.data_types if field is not None else ()
    if pa.types.is_binary(kind) and "sc:ImageObject" in types:
        return datasets.Image()
    if pa.types.is_binary(kind) and "sc:AudioObject" in types:
        return datasets.Audio()
    return datasets.Value(
        str(datasets.Features.from_arrow_schema(pa.schema([("x", kind)]))["x"].dtype)
    )


def _stored(column: pa.ChunkedArray, feature: Any) -> pa.ChunkedArray:
    """A column as `datasets` stores it: an image is a struct of its bytes and no path."""
    storage = pa.schema([datasets.Features({"x": feature}).arrow_schema.field(0)]).types[0]
    if column.type == storage:
        return column
    return pa.chunked_array(
        [_as_storage(part, feature, storage) for part in column.chunks], storage
    )


def _as_storage(column: pa.Array, feature: Any, storage: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    if isinstance(feature, (datasets.Image, datasets.Audio)):
        paths = pa.nulls(len(column), pa.string())
        return pa.StructArray.from_arrays(
            [column.cast(pa.binary()), paths], names=["bytes", "path"], mask=pc.is_null(column)
        )
    if isinstance(feature, datasets.List) and pa.types.is_list(column.type):
        values = _as_storage(column.flatten(), feature.feature, storage.value_type)
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        return pa.ListArray.from_arrays(offsets, values, mask=pc.is_null(column))
    if isinstance(feature, dict):
        parts = [
            _as_storage(pc.struct_field(column, [i]), feature[name], storage.field(name).type)
            for i, name in enumerate(feature)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(storage), mask=pc.is_null(column))
    return column.cast(storage)
