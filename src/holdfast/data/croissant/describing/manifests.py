"""Tables that list files: a column of file names, paths, or names without their endings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from holdfast.data.croissant.describing.keys import IDS, KEYLIKE, is_unique
from holdfast.data.croissant.describing.media import Media, relative_paths
from holdfast.data.croissant.describing.naming import root, words
from holdfast.data.croissant.describing.references import contained
from holdfast.data.croissant.describing.shapes import Table

_WORDS = {
    *(
        "image",
        "img",
        "photo",
        "picture",
        "audio",
        "sound",
        "clip",
        "wav",
        "video",
        "film",
        "frame",
    ),
    *("text", "document", "doc", "file", "fname", "filename"),
}
_MEDIA_WORDS = set(map(root, _WORDS))
_NAMING_WORDS = _MEDIA_WORDS | set(map(root, KEYLIKE | {"unnamed"}))


@dataclass(frozen=True)
class Listed:
    """A column that names files.

    Attributes:
        media: place of the files in the list of media.
        form: "filename"; "fullpath"; "path", from the folder that all files are in; or "stem", the name
            without its ending.
        regex: takes the form out of a file's full path; "" where that is a property of the file.
        data_type: of the column.
        values: distinct values of the column.
        of: files.
        backwards: not all values name files, but all files are named, each in one row.
    """

    media: int
    form: str
    regex: str
    data_type: str
    values: int
    of: int
    backwards: bool = False


@dataclass(frozen=True)
class Form:
    """One way to name the files of one set.

    Attributes:
        media: place of the files in the list of media.
        name: "filename", "fullpath", "path" or "stem".
        regex: takes it out of a full path; "" where that is a property of the file.
        view: a view in DuckDB with a column `name`.
        of: files.
    """

    media: int
    name: str
    regex: str
    view: str
    of: int


def name_files(connection: duckdb.DuckDBPyConnection, media: Sequence[Media]) -> list[Form]:
    """The ways in which tables may name files, as views that a connection can look into."""
    import pyarrow as pa

    forms = []
    for place, files in enumerate(media):
        for name, regex, values in () if files.lines else _forms(files):
            view = f"{name}_of_{place}"
            connection.register(view, pa.table({"name": pa.array(values, pa.string())}))
            forms.append(Form(place, name, regex, view, len(values)))
    return forms


def find_listed(
    connection: duckdb.DuckDBPyConnection, table: Table, forms: Sequence[Form]
) -> tuple[dict[str, Listed], list[str]]:
    """The columns of a table that name files.

    Returns:
        Column -> the files, and a sentence about each column that names files, but not only such.
    """
    found: dict[str, Listed] = {}
    remarks: dict[str, str] = {}
    for shape, kind in table.comparable() if table.complete else ():
        said = {root(word) for word in words(shape.name)}
        expression = table.sql[shape.name]
        stems = bool(said & _NAMING_WORDS)
        if (
            kind == "number"
        ):  # 1, 2, 3 name many things: only `image_id` and the like are names of files
            expression = f"CAST({expression} AS VARCHAR)"
            stems = bool(said & _MEDIA_WORDS) and said <= _MEDIA_WORDS | IDS
        for form in forms:
            if not stems if form.name == "stem" else kind == "number":
                continue
            counted = contained(connection, (table.relation, expression), (form.view, "name"))
            all_there = 0 < counted.values == counted.found
            if all_there or (
                counted.found == form.of and is_unique(connection, table, (shape.name,))
            ):
                data_type = "sc:Integer" if kind == "number" else "sc:Text"
                found[shape.name] = Listed(
                    form.media,
                    form.name,
                    form.regex,
                    data_type,
                    counted.values,
                    form.of,
                    not all_there,
                )
                break
            if 2 * counted.found > counted.values:
                remarks[shape.name] = (
                    f"{counted.values - counted.found:,} of {counted.values:,} values of {shape.name!r} "
                    "name no file: no reference"
                )
    return found, [text for column, text in remarks.items() if column not in found]


def _forms(files: Media) -> Iterator[tuple[str, str, list[str]]]:
    """How a table may name files: the form, the regular expression that takes it out, and each file's."""
    places = files.group.places
    names = [place.name for place in places]
    if files.names_differ:
        yield "filename", "", names
    paths = [place.path for place in places]
    if len(set(paths)) == len(paths):
        yield "fullpath", "", paths
        start, relative = relative_paths(files)
        if start:
            yield "path", f"^{re.escape(start)}(.*)$", relative
    stems = [place.name[: len(place.name) - len(place.ending)] for place in places]
    endings = sorted({place.ending for place in places}, key=lambda ending: (-len(ending), ending))
    if len(set(stems)) == len(stems) and all(endings):
        regex = rf"^(?:.*/)?([^/]+?)(?:{'|'.join(map(re.escape, endings))})$"
        yield "stem", regex, stems
