"""Records for people: as a table whose cells fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Finding, Section, Table
from holdfast.numbers import counted
from holdfast.report.grid import is_numeric

WIDTH = 40
"""Characters of a cell."""


@dataclass(frozen=True)
class Rows(Answer):
    """Records, a few of them.

    Attributes:
        records: as Arrow rows.
    """

    records: pa.Table

    def to_dict(self) -> Any:
        """The records, bytes by their size."""
        return [printable(row) for row in self.records.to_pylist()]

    def findings(self) -> Sequence[Finding]:
        """None: the table says it."""
        return ()

    def sections(self) -> Sequence[Section]:
        """The records, bytes by their size; numbers stand right."""
        records, columns = self.records, {}
        cells = {
            name: pa.array([_cell(value) for value in records[name].to_pylist()], pa.string())
            for name in records.column_names
        }
        for field in records.schema:
            columns[field.name] = ColumnFormat(field.name, right=is_numeric(field.type))
        tables = [Table(pa.table(cells), columns)]
        sentence = f"{counted(records.num_rows, 'record')}."
        return [Section("records", "Which records?", sentence, tables=tables)]


def printable(value: Any) -> Any:
    """A value as a terminal or JSON can show it: bytes by their size."""
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    if isinstance(value, dict):
        return {name: printable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [printable(part) for part in value]
    return value


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    value = printable(value)
    structured = isinstance(value, (dict, list))
    text = json.dumps(value, default=str, ensure_ascii=False) if structured else str(value)
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
