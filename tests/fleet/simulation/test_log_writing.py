"""A simulated store is what ingest writes, holds what the run holds, and is there whole or not at all."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast.fleet as fleet
import runs
from holdfast import cli
from holdfast.errors import StoreError
from holdfast.files import atomic_folder
from holdfast.fleet import FleetLog, Store
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation import log_tables, log_writing
from holdfast.fleet.simulation.log_writing import write_log
from holdfast.fleet.simulation.records import Detected, State
from holdfast.fleet.store import sweep
from runs import HOUR, Attempt, Failure, History, Job

BEGIN = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_log(runs.known().run(), tmp_path_factory.mktemp("known") / "store")


@pytest.fixture(scope="module")
def log(store: Store) -> FleetLog:
    return fleet.open(store)


@pytest.fixture(scope="module")
def truth(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((store.path / "truth.json").read_text())
    return found


def rows_of(store: Store, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.concat_tables(
        pq.read_table(file) for file in store.files(table)
    ).to_pylist()
    return found


def second(seconds: float) -> int | None:
    return None if seconds < 0 else BEGIN + math.floor(seconds)


# --- What ingest writes --------------------------------------------------------------------------


def test_tables_have_the_schemas_of_an_ingested_store(store: Store, testbed_store: Path) -> None:
    real = Store.open(testbed_store)
    assert set(store.facts["tables"]) == set(real.facts["tables"])
    for name in real.facts["tables"]:
        ours, theirs = (pq.read_schema(each.files(name)[0]) for each in (store, real))
        assert ours.equals(theirs, check_metadata=True), name


def test_facts_have_the_keys_of_an_ingested_store(store: Store, testbed_store: Path) -> None:
    real = Store.open(testbed_store).facts
    assert set(store.facts) == set(real)
    for name, value in real.items():
        assert type(store.facts[name]) is type(value), name
    assert set(store.facts["counts"]) == set(real["counts"])
    (source,) = store.facts["sources"]
    assert set(source) == set(real["sources"][0])
    assert source["format"] == "simulation"
    assert source["path"] == "hand, 2 days, seed 1"


def test_facts_count_the_tables(store: Store) -> None:
    counts = store.facts["counts"]
    assert counts == {
        "attempts": len(rows_of(store, "attempts")),
        "attempts_recovered": 0,
        "health_events": len(rows_of(store, "health")),
        "jobs": 12,
        "node_outages": 0,
        "nodes": 64,
        "rejected": 0,
    }
    assert store.facts["time_range"] == [BEGIN + 10, BEGIN + 31 * 3600]
    assert not rows_of(store, "controller_events")
    assert not rows_of(store, "rejects")


def test_every_attempt_is_there_as_sacct_prints_it(store: Store) -> None:
    history = runs.known()
    found = {(row["job_id"], row["attempt"]): row for row in rows_of(store, "attempts")}
    assert len(found) == len(history.attempts)
    before: dict[int, Attempt] = {}
    for attempt in history.attempts:
        job = history.jobs[attempt.job]
        row = found[str(attempt.job + 1), attempt.attempt]
        again = before.get(attempt.job)
        submit = second(job.submit if again is None else again.end)
        stop = history.days * 86_400 if attempt.end < 0 else attempt.end
        started = attempt.start >= 0
        expected = {
            "cluster": "hand",
            "job_id_raw": attempt.job + 1,
            "restarts": attempt.attempt - 1,
            "name": f"job-{attempt.job + 1}",
            "user": f"user{job.user + 1}",
            "work_dir": f"/home/user{job.user + 1}",
            "qos": ["low", "normal", "high"][job.qos],
            "priority": job.qos + 1,
            "state": State(attempt.state).name,
            "submit_s": submit,
            "eligible_s": second(job.submit if attempt.eligible is None else attempt.eligible),
            "start_s": second(attempt.start),
            "end_s": second(attempt.end),
            "runtime_s": math.floor(stop) - math.floor(attempt.start) if started else None,
            "time_limit_s": job.limit,
            "node_count": math.ceil(job.gpus / 8),
            "nodes": [f"node{node + 1:02d}" for node in attempt.nodes],
            "gpus": job.gpus,
            "cpus": None,
            "excluded_nodes": [],
            "failed_node": None,
            "recovered": False,
        }
        assert {name: row[name] for name in expected} == expected, row["job_id"]
        before[attempt.job] = attempt


@pytest.mark.parametrize(
    ("state", "code", "signal", "sigterm", "out_of_memory"),
    [
        ("COMPLETED", 0, 0, False, False),
        ("FAILED", 1, 0, False, False),
        ("CANCELLED", 0, 0, True, False),
        ("OUT_OF_MEMORY", 0, 125, False, True),
        ("TIMEOUT", 0, 0, False, False),
        ("REQUEUED", 0, 0, True, False),
        ("PREEMPTED", 0, 15, True, False),
        ("NODE_FAIL", 0, 0, False, False),
    ],
)
def test_exits_are_those_of_slurm(
    store: Store, state: str, code: int, signal: int, sigterm: bool, out_of_memory: bool
) -> None:
    found = [row for row in rows_of(store, "attempts") if row["state"] == state]
    assert found
    for row in found:
        assert (row["exit_code"], row["exit_signal"]) == (code, signal)
        assert (row["sigterm"], row["out_of_memory"]) == (sigterm, out_of_memory)


def test_rows_stand_in_the_order_of_their_ends(store: Store) -> None:
    found = rows_of(store, "attempts")
    assert [row["db_index"] for row in found] == list(range(1, len(found) + 1))
    ends = [math.inf if row["end_s"] is None else row["end_s"] for row in found]
    assert ends == sorted(ends)
    assert [row["state"] for row in found[-3:]] == ["RUNNING", "RUNNING", "PENDING"]


def test_attempts_of_a_job_never_share_a_second_of_submission(tmp_path: Path) -> None:
    """Its job and its submission are what tells an attempt from the others."""
    job = Job(10.2, 8)
    attempts = [
        Attempt(0, 1, [1], 10.2, 10.4, State.REQUEUED),
        Attempt(0, 2, [1], 10.4, 10.9, State.REQUEUED, eligible=10.4),
        Attempt(0, 3, [1], 10.9, 50.0, eligible=10.9),
    ]
    store = write_log(History([job], attempts).run(), tmp_path / "store")
    found = rows_of(store, "attempts")
    assert [row["submit_s"] - BEGIN for row in found] == [10, 11, 12]
    assert len({row["key"] for row in found}) == 3
    assert fleet.status(store).attempts == 3


def test_row_groups_make_no_difference(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in (1, 5):
        monkeypatch.setattr(log_tables, "ROW_GROUP_ROWS", rows)
        again = write_log(runs.known().run(), tmp_path / str(rows))
        assert pq.ParquetFile(again.files("attempts")[0]).num_row_groups >= 17 / rows
        assert rows_of(again, "attempts") == rows_of(store, "attempts")


def test_nodes_of_attempts_may_lie_anywhere(store: Store, tmp_path: Path) -> None:
    """The engine writes the nodes of an attempt when it starts, not in the order of the ends."""
    run = runs.known().run()
    rng = np.random.default_rng(1)
    order = rng.permutation(len(run.attempts.job))
    nodes, offsets = [], np.zeros(len(order), np.int64)
    for row in order:
        low, count = run.attempts.node_offset[row], run.attempts.node_count[row]
        offsets[row] = sum(map(len, nodes))
        nodes.append(run.nodes[low : low + count])
    mixed = runs.changed(
        run,
        attempts=runs.with_column(run.attempts, "node_offset", offsets),
        nodes=np.concatenate(nodes),
    )
    again = write_log(mixed, tmp_path / "store")
    assert rows_of(again, "attempts") == rows_of(store, "attempts")


def test_checks_tickets_and_outages(store: Store) -> None:
    checks = [
        (
            row["time_s"] - BEGIN,
            row["node"],
            row["check"],
            row["severity"],
            row["result"],
            row["xid"],
        )
        for row in rows_of(store, "health")
    ]
    h = HOUR
    assert checks == [
        (pytest.approx(4 * h + 250.3), "node33", "gpu_ecc", "HIGH", "fail", 48),
        (10 * h + 200, "node41", "ib_link", "HIGH", "fail", None),
        (12 * h + 300, "node58", "ticket", "", "warn", None),
        (pytest.approx(14 * h + 60.1), "node59", "ib_link", "LOW", "fail", None),
    ]
    outages = [
        (
            row["node"],
            row["start_s"] - BEGIN,
            row["end_s"],
            row["state"],
            row["reason"],
            row["cause"],
        )
        for row in rows_of(store, "node_outages")
    ]
    assert outages == [
        ("node33", 4 * h + 250, BEGIN + 6 * h, "DOWN", "gpu_ecc", None),
        ("node41", 10 * h + 200, BEGIN + 12 * h, "DOWN", "ib_link", None),
        ("node58", 12 * h + 300, None, "DOWN", "Not responding", None),
        ("node59", 14 * h + 60, BEGIN + 20 * h, "DRAIN", "ib_link", None),
    ]


def test_inventory_at_the_end(store: Store) -> None:
    nodes = {
        row["node"]: (row["gpus"], row["state"], row["reason"]) for row in rows_of(store, "nodes")
    }
    assert list(nodes) == [f"node{number:02d}" for number in range(1, 65)]
    assert nodes["node01"] == (8, "UP", None)
    assert nodes["node60"] == (8, "UP", None)
    assert nodes["node58"] == (8, "DOWN", "Not responding")
    assert nodes["node59"] == (8, "UP", None)


def test_classes_of_service(store: Store) -> None:
    found = [(r["qos"], r["priority"], r["grace_s"], r["preempts"]) for r in rows_of(store, "qos")]
    assert found == [
        ("low", 1, 600, []),
        ("normal", 2, 600, ["low"]),
        ("high", 3, 600, ["low", "normal"]),
    ]


def test_what_was_noticed_after_the_end_is_not_in_the_log(tmp_path: Path) -> None:
    end = 2 * 86_400.0
    failures = [
        Failure(end - 10, 1, 0, Detected.HIGH, end + 100),
        Failure(end - 20, 2, 2, Detected.SILENT, end + 280, permanent=True),
        Failure(end - 400, 3, 0, Detected.HIGH, end - 100, end - 100, end + 9000),
        Failure(end - 500, 4, 0, Detected.LOW, end - 200),
    ]
    busy = Attempt(0, 1, [4], 5.0, state=State.RUNNING)
    store = write_log(History([Job(1.0, 8)], [busy], failures).run(), tmp_path / "store")
    assert [row["node"] for row in rows_of(store, "health")] == ["node05", "node04"]
    outages = {row["node"]: row["end_s"] for row in rows_of(store, "node_outages")}
    assert outages == {"node04": None, "node05": None}
    states = {row["node"]: row["state"] for row in rows_of(store, "nodes")}
    assert (states["node04"], states["node05"]) == ("DOWN", "DRAIN")


def test_a_common_event_is_named_by_its_blast(tmp_path: Path) -> None:
    failures = [
        Failure(100.0, node, 0, Detected.HIGH, 105.0, 105.0, 3705.0, blast=0) for node in (3, 4)
    ]
    store = write_log(History([Job(1.0, 8)], [], failures).run(), tmp_path / "store")
    assert [(r["check"], r["message"], r["xid"]) for r in rows_of(store, "health")] == [
        ("ib_switch", "switch", None)
    ] * 2
    said = json.loads((store.path / "truth.json").read_text())["failures"]
    assert [(each["component"], each["blast"]) for each in said] == [("switch", 0)] * 2


def test_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    store = write_log(History().run(), tmp_path / "store")
    assert store.facts["time_range"] is None
    assert fleet.report(store).findings()
    assert json.loads((store.path / "truth.json").read_text())["failure_rate_per_node_day"] is None


# --- What analyses find in it --------------------------------------------------------------------


def test_goodput_finds_every_loss(log: FleetLog) -> None:
    found = fleet.goodput(log)
    # Half an hour of each: job 3 (192 GPUs), jobs 2 and 4 (8); in second order job 1 (256).
    assert found.lost_first_order == pytest.approx((192 + 8 + 8) / 2)
    assert found.lost_second_order == pytest.approx(256 / 2)
    assert (found.failures, found.preemptions, found.preemptions_second_order) == (3, 1, 1)


def test_the_failure_rate_counts_what_was_injected(log: FleetLog, truth: dict[str, Any]) -> None:
    found = fleet.mttf(log).model
    node_days = (32 * (36_910 + 17 * 3600) + 24 * (36_188 + 71_080)) / 86_400
    assert found.failures_ == 1
    assert found.node_days_ == pytest.approx(node_days)
    every = fleet.mttf(log, min_gpus=0).model
    assert every.failures_ == truth["totals"]["attempts_ended_by_failures"] == 3


def test_causes_are_those_that_were_injected(log: FleetLog) -> None:
    failed = log.rows(f"SELECT job_id, state, symptom FROM {infrastructure_failures(log)}")
    assert {(r["job_id"], r["state"], r["symptom"]) for r in failed} == {
        ("2", "FAILED", "gpu_memory"),
        ("3", "NODE_FAIL", "ib_link"),
        ("4", "NODE_FAIL", "unattributed"),
    }
    (first, again) = fleet.attribute(log, "3").attempts
    assert first["failed_nodes"] == ["node41"]
    assert first["infrastructure"]
    assert not again["infrastructure"]
    (own,) = fleet.attribute(log, "6").attempts
    assert (own["state"], own["infrastructure"]) == ("FAILED", False)


def test_the_preemption_has_its_preemptor_and_its_order(log: FleetLog) -> None:
    (found,) = log.rows(f'SELECT job_id, preemptor, evidence, "order" FROM {preemptions(log)}')
    assert found == {"job_id": "1", "preemptor": "3", "evidence": "label", "order": 2}


def test_status_counts_every_state(log: FleetLog) -> None:
    rows = fleet.status(log).table.to_pylist()
    known = [State(each.state).name for each in runs.known().attempts]
    assert {row["state"]: row["attempts"] for row in rows} == Counter(known)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["goodput"],
        ["mttf", "--project", "1024"],
        ["lemons"],
        ["attribute", "3"],
        ["report", "--html", "page.html"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_reads_a_simulated_store(
    store: Store,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = command
    with pytest.raises(SystemExit) as ended:
        cli.main(["fleet", name, str(store.path), *options, "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)
    if "--html" in options:
        page = (tmp_path / "page.html").read_text()
        assert "hand, 2 days, seed 1 (simulation)" in page
        assert "No cluster wrote this log" in page


# --- The truth -----------------------------------------------------------------------------------


def test_truth_names_every_failure_and_the_attempts_that_it_ended(truth: dict[str, Any]) -> None:
    found = truth["failures"]
    assert [each["node"] for each in found] == ["node33", "node41", "node58", "node59"]
    assert [each["severity"] for each in found] == ["HIGH", "HIGH", "", "LOW"]
    assert [each["ended_attempts"] for each in found] == [
        [{"job_id": "2", "attempt": 1}],
        [{"job_id": "3", "attempt": 1}],
        [{"job_id": "4", "attempt": 1}],
        [],
    ]
    assert found[0] == {
        "time": "2024-01-01T04:00:00.700Z",
        "node": "node33",
        "component": "GPU memory",
        "check": "gpu_ecc",
        "severity": "HIGH",
        "detected": "2024-01-01T04:04:10.300Z",
        "repaired": "2024-01-01T06:00:00.000Z",
        "permanent": False,
        "blast": None,
        "pulled": False,
        "ended_attempts": [{"job_id": "2", "attempt": 1}],
    }
    assert found[2]["repaired"] is None
    assert found[2]["permanent"]


def test_truth_adds_up(truth: dict[str, Any]) -> None:
    history = runs.known()
    gpus = [history.jobs[each.job].gpus for each in history.attempts]
    totals = truth["totals"]
    for name in ("productive", "lost", "init", "write"):
        hours = sum(
            getattr(each, name) * n / HOUR for each, n in zip(history.attempts, gpus, strict=True)
        )
        assert totals[f"{name}_gpu_hours"] == pytest.approx(hours, abs=1e-6), name
    assert totals["preemptions"] == totals["preemptions_second_order"] == 1
    assert totals["failures"] == 4
    assert truth["lemons"] == []
    assert (truth["seed"], truth["days"], truth["preset"]) == (1, 2.0, "hand")


def test_truth_holds_the_scenario(truth: dict[str, Any]) -> None:
    from holdfast.fleet.simulation.scenario import parse

    assert parse(truth["scenario"]) == runs.SCENARIO


def test_the_injected_rate_is_weighted_by_exposure(tmp_path: Path) -> None:
    day = 86_400.0
    jobs = [Job(0.0, 256), Job(0.0, 512), Job(0.0, 8)]
    attempts = [
        Attempt(0, 1, range(32), 0.0, day, expected_failures=0.32),
        Attempt(1, 1, range(64), day, 1.5 * day, expected_failures=0.96),
        Attempt(2, 1, [0], 1.5 * day, expected_failures=5.0, state=State.RUNNING),
    ]
    write_log(History(jobs, attempts).run(), tmp_path / "store")
    found = json.loads((tmp_path / "store" / "truth.json").read_text())
    assert found["failure_rate_per_node_day"] == pytest.approx((0.32 + 0.96) / (32 + 32))
    assert found["failure_rate_min_gpus"] == 128
    assert found["rate_of_all_per_node_day"] == pytest.approx(6.28 / 64.5)
    assert found["nominal_rate_per_node_day"] == 0.01
    small = History(jobs[2:], [Attempt(0, 1, [0], 0.0, day, expected_failures=0.02)])
    write_log(small.run(), tmp_path / "store")
    found = json.loads((tmp_path / "store" / "truth.json").read_text())
    assert found["failure_rate_per_node_day"] == pytest.approx(0.02)
    assert found["failure_rate_min_gpus"] == 0


def test_a_preemption_before_the_failure_is_of_first_order(tmp_path: Path) -> None:
    history = runs.known()
    late = [
        each if each.job != 2 or each.attempt != 1 else runs.replace(each, failure=-1)
        for each in history.attempts
    ]
    write_log(history.but(attempts=late).run(), tmp_path / "store")
    found = json.loads((tmp_path / "store" / "truth.json").read_text())["totals"]
    assert (found["preemptions"], found["preemptions_second_order"]) == (1, 0)


def test_truth_of_attempts(store: Store) -> None:
    found = pq.read_table(store.path / "truth" / "attempts.parquet").to_pylist()
    assert [(r["job_id"], r["attempt"]) for r in found] == [
        (r["job_id"], r["attempt"]) for r in rows_of(store, "attempts")
    ]
    (victim,) = (row for row in found if row["preemptor"] is not None)
    assert (victim["job_id"], victim["preemptor"]) == ("1", "3")
    assert victim["signal_s"] == BEGIN + 10 * HOUR + 320
    assert victim["failure"] is None
    assert victim["productive_s"] == 10 * HOUR + 610
    failed = {row["job_id"]: row["failure"] for row in found if row["failure"] is not None}
    assert failed == {"2": 0, "3": 1, "4": 2}


# --- Whole or not at all -------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_the_same_run_gives_the_same_bytes(store: Store, tmp_path: Path) -> None:
    before = pa.cpu_count()
    pa.set_cpu_count(7)
    try:
        write_log(runs.known().run(), tmp_path / "store")
    finally:
        pa.set_cpu_count(before)
    assert contents(tmp_path / "store") == contents(store.path)


def test_an_earlier_simulation_is_replaced(tmp_path: Path) -> None:
    write_log(History([Job(1.0, 8)], [Attempt(0, 1, [0], 5.0, 9.0)]).run(), tmp_path / "store")
    store = write_log(runs.known().run(), tmp_path / "store")
    assert len(rows_of(store, "attempts")) == 17
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("step", ["_write_tables", "write_truth"])
def test_an_interrupted_write_leaves_nothing(
    stop: BaseException, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise stop

    with monkeypatch.context() as patched:
        patched.setattr(log_writing, step, interrupt)
        with pytest.raises((KeyboardInterrupt, StoreError)):
            write_log(runs.known().run(), tmp_path / "store")
        assert not list(tmp_path.iterdir())
    write_log(runs.known().run(), tmp_path / "store")
    before = contents(tmp_path)
    monkeypatch.setattr(log_writing, step, interrupt)
    with pytest.raises((KeyboardInterrupt, StoreError)):
        write_log(History().run(), tmp_path / "store")
    assert contents(tmp_path) == before


def test_what_a_killed_simulation_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".store.part"
    (left / "attempts").mkdir(parents=True)
    (left / "attempts" / "0001-000.parquet").write_bytes(b"half")
    (left / "notes").write_text("half")
    store = write_log(runs.known().run(), tmp_path / "store")
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]
    assert not (store.path / "notes").exists()


def _file(path: Path) -> None:
    path.write_text("x")


def _notes(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("x")


def _simulation_and_notes(path: Path) -> None:
    write_log(History().run(), path)
    (path / "notes.txt").write_text("x")


@pytest.mark.parametrize("stands", [_file, _notes, _simulation_and_notes])
def test_other_things_are_not_replaced(stands: Callable[[Path], None], tmp_path: Path) -> None:
    stands(tmp_path / "store")
    before = contents(tmp_path)
    with pytest.raises(StoreError, match="store"):
        write_log(runs.known().run(), tmp_path / "store")
    assert contents(tmp_path) == before


def test_real_and_simulated_logs_are_not_mixed(testbed: Path, tmp_path: Path) -> None:
    events = testbed / "sacctmgr_events.txt"
    fleet.ingest([events], tmp_path / "real")
    with pytest.raises(StoreError, match="real logs"):
        write_log(runs.known().run(), tmp_path / "real")
    write_log(runs.known().run(), tmp_path / "simulated")
    before = contents(tmp_path)
    with pytest.raises(StoreError, match="a simulated one"):
        fleet.ingest([events], tmp_path / "simulated")
    assert contents(tmp_path) == before


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Path]:
    """A place at which another simulation writes."""
    with atomic_folder(tmp_path / "store"):
        yield tmp_path / "store"


def test_two_simulations_do_not_write_one_store(busy: Path) -> None:
    with pytest.raises(StoreError, match="another simulation"):
        write_log(runs.known().run(), busy)


def test_an_empty_folder_and_a_link_to_one_are_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    store = write_log(runs.known().run(), tmp_path / "link")
    assert rows_of(store, "attempts")
    assert (tmp_path / "link").is_symlink()


def test_the_sweep_of_a_commit_leaves_the_truth(tmp_path: Path) -> None:
    store = write_log(runs.known().run(), tmp_path / "store")
    before = contents(store.path)
    sweep(store.path)
    assert contents(store.path) == before
