"""CSV read by Arrow's reader, which converts while it parses: half the work of DuckDB's reader and casts.

It is stricter (3.0 is no int64, a line with a value too few is an error) and says less about what is wrong.
So it is tried first, and where it fails the query runs again over `delimited.scan`, which decides. Where it
is kinder, `clear_csv` sees to it that only DuckDB's is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.data.croissant.scanning.casting import NULL_WORDS
from holdfast.data.croissant.scanning.clear_csv import is_clear
from holdfast.data.croissant.scanning.columns import Column, Key, Scan
from holdfast.data.croissant.scanning.delimited import Table, column_places, tables_of
from holdfast.data.croissant.scanning.opening import Opening, file_columns, fresh

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow import csv

MANY = 64
"""Files beyond this number are left to DuckDB, which opens them one after the other."""
LARGE = 1 << 30
"""Bytes beyond which the look through the files that must come first would take too long."""
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
    "BOOLEAN": "bool",
}
"""Types that Arrow's reader may convert to; everything else stays text."""


def scan(opening: Opening, kind: str) -> Scan | None:
    """CSV ("csv") or TSV ("tsv") files as a relation; None where only DuckDB's reader will do.

    Raises:
        InputError: as `delimited.scan`.
    """
    wanted = opening.named("column")
    tables = tables_of(opening, kind, wanted)
    if opening.numbered or len(tables) > MANY or not all(map(_is_plain, tables)):
        return None
    types = [_ARROW.get(opening.types.get(("column", name), ""), "string") for name in wanted]
    integers = any("int" in type_ for type_ in types)
    if sum(path.stat().st_size for path in opening.paths) > LARGE or not all(
        is_clear(path, table.separator, hexadecimal=not integers)
        for path, table in zip(opening.paths, tables, strict=True)
    ):
        return None
    keys: list[Key] = [("column", name) for name in wanted]
    files = [
        File(path, table, dict(zip(keys, column_places(opening, table, wanted, i), strict=True)))
        for i, (path, table) in enumerate(zip(opening.paths, tables, strict=True))
    ]
    closers: list[Callable[[], object]] = []
    parts = []
    for member, file in enumerate(files):
        name = fresh("csv")
        opening.connection.register(name, file.dataset(dict(zip(keys, types, strict=True))))
        closers.append(partial(opening.connection.unregister, name))
        values = [
            f"{_value(file.places[key], type_)} AS w{i}"
            for i, (key, type_) in enumerate(zip(keys, types, strict=True))
        ]
        parts.append(f"SELECT {', '.join(values)}, CAST({member} AS BIGINT) AS member FROM {name}")
    columns = {
        key: Column(f"w{i}", "VARCHAR" if type_ == "string" else opening.types[key])
        for i, (key, type_) in enumerate(zip(keys, types, strict=True))
    }
    return Scan(
        f"({' UNION ALL '.join(parts)})",
        columns | file_columns(opening.members, "member"),
        opening.members,
        order="row_number() OVER ()",
        closers=closers,
        whole=partial(_whole, files, dict(zip(keys, types, strict=True))),
    )


@dataclass(frozen=True)
class File:
    """One file, and where the columns stand in it."""

    path: Path
    table: Table
    places: Mapping[Key, int]

    def dataset(self, types: Mapping[Key, str]) -> ds.Dataset:
        """The columns, read when they are asked for."""
        import pyarrow.dataset as ds

        read, parse, convert = self._options(types)
        format_ = ds.CsvFileFormat(read_options=read, parse_options=parse, convert_options=convert)
        return ds.dataset(str(self.path), format=format_, schema=self._schema(types))

    def columns(self, types: Mapping[Key, str]) -> dict[Key, pa.ChunkedArray]:
        """The columns, read now."""
        import pyarrow.csv

        read, parse, convert = self._options(types)
        convert.include_columns = [f"c{self.places[key]}" for key in types]
        found = pyarrow.csv.read_csv(self.path, read, parse, convert)
        return {key: _valued(found[f"c{self.places[key]}"]) for key in types}

    def _schema(self, types: Mapping[Key, str]) -> pa.Schema:
        import pyarrow as pa

        named = {f"c{self.places[key]}": type_ for key, type_ in types.items()}
        return pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in named.items()])

    def _options(
        self, types: Mapping[Key, str]
    ) -> tuple[csv.ReadOptions, csv.ParseOptions, csv.ConvertOptions]:
        from pyarrow import csv

        return (
            csv.ReadOptions(
                column_names=[f"c{place}" for place in range(len(self.table.names))],
                skip_rows=self.table.header_lines,
                block_size=_BLOCK,
            ),
            csv.ParseOptions(delimiter=self.table.separator, newlines_in_values=True),
            csv.ConvertOptions(
                column_types=self._schema(types),
                null_values=list(NULL_WORDS),
                strings_can_be_null=False,
                true_values=_words("true", "t", "yes", "y", "1"),
                false_values=_words("false", "f", "no", "n", "0"),
            ),
        )


def _whole(files: Sequence[File], types: Mapping[Key, str], keys: Sequence[Key]) -> pa.Table:
    """All rows of some columns, in their order; a key may stand there twice."""
    import pyarrow as pa

    names = [f"w{i}" for i in range(len(keys))]
    wanted = {key: types[key] for key in keys}
    tables = []
    for file in files:
        found = file.columns(wanted)
        tables.append(pa.Table.from_arrays([found[key] for key in keys], names))
    return pa.concat_tables(tables)


def _is_plain(table: Table) -> bool:
    # In a table of one column an empty line is a record; Arrow would pass over it.
    return table.packed == "none" and table.encoding == "utf-8" and len(table.names) > 1


def _words(*words: str) -> list[str]:
    return [form for word in words for form in {word, word.upper(), word.capitalize()}]


def _value(place: int, type_: str) -> str:
    """A column as DuckDB takes it: empty text is no value; nor is what Arrow reads as NaN."""
    if type_ == "string":
        return f"NULLIF(c{place}, '')"
    if type_ in ("float", "double"):
        return f"CASE WHEN isnan(c{place}) THEN NULL ELSE c{place} END"
    return f"c{place}"


def _valued(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same for a column that DuckDB does not see."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type):
        nothing = pc.equal(column, "")
    elif pa.types.is_floating(column.type):
        nothing = pc.is_nan(column)
    else:
        return column
    if not pc.any(nothing).as_py():
        return column
    return pc.if_else(nothing, pa.scalar(None, column.type), column)
