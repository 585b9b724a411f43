"""Columns from a table beside the images, joined by the images' ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from holdfast.data.records.format.block import check_columns
from holdfast.data.records.sources.columns import LABEL, Columns, Kind, plain_type
from holdfast.data.records.sources.example import Example, Options, Source, check_ids, check_range
from holdfast.data.records.sources.values import json_object_of, text_of
from holdfast.errors import InputError
from holdfast.numbers import counted

FILE_NAME = "file_name"
"""The column in which a table of columns says whose image a row is."""
KEYS = (FILE_NAME, "id")
TABLES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""A folder of images may keep its columns in one of these, as the `datasets` library has it."""
_READERS = ("csv", "tsv", "jsonl", "ndjson", "parquet")
_BATCH = 64  # rows made Python values at a time


class Joined:
    """A source with the columns of a table added; the table's values replace those of the same name.

    Args:
        source: the images.
        given: a table in which a column `file_name` or `id` says which image each row belongs to.
            Beside a `file_name`, an `id` becomes the image's id.
        options: which column becomes the label, which are left out.
    """

    def __init__(self, source: Source, given: Table, options: Options) -> None:
        self._source = source
        table, rows = given.path, given.rows
        key = next((key for key in KEYS if any(key in row for row in rows)), None)
        if key is None:
            raise InputError(
                "this table does not say which image a row belongs to",
                code="missing-column",
                path=table,
                found=", ".join(rows[0]) if rows else "no row",
                expected="a column `id` or `file_name`",
            )
        columns = Columns(options, table)
        for name, kind in given.kinds or ():
            if name not in (key, "id"):
                for final in columns.renamed({name: kind}):
                    columns.declare(final, kind, table, f"column {name}")
        numbers: dict[str, int] = {}
        new_ids: list[str | None] = []
        for number, row in enumerate(rows):
            place = f"row {number + 1}"
            id_ = row.pop(key, None)
            if id_ is None or str(id_) in numbers:
                raise InputError(
                    "an image has two rows" if id_ is not None else "a row names no image",
                    code="duplicate",
                    path=table,
                    place=place,
                    found=repr(id_),
                    expected=f"every {key} once",
                )
            numbers[str(id_)] = number
            new_ids.append(columns.take_id(row, table, place))
            if given.kinds is None:
                columns.see(row, table, place)
            else:
                for name, value in columns.renamed(row).items():
                    columns.check(name, value, table, place)
        added = columns.settle()
        check_columns(added)
        self._names = added.names
        # A row of nulls at the end, for images without one.
        values = [*(columns.values(row) for row in rows), dict.fromkeys(self._names)]
        self._table = pa.Table.from_pylist(values, schema=added)
        self._match(numbers, table, key)
        self._ids = [
            new_ids[row] or id_ if row < len(rows) else id_
            for row, (id_, _) in zip(self._row_of, source.ids_and_sizes(), strict=True)
        ]
        check_ids(self._ids, None, table)
        kept = [field for field in source.schema if field.name not in self._names]
        fields = sorted([*added, *kept], key=lambda field: (field.name != LABEL, field.name))
        self.schema: pa.Schema = pa.schema(fields)

    def _match(self, numbers: dict[str, int], table: Path, key: str) -> None:
        """Find the row of every image."""
        missing = len(self._table) - 1
        rows = [numbers.pop(id_, missing) for id_, _ in self._source.ids_and_sizes()]
        self._row_of = np.array(rows, np.int64)
        found = int(np.count_nonzero(self._row_of != missing))
        example, _ = next(self._source.ids_and_sizes())
        other = next(iter(numbers), None)
        if not found:
            raise InputError(
                "no row of this table belongs to an image",
                code="no-match",
                path=table,
                place=f"column {key}",
                found=repr(other),
                expected=f"ids such as {example!r}",
            )
        # The table is one of the folder's files that are no images.
        self.ignored = [
            one for one in self._source.ignored if not f"/{table}".endswith(f"/{one[0]}")
        ]
        if numbers:
            self.ignored.append(
                (
                    table.name,
                    f"{counted(len(numbers), 'row belongs', 'rows belong')} to no image, such as {other!r}",
                )
            )
        if found < len(rows):
            self.ignored.append(
                (table.name, f"no row for {counted(len(rows) - found, 'image')}: null there")
            )

    def __len__(self) -> int:
        """How many images there are."""
        return len(self._source)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """The id and the bytes of every image, in order."""
        sizes = (size for _, size in self._source.ids_and_sizes())
        return zip(self._ids, sizes, strict=True)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The images with the numbers from `start` to before `stop`, with the table's columns."""
        check_range(start, stop, len(self))
        for first in range(start, stop, _BATCH):
            last = min(first + _BATCH, stop)
            rows = self._table.take(self._row_of[first:last]).to_pylist()
            examples = self._source.read(first, last)
            for id_, added, example in zip(self._ids[first:last], rows, examples, strict=True):
                values = {**example.columns, **added}
                yield Example(id_, example.data, {name: values[name] for name in self.schema.names})


