"""What a resource looks like to DuckDB: a relation to select from, expressions, names and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.data.croissant.document.model import Extract
from holdfast.data.croissant.files.members import Member
from holdfast.tables import literal

Key = tuple[str, str]
"""What is extracted, as a key: ("column", name), ("fileProperty", name), ("jsonPath", path)."""

CONTENT: Key = ("fileProperty", "content")
MEMBER: Key = ("member", "")
"""Not an extract: the place in `Scan.members` of the file that a row comes from (BIGINT, from 0)."""


def extract_key(extract: Extract | None) -> Key:
    """The key of an extract in `Scan.columns`; a source without one means the bytes of its files."""
    if extract is not None and extract.column is not None:
        return "column", extract.column
    if extract is not None and extract.json_path is not None:
        return "jsonPath", extract.json_path
    if extract is not None and extract.file_property is not None:
        return "fileProperty", extract.file_property
    return CONTENT


@dataclass(frozen=True)
class Column:
    """A value of each row.

    Attributes:
        sql: an expression over the relation; one that stands in SELECT, WHERE and ON alike.
        type: its DuckDB type, such as VARCHAR, BIGINT, STRUCT(...), JSON.
        late: the value is a file's bytes, read after the query: `sql` then gives its place in
            `Scan.members` (BIGINT, from 0), and `type` what it becomes: BLOB, or VARCHAR for text.
    """

    sql: str
    type: str
    late: bool = False


@dataclass
class Scan:
    """A resource as DuckDB reads it: lazily, only the columns and rows that the query needs.

    Attributes:
        relation: what stands after FROM; it needs no alias, and its columns none either.
        columns: a column for every extract that was asked for; fullpath, filename and `MEMBER` always.
        members: the files, in the order in which their rows come.
        order: an expression for a SELECT list straight over the relation, whose values grow along the
            resource: BIGINT; it may be a window function, so WHERE and ON cannot use it.
        closers: what `close` calls, such as the dropping of a table of lines.
        kind: how files are read: csv, tsv, parquet, jsonl, json, arrow, lines; "" for whole files.
        paths: local copies of the members, where they were needed.
        remarks: what a reader should know of the columns that were asked for; computed when called.
    """

    relation: str
    columns: dict[Key, Column]
    members: list[Member]
    order: str | None = None
    closers: list[Callable[[], object]] = field(default_factory=list, repr=False)
    kind: str = ""
    paths: list[Path] = field(default_factory=list, repr=False)
    remarks: Callable[[], list[str]] = field(default=list, repr=False)

    def close(self) -> None:
        """Give back what the scan holds: tables of the connection, open files."""
        while self.closers:
            self.closers.pop()()


def identifier(name: str) -> str:
    """A name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def texts(values: Iterable[str]) -> str:
    """Texts as a list constant."""
    return "[" + ", ".join(map(literal, values)) + "]"
