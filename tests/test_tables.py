"""Engines by URL, and tables over any number of files. Spark's own proofs: tests/fleet/test_spark.py."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import InputError, MissingExtraError
from holdfast.fleet.schema import TABLES
from holdfast.tables import connect, literal

ROWS = pa.table({"node": ["a", "b", None], "gpus": pa.array([8, 4, None], pa.int32())})


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{name}.parquet" for name in ("one", "two")]
    pq.write_table(ROWS[:1], files[0])
    pq.write_table(ROWS[1:], files[1])
    return files


@pytest.mark.parametrize("engine", ["duckdb", "duckdb://"])
def test_duckdb_is_embedded_and_keeps_no_row_order(engine: str) -> None:
    names = ("preserve_insertion_order", "enable_progress_bar")
    settings = ", ".join(f"current_setting('{name}') AS {name}" for name in names)
    assert connect(engine).arrow(f"SELECT {settings}").to_pylist() == [dict.fromkeys(names, False)]


def test_one_table_over_several_files(parts: list[Path]) -> None:
    connection = connect()
    connection.parquet("rows", parts, ROWS.schema)
    assert connection.arrow("SELECT * FROM rows ORDER BY node").to_pylist() == ROWS.to_pylist()


def test_views_tables_and_types() -> None:
    connection = connect()
    connection.load("rows", ROWS)
    connection.view("seen", "SELECT gpus FROM rows WHERE gpus > 0")
    connection.keep("kept", "SELECT sum(gpus) AS n, sum(gpus) * 0.5 AS half FROM seen")
    connection.view("seen", "SELECT gpus FROM rows")  # replaced: what was kept stays
    found = connection.arrow("SELECT * FROM kept")
    assert found.to_pylist() == [{"n": 12, "half": 6.0}]
    assert found.schema.types == [pa.int64(), pa.float64()]


@pytest.mark.parametrize("name", TABLES)
def test_no_file_is_an_empty_table(name: str) -> None:
    connection = connect()
    connection.parquet(name, [], TABLES[name])
    found = connection.arrow(f"SELECT * FROM {name}")
    assert (found.num_rows, found.schema.names) == (0, TABLES[name].names)
    assert found.schema.types == TABLES[name].types


@pytest.mark.parametrize(
    "value", ["it's", "a\\b", '"', "–", 7, -7, 2.5, -1e-9, 1e300, True, False, None, ""]
)
def test_a_value_comes_back_from_sql(value: object) -> None:
    query = f"SELECT {literal(value)} AS value"  # type: ignore[arg-type]
    assert connect().arrow(query).to_pylist() == [{"value": value}]


def test_a_list_of_values() -> None:
    values = literal(["a", "it's"])
    [row] = connect().arrow(f"SELECT 'it''s' IN {values} AS yes, 'b' IN {values} AS no").to_pylist()
    assert row == {"yes": True, "no": False}


@pytest.mark.parametrize("engine", ["abacus", "abacus://host", "polars://", "", "local[2]"])
def test_an_unknown_engine_is_refused(engine: str) -> None:
    with pytest.raises(InputError) as raised:
        connect(engine)
    assert raised.value.code == "unknown-name"
    assert "spark://HOST:PORT" in str(raised.value)


@pytest.mark.parametrize("engine", ["spark", "spark://local[2]", "spark://host:7077"])
def test_spark_names_its_extra(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast\[spark\]"):
        connect(engine)


@pytest.mark.full
def test_spark_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InputError, match="needs Java") as raised:
        connect("spark")
    assert f"JAVA_HOME={tmp_path}" in str(raised.value)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pyspark's own pipe
def test_spark_shows_what_java_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'this Java is too old' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InputError, match="this Java is too old"):
        connect("spark://local[1]")
    assert capfd.readouterr() == ("", "")
    gc.collect()
