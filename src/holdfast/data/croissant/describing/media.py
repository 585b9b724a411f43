"""Images, sounds, films and texts that stand in files of their own: found, named, written as records."""

from __future__ import annotations

import codecs
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

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


@dataclass(frozen=True)
class Form:
    """One way in which tables may name the files of one set.

    Attributes:
        media: place of the files in the list of media.
        name: "filename"; "fullpath"; "path", from the folder that all files are in; or "stem", the name
            without its ending.
        regex: takes it out of a full path; "" where that is a property of the file.
        view: a view in DuckDB with the columns `name`, each file's and none twice, and `file`, its number.
        of: files.
    """

    media: int
    name: str
    regex: str
    view: str
    of: int


@dataclass(frozen=True)
class Listed:
    """A column that names files.

    Attributes:
        form: how it names which files.
        data_type: of the column.
        values: distinct values of the column.
        backwards: not all values name files, but all files are named, each in one row.
    """

    form: Form
    data_type: str
    values: int
    backwards: bool = False


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


def name_files(connection: duckdb.DuckDBPyConnection, media: Sequence[Media]) -> list[list[Form]]:
    """The ways in which tables may name each set of files, as views that a connection can look into."""
    import pyarrow as pa

    found: list[list[Form]] = [[] for _ in media]
    for place, files in enumerate(media):
        for name, regex, values in () if files.lines else _forms(files):
            view = f"{name}_of_{place}"
            names = {"name": pa.array(values, pa.string()), "file": range(len(values))}
            connection.register(view, pa.table(names))
            found[place].append(Form(place, name, regex, view, len(values)))
    return found


def _forms(files: Media) -> Iterator[tuple[str, str, list[str]]]:
    """How a table may name files: the form, the regular expression that takes it out, and each file's."""
    places = files.group.places
    paths = [place.path for place in places]
    if files.names_differ:
        yield "filename", "", [place.name for place in places]
    if len(set(paths)) == len(paths):
        yield "fullpath", "", paths
        if common := posixpath.commonpath(list(map(posixpath.dirname, paths))):
            below = len(common) + 1
            yield "path", f"^{re.escape(common)}/(.*)$", [path[below:] for path in paths]
    stems = [place.stem for place in places]
    endings = sorted({place.ending for place in places}, key=lambda ending: (-len(ending), ending))
    if len(set(stems)) == len(stems) and all(endings):
        regex = rf"^(?:.*/)?([^/]+?)(?:{'|'.join(map(re.escape, endings))})$"
        yield "stem", regex, stems


def add_media(records: RecordSets, name: str, media: Media, listed: Iterable[Listed]) -> None:
    """Make the record set of files whose content is a value.

    Args:
        records: where it goes.
        name: its id.
        media: the files.
        listed: columns that name them: what these say, the records then have to hold, too.
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
        for form, data_type in ((each.form, each.data_type) for each in listed):
            if (name, form.name) not in records.fields:
                add(form.name, "What a table calls the file.", data_type, FULLPATH, form.regex)
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
