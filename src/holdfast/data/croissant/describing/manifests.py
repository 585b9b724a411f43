"""Tables that list files: a column of file names, paths, or names without their endings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from holdfast.data.croissant.describing.media import Form, Listed
from holdfast.data.croissant.describing.naming import root, words
from holdfast.data.croissant.describing.querying import count_values, in_turn, stacked
from holdfast.data.croissant.describing.relations import IDS, KEYLIKE
from holdfast.data.croissant.describing.shapes import Table

_MEDIA_WORDS = set(map(root, (
    "image", "img", "photo", "picture", "audio", "sound", "clip", "wav", "video", "film", "frame",
    "text", "document", "doc", "file", "fname", "filename",
)))  # fmt: skip
_NAMING_WORDS = _MEDIA_WORDS | set(map(root, KEYLIKE | {"unnamed"}))


def find_listed(
    connection: duckdb.DuckDBPyConnection, table: Table, forms: Sequence[Sequence[Form]]
) -> tuple[dict[str, Listed], list[str]]:
    """The columns of a table that name files.

    Args:
        connection: that can read the table and the views of the forms.
        table: the table.
        forms: of each set of files, how they may be named.

    Returns:
        Column -> the files, and a sentence about each column that names files, but not only such.
    """
    found: dict[str, Listed] = {}
    remarks: dict[str, str] = {}
    naming = {name: ways for name in table.comparable if (ways := _forms_of(name, table))}
    for same_files in forms if table.complete else ():
        columns = {
            name: f"CAST({table.sql[name]} AS VARCHAR)" for name in naming if name not in found
        }
        views = [(form.view, "name") for form in same_files]
        for name, counted in count_values(connection, table.relation, columns, *views).items():
            listed = counted.rows == counted.distinct == table.rows
            for form, inside in zip(same_files, counted.found, strict=True):
                if form.name not in naming[name]:
                    continue
                everything = 0 < counted.distinct == inside
                if everything or (inside == form.of and listed):
                    data_type = "sc:Integer" if table.comparable[name] == "number" else "sc:Text"
                    found[name] = Listed(form, data_type, counted.distinct, not everything)
                    break
                if 2 * inside > counted.distinct:
                    remarks[name] = (
                        f"{counted.distinct - inside:,} of {counted.distinct:,} values of {name!r} name "
                        "no file: no reference written"
                    )
    columns_in_order = [name for name in table.comparable if name in found or name in remarks]
    once = _once(
        connection, table, {name: found[name] for name in columns_in_order if name in found}
    )
    return once, [remarks[name] for name in columns_in_order if name not in found]


def _once(
    connection: duckdb.DuckDBPyConnection, table: Table, found: Mapping[str, Listed]
) -> dict[str, Listed]:
    """The columns, without those that name in every row the file that one before them names."""
    named = _named(connection, table, found) if len(found) > 1 else {}
    kept: dict[tuple[Any, ...], str] = {}
    for name, listed in found.items():
        kept.setdefault((listed.form.media, listed.backwards, named.get(name)), name)
    return {name: found[name] for name in kept.values()}


def _named(
    connection: duckdb.DuckDBPyConnection, table: Table, found: Mapping[str, Listed]
) -> dict[str, tuple[int, int]]:
    """What two columns share only if they name the same file in every row: a sum over rows and files."""
    by_form: dict[Form, list[str]] = defaultdict(list)
    for name, listed in found.items():
        by_form[listed.form].append(name)
    numbered = f"(SELECT *, row_number() OVER () AS r FROM {table.relation})"
    sums = {}
    for form, columns in by_form.items():
        for names in in_turn(columns):
            values = [f"CAST({table.sql[name]} AS VARCHAR)" for name in names]
            query = (
                "SELECT place, count(*), sum(hash(v1, file)) "
                f"FROM {stacked(numbered, values, ['r'] * len(names))} "
                f"JOIN {form.view} ON v0 = name GROUP BY place"
            )
            for place, *summed in connection.execute(query).fetchall():
                sums[names[place]] = tuple(summed)
    return sums


def _forms_of(column: str, table: Table) -> set[str]:
    """The forms in which a column may name files.

    1, 2, 3 name many things: of numbers, only `image_id` and the like are names of files.
    """
    said = {root(word) for word in words(column)}
    if table.comparable[column] == "number":
        return {"stem"} if said & _MEDIA_WORDS and said <= _MEDIA_WORDS | IDS else set()
    return {"filename", "fullpath", "path", *(["stem"] if said & _NAMING_WORDS else [])}
