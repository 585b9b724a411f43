"""Sets of Parquet and Arrow files whose schemas differ: what is refused, and what is put together."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_datasets import FORMATS, about, column, described, field, file_object, record_set

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import validate
from holdfast.errors import InputError

KINDS = ["parquet", "arrow", "arrows"]
A = pa.array


def of(folder: Path, kind: str, tables: list[dict[str, Any]], *fields: Any) -> Dataset:
    """A FileSet of one file for each table; fields are of the one record set."""
    (folder / "d").mkdir(parents=True)
    for number, columns in enumerate(tables):
        table, path = pa.table(columns), folder / "d" / f"{number}.{kind.rstrip('s')}"
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            write = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
            with write(str(path), table.schema) as writer:
                writer.write_table(table)
    files = {"@type": "cr:FileSet", "@id": "d", "name": "d", "includes": "d/*"}
    resource = files | {"encodingFormat": FORMATS[kind.rstrip("s")]}
    return described(folder, [resource], [record_set("r", *fields)])


def value(name: str, kind: str = "sc:Integer") -> Any:
    return field(f"r/{name.replace('/', '_')}", kind, column("d", name))


@pytest.mark.quick(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("tables", "code", "at"),
    [
        ([{"a": [1]}, {"a": [2], "v": [3]}], "missing-column", "d/0"),
        ([{"a": [2], "v": [3]}, {"a": [1]}, {"v": [4]}], "missing-column", "d/1"),
        ([{"v": [1]}, {"v": ["x"]}], "conflict", "d/1"),
        ([{"v": ["x"]}, {"v": [1]}], "conflict", "d/1"),
        ([{"v": [[1]]}, {"v": [[2.5]]}], "conflict", "d/1"),
        ([{"v": [1]}, {"v": A([0], pa.timestamp("us"))}], "conflict", "d/1"),
        (
            [{"v": A([0], pa.timestamp("us"))}, {"v": A([0], pa.timestamp("us", "UTC"))}],
            "conflict",
            "d/1",
        ),
        ([{"v": [{"x_1": 1}]}, {"v": [{"x_1": 1, "y": 2}]}], "conflict", "d/1"),
    ],
)
def test_files_that_differ_are_refused(
    tmp_path: Path, kind: str, tables: list[dict[str, Any]], code: str, at: str
) -> None:
    with of(tmp_path, kind, tables, value("v", "sc:Text")) as dataset:
        with pytest.raises(InputError) as caught:
            dataset.records().to_arrow()
        assert caught.value.code == code
        assert caught.value.place == "column 'v'"
        assert at in str(caught.value)
        if len(tables) == 2 and kind == "parquet":
            found = validate(tmp_path, data="full").problems
            assert "CR914" in [one.code for one in found if one.severity.value == "error"]


@pytest.mark.quick(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "declared", "values", "expected"),
    [
        ("v", "sc:Integer", [A([1], pa.int8()), A([2**63 - 1]), A([3], pa.uint32())], [1, 2**63 - 1, 3]),
        ("v", "cr:UInt64", [A([2**64 - 1], pa.uint64()), A([1])], [2**64 - 1, 1]),
        ("v", "sc:Integer", [A([2**53 + 1]), A([3.0])], [2**53 + 1, 3]),
        ("v", "sc:Float", [A([3]), A([0.5, None])], [3.0, 0.5, None]),
        ("v", "sc:Integer", [A([None]), A([7]), A([None])], [None, 7, None]),
        ("v", "sc:Text", [A(["x"]), A(["y"]).dictionary_encode()], ["x", "y"]),
        ("v", "sc:Text", [A(["x"]), A(["y"], pa.large_string())], ["x", "y"]),
        ("v/y", "sc:Integer", [A([{"x": 1, "y": 2}]), A([{"y": 3, "z": 4}])], [2, 3]),
    ],
)  # fmt: skip
def test_types_that_go_together(
    tmp_path: Path, kind: str, name: str, declared: str, values: list[Any], expected: list[Any]
) -> None:
    # A column that no field takes may be anything, or be missing.
    others: list[dict[str, Any]] = [{"other": ["x"]}, {"other": [[1]]}, {}]
    tables = [
        {"v": one} | {name: [*rest, *rest][: len(one)] for name, rest in more.items()}
        for one, more in zip(values, others, strict=False)
    ]
    taken = [value(name, declared), field("r/file", "sc:Text", about("d", "filename"))]
    with of(tmp_path, kind, tables, *taken) as dataset:
        rows = list(dataset.records())
    assert [row[f"r/{name.replace('/', '_')}"] for row in rows] == expected
    suffix = kind.rstrip("s")
    files = [f"{place}.{suffix}" for place, one in enumerate(values) for _ in one]
    assert [row["r/file"] for row in rows] == files


@pytest.mark.parametrize("kind", ["plain", "list", "struct"])
def test_nanoseconds_of_int96_are_not_cut(tmp_path: Path, kind: str) -> None:
    """DuckDB cuts them; times of whole microseconds are read, also before 1970."""
    whole = [1704067200123456000, None, -1_000_000]

    def opened(times: list[int | None]) -> Dataset:
        column_of = pa.array(times, pa.timestamp("ns"))
        if kind == "list":
            column_of = pa.array(
                [[one, one] for one in column_of.to_pylist()], pa.list_(column_of.type)
            )
        if kind == "struct":
            column_of = pa.StructArray.from_arrays([column_of], ["x"])
        table = pa.table({"t": column_of, "n": [1] * len(times)})
        pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
        name = "t/x" if kind == "struct" else "t"
        fields = [
            field("t", "sc:DateTime", column("t.parquet", name), isArray=kind == "list"),
            field("n", "sc:Integer", column("t.parquet", "n")),
        ]
        return described(tmp_path, [file_object("t.parquet")], [record_set("r", *fields)])

    def one(row: Any) -> Any:
        return row["t"][0] if kind == "list" else row["t"]

    made = opened(whole)
    assert [one(row) for row in made.records("r")][::2] == [
        dt.datetime(2024, 1, 1, 0, 0, 0, 123456),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ]
    made = opened([*whole, 1704067200123456789])
    assert len(made.records("r", columns=["n"]).to_arrow()) == 4  # the column is not asked for
    with pytest.raises(InputError) as caught:
        made.records("r").to_arrow()
    assert caught.value.code == "unsupported"
    assert str(caught.value.found).endswith(".123456789")
