"""slurmrestd as a source: the store is that of a bulk ingest, and no answer is taken for another."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import live_stub
import pytest
from live_stub import recorded, serving
from test_following import contents

import holdfast.fleet as fleet
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live import slurm as module
from holdfast.fleet.live.asking import Trouble
from holdfast.fleet.live.slurm import Slurm, SlurmSource
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.store import Store

NOW = 1_795_959_000


def source(url: str, **changes: Any) -> Slurm:
    return Slurm(SlurmSource("s", url, **changes), Event(), first_s=0.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the source takes for this machine's time."""
    now = [float(NOW)]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


def follow(cluster: live_stub.Slurm, spool: Spool, store: Path, clock: list[float]) -> None:
    """Poll until the jobs are over; now and then the store reads the spool."""
    follower = Follower([spool.folder], store)
    with serving(cluster.answer) as url:
        polled = source(url, since=3600, overlap=600)
        looks = 0
        while cluster.now_s < cluster.end_s + 1000:
            clock[0] = cluster.now_s + cluster.step_s
            polled.poll(spool)
            looks += 1
            if looks % 5 == 0:
                follower.look()
    follower.look()


def test_the_store_is_that_of_a_bulk_ingest(tmp_path: Path, clock: list[float]) -> None:
    cluster = live_stub.Slurm(NOW, jobs=14, step_s=250.0)
    follow(cluster, Spool(tmp_path / "spool", lambda: cluster.now_s), tmp_path / "store", clock)
    whole = tmp_path / "sacct.json"
    whole.write_text(json.dumps({"meta": {"openapi/dbv0.0.38": 1}, "jobs": cluster.within()}))
    fleet.ingest([whole], tmp_path / "bulk")
    live, bulk = contents(tmp_path / "store"), contents(tmp_path / "bulk")
    assert live["attempts"] == bulk["attempts"]
    assert len(live["attempts"]) == cluster.jobs
    assert live["rejects"] == []
    outages = {(row["node"], row["start_s"], row["end_s"]) for row in live["node_outages"]}
    assert outages == cluster.outages()
    assert {(row["node"], row["gpus"], row["inferred"]) for row in live["nodes"]} == {
        (f"n{number}", 8, False) for number in range(cluster.nodes)
    }


def test_what_does_not_change_is_written_once(tmp_path: Path, clock: list[float]) -> None:
    cluster = live_stub.Slurm(NOW, jobs=12)
    cluster.now_s, cluster.step_s = cluster.end_s + 10.0, 0.0
    clock[0] = cluster.now_s
    spool = Spool(tmp_path, lambda: cluster.now_s)
    with serving(cluster.answer) as url:
        polled = source(url)
        polled.poll(spool)
        (file,) = tmp_path.glob("jobs-*")
        size = file.stat().st_size
        for _ in range(3):
            polled.poll(spool)
    assert file.stat().st_size == size
    written = [job for line in file.read_bytes().splitlines() for job in json.loads(line)["jobs"]]
    assert len(written) == cluster.jobs


def test_real_answers_give_the_attempts_of_their_jobs(tmp_path: Path, clock: list[float]) -> None:
    """Answers of 22.05: NODE_FAIL, requeued, resized, an array's task, one that runs; a drain, a DOWN."""
    names = {"diag": "diag", "nodes": "nodes", "jobs": "jobs", "v3": "openapi"}
    clock[0] = recorded("diag")["statistics"]["req_time"]
    asked = []

    def answer(path: str, parameters: dict[str, str], headers: dict[str, str]) -> Any:
        asked.append((path, headers.get("x-slurm-user-name"), headers.get("x-slurm-user-token")))
        return 200, recorded(names[path.rpartition("/")[2]])

    (tmp_path / "token").write_text("eyJ.secret\n")
    spool = Spool(tmp_path / "spool", lambda: clock[0])
    with serving(answer) as url:
        polled = source(url, token_file=str(tmp_path / "token"), since=3600, overlap=0)
        assert polled.poll(spool) == "v0.0.38"
        polled.poll(spool)
    Follower([spool.folder], tmp_path / "store").look()
    whole = tmp_path / "sacct.json"
    whole.write_text(json.dumps(recorded("jobs")))
    fleet.ingest([whole], tmp_path / "bulk")
    live = contents(tmp_path / "store")
    # The bulk ingest does not know the outages, which tell a recovered attempt's end.
    assert live["attempts"] == contents(tmp_path / "bulk")["attempts"]
    states = {(row["node"], row["state"]): row["reason"] for row in live["node_outages"]}
    assert states == {("ln02", "DRAIN"): "ticket 12 | cable", ("ln03", "DOWN"): "hc: xid"}
    inventory = {row["node"]: row["state"] for row in live["nodes"] if not row["inferred"]}
    assert inventory == {"ln01": "MIXED", "ln02": "IDLE+DRAIN", "ln03": "DOWN"}
    assert {(user, token) for _, user, token in asked} == {("root", "eyJ.secret")}
    kept = b"".join(path.read_bytes() for path in spool.folder.iterdir())
    assert b"eyJ.secret" not in kept


