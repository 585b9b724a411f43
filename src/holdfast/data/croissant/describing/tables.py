"""Reading tables: which files are one table, what its columns are, and what they hold."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import duckdb

from holdfast.data.croissant.describing.arrow_shapes import (
    ARROW,
    PARQUET,
    arrow_shapes,
    read_schema,
)
from holdfast.data.croissant.describing.description import Note
from holdfast.data.croissant.describing.groups import Group, table_candidates, table_group
from holdfast.data.croissant.describing.json_shapes import (
    JSON,
    LINES,
    find_records,
    json_shapes,
    json_structure,
)
from holdfast.data.croissant.describing.long_numbers import exact, read_through
from holdfast.data.croissant.describing.places import Place
from holdfast.data.croissant.describing.querying import one_row
from holdfast.data.croissant.describing.shapes import Shape, Table
from holdfast.data.croissant.describing.text_columns import header_of, text_types
from holdfast.data.croissant.describing.walking import Files
from holdfast.data.croissant.document.model import Extract
from holdfast.data.croissant.scanning.casting import text
from holdfast.data.croissant.scanning.columns import Column, extract_key
from holdfast.data.croissant.scanning.json_layouts import layout_of
from holdfast.data.croissant.scanning.opening import Opening
from holdfast.data.croissant.scanning.scans import open_scan
from holdfast.errors import InputError

_KEPT = 256 << 20  # bytes of text files whose tables are kept in memory
_TYPED = (PARQUET, ARROW)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


class Tables:
    """Reads the tables of a dataset.

    Args:
        connection: what reads them; relations of tables live in it until it is closed.
        files: the dataset's.
        sample_rows: how many rows of each table are looked at; None for all.

    Attributes:
        notes: about files that cannot be read as what they are named for.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: Files,
        sample_rows: int | None = None,
    ) -> None:
        self._connection, self._files, self._sample = connection, files, sample_rows
        self._room, self._kept = _KEPT, count()
        self.notes: list[Note] = []
        self._encodings: dict[Place, str] = {}

    def read(self, places: Sequence[Place]) -> Iterator[Table]:
        """The tables in files, each as one or with others of the same columns."""
        for candidates in table_candidates(places):
            for group in self._of_one_kind(candidates):
                try:
                    yield from self._read(group)
                except (duckdb.Error, InputError, OSError, ValueError) as error:
                    for place in group:
                        self._unreadable(place, error)

    def _unreadable(self, place: Place, error: Exception) -> None:
        said = error.problem if isinstance(error, InputError) else str(error)
        first = said.strip().split("\n")[0] or type(error).__name__
        self.notes.append(
            Note(
                str(place),
                "unknown",
                f"cannot be read as a table, described as a file only: {first}",
            )
        )

    def _of_one_kind(self, candidates: Sequence[Place]) -> list[list[Place]]:
        """Files parted by their columns; those that cannot be read are noted."""
        kinds: dict[Any, list[Place]] = defaultdict(list)
        for place in candidates:
            try:
                kinds[self._columns(place)].append(place)
            except (duckdb.Error, InputError, OSError, ValueError) as error:
                self._unreadable(place, error)
        return list(kinds.values())

    def _opening(self, places: Sequence[Place]) -> Opening:
        """Text files, as they are opened to be loaded."""
        members = [self._files.member(place) for place in places]
        resource, resources = places[0].path, self._files.resources
        return Opening(self._connection, resources, resource, members, (), text=True)

    def _columns(self, place: Place) -> Any:
        """What two files must agree in to be one table."""
        encoding = self.encoding(place)
        if encoding in _TYPED:
            schema = read_schema(encoding, self._files.paths([place])[0])
            return tuple((field.name, str(field.type)) for field in schema)
        if encoding in (JSON, LINES):
            structure = json_structure(self._opening([place]), encoding)
            return encoding, tuple(
                (records.path, tuple(sorted(records.structure)) if records.path else ())
                for records in find_records(structure)
            )
        names = header_of(self._opening([place]), place.media_type)
        if not names:
            raise InputError("no header line", code="no-data")
        if any("\0" in name for name in names):
            raise InputError("not text: the first row has zero bytes", code="unreadable")
        if _are_values(names):
            raise InputError("no header: the first row holds values", code="no-data")
        if names[0].lower().startswith("sep="):
            raise InputError(
                "the first line is a separator directive for spreadsheets, not the header",
                code="unsupported",
            )
        return place.charset, names

    def encoding(self, place: Place) -> str:
        """A table's media type, by its content where its name is not enough."""
        if place not in self._encodings:
            found = place.encoding
            if found == JSON and layout_of(self._opening([place]), "json") == "newline_delimited":
                found = LINES
            self._encodings[place] = found
        return self._encodings[place]

    def _read(self, places: list[Place]) -> Iterator[Table]:
        """The tables of files that agree in their columns: one, or one for each list in a JSON file."""
        group = table_group(places)
        encoding = self.encoding(places[0])
        if encoding in _TYPED:
            path = self._files.paths(places)[0]
            shapes, remarks = arrow_shapes(read_schema(encoding, path))
            yield self._table(group, group.name, shapes, remarks)
        elif encoding in (JSON, LINES):
            lists = find_records(
                json_structure(self._opening(places), encoding), several=len(places) > 1
            )
            if not lists:
                raise InputError("no list of objects found", code="no-data")
            for records in lists:
                yield self._table(group, records.name or group.name, json_shapes(records))
        else:
            names = header_of(self._opening(places[:1]), places[0].media_type)
            shapes = tuple(Shape(name=name, column=name, data_types=("sc:Text",)) for name in names)
            yield self._table(group, group.name, shapes)

    def _table(
        self, group: Group, name: str, shapes: tuple[Shape, ...], remarks: Sequence[str] = ()
    ) -> Table:
        """Look at the rows: how many, what its texts are, how long its lists."""
        extracts = [
            Extract(at="", column=shape.column or None, json_path=shape.json_path or None)
            for shape in shapes
        ]
        encoding = self.encoding(group.places[0])
        scan = open_scan(
            self._connection,
            self._files.resources,
            group.places[0].path,
            (encoding,),
            extracts,
            [self._files.member(place) for place in group.places],
        )
        relation = scan.relation
        if self._sample is not None:
            relation = f"(SELECT * FROM {relation} LIMIT {self._sample})"
        size = sum(place.size for place in group.places)
        if encoding not in _TYPED and size <= self._room:
            # Every question would parse the text again.
            self._room -= size
            kept = f"kept_{next(self._kept)}"
            self._connection.execute(f"CREATE TEMP TABLE {kept} AS SELECT * FROM {relation}")
            relation = kept
        rows = one_row(self._connection, f"SELECT count(*) FROM {relation}")[0]
        columns = {
            shape.name: scan.columns[extract_key(extract)]
            for shape, extract in zip(shapes, extracts, strict=True)
        }
        if encoding not in _TYPED:
            shapes = self._typed(relation, shapes, columns, strings=encoding in (JSON, LINES))
        if encoding in (JSON, LINES):
            shapes = read_through(self._connection, relation, shapes, columns)
        elif encoding in _TYPED:
            shapes = exact(self._connection, relation, shapes, columns)
        complete = self._sample is None or rows < self._sample
        return Table(
            group=group,
            name=name,
            shapes=shapes,
            rows=rows,
            relation=relation,
            sql={
                shape.name: _comparable(
                    columns[shape.name], shape, strings=encoding in (JSON, LINES)
                )
                for shape in shapes
                if not (shape.parts or shape.sizes or shape.content)
            },
            complete=complete,
            remarks=tuple(remarks),
        )

    def _typed(
        self,
        relation: str,
        shapes: Sequence[Shape],
        columns: Mapping[str, Column],
        *,
        strings: bool,
    ) -> tuple[Shape, ...]:
        """Columns of text with the types that their values have."""
        written = {
            shape.name: text(columns[shape.name]).sql
            for shape in shapes
            if shape.data_types == ("sc:Text",) and not (shape.sizes or shape.remark)
        }
        found = text_types(self._connection, relation, written, strings=strings)
        return tuple(
            replace(
                shape,
                data_types=(found[shape.name].data_type,),
                format=found[shape.name].format,
                remark=found[shape.name].remark,
            )
            if shape.name in found
            else shape
            for shape in shapes
        )


def _are_values(names: Iterable[str]) -> bool:
    """Whether what stands where headers should is a row of values: numbers that do not ascend.

    Years, and numbers of classes or wavelengths in a row, are headers.
    """
    given = [name for name in names if not name.startswith("Unnamed: ")]
    numbers = [float(name) for name in given if _NUMBER.fullmatch(name)]
    years = [int(name) for name in given if re.fullmatch(r"[12]\d{3}", name)]
    if given and len(numbers) == len(given):
        return len(years) < len(given) or years != sorted(set(years))
    return len(years) < len(numbers) and numbers != sorted(set(numbers))


def _comparable(column: Column, shape: Shape, *, strings: bool) -> str:
    """A column's values as keys are compared: numbers, or texts that are not empty."""
    if column.type not in ("VARCHAR", "JSON"):
        return text(column).sql if shape.data_types[0] == "sc:Text" else column.sql
    if shape.is_number:
        return f"TRY_CAST({text(column).sql} AS BIGINT)"
    return text(column).sql if strings else f"nullif({column.sql}, '')"
