"""Engines by URL, and tables over any number of files. Spark's own proofs: tests/fleet/test_spark.py."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import InputError, MissingExtraError
from holdfast.fleet.schema import TABLES
from holdfast.tables import connect, read_parquet

ROWS = pa.table({"node": ["a", "b", None], "gpus": pa.array([8, 4, None], pa.int32())})


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{name}.parquet" for name in ("one", "two")]
    pq.write_table(ROWS[:1], files[0])
    pq.write_table(ROWS[1:], files[1])
    return files


def rows_of(connection: Any, table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = connection.to_pyarrow(table.order_by("node")).to_pylist()
    return found


@pytest.mark.parametrize("engine", ["duckdb", "duckdb://"])
def test_duckdb_is_embedded_and_keeps_no_row_order(engine: str) -> None:
    connection = connect(engine)
    assert connection.name == "duckdb"
    for setting in ("preserve_insertion_order", "enable_progress_bar"):
        [value] = connection.raw_sql(f"SELECT current_setting('{setting}')").fetchone()
        assert value is False, setting


def test_any_other_url_goes_to_ibis(tmp_path: Path, parts: list[Path]) -> None:
    connection = connect(f"duckdb://{tmp_path}/kept.ddb")
    read_parquet(connection, parts, "rows", ROWS.schema)
    assert (tmp_path / "kept.ddb").exists()


def test_one_table_over_several_files(parts: list[Path]) -> None:
    connection = connect()
    found = rows_of(connection, read_parquet(connection, parts, "rows", ROWS.schema))
    assert found == ROWS.to_pylist()


def test_an_engine_that_reads_one_file_at_a_time_sees_all(parts: list[Path]) -> None:
    class OneFile:
        name = "another"

        def read_parquet(self, path: str, *, table_name: str) -> Any:
            return inner.read_parquet(path, table_name=table_name)

    inner = connect()
    another: Any = OneFile()
    assert rows_of(inner, read_parquet(another, parts, "rows", ROWS.schema)) == ROWS.to_pylist()
    assert rows_of(inner, inner.table("rows")) == ROWS[:1].to_pylist()


@pytest.mark.parametrize("name", TABLES)
def test_no_file_is_an_empty_table(name: str) -> None:
    connection = connect()
    found = connection.to_pyarrow(read_parquet(connection, [], name, TABLES[name]))
    assert (found.num_rows, found.schema.names) == (0, TABLES[name].names)
    assert found.schema.types == TABLES[name].types


@pytest.mark.parametrize("engine", ["abacus", "abacus://host", "", "local[2]"])
def test_an_unknown_engine_is_refused(engine: str) -> None:
    with pytest.raises(InputError) as raised:
        connect(engine)
    assert raised.value.code == "unknown-name"
    assert "spark://HOST:PORT" in str(raised.value)


def test_an_engine_without_its_library_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "ibis.backends.polars", raising=False)
    with pytest.raises(InputError, match=r"pip install 'ibis-framework\[polars\]'"):
        connect("polars://")


@pytest.mark.parametrize("engine", ["spark", "spark://local[2]", "spark://host:7077"])
def test_spark_names_its_extra(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast\[spark\]'"):
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
