"""Preprocessing stores: every run is used once, whatever happens to the process or the files."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.private.mpc.accounting import Ledger
from holdfast.private.mpc.store import Store, read_items, store_path, write_items, write_stores

ITEMS = [("square", {"shape": [3]}), ("truncation", {"shape": [2, 2], "bits": 16})]
RUNS = 4


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_stores(tmp_path / "stores", ITEMS, 3, RUNS)
    return tmp_path / "stores"


Opened = Callable[..., list[Store]]


@pytest.fixture
def opened(state: Path) -> Iterator[Opened]:
    stores: list[Store] = []

    def call(folder: Path, parties: int = 3) -> list[Store]:
        stores.extend(Store(store_path(folder, rank), state) for rank in range(parties))
        return stores[-parties:]

    yield call
    for store in stores:
        store.close()


def code_of(call: Any) -> str:
    with pytest.raises(HoldfastError) as refused:
        call()
    return refused.value.code


def test_items_of_every_run_are_right_and_differ(folder: Path, opened: Opened) -> None:
    stores = opened(folder)
    assert [store.header.rank for store in stores] == [0, 1, 2]
    masks = set()
    for run in range(RUNS):
        for store in stores:
            store.claim(run)
        supplies = [store.supply(run, Ledger()) for store in stores]
        squares = [supply.take("square", shape=(3,)) for supply in supplies]
        a, c = (sum(part[name] for part in squares) for name in "ac")
        np.testing.assert_array_equal(a * a, c)
        masks.add(a.tobytes())
        for supply in supplies:
            supply.take("truncation", shape=[2, 2], bits=16)
        assert [supply.ledger.total().offline_bytes for supply in supplies] == [0, 0, 24 + 64]
    assert len(masks) == RUNS


def test_a_store_is_exhausted(folder: Path, opened: Opened) -> None:
    (store,) = opened(folder, 1)
    store.claim(RUNS - 1)
    assert code_of(lambda: store.claim(RUNS)) == "store-exhausted"
    store.close()
    (again,) = opened(folder, 1)
    assert again.position == RUNS
    assert code_of(lambda: again.claim(again.position)) == "store-exhausted"
    supply = again.supply(0, Ledger())
    for kind, parameters in ITEMS:
        supply.take(kind, **parameters)
    assert code_of(lambda: supply.take("square", shape=[3])) == "store-exhausted"


def test_a_run_is_claimed_once(folder: Path, opened: Opened) -> None:
    (store,) = opened(folder, 1)
    store.claim(1)  # another party was at 1 already
    assert code_of(lambda: store.claim(1)) == "store-replayed"
    assert code_of(lambda: store.claim(0)) == "store-replayed"


@pytest.mark.parametrize("what", ["folder", "record", "no record", "wrong record"])
def test_a_store_restored_from_a_copy_is_refused(folder: Path, opened: Opened, what: str) -> None:
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    (store,) = opened(folder, 1)
    store.claim(0)
    store.close()
    record = folder / "party0.store.used"
    if what == "folder":
        folder = copy
    elif what == "record":
        shutil.copy(copy / record.name, record)
    elif what == "no record":
        record.unlink()
    else:
        record.write_text("7 00000000\n")
    assert code_of(lambda: opened(folder, 1)) == "store-replayed"


def test_another_program_is_noticed(folder: Path, opened: Opened) -> None:
    (store,) = opened(folder, 1)
    store.claim(0)
    supply = store.supply(0, Ledger())
    assert code_of(lambda: supply.take("square", shape=[4])) == "store-mismatch"


def test_two_processes_do_not_share_a_store(folder: Path, opened: Opened) -> None:
    opened_once = opened(folder, 1)
    assert code_of(lambda: opened(folder, 1)) == "conflict"
    assert opened_once[0].position == 0


@pytest.mark.parametrize("damage", ["cut", "other", "missing"])
def test_a_damaged_store_is_refused(folder: Path, state: Path, damage: str) -> None:
    path = store_path(folder, 2)
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[:-1] if damage == "cut" else b"x" * 100)
    expected = "not-found" if damage == "missing" else "damaged"
    assert code_of(lambda: Store(path, state)) == expected


HEADERS: list[dict[str, Any]] = [
    {"identity": "../../outside"}, {"identity": "/outside"}, {"identity": 5}, {"identity": None},
    {"rank": -1}, {"rank": 3}, {"rank": "../0"}, {"rank": 0.5}, {"parties": 0}, {"parties": "3"},
    {"runs": -1}, {"runs": "4"}, {"runs": 10**30}, {"runs": 5}, {"seed": "zz"}, {"seed": 5},
    {"items": 5}, {"items": [[1, 2]]}, {"items": [["square", {}]]}, {"more": 1},
    {"items": [["square", {"shape": [-1]}]]},
]  # fmt: skip


@pytest.mark.parametrize("change", HEADERS, ids=str)
def test_a_header_that_no_dealer_writes_is_refused(
    folder: Path, state: Path, change: dict[str, Any]
) -> None:
    """The file comes from another organization: it must not choose where claims are written."""
    path = store_path(folder, 2)
    content = path.read_bytes()
    start = content.index(b"{")
    header, end = json.JSONDecoder().raw_decode(content[start:].decode("latin-1"))
    text = json.dumps(header | change).encode()
    path.write_bytes(
        content[: start - 8] + struct.pack("<Q", len(text)) + text + content[start + end :]
    )
    before = set(folder.parent.rglob("*"))
    assert code_of(lambda: Store(path, state)) == "damaged"
    assert set(folder.parent.rglob("*")) == before


def test_stores_are_private_and_never_overwritten(folder: Path) -> None:
    assert store_path(folder, 0).stat().st_mode & 0o077 == 0
    assert code_of(lambda: write_stores(folder, ITEMS, 3, 1)) == "output-exists"


def test_items_are_written_and_read(tmp_path: Path) -> None:
    write_items(tmp_path / "items.json", ITEMS, 3)
    assert read_items(tmp_path / "items.json") == ITEMS
    (tmp_path / "wrong.json").write_text(json.dumps({"items": [1]}))
    assert code_of(lambda: read_items(tmp_path / "wrong.json")) == "invalid-syntax"


class Crash(BaseException):
    """The process ends here."""


def test_a_crash_at_any_write_uses_no_run_twice(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stores(tmp_path / "stores", ITEMS, 2, 50)
    path = store_path(tmp_path / "stores", 0)
    used: list[int] = []
    real = {"fsync": os.fsync, "replace": Path.replace}
    left = [0]

    def crashing(name: str) -> Any:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return real[name](*args)

        return call

    monkeypatch.setattr(os, "fsync", crashing("fsync"))
    monkeypatch.setattr(Path, "replace", crashing("replace"))
    crashes = 0
    for point in range(1, 12):
        store = Store(path, state)
        left[0] = point
        try:
            run = store.position
            store.claim(run)
            used.append(run)
        except Crash:
            crashes += 1
        finally:
            left[0] = 0
            store.close()
    assert len(used) == len(set(used))
    assert crashes >= 6
    assert used


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from holdfast.private.mpc.store import Store
path, state, log = map(Path, sys.argv[1:])
chance = random.Random(0)
for _ in range(60):
    child = os.fork()
    if child == 0:
        store = Store(path, state)
        while True:
            run = store.position
            store.claim(run)
            with log.open("a") as file:
                file.write(f"{run}\\n")
    time.sleep(chance.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.full
def test_kill_9_at_random_moments_uses_no_run_twice(tmp_path: Path, state: Path) -> None:
    write_stores(tmp_path / "stores", ITEMS, 2, 100_000)
    path, log = store_path(tmp_path / "stores", 0), tmp_path / "log"
    subprocess.run([sys.executable, "-c", KILLED, path, state, log], check=True)
    runs = [int(line) for line in log.read_text().splitlines()]
    assert len(runs) == len(set(runs))
    assert len(runs) > 60
