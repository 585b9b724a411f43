"""Growing logs give the store that the whole log gives, however they grow and whoever restarts."""

from __future__ import annotations

import fcntl
import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logs import Attempt, Check, Log, names

import holdfast.fleet as fleet
from holdfast.errors import StoreError
from holdfast.fleet import ingest_attempts
from holdfast.fleet.console.watching import Watcher
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.store import Store

LINES = 400
COUNTED = ("rows", "steps", "rejected")


def contents(store: Path) -> dict[str, list[Any]]:
    """Every row of every table, in an order that does not depend on how they came."""
    opened = Store.open(store)
    found = {}
    for name in ("attempts", "nodes", "health", "node_outages", "controller_events", "rejects"):
        rows = pa.concat_tables([pq.read_table(file) for file in opened.files(name)]).to_pylist()
        for row in rows if name == "rejects" else ():
            row["source"] = Path(row["source"]).name
        found[name] = sorted(rows, key=str)
    return found


def counted(store: Path) -> list[dict[str, int]]:
    return [{name: e[name] for name in COUNTED} for e in Store.open(store).facts["sources"]]


@pytest.fixture(scope="module")
def real_log(testbed: Path) -> bytes:
    """Lines of a real log: names with line breaks, steps; a record with an impossible state; headers
    that were printed again."""
    lines = gzip.decompress((testbed / "sacct_D_all.psv.gz").read_bytes()).split(b"\n")[:LINES]
    state = lines[0].split(b"|").index(b"State")
    fields = lines[240].split(b"|")
    lines[240] = b"|".join([*fields[:state], b"BOGUS", *fields[state + 1 :]])
    lines = [*lines[:200], lines[0], *lines[200:300], lines[0], *lines[300:]]
    return b"\n".join(lines) + b"\n"


