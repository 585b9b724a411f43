"""Columns of tables that name files, such as `file_name` beside a folder of images."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from holdfast.data.croissant.describing.description import Json, Note
from holdfast.data.croissant.describing.media import Media
from holdfast.data.croissant.describing.querying import count_values
from holdfast.data.croissant.describing.record_sets import (
    RecordSets,
    make_field,
    reference_to_field,
)
from holdfast.data.croissant.describing.shapes import Table


@dataclass(frozen=True)
class Named:
    """The files that a column names.

    Attributes:
        record_set: of the files.
        form: field of it that has these names: ``"filename"``, ``"fullpath"``, or ``"path"``, from the
            folder that all files are in.
        regex: takes them out of a full path; "" where they are a property of the file.
        values: distinct values of the column.
        of: files.
    """

    record_set: str
    form: str
    regex: str
    values: int
    of: int


def find_named(
    connection: duckdb.DuckDBPyConnection, table: Table, media: Sequence[tuple[str, Media]]
) -> tuple[dict[str, Named], list[str]]:
    """The columns whose values all name files; of each set of files the first.

    Args:
        connection: that can read the table.
        table: the table, whole.
        media: record sets of files.

    Returns:
        Column -> the files that it names, and a sentence about each column of which only some values do.
    """
    import pyarrow as pa

    found: dict[str, Named] = {}
    partly: dict[str, str] = {}
    texts = {
        name: f"CAST({table.sql[name]} AS VARCHAR)"
        for name, kind in table.comparable.items()
        if kind != "number" and table.complete
    }
    for record_set, files in media if texts else ():
        for form, regex, names in _forms(files):
            connection.register("_names", pa.table({"name": pa.array(names, pa.string())}))
            counted = count_values(connection, table.relation, texts, ("_names", "name"))
            column = next((n for n, c in counted.items() if 0 < c.distinct == c.matches[0]), None)
            if column is not None and column not in found:
                values = counted[column].distinct
                found[column] = Named(record_set, form, regex, values, len(names))
                break
            for name, c in counted.items():
                if 0 < c.matches[0] < c.distinct:
                    missing = f"{c.distinct - c.matches[0]:,} of {c.distinct:,} values of {name!r}"
                    partly[name] = f"{missing} name no file of {record_set!r}: no reference written"
    return found, [text for name, text in partly.items() if name not in found]


def _forms(files: Media) -> Iterator[tuple[str, str, list[str]]]:
    """How a table may name files: the form, the expression that takes it out, and each file's."""
    paths = [place.path for place in files.group.places]
    if files.names_differ:
        yield "filename", "", [place.name for place in files.group.places]
    if len(set(paths)) == len(paths):
        yield "fullpath", "", paths
        if common := posixpath.commonpath(list(map(posixpath.dirname, paths))):
            below = [path[len(common) + 1 :] for path in paths]
            yield "path", f"^{re.escape(common)}/(.*)$", below


def add_files(records: RecordSets, record_set: Json, named: dict[str, Named]) -> None:
    """State which of a table's columns name files, and give each row the content of its file."""
    name = record_set["@id"]
    for column, found in named.items():
        field, target = records.fields[name, column], found.record_set
        if "references" in field:
            continue
        field["references"] = reference_to_field(records.fields[target, found.form]["@id"])
        content = next(each for each in records.made if each["@id"] == target)["field"][0]
        said = content["@id"].rpartition("/")[2]
        identity = records.ids.take(f"{name}/{said}", f"{name}/{column}_file")
        source = reference_to_field(content["@id"])
        says, short = f"The {said} that {column} names.", identity.removeprefix(f"{name}/")
        record_set["field"].append(
            make_field(identity, short, says, content["dataType"], source=source)
        )
        text = (
            f"{column!r} references {found.form!r} of {target!r}: of its {found.values:,} values and "
            f"{found.of:,} files, all values name files"
        )
        records.notes.append(Note(name, "inferred", text))
