"""A spool after any end of its writer: whole lines, in files that roll and go when the store has them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live import spool as module
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.store import Store

HOUR = 3600.0
BEGIN = 1_795_957_200.0


def event(number: int) -> bytes:
    row = {"time": BEGIN + number, "node": f"n{number % 7}", "check": "c", "result": "fail"}
    return json.dumps(row).encode()


def lines_of(folder: Path) -> list[bytes]:
    found = []
    for path in sorted(folder.glob("health-*")):
        content = path.read_bytes()
        assert content.endswith(b"\n")
        found += content.splitlines()
    return found


def test_files_roll_by_hour_and_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROLL_BYTES", 300)
    now = [BEGIN]
    spool = Spool(tmp_path, lambda: now[0])
    written = []
    for number in range(60):
        now[0] = BEGIN + number * 180
        written.append(event(number))
        spool.append("health", written[-1:], "jsonl")
    names = sorted(path.name for path in tmp_path.glob("health-*"))
    assert {name[:18] for name in names} == {f"health-20261129T{hour}" for hour in (13, 14, 15)}
    assert all(path.stat().st_size < 400 for path in tmp_path.glob("health-*"))
    assert lines_of(tmp_path) == written


def test_a_line_that_a_killed_writer_left_is_cut(tmp_path: Path) -> None:
    first = Spool(tmp_path, lambda: BEGIN)
    first.append("health", [event(1), event(2)], "jsonl")
    first.close()
    (path,) = tmp_path.glob("health-*")
    with path.open("ab") as file:
        file.write(event(3)[:20])
    second = Spool(tmp_path, lambda: BEGIN + HOUR)  # whose data go to another file
    assert lines_of(tmp_path) == [event(1), event(2)]
    second.append("health", [event(3)], "jsonl")
    assert lines_of(tmp_path) == [event(1), event(2), event(3)]


def test_a_header_stands_once_in_each_file(tmp_path: Path) -> None:
    now = [BEGIN]
    for number in range(4):
        now[0] += HOUR / 2
        spool = Spool(tmp_path, lambda: now[0])
        spool.append("outages", [b"%d" % number], "psv", b"header")
        spool.close()
    contents = [path.read_bytes().split() for path in sorted(tmp_path.glob("outages-*"))]
    assert [each[0] for each in contents] == [b"header"] * len(contents)
    assert [line for each in contents for line in each[1:]] == [b"0", b"1", b"2", b"3"]


def test_a_cursor_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    Spool(tmp_path).commit(until=3)
    assert Spool(tmp_path).cursor == {"until": 3}
    (tmp_path / module.CURSOR).write_bytes(b'{"until": ')
    assert Spool(tmp_path).cursor == {}


def test_only_what_the_store_has_is_removed(tmp_path: Path) -> None:
    now = [BEGIN]
    folder, store = tmp_path / "spool", tmp_path / "store"
    spool = Spool(folder, lambda: now[0])
    for number in range(4):
        now[0] = BEGIN + number * HOUR
        spool.append("health", [event(number)], "jsonl")
    paths = sorted(folder.glob("health-*"))
    for number, path in enumerate(paths):
        os.utime(path, (BEGIN + number * HOUR,) * 2)
    spool.prune(store, 0.0)  # there is no store
    assert sorted(folder.glob("health-*")) == paths
    Follower([folder], store).look()
    with paths[1].open("ab") as file:
        file.write(event(9) + b"\n")
    os.utime(paths[1], (BEGIN,) * 2)
    now[0] = BEGIN + 3.5 * HOUR
    spool.prune(store, HOUR)
    # The second has more than the store; the third is younger than an hour and a half; the last grows.
    assert sorted(folder.glob("health-*")) == [paths[1], paths[3]]
    Follower([folder], store).look()
    spool.prune(store, HOUR)
    assert sorted(folder.glob("health-*")) == [paths[3]]


def test_files_roll_by_size_where_earlier_ones_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that grows is read again at each look: it must stay small also where all else is removed."""
    monkeypatch.setattr(module, "ROLL_BYTES", 300)
    folder, store = tmp_path / "spool", tmp_path / "store"
    spool = Spool(folder, lambda: BEGIN)
    size = 0
    for number in range(0, 60, 5):
        lines = [event(number + k) for k in range(5)]
        size = max(size, sum(len(line) + 1 for line in lines))
        spool.append("health", lines, "jsonl")  # enough for a file
        assert max(path.stat().st_size for path in folder.glob("health-*")) <= size
        if number % 15 == 10:
            Follower([folder], store).look()
            spool.prune(store, -math.inf)  # whatever the store has read
            (last,) = folder.glob("health-*")
            assert last.name == f"health-20261129T13-{number // 5:04d}.jsonl"
    assert Store.open(store).facts["counts"]["health_events"] == 60


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    first = Spool(tmp_path, lambda: BEGIN)
    first.append("health", [event(1)], "jsonl")
    with pytest.raises(InputError) as caught:
        Spool(tmp_path, lambda: BEGIN)
    assert caught.value.code == "conflict"
