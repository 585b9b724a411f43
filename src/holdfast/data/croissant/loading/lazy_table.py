"""A table that is computed when somebody looks at it: what record sets and queries have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.loading.late import filled, has_late, settled
from holdfast.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import datasets
    import polars
    from torch.utils.data import IterableDataset

BATCH_ROWS = 65536


@dataclass
class Opened:
    """A query whose scans are open, on a separate connection.

    Attributes:
        connection: runs it.
        sql: the query.
        late: the files of each column of bytes.
        resources: reads them.
    """

    connection: duckdb.DuckDBPyConnection
    sql: str
    late: Sequence[Sequence[Member]]
    resources: Resources


class LazyTable(ABC):
    """A table that is read on demand, any number of times.

    Each read is a query on a separate connection, so several threads may read at once.
    """

    @abstractmethod
    def _open(self) -> AbstractContextManager[Opened]:
        """The query, with its scans opened; faults of the data inside the block become `InputError`."""

    @abstractmethod
    def _declared(self) -> list[pa.Field] | None:
        """The columns as the description declares them, where it does."""

    @abstractmethod
    def _settled(self) -> bool:
        """Whether what is declared is what comes, so that no file needs to be opened for the schema."""

    @abstractmethod
    def column_fields(self) -> list[Field | None]:
        """The field that each column is, where it is one."""

    @abstractmethod
    def in_order(self) -> LazyTable:
        """The same table, in an order that every reader sees.

        Raises:
            InputError: there is none.
        """

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema; known without opening a file where the declared types suffice.

        Raises:
            InputError: a file that is needed to tell, and cannot be read.
        """
        declared = self._declared()
        if declared is not None and self._settled():
            return pa.schema(declared)
        with self._open() as opened:
            table = opened.connection.sql(f"FROM (\n{opened.sql}\n) LIMIT 0").to_arrow_table()
        return self._conforming(table.schema)

    def _conforming(self, schema: pa.Schema) -> pa.Schema:
        """The schema of what the query gives, once bytes are read, as declared where that loses nothing."""
        declared = self._declared() or [pa.field(part.name, part.type) for part in schema]
        return pa.schema(
            [
                pa.field(known.name, settled(part.type, known.type))
                for part, known in zip(schema, declared, strict=True)
            ]
        )

    @abstractmethod
    def head(self, n: int = 5) -> LazyTable:
        """The first rows."""

    def duckdb_types(self) -> list[str]:
        """The columns' types in DuckDB."""
        with self._open() as opened:
            return [str(kind) for kind in opened.connection.sql(opened.sql).types]

    @property
    def columns(self) -> list[str]:
        """The columns' names: the keys of a record."""
        return list(self.schema.names)

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The table batch by batch, in memory that does not grow with it.

        Args:
            rows: at most so many a batch; fewer where files are read, about 64 MiB of them a batch.

        Raises:
            InputError: a file that cannot be read, or a value that does not fit its declared type.
        """
        refuse_batch(rows)
        with self._open() as opened:
            reader = opened.connection.sql(opened.sql).to_arrow_reader(rows)
            schema = self._conforming(reader.schema)
            try:
                for batch in batches_of(reader):
                    for part in filled(batch, opened.late, opened.resources):
                        if part.num_rows:
                            yield _as(part, schema)
            finally:
                del reader  # a result that is left open would keep the connection busy

    def shared(self, rows: int, index: int, count: int) -> Iterator[pa.RecordBatch]:
        """The batches of one of several readers: those whose number is `index` modulo `count`.

        Args:
            rows: of every batch but the last.
            index: which reader this is, from 0.
            count: how many readers there are; they must see the same order.

        Raises:
            InputError: as `batches`; a query, whose order may change from reader to reader.
        """
        refuse_batch(rows)
        with self._open() as opened:
            reader = opened.connection.sql(opened.sql).to_arrow_reader(BATCH_ROWS)
            schema = self._conforming(reader.schema)
            try:
                for number, batch in enumerate(_even(reader, rows)):
                    if number % count == index:
                        parts = list(filled(batch, opened.late, opened.resources))
                        whole = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
                        yield _as(whole, schema)
            finally:
                del reader

    def to_arrow(self) -> pa.Table:
        """The whole table.

        Raises:
            InputError: as `batches`.
        """
        with self._open() as opened:
            table = opened.connection.sql(
                opened.sql
            ).to_arrow_table()  # in parallel, unlike batches
            schema = self._conforming(table.schema)
            if not any(has_late(kind) for kind in table.schema.types):
                columns = [_cast(*each) for each in zip(table.columns, schema.types, strict=True)]
                return pa.Table.from_arrays(columns, schema=schema)
            parts = [
                _as(part, schema)
                for batch in table.to_batches()
                for part in filled(batch, opened.late, opened.resources)
            ]
            return pa.Table.from_batches(parts, schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The records, as dicts; text is str, missing values are None."""
        return self.rows()

    def rows(self, *, decode: bool = False) -> Iterator[dict[str, Any]]:
        """The records, as dicts.

        Args:
            decode: images as `PIL.Image.Image`, audio as (samples, rate), DICOM as arrays, not as bytes.

        Raises:
            InputError: as `batches`; a file that is not an image or audio.
        """
        names = self.columns
        change = None
        if decode:
            from holdfast.data.croissant.loading.decoding import decoder

            change = decoder(self.column_fields())
        for batch in self.batches():
            columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, change(values) if change else values, strict=True))

    def count(self) -> int:
        """The number of records; no more is read than that takes."""
        with self._open() as opened:
            [[rows]] = opened.connection.sql(f"SELECT count(*) FROM (\n{opened.sql}\n)").fetchall()
        return int(rows)

    def explain(self) -> str:
        """The SQL that would run, and how DuckDB would run it."""
        with self._open() as opened:
            plan = opened.connection.execute(f"EXPLAIN {opened.sql}").fetchall()
        return "\n\n".join([opened.sql, *(text for _, text in plan)])

    def to_polars(self) -> polars.DataFrame:
        """The table as a Polars frame, without a copy where their layouts agree.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        try:
            import polars
        except ImportError as error:
            raise MissingExtraError("polars", "polars") from error
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_torch(
        self, *, batch_size: int = 256, decode: bool = False
    ) -> IterableDataset[dict[str, Any]]:
        """The records as a `torch.utils.data.IterableDataset` of batches; see `torch_output`.

        Raises:
            MissingExtraError: torch is not installed.
        """
        from holdfast.data.croissant.loading.torch_output import TorchBatches

        return TorchBatches(self, batch_size, decode)

    def to_hf(self, *, streaming: bool = False) -> datasets.Dataset | datasets.IterableDataset:
        """The records as a `datasets.Dataset`, or an IterableDataset if `streaming`.

        Raises:
            MissingExtraError: `datasets` is not installed.
        """
        from holdfast.data.croissant.loading.hf_output import hf_dataset, hf_stream

        return (
            hf_stream(self, self.column_fields())
            if streaming
            else hf_dataset(self, self.column_fields())
        )


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a query; DuckDB errors that Arrow wraps are raised as DuckDB errors again."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, pa.ArrowException) as error:
            text = str(error)
            memory = text.startswith("Out of Memory Error")
            raise (duckdb.OutOfMemoryException if memory else duckdb.Error)(text) from error
        yield batch


def _even(reader: pa.RecordBatchReader, rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows, `rows` to a batch."""
    batches: list[pa.RecordBatch] = []
    for batch in batches_of(reader):
        while batch.num_rows:
            part = batch.slice(0, rows - sum(one.num_rows for one in batches))
            batch = batch.slice(part.num_rows)
            batches.append(part)
            if sum(one.num_rows for one in batches) == rows:
                yield batches[0] if len(batches) == 1 else pa.concat_batches(batches)
                batches = []
    if batches:
        yield pa.concat_batches(batches)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_cast(*each) for each in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: Any, kind: pa.DataType) -> Any:
    return column if column.type == kind else column.cast(kind)


def refuse_batch(rows: int) -> None:
    """Refuse a batch without rows.

    Raises:
        InputError: if `rows` is less than 1.
    """
    if rows < 1:
        raise InputError(
            "a batch has at least one row",
            code="out-of-range",
            found=str(rows),
            expected="1 or more",
        )
