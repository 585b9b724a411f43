"""Queries over several record sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.loading.lazy_table import LazyTable, Opened
from holdfast.data.croissant.planning.origins import nearest
from holdfast.data.croissant.scanning.columns import identifier
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.data.croissant.loading.dataset import Dataset
    from holdfast.data.croissant.loading.records import LazyRecordSet


class LazyQuery(LazyTable):
    """The result of a query, not yet computed; made by `Dataset.sql`.

    Args:
        dataset: the dataset whose record sets are tables.
        query: one SELECT.
        tables: further tables, by name.

    Raises:
        InputError: invalid SQL, or an unknown table.
    """

    def __init__(self, dataset: Dataset, query: str, tables: Mapping[str, LazyRecordSet]) -> None:
        self.dataset = dataset
        self.text = query.strip().rstrip(";")
        self.tables = {
            name: tables.get(name) or dataset.records(name) for name in self._names(tables)
        }

    def _names(self, tables: Mapping[str, LazyRecordSet]) -> list[str]:
        """The tables that the query names, as they are called here."""
        with self.dataset.connect() as connection:
            [[answer]] = connection.execute("SELECT json_serialize_sql(?)", [self.text]).fetchall()
        tree = json.loads(answer)
        if tree["error"] or len(tree["statements"]) != 1:
            raise InputError(
                "the query is not valid SQL",
                code="invalid-syntax",
                found=str(tree.get("error_message") or self.text),
                expected="one SELECT over record sets, their ids as tables",
            )
        own = {entry["key"].lower() for entry in _parts(tree, "key")}  # WITH name AS (...)
        known = [*tables, *self.dataset.record_sets]
        lower = {name.lower(): name for name in reversed(known)}
        names = []
        for part in _parts(tree, "table_name"):
            name = part["table_name"]
            if name.lower() in lower:
                names.append(lower[name.lower()])
            elif name and name.lower() not in own and part.get("type") == "BASE_TABLE":
                raise InputError(
                    "the query names a table that is not a record set",
                    code="unknown-name",
                    found=repr(name),
                    expected=nearest(name, known) or f"one of {', '.join(known)}",
                )
        return list(dict.fromkeys(names))

    def head(self, n: int = 5) -> LazyQuery:
        """The first `n` rows of the result."""
        return LazyQuery(self.dataset, f"SELECT * FROM (\n{self.text}\n) LIMIT {n}", self.tables)

    @contextmanager
    def _open(self) -> Iterator[Opened]:
        outlines = {name: table.outline for name, table in self.tables.items()}
        lenient = any(table.asked.lenient for table in self.tables.values())
        kept = {name for table in self.tables.values() for name in table.text_fields()}
        with self.dataset.opened(lenient, kept) as assembler:
            for name in outlines:
                table = self.tables[name]
                select = table.select(
                    assembler, table.short_names(), ordered=table.asked.limit is not None
                )
                assembler.connection.execute(f"CREATE TEMP VIEW {identifier(name)} AS\n{select}")
            yield Opened(assembler.connection, self.text, assembler.late, self.dataset.resources)

    def _declared(self) -> list[pa.Field] | None:
        return None

    def _settled(self) -> bool:
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle support: another process, or a copy, opens the dataset again."""
        return LazyQuery, (self.dataset, self.text, self.tables)

    def in_order(self) -> LazyTable:
        """A query's rows may come in another order to each reader."""
        raise InputError(
            "the result of a query cannot be shared out among several readers",
            code="unsupported",
            remedy="read it with one worker, or share out a record set with filters",
        )

    def column_fields(self) -> list[Field | None]:
        """None for each column: a query may have changed it."""
        return [None for _ in self.columns]


def _parts(tree: Any, name: str) -> Iterator[dict[str, Any]]:
    """The parts of a query's tree that have a property."""
    if isinstance(tree, dict):
        if isinstance(tree.get(name), str):
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _parts(part, name)
