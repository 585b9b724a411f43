"""`validate` and `load` look at the same files: what one takes, the other takes, in every format."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_datasets import column, described, field, file_object, file_set, other, record_set

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import validate
from holdfast.errors import InputError


def findings(folder: Path) -> dict[str, str]:
    """Code -> pointer of what validation says of the data, notes left out."""
    found = validate(folder, data="full", offline=True, cache=folder / "cache").problems
    return {one.code: one.pointer for one in found if one.code > "CR9" and one.severity != "note"}


def one_column(folder: Path, file: str, text: str | bytes, name: str = "k") -> Dataset:
    """A file, and a record set r of one of its columns as integers."""
    (folder / file).write_bytes(text.encode() if isinstance(text, str) else text)
    fields = [field("r/k", "sc:Integer", column(file, name))]
    return described(folder, [file_object(file)], [record_set("r", *fields)])


def test_names_that_begin_with_a_tilde_are_in_the_folder(tmp_path: Path) -> None:
    for name in ("~.csv", "~$b.csv", "~c/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("k\n1\n")
    files = [file_object("~.csv"), file_set("s", "~*.csv"), file_set("t", "~c/*.csv")]
    fields = {name: [field(f"{name}/k", "sc:Integer", column(name, "k"))] for name in "st"}
    fields["r"] = [field("r/k", "sc:Integer", column("~.csv", "k"))]
    sets = [record_set(name, *some) for name, some in fields.items()]
    with described(tmp_path, files, sets) as dataset:
        assert {name: dataset.records(name).count() for name in fields} == {"s": 3, "t": 1, "r": 1}
    assert not findings(tmp_path)


@pytest.mark.parametrize(
    ("file", "text"), [("e.jsonl", ""), ("b.jsonl", "\n\n"), ("a.json", "[ ]"), ("c.csv", "k\n")]
)
def test_a_file_without_records_lacks_no_column(tmp_path: Path, file: str, text: str) -> None:
    with one_column(tmp_path, file, text) as dataset:
        assert dataset.records("r").count() == 0
    assert findings(tmp_path) == {"CR914": "/recordSet/0"}
    assert validate(tmp_path, data="full", offline=True).valid


@pytest.mark.quick(3)
@pytest.mark.parametrize("text", ["1\n2\n", "{}\n", "[1]\n", "null\n"])
@pytest.mark.parametrize("name", ["k", "json"])
def test_records_that_are_not_objects_have_no_member(tmp_path: Path, text: str, name: str) -> None:
    with one_column(tmp_path, "a.jsonl", text, name) as dataset:
        with pytest.raises(InputError) as caught:
            dataset.records("r").to_arrow()
        assert caught.value.code == "missing-column"
    assert findings(tmp_path) == {"CR914": "/recordSet/0"}


@pytest.mark.parametrize(
    ("header", "name", "value", "several"),
    [
        ("k,k", "k", 1, True),
        ("k,k", "k.1", 2, False),
        ("k,K", "K", 2, False),
        ("k ,k", "k", 2, False),
        (" k,k ", "k", 1, True),
    ],
)
def test_of_columns_with_one_name_the_first_is_read_with_a_remark(
    tmp_path: Path, header: str, name: str, value: int, several: bool
) -> None:
    with one_column(tmp_path, "a.csv", f"{header}\n1,2\n", name) as dataset:
        records = dataset.records("r")
        assert list(records) == [{"r/k": value}]
        assert len(records.remarks()) == several
    assert findings(tmp_path) == ({"CR915": "/recordSet/0"} if several else {})


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns_of_types_with_one_name_are_refused(tmp_path: Path, kind: str) -> None:
    made, table = io.BytesIO(), pa.Table.from_arrays([pa.array([1])] * 2, names=["k", "k"])
    if kind == "parquet":
        pq.write_table(table, made)
    else:
        with pa.ipc.new_file(made, table.schema) as writer:
            writer.write_table(table)
    with one_column(tmp_path, f"a.{kind}", made.getvalue()) as dataset:
        with pytest.raises(InputError) as caught:
            dataset.records("r").to_arrow()
        assert (caught.value.code, caught.value.place) == ("duplicate", "column 'k'")
    assert findings(tmp_path) == {"CR914": "/recordSet/0"}


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("ending", "extract", "texts", "lacks"),
    [
        ("jsonl", {"column": "k"}, ('{"k":1}', '{"K":1}'), True),
        ("jsonl", {"jsonPath": "$.k"}, ('{"k":1}', '{"K":1}'), True),
        ("json", {"column": "k"}, ('[{"k":1}]', '[{"K":1},{"j":1}]'), True),
        ("json", {"jsonPath": "$[*].k"}, ('[{"k":1}]', '[{"K":1}]'), True),
        ("json", {"column": "k"}, ('{"l":[{"k":1}]}', '{"l":[{"K":1}]}'), True),
        ("json", {"jsonPath": "$.l[*].k"}, ('{"l":[{"k":1}]}', '{"l":[{"K":1}]}'), True),
        ("jsonl", {"column": "k"}, ('{"k":1}', ""), False),
        ("jsonl", {"column": "k"}, ('{"k":1}', '{"j":1}\n{"k":null}'), False),
        ("json", {"jsonPath": "$.k"}, ('{"k":1}', '{"k":null}'), False),
    ],
)
def test_json_files_of_which_no_record_has_a_member(
    tmp_path: Path, ending: str, extract: Any, texts: tuple[str, str], lacks: bool
) -> None:
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.{ending}").write_text(text)
    files = [file_set("s", f"?.{ending}")]
    source = {"fileSet": {"@id": "s"}, "extract": extract}
    with described(
        tmp_path, files, [record_set("r", field("r/k", "sc:Integer", source))]
    ) as dataset:
        records = dataset.records("r")
        assert next(iter(records)) == {"r/k": 1}
        assert [f"b.{ending}" in text for text in records.remarks()] == [True] * lacks
    assert findings(tmp_path) == ({"CR915": "/recordSet/0"} if lacks else {})


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("kind", "value", "target", "values", "found"),
    [
        ("sc:Text", "01", "sc:Integer", "1", True),
        ("sc:Text", "1.0", "sc:Integer", "1", False),
        ("sc:Text", "1.0", "sc:Float", "1", True),
        ("sc:Integer", "1", "sc:Text", "01", True),
        ("sc:Integer", "7", "sc:Text", "abc", False),
        ("sc:Integer", "1", "sc:Float", "1", True),
        ("sc:Float", "1.5", "sc:Integer", "2", False),
        ("sc:Integer", "9007199254740993", "sc:Float", "9007199254740992", False),
        ("sc:Integer", "9007199254740992", "sc:Float", "9007199254740992", True),
        ("sc:Date", "2024-01-02", "sc:DateTime", "2024-01-02 00:00:00", True),
        ("sc:Boolean", "yes", "sc:Text", "true", True),
        ("sc:Boolean", "yes", "sc:Integer", "1", False),
        ("sc:Float", "NaN", "sc:Float", "1", None),
    ],
)
def test_references_are_found_where_joins_find_them(
    tmp_path: Path, kind: str, value: str, target: str, values: str, found: bool | None
) -> None:
    (tmp_path / "a.csv").write_text(f"k\n{value}\n")
    (tmp_path / "b.csv").write_text(f"k,v\n{values},x\n")
    reference = {"field": {"@id": "t/k"}}
    first = [
        field("r/k", kind, column("a.csv", "k"), references=reference),
        field("r/v", None, other("t/v")),
    ]
    second = [
        field("t/k", target, column("b.csv", "k")),
        field("t/v", "sc:Text", column("b.csv", "v")),
    ]
    sets = [record_set("r", *first), record_set("t", *second)]
    with described(tmp_path, [file_object("a.csv"), file_object("b.csv")], sets) as dataset:
        [row] = dataset.records("r")
        assert row["r/v"] == ("x" if found else None)
    pointer = "/recordSet/0/field/0/references"
    assert findings(tmp_path) == ({"CR931": pointer} if found is False else {})
