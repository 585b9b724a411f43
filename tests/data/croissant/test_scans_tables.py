"""CSV and TSV against Python's csv module and a cast written out by hand."""

from __future__ import annotations

import csv
import gzip
import io
import math
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from croissant_local_files import (
    LocalFiles,
    column,
    connect,
    field,
    file_property,
    members_of,
    rows_of,
    scan_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.data.croissant.scanning.casting import NULL_WORDS
from holdfast.data.croissant.scanning.columns import CONTENT, MEMBER
from holdfast.data.croissant.scanning.delimited import unique_names
from holdfast.errors import InputError

CSV = ["text/csv"]
ANYTHING = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\x00\ufeff"),
    max_size=12,
)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.sampled_from([*NULL_WORDS, "007", "+5", "3.0", "-0"]),
)
FLOATS = st.one_of(
    st.floats(allow_nan=False).map(repr), st.sampled_from([*NULL_WORDS, "1e3", "-.5", "1E-9"])
)


def as_integer(text: str) -> int | None:
    return None if text.strip() in NULL_WORDS else int(float(text)) if "." in text else int(text)


def as_float(text: str) -> float | None:
    return None if text.strip() in NULL_WORDS else float(text)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.tuples(ANYTHING, NUMBERS, FLOATS), min_size=1, max_size=12),
    terminator=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
)
def test_csv_equals_the_csv_module(tmp_path, rows, terminator, quoting, delimiter):
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=terminator, quoting=quoting, delimiter=delimiter)
    writer.writerow(["text", "whole", "real"])
    # The csv module leaves a lone \r unquoted, and then reads it as the end of a line.
    plain = [[value.replace("\r", "") for value in row] for row in rows]
    writer.writerows(rows if quoting == csv.QUOTE_ALL else plain)
    path = tmp_path / "table.csv"
    path.write_bytes(out.getvalue().encode())
    found = rows_of(
        members_of(path),
        CSV,
        field("text", "sc:Text", extract=column("text")),
        field("whole", "sc:Integer", extract=column("whole")),
        field("real", "sc:Float", extract=column("real")),
    )
    with path.open(encoding="utf-8", newline="") as file:
        read = list(csv.reader(file, delimiter=delimiter))[1:]
    expected = [(text or None, as_integer(whole), as_float(real)) for text, whole, real in read]
    assert found == expected


PACKED = gzip.compress(b"a,b\n1,x\n2,y\n", mtime=0)  # the time would be in the cases' names


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b"\xef\xbb\xbfa,b\r\n1,x\r\n2,y\r\n"),
        ("t.csv", "a,b\n1,x\n2,y\n".encode("utf-16")),
        ("t.csv", b"a;b\n1;x\n2;y\n"),
        ("t.csv", b" a , b\n1,x\n2,y"),
        ("t.csv", b"b,a\nx,1\n\ny,2\n\n"),
        ("t.tsv", b"a\tb\n1\tx\n2\ty\n"),
        ("t.csv.gz", PACKED),
        ("cached-without-suffix", PACKED),
    ],
)
def test_ways_to_write_a_table(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    formats = ["text/tab-separated-values"] if "tsv" in name else CSV
    fields = [field("a", "sc:Integer", extract=column("a")), field("b", extract=column("b"))]
    assert rows_of(members_of(path), formats, *fields) == [(1, "x"), (2, "y")]


def test_a_line_of_many_names(tmp_path):
    """Read with another separator, it is one name that is longer than the csv module takes."""
    path = tmp_path / "t.csv"
    names = [f"a column with the number {number:05d}" for number in range(8000)]
    path.write_text(f"{';'.join(names)}\n{';'.join(map(str, range(8000)))}\n")
    last = field("last", "sc:Integer", extract=column(names[-1]))
    assert rows_of(members_of(path), CSV, last) == [(7999,)]


def test_zstandard(tmp_path):
    path = tmp_path / "t.csv.zst"
    with pa.output_stream(str(path), compression="zstd") as file:
        file.write(b"a\n1\n")
    assert rows_of(members_of(path), CSV, field("a", "sc:Integer", extract=column("a"))) == [(1,)]


def test_files_whose_columns_differ_in_order_and_number(tmp_path):
    first, second, third = (tmp_path / f"{name}.csv" for name in "abc")
    first.write_text("a,b\n1,x\n2,y\n")
    second.write_text("b,c,a\nz,?,3\n")
    third.write_text("a,b\n4,w\n")
    fields = [
        field("b", extract=column("b")),
        field("a", "sc:Integer", extract=column("a")),
        field("file", extract=file_property("filename")),
    ]
    assert rows_of(members_of(first, second, third), CSV, *fields) == [
        ("x", 1, "a.csv"),
        ("y", 2, "a.csv"),
        ("z", 3, "b.csv"),
        ("w", 4, "c.csv"),
    ]
    numbered = [*fields[1:], field("line", "sc:Integer", extract=file_property("lineNumbers"))]
    assert [row[2] for row in rows_of(members_of(first, second, third), CSV, *numbered)] == [
        0,
        1,
        0,
        0,
    ]


def test_names_as_pandas_makes_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",a,a\n1,2,3\n")
    names = ["Unnamed: 0", "a", "a.1"]
    assert rows_of(
        members_of(path), CSV, *(field(name, "sc:Integer", extract=column(name)) for name in names)
    ) == [(1, 2, 3)]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows"])
