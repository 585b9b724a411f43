"""Parquet, read by DuckDB, and Arrow IPC files (Feather), read by Arrow: columns that have types.

Of these, columns are read apart from each other, so who asks for some does not wait until all are compared
with a checksum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.scanning.casting import INTEGERS, ZONES
from holdfast.data.croissant.scanning.columns import Column, Key, Scan, identifier
from holdfast.data.croissant.scanning.json_paths import member
from holdfast.data.croissant.scanning.local_paths import engine_path, paths_sql
from holdfast.data.croissant.scanning.nested import element
from holdfast.data.croissant.scanning.opening import Opening, file_columns, fresh, keep, read_as
from holdfast.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_NUMBERED = re.compile(r"_\d+$")
_VIRTUAL = {"filename", "file_index", "file_row_number"}


@dataclass(frozen=True)
class _Part:
    """Files of one schema that stand next to each other.

    Attributes:
        relation: what stands after FROM.
        columns: name -> column.
        first: the place of the first file among the members.
        member: the expression of a row's file, as a place among the members.
        row: the expression of its place in that file.
    """

    relation: str
    columns: Mapping[str, Column]
    first: int
    member: str
    row: str


def scan_parquet(opening: Opening) -> Scan:
    """Parquet files as one relation.

    Raises:
        InputError: a column that is missing from a file, or has another type than in the others; a file
            that is not Parquet.
    """
    opening.partly = True
    parts = _parquet_parts(opening)
    _prove(opening, parts)
    _refuse_lost_nanoseconds(opening)
    if len(parts) > 1 or "file_index" not in parts[0].member:
        return _together(opening, parts, [])
    made = _columns(opening, parts[0]) | file_columns(opening.members, "file_index")
    made["fileProperty", "lineNumbers"] = Column("file_row_number", "BIGINT")
    return Scan(parts[0].relation, made, opening.members, order=_place(opening))


def _parquet_parts(opening: Opening) -> list[_Part]:
    """The files by schema: DuckDB reads those of one part together, by the columns of the first."""
    alike = [list(range(len(opening.paths)))]
    if len(opening.paths) > 1:
        import pyarrow.parquet as pq

        with read_as("Parquet", opening):
            schemas = enumerate(pq.read_schema(path) for path in opening.paths)
            alike = [[n for n, _ in some] for _, some in groupby(schemas, key=lambda one: one[1])]
    parts = []
    for places in alike:
        columns = _held(opening, places[0])
        if {name.lower() for name in columns} & _VIRTUAL:
            # A column of that name hides DuckDB's own, so the files are read one by one.
            count = "row_number() OVER () - 1"
            parts += [
                _Part(_parquet(opening, [place]), columns, place, str(place), count)
                for place in places
            ]
        else:
            member = f"CAST(file_index AS BIGINT) + {places[0]}"
            relation = _parquet(opening, places)
            parts.append(_Part(relation, columns, places[0], member, "file_row_number"))
    return parts


def _together(
    opening: Opening, parts: Sequence[_Part], closers: list[Callable[[], object]]
) -> Scan:
    """Parts with their own schemas as one relation of the columns that are wanted.

    Raises:
        InputError: a column that a part does not have, or whose types in two parts have nothing in common.
    """
    names = opening.named("column")
    found = [_columns(opening, part) for part in parts]
    as_text = {name for name in names if _as_text(opening, name, parts, found)}
    selects = []
    for part, columns in zip(parts, found, strict=True):
        values = [
            f"CAST({sql} AS VARCHAR)" if name in as_text else sql
            for name in names
            for sql in [columns["column", name].sql]
        ]
        chosen = [f"{sql} AS w{place}" for place, sql in enumerate(values)]
        chosen += [f"CAST({part.member} AS BIGINT) AS croissant_member"]
        chosen += [f"CAST({part.row} AS BIGINT) AS croissant_row"]
        selects.append(f"SELECT {', '.join(chosen)} FROM {part.relation}")
    relation = f"({' UNION ALL '.join(selects)})"
    types = list(_described(opening, relation, "a table").values())
    made: dict[Key, Column] = {
        ("column", name): column for name, column in zip(names, types, strict=False)
    }
    made |= file_columns(opening.members, "croissant_member")
    made["fileProperty", "lineNumbers"] = Column("croissant_row", "BIGINT")
    order = "croissant_member * 1099511627776 + croissant_row"
    return Scan(relation, made, opening.members, order=order, closers=closers)


def _columns(opening: Opening, part: _Part) -> dict[Key, Column]:
    return {("column", name): _column(opening, part, name) for name in opening.named("column")}


def _as_text(
    opening: Opening,
    name: str,
    parts: Sequence[_Part],
    found: Sequence[Mapping[Key, Column]],
) -> bool:
    """Whether a column is put together as text: of whole and other numbers, DOUBLE would round some.

    Raises:
        InputError: its types have nothing in common.
    """
    families: dict[str, tuple[int, str]] = {}
    for part, columns in zip(parts, found, strict=True):
        kind = columns["column", name].type
        if '"NULL"' not in kind:  # of a file without a value, the type says nothing
            families.setdefault(_family(kind), (part.first, kind))
    if len(families) < 2:
        return set(families) == {"text"}
    if set(families) <= {"integer", "float", "decimal"}:
        return True
    (one, first), (other, second) = list(families.values())[:2]
    raise InputError(
        f"the column {name!r} is of different types in the files of resource {opening.resource!r}",
        code="conflict",
        path=opening.members[other].fullpath,
        place=f"column {name!r}",
        found=f"{second}, and {first} in {opening.members[one].fullpath}",
        expected="one type in all files",
        remedy="write the files with one type, or describe them as two sets",
    )


def _family(kind: str) -> str:
    """Types whose values DuckDB puts together without loss have one family."""
    if inner := element(kind):
        return f"{_family(inner)}[]"
    if kind in INTEGERS:
        return "integer"
    if kind == "VARCHAR" or kind.startswith("ENUM("):
        return "text"
    if kind in ("FLOAT", "DOUBLE"):
        return "float"
    if kind.startswith("DECIMAL("):
        return "decimal"
    if kind in ZONES:
        return "TIMESTAMPTZ"
    return kind.partition("_")[0] if kind.startswith("TIME") else kind


def _prove(opening: Opening, parts: Sequence[_Part]) -> None:
    """Compare files of which every column is asked for with their checksums."""
    if {name for part in parts for name in part.columns} <= set(opening.named("column")):
        opening.resources.fetch(opening.members)


def _refuse_lost_nanoseconds(opening: Opening) -> None:
    """Refuse times in INT96 that are not whole microseconds: DuckDB would cut them.

    INT96 is an old type of Spark and Impala. Its columns are read once more for this.

    Raises:
        InputError: naming the first such value.
    """
    footers = f"parquet_schema({paths_sql(opening.paths)})"
    query = f"SELECT DISTINCT file_name FROM {footers} WHERE type = 'INT96'"
    with read_as("Parquet", opening):
        held = {name for (name,) in opening.connection.execute(query).fetchall()}
        wanted = {re.split("[/.]", name)[0] for name in opening.named("column")}
        for path, member in zip(opening.paths, opening.members, strict=True):
            if str(engine_path(path)) in held:
                _refuse_lost_in(path, member, wanted)


def _refuse_lost_in(path: Path, member: Member, wanted: Collection[str]) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    units = [pq.ParquetFile(path, coerce_int96_timestamp_unit=unit) for unit in ("ns", "us")]
    schema = units[0].schema
    leaves = [schema.column(place) for place in range(len(schema.names))]
    for leaf in leaves:
        if leaf.physical_type != "INT96" or leaf.path.split(".")[0] not in wanted:
            continue
        row = 0
        for batches in zip(
            *(part.iter_batches(columns=[leaf.path]) for part in units), strict=True
        ):
            fine, coarse = (_integers(batch.column(0)) for batch in batches)
            # Both wrap alike beyond 2262, where nanoseconds of 64 bits end.
            lost = np.flatnonzero(fine != coarse * 1000)
            if lost.size:
                raise InputError(
                    "times in INT96 have nanoseconds, which cannot be read",
                    code="unsupported",
                    path=member.fullpath,
                    place=f"column {leaf.path!r}, value {row + int(lost[0]) + 1}",
                    found=str(np.datetime64(int(fine[lost[0]]), "ns")),
                    expected="whole microseconds, or a column of type TIMESTAMP in nanoseconds",
                    remedy="write the file with pyarrow, which has written that type since version 6",
                )
            row += len(fine)


def _integers(times: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The times in lists and structs as 64-bit integers, missing ones as 0."""
    import pyarrow as pa

    while not pa.types.is_timestamp(times.type):
        is_struct = pa.types.is_struct(times.type)
        times = times.flatten()[0] if is_struct else times.flatten()
    whole: np.ndarray[Any, np.dtype[np.int64]]
    whole = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return whole


