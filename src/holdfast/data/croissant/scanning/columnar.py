"""Parquet, read by DuckDB, and Arrow IPC files (Feather), read by Arrow: columns that have types.

Of these, columns are read apart from each other, so who asks for some does not wait until all are compared
with a checksum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.data.croissant.scanning.columns import Column, Key, Scan
from holdfast.data.croissant.scanning.json_paths import member
from holdfast.data.croissant.scanning.local_paths import paths_sql
from holdfast.data.croissant.scanning.opening import Opening, file_columns, fresh, keep, read_as
from holdfast.data.croissant.scanning.sql_text import identifier

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERED = re.compile(r"_\d+$")
_VIRTUAL = {"filename", "file_index", "file_row_number"}


def scan_parquet(opening: Opening) -> Scan:
    """Parquet files as one relation, their columns put together by name.

    Raises:
        InputError: a column that no file has, a file that is no Parquet.
    """
    opening.partly = True
    relation = _parquet(opening)
    held = _held(opening, relation)
    _prove(opening, held)
    made: dict[Key, Column] = {
        ("column", name): _column(opening, held, name) for name in opening.named("column")
    }
    made |= file_columns(opening.members, "file_index")
    if {name.lower() for name in held} & _VIRTUAL:  # a column of that name hides DuckDB's own
        relation, order = _apart(opening), "row_number() OVER ()"
        made |= file_columns(opening.members, "croissant_member")
        made["fileProperty", "lineNumbers"] = Column("croissant_row", "BIGINT")
    else:
        order = _place(opening)
        made["fileProperty", "lineNumbers"] = Column("file_row_number", "BIGINT")
    return Scan(relation, made, opening.members, order=order)


def _prove(opening: Opening, held: Mapping[str, Column]) -> None:
    """Compare files of which every column is asked for with their checksums."""
    if set(held) <= set(opening.named("column")):
        opening.resources.fetch(opening.members)


def _parquet(opening: Opening, place: int | None = None) -> str:
    paths = opening.paths if place is None else [opening.paths[place]]
    together = "true" if len(paths) > 1 else "false"
    return (
        f"read_parquet({paths_sql(paths)}, union_by_name = {together}, hive_partitioning = false)"
    )


def _place(opening: Opening) -> str:
    """A row's place; in 32 bits where they suffice, for joined records are sorted by it."""
    if len(opening.paths) > 1:
        return "CAST(file_index AS BIGINT) * 1099511627776 + file_row_number"
    footer = f"parquet_file_metadata({paths_sql(opening.paths)})"
    with read_as("Parquet", opening):
        [[rows]] = opening.connection.execute(f"SELECT num_rows FROM {footer}").fetchall()
    return "CAST(file_row_number AS UINTEGER)" if rows < 2**32 else "file_row_number"


def _apart(opening: Opening) -> str:
    """The files one by one, where their own columns are called as DuckDB calls what counts rows."""
    parts = [
        f"SELECT *, CAST({place} AS BIGINT) AS croissant_member, "
        f"row_number() OVER () - 1 AS croissant_row FROM {_parquet(opening, place)}"
        for place in range(len(opening.members))
    ]
    return f"({' UNION ALL BY NAME '.join(parts)})"


def _held(opening: Opening, relation: str) -> dict[str, Column]:
    """The columns of Parquet files under their own names.

    Of two names that differ in nothing but case, DuckDB calls the second one otherwise (``A_1`` beside
    ``a``).
    """
    held = _described(opening, relation, "Parquet")
    if len(opening.paths) == 1 and any(_NUMBERED.search(name) for name in held):
        import pyarrow.parquet as pq

        names = pq.read_schema(opening.paths[0]).names
        if len(names) == len(held):
            return dict(zip(names, held.values(), strict=True))
    return held


def _described(opening: Opening, relation: str, what: str) -> dict[str, Column]:
    with read_as(what, opening):
        found = opening.connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {row[0]: Column(identifier(row[0]), row[1]) for row in found}


def _column(opening: Opening, held: Mapping[str, Column], name: str) -> Column:
    """A column by its name; else by a path of names, with "/" or ".", into structs."""
    if name in held:
        return held[name]
    for separator in ("/", "."):
        for cut in range(name.count(separator), 0, -1):
            parts = name.split(separator)
            top, rest = separator.join(parts[:cut]), parts[cut:]
            if top in held:
                return member(held[top], rest, name)
    raise opening.missing(name, list(held), opening.members[0], opening.paths[0])


def scan_arrow(opening: Opening) -> Scan:
    """Arrow IPC files as one relation; streams (as Hugging Face writes them) are copied into a table first.

    Raises:
        InputError: a column that a file does not have, a file that is no Arrow IPC.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    opening.partly = True
    closers: list[Callable[[], object]] = []
    parts = []
    held: dict[str, Column] = {}
    for place, path in enumerate(opening.paths):
        name = fresh("arrow")
        with read_as("Arrow IPC", opening):
            if _is_file(path):
                schema = _readable(pa.ipc.open_file(str(path)).schema)
                table = ds.dataset(str(path), schema=schema, format="ipc")
                opening.connection.register(name, table)
                closers.append(partial(opening.connection.unregister, name))
            else:
                stream = pa.ipc.open_stream(pa.memory_map(str(path)))
                schema = _readable(stream.schema)
                batches = (batch.cast(schema) for batch in stream)
                keep(opening, name, pa.RecordBatchReader.from_batches(schema, batches))
                closers.append(partial(opening.connection.execute, f"DROP TABLE IF EXISTS {name}"))
            described = _described(opening, name, "Arrow IPC")
            # Of two names that differ in nothing but case, the second one is another to DuckDB.
            held |= zip(schema.names, described.values(), strict=True)
        counted = ", row_number() OVER () - 1 AS croissant_row" if opening.numbered else ""
        parts.append(f"SELECT *, CAST({place} AS BIGINT) AS croissant_member{counted} FROM {name}")
    _prove(opening, held)
    made: dict[Key, Column] = {
        ("column", name): _column(opening, held, name) for name in opening.named("column")
    }
    made |= file_columns(opening.members, "croissant_member")
    made["fileProperty", "lineNumbers"] = Column("croissant_row", "BIGINT")
    return Scan(
        f"({' UNION ALL BY NAME '.join(parts)})",
        made,
        opening.members,
        order="row_number() OVER ()",
        closers=closers,
    )


def _readable(schema: pa.Schema) -> pa.Schema:
    """A schema with single precision for half precision, which DuckDB does not know."""
    import pyarrow as pa

    return pa.schema(
        [
            part.with_type(pa.float32()) if pa.types.is_float16(part.type) else part
            for part in schema
        ]
    )


def _is_file(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6) == b"ARROW1"


def names_of(opening: Opening, kind: str) -> dict[str, str]:
    """The columns of the files, with their DuckDB types."""
    if kind == "parquet":
        return {name: column.type for name, column in _held(opening, _parquet(opening)).items()}
    opened = scan_arrow(opening)
    held = _described(opening, opened.relation, "Arrow IPC")
    opened.close()
    return {name: held[name].type for name in held if name != "croissant_member"}
