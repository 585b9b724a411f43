"""Joins that do not fit into memory: they spill, and keep the order of the records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from made_datasets import column, described, field, file_object, other, record_set

from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.errors import InputError


def joined(folder: Path, left: int, right: int, memory: str) -> Dataset:
    """`left` events in order, each of one of `right` users, whose names are looked up."""
    connection = duckdb.connect()
    connection.execute(
        f"COPY (SELECT i AS event, hash(i) % {right + right // 5} AS user, "
        f"repeat('e', 20) || i AS note FROM range({left}) t(i)) TO '{folder / 'events.parquet'}'"
    )
    connection.execute(
        f"COPY (SELECT i AS id, repeat('u', 50) || i AS name FROM range({right}) t(i) ORDER BY hash(i)) "
        f"TO '{folder / 'users.parquet'}'"
    )
    connection.close()
    users = record_set(
        "users",
        field("users/id", "sc:Integer", column("users.parquet", "id")),
        field("users/name", "sc:Text", column("users.parquet", "name")),
    )
    events = record_set(
        "events",
        field("events/event", "sc:Integer", column("events.parquet", "event")),
        field(
            "events/user",
            "sc:Integer",
            column("events.parquet", "user"),
            references=other("users/id"),
        ),
        field("events/note", "sc:Text", column("events.parquet", "note")),
        field("events/name", None, other("users/name")),
    )
    resources = [file_object("events.parquet"), file_object("users.parquet")]
    return described(folder, resources, [users, events], memory_limit=memory, threads=2)


def in_order(dataset: Dataset, left: int, right: int) -> None:
    seen = 0
    for batch in dataset.records("events").batches():
        columns = [column.to_pylist() for column in batch.columns]
        assert columns[0] == list(range(seen, seen + len(columns[0])))
        for user, name in zip(columns[1], columns[3], strict=True):
            assert name == (f"{'u' * 50}{user}" if user < right else None)
        seen += len(columns[0])
    assert seen == left


def test_a_join_in_little_memory_keeps_its_order(tmp_path: Path) -> None:
    in_order(joined(tmp_path, 400_000, 300_000, "100MiB"), 400_000, 300_000)


def test_settings_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="memory_limit='much'"):
        joined(tmp_path, 10, 10, "much").records("events").count()


@pytest.mark.full
def test_ten_million_rows_join_a_million_inside_one_gibibyte(tmp_path: Path) -> None:
    joined(tmp_path, 10_000_000, 1_000_000, "1GiB").close()
    code = (
        "import resource, sys\n"
        "from holdfast.data.croissant.loading.dataset import Dataset\n"
        f"dataset = Dataset({str(tmp_path)!r}, memory_limit='700MiB', threads=2, offline=True)\n"
        "seen = 0\n"
        "for batch in dataset.records('events').batches():\n"
        "    events = batch.column(0).to_numpy()\n"
        "    assert events[0] == seen and events[-1] == seen + len(events) - 1\n"
        "    assert (events[1:] > events[:-1]).all()\n"
        "    seen += len(events)\n"
        "print(seen, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seen, kibibytes = map(int, done.stdout.split())
    assert seen == 10_000_000
    assert kibibytes < 1 << 20
