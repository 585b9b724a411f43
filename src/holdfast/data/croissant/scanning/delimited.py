"""Tables in text: CSV and TSV, read by DuckDB's CSV reader.

Every column is read as text and converted by the query: so one rule decides which words mean "no value",
columns of text keep such words, and 3.5 under sc:Integer is an error instead of 4. For 1 million rows of 20
columns that is 2.1 s of CPU; typed columns with a list of null words, which do none of that, take 1.8 s,
and read_csv as it comes 1.6 s.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.scanning.columns import Column, Key, Scan
from holdfast.data.croissant.scanning.encodings import check_utf8
from holdfast.data.croissant.scanning.local_paths import paths_sql
from holdfast.data.croissant.scanning.opening import Opening, compression, file_columns, unpacked
from holdfast.errors import InputError
from holdfast.tables import literal

_HEAD = 1 << 20
_LINE = 16 << 20  # of the longest row; DuckDB's buffers of 32 MB have room for two
_LINE_ENDS = re.compile("\r\n|\r|\n")
_SPELT = {"\r\n": r"\r\n", "\n": r"\n"}
"""The line ends that DuckDB can be told."""
_SEPARATORS = (",", ";", "\t", "|", " ")


@dataclass(frozen=True)
class Table:
    """How one file is written.

    Attributes:
        names: of its columns, as `extract.column` takes them.
        separator: between values.
        packed: "none", "gzip" or "zstd".
        empty_lines: lines before the names.
        line_end: of the names, where DuckDB would take the end of a line within one for it.
        repeated: the names that the header has more than once, as it has them.
    """

    names: tuple[str, ...]
    separator: str = ","
    packed: str = "none"
    empty_lines: int = 0
    line_end: str = ""
    repeated: tuple[str, ...] = ()

    def relation(self, paths: Sequence[Path]) -> str:
        """The files as a relation with columns c0, c1, ... of text."""
        columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(self.names)))
        options = [
            f"columns = {{{columns}}}",
            "auto_detect = false",
            "hive_partitioning = false",
            "header = true",
            f"skip = {self.empty_lines}",
            f"max_line_size = {_LINE}",
            f"buffer_size = {2 * _LINE}",
            f"delim = {literal(self.separator)}",
            "quote = '\"'",
            "escape = '\"'",
            "nullstr = ''",
            f"compression = {literal(self.packed)}",
        ]
        if self.line_end:
            options.append(f"new_line = '{self.line_end}'")
        return f"read_csv({paths_sql(paths)}, {', '.join(options)})"


def scan(opening: Opening, kind: str) -> Scan:
    """CSV ("csv") or TSV ("tsv") files as a relation.

    Files with other columns, or the same in another order, are read apart and put together.

    Raises:
        InputError: a column that a file does not have, a file that has no header.
    """
    wanted = opening.named("column")
    tables = tables_of(opening, kind, wanted)
    groups = [
        [place for place, _ in members]
        for _, members in groupby(enumerate(tables), key=lambda part: part[1])
    ]
    if opening.numbered:
        groups = [[place] for place in range(len(tables))]
    columns = {("column", name): place for place, name in enumerate(wanted)}
    if len(groups) == 1 and not opening.numbered:
        places = column_places(opening, tables[0], wanted, 0)
        relation = tables[0].relation(opening.paths)
        made: dict[Key, Column] = {
            key: Column(f"c{places[place]}", "VARCHAR") for key, place in columns.items()
        }
        index = "file_index"
    else:
        relation = " UNION ALL ".join(_part(opening, tables, wanted, group) for group in groups)
        relation = f"({relation})"
        made = {key: Column(f"w{place}", "VARCHAR") for key, place in columns.items()}
        made["fileProperty", "lineNumbers"] = Column("line_number", "BIGINT")
        index = "member"
    made |= file_columns(opening.members, index)
    remarks = partial(_remarks, opening, tables, wanted)
    order = "row_number() OVER ()"
    return Scan(relation, made, opening.members, order=order, remarks=remarks)


def _remarks(opening: Opening, tables: Sequence[Table], wanted: Sequence[str]) -> list[str]:
    """Wanted columns for which a header has several candidates; the first file that has them is named."""
    found: dict[str, str] = {}
    for member, table in zip(opening.members, tables, strict=True):
        for name in wanted:
            alike = [one for one in table.names if one.strip() == name.strip()]
            if name in table.repeated or (name not in table.names and len(alike) > 1):
                found.setdefault(name, member.fullpath)
    return [
        f"{path} has several columns {name!r}: the first is read" for name, path in found.items()
    ]


def tables_of(opening: Opening, kind: str, names: Sequence[str]) -> list[Table]:
    """How each file is written, by its first lines."""
    made = []
    for member, path in zip(opening.members, opening.paths, strict=True):
        packed = compression(path, member)
        with unpacked(path, packed) as file:
            head = file.read(_HEAD)
        made.append(replace(_delimited(head, member, kind, names), packed=packed))
    return made


def _part(opening: Opening, tables: list[Table], wanted: list[str], group: list[int]) -> str:
    table = tables[group[0]]
    places = column_places(opening, table, wanted, group[0])
    selected = [f"c{place} AS w{number}" for number, place in enumerate(places)]
    selected.append(f"CAST(file_index AS BIGINT) + {group[0]} AS member")
    if opening.numbered:
        selected.append("row_number() OVER () - 1 AS line_number")
    return f"SELECT {', '.join(selected)} FROM {table.relation([opening.paths[place] for place in group])}"


def column_places(opening: Opening, table: Table, names: Sequence[str], index: int) -> list[int]:
    """Where the wanted columns stand: under their names, or under them but for blanks around."""
    exact = {name: place for place, name in reversed(list(enumerate(table.names)))}
    bare = {name.strip(): place for place, name in reversed(list(enumerate(table.names)))}
    places = []
    for name in names:
        place = exact.get(name, bare.get(name.strip()))
        if place is None:
            raise opening.missing(name, table.names, opening.members[index], opening.paths[index])
        places.append(place)
    return places


def _delimited(head: bytes, member: Member, kind: str, wanted: Sequence[str]) -> Table:
    text = _decoded(head, member)
    separators = ("\t", *_SEPARATORS) if kind == "tsv" else _SEPARATORS
    tried = [(separator, *first_row(text, separator)) for separator in separators]
    readings = [one for one in tried if one[1]]
    if not readings:
        shown = text.strip()[:40]
        raise InputError(
            f"{member.fullpath} has no names of columns"
            if shown
            else f"{member.fullpath} is empty",
            code="empty-input",
            path=member.fullpath,
            found=f"one that begins with {shown!r} and has no end" if shown else None,
            expected="a first line with the names of the columns",
            remedy="put the names of the columns into its first line",
        )
    named = [{part.strip() for part in row} for _, row, _ in readings]
    lacking = [
        (sum(name.strip() not in names for name in wanted), place)
        for place, names in enumerate(named)
    ]
    separator, row, lines = readings[min(lacking)[1]]
    empty, line_end = _line_ends(text, lines, member)
    repeated = tuple(name for name, times in Counter(row).items() if times > 1 and name)
    return Table(unique_names(row), separator, "none", empty, line_end, repeated)


def _line_ends(text: str, lines: int, member: Member) -> tuple[int, str]:
    """Of a text whose first row ends after so many lines: how many are empty, and `Table.line_end`."""
    start = len(text) - len(text.lstrip("\r\n"))
    before = _LINE_ENDS.findall(text, 0, start)
    within = [found[0] for found in islice(_LINE_ENDS.finditer(text, start), lines - len(before))]
    end = within[-1] if len(within) == lines - len(before) else ""  # else the text ends there
    if end and set(before) - {end}:
        raise InputError(
            "the lines before the table cannot be told apart",
            code="damaged",
            path=member.fullpath,
            place="line 1",
            found="empty lines that end otherwise than the names",
            remedy="delete the empty lines",
        )
    if not end or within[0] == end:
        return len(before), ""
    if end not in _SPELT:
        raise InputError(
            "the lines of the table cannot be told apart",
            code="damaged",
            path=member.fullpath,
            place="line 1",
            found=f"{within[0]!r} in a name, and {end!r} at the end of the line",
            remedy="end the lines with \\n, as most programs do",
        )
    return len(before), _SPELT[end]


def _decoded(head: bytes, member: Member) -> str:
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if error.start > len(head) - 8 and len(head) == _HEAD:  # cut in the middle of a letter
            return head[: error.start].decode()
        check_utf8(io.BytesIO(head), member)
        raise


LONGEST_NAME = 131_072
"""Characters."""


def first_row(text: str, separator: str) -> tuple[list[str], int]:
    """The first row that is not empty, and after how many lines it ends; none where no row can be read."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        row = next((row for row in reader if row), [])
    except csv.Error:
        return [], 0
    # Too long for a name, as with another separator. The reader's own limit may be another: the process
    # has one for all that read CSV.
    return ([], 0) if max(map(len, row), default=0) > LONGEST_NAME else (row, reader.line_num)


def unique_names(row: Sequence[str]) -> tuple[str, ...]:
    """Names as pandas makes them: "Unnamed: 3" where column 3 has none, "a.1" of the second "a".

    Names that are written are kept where they can be.
    """
    names = [written or f"Unnamed: {place}" for place, written in enumerate(row)]
    unused = set(names)
    again = dict.fromkeys(names, 0)
    for place in sorted(range(len(row)), key=lambda place: not row[place]):
        stem = name = names[place]
        if stem in unused:
            unused.remove(stem)
            continue
        while name in again:
            again[stem] += 1
            name = f"{stem}.{again[stem]}"
        again[name] = 0
        names[place] = name
    return tuple(names)


def names_of(opening: Opening, kind: str, names: Sequence[str]) -> dict[str, str]:
    """The columns of the first file, all of text; those wanted tell the separator."""
    first = replace(opening, members=opening.members[:1])
    return dict.fromkeys(tables_of(first, kind, names)[0].names, "VARCHAR")