@pytest.mark.parametrize(
    ("answers", "state", "said"),
    [
        ({"diag": (500, "expired_diag"), "jobs": (200, "expired_jobs")}, "refused", "1007"),
        ({"diag": (401, b"Authentication failure")}, "refused", "401"),
        ({"diag": (500, "expired_diag"), "jobs": (200, "nothing")}, "away", "500"),
        ({"v3": (404, b"")}, "unknown-version", "/openapi/v3"),
        ({"v3": (200, {"paths": {"/slurmdb/v0.0.99/jobs": {}}})}, "unknown-version", "v0.0.99"),
        ({"jobs": (200, b'{"jobs": [{"job_id": 1, ')}, "half-written", "JSON"),
        ({"jobs": (200, live_stub.Cut(b'{"jobs": [', 900))}, "half-written", "broke off"),
        ({"jobs": (200, {"errors": []})}, "bad-answer", "jobs"),
        ({"jobs": (200, [1])}, "bad-answer", "JSON object"),
        ({"jobs": (503, b"")}, "away", "503"),
        ({"jobs": (302, b"")}, "bad-answer", "302"),
    ],
)
def test_what_goes_wrong_has_a_name(
    answers: dict[str, Any], state: str, said: str, tmp_path: Path, clock: list[float]
) -> None:
    usual = {"diag": "diag", "nodes": "nodes", "jobs": "jobs", "v3": "openapi"}

    def answer(path: str, parameters: dict[str, str], headers: dict[str, str]) -> Any:
        name = path.rpartition("/")[2]
        status, body = answers.get(name, (200, usual[name]))
        return status, recorded(body) if isinstance(body, str) else body

    clock[0] = recorded("diag")["statistics"]["req_time"]
    with serving(answer) as url, pytest.raises(Trouble) as caught:
        source(url, token_env="").poll(Spool(tmp_path))
    assert caught.value.state == state
    assert said in str(caught.value)


def test_a_clock_an_hour_off_is_told_and_loses_nothing(tmp_path: Path, clock: list[float]) -> None:
    for off_s in (-3600, 3600):
        cluster = live_stub.Slurm(NOW, jobs=6, step_s=0.0)
        cluster.now_s = cluster.end_s + 10.0
        clock[0] = cluster.now_s + off_s
        spool = Spool(tmp_path / str(off_s), lambda at=cluster.now_s: at)
        with serving(cluster.answer) as url, pytest.raises(Trouble) as caught:
            source(url).poll(spool)
        assert caught.value.state == "clock-off"
        assert "3,600 s" in str(caught.value)
        Follower([spool.folder], tmp_path / f"store{off_s}").look()
        store = Store.open(tmp_path / f"store{off_s}")
        assert store.facts["counts"]["attempts"] == cluster.jobs


def test_no_connection_is_away(tmp_path: Path) -> None:
    with serving(lambda *_: (200, {})) as url:
        pass
    with pytest.raises(Trouble) as caught:
        source(url).poll(Spool(tmp_path))
    assert caught.value.state == "away"


def test_a_token_that_is_not_there_is_refused_unasked(tmp_path: Path) -> None:
    for secret in ({"token_env": "HOLDFAST_NO_SUCH"}, {"token_file": str(tmp_path / "none")}):
        with pytest.raises(Trouble) as caught:
            source("http://127.0.0.1:9", **secret).poll(Spool(tmp_path / "spool"))
        assert caught.value.state == "refused"


