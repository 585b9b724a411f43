"""What a description offers: its record sets, their fields and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, Section, Table
from holdfast.data.croissant.document.model import Field, Metadata
from holdfast.numbers import counted


@dataclass(frozen=True)
class Contents(Answer):
    """The record sets of a description, without looking at its data."""

    metadata: Metadata

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "name": self.metadata.name,
            "version": self.metadata.version,
            "record_sets": [
                {
                    "id": records.id,
                    "name": records.name,
                    "description": records.description,
                    "key": list(records.key),
                    "inline_records": None if records.data is None else len(records.data),
                    "fields": [
                        {
                            "id": field.id,
                            "name": field.short,
                            "types": list(field.data_types),
                            "many": field.is_list,
                        }
                        for field in records.fields
                    ],
                }
                for records in self.metadata.record_sets
            ],
        }

    def sections(self) -> Sequence[Section]:
        """A row per record set."""
        rows = [
            {
                "record_set": one.id,
                "fields": ", ".join(map(_typed, one.fields)),
                "key": ", ".join(one.key) or "–",
                "inline_records": None if one.data is None else len(one.data),
            }
            for one in self.metadata.record_sets
        ]
        data = pa.Table.from_pylist(rows)
        sentence = f"{counted(len(rows), 'record set')}."
        return [Section("record-sets", "Which record sets?", sentence, tables=[Table(data)])]


def _typed(field: Field) -> str:
    """A field with its types: ``"label Integer[]"``."""
    types = "/".join(kind.partition(":")[2] for kind in field.data_types)
    return f"{field.short} {types}{'[]' if field.is_list else ''}"
