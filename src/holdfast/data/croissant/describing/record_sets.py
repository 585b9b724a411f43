"""What the record sets of a description share: splits, classes, ids of fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.data.croissant.describing.distribution import Distribution
from holdfast.data.croissant.describing.fields import (
    FULLPATH,
    Json,
    make_field,
    reference_to,
    reference_to_field,
    source_of,
)
from holdfast.data.croissant.describing.groups import Group, in_order
from holdfast.data.croissant.describing.naming import Ids
from holdfast.data.croissant.describing.places import Note
from holdfast.data.croissant.describing.splits import meaning


class RecordSets:
    """Gathers the record sets of a description.

    Args:
        distribution: makes the files that they take their records from.
        ids: hands out ids.
        groups: every group of files that becomes records.

    Attributes:
        made: the record sets, in the order in which they were made.
        field_ids: record set, and column or way to name a file -> the id of the field.
        notes: what was inferred.
    """

    def __init__(self, distribution: Distribution, ids: Ids, groups: Iterable[Group]) -> None:
        self.distribution, self.ids = distribution, ids
        self.made: list[Json] = []
        self.notes: list[Note] = []
        self.field_ids: dict[tuple[str, str], str] = {}
        splits = in_order(name for group in groups if group.split for name in group.split.names)
        self._splits = self._make_splits(splits) if splits else ""

    def _make_splits(self, names: Sequence[str]) -> str:
        identity = self.ids.take("splits", "dataset_splits")
        name, url = self.ids.take(f"{identity}/name"), self.ids.take(f"{identity}/url")
        self.made.append(
            {
                "@type": "cr:RecordSet",
                "@id": identity,
                "name": identity,
                "description": "The parts of the dataset, and what each is meant for.",
                "dataType": "cr:Split",
                "key": reference_to(name),
                "field": [
                    make_field(name, "name", "The name of the split.", "sc:Text"),
                    make_field(url, "url", "What the split is meant for.", ["sc:URL", "cr:Split"]),
                ],
                "data": [{name: split, url: meaning(split)} for split in names],
            }
        )
        return name

    def classes(self, owner: str, names: Sequence[str], *, numbered: bool = False) -> str:
        """An enumeration of classes, by name or by place; the id of the field that labels reference."""
        identity = self.ids.take(f"{owner}_classes")
        name = self.ids.take(f"{identity}/name")
        fields = [make_field(name, "name", "The name of the class.", "sc:Text")]
        data: list[Json] = [{name: each} for each in names]
        key = name
        if numbered:
            key = self.ids.take(f"{identity}/id")
            fields.insert(0, make_field(key, "id", "The number of the class.", "sc:Integer"))
            data = [{key: number, name: each} for number, each in enumerate(names)]
        self.made.append(
            {
                "@type": "cr:RecordSet",
                "@id": identity,
                "name": identity,
                "description": f"The {len(names):,} classes of {owner}.",
                "dataType": "sc:Enumeration",
                "key": reference_to(key),
                "field": fields,
                "data": data,
            }
        )
        return key

    def split_field(self, group: Group, owner: str, resource: Json) -> list[Json]:
        """The field of a record's split, where its file tells one."""
        if not group.split:
            return []
        names = ", ".join(map(repr, group.split.names))
        from_what = "the files' paths" if group.split.regex else "the archive's name"
        self.notes.append(Note(owner, "inferred", f"split {names}, from {from_what}"))
        identity = self.ids.take(f"{owner}/split", f"{owner}/file_split")
        made = make_field(
            identity,
            identity.removeprefix(f"{owner}/"),
            "The split that the record is of.",
            "sc:Text",
            source=source_of(resource, FULLPATH, regex=group.split.regex)
            if group.split.regex
            else None,
            value=None if group.split.regex else group.split.names[0],
            references=reference_to_field(self._splits),
        )
        return [made]

    def to_list(self) -> list[Json]:
        """The record sets, each with what it is before what it holds."""
        order = ("@type", "@id", "name", "description", "dataType", "key", "field", "data")
        return [{key: made[key] for key in order if key in made} for made in self.made]
