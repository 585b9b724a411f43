"""Terms that older versions had, and what newer ones say in their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.data.croissant.document.model import (
    Field,
    FileObject,
    Metadata,
    Node,
    RecordSet,
    Version,
)
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.terms import Entry

SPLITS = "wd:Q3985153"  # Wikidata's "training, validation, and test data sets"
_MD5 = re.compile(r"[0-9a-fA-F]{32}")


class OldTerms:
    """What becomes of old terms.

    Args:
        metadata: the description.
        to: the version that is migrated to.
        tell: takes pointer, what and why of each change.
    """

    def __init__(
        self, metadata: Metadata, to: Version, tell: Callable[[str, str, str], None]
    ) -> None:
        self._metadata = metadata
        self._to = to
        self._tell = tell
        self._splits = {part.id for part in metadata.record_sets if self._defines_splits(part)}
        self._split_fields = {
            field.at
            for records, field in metadata.fields()
            if records.id in self._splits
            or any(one.target.rsplit("/", 1)[0] in self._splits for one in field.references)
        }

    def _defines_splits(self, part: RecordSet) -> bool:
        """Whether a record set lists what Wikidata calls splits: an enumeration, or used as one."""
        if not any(SPLITS in field.data_types for field in part.fields):
            return False
        ids = {field.id for field in part.fields}
        return "sc:Enumeration" in part.data_types or any(
            SPLITS in field.data_types and any(one.target in ids for one in field.references)
            for records, field in self._metadata.fields()
            if records.id != part.id
        )

    def renamed(self, entry: Entry, node: Node | None) -> str | None:
        """The term that an entry has now; None where its object says the same already."""
        if entry.term == "sc:citation" and node is None and self._is_citation(entry):
            self._tell(
                entry.at, "citation -> citeAs", "how to cite the dataset itself is citeAs since 1.0"
            )
            return "cr:citeAs"
        if entry.term == "cr:delimiter":
            return "cr:separator"
        return entry.term

    def _is_citation(self, entry: Entry) -> bool:
        return (
            self._metadata.version == "0.8"
            and entry.at == self._metadata.where("sc:citation")
            and "cr:citeAs" not in self._metadata.written
            and len(entry.values) == 1
            and isinstance(entry.values[0].value, str)
        )

    def replaced(self, entry: Entry, node: Node | None) -> list[tuple[str, Any]] | None:
        """What stands in the place of an entry; None where it stays."""
        if entry.term == "cr:isEnumeration" and isinstance(node, RecordSet):
            self._tell(
                entry.at,
                "isEnumeration -> dataType",
                "an enumeration is a record set of sc:Enumeration",
            )
            return [("cr:dataType", "sc:Enumeration")] if node.is_enumeration else []
        if entry.term == "cr:repeated" and isinstance(node, Field) and self._to == "1.1":
            self._tell(entry.at, "repeated -> isArray", "1.1 says isArray and arrayShape")
            return self._array(node)
        if entry.term == "sc:sha256" and isinstance(node, FileObject) and _is_md5(entry):
            if node.md5 is None:
                self._tell(entry.at, "sha256 -> md5", "32 hexadecimal digits are an MD5")
                return [("cr:md5", entry.values[0].value)]
            if node.md5.lower() == str(entry.values[0].value).lower():
                self._tell(entry.at, "sha256 removed", "it repeats the MD5")
                return []
        return None

    def _array(self, node: Field) -> list[tuple[str, Any]]:
        """A list of unknown length, unless the field says more itself."""
        if not node.repeated:
            return []
        made: list[tuple[str, Any]] = [] if "cr:isArray" in node.written else [("cr:isArray", True)]
        if "cr:arrayShape" not in node.written:
            made.append(("cr:arrayShape", "-1"))
        return made

    def data_type(self, term: str, at: str) -> str:
        """A field's type: Wikidata's splits are Croissant's where the record set that has them is known."""
        if term == SPLITS and at in self._split_fields:
            self._tell(at, f"{SPLITS} -> cr:Split", "Croissant has its own type for splits")
            return "cr:Split"
        return term

    def split_types(self, node: RecordSet, made: dict[str, Any]) -> None:
        """Say of an enumeration of splits that it is one."""
        if node.id not in self._splits:
            return
        given = made.get("dataType")
        types = given if isinstance(given, list) else [] if given is None else [given]
        if "cr:Split" not in types:
            self._tell(node.at, "dataType cr:Split", "Croissant has its own type for splits")
            made["dataType"] = [*types, "cr:Split"] if types else "cr:Split"

    def rows(self, value: Any, node: RecordSet, entry: Entry) -> Any:
        """Inline records whose keys are ids of fields."""
        if isinstance(value, list):
            return [
                self._row(row, node.fields, f"{entry.at}/{index}")
                if isinstance(row, Mapping)
                else row
                for index, row in enumerate(value)
            ]
        return self._row(value, node.fields, entry.at) if isinstance(value, Mapping) else value

    def _row(self, row: Mapping[str, Any], fields: tuple[Field, ...], at: str) -> dict[str, Any]:
        if "@id" in row:  # examples may be a resource
            return dict(row)
        ids = {part.id for part in fields}
        names: dict[str, Field] = {}
        for one in fields:
            for name in (one.short, one.name, one.key):
                if name and name not in ids:
                    names.setdefault(name, one)
        made = {}
        for key, value in row.items():
            part: Field | None = names.get(key) or next(
                (one for one in fields if one.id == key), None
            )
            if part is not None and part.id != key and part.id in row:
                part = None
            if part is not None and part.id != key:
                self._tell(
                    f"{at}/{escaped(key)}",
                    f"{key} -> {part.id}",
                    "records name their fields by @id",
                )
            made[key if part is None else part.id] = self._nested(
                value, part, f"{at}/{escaped(key)}"
            )
        return made

    def _nested(self, value: Any, part: Field | None, at: str) -> Any:
        if part is None or not part.sub_fields:
            return value
        if isinstance(value, Mapping):
            return self._row(value, part.sub_fields, at)
        if isinstance(value, list):
            return [self._nested(one, part, f"{at}/{index}") for index, one in enumerate(value)]
        return value


def _is_md5(entry: Entry) -> bool:
    values = [value.value for value in entry.values]
    return (
        len(values) == 1 and isinstance(values[0], str) and bool(_MD5.fullmatch(values[0].strip()))
    )
