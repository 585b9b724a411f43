"""A cache gives what was put and nothing else, keeps its limit, and never stops the reading."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from range_server import RangeServer

from holdfast.data.records.format.layout import Index
from holdfast.data.records.reading.caching import Cache
from holdfast.data.records.reading.records import open_records
from holdfast.errors import StoreError


def record(seed: int, sizes: tuple[int, ...] = (40, 30, 20, 10)) -> tuple[Index, list[bytes]]:
    """A record's index and its regions, random bytes."""
    rng = np.random.default_rng(seed)
    regions = [rng.bytes(size) for size in sizes]
    ends = tuple(int(end) for end in np.cumsum(sizes))
    sums = tuple(xxhash.xxh3_64_intdigest(region) for region in regions)
    return Index(4, ends, sums, (0.0,) * (len(sizes) - 1), 0), regions


def chunks(cache: Cache) -> list[Path]:
    return sorted(path for path in cache.folder.rglob("*.*-*") if path.is_file())


def used(cache: Cache) -> int:
    return sum(path.stat().st_size for path in cache.folder.rglob("*.*-*"))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


# --- alone ---------------------------------------------------------------------------------------------


def test_what_was_put_is_given(cache: Cache) -> None:
    index, regions = record(1)
    assert cache.get(index, 0, 4) == []
    cache.put(index, 0, 4, regions)
    assert cache.get(index, 0, 4) == regions
    assert cache.get(index, 0, 2) == regions[:2]
    assert cache.get(index, 1, 3) == regions[1:3]
    assert cache.get(record(2)[0], 0, 4) == []
    assert (cache.bytes_hit, cache.bytes_missed) == (100 + 70 + 50, 200)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=5), st.data())
