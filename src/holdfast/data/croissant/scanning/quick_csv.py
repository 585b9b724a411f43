"""CSV read by Arrow's reader, which converts while it parses: half the work of DuckDB's reader and casts.

It is stricter (3.0 is no int64, a line with a value too few is an error) and says less about what is wrong.
So it is tried first, and where it fails the query runs again over `delimited.scan`, which decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.data.croissant.scanning.casting import NULL_WORDS
from holdfast.data.croissant.scanning.columns import Column, Key, Scan
from holdfast.data.croissant.scanning.delimited import Table, column_places, tables_of
from holdfast.data.croissant.scanning.opening import Opening, file_columns, fresh

if TYPE_CHECKING:
    import pyarrow as pa

MANY = 64
"""Files beyond this number are left to DuckDB, which opens them one after the other."""
_BLOCK = 1 << 20
_ARROW = {
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINTEGER": "uint32",
    "UBIGINT": "uint64",
    "FLOAT": "float",
    "DOUBLE": "double",
}
"""Types that Arrow's reader may convert to; everything else stays text."""


def scan(opening: Opening, kind: str) -> Scan | None:
    """CSV ("csv") or TSV ("tsv") files as a relation; None where only DuckDB's reader will do.

    Raises:
        InputError: as `delimited.scan`.
    """
    import pyarrow.dataset as ds

    wanted = opening.named("column")
    tables = tables_of(opening, kind, wanted)
    if opening.numbered or len(tables) > MANY or not all(map(_is_plain, tables)):
        return None
    types = [_ARROW.get(opening.types.get(("column", name), ""), "string") for name in wanted]
    closers: list[Callable[[], object]] = []
    parts = []
    for member, (table, path) in enumerate(zip(tables, opening.paths, strict=True)):
        places = column_places(opening, table, wanted, member)
        name = fresh("csv")
        schema = _schema(places, types)
        made = ds.dataset(str(path), format=_format(table, schema), schema=schema)
        opening.connection.register(name, made)
        closers.append(partial(opening.connection.unregister, name))
        values = [
            f"{_value(place, type_)} AS w{i}"
            for i, (place, type_) in enumerate(zip(places, types, strict=True))
        ]
        parts.append(f"SELECT {', '.join(values)}, CAST({member} AS BIGINT) AS member FROM {name}")
    columns: dict[Key, Column] = {
        ("column", name): Column(
            f"w{i}", opening.types[("column", name)] if type_ != "string" else "VARCHAR"
        )
        for i, (name, type_) in enumerate(zip(wanted, types, strict=True))
    }
    columns |= file_columns(opening.members, "member")
    return Scan(
        f"({' UNION ALL '.join(parts)})",
        columns,
        opening.members,
        order="row_number() OVER ()",
        closers=closers,
    )


def _is_plain(table: Table) -> bool:
    # In a table of one column an empty line is a record; Arrow would pass over it.
    return table.packed == "none" and table.encoding == "utf-8" and len(table.names) > 1


def _schema(places: Sequence[int], types: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    named = {f"c{place}": type_ for place, type_ in zip(places, types, strict=True)}
    return pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in named.items()])


def _format(table: Table, schema: pa.Schema) -> object:
    import pyarrow.csv
    import pyarrow.dataset as ds

    return ds.CsvFileFormat(
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=table.separator, newlines_in_values=True, ignore_empty_lines=True
        ),
        read_options=pyarrow.csv.ReadOptions(
            column_names=[f"c{place}" for place in range(len(table.names))],
            skip_rows=table.header_lines,
            block_size=_BLOCK,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=schema, null_values=list(NULL_WORDS), strings_can_be_null=False
        ),
    )


def _value(place: int, type_: str) -> str:
    """A column as DuckDB takes it: empty text is no value; nor is what Arrow reads as NaN."""
    if type_ == "string":
        return f"NULLIF(c{place}, '')"
    if type_ in ("float", "double"):
        return f"CASE WHEN isnan(c{place}) THEN NULL ELSE c{place} END"
    return f"c{place}"
