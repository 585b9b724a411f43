"""Records as Hugging Face `datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.data.croissant.document.model import Field
from holdfast.errors import MissingExtraError

try:
    import datasets
    from datasets.table import InMemoryTable, cast_table_to_features
except ImportError as error:
    raise MissingExtraError("datasets", "hf") from error

if TYPE_CHECKING:
    from holdfast.data.croissant.loading.lazy_table import LazyTable


def hf_dataset(table: LazyTable, fields: Sequence[Field | None]) -> datasets.Dataset:
    """The whole table as a `datasets.Dataset`, with features for images and audio."""
    whole = table.to_arrow()
    features = hf_features(whole.schema, fields)
    made = cast_table_to_features(whole, features)
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