@pytest.fixture(scope="module")
def whole(real_log: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "sacct.psv").write_bytes(real_log)
    fleet.ingest([folder / "sacct.psv"], folder / "store")
    assert len(contents(folder / "store")["rejects"]) == 1
    return folder / "store"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_any_split_of_a_log_gives_the_store_of_the_whole(
    seed: int, real_log: bytes, whole: Path, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    lines = real_log.splitlines(keepends=True)
    width = lines[0].count(b"|")
    ends = [
        sum(map(len, lines[: i + 1])) for i, line in enumerate(lines) if line.count(b"|") != width
    ]
    anywhere = rng.sample(range(len(real_log)), 3)
    cuts = sorted({*anywhere, *rng.sample(ends, 3), len(real_log)})  # also inside a record
    log, store = tmp_path / "spool" / "sacct.psv", tmp_path / "store"
    log.parent.mkdir()
    follower, at = Follower([log.parent], store), 0
    for cut in cuts:
        with log.open("ab") as file:
            file.write(real_log[at:cut])
        at = cut
        for _ in range(rng.choice([1, 1, 2, 3])):  # the writer may pause, in a record too
            follower.look()
        if rng.random() < 0.5:
            follower = Follower([log.parent], store)
    follower.look()
    last = follower.look()
    assert (last.rows, last.committed, last.problems) == (0, False, {})
    assert contents(store) == contents(whole)
    assert counted(store) == counted(whole)


def test_any_split_of_json_lines(testbed: Path, tmp_path: Path) -> None:
    data = (testbed / "health_events.jsonl").read_bytes()
    fleet.ingest([testbed / "health_events.jsonl"], tmp_path / "whole")
    rng = random.Random(0)
    log, store = tmp_path / "health.jsonl", tmp_path / "store"
    follower, at = Follower([log], store), 0
    for cut in [*sorted(rng.sample(range(300, len(data)), 6)), len(data)]:
        with log.open("ab") as file:
            file.write(data[at:cut])
        at = cut
        for _ in range(rng.choice([1, 3])):
            follower.look()
    follower.look()
    assert contents(store) == contents(tmp_path / "whole")
    assert counted(store) == counted(tmp_path / "whole")


def rows_of(*attempts: Attempt) -> str:
    columns = attempts[0].fields()
    return "".join("|".join(a.fields()[name] for name in columns) + "\n" for a in attempts)


def header() -> str:
    return "|".join(Attempt(1, ("n1",), 0, 1).fields()) + "\n"


def day(number: int) -> list[Attempt]:
    """Twenty jobs of a day."""
    start = 86_400 * number
    return [Attempt(100 * number + i, names(2), start + 60 * i, start + 3600) for i in range(20)]


def states(store: Path) -> dict[str, str]:
    return {row["job_id"]: row["state"] for row in contents(store)["attempts"]}


def test_a_running_job_is_replaced_by_its_end(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    running = Attempt(7, names(2), 0, None, "RUNNING", submit=0, runtime_s=600)
    log.write_text(header() + rows_of(running))
    follower = Follower([log], store)
    follower.look()
    assert states(store) == {"7": "RUNNING"}
    with log.open("a") as file:
        file.write(rows_of(Attempt(7, names(2), 0, 900, "NODE_FAIL", submit=0)))
    follower.look()
    assert states(store) == {"7": "NODE_FAIL"}


def test_each_export_appends_its_header_and_is_shown_at_the_next_look(tmp_path: Path) -> None:
    """`sacct >> log`, of one job and its step."""
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    follower = Follower([log], store)
    for attempt in (
        Attempt(7, names(2), 0, None, "RUNNING", submit=0, runtime_s=600),
        Attempt(7, names(2), 0, 900, "NODE_FAIL", submit=0),
    ):
        row = rows_of(attempt)
        with log.open("a") as file:
            file.write(header() + row + row.replace("7|7|", "7.0|7.0|"))
        assert follower.look().committed
        assert states(store) == {"7": attempt.state}
    assert contents(store)["rejects"] == []


def test_rotation_by_cutting_off(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    log.write_text(header() + rows_of(*day(0)))
    follower = Follower([log], store)
    follower.look()
    log.write_text(header() + rows_of(*day(1)))  # as long as before, other bytes
    follower.look()
    log.write_text(header() + rows_of(*day(2)[:3]))
    follower.look()
    assert len(states(store)) == 43


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    text = header() + rows_of(*day(0))
    log.write_text(text[:-30])
    follower = Follower([log], store)
    for _ in range(3):
        follower.look()
    assert len(states(store)) == 19
    log.write_text(text)
    follower.look()
    assert len(states(store)) == 20


def test_json_without_a_last_line_break_is_taken_when_it_stays_so(tmp_path: Path) -> None:
    log, store = tmp_path / "health.jsonl", tmp_path / "store"
    event = {"time": "2026-01-05T00:00:00Z", "node": "n1", "check": "check nvlink"}
    log.write_text(json.dumps(event) + "\n" + json.dumps({**event, "node": "n2"}))
    follower = Follower([log], store)
    assert follower.look().rows == 0  # it is being written
    assert follower.look().rows == 2
    assert {row["node"] for row in contents(store)["health"]} == {"n1", "n2"}


def test_a_spool_with_files_of_all_kinds(testbed: Path, tmp_path: Path) -> None:
    sources = (
        "sacct_D.json.gz",
        "health_events.jsonl",
        "sacctmgr_events.txt",
        "scontrol_nodes.txt",
    )
    spool = tmp_path / "spool"
    spool.mkdir()
    for name in sources:
        shutil.copy(testbed / name, spool)
    follower = Follower([spool], tmp_path / "store")
    assert follower.look().problems == {}
    assert follower.look().committed is False
    assert Follower([spool], tmp_path / "store").look().committed is False
    fleet.ingest([testbed / name for name in sources], tmp_path / "whole")
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_bad_files_are_told_and_do_not_keep_others_out(tmp_path: Path) -> None:
    spool, store = tmp_path / "spool", tmp_path / "store"
    spool.mkdir()
    (spool / "a-picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (spool / "b-broken.gz").write_bytes(gzip.compress(b"JobID|State\n1|COMPLETED\n")[:-9])
    (spool / "c-short.psv").write_text("JobID|JobName|User\n1|a|b\n")
    (spool / "d-empty.psv").write_text("")
    (spool / "e-good.psv").write_text(header() + rows_of(*day(0)))
    follower = Follower([spool], store)
    look = follower.look()
    assert look.rows == 20
    assert {Path(path).name for path in look.problems} == {
        "a-picture.png",
        "b-broken.gz",
        "c-short.psv",
    }
    assert "missing column: State" in look.problems[str(spool / "c-short.psv")]
    assert follower.look().problems == look.problems  # until they change
    (spool / "a-picture.png").unlink()
    (spool / "b-broken.gz").write_bytes(gzip.compress(rows_of(*day(1)).encode()))
    (spool / "c-short.psv").write_text(header() + rows_of(*day(2)))
    look = follower.look()
    assert look.rows == 20
    assert [Path(path).name for path in look.problems] == ["b-broken.gz"]


def test_many_rejects_are_told_also_after_a_restart(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    bad = rows_of(day(1)[0]).replace("COMPLETED", "BOGUS")
    log.write_text(header() + rows_of(*day(0)) + bad + rows_of(*day(2)))
    expected = {str(log): "1 of 41 records could not be used"}
    assert Follower([log], store).look().problems == expected
    assert Follower([log], store).look().problems == expected
    (reject,) = contents(store)["rejects"]
    assert reject["line"] == 22


def test_files_that_are_gone_are_forgotten_and_their_rows_stay(tmp_path: Path) -> None:
    spool, store = tmp_path / "spool", tmp_path / "store"
    spool.mkdir()
    follower = Follower([spool], store)
    for number in range(4):
        for old in spool.iterdir():
            old.unlink()
        (spool / f"sacct-{number}.psv").write_text(header() + rows_of(*day(number)))
        follower.look()
    entries = Store.open(store).facts["sources"]
    assert [(Path(e["path"]).name, e["rows"]) for e in entries] == [("sacct-3.psv", 20)]
    assert len(states(store)) == 80


def test_an_empty_spool_makes_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    look = Follower([tmp_path / "spool", tmp_path / "later.psv"], tmp_path / "store").look()
    assert (look.rows, look.committed) == (0, True)
    assert contents(tmp_path / "store")["attempts"] == []
    fleet.report(tmp_path / "store")


def test_a_store_that_vanished_is_made_again(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    log.write_text(header() + rows_of(*day(0)))
    follower = Follower([log], store)
    follower.look()
    shutil.rmtree(store)
    follower.look()
    assert len(states(store)) == 20


def test_a_store_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    log.write_text(header() + rows_of(*day(0)))
    store.mkdir()
    follower = Follower([log], store)
    with (store / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another ingest"):
            follower.look()
    assert follower.look().rows == 20


def test_files_of_many_looks_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_attempts, "_MOST_SMALL_FILES", 2)
    log, store = tmp_path / "sacct.psv", tmp_path / "store"
    log.write_text(header())
    follower = Follower([log], store)
    attempts = [Attempt(i, names(1), 60 * i, 60 * i + 50) for i in range(1, 8)]
    most = 0
    for attempt in attempts:
        with log.open("a") as file:
            file.write(rows_of(attempt))
        follower.look()
        most = max(most, len(Store.open(store).files("attempts")))
    assert 2 < most <= 4
    assert len(states(store)) == 7
    assert len(list((store / "attempts").iterdir())) <= 4


def test_failures_and_their_checks_meet_whatever_comes_first(tmp_path: Path) -> None:
    log = Log(
        [Attempt(1, names(2), 0, 7200, "NODE_FAIL")], [Check(7100, names(2)[1], "check nvlink")]
    )
    sacct, health = log.write(tmp_path / "logs")
    for number, order in enumerate([(sacct, health), (health, sacct)]):
        spool, store = tmp_path / f"spool{number}", tmp_path / f"store{number}"
        spool.mkdir()
        follower = Follower([spool], store)
        for file in order:
            shutil.copy(file, spool)
            follower.look()
        (attempt,) = fleet.attribute(store, "1").attempts
        assert attempt["causes"][0]["check"] == "check nvlink"


def events(*nodes: str) -> str:
    event = {"time": "2026-01-05T00:00:00Z", "check": "check nvlink"}
    return "".join(json.dumps({**event, "node": node}) + "\n" for node in nodes)


def test_a_log_of_lines_that_is_rotated(tmp_path: Path) -> None:
    """Also after a restart, a rename with lines not yet read, and a cut."""
    log, store = tmp_path / "health.jsonl", tmp_path / "store"
    log.write_text(events("n1", "n2"))
    assert Follower([log], store).look().rows == 2
    with log.open("a") as file:
        file.write(events("n3") + "no JSON\n")
    assert Follower([log], store).look().rows == 1
    assert [row["line"] for row in contents(store)["rejects"]] == [4]
    with log.open("a") as file:
        file.write(events("n4"))
    log.rename(tmp_path / "health.jsonl.1")
    log.write_text(events("n5"))
    follower = Follower([log], store)
    assert follower.look().rows == 2
    log.write_text(events("n6"))
    assert follower.look().rows == 1
    assert {row["node"] for row in contents(store)["health"]} == {f"n{i}" for i in range(1, 7)}


def test_a_file_of_an_unknown_cluster_keeps_no_other_out_and_is_named(tmp_path: Path) -> None:
    """Two clusters have a node n1: of a check on it nobody knows the cluster, until it is said."""
    spool, store = tmp_path / "spool", tmp_path / "store"
    spool.mkdir()
    columns = Attempt(1, ("n1",), 0, 1).fields()
    (spool / "b.psv").write_text(
        "|".join(columns)
        + "\n"
        + "".join(
            "|".join({**Attempt(7, ("n1",), 0, 60).fields(), "Cluster": name}.values()) + "\n"
            for name in ("alpha", "beta")
        )
    )
    (spool / "a.jsonl").write_text(events("n1"))
    watcher = Watcher(store, [spool])
    for _ in range(3):  # said at every look, not once
        watcher.look()
        (problem,) = watcher.status().problems
        assert str(spool / "a.jsonl") in problem
        assert len(contents(store)["attempts"]) == 2
    (spool / "c.psv").write_text(header() + rows_of(*day(1)).replace("|c|", "|alpha|"))
    watcher.look()
    assert len(contents(store)["attempts"]) == 22
    (spool / "a.jsonl").unlink()
    watcher.look()
    assert watcher.status().problems == ()
    assert Follower([spool], store).look().committed is False
