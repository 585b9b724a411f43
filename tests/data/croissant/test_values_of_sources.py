"""One value, one answer: numbers and times of CSV, JSON, Parquet and inline data, in any time zone."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from croissant_local_files import connect, field
from made_datasets import FORMATS, column, described, record_set
from made_datasets import field as described_field

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.rules.checking import validate
from holdfast.data.croissant.scanning.casting import cast
from holdfast.data.croissant.scanning.columns import Column
from holdfast.errors import InputError

MISFIT = "misfit"
TEXTS = [
    "9007199254740993.5", "9007199254740993", "9007199254740993.0", "-9007199254740993.5", "1_000",
    "1e3", "1.5e3", "15e-1", "10e-1", "1500e-2", "+5", "-0", "007", "0x10", "0b11", "inf", "-Infinity",
    "1e400", "-1e400", "1e-400", "5.", ".5e1", "0.5", "3.0000000000000000000000001", "1.0e0",
    "123456789012345678e1", "9223372036854775807", "9223372036854775808", "9223372036854775807.0", "-",
    "+", ".", "e5", "1e", "1e1_0", "0.005e3", "0.0005e3", "1,5", "1__0", "٣",
    "0.30", "1e30", "TRUE", "12abc",
]  # fmt: skip
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def by_fractions(text: str, kind: str) -> Any:
    """The value by exact arithmetic, or a misfit."""
    bare = text.strip()
    if kind == "sc:Float" and bare.lstrip("+-").lower() in ("inf", "infinity"):
        return float(bare)
    if not NUMBER.fullmatch(bare) or len(bare.partition("e")[2]) > 9:
        return MISFIT
    exact = Fraction(bare)
    if kind == "sc:Integer":
        return int(exact) if exact.denominator == 1 and -(2**63) <= exact < 2**63 else MISFIT
    return float(bare) if abs(float(bare)) < float("inf") else MISFIT


@pytest.mark.parametrize("kind", ["sc:Integer", "sc:Float"])
@pytest.mark.parametrize("pad", ["", " "])
def test_text_is_the_number_it_writes_or_none(kind: str, pad: str) -> None:
    value = cast(Column("x", "VARCHAR"), field("v", kind))
    texts = [pad + text + pad for text in TEXTS]
    connection = connect()
    connection.execute("SET disabled_optimizers = 'common_subexpressions'")
    rows = connection.execute(
        f"SELECT TRY([{value.sql}]) IS NULL, TRY({value.sql}) FROM (SELECT unnest(?) AS x)", [texts]
    )
    found = [MISFIT if misfit else number for misfit, number in rows.fetchall()]
    expected = [by_fractions(text, kind) for text in texts]
    assert dict(zip(texts, found, strict=True)) == dict(zip(texts, expected, strict=True))


UTC = dt.UTC
NOON = dt.datetime(2024, 1, 1, 12)
AWARE = NOON.replace(tzinfo=UTC)
US = dt.datetime(2024, 1, 1, 12, 0, 0, 123456)


@pytest.mark.quick(12)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "inline"])
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2024-01-01T12:00:00"], [NOON]),
        (["2024-01-01 12:00:00.123456", "2024-01-01"], [US, dt.datetime(2024, 1, 1)]),
        (["2024-01-01T12:00:00Z"], [AWARE]),
        (["2024-01-01T21:00:00+09:00", "", "2024-01-01T07:00:00-0500"], [AWARE, None, AWARE]),
        (["", "2024-01-01 12:00:00 UTC"], [None, AWARE]),
        (["2024-01-01T12:00:00", "2024-01-01T12:00:00Z"], "invalid-value"),
        (["2024-01-01T12:00:00Z", "2024-01-01T12:00:00"], "invalid-value"),
        (["2024-01-01T12:00:00Z", "2024-01-01"], "invalid-value"),
        (["2024-01-01T12:00:00.123456789"], "invalid-value"),
        (["2024-01-01T12:00:00.123456789Z"], "invalid-value"),
        (["2024-01-01T12:00:00.123456000"], [US]),
        (["", ""], [None, None]),
    ],
)
def test_times_in_text(tmp_path: Path, kind: str, texts: list[str], expected: Any) -> None:
    source, files, data = column(f"t.{kind}", "v"), [], {}
    if kind == "inline":
        source, data = None, {"data": [{"r/v": text or None} for text in texts]}
    elif kind == "csv":
        (tmp_path / "t.csv").write_text("n,v\n" + "".join(f"1,{text}\n" for text in texts))
    else:
        lines = "".join(json.dumps({"v": text or None}) + "\n" for text in texts)
        (tmp_path / "t.jsonl").write_text(lines)
    if kind != "inline":
        files = [{"@type": "cr:FileObject", "@id": f"t.{kind}", "name": "t"}]
        files[0] |= {"contentUrl": f"t.{kind}", "encodingFormat": FORMATS[kind]}
    made = record_set("r", described_field("r/v", "sc:DateTime", source), **data)
    with described(tmp_path, files, [made]) as dataset:
        records = dataset.records()
        if isinstance(expected, str):
            with pytest.raises(InputError) as caught:
                records.to_arrow()
            if kind != "inline":
                assert caught.value.code == expected
                assert "CR912" in {one.code for one in validate(tmp_path, data="full").problems}
            return
        table = records.to_arrow()
        assert records.schema == table.schema
        assert table.column(0).to_pylist() == expected
        assert table.schema.types[0].tz == ("UTC" if AWARE in expected else None)
        if AWARE in expected:
            for text in ("2024-01-01T21:00:00+09:00", "2024-01-01T12:00:00", AWARE):
                assert dataset.records(filters={"v": text}).count() == expected.count(AWARE)
        if kind != "inline":
            assert "CR912" not in {one.code for one in validate(tmp_path, data="full").problems}


NANOS = 1_704_110_400_123_456_789


@pytest.mark.parametrize(
    ("declared", "values", "more"),
    [
        ("sc:DateTime", pa.array([NANOS], pa.timestamp("ns")), {}),
        ("sc:DateTime", pa.array([NANOS], pa.timestamp("ns", "UTC")), {}),
        ("sc:Date", pa.array([NANOS], pa.timestamp("ns")), {}),
        ("sc:Time", pa.array([NANOS % 10**9], pa.time64("ns")), {}),
        ("sc:DateTime", pa.array([NANOS], pa.timestamp("ns")), {"format": "%Y-%m-%d %H:%M:%S.%n"}),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_nanoseconds_are_kept_where_the_file_has_them(
    tmp_path: Path, declared: str, values: Any, more: dict[str, str], kind: str
) -> None:
    if kind == "csv":
        if not more:
            pytest.skip("text without a format is of microseconds: refused above")
        (tmp_path / "t.csv").write_text("v\n2024-01-01 12:00:00.123456789\n")
    else:
        pq.write_table(pa.table({"v": values}), tmp_path / "t.parquet")
    files = [{"@type": "cr:FileObject", "@id": f"t.{kind}", "name": "t"}]
    files[0] |= {"contentUrl": f"t.{kind}", "encodingFormat": FORMATS[kind]}
    made = described_field("r/v", declared, column(f"t.{kind}", "v", **more))
    with described(tmp_path, files, [record_set("r", made)]) as dataset:
        found = dataset.records().to_arrow().column(0)
    assert found.cast(pa.int64()).to_pylist() == values.cast(pa.int64()).to_pylist()


@pytest.mark.full
def test_the_time_zone_of_the_machine_changes_nothing(tmp_path: Path) -> None:
    script = """
