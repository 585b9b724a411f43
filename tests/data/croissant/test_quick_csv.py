"""Arrow's CSV reader gives what DuckDB's gives, or fails and leaves it to that."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_datasets import column, described, field, file_object, record_set

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.loading.lazy_table import LazyTable, TooQuick
from holdfast.errors import InputError

TYPES = ["sc:Integer", "sc:Float", "sc:Text", "sc:Boolean", "cr:Int8", "cr:Float32"]
WORDS = [
    "",
    "0",
    "7",
    "-3",
    "007",
    "3.0",
    "3.5",
    "1e3",
    "NA",
    "nan",
    "null",
    " 5",
    "x",
    "true",
    "200",
]
CELLS = st.one_of(
    st.sampled_from(WORDS),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=6),
    st.sampled_from(['"', ",", "a\nb", "\r\n", "'", '""', ";", "|"]),
)


def quoted(cell: str, always: bool) -> str:
    inside = cell.replace('"', '""')
    return f'"{inside}"' if always or any(sign in cell for sign in '",\n\r') else cell


def dataset_of(folder: Path, texts: list[str], types: list[str]) -> Dataset:
    """Files of one table each, put together in order, with columns a, b, ..."""
    names = "abcdef"[: len(types)]
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_text(text, encoding="utf-8", newline="")
    one = len(texts) == 1
    files: list[dict[str, Any]] = (
        [file_object("0.csv")]
        if one
        else [
            {"@type": "cr:FileSet", "@id": "all", "encodingFormat": "text/csv", "includes": "*.csv"}
        ]
    )
    fields = [
        field(
            f"t/{name}",
            type_,
            column("0.csv", name)
            if one
            else {"fileSet": {"@id": "all"}, "extract": {"column": name}},
        )
        for name, type_ in zip(names, types, strict=True)
    ]
    return described(folder, files, [record_set("t", *fields)])


def slow(table: LazyTable) -> pa.Table | str:
    try:
        return table._table()
    except InputError as error:
        return str(error)


def quick(table: LazyTable) -> pa.Table | None:
    try:
        return table._table(quick=True)
    except TooQuick:
        return None


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal, but for NaN, which is no value anywhere."""
    return bool(left.equals(right))


@given(st.data())
def test_what_is_read_quickly_is_what_is_read_slowly(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(TYPES), min_size=2, max_size=4))
    row = st.lists(CELLS, min_size=len(types), max_size=len(types))
    texts = []
    for _ in range(data.draw(st.integers(1, 2))):
        rows = data.draw(st.lists(row, max_size=4))
        always = data.draw(st.booleans())
        end = data.draw(st.sampled_from(["\n", "\r\n"]))
        lines = ["abcdef"[: len(types)], *rows]
        texts.append(
            "".join(",".join(quoted(cell, always) for cell in line) + end for line in lines)
        )
    with tempfile.TemporaryDirectory() as place:
        table = dataset_of(Path(place), texts, types).records("t")
        hasty, sure = quick(table), slow(table)
        if hasty is not None:
            assert isinstance(sure, pa.Table), sure
            assert same(hasty, sure)
        whole = sure if isinstance(sure, str) else None
        if whole is None:
            assert same(table.to_arrow(), sure)
            assert same(pa.Table.from_batches(table.batches(), table.schema), sure)
        else:
            with pytest.raises(InputError):
                table.to_arrow()


def test_plain_files_are_read_quickly(tmp_path: Path) -> None:
    table = dataset_of(tmp_path, ["a,b\n1,x\n,\n2,NA\n"], ["sc:Integer", "sc:Text"]).records("t")
    found = quick(table)
    assert found is not None
    assert found.to_pylist() == [
        {"t/a": 1, "t/b": "x"},
        {"t/a": None, "t/b": None},
        {"t/a": 2, "t/b": "NA"},
    ]


def test_a_reading_that_fails_half_way_goes_on_at_the_same_row(tmp_path: Path) -> None:
    rows = 300_000  # several blocks of the quick reader, several batches
    lines = [f"{number},w{number}" for number in range(rows)]
    lines[-1] = f"{rows - 1}.0,w{rows - 1}"  # whole, but not as the quick reader knows it
    dataset = dataset_of(tmp_path, ["a,b\n" + "\n".join(lines) + "\n"], ["sc:Integer", "sc:Text"])
    table = dataset.records("t")
    assert quick(table) is None
    seen = [record["t/a"] for record in table]
    assert seen == list(range(rows))


def test_an_error_late_in_a_stream_names_its_place(tmp_path: Path) -> None:
    rows = 200_000
    lines = [f"{number},w{number}" for number in range(rows)] + ["x,y"]
    dataset = dataset_of(tmp_path, ["a,b\n" + "\n".join(lines) + "\n"], ["sc:Integer", "sc:Text"])
    batches = dataset.records("t").batches()
    assert next(batches).num_rows
    with pytest.raises(InputError, match=f"line {rows + 2}") as told:
        list(batches)
    assert told.value.found == "'x'"