@settings(max_examples=60)
def test_chunks_that_overlap_or_leave_gaps(
    tmp_path_factory: pytest.TempPathFactory, puts: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Against the set of regions that were put: all from the first on, until one is missing."""
    cache = Cache(tmp_path_factory.mktemp("cache"))
    index, regions = record(3, (5, 0, 7, 0, 9))
    there: set[int] = set()
    for first, count in puts:
        stop = min(5, first + count)
        cache.put(index, first, stop, regions[first:stop])
        there |= set(range(first, stop))
    first = data.draw(st.integers(0, 4))
    stop = data.draw(st.integers(first + 1, 5))
    run = next((region for region in range(first, stop) if region not in there), stop)
    assert cache.get(index, first, stop) == regions[first:run]


def test_any_damage_to_a_chunk_is_seen_and_the_chunk_dropped(cache: Cache) -> None:
    index, regions = record(4, (6, 5, 4))
    for position in range(15):
        cache.put(index, 0, 3, regions)
        (path,) = chunks(cache)
        data = bytearray(path.read_bytes())
        data[position] ^= 1 << position % 8
        path.write_bytes(data)
        assert cache.get(index, 0, 3) == []
        assert cache.dropped == position + 1
        assert chunks(cache) == []
    for size in range(15):
        cache.put(index, 0, 3, regions)
        (path,) = chunks(cache)
        path.write_bytes(b"".join(regions)[:size])
        assert cache.get(index, 0, 3) == []


def test_a_chunk_is_never_seen_half_written(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    index, regions = record(5)

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            cache.put(index, 0, 4, regions)
    assert cache.get(index, 0, 4) == []
    assert cache.dropped == 0
    cache.put(index, 0, 4, regions)
    assert cache.get(index, 0, 4) == regions


def test_drafts_of_the_dead_are_removed_when_room_is_made(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=250)
    for name, age_s in (("dead", 7200), ("alive", 0)):
        draft = tmp_path / f"{name}.part"
        draft.write_bytes(bytes(100))
        os.utime(draft, (time.time() - age_s,) * 2)
    for seed in range(3):
        index, regions = record(seed)
        cache.put(index, 0, 4, regions)
    assert {path.name for path in tmp_path.glob("*.part")} == {"alive.part"}
    assert used(cache) == 100  # beside what the other is writing


# --- the limit -----------------------------------------------------------------------------------------


def test_the_chunks_longest_unused_make_room(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=500)
    records = [record(seed) for seed in range(6)]
    for age, (index, regions) in enumerate(records[:5]):
        cache.put(index, 0, 4, regions)
        (new,) = [path for path in chunks(cache) if path.stat().st_mtime > 2e6]
        os.utime(new, (1e6 + age, 1e6 + age))
    assert used(cache) == 500
    assert cache.get(records[0][0], 0, 1) != []  # used now: stays
    cache.put(records[5][0], 0, 4, records[5][1])
    kept = [bool(cache.get(index, 0, 4)) for index, _ in records]
    assert kept == [True, False, True, True, True, True]
    assert used(cache) == 500


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(50, 300))
@settings(max_examples=30)
def test_the_limit_is_kept_after_every_put(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int
) -> None:
    cache = Cache(tmp_path_factory.mktemp("cache"), limit)
    for seed, size in enumerate(sizes):
        index, regions = record(seed, (size, size))
        cache.put(index, 0, 2, regions)
        assert used(cache) <= limit
        assert bool(cache.get(index, 0, 2)) == (2 * size <= limit)
    assert cache.not_kept == sum(2 * size > limit for size in sizes)


def test_a_lost_count_of_what_is_used_is_made_anew(tmp_path: Path) -> None:
    for damage in (b"", b"nonsense", b"%32d" % 10**12):
        cache = Cache(tmp_path, limit_bytes=300)
        (tmp_path / ".usage").write_bytes(damage)
        for seed in range(10):
            index, regions = record(seed)
            cache.put(index, 0, 4, regions)
            assert used(cache) <= 300
        assert cache.get(index, 0, 4) == regions
        assert cache.not_kept == 0


WORKER = """
from __future__ import annotations
import numpy as np, xxhash
from holdfast.data.records.reading.caching import Cache
from holdfast.data.records.format.layout import Index
{record}
cache = Cache({folder!r}, {limit})
good = 0
for turn in range(3):
    for seed in range({first}, {first} + 20):
        index, regions = record(seed)
        found = cache.get(index, 0, 4)
        if found:
            assert [bytes(region) for region in found] == regions
            good += 1
        else:
            cache.put(index, 0, 4, regions)
print(good, cache.dropped, cache.not_kept)
"""


def test_processes_and_threads_share_one_folder_and_limit(tmp_path: Path) -> None:
    limit = 1500
    cache = Cache(tmp_path, limit)
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                WORKER.format(
                    record=inspect.getsource(record),
                    folder=str(tmp_path),
                    limit=limit,
                    first=10 * number,
                ),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]

    def turn(seed: int) -> None:
        index, regions = record(seed % 40)
        found = cache.get(index, 0, 4)
        assert found in ([], regions)
        if not found:
            cache.put(index, 0, 4, regions)

    most = 0
    with ThreadPoolExecutor(3) as pool:
        mine = [pool.submit(turn, seed) for seed in range(120)]
        while any(worker.poll() is None for worker in workers):
            most = max(most, used_now(tmp_path))
            with suppress(subprocess.TimeoutExpired):
                workers[0].wait(timeout=0.02)
    assert all(future.result() is None for future in mine)
    for worker in workers:
        out, _ = worker.communicate()
        assert worker.returncode == 0
        _, dropped, _ = map(int, out.split())
        assert dropped == 0
    assert cache.dropped == 0
    assert 0 < most <= limit
    assert not list(tmp_path.glob("*.part"))
    assert int((tmp_path / ".usage").read_bytes()) == used(cache)


def used_now(folder: Path) -> int:
    """Bytes of the chunks, while nobody adds or takes away."""
    with (folder / ".usage").open("ab") as usage:
        flock(usage, LOCK_EX)
        return sum(path.stat().st_size for path in folder.rglob("*.*-*"))


# --- a disk that fails -----------------------------------------------------------------------------------


def test_a_full_disk_is_counted_and_reading_goes_on(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, kept_regions = record(1)
    cache.put(kept, 0, 4, kept_regions)
    index, regions = record(2)
    real = Path.open

    def full(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if mode == "r+b":
            raise OSError(28, "No space left on device")
        return real(self, mode, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        cache.put(index, 0, 4, regions)
    assert cache.not_kept == 1
    assert cache.get(index, 0, 4) == []
    assert cache.get(kept, 0, 4) == kept_regions
    assert not list(cache.folder.glob("*.part"))
    assert int((cache.folder / ".usage").read_bytes()) == 100


def test_a_folder_that_vanished_is_counted_and_reading_goes_on(cache: Cache) -> None:
    index, regions = record(1)
    (cache.folder / ".usage").unlink()
    cache.folder.rmdir()
    cache.put(index, 0, 4, regions)
    assert cache.not_kept == 1
    assert cache.get(index, 0, 4) == []


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="the cache cannot be used"):
        Cache(tmp_path / "file")


def test_a_pickled_cache_goes_on(cache: Cache) -> None:
    index, regions = record(1)
    cache.put(index, 0, 4, regions)
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.get(index, 0, 4) == regions
    assert (copy.bytes_hit, copy.limit_bytes) == (100, None)


# --- with records ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    folder = tmp_path_factory.mktemp("origin") / "dataset"
    return folder, made.dataset(folder)


@pytest.fixture
def server(origin: tuple[Path, list[bytes]]) -> Iterator[RangeServer]:
    with RangeServer(origin[0].parent) as running:
        yield running


def test_another_epoch_fetches_what_is_not_there_yet(
    server: RangeServer, origin: tuple[Path, list[bytes]], cache: Cache
) -> None:
    with open_records(f"{server.url}/dataset", cache=cache) as records:
        ends = [index.ends for index in records.indexes]
        fetched = []
        for fidelity in (2, 2, 1, 4, 3, 5, 5):
            server.reset()
            images = [list(records.read(number, fidelity).images()) for number in range(3)]
            fetched.append(server.bytes)
            assert server.requests == (3 if server.bytes else 0)
        assert sum(images, []) == origin[1]  # noqa: RUF017
    two, four, five = (sum(end[g] for end in ends) for g in (2, 4, 5))
    assert fetched == [two, 0, 0, four - two, 0, five - four, 0]
    assert used(cache) == five
    with open_records(f"{server.url}/dataset/records-00/000001.pcr", cache=cache) as alone:
        server.reset()
        assert list(alone.read(0).images()) == origin[1][4:8]
        assert server.requests == 0  # the same record, wherever it lies


def test_a_prefix_in_memory_and_chunks_on_disk_go_together(
    server: RangeServer, origin: tuple[Path, list[bytes]], cache: Cache
) -> None:
    with open_records(f"{server.url}/dataset", cache=cache) as records:
        low = records.read(0, 1)
        records.read(0, 3, have=low)
        server.reset()
        assert list(records.read(0, 5, have=low).images()) == origin[1][:4]
        ends = records.indexes[0].ends
        assert server.bytes == ends[5] - ends[3]


def test_a_damaged_chunk_is_fetched_again(
    server: RangeServer, origin: tuple[Path, list[bytes]], cache: Cache
) -> None:
    with open_records(f"{server.url}/dataset", cache=cache) as records:
        records.read(0, 5)
        (path,) = chunks(cache)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        for dropped, requests in ((1, 1), (1, 0)):
            server.reset()
            assert list(records.read(0, 5).images()) == origin[1][:4]
            assert (cache.dropped, server.requests) == (dropped, requests)


def test_damaged_records_are_not_kept(
    origin: tuple[Path, list[bytes]], tmp_path: Path, cache: Cache
) -> None:
    made.dataset(tmp_path / "dataset", images=4)
    path = tmp_path / "dataset/records-00/000000.pcr"
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    with open_records(tmp_path / "dataset", cache=cache) as records:
        prefix = records.read(0)
        assert prefix.faults
        assert chunks(cache) == []
