"""What loading costs: joins that do not fit into memory spill; of a table, what is asked for is read."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from made_datasets import column, described, field, file_object, other, record_set

from holdfast.data.croissant.files.hashing import WrongChecksum
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


def bytes_read() -> int:
    """By this process so far, from files or their copies in memory."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def wide(folder: Path, name: str, digest: str | None = None, **more: str) -> Dataset:
    """Twenty columns of numbers in one file, described with its checksum or another."""
    draw = np.random.default_rng(1)
    table = pa.table({f"c{number}": draw.random(50_000) for number in range(20)})
    if name.endswith("parquet"):
        pq.write_table(table, folder / name, row_group_size=10_000)
    else:
        pyarrow.feather.write_feather(table, folder / name, compression="uncompressed")
    md5 = digest or hashlib.md5((folder / name).read_bytes()).hexdigest()
    fields = [field(f"t/{each}", "sc:Float", column(name, each)) for each in table.column_names]
    return described(folder, [file_object(name, md5=md5, **more)], [record_set("t", *fields)])


def test_of_parquet_the_columns_and_rows_are_read_that_are_asked_for(tmp_path: Path) -> None:
    dataset = wide(tmp_path, "t.parquet")
    size = (tmp_path / "t.parquet").stat().st_size
    dataset.records("t", columns=["c0"]).to_arrow()  # what is imported then is read too
    before = bytes_read()
    assert len(dataset.records("t", columns=["c7"]).to_arrow()) == 50_000
    column_alone = bytes_read() - before
    assert size / 40 < column_alone < size / 10
    assert len(dataset.records("t", columns=["c7", "c8"]).head(10).to_arrow()) == 10
    assert bytes_read() - before - column_alone < size / 8
    assert len(dataset.records("t").to_arrow()) == 50_000
    assert bytes_read() - before > 2 * size  # its values, and all of it for the checksum


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_a_table_is_compared_with_its_checksum_when_all_of_it_is_read(
    tmp_path: Path, name: str
) -> None:
    other_file = wide(tmp_path, name, "0" * 32)
    assert other_file.records("t", columns=["c7"]).count() == 50_000
    with pytest.raises(WrongChecksum):
        other_file.records("t").to_arrow()
    with pytest.raises(WrongChecksum):  # by its size
        wide(tmp_path, name, "0" * 32, contentSize="12 B").records("t", columns=["c7"]).count()


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
