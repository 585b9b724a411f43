"""Tables: whatever their headers and cells, what is described loads as the files hold it."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import string
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from described_files import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from round_trips import (
    check_csv,
    described,
    fields,
    loaded,
    notes,
    read_csv,
    record_sets,
    types,
    write_csv,
)

from holdfast.data.croissant.describing.folders import describe

COLUMNS = {
    "sc:Integer": ["1", "-20", "0", "9223372036854775807"],
    "sc:Float": ["1.5", "-.25", "3", "6.02e23"],
    "sc:Boolean": ["true", "False", "TRUE", "false"],
    "sc:Date": ["2020-02-29", "1999-12-31", "0001-01-01", "2020-02-01"],
    "sc:Time": ["10:00", "23:59:59", "00:00:00.5", "12:30"],
    "sc:DateTime": [
        "2020-01-01 10:00:00",
        "2020-01-01T10:00",
        "1999-12-31 23:59:59.123",
        "2000-01-01 00:00",
    ],
    "sc:URL": ["https://example.org/a", "http://example.org", "https://a.b/c?d=e", "https://x.y"],
}
TEXTS = {
    "leading zeros": ["007", "0123", "1", "20"],
    "too long for 64 bits": ["123456789012345678901", "1", "2", "3"],
    "signs of telephones": ["+4912345", "+331", "+1", "+44"],
    "a question mark": ["1", "2", "?", "4"],
    "versions": ["1.0.1", "1.2", "2", "3.4"],
    "no such day": ["2020-02-30", "2020-01-01", "2020-01-02", "2020-01-03"],
    "with and without zone": ["2020-01-01T10:00:00Z", "2020-01-01T10:00:00"] * 2,
    "blanks around": [" 1", "2 ", "3", "4"],
    "mixed": ["1", "true", "2020-01-01", "x"],
    "days or months": ["01/02/2020", "03/04/2020", "05/06/2020", "07/08/2020"],
    "infinite": ["inf", "1.5", "2", "3"],
    "whole numbers that a float rounds": ["12345678901234567", "1.5", "2", "3"],
    "words for nothing only": ["NA", "NA", "null", "None"],
    "beyond floats": ["1e400", "1", "2", "3"],
}


@pytest.mark.parametrize("expected", COLUMNS)
def test_a_type_that_every_row_has(tmp_path: Path, expected: str) -> None:
    rows = [[cell, "NA" if place else "x"] for place, cell in enumerate(COLUMNS[expected])]
    write_csv(tmp_path / "t.csv", ["v", "other"], rows)
    made = described(tmp_path)
    assert types(made, "t")["v"] == expected
    check_csv(made, "t", (tmp_path / "t.csv").read_bytes())


@pytest.mark.parametrize("why", TEXTS)
def test_what_would_lose_something_as_a_number_or_date_stays_text(tmp_path: Path, why: str) -> None:
    write_csv(tmp_path / "t.csv", ["v", "n"], [[cell, "1"] for cell in TEXTS[why]])
    made = described(tmp_path)
    assert types(made, "t") == {"v": "sc:Text", "n": "sc:Integer"}
    check_csv(made, "t", (tmp_path / "t.csv").read_bytes())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "v,n\n1.5,1\n1e400,2\n"),
        ("t.csv", "v,n\n-2.5e-3,1\n-1E+999,2\n"),
        ("t.jsonl", '{"v":1.5,"n":1}\n{"v":1e400,"n":2}\n'),
        ("t.json", '[{"v":1,"n":1},{"v":-1E+999,"n":2}]'),
    ],
)
def test_numbers_beyond_every_type_are_text_and_said(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    made = described(tmp_path)
    assert types(made, "t") == {"v": "sc:Text", "n": "sc:Integer"}
    assert "taken as text" in notes(made, "t")
    assert [row["n"] for row in loaded(made, "t")] == [1, 2]


def test_words_for_no_value_do_not_keep_a_column_from_being_numbers(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ["v", "w"], [["1", "NA"], ["NA", "b"], ["", "c"], ["null", "d"]])
    made = described(tmp_path)
    assert types(made, "t") == {"v": "sc:Integer", "w": "sc:Text"}
    assert loaded(made, "t") == [
        {"v": 1, "w": "NA"},
        {"v": None, "w": "b"},
        {"v": None, "w": "c"},
        {"v": None, "w": "d"},
    ]
    assert "2 rows hold a word for no value" in notes(made, "t")


@pytest.mark.parametrize(
    ("cells", "letters", "first"),
    [
        (["31/12/2020", "01/02/2020"], "dd/MM/yyyy", datetime.date(2020, 12, 31)),
        (["12/31/2020", "1/2/2020"], "M/d/yyyy", datetime.date(2020, 12, 31)),
        (["24.12.2020", "01.02.2020"], "dd.MM.yyyy", datetime.date(2020, 12, 24)),
        (["2020/12/24", "2021/01/02"], "yyyy/MM/dd", datetime.date(2020, 12, 24)),
        (["11/11/2020", "25/11/2020"], "dd/MM/yyyy", datetime.date(2020, 11, 11)),
    ],
)
def test_dates_in_other_formats(
    tmp_path: Path, cells: list[str], letters: str, first: datetime.date
) -> None:
    write_csv(tmp_path / "t.csv", ["day", "n"], [[cell, "1"] for cell in cells])
    made = described(tmp_path)
    assert types(made, "t")["day"] == "sc:Date"
    assert fields(made, "t")["day"]["source"]["format"] == letters
    assert loaded(made, "t")[0]["day"] == first


def test_a_late_row_changes_the_type(tmp_path: Path) -> None:
    rows = [[str(number), "a"] for number in range(5_000)] + [["x", "a"]]
    write_csv(tmp_path / "t.csv", ["v", "w"], rows)
    made = described(tmp_path)
    assert types(made, "t")["v"] == "sc:Text"
    check_csv(made, "t", (tmp_path / "t.csv").read_bytes())
    sampled = describe(tmp_path, sample_rows=100)
    assert types(sampled, "t")["v"] == "sc:Integer"
    assert "may not hold for the rest" in notes(sampled, "t")


# A header is a name, not a number: a row of numbers is no header.
HEADERS = st.text(
    st.sampled_from(string.ascii_letters + " '\"./\\[](){}$*#:;,äß名ё-_\t|"), min_size=1, max_size=8
).filter(lambda name: name.strip() and any(sign.isalpha() for sign in name))
CELLS = st.one_of(
    st.sampled_from(["", *chain(*COLUMNS.values(), *TEXTS.values())]),
    st.text(
        st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=["Cs"]),
        max_size=6,
    ),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    header = draw(st.lists(HEADERS, min_size=2, max_size=5, unique_by=str.casefold))
    kinds = [
        draw(st.sampled_from([*map(st.sampled_from, COLUMNS.values()), CELLS])) for _ in header
    ]
    rows = draw(st.lists(st.tuples(*kinds), max_size=6))
    return header, [list(row) for row in rows]


@pytest.mark.examples(5)
@settings(max_examples=15)
@given(tables())
def test_any_table_loads_as_it_stands(table: tuple[list[str], list[list[str]]]) -> None:
    load_as_it_stands(*table)


@pytest.mark.full
@settings(max_examples=400)
@given(tables())
def test_any_of_many_tables_loads_as_it_stands(table: tuple[list[str], list[list[str]]]) -> None:
    load_as_it_stands(*table)


def load_as_it_stands(header: list[str], rows: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any table.csv"
        write_csv(path, header, rows, quoting=1)
        made = described(Path(folder))
        if not record_sets(made):
            assert "cannot be read" in notes(made)
            return
        (name,) = record_sets(made)
        assert [field["name"] for field in record_sets(made)[name]["field"]] == header
        check_csv(made, name, path.read_bytes())


def test_headers_that_are_empty_or_stand_twice(tmp_path: Path) -> None:
    write_csv(
        tmp_path / "t.csv",
        ["", "a", "a", "b", ""],
        [["1", "2", "3", "4", "5"], ["6", "7", "8", "9", "10"]],
    )
    made = described(tmp_path)
    assert [list(row.values()) for row in loaded(made, "t")] == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    assert len(set(types(made, "t"))) == 5


def test_no_rows_and_one_column(tmp_path: Path) -> None:
    write_csv(tmp_path / "empty.csv", ["a", "b"], [])
    write_csv(tmp_path / "one.csv", ["name"], [["x"], ["y"]])
    made = described(tmp_path)
    assert loaded(made, "empty") == []
    assert loaded(made, "one") == [{"name": "x"}, {"name": "y"}]
    assert types(made, "empty") == {"a": "sc:Text", "b": "sc:Text"}


def test_a_first_row_of_numbers_is_no_header(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ["5.1", "3.5", "0"], [["4.9", "3.0", "0"], ["6.2", "2.1", "1"]])
    write_csv(tmp_path / "years.csv", ["1990", "1991"], [["1", "2"], ["3", "4"]])
    made = described(tmp_path)
    assert list(record_sets(made)) == ["years"]
    assert "the first row holds values" in notes(made, "t.csv")


@pytest.mark.parametrize(
    ("ending", "separator"),
    [("csv", ";"), ("csv", "|"), ("tsv", "\t"), ("csv", "\t"), ("tab", "\t")],
)
def test_separators(tmp_path: Path, ending: str, separator: str) -> None:
    path = tmp_path / f"t.{ending}"
    write_csv(path, ["a", "b c"], [["1", "x, y"], ["2", "z"], ["3", "w"]], delimiter=separator)
    made = described(tmp_path)
    check_csv(made, "t", path.read_bytes(), separator)
    assert types(made, "t") == {"a": "sc:Integer", "b_c": "sc:Text"}


def test_compressed_tables(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ["a", "b"], [["1", "x"], ["2", "y"]])
    data = (tmp_path / "t.csv").read_bytes()
    (tmp_path / "t.csv").unlink()
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(data))
    (tmp_path / "j.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    made = described(tmp_path)
    check_csv(made, "t", data)
    assert loaded(made, "j") == [{"a": 1}, {"a": 2}]


TYPED = pa.table(
    {
        "i8": pa.array([1, None, 3], pa.int8()),
        "u64": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "f32": pa.array([1.5, None, -2.25], pa.float32()),
        "f16": pa.array([1.5, 2.5, None], pa.float16()),
        "text": pa.array(["a", "", None]),
        "big": pa.array(["a", "b", None], pa.large_string()),
        "flag": pa.array([True, None, False]),
        "day": pa.array([datetime.date(2020, 1, 2), None, datetime.date(1999, 12, 31)]),
        "at": pa.array(
            [datetime.datetime(2020, 1, 2, 3, 4, 5, 678), None, None], pa.timestamp("us")
        ),
        "tod": pa.array([datetime.time(1, 2, 3), None, None], pa.time64("us")),
        "list": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
        "pairs": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32())),
        "fixed": pa.array([[1, 2, 3]] * 3, pa.list_(pa.int64(), 3)),
        "matrix": pa.array(
            [[[1, 2], [3, 4]], [[5, 6]], [[7, 8], [9, 0]]], pa.list_(pa.list_(pa.int16()))
        ),
        "s": pa.array([{"x": 1, "y z": "a"}, {"x": None, "y z": "b"}, {"x": 3, "y z": None}]),
        "with space": pa.array([1, 2, 3]),
        "category": pa.array(["u", "v", "u"]).dictionary_encode(),
    }
)
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
def test_typed_columns(tmp_path: Path, form: str) -> None:
    table = TYPED
    if form == "parquet":
        pq.write_table(table, tmp_path / "t.parquet")
    else:
        table = table.drop_columns("f16")  # DuckDB reads no such column out of Arrow
        make = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with make(tmp_path / "t.arrow", table.schema) as writer:
            writer.write_table(table)
    made = described(tmp_path)
    expected = table.to_pylist()
    for got, row in zip(loaded(made, "t"), expected, strict=True):
        got["s"] = {name.rpartition("/")[2]: value for name, value in got["s"].items()}
        row["s"] = {name.replace(" ", "_"): value for name, value in row["s"].items()}
        assert list(got.values()) == list(row.values())
    declared = types(made, "t")
    assert declared["u64"] == "cr:UInt64"
    assert declared.get("f16", "cr:Float16") == "cr:Float16"
    assert declared["category"] == "sc:Text"
    shapes = {name: field.get("arrayShape") for name, field in fields(made, "t").items()}
    assert {name: shape for name, shape in shapes.items() if shape} == {
        "list": "-1",
        "pairs": "-1",
        "fixed": "3",
        "matrix": "-1,-1",
    }


def test_images_and_classes_of_the_datasets_library(tmp_path: Path) -> None:
    features = {
        "image": {"_type": "Image"},
        "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    }
    table = pa.table(
        {
            "image": pa.array(
                [{"bytes": PNG, "path": "a.png"}, {"bytes": PNG + b"2", "path": None}]
            ),
            "label": pa.array([1, 0]),
            "unknown": pa.array([b"\1\2", b"\3"]),
        }
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "train-00000-of-00001.parquet")
    made = described(tmp_path)
    assert types(made, "records") == {
        "image": "sc:ImageObject",
        "label": ["cr:Int64", "cr:Label"],
        "split": "sc:Text",
    }
    assert loaded(made, "records") == [
        {"image": PNG, "label": 1, "split": "train"},
        {"image": PNG + b"2", "label": 0, "split": "train"},
    ]
    assert loaded(made, "records_label_classes") == [
        {"id": 0, "name": "cat"},
        {"id": 1, "name": "dog"},
    ]
    assert "'unknown' (binary) has no data type" in notes(made, "records")


def test_what_no_type_describes_is_left_out_and_noted(tmp_path: Path) -> None:
    table = pa.table(
        {
            "money": pa.array([decimal.Decimal("1.25"), decimal.Decimal("2.50")]),
            "for": pa.array([datetime.timedelta(seconds=1)] * 2),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(2),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    made = described(tmp_path)
    assert types(made, "t") == {"money": "sc:Float", "nothing": "sc:Text"}
    assert loaded(made, "t") == [{"money": 1.25, "nothing": None}, {"money": 2.5, "nothing": None}]
    for column in ("for", "map"):
        assert f"'{column}'" in notes(made, "t")


@pytest.mark.parametrize(
    ("names", "split"),
    [
        (["part-00000.parquet", "part-00001.parquet"], False),
        (["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"], True),
        (["data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"], True),
        (["train/0.parquet", "validation/0.parquet"], True),
        (["mnist_train.parquet", "mnist_test.parquet"], True),
        (["x-1.parquet", "x-2.parquet", "x-10.parquet"], False),
    ],
)
def test_files_that_are_one_table(tmp_path: Path, names: list[str], split: bool) -> None:
    for place, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [place, place + 10]}), tmp_path / name)
    made = described(tmp_path)
    (name,) = set(record_sets(made)) - {"splits"}
    rows = loaded(made, name)
    assert set(types(made, name)) == {"a", *(["split"] if split else [])}
    assert sorted(row["a"] for row in rows) == sorted(
        value for place in range(len(names)) for value in (place, place + 10)
    )
    for row in rows:
        file = names[row["a"] % 10]
        if split:
            assert row["split"] in file
    objects = [each for each in made.metadata["distribution"] if each["@type"] == "cr:FileObject"]
    assert sorted(each["contentUrl"] for each in objects) == sorted(names)
    assert all(len(each["sha256"]) == 64 for each in objects)


def test_splits_whose_columns_differ_are_two_tables(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", ["x", "y"], [["1", "a"], ["2", "b"]])
    write_csv(tmp_path / "test.csv", ["x"], [["3"], ["4"]])
    made = described(tmp_path)
    assert {"train", "test"} <= set(record_sets(made))
    assert loaded(made, "test") == [{"x": 3}, {"x": 4}]


def test_a_type_must_hold_in_all_shards(tmp_path: Path) -> None:
    write_csv(tmp_path / "t-0.csv", ["v", "w"], [["1", "a"], ["2", "a"]])
    write_csv(tmp_path / "t-1.csv", ["v", "w"], [["x", "a"], ["4", "a"]])
    made = described(tmp_path)
    assert types(made, "t") == {"v": "sc:Text", "w": "sc:Text"}
    assert [row["v"] for row in loaded(made, "t")] == ["1", "2", "x", "4"]


RECORDS = [
    {
        "id": 1,
        "name": "a",
        "tags": ["x", "y"],
        "at": {"lat": 1.5, "lon": 2},
        "day": "2020-01-02",
        "no": None,
    },
    {"id": 2, "tags": [], "at": {"lat": 2.5, "lon": 3}, "day": "2021-01-02", "no": None},
]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A record with the short names of its structures' members."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {name.rpartition("/")[2]: short(part) for name, part in value.items()}
        return [short(part) for part in value] if isinstance(value, list) else value

    return short(row)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", "\n".join(map(json.dumps, RECORDS)) + "\n"),
        ("t.ndjson", "\n".join(map(json.dumps, RECORDS))),
        ("t.json", json.dumps(RECORDS)),
        ("t.json", json.dumps(RECORDS, indent=2)),
        ("t.json", "\n".join(map(json.dumps, RECORDS))),
    ],
)
def test_objects_in_json(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    made = described(tmp_path)
    day = {1: datetime.date(2020, 1, 2), 2: datetime.date(2021, 1, 2)}
    expected = [{"name": None, **row, "day": day[row["id"]]} for row in RECORDS]
    assert [dict(sorted(plain(row).items())) for row in loaded(made, "t")] == [
        dict(sorted(row.items())) for row in expected
    ]
    assert types(made, "t")["id"] == "sc:Integer"


def test_strings_of_json_stay_strings(tmp_path: Path) -> None:
    rows = [{"zip": "007", "n": "1", "day": "2020-01-01"}, {"zip": "8", "n": "2", "day": ""}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = described(tmp_path)
    assert types(made, "t") == {"zip": "sc:Text", "n": "sc:Text", "day": "sc:Text"}
    assert loaded(made, "t") == rows
    assert "most rows" not in notes(made, "t")


def test_lists_of_objects_in_one_object(tmp_path: Path) -> None:
    value = {
        "info": {"year": 2014},
        "images": [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}],
        "annotations": [
            {"id": 1, "image_id": 8, "bbox": [1, 2, 3, 4]},
            {"id": 2, "image_id": 7, "bbox": [5, 6, 7, 8]},
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(value))
    made = described(tmp_path)
    assert set(record_sets(made)) == {"images", "annotations"}
    assert loaded(made, "images") == value["images"]
    assert loaded(made, "annotations") == value["annotations"]
    assert fields(made, "annotations")["image_id"]["references"] == {"field": {"@id": "images/id"}}


def test_json_that_is_no_table_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"a": 1, "b": [1, 2]}')
    (tmp_path / "broken.json").write_text('{"a": ')
    (tmp_path / "empty.jsonl").write_text("")
    made = described(tmp_path)
    assert not record_sets(made)
    assert {each["name"] for each in made.metadata["distribution"]} == {
        "settings.json",
        "broken.json",
        "empty.jsonl",
    }
    for name in ("settings.json", "broken.json"):
        assert "described as a file" in notes(made, name)


def test_files_that_are_not_what_they_are_named_for(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"no parquet at all")
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x8b broken")
    (tmp_path / "t.zip").write_bytes(b"no zip")
    (tmp_path / "empty.csv").write_bytes(b"")
    made = described(tmp_path)
    assert not record_sets(made)
    assert {each["contentUrl"] for each in made.metadata["distribution"]} == {
        "t.parquet", "t.csv.gz", "t.zip", "empty.csv",
    }  # fmt: skip
    for name in ("t.parquet", "t.csv.gz", "t.zip"):
        assert notes(made, name)


def test_json_nested_too_deep_spoils_no_other_table(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 5000 + "]" * 5000)
    (tmp_path / "rows.json").write_text('[{"a": 1}, {"a": 2}]')
    made = described(tmp_path)
    assert list(record_sets(made)) == ["rows"]
    assert "too deeply nested" in notes(made, "deep.json")


def test_zero_bytes_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "zeros.csv").write_bytes(b"\0" * 1000)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    made = described(tmp_path)
    assert list(record_sets(made)) == ["rows"]
    assert "zero bytes" in notes(made, "zeros.csv")


def test_nothing_to_describe(tmp_path: Path) -> None:
    with refused("no-data"):
        describe(tmp_path)
    with refused("not-found"):
        describe(tmp_path / "missing")
    with refused("out-of-range"):
        describe(tmp_path, sample_rows=0)


def test_reading_by_hand_agrees_with_itself() -> None:
    assert read_csv(b'a,b\r\n"1\n2",3\r\n\r\n') == (["a", "b"], [["1\n2", "3"]])


def test_lists_of_structures_in_lists_keep_every_value(tmp_path: Path) -> None:
    rows = [
        {"id": i, "says": [{"role": "a", "calls": [{"f": "x", "n": {"k": i}}] * i, "tags": ["t"]}]}
        for i in range(3)
    ] + [{"id": 3, "says": []}]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "whole.json").write_text(json.dumps({"records": rows}))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "columns.parquet")
    made = described(tmp_path)
    for name in ("lines", "records", "columns"):
        found = [
            [[json.loads(call) for call in said[f"{name}/says/calls"]] for said in row["says"]]
            for row in loaded(made, name)
        ]
        assert found == [[said["calls"] for said in row["says"]] for row in rows]
        assert "taken as text" in notes(made, name)


def test_lists_of_lists_of_structures(tmp_path: Path) -> None:
    rows = [{"id": 1, "grid": [[{"x": 1}, {"x": 2}], [{"x": 3}]]}, {"id": 2, "grid": [[]]}]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = described(tmp_path)
    found = [
        [[json.loads(x) for x in line] for line in row["grid"]] for row in loaded(made, "lines")
    ]
    assert found == [row["grid"] for row in rows]


def test_one_object_in_each_file(tmp_path: Path) -> None:
    rows = [{"id": 3 * i, "tags": ["t"] * i, "at": {"x": i}} for i in range(12)]
    rows[5]["late"] = True
    for row in rows:
        (tmp_path / f"item_{row['id']:03d}.json").write_text(json.dumps(row))
    made = described(tmp_path)
    assert loaded(made, "item") == [
        {
            "id": row["id"],
            "tags": row["tags"],
            "at": {"item/at/x": i},
            "late": row.get("late"),
        }
        for i, row in enumerate(rows)
    ]


def test_columns_without_a_name_are_left_out(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1, 2], ["a", "b"]], names=["n", ""]), tmp_path / "t.parquet")
    made = described(tmp_path)
    assert loaded(made, "t") == [{"n": 1}, {"n": 2}]
    assert "a column without a name (string)" in notes(made, "t")


def test_decimal_numbers_keep_their_digits(tmp_path: Path) -> None:
    cells = {
        "price": (["1.10", "-20.05", None], pa.decimal128(38, 2)),
        "wei": (["100000000000000000001", "0", None], pa.decimal128(25, 0)),
        "rate": (["12345678901234567890.123456789", "0.1", "1"], pa.decimal128(38, 9)),
    }
    columns = {
        name: pa.array([text and decimal.Decimal(text) for text in texts], kind)
        for name, (texts, kind) in cells.items()
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    made = described(tmp_path)
    assert types(made, "t") == {"price": "sc:Float", "wei": "sc:Text", "rate": "sc:Text"}
    assert [row["price"] for row in loaded(made, "t")] == [1.1, -20.05, None]
    for name in ("wei", "rate"):
        found = [row[name] and decimal.Decimal(row[name]) for row in loaded(made, "t")]
        assert found == columns[name].to_pylist()


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("5.1,3.5,1.4,0.2,setosa", False),
        ("8,Bo,3", False),
        ("item,2023,2022,2021", True),
        ("name,1,2,3", True),
        ("sample,400.5,401,402.5,403", True),
        ("id,7", True),
        ("sep=,", False),
    ],
)
def test_first_rows_that_are_no_names(tmp_path: Path, first: str, names: bool) -> None:
    row = ",".join("9" for _ in first.split(","))
    (tmp_path / "t.csv").write_text(f"{first}\n{row}\n")
    (tmp_path / "other.csv").write_text("a\n1\n")
    assert ("t" in record_sets(described(tmp_path))) == names


def test_lists_of_objects_below_other_objects(tmp_path: Path) -> None:
    items = [{"id": n, "at": {"x": n / 2}, "tags": ["a"] * n} for n in range(3)]
    page = {"meta": {"page": 1}, "data": {"page": {"items": items}}, "more": [{"k": "v"}]}
    (tmp_path / "answer.json").write_text(json.dumps(page))
    made = described(tmp_path)
    assert loaded(made, "more") == [{"k": "v"}]
    assert loaded(made, "items") == [
        {"id": item["id"], "at": {"items/at/x": n / 2}, "tags": item["tags"]}
        for n, item in enumerate(items)
    ]


def test_long_numbers_of_json_keep_their_digits(tmp_path: Path) -> None:
    rows = [{"u": 2**63 + n, "long": 10**25 + n, "round": 2.5 * 10**n} for n in range(3)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = described(tmp_path)
    assert types(made, "t") == {"u": "sc:Text", "long": "sc:Text", "round": "sc:Float"}
    assert loaded(made, "t") == [
        row | {name: str(row[name]) for name in ("u", "long")} for row in rows
    ]


def test_json_that_cannot_be_loaded_is_described_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "twice.jsonl").write_text('{"a": 1, "a": 2}\n{"a": 3}\n')
    (tmp_path / "good.jsonl").write_text('{"a": 1}\n')
    made = described(tmp_path)
    assert list(record_sets(made)) == ["good"]
    assert "duplicate key" in notes(made, "twice.jsonl")
