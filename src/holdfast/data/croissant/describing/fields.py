"""Fields as a description writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.data.croissant.describing.naming import Ids, human, slug
from holdfast.data.croissant.describing.shapes import Shape

Json = dict[str, Any]

FULLPATH = {"fileProperty": "fullpath"}


def reference_to(identity: str) -> Json:
    """A node that is described elsewhere."""
    return {"@id": identity}


def reference_to_field(identity: str) -> Json:
    """A field that is described elsewhere, in the longer of two ways: every reader knows it."""
    return {"field": reference_to(identity)}


def make_field(
    identity: str, name: str, description: str, data_types: str | list[str], **more: Any
) -> Json:
    """A field; what is None in `more` is left out."""
    made: Json = {
        "@type": "cr:Field",
        "@id": identity,
        "name": name,
        "description": description,
        "dataType": data_types,
    }
    return made | {key: value for key, value in more.items() if value is not None}


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
    made = {**resource, "extract": extract}
    if regex:
        made["transform"] = {"regex": regex}
    if json_path:
        made["transform"] = {"jsonPath": json_path}
    if date_format:
        made["format"] = date_format
    return made


def described(name: str) -> str:
    """What a field's name says, as the beginning of a sentence; the name where it says nothing."""
    plain = human(name)
    return plain[:1].upper() + plain[1:] if plain else name


def table_field(shape: Shape, parent: str, resource: Json, ids: Ids) -> Json:
    """The field of a column, with those of its members."""
    identity = ids.take(f"{parent}/{slug(shape.name)}")
    made: Json = {
        "@type": "cr:Field",
        "@id": identity,
        "name": shape.name or "(no name)",
        "description": described(shape.name) or "A column without a name.",
    }
    if shape.data_types:
        labels = ["cr:Label"] if shape.classes else []
        made["dataType"] = [*shape.data_types, *labels] if labels else shape.data_types[0]
        extract: Mapping[str, str] = (
            {"jsonPath": shape.json_path} if shape.json_path else {"column": shape.column}
        )
        made["source"] = source_of(
            resource, dict(extract), json_path=shape.transform_path, date_format=shape.format
        )
    if shape.sizes:
        made["isArray"] = True
        made["arrayShape"] = ",".join(map(str, shape.sizes))
    if shape.parts:
        made["subField"] = [table_field(part, identity, resource, ids) for part in shape.parts]
    return made