def _parquet(opening: Opening, places: Sequence[int]) -> str:
    paths = [opening.paths[place] for place in places]
    return f"read_parquet({paths_sql(paths)}, hive_partitioning = false)"


def _place(opening: Opening) -> str:
    """A row's place; in 32 bits where they suffice, for joined records are sorted by it."""
    if len(opening.paths) > 1:
        return "CAST(file_index AS BIGINT) * 1099511627776 + file_row_number"
    footer = f"parquet_file_metadata({paths_sql(opening.paths)})"
    with read_as("Parquet", opening):
        [[rows]] = opening.connection.execute(f"SELECT num_rows FROM {footer}").fetchall()
    return "CAST(file_row_number AS UINTEGER)" if rows < 2**32 else "file_row_number"


def _held(opening: Opening, place: int) -> dict[str, Column]:
    """The columns of a Parquet file under their own names.

    Of two names that differ in nothing but case, DuckDB calls the second one otherwise (``A_1`` beside
    ``a``).
    """
    held = _described(opening, _parquet(opening, [place]), "Parquet")
    if any(_NUMBERED.search(name) for name in held):
        import pyarrow.parquet as pq

        names = pq.read_schema(opening.paths[place]).names
        if len(names) == len(held):
            _refuse_repeated(opening, names, place)
            return dict(zip(names, held.values(), strict=True))
    return held


