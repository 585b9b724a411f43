"""Resources that are files of one folder, without fetching or archives: what scans read in tests."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import duckdb

from holdfast.data.croissant.document.model import Extract, Field, Source, Transform
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.scanning.columns import Column, Scan, extract_key
from holdfast.data.croissant.scanning.scans import open_scan
from holdfast.data.croissant.scanning.transforms import reads_content, value_sql


class LocalFiles:
    """Stands in for `Resources`; remembers what was asked for."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.opened: list[str] = []

    def fetch(self, members: Iterable[Member], *, partly: bool = False) -> None:
        self.fetched += [member.fullpath for member in members]

    def path(self, member: Member) -> Path:
        self.opened.append(member.fullpath)
        return Path(member.location)

    def paths(self, members: Sequence[Member], *, partly: bool = False) -> list[Path]:
        return [self.path(member) for member in members]

    def encoding(self, resource: str) -> str | None:
        return None

    def copied(self, key: tuple[Path, str], name: str, parts: Iterable[bytes]) -> Path:
        copy = key[0].with_name(f"{name}.utf8")
        copy.write_bytes(b"".join(parts))
        return copy

    def read(self, members: Sequence[Member]) -> Iterator[bytes]:
        for member in members:
            yield self.path(member).read_bytes()


def members_of(*paths: Path, root: Path | None = None) -> list[Member]:
    """Members for local files, as a FileSet would list them."""
    return [
        Member("files", path.relative_to(root).as_posix() if root else path.name, path)
        for path in paths
    ]


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


shared_connection = functools.cache(connect)
"""Opening a database takes longer than most queries here."""


def column(name: str) -> Extract:
    return Extract(at="/extract", column=name)


def file_property(name: str) -> Extract:
    return Extract(at="/extract", file_property=name)


def json_path(path: str) -> Extract:
    return Extract(at="/extract", json_path=path)


def step(**what: Any) -> Transform:
    return Transform(at="/transform", **what)


def field(
    name: str,
    *types: str,
    extract: Extract | None = None,
    transforms: Sequence[Transform] = (),
    format: str | None = None,
    **more: Any,
) -> Field:
    source = Source(
        at="/source", target="files", extract=extract, transforms=tuple(transforms), format=format
    )
    return Field(
        at="/field",
        id=f"r/{name}",
        key=f"r/{name}",
        short=name,
        data_types=types,
        source=source,
        **more,
    )


def scan_of(
    connection: duckdb.DuckDBPyConnection,
    members: Sequence[Member],
    formats: Sequence[str],
    *extracts: Extract,
    resources: LocalFiles | None = None,
    **more: Any,
) -> Scan:
    files = cast("Resources", resources or LocalFiles())
    return open_scan(connection, files, "files", formats, extracts, members, **more)


def rows_of(
    members: Sequence[Member],
    formats: Sequence[str],
    *fields: Field,
    lenient: bool = False,
) -> list[tuple[Any, ...]]:
    """The values of the fields, row by row in order; late columns as places of members."""
    connection = shared_connection()
    sources = [cast("Source", part.source) for part in fields]
    early = any(reads_content(*pair) for pair in zip(fields, sources, strict=True))
    with_keys = [cast("Extract", source.extract) for source in sources]
    lists = [
        extract_key(each) for each, part in zip(with_keys, fields, strict=True) if part.is_list
    ]
    scan = scan_of(connection, members, formats, *with_keys, early=early, lists=lists)
    try:
        made: list[Column] = []
        for part, source in zip(fields, sources, strict=True):
            raw = scan.columns[extract_key(source.extract)]
            value = value_sql(raw, part, source)
            made.append(replace(value, sql=f"TRY({value.sql})") if lenient else value)
        selected = ", ".join(f"{value.sql} AS v{place}" for place, value in enumerate(made))
        listed = ", ".join(f"v{place}" for place in range(len(made)))
        return connection.execute(
            f"SELECT {listed} FROM (SELECT {selected}, {scan.order} AS o FROM {scan.relation}) ORDER BY o"
        ).fetchall()
    finally:
        scan.close()
