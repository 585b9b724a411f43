"""What a description offers: its record sets, their fields and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.data.croissant.document.model import Metadata


@dataclass(frozen=True)
class Contents:
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
