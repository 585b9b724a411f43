"""Opening a store: what is there, what is not, and what a newer version wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.fleet.ingestion import ingest
from holdfast.fleet.log import open_log
from holdfast.fleet.schema import STORE_VERSION, TABLES
from holdfast.fleet.store import MANIFEST, Store, sweep


@pytest.fixture
def store(testbed: Path, tmp_path: Path) -> Path:
    ingest([testbed / "sacct_D_epoch.psv.gz"], tmp_path / "store")
    return tmp_path / "store"


def test_every_table_opens_with_its_columns(store: Path) -> None:
    log = open_log(store)
    for name, schema in TABLES.items():
        table = log.arrow(log.table(name))
        assert table.column_names == schema.names
        assert len(table) == {"attempts": 611, "nodes": 16}.get(name, 0)
    with pytest.raises(KeyError):
        log.table("steps")


def test_parquet_alone_is_enough_for_another_engine(store: Path) -> None:
    import duckdb

    files = [str(file) for file in Store.open(store).files("attempts")]
    question = f"SELECT count(*), sum(gpus * runtime_s) FROM read_parquet({files!r})"
    ((count, gpu_s),) = duckdb.sql(question).fetchall()
    # The README's GPU-seconds less the overlap of two resized jobs (2 x 2 GPUs x 8 s); the running
    # job is two seconds older in this file than in the one that the README counts.
    readme = 33568 + 30012 + 10122 + 3297 + 2685 + 212 + 140 + 64 + 60
    assert (count, int(gpu_s)) == (611, readme - 32 + 4)


def test_a_missing_store_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"does not exist(.|\n)*fleet ingest"):
        Store.open(tmp_path / "none")
    with pytest.raises(StoreError, match="is not a fleet store"):
        Store.open(tmp_path)


def test_a_store_of_a_newer_version_is_refused(store: Path) -> None:
    facts = json.loads((store / MANIFEST).read_text())
    facts["version"] = STORE_VERSION + 1
    (store / MANIFEST).write_text(json.dumps(facts))
    with pytest.raises(StoreError, match="upgrade holdfast"):
        Store.open(store)
    with pytest.raises(StoreError, match="upgrade holdfast"):
        ingest([store / MANIFEST], store, format="sacct")


@pytest.mark.quick(2)
@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "x"}', '{"tables": {}}'])
def test_a_damaged_list_of_tables_is_refused(store: Path, text: str) -> None:
    (store / MANIFEST).write_text(text)
    with pytest.raises(StoreError, match="cannot be read"):
        Store.open(store)


def test_a_missing_file_is_named(store: Path) -> None:
    opened = Store.open(store)
    (file,) = opened.files("attempts")
    file.unlink()
    with pytest.raises(StoreError, match=file.name):
        open_log(opened).table("attempts")


def test_sweep_removes_what_the_list_does_not_name(store: Path) -> None:
    left = store / "attempts" / "0009-000.parquet"
    left.write_bytes(b"half a file")
    listed = Store.open(store).files("attempts")
    sweep(store)
    assert not left.exists()
    assert all(file.exists() for file in listed)


def test_what_an_attempt_and_those_of_its_job_before_it_ran(store: Path) -> None:
    log = open_log(store)
    total: dict[str, int] = {}
    for row in log.rows(f"SELECT * FROM {log.table('attempts')} ORDER BY job_id, attempt"):
        total[row["job_id"]] = total.get(row["job_id"], 0) + (row["runtime_s"] or 0)
        assert row["job_runtime_s"] == total[row["job_id"]]
        assert row["ran"] or row["start_s"] is None
