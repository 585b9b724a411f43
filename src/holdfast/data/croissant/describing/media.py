"""Images, sounds and films that stand in files of their own: found, named, written as records."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.data.croissant.describing.description import Json, Note, reference_to
from holdfast.data.croissant.describing.groups import LABEL_REGEX, Group, media_groups
from holdfast.data.croissant.describing.places import MEDIA
from holdfast.data.croissant.describing.record_sets import (
    FULLPATH,
    RecordSets,
    make_field,
    reference_to_field,
    source_of,
)
from holdfast.data.croissant.describing.walking import Files
from holdfast.data.croissant.scanning.encodings import no_media
from holdfast.numbers import counted

_NO_FORMS: Mapping[str, str] = {}
_MOST_CLASSES = 2_000  # that stand in the description itself


@dataclass(frozen=True)
class Media:
    """Files whose content is a value.

    Attributes:
        group: the files, and what their folders tell.
        content: the name of the field that holds the content.
        data_type: of that field.
    """

    group: Group
    content: str
    data_type: str

    @property
    def names_differ(self) -> bool:
        """Whether a file's name alone tells which it is."""
        places = self.group.places
        return len({place.name for place in places}) == len(places)


def find_media(files: Files, *, alone: bool) -> tuple[list[Media], list[Note]]:
    """The media of a dataset.

    Args:
        files: the dataset's.
        alone: there are no tables: then even a single file is data, not a picture about the data.

    Returns:
        The media, and a note about each group of files that is none.
    """
    places = [place for place in files.places if place.kind in MEDIA]
    found, notes = [], []
    for group in media_groups(places):
        first, count = group.places[0], len(group.places)
        if count == 1 and (not alone or len(places) > 1) and not first.archive:
            said = "one file among others: taken for one about the data"
            notes.append(Note(str(first), "skipped", said))
        else:
            found.append(Media(group, group.kind.value, MEDIA[group.kind]))
    for place in places:
        wrong = ""
        if not place.archive:
            with suppress(OSError), (files.folder / place.path).open("rb") as file:
                wrong = no_media(file.read(512))
        if wrong:
            said = f"{wrong}, though its name is that of {place.kind.value}: remove it, or fetch it again"
            notes.append(Note(str(place), "unknown", said))
    return found, notes


def add_media(
    records: RecordSets, name: str, media: Media, forms: Mapping[str, str] = _NO_FORMS
) -> None:
    """Make the record set of files whose content is a value.

    Args:
        records: where it goes.
        name: its id.
        media: the files.
        forms: of names that tables give them: a field, and the expression that takes it out of a path.
    """
    group = media.group
    resource = records.distribution.files(group.places, name)
    fields = []

    def add(field: str, says: str, kind: Any, extract: Json, regex: str = "", **more: Json) -> None:
        identity = records.ids.take(f"{name}/{field}")
        source = source_of(resource, extract, regex=regex)
        made = make_field(identity, field, says, kind, source=source, **more)
        records.fields[name, field] = made
        fields.append(made)

    def property_of(file: str) -> Json:
        return {"fileProperty": file}

    add(media.content, f"The {media.content} itself.", media.data_type, property_of("content"))
    add("filename", "The name of the file.", "sc:Text", property_of("filename"))
    key = "filename" if media.names_differ else "fullpath"
    if key == "fullpath":
        add("fullpath", "The path of the file.", "sc:Text", FULLPATH)
    for form, regex in forms.items():
        if (name, form) not in records.fields:
            add(form, "What a table calls the file.", "sc:Text", FULLPATH, regex)
    if group.labels:
        more = {}
        if len(group.labels) <= _MOST_CLASSES:
            more["references"] = reference_to_field(records.classes(name, group.labels))
        kinds = ["sc:Text", "cr:Label"]
        add("label", "The folder that the file is in.", kinds, FULLPATH, LABEL_REGEX, **more)
    fields += records.split_field(group, name, resource)
    made = records.add(name, f"The contents of the files of {name}.", fields)
    if len({place.path for place in group.places}) == len(group.places):
        made["key"] = reference_to(records.fields[name, key]["@id"])
    records.notes += _notes(name, media)


def _notes(name: str, media: Media) -> list[Note]:
    group = media.group
    notes = [Note(name, "inferred", counted(len(group.places), f"{group.kind.value} file"))]
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
