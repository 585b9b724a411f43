"""CSV files that are odd: what they hold, and where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_datasets import column, described, field, file_object, record_set

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.errors import InputError


def dataset_of(folder: Path, text: str) -> Dataset:
    """A file with a column a of whole numbers and a column b of text."""
    (folder / "0.csv").write_text(text, encoding="utf-8", newline="")
    fields = [
        field("t/a", "sc:Integer", column("0.csv", "a")),
        field("t/b", "sc:Text", column("0.csv", "b")),
    ]
    return described(folder, [file_object("0.csv")], [record_set("t", *fields)])


def test_an_error_late_in_a_stream_names_its_place(tmp_path: Path) -> None:
    rows = 200_000
    lines = [f"{number},w{number}" for number in range(rows)] + ["x,y"]
    dataset = dataset_of(tmp_path, "a,b\n" + "\n".join(lines) + "\n")
    with pytest.raises(InputError) as told:
        list(dataset.records("t").batches())
    assert told.value.found == "'x'"
    assert f"line {rows + 2}" in str(told.value.place)


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
    assert list(table) == [{"t/n": 1, "t/c": 2, "t/file": "0.csv"}]


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
    found = dataset_of(tmp_path, text).records("t").to_arrow()
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == rows


@pytest.mark.parametrize("outside", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inside", ["\n", "\r\n", "\r"])
def test_a_line_end_within_a_name_is_none_of_the_table(
    tmp_path: Path, inside: str, outside: str
) -> None:
    rows = ["a,b", f'1,"x{inside}y"', "2,z"]
    text = outside.join([f'"n{inside}m",{rows[0]}', *(f"0,{row}" for row in rows[1:]), ""])
    if outside == "\r" != inside:
        with pytest.raises(InputError, match="cannot be told apart"):
            dataset_of(tmp_path, text).records("t").to_arrow()
    else:
        found = dataset_of(tmp_path, text).records("t").to_arrow()
        assert found["t/b"].to_pylist() == [f"x{inside}y", "z"]


@pytest.mark.parametrize("text", ["a,b\n1,x\r2,y\r\n", "\n\r\na,b\n1,x\n"])
def test_lines_that_end_in_several_ways_are_refused_by_name(tmp_path: Path, text: str) -> None:
    table = dataset_of(tmp_path, text).records("t")
    with pytest.raises(InputError, match="cannot be told apart") as refused:
        table.to_arrow()
    assert str(refused.value.path) == "0.csv"