def _refuse_repeated(opening: Opening, names: Sequence[str], place: int) -> None:
    """Refuse a wanted column if the file has several of that name: none of them can be addressed."""
    for name in opening.named("column"):
        if names.count(name) > 1:
            raise InputError(
                "the file has several columns of one name",
                code="duplicate",
                path=opening.members[place].fullpath,
                place=f"column {name!r}",
                found=f"{names.count(name)} columns",
                expected="one",
                remedy="rename the columns in the file",
            )


def _described(opening: Opening, relation: str, what: str) -> dict[str, Column]:
    with read_as(what, opening):
        found = opening.connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {row[0]: Column(identifier(row[0]), row[1]) for row in found}


def _column(opening: Opening, part: _Part, name: str) -> Column:
    """A column by its name; else by a path of names, with "/" or ".", into structs."""
    held = part.columns
    if name in held:
        return held[name]
    for separator in ("/", "."):
        for cut in range(name.count(separator), 0, -1):
            names = name.split(separator)
            top, rest = separator.join(names[:cut]), names[cut:]
            if top in held:
                try:
                    return member(held[top], rest, name)
                except InputError as error:
                    raise InputError(
                        error.problem,
                        code="missing-column",
                        path=opening.members[part.first].fullpath,
                        place=f"column {name!r}",
                        found=error.found,
                        remedy=error.remedy,
                    ) from error
    raise opening.missing(name, list(held), opening.members[part.first], opening.paths[part.first])


def scan_arrow(opening: Opening) -> Scan:
    """Arrow IPC files as one relation; streams (as Hugging Face writes them) are copied into a table first.

    Raises:
        InputError: as `scan_parquet`.
    """
    opening.partly = True
    parts, closers = _arrow_parts(opening)
    _prove(opening, parts)
    return _together(opening, parts, closers)


def _arrow_parts(opening: Opening) -> tuple[list[_Part], list[Callable[[], object]]]:
    import pyarrow as pa
    import pyarrow.dataset as ds

    closers: list[Callable[[], object]] = []
    parts = []
    count = "row_number() OVER () - 1"
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
            _refuse_repeated(opening, schema.names, place)
            # Of two names that differ in nothing but case, the second one is another to DuckDB.
            described = _described(opening, name, "Arrow IPC").values()
            held = dict(zip(schema.names, described, strict=True))
        parts.append(_Part(name, held, place, str(place), count))
    return parts, closers


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
    """The columns that any of the files has, with their DuckDB types there."""
    closers: list[Callable[[], object]] = []
    if kind == "parquet":
        parts = _parquet_parts(opening)
    else:
        parts, closers = _arrow_parts(opening)
    for close in closers:
        close()
    return {name: column.type for part in reversed(parts) for name, column in part.columns.items()}
