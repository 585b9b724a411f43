"""What columns of text hold: numbers, dates, times, addresses; a type only where every row has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from holdfast.data.croissant.describing.querying import one_row

_WORDS = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None", "n/a", "#N/A", "<NA>", "-nan")
_SAMPLE = 200  # rows that rule out most types of most columns before all rows are looked at
_TOGETHER = 256  # columns of one query

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
_TESTS["digits"] = (r"-?\d+", "TRUE")
_LOOKS = {name: re.compile(look, re.ASCII) for name, (look, _) in _TESTS.items()}
_OF_STRINGS = ("sc:Date", "sc:Time", "sc:URL")


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
    """The types of text columns; every row is looked at.

    Args:
        connection: where `relation` can be read.
        relation: what stands after FROM.
        columns: name -> SQL expression of the text.
        strings: the texts are strings of a format that also knows numbers and null: what is no date stays
            text, and so does a column in which any word stands for no value.
    """
    every = list(columns)
    tests = [name for name in _TESTS if not strings or name.startswith(_OF_STRINGS)]
    if not strings:
        columns = {name: f"nullif({sql}, '')" for name, sql in columns.items()}
    found: dict[str, TextType] = {}
    for start in range(0, len(every), _TOGETHER):
        some = {name: columns[name] for name in every[start : start + _TOGETHER]}
        selected = ", ".join(some.values())
        rows = connection.execute(f"SELECT {selected} FROM {relation} LIMIT {_SAMPLE}").fetchall()
        samples = {
            name: [row[place] for row in rows if row[place] is not None]
            for place, name in enumerate(some)
        }
        possible = {name: _possible(texts, tests, strings) for name, texts in samples.items()}
        open_ones = {name: some[name] for name in some if possible[name]}
        counts = _count(connection, relation, open_ones, possible) if open_ones else {}
        for name, texts in samples.items():
            count = counts.get(name) or _Count(len(texts), len(texts), {})
            found[name] = _conclusion(count, texts, strings)
    return found


def _possible(texts: Sequence[str], tests: Sequence[str], strings: bool) -> list[str]:
    """The tests that all texts of a sample may pass."""
    meant = [text for text in texts if strings or text not in _WORDS]
    return [test for test in tests if all(map(_LOOKS[test].fullmatch, meant))]


@dataclass(frozen=True)
class _Count:
    """Rows of a column: with a value, with one that is no word for none, and passing each test."""

    values: int
    meant: int
    passing: Mapping[str, int]


def _conclusion(count: _Count, sample: Sequence[str], strings: bool) -> TextType:
    if not count.values:
        return TextType("sc:Text", remark="no row has a value: taken as text")
    if count.passing.get("sc:URL") == count.values:
        return TextType("sc:URL", values=count.values)
    needed = count.values if strings else count.meant
    fitting = [test for test, passed in count.passing.items() if 0 < needed == passed]
    if fitting and fitting[0] == "digits":
        remark = "numbers, some of which begin with 0 or are too long: taken as text"
        return TextType("sc:Text", values=count.values, remark=remark)
    if not fitting:
        return TextType("sc:Text", values=count.values, remark=_nearly(sample))
    data_type, _, letters = fitting[0].partition(" ")
    dates = [test.partition(" ")[2] for test in fitting if test.startswith("sc:Date ")]
    if data_type == "sc:Date" and letters and {"d", "m"} <= {text[0].lower() for text in dates}:
        remark = f"dates, but as {dates[0]} or as {dates[1]} cannot be told: taken as text"
        return TextType("sc:Text", values=count.values, remark=remark)
    words = f"{count.values - count.meant:,} rows hold a word for no value, such as NA"
    return TextType(
        data_type,
        letters if data_type == "sc:Date" else "",
        count.meant,
        words if count.meant < count.values else "",
    )


def _nearly(sample: Sequence[str]) -> str:
    """What almost all rows of a column of text are, as far as a sample tells."""
    for test, called in (("sc:Integer", "whole numbers"), ("sc:Float", "numbers")):
        passing = sum(1 for text in sample if _LOOKS[test].fullmatch(text))
        if passing >= 0.7 * len(sample) > 0:
            return f"most rows hold {called}, others do not: taken as text"
    return ""


def _count(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    columns: Mapping[str, str],
    tests: Mapping[str, Sequence[str]],
) -> dict[str, _Count]:
    words = ", ".join(f"'{word}'" for word in _WORDS)

    def parts() -> Iterator[str]:
        for place, name in enumerate(columns):
            yield f"count(c{place}), count_if(c{place} NOT IN ({words}))"
            for look, also in (_TESTS[test] for test in tests[name]):
                said = also.replace("(v", f"(c{place}")
                yield f"count_if(regexp_full_match(c{place}, '{look}') AND {said})"

    selected = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(columns.values()))
    query = f"SELECT {', '.join(parts())} FROM (SELECT {selected} FROM {relation})"
    numbers = iter(one_row(connection, query))
    return {
        name: _Count(next(numbers), next(numbers), {test: next(numbers) for test in tests[name]})
        for name in columns
    }
