"""Record sets and their fields as a description writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.data.croissant.describing.description import Json, Note, reference_to
from holdfast.data.croissant.describing.distribution import Distribution
from holdfast.data.croissant.describing.groups import Group
from holdfast.data.croissant.describing.naming import Ids, human, slug
from holdfast.data.croissant.describing.shapes import Shape
from holdfast.data.croissant.describing.splits import in_order, meaning

FULLPATH = {"fileProperty": "fullpath"}


def reference_to_field(identity: str) -> Json:
    """A field that is described elsewhere, in the longer of two ways: every reader knows it."""
    return {"field": reference_to(identity)}


def make_field(
    identity: str, name: str, description: str, data_types: str | list[str], **more: Any
) -> Json:
    """A field; what is None in `more` is left out."""
    field: Json = {
        "@type": "cr:Field",
        "@id": identity,
        "name": name,
        "description": description,
        "dataType": data_types,
    }
    return field | {key: value for key, value in more.items() if value is not None}


def source_of(
    resource: Json, extract: Json, *, regex: str = "", json_path: str = "", date_format: str = ""
) -> Json:
    """Where a field's values come from.

    Args:
        resource: ``{"fileObject": {"@id": ...}}`` or ``{"fileSet": ...}``.
        extract: a column, a property of the files, or a JSONPath.
        regex: what to take out of the text.
        json_path: what to take out of the structure.
        date_format: how the text is read as a date.
    """
    source = {**resource, "extract": extract}
    if regex:
        source["transform"] = {"regex": regex}
    if json_path:
        source["transform"] = {"jsonPath": json_path}
    if date_format:
        source["format"] = date_format
    return source


def table_field(shape: Shape, parent: str, resource: Json, ids: Ids) -> Json:
    """The field of a column, with those of its members."""
    identity = ids.take(f"{parent}/{slug(shape.name)}")
    plain = human(shape.name)
    field: Json = {
        "@type": "cr:Field",
        "@id": identity,
        "name": shape.name or "(no name)",
        "description": plain[:1].upper() + plain[1:] or shape.name or "A column without a name.",
    }
    if shape.data_types:
        labels = ["cr:Label"] if shape.classes else []
        field["dataType"] = [*shape.data_types, *labels] if labels else shape.data_types[0]
        field["source"] = source_of(
            resource,
            {"jsonPath": shape.json_path} if shape.json_path else {"column": shape.column},
            json_path=shape.transform_path,
            date_format=shape.format,
        )
    if shape.sizes:
        field["isArray"] = True
        field["arrayShape"] = ",".join(map(str, shape.sizes))
    if shape.parts:
        field["subField"] = [table_field(part, identity, resource, ids) for part in shape.parts]
    return field


class RecordSets:
    """Gathers the record sets of a description.

    Args:
        distribution: makes the files that they take their records from.
        ids: hands out ids.
        groups: every group of files that becomes records.

    Attributes:
        made: the record sets, in the order in which they were made.
        fields: record set, and column or way to name a file -> the field.
        notes: what was inferred.
    """

    def __init__(self, distribution: Distribution, ids: Ids, groups: Iterable[Group]) -> None:
        self.distribution, self.ids = distribution, ids
        self.made: list[Json] = []
        self.notes: list[Note] = []
        self.fields: dict[tuple[str, str], Json] = {}
        splits = in_order(name for group in groups if group.split for name in group.split.names)
        self._splits = self._make_splits(splits) if splits else ""

    def _make_splits(self, names: Sequence[str]) -> str:
        identity = self.ids.take("splits", "dataset_splits")
        name, url = self.ids.take(f"{identity}/name"), self.ids.take(f"{identity}/url")
        fields = [
            make_field(name, "name", "The name of the split.", "sc:Text"),
            make_field(url, "url", "What the split is meant for.", ["sc:URL", "cr:Split"]),
        ]
        made = self.add(identity, "The parts of the dataset, and what each is meant for.", fields)
        made |= {"dataType": "cr:Split", "key": reference_to(name)}
        made["data"] = [{name: split, url: meaning(split)} for split in names]
        return name

    def add(self, identity: str, says: str, fields: list[Json], name: str = "") -> Json:
        """Make a record set.

        Args:
            identity: its id.
            says: its description.
            fields: what its records hold.
            name: the id without one, or where another has it.
        """
        if name in (each["name"] for each in self.made):
            name = identity
        record_set: Json = {
            "@type": "cr:RecordSet",
            "@id": identity,
            "name": name or identity,
            "description": says,
            "field": fields,
        }
        self.made.append(record_set)
        return record_set

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
        record_set = self.add(identity, f"The {len(names):,} classes of {owner}.", fields)
        record_set |= {"dataType": "sc:Enumeration", "key": reference_to(key), "data": data}
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
        )
        if group.split.regex:
            made["source"] = source_of(resource, FULLPATH, regex=group.split.regex)
        else:
            made["value"] = group.split.names[0]
        made["references"] = reference_to_field(self._splits)
        return [made]

    def to_list(self) -> list[Json]:
        """The record sets, each with what it is before what it holds."""
        order = ("@type", "@id", "name", "description", "dataType", "key", "field", "data")
        return [
            {key: record_set[key] for key in order if key in record_set} for record_set in self.made
        ]
