"""The record sets of media: one record for each file, or for each line of a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.data.croissant.describing.fields import (
    FULLPATH,
    Json,
    make_field,
    reference_to,
    reference_to_field,
    source_of,
)
from holdfast.data.croissant.describing.groups import LABEL_REGEX
from holdfast.data.croissant.describing.manifests import Listed
from holdfast.data.croissant.describing.media import Media
from holdfast.data.croissant.describing.places import Note
from holdfast.data.croissant.describing.record_sets import RecordSets
from holdfast.numbers import counted

_MOST_CLASSES = 2_000  # that stand in the description itself


def add_media(records: RecordSets, name: str, media: Media, listed: Iterable[Listed]) -> None:
    """Make the record set of files whose content is a value.

    Args:
        records: where it goes.
        name: its id.
        media: the files.
        listed: how tables name them: what the records then have to hold, too.
    """
    group = media.group
    resource = records.distribution.files(group.places, name)
    fields = []

    def add(field: str, says: str, kind: Any, extract: Json, regex: str = "", **more: Json) -> None:
        identity = records.ids.take(f"{name}/{field}")
        source = source_of(resource, extract, regex=regex)
        fields.append(make_field(identity, field, says, kind, source=source, **more))
        records.field_ids[name, field] = identity

    def property_of(file: str) -> Json:
        return {"fileProperty": file}

    key = ""
    if media.lines:
        add("line", "The line, without its end.", "sc:Text", property_of("lines"))
        add("number", "Its place in the file, from 0.", "sc:Integer", property_of("lineNumbers"))
        if len(group.places) > 1:
            add("filename", "The name of the file.", "sc:Text", property_of("filename"))
    else:
        add(media.content, f"The {media.content} itself.", media.data_type, property_of("content"))
        add("filename", "The name of the file.", "sc:Text", property_of("filename"))
        key = "filename" if media.names_differ else "fullpath"
        if key == "fullpath":
            add("fullpath", "The path of the file.", "sc:Text", FULLPATH)
        for each in listed:
            if (name, each.form) not in records.field_ids:
                says = "What a table calls the file."
                add(each.form, says, each.data_type, FULLPATH, each.regex)
        if group.labels:
            more = {}
            if len(group.labels) <= _MOST_CLASSES:
                more["references"] = reference_to_field(records.classes(name, group.labels))
            kinds = ["sc:Text", "cr:Label"]
            add("label", "The folder that the file is in.", kinds, FULLPATH, LABEL_REGEX, **more)
    fields += records.split_field(group, name, resource)
    made: Json = {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"The {'lines' if media.lines else 'contents'} of the files of {name}.",
    }
    if key and len({place.path for place in group.places}) == len(group.places):
        made["key"] = reference_to(records.field_ids[name, key])
    records.made.append(made | {"field": fields})
    records.notes += _notes(name, media)


def _notes(name: str, media: Media) -> list[Note]:
    group = media.group
    count = len(group.places)
    text = f"{counted(count, 'text')}, line by line"
    if not media.lines:
        text = counted(count, f"{group.kind.value} file")
    notes = [Note(name, "inferred", text)]
    if group.labels:
        some = ", ".join(map(repr, group.labels[:3])) + (" ..." if len(group.labels) > 3 else "")
        notes.append(
            Note(
                name,
                "inferred",
                f"{len(group.labels):,} classes, which folders are named for: {some}",
            )
        )
    if group.remark:
        notes.append(Note(name, "unknown", group.remark))
    return notes
