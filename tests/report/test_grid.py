"""Tables: formats, sort keys and the CSV file."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.report import ColumnFormat, Table
from holdfast.report.grid import lay_out


def cells(data: pa.Table, **columns: ColumnFormat) -> list[str]:
    return [str(row) for row in lay_out(Table(data, columns), "t")["rows"]]


def read_csv(data: pa.Table) -> list[list[str]]:
    uri = lay_out(Table(data), "t")["csv"]
    head, _, body = uri.partition(",")
    assert head == "data:text/csv;charset=utf-8;base64"
    return list(csv.reader(io.StringIO(base64.b64decode(body).decode(), newline="")))


@pytest.mark.parametrize(
    ("values", "form", "expected"),
    [
        ([1204], ColumnFormat(), '<td class="r" data-v="1204">1,204</td>'),
        ([0.12345], ColumnFormat(unit="%", digits=1), '<td class="r" data-v="12.345">12.3</td>'),
        (
            ["a/<b>&?"],
            ColumnFormat(link="/nodes/{}"),
            '<td><a href="/nodes/a%2F%3Cb%3E%26%3F">a/&lt;b&gt;&amp;?</a></td>',
        ),
        ([""], ColumnFormat(link="/nodes/{}"), '<td data-v=""></td>'),
        ([1e-9], ColumnFormat(digits=3), '<td class="r" data-v="1e-09">&lt;0.001</td>'),
        ([math.nan], ColumnFormat(), '<td class="r" data-v="">–</td>'),
        ([math.inf], ColumnFormat(), '<td class="r" data-v="Infinity">∞</td>'),
        ([2], ColumnFormat(right=False), '<td data-v="2">2</td>'),
        ([Decimal("2.50")], ColumnFormat(digits=1), '<td class="r" data-v="2.50">2.5</td>'),
        ([True], ColumnFormat(), "<td>yes</td>"),
        (["<b>"], ColumnFormat(), "<td>&lt;b&gt;</td>"),
        ([["a", "b"]], ColumnFormat(), "<td>a, b</td>"),
        ([{"a": 1}], ColumnFormat(), "<td>a: 1</td>"),
        ([b"\xff"], ColumnFormat(), "<td>\\xff</td>"),
        ([None], ColumnFormat(), '<td data-v=""></td>'),
    ],
)
def test_cells(values: list[Any], form: ColumnFormat, expected: str) -> None:
    kind = pa.string() if values == [None] else None
    assert cells(pa.table({"x": pa.array(values, kind)}), x=form) == [expected]


def test_times_name_their_zone_in_the_header() -> None:
    noon = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    data = pa.table({"at": pa.array([noon, None], pa.timestamp("s", "UTC"))})
    grid = lay_out(Table(data), "t")
    assert grid["heads"][0] == {"label": "at", "unit": "UTC", "right": False}
    assert list(grid["rows"]) == [
        '<td class="n">2026-01-02 12:00</td>',
        '<td class="n" data-v=""></td>',
    ]


def test_intervals_stand_in_one_cell_and_stay_in_the_file() -> None:
    data = pa.table({"rate": [0.5, None], "low": [0.25, None], "high": [math.inf, None]})
    shown = cells(data, rate=ColumnFormat(digits=2, interval=("low", "high")))
    assert shown == [
        '<td class="r" data-v="0.5">0.50 <span class="ci">[0.25, ∞)</span></td>',
        '<td class="r" data-v="">–</td>',
    ]
    assert read_csv(data) == [
        ["rate", "low", "high"],
        ["0.5", "0.25", "Infinity"],
        ["", "", ""],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\n=1", "＝1", "＠x"])
def test_no_cell_of_the_file_is_a_formula(text: str) -> None:
    assert read_csv(pa.table({text: [text]})) == [["'" + text], ["'" + text]]


def test_numbers_are_no_formulas() -> None:
    assert read_csv(pa.table({"x": [-1.5]})) == [["x"], ["-1.5"]]


@given(
    st.lists(
        st.tuples(
            st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")),
            st.integers(-(2**63), 2**63 - 1),
        )
    )
)
def test_the_file_gives_back_what_went_in(rows: list[tuple[str, int]]) -> None:
    texts, numbers = [row[0] for row in rows], [row[1] for row in rows]
    data = pa.table({"t": pa.array(texts, pa.string()), "n": pa.array(numbers, pa.int64())})
    back = read_csv(data)[1:]
    assert [int(row[1]) for row in back] == numbers
    for text, (cell, _) in zip(texts, back, strict=True):
        assert cell in (text, "'" + text)
        assert not re.match(r"\s*[=+\-@]", cell)


def test_counts() -> None:
    assert lay_out(Table(pa.table({"x": [1]})), "t")["count"] == "1 row."
    assert lay_out(Table(pa.table({"x": range(1200)})), "t")["count"] == "1,200 rows."
