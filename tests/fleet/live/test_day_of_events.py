"""A day of health events replayed through a spool: each once, in memory that does not grow with the day."""

from __future__ import annotations

import math
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast.fleet as fleet
from holdfast.fleet import ingest_commit
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live import spool as module
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.store import Store

BEGIN = 1_795_910_400.0
DAY = 86_400.0


def lines(first: int, last: int, events: int) -> list[bytes]:
    """Events first to last of so many in a day, on 1,000 nodes; none is like another."""
    return [
        b'{"time":%.3f,"node":"n%03d","check":"ecc","result":"%s","message":"gpu %d"}'
        % (
            BEGIN + DAY * number / events,
            number * 7919 % 1000,
            b"fail" if number % 2 else b"ok",
            number % 8,
        )
        for number in range(first, last)
    ]


def replay(folder: Path, events: int, looks: int) -> list[int]:
    """Peak memory of this process after each look (bytes); a twentieth comes twice.

    In the first half of the day all files of the spool stay, then all that are read go, at any time of day.
    """
    now = [BEGIN]
    spool = Spool(folder / "spool", lambda: now[0])
    follower = Follower([folder / "spool"], folder / "store")
    peaks = []
    for look in range(looks):
        now[0] = BEGIN + DAY * look / looks
        first, last = events * look // looks, events * (look + 1) // looks
        for start in range(max(0, first - (last - first) // 20), last, 20_000):
            spool.append("health", lines(start, min(start + 20_000, last), events), "jsonl")
        assert not follower.look().problems
        spool.prune(folder / "store", math.inf if look < looks / 2 else -math.inf)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return peaks


def health(store: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in Store.open(store).files("health")])


def test_new_events_go_to_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store that a bulk ingest makes, of files of which the old ones are not written again."""
    monkeypatch.setattr(module, "ROLL_BYTES", 20_000)
    monkeypatch.setattr(ingest_commit, "_MOST_SMALL_FILES", 2)
    replay(tmp_path, 1_200, 4)
    (tmp_path / "all.jsonl").write_bytes(b"\n".join(lines(0, 1_200, 1_200)) + b"\n")
    fleet.ingest([tmp_path / "all.jsonl"], tmp_path / "bulk")
    live, bulk = health(tmp_path / "store"), health(tmp_path / "bulk")
    assert live.sort_by("time_s").to_pylist() == bulk.sort_by("time_s").to_pylist()
    facts = [Store.open(tmp_path / name).facts for name in ("store", "bulk")]
    assert facts[0]["time_range"] == facts[1]["time_range"]
    (joined,) = Store.open(tmp_path / "store").files("health")
    written = joined.stat()
    late = tmp_path / "late.jsonl"
    late.write_bytes(b"\n".join([*lines(5, 8, 1_200), *lines(7, 8, 1_201)]) + b"\n")
    fleet.ingest([late], tmp_path / "store")  # of long ago: three are there, one is not
    first, second = Store.open(tmp_path / "store").files("health")
    assert (first, first.stat().st_mtime_ns) == (joined, written.st_mtime_ns)
    assert pq.read_metadata(second).num_rows == 1


@pytest.mark.full
def test_ten_million_events_in_flat_memory(tmp_path: Path) -> None:
    peaks = replay(tmp_path, 10_000_000, 144)
    assert Store.open(tmp_path / "store").facts["counts"]["health_events"] == 10_000_000
    print(
        "peak memory after 36, 72, 144 looks:", [f"{peaks[n] / 1e6:.0f} MB" for n in (35, 71, 143)]
    )
    assert peaks[143] < 1.25 * peaks[35]
