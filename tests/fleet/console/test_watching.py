"""The watcher's thread: it reads what comes, says how it goes, and survives trouble."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logs import Attempt, names

from holdfast.errors import StoreError
from holdfast.fleet.console.watching import Watcher
from holdfast.fleet.store import Store

PATIENCE_S = 60.0


def wait_until(done: Callable[[], bool]) -> None:
    """Look again and again until it is so."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        if done():
            return
        pause.wait(0.02)
    raise AssertionError("it did not happen")


def write(log: Path, *jobs: int) -> None:
    attempts = [Attempt(job, names(2), 60 * job, 60 * job + 50) for job in jobs]
    columns = attempts[0].fields()
    text = "" if log.exists() else "|".join(columns) + "\n"
    text += "".join("|".join(a.fields()[c] for c in columns) + "\n" for a in attempts)
    with log.open("a") as file:
        file.write(text)


def jobs(store: Path) -> int:
    try:
        return int(Store.open(store).facts["counts"]["jobs"])
    except StoreError:
        return 0


def test_it_reads_in_the_background_what_is_written(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    watcher = Watcher(store, [log], poll_s=0.05)
    assert watcher.status().last_poll_s is None
    assert watcher.describe() == f"Watching {log}; not read yet."
    watcher.start()
    watcher.start()  # is one already
    try:
        wait_until(lambda: jobs(store) == 0 and watcher.status().last_poll_s is not None)
        write(log, 1, 2)
        wait_until(lambda: jobs(store) == 2)
        write(log, 3)
        wait_until(lambda: jobs(store) == 3)
    finally:
        watcher.stop()
    watcher.stop()
    assert watcher.status().rows == 3
    assert not [t for t in threading.enumerate() if t.name == "watch"]


def test_stopping_does_not_wait_for_the_next_look(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path / "store", [tmp_path / "log"], poll_s=1e6)
    watcher.start()
    wait_until(lambda: watcher.status().last_poll_s is not None)
    watcher.stop()


def test_the_status_after_each_look(tmp_path: Path) -> None:
    spool, store = tmp_path / "spool", tmp_path / "store"
    spool.mkdir()
    watcher = Watcher(store, [spool], clock=lambda: 86_399.0)
    write(spool / "a.psv", 1, 2)
    (spool / "b.txt").write_text("hello\n")
    watcher.look()
    status = watcher.status()
    assert (status.last_poll_s, status.rows) == (86_399.0, 2)
    (problem,) = status.problems
    assert problem.startswith(f"{spool / 'b.txt'}: ")
    assert "last read 23:59:59 UTC, 2 rows since the start. Trouble: " in watcher.describe()
    (spool / "b.txt").unlink()
    write(spool / "a.psv", 3)
    watcher.look()
    assert watcher.status().problems == ()
    assert watcher.status().rows == 3


def test_a_store_that_is_in_use_is_a_problem_not_an_end(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    write(log, 1)
    store.mkdir()
    watcher = Watcher(store, [log])
    with (store / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watcher.look()
    (problem,) = watcher.status().problems
    assert "another ingest is writing this store" in problem
    watcher.look()
    assert watcher.status().problems == ()
    assert jobs(store) == 1


def test_a_bug_does_not_end_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = Watcher(tmp_path / "store", [tmp_path / "log"], poll_s=0.01)
    look, calls = watcher.look, []

    def once_broken() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError("oops")
        return look()

    monkeypatch.setattr(watcher, "look", once_broken)
    watcher.start()
    wait_until(lambda: watcher.status().last_poll_s is not None)
    watcher.stop()
    assert watcher.status().problems == ()
    assert "ZeroDivisionError: oops" in capsys.readouterr().err


def test_many_problems_are_counted_not_all_told(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    for name in "abcdef":
        (spool / f"{name}.txt").write_text("hello\n")
    watcher = Watcher(tmp_path / "store", [spool])
    watcher.look()
    assert len(watcher.status().problems) == 6
    assert watcher.describe().endswith("; and 3 more.")
