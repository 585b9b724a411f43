"""What columns of text hold: numbers, dates, times, addresses; a type only where every row has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from holdfast.data.croissant.describing.querying import one_row

_V = re.compile(r"\bv\b")
# Not one of the words for no value, where numbers or dates stand.
_MEANT = "v NOT IN ('NA','N/A','NaN','nan','null','NULL','None','n/a','#N/A','<NA>','-nan')"
_SAMPLE = 2_000  # rows that rule out most types of most columns before all rows are looked at
_TOGETHER = 64  # columns of one query

# Each test holds for a text `v` that reads as the type without losing anything of it.
_INTEGER = r"(regexp_full_match(v, '0|-?[1-9]\d{0,18}') AND try_cast(v AS BIGINT) IS NOT NULL)"
_DECIMAL = (
    r"(regexp_full_match(v, '-?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?') "
    "AND isfinite(try_cast(v AS DOUBLE)))"
)
_TIMES = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?"
_MOMENT = rf"\d{{4}}-\d\d-\d\d[ T]{_TIMES}"
_TESTS: dict[str, str] = {
    "sc:Boolean": "(lower(v) IN ('true', 'false'))",
    "sc:Integer": _INTEGER,
    "sc:Float": _DECIMAL,
    "sc:Date": r"(regexp_full_match(v, '\d{4}-\d\d-\d\d') AND try_cast(v AS DATE) IS NOT NULL)",
    "sc:Time": f"regexp_full_match(v, '{_TIMES}')",
    "sc:DateTime": f"(regexp_full_match(v, '{_MOMENT}') AND try_cast(v AS TIMESTAMP) IS NOT NULL)",
    "sc:DateTime zoned": (
        rf"(regexp_full_match(v, '{_MOMENT}(Z|[+-]\d\d(:?\d\d)?)') "
        "AND try_cast(v AS TIMESTAMPTZ) IS NOT NULL)"
    ),
}
_ADDRESS = r"regexp_full_match(v, 'https?://[^\s/]+\S*')"
_DIGITS = r"regexp_full_match(v, '-?\d+')"
# Date formats in CLDR's letters -> how the text looks, and DuckDB's format.
_FORMATS = {
    f"{cldr}": (look, duck)
    for sign, escaped in (("/", "/"), (".", r"\."), ("-", "-"))
    for cldr, look, duck in (
        (f"dd{sign}MM{sign}yyyy", rf"\d\d{escaped}\d\d{escaped}\d{{4}}", f"%d{sign}%m{sign}%Y"),
        (f"MM{sign}dd{sign}yyyy", rf"\d\d{escaped}\d\d{escaped}\d{{4}}", f"%m{sign}%d{sign}%Y"),
        (f"d{sign}M{sign}yyyy", rf"\d\d?{escaped}\d\d?{escaped}\d{{4}}", f"%d{sign}%m{sign}%Y"),
        (f"M{sign}d{sign}yyyy", rf"\d\d?{escaped}\d\d?{escaped}\d{{4}}", f"%m{sign}%d{sign}%Y"),
        (f"yyyy{sign}MM{sign}dd", rf"\d{{4}}{escaped}\d\d{escaped}\d\d", f"%Y{sign}%m{sign}%d"),
    )
    if cldr != "yyyy-MM-dd"
}
_TESTS |= {
    f"sc:Date {cldr}": f"(regexp_full_match(v, '{look}') AND try_strptime(v, '{duck}') IS NOT NULL)"
    for cldr, (look, duck) in _FORMATS.items()
}


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
    rows: int,
    *,
    strings: bool = False,
) -> dict[str, TextType]:
    """The types of text columns; every row is looked at.

    Args:
        connection: where `relation` can be read.
        relation: what stands after FROM.
        columns: name -> SQL expression of the text.
        rows: of `relation`.
        strings: the texts are strings of a format that also knows numbers and null: what is no date stays
            text, and so does a column in which any word stands for no value.
    """
    found: dict[str, TextType] = {}
    tests = [name for name in _TESTS if not strings or name.startswith(("sc:Date", "sc:Time"))]
    if not strings:
        columns = {name: f"nullif({sql}, '')" for name, sql in columns.items()}
    every = list(columns)
    for start in range(0, len(every), _TOGETHER):
        names = every[start : start + _TOGETHER]
        some = {name: columns[name] for name in names}
        sample = f"(SELECT * FROM {relation} LIMIT {_SAMPLE})"
        first = _count(connection, sample, some, dict.fromkeys(names, tests))
        still = {
            name: [test for test in tests if count.all_are(test, strings)]
            for name, count in first.items()
        }
        last = _count(connection, relation, some, still) if rows > _SAMPLE else first
        for name, count in last.items():
            found[name] = count.conclusion(first[name], strings)
    return found


@dataclass(frozen=True)
class _Count:
    """Rows of a column: with a value, with one that is no word for none, passing tests, of digits only."""

    values: int
    meant: int
    addresses: int
    passing: Mapping[str, int]
    digits: int

    def all_are(self, test: str, strings: bool) -> bool:
        return self.passing.get(test) == (self.values if strings else self.meant)

    def conclusion(self, sample: _Count, strings: bool) -> TextType:
        if not self.values:
            return TextType("sc:Text", remark="no row has a value: taken as text")
        fitting = (
            [test for test in self.passing if self.all_are(test, strings)] if self.meant else []
        )
        words = f"{self.values - self.meant:,} rows hold a word for no value, such as NA"
        if not fitting:
            if self.values == self.addresses:
                return TextType("sc:URL", values=self.values)
            return TextType("sc:Text", values=self.values, remark=self._nearly(sample))
        best, _, letters = fitting[0].partition(" ")
        dates = [test.partition(" ")[2] for test in fitting if test.startswith("sc:Date ")]
        if best == "sc:Date" and letters and _days_and_months(dates):
            return TextType(
                "sc:Text",
                values=self.values,
                remark=f"dates, but as {dates[0]} or as {dates[1]} cannot be told: taken as text",
            )
        remark = words if self.meant < self.values else ""
        return TextType(best, letters if best == "sc:Date" else "", self.meant, remark)

    def _nearly(self, sample: _Count) -> str:
        """What almost all rows of a text column are."""
        if 0 < self.digits == self.meant:
            return "numbers, some of which begin with 0 or are too long: taken as text"
        for test, called in (("sc:Integer", "whole numbers"), ("sc:Float", "numbers")):
            if sample.passing.get(test, 0) >= 0.7 * sample.meant > 0:
                return f"most rows hold {called}, others do not: taken as text"
        return ""


def _days_and_months(formats: Sequence[str]) -> bool:
    """Whether formats disagree about which number is the month."""
    orders = {text.lower().replace("dd", "d").replace("mm", "m")[:1] for text in formats}
    return {"d", "m"} <= orders


def _count(
    connection: duckdb.DuckDBPyConnection,
    relation: str,
    columns: Mapping[str, str],
    tests: Mapping[str, Sequence[str]],
) -> dict[str, _Count]:
    def parts() -> Iterator[str]:
        for place, name in enumerate(columns):
            yield f"count(c{place})"
            for test in (_MEANT, _ADDRESS, _DIGITS, *(_TESTS[each] for each in tests[name])):
                yield f"count_if({_V.sub(f'c{place}', test)})"

    selected = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(columns.values()))
    query = f"SELECT {', '.join(parts())} FROM (SELECT {selected} FROM {relation})"
    numbers = iter(one_row(connection, query))
    return {
        name: _Count(
            values=next(numbers),
            meant=next(numbers),
            addresses=next(numbers),
            digits=next(numbers),
            passing={test: next(numbers) for test in tests[name]},
        )
        for name in columns
    }