def test_names_that_differ_in_case(tmp_path, kind):
    names = ["a", "A", "a_1", "FileName"]
    table = pa.table([[number] for number in range(4)], names=names)
    path = tmp_path / "t"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        write = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with write(str(path), table.schema) as writer:
            writer.write_table(table)
    formats = [
        "application/x-parquet" if kind == "parquet" else "application/vnd.apache.arrow.file"
    ]
    fields = [field(name, "sc:Integer", extract=column(name)) for name in reversed(names)]
    assert rows_of(members_of(path), formats, *fields) == [(3, 2, 1, 0)]
    with pytest.raises(InputError, match="no column 'A_1'"):
        scan_of(connect(), members_of(path), formats, column("A_1"))


@pytest.mark.parametrize("write", [pa.ipc.new_file, pa.ipc.new_stream])
def test_half_precision_of_arrow(tmp_path, write):
    table = pa.table({"n": [1, 2], "h": pa.array(np.array([1.5, -2], dtype="float16"))})
    path = tmp_path / "t.arrow"
    with write(str(path), table.schema) as writer:
        writer.write_table(table)
    fields = [
        field(name, kind, extract=column(name))
        for name, kind in (("h", "cr:Float16"), ("n", "sc:Integer"))
    ]
    formats = ["application/vnd.apache.arrow.file"]
    assert rows_of(members_of(path), formats, *fields) == [(1.5, 1), (-2.0, 2)]


def test_a_column_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image_id,name\n1,x\n")
    with pytest.raises(InputError) as caught:
        scan_of(connect(), members_of(path), CSV, column("imageid"))
    assert "t.csv" in str(caught.value)
    assert "did you mean 'image_id'?" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"PK\x03\x04zzzz", "contained in an archive"),
        (b"a\ncaf\xe9\n", "line 2"),
        (b"a" * 200_000, "has no names of columns"),
    ],
)
@pytest.mark.parametrize("limit", [131_072, 10**9])
def test_what_is_no_table(tmp_path, content, words, limit, request):
    """Whatever limit another reader of the process has set."""
    request.addfinalizer(partial(csv.field_size_limit, csv.field_size_limit(limit)))
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        scan_of(connect(), members_of(path), CSV, column("a"))


def test_nothing_is_fetched_for_paths_and_content(tmp_path):
    path = tmp_path / "sub" / "t.jpg"
    files = LocalFiles()
    scan = scan_of(
        connect(),
        members_of(path, root=tmp_path),
        ["image/jpeg"],
        file_property("fullpath"),
        file_property("content"),
        resources=files,
    )
    assert not files.fetched
    assert not files.opened
    assert scan.columns[CONTENT].late
    assert MEMBER in scan.columns


def test_only_the_wanted_columns_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,2,3\n")
    connection = connect()
    scan = scan_of(connection, members_of(path), CSV, column("b"))
    plan = connection.execute(
        f"EXPLAIN SELECT {scan.columns['column', 'b'].sql} FROM {scan.relation}"
    ).fetchall()[0][1]
    assert "c1" in plan
    assert "c0" not in plan
    assert "c2" not in plan


def test_infinite_and_tiny_numbers_are_kept(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\ninf\n-inf\n5e-324\n")
    (first,), (second,), (third,) = rows_of(
        members_of(path), CSV, field("a", "sc:Float", extract=column("a"))
    )
    assert math.isinf(first)
    assert math.isinf(second)
    assert third == 5e-324


def test_a_file_set_without_files_has_no_rows(tmp_path):
    assert rows_of([], CSV, field("a", "sc:Integer", extract=column("a"))) == []


NAMES = st.sampled_from(["a", "a.1", "a.2", "", "b", "Unnamed: 1"])


@given(st.lists(NAMES, min_size=1, max_size=7).filter(any))
def test_names_are_those_of_pandas(row):
    text = io.StringIO()
    csv.writer(text).writerows([row, ["1"] * len(row)])
    text.seek(0)
    assert unique_names(row) == tuple(pd.read_csv(text).columns)