import sys, json
from holdfast.data import croissant
folder = sys.argv[1]
made = croissant.describe(folder)
open(folder + "/metadata.json", "w").write(json.dumps(made.metadata))
with croissant.Dataset(folder) as dataset:
    print([[str(v) for v in row.values()] for name in dataset.record_sets for row in dataset.records(name)])
print(json.dumps(made.metadata["recordSet"]))
"""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "t.csv").write_text(
        "id,day,naive,aware\n"
        "1,2024-03-31,2024-03-31T02:30:00,2024-01-01T00:30:00+02:00\n"
        "2,2024-01-01,2024-01-01T23:59:59,2023-12-31T23:30:00Z\n"
    )
    zoned = pa.array([0, 1], pa.timestamp("us", "Asia/Tokyo"))
    times = pa.table({"w": zoned, "n": pa.array([0, 1], pa.timestamp("ms"))})
    pq.write_table(times, tmp_path / "a" / "p.parquet")
    said = set()
    for zone in ("UTC", "Asia/Tokyo"):
        ran = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "a")],
            env=os.environ | {"TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        )
        said.add(ran.stdout)
        (tmp_path / "a" / "metadata.json").unlink()
    assert len(said) == 1
    assert "2023-12-31 22:30:00+00:00" in said.pop()


def misfitting(folder: Path) -> Dataset:
    (folder / "t.csv").write_text("n,w\n1,a\nNA,b\nx,1.5\n2.5,3\n")
    files = [{"@type": "cr:FileObject", "@id": "t.csv", "name": "t", "contentUrl": "t.csv"}]
    files[0]["encodingFormat"] = "text/csv"
    first = record_set(
        "s",
        described_field("s/n", "sc:Integer", column("t.csv", "n")),
        described_field("s/w", "sc:Text", column("t.csv", "w")),
    )
    second = record_set(
        "r",
        described_field("r/n", None, {"field": {"@id": "s/n"}}),
        described_field("r/w", "sc:Float", {"field": {"@id": "s/w"}}),
    )
    return described(folder, files, [first, second])


def test_misfits_become_null_and_are_counted_on_request(tmp_path: Path) -> None:
    with misfitting(tmp_path) as dataset:
        for name in "sr":
            with pytest.raises(InputError) as caught:
                dataset.records(name, columns=["n"]).to_arrow()
            assert caught.value.place == "line 4, 'n'"
        first = dataset.records("s", on_misfit="null")
        assert [row["s/n"] for row in first] == [1, None, None, None]
        assert first.misfits() == {"s/n": 2}
        second = dataset.records("r", on_misfit="null")
        assert list(second) == [
            {"r/n": 1, "r/w": None},
            {"r/n": None, "r/w": None},
            {"r/n": None, "r/w": 1.5},
            {"r/n": None, "r/w": 3.0},
        ]
        assert second.misfits() == {"s/n": 2, "r/w": 2}
        assert second.head(1).to_arrow().num_rows == 1
        with pytest.raises(InputError) as caught:
            dataset.records("s", on_misfit="drop")  # type: ignore[arg-type]
        assert caught.value.code == "invalid-value"


def test_columns_with_misfits_are_kept_as_text_on_request(tmp_path: Path) -> None:
    with misfitting(tmp_path) as dataset:
        first = dataset.records("s", on_misfit="keep")
        assert [row["s/n"] for row in first] == ["1", "NA", "x", "2.5"]
        assert first.schema.field("s/n").type == pa.string()
        assert first.misfits() == {"s/n": 2}
        for filters in ({"n": 1}, "n IS NULL", "n = '2.5'", "w = 'a' AND n > 0"):
            for columns in (None, ["w"]):
                with pytest.raises(InputError) as caught:
                    list(dataset.records("s", on_misfit="keep", filters=filters, columns=columns))
                assert (caught.value.code, caught.value.place) == ("conflict", "s/n")
        found = dataset.records("s", on_misfit="keep", filters={"w": "a"})
        assert [row["s/n"] for row in found] == ["1"]
        assert [row["n"] for row in first.sql("SELECT n FROM records WHERE n = '2.5'")] == ["2.5"]
        second = dataset.records("r", on_misfit="keep", columns=["w"])
        assert [row["r/w"] for row in second] == ["a", "b", "1.5", "3"]
        assert second.misfits() == {"r/w": 2}
        assert dataset.records("s", on_misfit="keep", columns=["w"]).misfits() == {}
        [row] = first.sql("SELECT max(n) AS m FROM records")
        assert row == {"m": "x"}


def test_lists_and_typed_columns_are_kept_as_text(tmp_path: Path) -> None:
    table = pa.table({"n": [1.0, 2.5], "l": [[1, 2], [3]], "d": [1, 2], "e": [2, 1]})
    pq.write_table(table, tmp_path / "t.parquet")
    files = [{"@type": "cr:FileObject", "@id": "t.parquet", "name": "t", "contentUrl": "t.parquet"}]
    files[0]["encodingFormat"] = "application/x-parquet"
    fields = [
        described_field("r/n", "sc:Integer", column("t.parquet", "n")),
        described_field("r/l", "cr:Int8", column("t.parquet", "l"), isArray=True, arrayShape="2"),
        described_field("r/d", "sc:Integer", column("t.parquet", "d")),
        described_field("r/b", "sc:Boolean", column("t.parquet", "e")),
    ]
    with described(tmp_path, files, [record_set("r", *fields)]) as dataset:
        kept = dataset.records("r", on_misfit="keep")
        assert list(kept) == [
            {"r/n": "1.0", "r/l": ["1", "2"], "r/d": 1, "r/b": "2"},
            {"r/n": "2.5", "r/l": ["3"], "r/d": 2, "r/b": "1"},
        ]
        assert set(kept.misfits()) == {"r/n", "r/l", "r/b"}
