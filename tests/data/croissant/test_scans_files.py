"""Parquet, Arrow, lines, whole files, the suite's own files, and what errors in a query say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from croissant_local_files import (
    LocalFiles,
    column,
    connect,
    field,
    file_property,
    json_path,
    members_of,
    rows_of,
    scan_of,
    step,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.data.croissant.scanning import listed_files
from holdfast.data.croissant.scanning.columns import extract_key
from holdfast.data.croissant.scanning.failures import explain
from holdfast.data.croissant.scanning.scans import column_names
from holdfast.data.croissant.scanning.transforms import value_sql
from holdfast.errors import InputError

PARQUET, ARROW, TEXT = (
    ["application/x-parquet"],
    ["application/vnd.apache.arrow.file"],
    ["text/plain"],
)
TABLE = pa.table(
    {
        "s": [{"a": {"b": 1}}, None, {"a": None}],
        "l": [[{"x": 1}, {"x": 2}], [], None],
        "n": ["u", "v", None],
        "image": [{"bytes": b"\xff\xd8", "path": "1.jpg"}, None, {"bytes": None, "path": "2.jpg"}],
    }
)
FIELDS = [
    field("b", "sc:Integer", extract=column("s/a/b")),
    field("x", "sc:Integer", extract=column("l.x"), repeated=True),
    field("n", "sc:Text", extract=column("n")),
    field("image", "sc:ImageObject", extract=column("image"), transforms=[step(json_path="bytes")]),
    field("line", "sc:Integer", extract=file_property("lineNumbers")),
    field("file", "sc:Text", extract=file_property("filename")),
]


def expected(name: str) -> list[tuple[Any, ...]]:
    return [
        (1, [1, 2], "u", b"\xff\xd8", 0, name),
        (None, [], "v", None, 1, name),
        (None, None, None, None, 2, name),
    ]


def test_parquet_and_its_nested_columns(tmp_path):
    path = tmp_path / "p.parquet"
    pq.write_table(TABLE, path, row_group_size=2)
    assert rows_of(members_of(path), PARQUET, *FIELDS) == expected("p.parquet")
    with pytest.raises(InputError, match="did you mean 'n'"):
        scan_of(connect(), members_of(path), PARQUET, column("N"))
    with pytest.raises(InputError) as caught:
        scan_of(connect(), members_of(path), PARQUET, column("s/a/c"))
    assert (caught.value.code, caught.value.path) == ("missing-column", "p.parquet")


def test_columns_called_as_the_engine_calls_its_own(tmp_path):
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"file_index": ["x", "y"], "filename": ["f", "g"]}), path)
    fields = [field("i", extract=column("file_index")), *FIELDS[4:]]
    assert rows_of(members_of(path), PARQUET, *fields) == [
        ("x", 0, "p.parquet"),
        ("y", 1, "p.parquet"),
    ]


def test_parquet_filters_reach_the_file(tmp_path):
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"a": range(1000), "b": range(1000)}), path)
    connection = connect()
    scan = scan_of(connection, members_of(path), PARQUET, column("a"), column("b"))
    a, b = (scan.columns["column", name].sql for name in "ab")
    plan = connection.execute(f"EXPLAIN SELECT {a} FROM {scan.relation} WHERE {b} = 7").fetchall()[
        0
    ][1]
    assert "Read Parquet" in plan
    assert "Filter " not in plan.replace("Filters", "")
    assert "a" in plan


def test_arrow_files_and_streams(tmp_path):
    feather, stream = tmp_path / "f.feather", tmp_path / "s.arrow"
    pyarrow.feather.write_feather(TABLE, feather)
    with pa.ipc.new_stream(str(stream), TABLE.schema) as sink:
        sink.write_table(TABLE)
    found = rows_of(members_of(feather, stream), ARROW, *FIELDS)
    assert found == expected("f.feather") + expected("s.arrow")


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    contents=st.lists(
        st.text('aé\n\r,"\x0b ', max_size=20).map(str.encode), min_size=1, max_size=3
    ),
    block=st.integers(1, 9),
    packed=st.booleans(),
)
def test_lines_are_pythons(tmp_path, contents, block, packed):
    paths = []
    for place, content in enumerate(contents):
        paths.append(tmp_path / f"{place}.txt")
        paths[-1].write_bytes(gzip.compress(content) if packed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listed_files, "_BLOCK", block)
        found = rows_of(
            members_of(*paths),
            TEXT,
            field("text", "sc:Text", extract=file_property("lines")),
            field("number", "sc:Integer", extract=file_property("lineNumbers")),
            field("name", "sc:Text", extract=file_property("filename")),
        )
    assert found == [
        (line.decode(), number, f"{place}.txt")
        for place, content in enumerate(contents)
        for number, line in enumerate(content.splitlines())
    ]


def test_lines_that_are_no_text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"one\ntwo\ncaf\xe9\n")
    with pytest.raises(InputError) as caught:
        scan_of(connect(), members_of(path), TEXT, file_property("lines"))
    assert (caught.value.code, caught.value.place) == ("invalid-encoding", "line 3")


def test_whole_files_wait_unless_the_query_computes_with_them(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text('{"k": 1}')
    second.write_text('{"k": "zwei"}')
    files = [field("c", "sc:ImageObject", extract=file_property("content"))]
    assert rows_of(members_of(first, second), ["image/jpeg"], *files) == [(0,), (1,)]
    computed = field(
        "k", "sc:Text", extract=file_property("content"), transforms=[step(json_path="$.k")]
    )
    assert rows_of(members_of(first, second), ["application/json"], computed) == [("1",), ("zwei",)]


def test_names_for_describing(tmp_path):
    table, records = tmp_path / "t.csv", tmp_path / "r.jsonl"
    table.write_text(",a,a\n1,2,3\n")
    records.write_text('{"a": 1, "b": "x"}\n')
    connection, files = connect(), LocalFiles()
    assert column_names(connection, files, "t", ["text/csv"], members_of(table)) == {
        "Unnamed: 0": "VARCHAR",
        "a": "VARCHAR",
        "a.1": "VARCHAR",
    }
    assert column_names(connection, files, "r", ["application/jsonlines"], members_of(records)) == {
        "a": "BIGINT",
        "b": "VARCHAR",
    }


@pytest.mark.parametrize(
    ("formats", "extracts", "words"),
    [
        (["image/jpeg"], [column("a")], "is not a table"),
        (["text/csv"], [json_path("$.a")], "is not JSON"),
        (
            ["text/csv"],
            [column("a"), file_property("lines")],
            "both as lines of text and as a table",
        ),
        (["text/csv"], [file_property("size")], "no property 'size'"),
        (["application/x-parquet"], [column("a")], "cannot be read as Parquet"),
    ],
)
def test_extracts_that_cannot_be(tmp_path, formats, extracts, words):
    path = tmp_path / "file"
    path.write_text("a\n1\n")
    with pytest.raises(InputError, match=words):
        scan_of(connect(), members_of(path), formats, *extracts)


# Errors in the middle of a query --------------------------------------------------------------


def explained(members: list[Any], formats: list[str], *fields: Any) -> str:
    connection = connect()
    extracts = [part.source.extract for part in fields]
    scan = scan_of(connection, members, formats, *extracts)
    raws = [scan.columns[extract_key(extract)] for extract in extracts]
    values = [value_sql(raw, part, part.source) for raw, part in zip(raws, fields, strict=True)]
    read = {
        part.id: pair for part, pair in zip(fields, zip(raws, values, strict=True), strict=True)
    }
    with pytest.raises(duckdb.Error) as caught:
        connection.execute(
            f"SELECT {', '.join(value.sql for value in values)} FROM {scan.relation}"
        ).fetchall()
    return str(explain(connection, caught.value, [(scan, read)]))


def test_a_value_that_does_not_fit_is_found(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text('id,note\n1,"two\nlines"\nNA,x\n')
    second.write_text('id,note\n\n2,"two\nlines"\n3.5,x\n4,y\n')
    said = explained(
        members_of(first, second),
        ["text/csv"],
        field("note", "sc:Text", extract=column("note")),
        field("id", "sc:Integer", extract=column("id")),
    )
    assert said.splitlines()[0] == "b.csv, line 5, 'id': a value does not fit field 'r/id'"
    assert "found: '3.5'" in said
    assert "a whole number" in said


@pytest.mark.parametrize(
    ("name", "content", "formats", "words"),
    [
        (
            "t.csv",
            b"id,b\n1,2\n3\n",
            ["text/csv"],
            ["t.csv, line 3", "Expected Number of Columns: 2"],
        ),
        ("t.csv", b'id,b\n1,2\n3,"4\n', ["text/csv"], ["t.csv, line 3", "unterminated quote"]),
        (
            "t.jsonl",
            b'{"id":1}\n{"id":"x"}\n',
            ["application/jsonlines"],
            ["t.jsonl, line 2", "'\"x\"'"],
        ),
    ],
)
def test_lines_that_are_none_of_the_format(tmp_path, name, content, formats, words):
    path = tmp_path / name
    path.write_bytes(content)
    said = explained(members_of(path), formats, field("id", "sc:Integer", extract=column("id")))
    for word in words:
        assert word in said


def test_a_line_that_is_no_json(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": 1}\n{"id"\n')
    with pytest.raises(InputError, match=r"^t\.jsonl, line \d: .* cannot be read as JSON"):
        scan_of(connect(), members_of(path), ["application/jsonlines"], column("id"))
    path.write_text('{"id": 1}\n' * 30_000 + '{"id"\n')  # beyond what is looked at first
    said = explained(
        members_of(path), ["application/jsonlines"], field("id", "sc:Integer", extract=column("id"))
    )
    assert said.startswith("t.jsonl, line 3000")


def test_lists_that_do_not_match_are_explained(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"a": [1, 2], "b": {"c": [1]}}))
    both = [field("a", extract=json_path("$.a[*]")), field("c", extract=json_path("$.b.c[*]"))]
    said = explained(members_of(path), ["application/json"], *both)
    assert "$.a[*] finds 2 values, $.b.c[*] finds 1" in said


# The suite ------------------------------------------------------------------------------------


def outputs(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_titanic_as_the_reference_implementation_reads_it(shared_data):
    folder = shared_data / "croissant/datasets/1.0/titanic"
    description = json.loads((folder / "metadata.json").read_text())
    (passengers,) = [part for part in description["recordSet"] if part["@id"] == "passengers"]
    fields, keys = [], []
    for part in passengers["field"]:
        fields.append(
            field(
                part["name"],
                *([part["dataType"]] if isinstance(part["dataType"], str) else part["dataType"]),
                extract=column(part["source"]["extract"]["column"]),
            )
        )
        keys.append(part["@id"])
    found = rows_of(members_of(folder / "data/titanic.csv"), ["text/csv"], *fields)
    expected_rows = outputs(folder / "output/passengers.jsonl")
    assert len(found) == 1309
    for row, record in zip(found, expected_rows, strict=True):
        shown = [None if record[key] == "None" else record[key] for key in keys]
        assert list(row) == shown


def test_simple_parquet_as_the_reference_implementation_reads_it(shared_data):
    folder = shared_data / "croissant/datasets/1.0/simple-parquet"
    found = rows_of(
        members_of(folder / "data/dataframe.parquet"),
        PARQUET,
        field("name", "sc:Text", extract=column("name")),
        field("age", "sc:Integer", extract=column("age")),
    )
    assert found == [tuple(record.values()) for record in outputs(folder / "output/persons.jsonl")]


def test_dates_of_pass_mini_as_the_reference_implementation_reads_them(shared_data):
    folder = shared_data / "croissant/datasets/1.0/pass-mini"
    rows = rows_of(
        members_of(folder / "data/pass_metadata.csv"),
        ["text/csv"],
        field("hash", "sc:Text", extract=column("hash")),
        field("latitude", "sc:Float", extract=column("latitude")),
        field(
            "taken",
            "sc:Date",
            extract=column("datetaken"),
            transforms=[step(format="%Y-%m-%d %H:%M:%S.%f")],
        ),
    )
    by_hash = {row[0]: row[1:] for row in rows}
    for record in outputs(folder / "output/images.jsonl"):
        latitude, taken = by_hash[record["images/hash"]]
        assert str(taken) == record["images/date_taken"]
        shown = record["images/gps_coordinates"]["images/latitude"]
        assert latitude == (None if shown == "None" else shown)
