"""Tables written as text: what parts their values, what their columns are called, and what they hold.

A column has a type only if every row has it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from holdfast.data.croissant.describing.querying import in_turn, stacked
from holdfast.data.croissant.scanning.casting import NULL_WORDS
from holdfast.data.croissant.scanning.delimited import first_row, unique_names
from holdfast.data.croissant.scanning.opening import Opening, compression, unpacked

_HEAD = 1 << 20  # bytes that the names must end in; so it is where tables are loaded
_ROWS = 50  # that a separator must part alike
_TRIED = {"text/csv": ",;\t|", "text/tab-separated-values": "\t,;|"}
_WORDS = NULL_WORDS[1:]  # empty text is no value in any case
_SAMPLE = 200  # rows that rule out most types of most columns before all rows are looked at

_TIMES = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?"
_MOMENT = rf"\d{{4}}-\d\d-\d\d[ T]{_TIMES}"
# How a text looks that reads as a type without losing anything of it, and what DuckDB has to say to it.
_TESTS: dict[str, tuple[str, str]] = {
    "sc:Boolean": ("(?i:true|false)", "TRUE"),
    "sc:Integer": (r"0|-?[1-9]\d{0,18}", "TRY_CAST(v AS BIGINT) IS NOT NULL"),
    "sc:Float": (
        r"-?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?",
        "isfinite(TRY_CAST(v AS DOUBLE))",
    ),
    "sc:Date": (r"\d{4}-\d\d-\d\d", "TRY_CAST(v AS DATE) IS NOT NULL"),
    "sc:Time": (_TIMES, "TRUE"),
    "sc:DateTime": (_MOMENT, "TRY_CAST(v AS TIMESTAMP) IS NOT NULL"),
    "sc:DateTime zoned": (
        rf"{_MOMENT}(Z|[+-]\d\d(:?\d\d)?)",
        "TRY_CAST(v AS TIMESTAMPTZ) IS NOT NULL",
    ),
}
_SIGNS = {"/": "/", ".": r"\.", "-": "-"}
# Dates in other orders, in CLDR's letters: how they look, and DuckDB's format.
_ORDERS = {
    "dd{0}MM{0}yyyy": (r"\d\d{1}\d\d{1}\d{{4}}", "%d{0}%m{0}%Y"),
    "MM{0}dd{0}yyyy": (r"\d\d{1}\d\d{1}\d{{4}}", "%m{0}%d{0}%Y"),
    "d{0}M{0}yyyy": (r"\d\d?{1}\d\d?{1}\d{{4}}", "%d{0}%m{0}%Y"),
    "M{0}d{0}yyyy": (r"\d\d?{1}\d\d?{1}\d{{4}}", "%m{0}%d{0}%Y"),
    "yyyy{0}MM{0}dd": (r"\d{{4}}{1}\d\d{1}\d\d", "%Y{0}%m{0}%d"),
}
_TESTS |= {
    f"sc:Date {letters.format(sign)}": (
        look.format(sign, escaped),
        f"try_strptime(v, '{form.format(sign)}') IS NOT NULL",
    )
    for sign, escaped in _SIGNS.items()
    for letters, (look, form) in _ORDERS.items()
    if letters.format(sign) != "yyyy-MM-dd"
}
# Of what stays text.
_TESTS["sc:URL"] = (r"https?://[^\s/]+\S*", "TRUE")
_TESTS["digits"] = (r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", "TRUE")
_LOOKS = {name: re.compile(look, re.ASCII) for name, (look, _) in _TESTS.items()}
_OF_STRINGS = ("sc:Date", "sc:Time", "sc:URL")


def header_of(opening: Opening, media_type: str) -> tuple[str, ...]:
    """The names of the columns of a text table, its first file, as an extract takes them."""
    path = opening.paths[0]
    with unpacked(path, compression(path, opening.members[0])) as file:
        text = file.read(_HEAD).decode(errors="ignore")
    return unique_names(first_row(text, separator_of(text, _TRIED[media_type]))[0])


def separator_of(text: str, tried: str) -> str:
    """The separator by which the first rows all have the same number of values, and most of them.

    Args:
        text: the beginning of a table.
        tried: separators, the likeliest first: it is taken where none parts the rows alike.
    """
    widths = {}
    for separator in tried:
        rows = []
        try:
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
                if row:
                    rows.append(len(row))
                if len(rows) == _ROWS:
                    break
        except csv.Error:
            continue
        if len(text) >= _HEAD and len(rows) > 1:
            rows.pop()  # the last one may be cut
        if len(set(rows)) == 1 and rows[0] > 1:
            widths[separator] = rows[0]
    likeliest = tried[0]
    if likeliest in widths or not widths:
        return likeliest
    return max(widths, key=lambda separator: (widths[separator], -tried.index(separator)))


@dataclass(frozen=True)
class TextType:
    """What a column of text holds.

    Attributes:
        data_type: canonical.
        format: of dates that are not written as ISO 8601 has it, in CLDR's letters.
        values: rows with a value.
        remark: what kept it from being something else, or which words stand for no value.
    """

    data_type: str
    format: str = ""
    values: int = 0
    remark: str = ""


def text_types(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    columns: Mapping[str, str],
    *,
    strings: bool = False,
) -> dict[str, TextType]:
    """Infer the types of text columns from all rows.

    Args:
        connection: where `relation` can be read.
        relation: SQL after FROM.
        columns: name -> SQL expression of the text.
        strings: the texts are strings of a format that also has numbers and null: whatever is not a date
            stays text, and so does a column in which a word stands for a missing value.
    """
    tests = [name for name in _TESTS if not strings or name.startswith(_OF_STRINGS)]
    types: dict[str, TextType] = {}
    for names in in_turn(columns):
        selected = ", ".join(columns[name] for name in names)
        rows = connection.execute(f"SELECT {selected} FROM {relation} LIMIT {_SAMPLE}").fetchall()
        samples = {
            name: [text for row in rows if (text := row[place]) is not None and (text or strings)]
            for place, name in enumerate(names)
        }
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, texts in samples.items():
            alike[_possible(texts, tests, strings)].append(name)
        alike.pop((), None)
        counts = _count(connection, relation, columns, alike, strings) if rows and alike else {}
        for name, texts in samples.items():
            count = counts.get(name) or _Count(len(texts), len(texts), {})
            types[name] = _conclusion(count, strings)
    return types


def _possible(texts: Sequence[str], tests: Sequence[str], strings: bool) -> tuple[str, ...]:
    """The tests that all texts of a sample may pass."""
    meant = [text for text in texts if strings or text not in _WORDS]
    return tuple(test for test in tests if all(map(_LOOKS[test].fullmatch, meant)))


@dataclass(frozen=True)
class _Count:
    """Rows of a column: with a value, with one that does not mean "missing", and passing each test."""

    values: int
    meant: int
    passing: Mapping[str, int]


def _conclusion(count: _Count, strings: bool) -> TextType:
    if not count.values:
        return TextType("sc:Text", remark="no row has a value: taken as text")
    if count.passing.get("sc:URL") == count.values:
        return TextType("sc:URL", values=count.values)
    needed = count.values if strings else count.meant
    fitting = [test for test, passed in count.passing.items() if 0 < needed == passed]
    if fitting and fitting[0] == "digits":
        remark = "numbers, some of which begin with 0, are too long or too large: taken as text"
        return TextType("sc:Text", values=count.values, remark=remark)
    if not fitting:
        return TextType("sc:Text", values=count.values)
    data_type, _, letters = fitting[0].partition(" ")
    dates = [test.partition(" ")[2] for test in fitting if test.startswith("sc:Date ")]
    if data_type == "sc:Date" and letters and {"d", "m"} <= {text[0].lower() for text in dates}:
        remark = f"dates, either {dates[0]} or {dates[1]}: taken as text"
        return TextType("sc:Text", values=count.values, remark=remark)
    words = f"{count.values - count.meant:,} rows hold a word for no value, such as NA"
    return TextType(
        data_type,
        letters if data_type == "sc:Date" else "",
        count.meant,
        words if count.meant < count.values else "",
    )


def _count(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    columns: Mapping[str, str],
    alike: Mapping[tuple[str, ...], Sequence[str]],
    strings: bool,
) -> dict[str, _Count]:
    """Count the rows of columns that pass tests; `alike` has the columns of which the same are open."""
    words = f"'{'|'.join(map(re.escape, _WORDS))}'"

    def counts(value: str, tests: Sequence[str]) -> Iterator[str]:
        yield f"count({value})"
        yield f"count_if(NOT regexp_full_match({value}, {words}))"
        for look, also in (_TESTS[test] for test in tests):
            said = also.replace("(v", f"({value}")
            yield f"count_if(regexp_full_match({value}, '{look}') AND {said})"

    given = "v{}" if strings else "nullif(v{}, '')"
    asked = [sql for place, tests in enumerate(alike) for sql in counts(given.format(place), tests)]
    rows = stacked(relation, *([columns[name] for name in names] for names in alike.values()))
    query = f"SELECT {', '.join(asked)} FROM {rows} GROUP BY place ORDER BY place"
    found, start = {}, 0
    answers = connection.execute(query).fetchall()
    for tests, names in alike.items():
        end = start + 2 + len(tests)
        for name, answer in zip(names, answers, strict=False):
            values, meant, *passing = answer[start:end]
            found[name] = _Count(values, meant, dict(zip(tests, passing, strict=True)))
        start = end
    return found
