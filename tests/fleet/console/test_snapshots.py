"""Generations of a store: analysed once, shown when ready, read again after trouble."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from logs import Attempt, Log

from holdfast.errors import StoreError
from holdfast.fleet import Assumptions
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.snapshots import Snapshot, Snapshots

HOUR = 3600


def grow(folder: Path, jobs: int) -> Path:
    """A store of so many jobs, made anew or added to."""
    return Log([Attempt(job, ("n1",), job * HOUR, (job + 1) * HOUR) for job in range(jobs)]).store(
        folder
    )


def attempts(snapshot: Snapshot) -> int:
    return snapshot.cache("attempts", lambda analysis: analysis.status.attempts)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return grow(tmp_path, 2)


def of(
    store: Path, prepare: Callable[[Snapshot], object] = attempts, **options: float
) -> Snapshots:
    return Snapshots(store, Assumptions(), prepare=prepare, **options)


def replace(store: Path, other: Path) -> None:
    """The commit of another store in the place of this one."""
    for part in other.iterdir():
        if part.is_dir():
            shutil.copytree(part, store / part.name, dirs_exist_ok=True)
    shutil.copy(other / "store.json", store / "new.json")
    (store / "new.json").replace(store / "store.json")


def test_one_commit_is_analysed_once(store: Path) -> None:
    prepared = []
    snapshots = of(store, prepared.append)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: snapshots.current(), range(8)))
    assert len({id(each) for each in found}) == 1
    assert prepared == [found[0]]
    assert snapshots.answer(attempts) == 2


def test_what_is_kept_is_computed_once_and_given_without_waiting(store: Path) -> None:
    snapshot = of(store).current()
    calls = []
    reading, go_on = Event(), Event()

    def slow(analysis: Analysis) -> str:
        calls.append(analysis)
        reading.set()
        go_on.wait(60)
        return "slow"

    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(snapshot.cache, "slow", slow) for _ in range(2)]
        assert reading.wait(60)
        assert pool.submit(attempts, snapshot).result(60) == 2  # the lock is taken
        go_on.set()
        assert [each.result(60) for each in waiting] == ["slow", "slow"]
    assert len(calls) == 1


def test_a_new_commit_is_shown(store: Path, tmp_path: Path) -> None:
    snapshots = of(store, patience_s=60)
    assert snapshots.answer(attempts) == 2
    replace(store, grow(tmp_path / "more", 3))
    assert snapshots.answer(attempts) == 3


def test_until_a_commit_is_analysed_the_one_before_is_shown(store: Path, tmp_path: Path) -> None:
    go_on, prepared = Event(), []

    def prepare(snapshot: Snapshot) -> None:
        prepared.append(snapshot)
        if len(prepared) > 1:
            go_on.wait(60)

    snapshots = of(store, prepare, patience_s=0)
    first = snapshots.current()
    replace(store, grow(tmp_path / "more", 3))
    assert snapshots.current() is first
    assert snapshots.current() is first
    go_on.set()
    while snapshots.current() is first:
        pass
    assert len(prepared) == 2
    assert snapshots.answer(attempts) == 3


def test_the_store_goes_and_comes_back(store: Path, tmp_path: Path) -> None:
    snapshots = of(store, patience_s=60)
    assert snapshots.answer(attempts) == 2
    away = store.rename(tmp_path / "away")
    with pytest.raises(StoreError, match="does not exist"):
        snapshots.current()
    store.mkdir()
    with pytest.raises(StoreError, match="is not a fleet store"):
        snapshots.current()
    store.rmdir()
    away.rename(store)
    assert snapshots.answer(attempts) == 2


def test_a_damaged_store_is_read_again(store: Path) -> None:
    (parquet,) = (store / "attempts").glob("*.parquet")
    whole = parquet.read_bytes()
    parquet.write_bytes(whole[:100])
    snapshots = of(store)
    for _ in range(2):
        with pytest.raises(StoreError, match="cut off"):
            snapshots.current()
    parquet.write_bytes(whole)
    assert snapshots.answer(attempts) == 2


def test_a_file_that_vanishes_under_a_reader_is_told(store: Path) -> None:
    snapshot = of(store, lambda snapshot: None).current()
    shutil.rmtree(store / "attempts")
    with pytest.raises(StoreError, match="a file of the store is missing"):
        snapshot.cache("attempts", lambda analysis: analysis.status.attempts)


def test_an_answer_is_made_again_if_a_commit_came_between(store: Path, tmp_path: Path) -> None:
    snapshots = of(store, patience_s=60)
    seen = []

    def build(snapshot: Snapshot) -> int:
        seen.append(snapshot)
        if len(seen) == 1:
            replace(store, grow(tmp_path / "more", 3))
            raise StoreError("a file of the store is missing")
        return attempts(snapshot)

    assert snapshots.answer(build) == 3
    assert seen[0].generation != seen[1].generation


def test_trouble_without_a_commit_is_raised(store: Path) -> None:
    def build(snapshot: Snapshot) -> int:
        raise StoreError("gone")

    with pytest.raises(StoreError, match="gone"):
        of(store).answer(build)


def test_a_fault_of_ours_is_not_hidden(store: Path) -> None:
    def prepare(snapshot: Snapshot) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        of(store, prepare).current()
