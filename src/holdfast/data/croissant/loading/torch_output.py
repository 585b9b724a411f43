"""Records as batches of tensors."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.croissant.loading.lazy_table import LazyTable, refuse_batch
from holdfast.errors import InputError, MissingExtraError

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error


class TorchBatches(IterableDataset):  # type: ignore[misc]
    """Batches of records (for a DataLoader with ``batch_size=None``): column name -> tensor or list.

    Numbers and booleans are tensors of [batch], fixed-size arrays of [batch, *sizes]; everything else is a
    list: text, bytes (decoded, if asked for), lists of any length, structs. Missing floats are NaN.

    Every process of a distributed run, and every worker of its DataLoader, gets separate batches: of n
    readers, reader i gets the batches i, i + n, ...; bytes of files are read only for those.
    """

    def __init__(self, table: LazyTable, batch_size: int, decode: bool) -> None:
        refuse_batch(batch_size)
        self.table = table
        self.batch_size = batch_size
        self.decode = decode

    def __iter__(self) -> Iterator[dict[str, Any]]:
        index, count = _share()
        table = self.table if count == 1 else self.table.in_order()
        if get_worker_info() is not None:
            table = copy.deepcopy(
                table
            )  # a forked worker has the parent's locks: it opens the dataset anew
        change = None
        if self.decode:
            from holdfast.data.croissant.loading.decoding import decoder

            change = decoder(table.column_fields())
        for batch in table.shared(self.batch_size, index, count):
            columns = {
                name: _tensor(name, column)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            if change is not None:
                columns = _decoded(columns, change)
            yield columns


def _share() -> tuple[int, int]:
    """Index of this reader, and number of readers."""
    index, count = 0, 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        index, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
    worker = get_worker_info()
    if worker is not None:
        index, count = index * worker.num_workers + worker.id, count * worker.num_workers
    return index, count


def _tensor(name: str, column: pa.Array) -> Any:
    kind, sizes, values = column.type, [len(column)], column
    while pa.types.is_fixed_size_list(kind):
        sizes.append(kind.list_size)
        if values.null_count:
            return column.to_pylist()
        values, kind = values.flatten(), kind.value_type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not number:
        return column.to_pylist()
    if values.null_count and not pa.types.is_floating(kind):
        raise InputError(
            f"the column {name!r} has missing values, which a tensor of {kind} cannot hold",
            code="invalid-value",
            remedy=f"leave them out: filters='\"{name}\" IS NOT NULL'; or declare the field as sc:Float",
        )
    array = values.to_numpy(zero_copy_only=False)
    return torch.from_numpy(np.array(array).reshape(sizes))


def _decoded(columns: dict[str, Any], change: Any) -> dict[str, Any]:
    lists = [name for name, column in columns.items() if isinstance(column, list)]
    rows = len(next(iter(columns.values()))) if columns else 0
    for row in range(rows):
        values = [columns[name][row] for name in columns]
        for name, value in zip(columns, change(values), strict=True):
            if name in lists:
                columns[name][row] = value
    return columns
