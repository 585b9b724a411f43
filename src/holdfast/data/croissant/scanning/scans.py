"""Opens a resource's files as something that DuckDB reads lazily."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from holdfast.data.croissant.document.model import Extract
from holdfast.data.croissant.document.vocabulary import format_of
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.scanning import (
    columnar,
    delimited,
    json_files,
    listed_files,
)
from holdfast.data.croissant.scanning.columns import CONTENT, MEMBER, Column, Key, Scan, extract_key
from holdfast.data.croissant.scanning.opening import Opening
from holdfast.errors import InputError

if TYPE_CHECKING:
    import duckdb

_READ = {"csv", "tsv", "parquet", "jsonl", "json", "arrow", "text"}
_TEXTS = {"csv", "tsv", "json", "jsonl"}
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".geojson": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "text",
}
_PACKED = {".gz", ".zst", ".bz2", ".xz"}


def open_scan(
    connection: duckdb.DuckDBPyConnection,
    resources: Resources,
    resource_id: str,
    formats: Sequence[str],
    extracts: Sequence[Extract | None],
    members: Sequence[Member],
    *,
    types: Mapping[Key, str] | None = None,
    lists: Collection[Key] = (),
    early: bool = False,
) -> Scan:
    """A resource as a relation that has what the fields extract.

    Files are fetched where their inside is needed: for columns, JSONPaths and lines, not for paths and
    content.

    Args:
        connection: DuckDB with TimeZone UTC; what the scan makes in it goes with `Scan.close`.
        resources: the files.
        resource_id: the FileObject or FileSet.
        formats: its encodingFormats; where none says how to read columns, the file's suffix does.
        extracts: what the fields take out of it.
        members: its files, those that the query may need.
        types: DuckDB types that columns become without a transform, where that is known: a hint.
        lists: what becomes one list in each record: a JSONPath may then find any number of values there.
        early: the query computes with the content of files (`transforms.reads_content`).

    Raises:
        InputError: no such column, files that are not of their format, extracts that do not go together.
    """
    keys = [extract_key(extract) for extract in extracts]
    opening = Opening(connection, resources, resource_id, list(members), keys, types or {}, lists)
    properties = set(opening.named("fileProperty"))
    unknown = properties - {"fullpath", "filename", "content", "lines", "lineNumbers"}
    if unknown:
        raise InputError(
            f"files have no property {min(unknown)!r}",
            code="unknown-name",
            place=f"resource {resource_id!r}",
            expected="fullpath, filename, content, lines or lineNumbers",
        )
    columns, paths = opening.named("column"), opening.named("jsonPath")
    if (columns or paths) and "lines" in properties:
        raise InputError(
            f"resource {resource_id!r} is read both as lines of text and as a table",
            code="conflict",
            found=f"lines, and {(columns or paths)[0]!r}",
            expected="one of them in all fields of a record set that read the same files",
        )
    if early and (columns or paths or properties & {"lines", "lineNumbers"}):
        raise InputError(
            f"resource {resource_id!r} is read both in rows and as whole files",
            code="conflict",
            expected="one of them in all fields of a record set that read the same files",
        )
    if not opening.members:
        return _empty(opening)
    if not (columns or paths or properties & {"lines", "lineNumbers"}):
        return listed_files.scan_files(opening, early=early)
    if not columns and not paths:
        opening.text = True
        opened = listed_files.scan_lines(opening)
        opened.kind, opened.paths = "lines", opening.paths
        return opened
    kind = kind_of(formats, opening.members[0], json=not columns)
    opening.text = kind in _TEXTS
    if kind == "parquet" and not paths:
        opened = columnar.scan_parquet(opening)
    elif kind == "arrow" and not paths:
        opened = columnar.scan_arrow(opening)
    elif kind in ("json", "jsonl"):
        opened = json_files.scan(opening, kind)
    elif kind in ("csv", "tsv") and not paths:
        opened = delimited.scan(opening, kind)
    else:
        raise InputError(
            f"resource {resource_id!r} is not {'JSON' if paths else 'a table'}",
            code="unknown-format",
            path=opening.members[0].fullpath,
            found=", ".join(formats) or "no encodingFormat",
            expected="JSON or JSON Lines"
            if paths
            else "CSV, TSV, Parquet, JSON, JSON Lines or Arrow",
            remedy="state the encodingFormat of what the files hold",
        )
    opened.kind, opened.paths = kind, opening.paths
    opened.columns[CONTENT] = Column(opened.columns[MEMBER].sql, "BLOB", late=True)
    return opened


def _empty(opening: Opening) -> Scan:
    """No files: no rows, with every column that was asked for."""
    listed = listed_files.scan_files(opening, early=False)
    for key in opening.keys:
        listed.columns.setdefault(key, Column("CAST(NULL AS VARCHAR)", "VARCHAR"))
    return listed


def kind_of(formats: Sequence[str], member: Member, *, json: bool = False) -> str:
    """How a file is read: csv, tsv, parquet, jsonl, json, arrow or text.

    Args:
        formats: what the description says; of text/plain and the unknown the suffix decides.
        member: the file.
        json: JSON is wanted, where nothing else decides.
    """
    named_formats = [format_of(text) or "" for text in formats]
    said = [kind for kind in named_formats if kind in _READ]
    suffixes = [part.lower() for part in PurePosixPath(member.fullpath).suffixes]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    seen = _SUFFIXES.get(suffixes[-1], "") if suffixes else ""
    if "json" in said and seen == "jsonl":
        return "jsonl"
    named = next((kind for kind in said if kind and kind != "text"), "")
    if named or (seen and seen != "text"):
        return named or seen
    return "json" if json else "csv" if "text" in (*said, seen) else "text"


def column_names(
    connection: duckdb.DuckDBPyConnection,
    resources: Resources,
    resource_id: str,
    formats: Sequence[str],
    members: Sequence[Member],
    columns: Sequence[str] = (),
) -> dict[str, str]:
    """The columns of a table as `extract.column` takes them, with their DuckDB types; none of other files.

    Args:
        connection: DuckDB.
        resources: the files.
        resource_id: the FileObject or FileSet.
        formats: its encodingFormats.
        members: its files.
        columns: columns that somebody asks for: of a text table, they tell the separator.

    Raises:
        InputError: files that are not of their format.
    """
    opening = Opening(connection, resources, resource_id, list(members), ())
    kind = kind_of(formats, opening.members[0])
    opening.text = kind in _TEXTS
    if kind in ("parquet", "arrow"):
        return columnar.names_of(opening, kind)
    if kind in ("json", "jsonl"):
        return json_files.names_of(opening, kind)
    return delimited.names_of(opening, kind, columns) if kind in ("csv", "tsv") else {}