@pytest.mark.parametrize("version", [39, 40, 42, 44])
def test_later_versions_say_the_same_and_that_they_are_untried(
    version: int, tmp_path: Path, clock: list[float]
) -> None:
    """The recorded answers in the shapes of later versions give the recorded store."""
    names = {"diag": "diag", "nodes": "nodes", "jobs": "jobs"}
    clock[0] = recorded("diag")["statistics"]["req_time"]

    def answer(path: str, *_: Any) -> Any:
        if path == "/openapi/v3":
            offered = {f"/slurmdb/v0.0.{each}/jobs/": {} for each in (version, 45)}
            return 200, {"paths": offered}
        assert f"/v0.0.{version}/" in path
        return 200, live_stub.later(recorded(names[path.rpartition("/")[2]]), version)

    spool = Spool(tmp_path / "spool", lambda: clock[0])
    with serving(answer) as url:
        polled = source(url, since=3600, overlap=0)
        for _ in range(2):
            with pytest.raises(Trouble) as caught:
                polled.poll(spool)
            assert (caught.value.state, f"v0.0.{version}" in str(caught.value)) == ("untried", True)
    Follower([spool.folder], tmp_path / "store").look()
    (tmp_path / "sacct.json").write_text(json.dumps(recorded("jobs")))
    fleet.ingest([tmp_path / "sacct.json"], tmp_path / "bulk")
    live, bulk = contents(tmp_path / "store"), contents(tmp_path / "bulk")
    # Since v0.0.40 an exit code of 0 is one; before, it may also be that of what never ended by itself.
    both = [
        {
            key: row[key]
            for key in row
            if version < 40 or old["exit_code"] is not None or "exit" not in key
        }
        for row, old in zip(live["attempts"], bulk["attempts"], strict=True)
    ]
    for row, old in zip(both, bulk["attempts"], strict=True):
        assert row == {key: old[key] for key in row}
    states = {(row["node"], row["start_s"], row["state"]) for row in live["node_outages"]}
    assert states == {("ln02", 1_795_959_684, "DRAIN"), ("ln03", 1_795_959_684, "DOWN")}
    inventory = {row["node"]: row["state"] for row in live["nodes"] if not row["inferred"]}
    assert inventory == {"ln01": "MIXED", "ln02": "IDLE+DRAIN", "ln03": "DOWN"}


@pytest.mark.parametrize("version", ["v0.0.45", "v0.0.35"])
def test_a_version_that_the_file_states_must_be_known(version: str, tmp_path: Path) -> None:
    with pytest.raises(Trouble) as caught:
        source("http://127.0.0.1:9", version=version).poll(Spool(tmp_path / "spool"))
    assert caught.value.state == "unknown-version"
    assert version in str(caught.value)


def test_a_node_that_went_silent_as_later_versions_say() -> None:
    """As a published answer of Slurm 25.05 has it."""
    silent = {"state": ["DOWN", "DRAIN", "NOT_RESPONDING"]}
    assert module._outage(silent) == "DOWN*"
    assert module._outage({"state": ["IDLE", "CLOUD", "POWERED_DOWN"]}) == ""
    assert module._outage({"state": ["IDLE", "DRAIN", "DYNAMIC_NORM"]}) == "DRAIN"


@pytest.mark.parametrize(
    ("elapsed", "end", "steps", "start"),
    [
        (4, 1_795_962_177, [1_795_962_173, 1_795_962_174], 1_795_962_173),
        (16, 0, [1_795_962_290], 1_795_962_290),
        (16, 0, [], NOW - 16),
        (0, 1_795_962_180, [], 0),  # cancelled while it waited
        (0, 0, [], 0),
    ],
)
def test_v0_0_37_says_start_and_means_eligible(
    elapsed: int, end: int, steps: list[int], start: int
) -> None:
    """As 22.05 answered for jobs whose start v0.0.38 gave as here."""
    times = {
        "elapsed": elapsed,
        "eligible": NOW - 50,
        "end": end,
        "start": NOW - 50,
        "suspended": 0,
    }
    job = {"time": times, "steps": [{"time": {"start": at}} for at in steps]}
    assert module._restarted(job, float(NOW))["time"] == {**times, "start": start}