def test_headers_of_several_lines_and_names_of_files(tmp_path: Path) -> None:
    text = '\n"a\nb",c\n1,2\n'
    (tmp_path / "0.csv").write_text(text, encoding="utf-8")
    named = {"fileObject": {"@id": "0.csv"}, "extract": {"fileProperty": "filename"}}
    records = record_set(
        "t",
        field("t/n", "sc:Integer", column("0.csv", "a\nb")),
        field("t/c", "sc:Integer", column("0.csv", "c")),
        field("t/file", "sc:Text", named),
    )
    table = described(tmp_path, [file_object("0.csv")], [records]).records("t")
    found = quick(table)
    assert found is not None
    assert found.to_pylist() == [{"t/n": 1, "t/c": 2, "t/file": "0.csv"}]


ODD = {
    "a value that never ends": 'a,b\n1,"x\n2,z\n',
    "text behind a quote": 'a,b\n1,"x"y\n2,z\n',
    "a blank behind a quote": 'a,b\n1,"x" \n2,z\n',
    "a blank before a quote": 'a,b\n1, "x,y"\n2,z\n',
    "a quote in the middle": 'a,b\n1,x"y\n2,z"\n',
    "a backslash before a quote": 'a,b\n1,"x\\"y"\n2,z\n',
    "hexadecimal": "a,b\n0x1F,y\n7,z\n",
    "no number": "a,b\n1,x\n7,-NaN\n",
    "lines that end in three ways": "a,b\n1,x\r2,y\r\n3,z\n",
    "carriage returns alone": "a,b\r1,x\r2,y\r",
    "an early empty line": "\n\n\na,b\n1,x\n",
    "quotes of all kinds": 'a,b\r\n1,"x""y"\r\n2,""""\r\n3,"\r\n"\r\n4,""\r\n',
    "a quote at the end of a block": 'a,b\n1,"' + "x" * ((1 << 16) - 8) + '"y"\n2,z\n',
    "a quote that closes with its block": 'a,b\n1,"' + "x" * ((1 << 16) - 8) + '"\n2,z\n',
    "a very long row": "a,b\n1," + "x" * (5 << 20) + "\n2,y\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
@pytest.mark.parametrize("second", ["sc:Text", "sc:Float"])
def test_what_readers_take_differently(tmp_path: Path, text: str, second: str) -> None:
    table = dataset_of(tmp_path, [text], ["sc:Integer", second]).records("t")
    hasty, sure = quick(table), slow(table)
    if hasty is not None:
        assert isinstance(sure, pa.Table), sure
        assert same(hasty, sure)


def test_text_that_only_looks_hard_is_read_quickly(tmp_path: Path) -> None:
    text = 'a,b\r\n1,"x""y"\r\n2,""""\r\n3,"1\r\n2"\r\n4,""\r\n'
    found = quick(dataset_of(tmp_path, [text], ["sc:Integer", "sc:Text"]).records("t"))
    assert found is not None
    assert found["t/b"].to_pylist() == ['x"y', '"', "1\r\n2", None]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("\n\n\na,b\n1,x\n", [(1, "x")]),
        ("\r\n\r\na,b\r\n1,x\r\n", [(1, "x")]),
        ("a,b\r1,x\r2,y\r", [(1, "x"), (2, "y")]),
        ("a,b\n1," + "x" * (5 << 20) + "\n", [(1, "x" * (5 << 20))]),
    ],
    ids=["empty lines first", "empty lines of two signs", "carriage returns", "a row of 5 MiB"],
)
def test_tables_that_are_odd_but_plain(
    tmp_path: Path, text: str, rows: list[tuple[int, str]]
) -> None:
    found = dataset_of(tmp_path, [text], ["sc:Integer", "sc:Text"]).records("t").to_arrow()
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == rows


@pytest.mark.parametrize("text", ["a,b\n1,x\r2,y\r\n", "\n\r\na,b\n1,x\n"])
def test_lines_that_end_in_several_ways_are_refused_by_name(tmp_path: Path, text: str) -> None:
    table = dataset_of(tmp_path, [text], ["sc:Integer", "sc:Text"]).records("t")
    with pytest.raises(InputError, match="cannot be told apart") as refused:
        table.to_arrow()
    assert str(refused.value.path) == "0.csv"


def test_a_look_at_the_first_rows_does_not_read_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.data.croissant.scanning import quick_csv

    table = dataset_of(tmp_path, ["a,b\n1,x\n2,y\n"], ["sc:Integer", "sc:Text"]).records("t")
    monkeypatch.setattr(quick_csv, "is_clear", None)
    assert table.head(1).to_arrow().num_rows == 1
