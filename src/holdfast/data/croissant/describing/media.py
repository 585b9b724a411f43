"""Images, sounds, films and texts that stand in files of their own: found, named, written as records."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.data.croissant.describing.description import Json, Note, reference_to
from holdfast.data.croissant.describing.groups import LABEL_REGEX, Group, media_groups
from holdfast.data.croissant.describing.places import MEDIA, Kind, Place
from holdfast.data.croissant.describing.record_sets import (
    FULLPATH,
    RecordSets,
    make_field,
    reference_to_field,
    source_of,
)
from holdfast.data.croissant.describing.splits import split_in
from holdfast.data.croissant.describing.walking import Files
from holdfast.errors import InputError
from holdfast.numbers import counted

_CHUNK = 1 << 20
_NO_FORMS: Mapping[str, str] = {}
_MOST_CLASSES = 2_000  # that stand in the description itself


@dataclass(frozen=True)
class Media:
    """Files whose content is a value.

    Attributes:
        group: the files, and what their folders tell.
        content: the name of the field that holds the content.
        data_type: of that field.
        lines: each line of a text is a record, not each text.
    """

    group: Group
    content: str
    data_type: str
    lines: bool = False

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
    places = [place for place in files.places if place.kind in (*MEDIA, Kind.TEXT)]
    found, notes = [], []
    for group in media_groups(places):
        first, count = group.places[0], len(group.places)
        if group.kind in MEDIA:
            if count == 1 and (not alone or len(places) > 1) and not first.archive:
                notes.append(
                    Note(
                        str(first), "skipped", "one file among others: taken for one about the data"
                    )
                )
            else:
                kind = group.kind.value
                found.append(Media(group, kind, MEDIA[group.kind]))
        elif (bad := _not_utf8(files, group.places)) is not None:
            notes.append(
                Note(str(bad), "unknown", f"no UTF-8: {count:,} texts are described as files")
            )
        else:
            lines = count == 1 or all(split_in(place.name) for place in group.places)
            found.append(Media(group, "line" if lines else "text", "sc:Text", lines))
    return found, notes


def _not_utf8(files: Files, places: Sequence[Place]) -> Place | None:
    """The first text that cannot be decoded; None if all can."""
    for place in places:
        decoder = codecs.getincrementaldecoder(place.charset or "utf-8")()
        try:
            for chunk in _chunks(files, place):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except (UnicodeDecodeError, OSError, InputError):
            return place
    return None


def _chunks(files: Files, place: Place) -> Iterator[bytes]:
    if place.archive:
        yield from files.read([place])
        return
    with (files.folder / place.path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


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
    of_what = "lines" if media.lines else "contents"
    made = records.add(name, f"The {of_what} of the files of {name}.", fields)
    if key and len({place.path for place in group.places}) == len(group.places):
        made["key"] = reference_to(records.fields[name, key]["@id"])
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
