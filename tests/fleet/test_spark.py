"""Spark gives the tables that DuckDB gives: every result of a report, on a real and on a large log."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from invoking import invoke

import holdfast.fleet
from fleet_log import write_log
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.attribution import (
    attribute,
    blamed_nodes,
    classified_health,
    infrastructure_failures,
    ranked_causes,
)
from holdfast.fleet.log import open_log
from holdfast.fleet.node_signals import node_signals
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.schema import TABLES
from holdfast.fleet.store import Store, write_manifest
from holdfast.tables import connect

pytestmark = [
    pytest.mark.full,
    # pyspark leaves sockets of its own to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SPARK = "spark://local[2]"
RESULTS = (
    *("status", "goodput", "mttf", "mttf_all", "over_time", "trend", "introduced", "clock_lag"),
    *("lemons", "measured", "unattributed", "restart_wait_s", "largest_job_nodes"),
    *("expected_ettr", "levers", "rejects"),
)
# The prior of the nodes' rates maximises a likelihood that is flat to half the digits of a float.
TOLERANCE = {"lemons": 1e-6, "levers": 1e-6}
DERIVED = {
    "health": (classified_health, ["time_s", "node", "check", "message"]),
    "causes": (ranked_causes, ["key", "rank"]),
    "failures": (infrastructure_failures, ["key"]),
    "blame": (blamed_nodes, ["key", "node"]),
    "preemptions": (preemptions, ["key"]),
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java")
    connection = connect(SPARK)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def testbed_store(testbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("testbed") / "store"
    holdfast.fleet.ingest([testbed], store)
    return store


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 attempts on 600 nodes, in two part files."""
    folder = tmp_path_factory.mktemp("large")
    write_log(folder / "log", 100_000, 600, 25_000, seed=1)
    holdfast.fleet.ingest([folder / "log"], folder / "store")
    store = Store.open(folder / "store")
    [whole] = store.files("attempts")
    rows = pq.read_table(whole)
    parts = {"attempts/a.parquet": rows[:40_000], "attempts/b.parquet": rows[40_000:]}
    for name, part in parts.items():
        pq.write_table(part, store.path / name)
    write_manifest(
        store.path, {**store.facts, "tables": {**store.facts["tables"], "attempts": list(parts)}}
    )
    return store.path


@pytest.mark.parametrize("which", ["testbed_store", "large_store"])
def test_every_result_of_a_report_is_equal(
    spark: Any, which: str, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue(which)
    logs = {engine: open_log(store, engine=engine) for engine in ("duckdb", SPARK)}
    duckdb, sparks = (Analysis(log) for log in logs.values())
    for name in RESULTS:
        tolerance = TOLERANCE.get(name, 1e-9)
        assert_equal(getattr(sparks, name), getattr(duckdb, name), name, tolerance)
    for name in ("nodes_by_cause", "costliest_job"):
        assert_equal(getattr(sparks.goodput, name), getattr(duckdb.goodput, name), name)
    expected, signals = (node_signals(log).table for log in logs.values())
    assert_equal(signals, expected, "node_signals")
    for name, (table, order) in DERIVED.items():
        expected, found = (
            log.arrow(table(log)).sort_by([(name, "ascending") for name in order])
            for log in logs.values()
        )
        assert len(expected), name
        assert_equal(found, expected, name)


def test_the_explanation_of_one_job_is_equal(spark: Any, testbed_store: Path) -> None:
    found, expected = (
        attribute(open_log(testbed_store, engine=engine), "93").to_dict()
        for engine in (SPARK, "duckdb")
    )
    assert_equal(found, expected, "attribute")


def test_the_command_prints_the_same_with_every_assumption_set(
    spark: Any, testbed_store: Path
) -> None:
    options = ["--check-before", "45s", "--check-after", "10s", "--min-gpus", "0"]
    options += ["--chain-by-name", "--long-run", "60s", "--since", "2026-11-20T10:52:00"]
    printed = []
    for engine in ("duckdb", SPARK):
        result = invoke("report", testbed_store, *options, "--engine", engine, "--json")
        assert result.exit_code == 0, result.stderr
        printed.append(json.loads(result.stdout))
    assert_equal(printed[1], printed[0], "report")


def test_two_stores_are_open_at_once(spark: Any, testbed_store: Path, large_store: Path) -> None:
    small, large = (open_log(store, engine=SPARK) for store in (testbed_store, large_store))
    assert (small.count("attempts"), large.count("attempts")) == (613, 100_000)
    assert small.count("attempts") == 613


def test_a_table_without_files_is_empty(spark: Any) -> None:
    for name, schema in TABLES.items():
        spark.parquet(f"no_{name}", [], schema)
        found = spark.arrow(f"SELECT * FROM no_{name}")
        assert (found.num_rows, found.schema.names) == (0, schema.names)


def test_types_and_numbers_arrive_whole(spark: Any, tmp_path: Path) -> None:
    """Keys use 64 bits, and a literal of a third is no decimal."""
    rows = pa.table({"key": [2**62 + 1, -(2**62) - 1], "x": [3.0, None]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    spark.parquet("rows", [tmp_path / "rows.parquet"], rows.schema)
    found = spark.arrow("SELECT *, 1.0 / x AS third FROM rows ORDER BY key").to_pylist()
    assert found == [
        {"key": -(2**62) - 1, "x": None, "third": None},
        {"key": 2**62 + 1, "x": 3.0, "third": 1 / 3},
    ]


def assert_equal(found: Any, expected: Any, where: str, tolerance: float = 1e-9) -> None:
    """Numbers to nine digits (sums of floats depend on their order), everything else exactly."""
    if isinstance(expected, pd.DataFrame):
        assert list(found.columns) == list(expected.columns), where
        found, expected = found.to_dict("records"), expected.to_dict("records")
    if isinstance(expected, pa.Table):
        found, expected = found.to_pylist(), expected.to_pylist()
    pairs: Any
    if isinstance(expected, Mapping):
        assert list(found) == list(expected), where
        pairs = [(f".{key}", found[key], value) for key, value in expected.items()]
    elif isinstance(expected, list | tuple | np.ndarray):
        assert len(found) == len(expected), where
        pairs = [(f"[{i}]", found[i], value) for i, value in enumerate(expected)]
    elif hasattr(expected, "__dict__"):  # a result or a fitted model
        assert list(vars(found)) == list(vars(expected)), where
        # Each has a log of its own, of another engine.
        told = {key: value for key, value in vars(expected).items() if key != "log"}
        pairs = [(f".{key}", vars(found)[key], value) for key, value in told.items()]
    else:
        pairs = []
        if isinstance(expected, float) and isinstance(found, float):
            equal = math.isclose(found, expected, rel_tol=tolerance, abs_tol=1e-12)
        else:
            equal = bool(found == expected)
        assert equal or (pd.isna(found) and pd.isna(expected)), (where, found, expected)
    for step, one, other in pairs:
        assert_equal(one, other, where + step, tolerance)