@dataclass(frozen=True)
class Table:
    """A table of columns as it was read."""

    path: Path
    rows: list[dict[str, Any]]
    kinds: Sequence[tuple[str, Kind]] | None
    """The columns and their types, where the table says them (Parquet) or one was found for all (CSV)."""


def own_table(folder: Path) -> Table | None:
    """The table that a folder of images keeps, else those that the folders in it keep, as one.

    There a `file_name` starts at the folder of its table, as in the `datasets` library.
    """
    if own := next((folder / name for name in TABLES if (folder / name).is_file()), None):
        return read_table(own)
    for name in TABLES:
        tables = []
        for path in sorted(folder.rglob(name)):
            start, table = path.parent.relative_to(folder).as_posix(), read_table(path)
            if "/." in f"/{start}" or not any(FILE_NAME in row for row in table.rows):
                continue  # hidden, or about something else
            for row in table.rows:
                row[FILE_NAME] = row.get(FILE_NAME) and f"{start}/{row[FILE_NAME]}"
            tables.append(table)
        if tables:
            rows = [row for table in tables for row in table.rows]
            kinds = [pair for table in tables for pair in table.kinds or ()]
            return Table(
                tables[0].path if len(tables) == 1 else folder / "*" / name, rows, kinds or None
            )
    return None


def read_table(path: Path) -> Table:
    """Read CSV or TSV (header in the first line), JSON lines or Parquet.

    Raises:
        InputError: if it is another format, or damaged.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in _READERS:
        raise InputError(
            "unknown format of a table of columns",
            code="unknown-format",
            path=path,
            found=path.suffix or "no suffix",
            expected=", ".join(f".{reader}" for reader in _READERS),
        )
    try:
        if suffix in ("jsonl", "ndjson"):
            rows = [json_object_of(text, path, place) for text, place in _lines(path)]
            return Table(path, rows, None)
        if suffix == "parquet":
            table = pa.parquet.read_table(path)
        else:
            table = _csv(path, "\t" if suffix == "tsv" else ",")
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            "the table cannot be read", code="unreadable", path=path, found=str(error)
        ) from error
    twice = next((name for name, n in Counter(table.column_names).items() if n > 1), None)
    if twice is not None:
        raise InputError("a column is there twice", code="duplicate", path=path, found=twice)
    kinds = [(column.name, Kind(plain_type(column.type))) for column in table.schema]
    return Table(path, table.to_pylist(), kinds)


# What a number would not give back: 007, and more digits than a float holds.
_LOSSY = {pa.int64(): r"^[+-]?0[0-9]", pa.float64(): r"^[+-]?(0[0-9]|[0-9]{16,}$)"}


def _csv(path: Path, delimiter: str) -> pa.Table:
    """Columns of numbers as such, where a number gives back what is written; NA is a text."""
    for _ in _lines(path):  # Arrow would take a column with other bytes for one of bytes
        pass

    def read(*texts: str) -> pa.Table:
        return pa.csv.read_csv(
            path,
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys((*KEYS, *texts), pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    forms = {each.name: _LOSSY[each.type] for each in read().schema if each.type in _LOSSY}
    texts = read(*forms)
    lossy = {n: pc.any(pc.match_substring_regex(texts[n], forms[n])).as_py() for n in forms}
    return read(*filter(lossy.get, lossy))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Text and place of every line that is not empty; one that is not UTF-8 is refused."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"line {number}"
                yield text_of(line, path, place), place
