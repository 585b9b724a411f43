"""The records of one record set, not yet read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from holdfast.data.croissant.document.model import Field, RecordSet
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.loading.lazy_table import LazyTable, Opened
from holdfast.data.croissant.planning.assembling import Assembler
from holdfast.data.croissant.planning.filters import Condition, Filters, conditions, field_named
from holdfast.data.croissant.planning.plan import Outline, Planner
from holdfast.data.croissant.planning.splits import named_splits
from holdfast.data.croissant.planning.values import comes_as_declared, declared_type
from holdfast.errors import InputError

if TYPE_CHECKING:
    import duckdb

    from holdfast.data.croissant.loading.dataset import Dataset


OnMisfit = Literal["error", "null", "keep"]


@dataclass(frozen=True)
class Selection:
    """What is wanted of a record set.

    Attributes:
        filters: values, or a SQL expression.
        columns: fields, by id, key or short name, in the order in which they are to come; None for all.
        ordered: records come in the order of the source.
        limit: at most so many.
        on_misfit: what becomes of values that do not fit their type.
    """

    filters: Filters | None = None
    columns: Sequence[str] | None = None
    ordered: bool = True
    limit: int | None = None
    on_misfit: OnMisfit = "error"

    @property
    def lenient(self) -> bool:
        """Whether such values become null."""
        return self.on_misfit == "null"


class LazyRecordSet(LazyTable):
    """The records of a record set that filters choose, with the columns asked for.

    Made by `Dataset.records`. Nothing is read, listed or fetched until records, the number of them, or
    `members` are asked for.
    """

    def __init__(self, dataset: Dataset, records: RecordSet, selection: Selection) -> None:
        self.dataset = dataset
        self.record_set = records
        self.asked = selection
        names = selection.columns
        self._wanted: list[Field] = (
            list(records.fields)
            if names is None
            else list({(field := field_named(records, name)).id: field for name in names}.values())
        )
        if selection.filters is not None:  # looked at now, so that a slip shows where it was made
            with dataset.connect() as connection:
                conditions(connection, records, selection.filters)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle support: another process, or a copy, opens the dataset again."""
        return _again, (self.dataset, self.record_set.id, self.asked)

    def __repr__(self) -> str:
        fields = ", ".join(field.short for field in self._wanted)
        return f"LazyRecordSet({self.record_set.id!r}: {fields})"

    @cached_property
    def outline(self) -> Outline:
        """What the query needs: tables, joins, files; for it files are listed, but not read."""
        if not self._wanted:
            raise InputError(
                f"no field of the record set {self.record_set.id!r} is asked for"
                if self.record_set.fields
                else f"the record set {self.record_set.id!r} has no fields",
                code="empty-input",
                path=self.dataset.path,
                expected="one or more: they are the columns",
            )
        with self.dataset.connect() as connection:
            chosen = self._conditions(connection)
            planner = Planner(connection, self.dataset.fields, self.dataset.resources)
            return planner.outline(self.record_set, self._wanted, chosen)

    def _conditions(self, connection: duckdb.DuckDBPyConnection) -> list[Condition]:
        filters = self.asked.filters
        if isinstance(filters, Mapping):
            fields, small = self.dataset.fields, self.dataset.small_records
            filters = named_splits(fields, self.record_set, filters, small)
        return conditions(connection, self.record_set, filters)

    def members(self) -> list[Member]:
        """The files that can hold the records, without those that a filter on names rules out."""
        return list(dict.fromkeys(self.outline.members()))

    def misfits(self) -> dict[str, int]:
        """Field id -> how many values do not fit its type: those that become null, or make it text.

        Of the files that can hold the records, also in rows that filters or a limit leave out; they are
        read once more for it.
        """
        return dict(self._misfits)

    @cached_property
    def _misfits(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        while True:
            with self.dataset.opened(lenient=True, text_fields=counts) as assembler:
                assembler.select(self.outline, False)
                more = assembler.misfits().items() - counts.items()
            # What stays text may not fit the types of fields that take their values from it.
            counts |= {name: number for name, number in more if name not in counts}
            if self.asked.on_misfit != "keep" or not more:
                break
        if self.asked.on_misfit == "keep":
            self._refuse_filters(counts)
        return counts

    def _refuse_filters(self, fields: Collection[str]) -> None:
        """A condition is planned on a field's declared type, which one that is kept as text has not."""
        with self.dataset.connect() as connection:
            uses = [use.field.id for each in self._conditions(connection) for use in each.uses]
        if name := next((name for name in uses if name in fields), None):
            raise InputError(
                "a filter on a column that is kept as text",
                code="conflict",
                path=self.dataset.path,
                place=name,
                remedy="leave the filter out and ask the text with sql(), or read misfits as null",
            )

    def text_fields(self) -> Collection[str]:
        """Ids of the fields that are text because not all values fit their types."""
        return self._misfits if self.asked.on_misfit == "keep" else ()

    def remarks(self) -> list[str]:
        """Sentences about files that are read otherwise than one may think.

        Such as a CSV with two columns of one name, of which the first is read, or a JSON Lines file of
        which no record has a field that other files have.
        """
        with self.dataset.opened(self.asked.lenient, self.text_fields()) as assembler:
            assembler.select(self.outline, False)
            return assembler.remarks()

    def head(self, n: int = 5) -> LazyRecordSet:
        """The first `n` records."""
        limit = n if self.asked.limit is None else min(n, self.asked.limit)
        return LazyRecordSet(self.dataset, self.record_set, replace(self.asked, limit=limit))

    def sql(self, query: str) -> LazyTable:
        """A query over these records, which are called ``records`` in it, columns by their short names.

        Raises:
            InputError: invalid SQL, or an unknown table or column.
        """
        return self.dataset.query(query, {"records": self})

    def select(self, assembler: Assembler, names: Sequence[str], *, ordered: bool) -> str:
        """The query, over scans that `assembler` opens."""
        sql = assembler.query(self.outline, ordered=ordered, names=names)
        return sql if self.asked.limit is None else f"{sql}\nLIMIT {self.asked.limit}"

    def in_order(self) -> LazyRecordSet:
        """The same records, in the order of the source."""
        if self.asked.ordered:
            return self
        return LazyRecordSet(self.dataset, self.record_set, replace(self.asked, ordered=True))

    def short_names(self) -> list[str]:
        """The columns' names in SQL: short ones, or keys where DuckDB could not tell those apart."""
        short = [field.short for field in self._wanted]
        lower = [name.lower() for name in short]
        return [
            name if lower.count(name.lower()) == 1 else field.key
            for name, field in zip(short, self._wanted, strict=True)
        ]

    @contextmanager
    def _open(self) -> Iterator[Opened]:
        outline = self.outline
        selection = self.asked
        with self.dataset.opened(
            selection.lenient, self.text_fields(), selection.filters
        ) as assembler:
            sql = self.select(
                assembler, [field.key for field in outline.outputs], ordered=selection.ordered
            )
            yield Opened(assembler.connection, sql, assembler.late, self.dataset.resources)

    def _declared(self) -> list[pa.Field]:
        return [
            pa.field(field.key, declared_type(self.dataset.fields, self.record_set, field))
            for field in self._wanted
        ]

    def _settled(self) -> bool:
        fields = self.dataset.fields
        return not self.text_fields() and comes_as_declared(fields, self.record_set, self._wanted)

    def column_fields(self) -> list[Field | None]:
        """The field that each column is."""
        return list(self._wanted)


def _again(dataset: Dataset, record_set: str, selection: Selection) -> LazyRecordSet:
    return LazyRecordSet(dataset, dataset.fields.record_set(record_set), selection)
