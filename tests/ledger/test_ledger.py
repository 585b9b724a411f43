"""The ledger of a fleet: against a count second by second, simulated truth, and the rooms that it joins."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import recordings
from console_process import console
from logs import BASE, Attempt, Log, Outage, names, random_log
from prometheus_client.parser import text_string_to_metric_families

from command_line import invoke
from holdfast import carbon, fleet, runs
from holdfast.errors import InputError
from holdfast.fleet import Assumptions, FleetLog
from holdfast.ledger import Ledger, capacity, ledger
from holdfast.ledger.books import gauges
from holdfast.ledger.capacity import tasks_of
from holdfast.ledger.changes import _out_at_most
from holdfast.ledger.cli import app
from holdfast.ledger.parts import IDLE, LABELS, OUT, UNUSED, USED, WAITING

DAY = 86_400

EIGHT = {"n1": 8, "n2": 8}


def total(found: Ledger) -> float:
    return sum(hours or 0.0 for hours in found.hours.values())


# --- Machines: every second of every node -----------------------------------------------------------


def by_seconds(log: Log, opened: FleetLog) -> dict[str, float]:
    """Hours out of service, idle, idle while jobs waited that would have fitted, and allocated."""
    begin, end = int(opened.begin_s) - BASE, int(opened.end_s) - BASE
    rows = opened.rows(f"SELECT node, gpus FROM {opened.table('nodes')}")
    size = {row["node"]: row["gpus"] for row in rows}
    place = {node: k for k, node in enumerate(size)}
    seconds = end - begin
    used = np.zeros((len(size), seconds))
    waiting = Counter[tuple[int, int]]()
    allocated = located = 0.0
    for each in log.attempts:
        gpus, low = each.gpu_count, (each.start or 0) - begin
        if each.start is not None:
            allocated += gpus * each.ran_s
            for node in each.nodes:
                used[place[node], low : low + each.ran_s] += gpus / len(each.nodes)
                located += gpus / len(each.nodes) * each.ran_s
        until = seconds if each.start is None else low
        waiting.update((t, gpus) for t in range(each.waits_from - begin, until))
    down = np.zeros(used.shape, bool)
    for outage in log.outages:
        until = seconds if outage.end is None else outage.end - begin
        down[place[outage.node], max(outage.start - begin, 0) : until] = True
    sizes = np.array([*size.values()])[:, None]
    free = np.maximum(sizes - used, 0)
    idle = np.where(down, 0, free).sum(0)
    fitting = np.zeros(seconds)
    for (t, gpus), count in waiting.items():
        if 0 <= t < seconds and gpus <= idle[t]:
            fitting[t] += count * gpus
    left = max(idle.sum() - (allocated - located), 0)
    could = min(np.minimum(idle, fitting).sum(), left)
    return {
        OUT: np.where(down, free, 0).sum() / 3600,
        IDLE: (left - could) / 3600,
        WAITING: could / 3600,
        "allocated": allocated / 3600,
    }


@pytest.mark.parametrize("seed", [11, 12, pytest.param(13, marks=pytest.mark.full)])
def test_every_second_of_every_node(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "AT_A_TIME", 10 if seed == 12 else 1000)
    rows = random_log(seed, jobs=40, node_count=7, span_s=9_000)
    log = rows.open(tmp_path)
    found = ledger(log)
    expected = by_seconds(rows, log)
    assert found.allocated == pytest.approx(expected.pop("allocated"))
    for part, hours in expected.items():
        assert found.hours[part] == pytest.approx(hours, abs=1e-6), part
    # What attempts used beyond the inventory is more capacity, not less of another part.
    assert found.capacity == pytest.approx(total(found))
    assert all((hours or 0) >= 0 for hours in found.hours.values())


@pytest.mark.parametrize("since", [None, "2026-01-05T01:00:00", "20m"])
def test_losses_are_those_of_goodput(since: str | None, tmp_path: Path) -> None:
    log = random_log(14, jobs=60).open(tmp_path, Assumptions(checkpoint_interval_s=900), since)
    found, lost = ledger(log), fleet.goodput(log)
    assert found.allocated == pytest.approx(lost.total_gpu_hours)
    assert found.capacity == pytest.approx(total(found))
    if since is None:  # what was lost of an attempt before the window does not count here
        assert found.hours["lost_first_order"] == pytest.approx(lost.lost_first_order)
        assert found.hours["lost_second_order"] == pytest.approx(lost.lost_second_order)


def test_the_bundled_cluster(testbed: Path, tmp_path: Path) -> None:
    fleet.ingest([testbed], tmp_path / "store")
    found, lost = ledger(tmp_path / "store", by="user"), fleet.goodput(tmp_path / "store")
    assert found.hours["lost_first_order"] == pytest.approx(lost.lost_first_order)
    assert found.hours["lost_second_order"] == pytest.approx(lost.lost_second_order)
    # Attempts of one second on a node that another one still held are beyond the inventory.
    assert found.capacity == pytest.approx(128 * (found.end_s - found.begin_s) / 3600, rel=1e-3)
    assert total(found) == pytest.approx(found.capacity)
    assert found.by is not None
    assert sum(found.by["hours"].to_pylist()) == pytest.approx(found.allocated)
    for part in USED:
        told = sum(hours or 0.0 for hours in found.by[part].to_pylist())
        assert told == pytest.approx(found.hours[part] or 0.0)


def test_missing_sources_are_unknown_and_not_zero(tmp_path: Path) -> None:
    attempts = [Attempt(1, ("n1",), 0, 3600), Attempt(2, ("n2",), 1800, 7200)]
    outage = [Outage("n1", 3600, 7200)]
    whole = ledger(Log(attempts, outages=outage, nodes=EIGHT).open(tmp_path / "a"))
    assert (whole.capacity, whole.hours[OUT], whole.hours[IDLE]) == (32, 8, 4)
    no_outages = ledger(Log(attempts, nodes=EIGHT).open(tmp_path / "b"))
    assert (no_outages.capacity, no_outages.hours[OUT], no_outages.hours[IDLE]) == (32, None, 12)
    no_nodes = ledger(Log(attempts, outages=outage).open(tmp_path / "c"))
    assert no_nodes.capacity is None
    assert [no_nodes.hours[part] for part in UNUSED] == [None] * 3
    assert no_nodes.total == no_nodes.allocated == 20


def test_attempts_of_unknown_size_are_said(tmp_path: Path) -> None:
    rows = ["JobID|State|Start|End", "1|COMPLETED|2026-01-05T00:00:00|2026-01-05T01:00:00"]
    (tmp_path / "sacct.psv").write_text("\n".join(rows) + "\n")
    fleet.ingest([tmp_path / "sacct.psv"], tmp_path / "store")
    found = ledger(tmp_path / "store")
    assert found.allocated == 0
    assert any("1 attempt of unknown size" in each.text for each in found.unknowns() if each.doubt)


def test_nodes_take_the_place_of_gpus(tmp_path: Path) -> None:
    attempts = [Attempt(1, ("n1", "n2"), 0, 3600, gpus=0), Attempt(2, ("n1",), 3600, 7200, gpus=0)]
    found = ledger(Log(attempts, nodes={"n1": 0, "n2": 0}).open(tmp_path))
    assert (found.unit, found.capacity, found.allocated, found.hours[IDLE]) == (
        "node-hours",
        4,
        3,
        1,
    )


def test_what_runs_still_is_in_the_window(tmp_path: Path) -> None:
    """The last end is at 10 h, a job runs until 12 h, as its elapsed time tells."""
    hour = 3600
    attempts = [
        Attempt(1, ("n1",), 0, 10 * hour),
        Attempt(2, ("n2",), 4 * hour, None, "RUNNING", runtime_s=8 * hour),
        Attempt(3, (), None, None, "PENDING", gpus=8, submit=2 * hour),
    ]
    found = ledger(Log(attempts, nodes=EIGHT).open(tmp_path))
    assert (found.capacity, found.allocated) == (2 * 8 * 12, 8 * (10 + 8))
    # n2 until 4 h, n1 from 10 h on; of these the last two hours of each beside the waiting job.
    assert (found.hours[IDLE], found.hours[WAITING]) == (8 * 2, 8 * 4)


def test_a_full_node_says_nothing_of_another(tmp_path: Path) -> None:
    attempts = [
        Attempt(1, ("n1",), 0, 3600),
        Attempt(2, ("n1",), 0, 3600),
        Attempt(3, ("n2",), 0, 3600, gpus=4),
    ]
    found = ledger(Log(attempts, nodes=EIGHT).open(tmp_path))
    assert (found.hours[IDLE], found.allocated, found.capacity) == (4, 20, 24)
    assert any("more than the inventory" in each.text for each in found.unknowns())


@pytest.mark.parametrize(
    ("job", "tasks"), [("10", 1), ("10_3", 1), ("10_[3-9]", 7), ("10_[1,3,20-40:2%4]", 13)]
)
def test_tasks_of_a_waiting_array(job: str, tasks: int) -> None:
    assert tasks_of(job) == tasks


def test_what_may_not_start_does_not_wait(tmp_path: Path) -> None:
    log = Log(
        [Attempt(1, ("n1",), 0, 3600), Attempt(2, (), None, None, "PENDING", submit=0, gpus=8)]
    )
    files = log.write(tmp_path / "logs")
    fleet.ingest([*files, _inventory(tmp_path)], tmp_path / "a")
    assert ledger(tmp_path / "a").hours[WAITING] == 8
    held = [line.split("|") for line in files[0].read_text().splitlines()]
    held[2][held[0].index("Eligible")] = "Unknown"
    files[0].write_text("".join("|".join(row) + "\n" for row in held))
    fleet.ingest([*files, _inventory(tmp_path)], tmp_path / "b")
    assert ledger(tmp_path / "b").hours[WAITING] == 0


def _inventory(folder: Path) -> Path:
    [file] = Log(nodes=EIGHT).write(folder / "inventory")
    return file


def test_jobs_wait_beside_idle_machines_only_if_they_fit(tmp_path: Path) -> None:
    attempts = [
        Attempt(1, ("n1",), 0, 7200),
        Attempt(2, ("n1", "n2"), 7200, 10_800, submit=0),  # 16 GPUs while 8 are idle
        Attempt(3, ("n2",), 3600, 7200, gpus=2, submit=1800),
    ]
    found = ledger(Log(attempts, nodes=EIGHT).open(tmp_path))
    assert found.hours[WAITING] == pytest.approx(2 * 0.5)
    assert found.ci95[WAITING] == (0, found.hours[WAITING])


# --- Runs -------------------------------------------------------------------------------------------


def record(
    folder: Path,
    *,
    job: int = 7,
    restarts: int = 0,
    begin: int = 100,
    end: str = "clean",
    **fields: Any,
) -> Path:
    """A launch of one rank that holds eight GPUs: 50 s initialization, then 400 s of steps and waits."""
    first = recordings.start(
        labels={"slurm_job": str(job), "slurm_restarts": str(restarts)},
        opened_s=float(BASE + begin),
        monotonic_s=float(begin),
        gpus=8.0,
        **fields,
    )
    events: list[dict[str, Any]] = [{"event": "ready", "resumed_from": None, "t": 50.0}]
    for k in range(4):
        at = 50.0 + 100 * k
        events.append({"event": "data_wait", "seconds": 30.0, "t": at + 30})
        events.append({"event": "step", "step": k + 1, "seconds": 70.0, "t": at + 100})
    if end:
        events.append({"event": "end", "how": end, "t": 450.0})
    recordings.write(folder, first, events)
    return folder


def cluster(tmp_path: Path, *attempts: Attempt) -> FleetLog:
    return Log([*attempts], nodes=EIGHT).open(tmp_path / "log")


def test_a_record_says_what_an_attempt_did(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720), Attempt(8, ("n2",), 0, 720))
    folder = record(tmp_path / "runs" / "run")
    found, made = ledger(log, [tmp_path / "runs"]), runs.breakdown(folder)
    hours = {part: round((found.hours[part] or 0) * 3600 / 8, 6) for part in LABELS}
    assert hours["productive"] == 280 == made.parts["productive"]
    assert hours["data_wait"] == 120 == made.parts["data_wait"]
    # 100 s until the first process, and 50 s of it; job 8 has no record: an estimate.
    # Behind its clean end the job had 170 s until its own.
    assert hours["initialization"] == 150 + 170 + log.init_s
    assert hours["waiting_for_ranks"] == 0
    assert hours["unrecorded"] == 720 - log.init_s
    assert found.runs == 1
    assert found.capacity == pytest.approx(total(found))
    assert found.measured["productive"] == found.hours["productive"]
    assert not [each for each in found.unknowns() if each.doubt and "run" in each.text]
    wins = {row["change"]: row["hours_a_month"] for row in found.changes}
    month = 30 * 86_400 / (log.end_s - log.begin_s)
    assert wins["Feed run without waits for data"] == pytest.approx(120 * 8 / 3600 * month)


@pytest.mark.parametrize(
    ("phase", "bound_s", "share"),
    [("backward", 7.0, 0.1), ("forward", 7.0, None), ("backward", 80.0, None)],
)
def test_a_profile_divides_the_steps(
    phase: str, bound_s: float, share: float | None, tmp_path: Path
) -> None:
    """Steps of 70 s, of which products take a tenth. A forward pass is no step, nor is a longer one."""
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    classes = [{"flops": 1, "bound_s": bound_s}, {"flops": 0, "bound_s": 9.0}]
    data = {"by_phase": [{"phase": phase}], "roofline": {"by_class": classes}}
    document = {"schema": "holdfast-answer/1", "data": data}
    (record(tmp_path / "run") / "profile.json").write_text(json.dumps(document))
    found = ledger(log, [tmp_path / "run"])
    assert found.hours["productive"] == pytest.approx(280 * 8 / 3600)
    assert found.model_flops == (share and pytest.approx(share * 280 * 8 / 3600))
    assert found.profiled == pytest.approx(280 * 8 / 3600 if share else 0)
    doubts = [each.text for each in found.unknowns() if each.doubt]
    assert any("profile.json" in text for text in doubts) == (share is None)
    names = found.sections()[0].tables[0].data["part"].to_pylist()
    assert ("of it model FLOPs" in names) == (share is not None)


def test_restarts_go_to_their_own_attempts(tmp_path: Path) -> None:
    log = cluster(
        tmp_path,
        Attempt(7, ("n1",), 0, 600, "NODE_FAIL"),
        Attempt(7, ("n2",), 1000, 1720, submit=700),
    )
    record(tmp_path / "run", boot_id="a", end="")
    record(tmp_path / "run", begin=1100, restarts=1, boot_id="b", node="n2")
    found = ledger(log, [tmp_path / "run"])
    hours = {part: round((found.hours[part] or 0) * 3600 / 8, 6) for part in LABELS}
    assert (hours["productive"], hours["replayed"], hours["data_wait"]) == (280, 280, 240)
    # The first was silent for 50 s until the node was seen to be down, the second ended by itself.
    assert (hours["initialization"], hours["lost_first_order"]) == (2 * 150 + 170, 50)
    assert (hours["waiting_for_ranks"], hours["unrecorded"]) == (0, 0)
    later = ledger(fleet.open(log.store, since="720s"), [tmp_path / "run"])
    assert {part: later.hours[part] for part in ("productive", "replayed")} == {
        "productive": 0,
        "replayed": pytest.approx(280 * 8 / 3600),
    }


@pytest.mark.parametrize(
    ("fields", "hours"),
    [
        ({"job": 9}, 0),  # no such job
        ({"begin": 7300}, 0),  # clocks two hours apart
        ({"begin": -100}, 0),  # no process begins before its job
        ({"begin": 340}, 0),  # nor outlives it
        ({"labels": {}}, 0),  # nobody told the job
        ({"labels": {}, "launch": "slurm-7-0-0"}, 280),
    ],
)
def test_records_that_belong_nowhere_are_said(
    fields: dict[str, Any], hours: int, tmp_path: Path
) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    labels = fields.pop("labels", None)
    folder = record(tmp_path / "run", **fields)
    if labels is not None:
        [file] = folder.iterdir()
        first, *rest = file.read_text().splitlines()
        event = json.loads(first) | {"labels": labels}
        file.write_text("\n".join([json.dumps(event), *rest]) + "\n")
    found = ledger(log, [folder])
    assert (found.hours["productive"] or 0) * 3600 / 8 == pytest.approx(hours)
    assert any("run" in each.text for each in found.unknowns() if each.doubt) == (hours == 0)
    assert found.capacity == pytest.approx(total(found))


def test_an_attempt_is_counted_once(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    record(tmp_path / "one", run_id="one")
    record(tmp_path / "two", run_id="two", begin=120)
    found = ledger(log, [tmp_path / "one", tmp_path / "two"])
    assert found.hours["productive"] == pytest.approx(280 * 8 / 3600)
    assert found.runs == 1
    assert any("one attempt of job 7" in each.text for each in found.unknowns())


def test_gpus_that_no_record_counts_are_unknown(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1", "n2"), 0, 720))
    found = ledger(log, [record(tmp_path / "run")])
    assert found.hours["productive"] == pytest.approx(280 * 8 / 3600)
    assert found.hours["unrecorded"] == pytest.approx(450 * 8 / 3600)
    assert found.hours["initialization"] == pytest.approx((270 * 16 + 50 * 8) / 3600)
    assert ledger(log).hours["productive"] is None  # nothing is kept of an earlier answer


def test_a_silent_record_without_a_failure_hung(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720, "TIMEOUT"))
    found = ledger(log, [record(tmp_path / "run", end="")])
    assert found.hours["waiting_for_ranks"] == pytest.approx(170 * 8 / 3600)


def test_a_record_that_is_older_than_the_log_did_not_hang(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, None, "RUNNING", runtime_s=7200))
    found = ledger(log, [record(tmp_path / "run", end="")])
    assert found.hours["waiting_for_ranks"] == 0
    assert found.hours["unrecorded"] == pytest.approx((7200 - 550) * 8 / 3600)


def test_changes_of_one_run_leave_those_of_another(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720), Attempt(8, ("n2",), 0, 720))
    both = [
        record(tmp_path / "a", run_id="a"),
        record(tmp_path / "b", run_id="b", job=8, node="n2"),
    ]
    found = ledger(log, both)
    wins = {row["change"]: row["hours_a_month"] for row in found.changes}
    month = 30 * 86_400 / (log.end_s - log.begin_s)
    for run in "ab":
        hours = wins[f"Feed {run} without waits for data"]
        assert hours == pytest.approx(120 * 8 / 3600 * month)


def test_a_folder_without_records(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    assert ledger(log).hours["productive"] is None
    with pytest.raises(InputError) as caught:
        ledger(log, [tmp_path])
    assert caught.value.code == "no-data"


def test_a_folder_that_cannot_be_read_refuses_no_other(tmp_path: Path) -> None:
    """Files of two runs side by side belong to no one run; the third is read, whatever its profile is."""
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720), Attempt(8, ("n2",), 0, 720))
    record(tmp_path / "runs" / "mixed", job=8, run_id="a", node="n2")
    record(tmp_path / "runs" / "mixed", job=8, run_id="b", node="n2", begin=300)
    (record(tmp_path / "runs" / "own") / "profile.json").write_text("[1]")
    found = ledger(log, [tmp_path / "runs"])
    assert found.hours["productive"] == pytest.approx(280 * 8 / 3600)
    doubts = [each.text for each in found.unknowns() if each.doubt]
    for name in ("mixed", "profile.json"):
        assert [text for text in doubts if name in text], name


def test_records_of_another_cluster_are_not_counted(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n2",), 0, 720))
    found = ledger(log, [record(tmp_path / "run", node="n1.example.org")])
    assert found.hours["productive"] is None
    assert any("elsewhere" in each.text for each in found.unknowns() if each.doubt)
    assert ledger(log, [record(tmp_path / "own", node="N2.example.org")]).runs == 1


def test_restarts_tell_attempts_apart_whatever_the_clock_says(tmp_path: Path) -> None:
    """Slurm before 23 gives no restarts: the order of the attempts does."""
    first = Attempt(7, ("n1",), 0, 600, "NODE_FAIL")
    log = cluster(tmp_path, first, Attempt(7, ("n1",), 700, 1420, submit=650))
    # Its clock is 700 s behind: by the time alone it would be the first attempt's.
    found = ledger(log, [record(tmp_path / "run", begin=100, restarts=1)])
    assert found.hours["productive"] is None
    assert any("clocks differ" in each.text for each in found.unknowns() if each.doubt)


def test_a_window_after_the_log(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    with pytest.raises(InputError) as caught:
        ledger(log.store, since="2027-01-01")
    assert (caught.value.code, caught.value.place) == ("no-data", "since")


# --- Changes ----------------------------------------------------------------------------------------


def test_each_change_is_counted_given_those_before_it(tmp_path: Path) -> None:
    """A loop is four fifths of the losses: for the rest, more checkpoints would cost more than they win."""
    loop = [
        Attempt(1, ("n1",), 4000 * k, 4000 * k + 3600, "NODE_FAIL", submit=4000 * k)
        for k in range(5)
    ]
    log = Log([*loop, Attempt(2, ("n2",), 0, 20_000)], nodes=EIGHT).open(
        tmp_path, Assumptions(checkpoint_interval_s=1800, write_s=60.0)
    )
    found = ledger(log)
    rows = {row["change"]: row["hours_a_month"] for row in found.changes}
    months = (log.end_s - log.begin_s) / (30 * 86_400)
    lost, writes = found.hours["lost_first_order"], found.hours["checkpoint"]
    assert lost == pytest.approx(10)
    assert rows["Stop 1 crash loop, first job 1"] * months == pytest.approx(8)
    assert writes is not None
    ratio = (writes / 10) ** 0.5
    assert (
        (1 - ratio) * 10 + (1 - 1 / ratio) * writes > 0 > (1 - ratio) * 2 + (1 - 1 / ratio) * writes
    )
    assert not any(change.startswith("Write checkpoints every") for change in rows)
    assert rows["Write checkpoints in 30 s"] * months == pytest.approx(writes / 2)
    lows = [row["low"] for row in found.changes]
    assert lows == sorted(lows, reverse=True)


def by_change(found: Ledger) -> dict[str, dict[str, Any]]:
    """Change -> its row, in hours of the window."""
    months = (found.end_s - found.begin_s) / (30 * 86_400)
    amounts = ("hours_a_month", "low", "high", "kg_co2_a_month")
    return {
        row["change"]: row | {k: row[k] * months for k in amounts if row[k] is not None}
        for row in found.changes
    }


def test_a_spare_node_costs_what_would_run_on_it(tmp_path: Path) -> None:
    """Job 1 comes back and displaces job 2, which loses half an hour of 8 GPUs."""
    attempts = [
        Attempt(1, ("n1",), 0, 7200, "NODE_FAIL", qos="high"),
        Attempt(1, ("n2",), 7260, 10_860, qos="high", submit=7200),
        Attempt(2, ("n2",), 0, 7230, "PREEMPTED", qos="low"),
    ]
    nodes = {f"n{k}": 8 for k in range(1, 21)}
    qos = [("high", 100, 0, "low"), ("low", 1, 60, "")]
    out = [Outage("n20", 0, 10_860)]
    log = Log(attempts, qos=qos, nodes=nodes, outages=out).open(tmp_path / "told")
    found = ledger(log)
    assert found.hours["lost_second_order"] == pytest.approx(4)
    without = ledger(Log(attempts, qos=qos, nodes=nodes).open(tmp_path / "untold"))
    assert not any("spare" in change for change in by_change(without))
    spare = by_change(found)["Keep 1 spare node"]
    assert spare["hours_a_month"] == pytest.approx(4 - found.allocated / 20)
    assert spare["low"] == 0  # nobody knows whether one would have been enough


def test_a_slow_rank_names_its_node(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1", "n2"), 0, 720))
    draws = np.random.default_rng(5).normal(0, 0.01, (2, 400))
    for rank in range(2):
        labels = {"slurm_job": "7", "slurm_restarts": "0"}
        moments = {"opened_s": float(BASE), "monotonic_s": 0.0}
        first = recordings.start(
            rank, 2, node=f"n{rank + 1}", boot_id=f"{rank}", labels=labels, gpus=8.0, **moments
        )
        events: list[dict[str, Any]] = [{"event": "ready", "resumed_from": None, "t": 0.0}]
        at = 0.0
        for k, (one, two) in enumerate((draws + np.array([[1.0], [1.2]])).T.tolist()):
            seconds = max(one, two)
            at += seconds
            waits = {"sync_s": seconds - (one, two)[rank]}
            events.append({"event": "step", "step": k, "seconds": seconds, "t": at} | waits)
        events.append({"event": "end", "how": "clean", "t": at})
        recordings.write(tmp_path / "run", first, events)
    found = ledger(log, [tmp_path / "run"])
    row = by_change(found)["Exclude n2, slow in run"]
    # All 16 GPUs wait 0.2 s of each step of 1.2 s.
    assert found.hours["productive"] == pytest.approx(400 * 1.2 * 16 / 3600, rel=0.01)
    assert row["hours_a_month"] == pytest.approx(400 * 0.2 * 16 / 3600, rel=0.02)


def test_what_waits_for_cleaner_hours(tmp_path: Path) -> None:
    """16 GPUs in twelve dirty hours, 8 in twelve clean ones: 0.4 x 16 of each dirty hour can be moved."""
    attempts = [
        Attempt(1, ("n1",), 0, 48 * 3600),
        *(Attempt(2 + d, ("n2",), 24 * d * 3600, (24 * d + 12) * 3600) for d in range(2)),
    ]
    log = Log(attempts, nodes=EIGHT).open(tmp_path)
    grams = np.tile(np.repeat([500.0, 100.0], 12), 2)
    found = ledger(log, signal=carbon.Signal(grams, BASE, "average"))
    row = by_change(found)["Shift 40 % of the power to cleaner hours of its day"]
    before = 12 * (16 * 500 + 8 * 100)
    kg = (found.kg_per_hour or 0) * found.allocated
    assert row["kg_co2_a_month"] == pytest.approx(kg * 12 * 0.4 * 16 * 400 / before)
    assert row["hours_a_month"] is None
    flat = ledger(log, signal=500.0)
    assert not any(each["kg_co2_a_month"] for each in flat.changes)


# --- Simulated fleets -------------------------------------------------------------------------------

SEEDS = 100
ASSUMED = Assumptions(checkpoint_interval_s=3600, init_s=300, write_s=60, save_on_signal=True)


@pytest.fixture(scope="module")
def inside(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[range], Iterator[dict[str, bool]]]:
    """For each seed whether the injected hours of each part lie in its interval."""

    def found(seeds: range) -> Iterator[dict[str, bool]]:
        for seed in seeds:
            store = tmp_path_factory.mktemp("simulated") / "store"
            fleet.simulate("small", store, days=4, seed=seed)
            log = fleet.open(store, assumptions=ASSUMED)
            books = ledger(log)
            log.engine.load("truth", pq.read_table(store / "truth" / "attempts.parquet"))
            [truth] = log.rows(
                f"""SELECT sum(CASE WHEN failure IS NOT NULL THEN gpus * lost_s ELSE 0 END) / 3600
                    AS lost_first_order, sum(gpus * init_s) / 3600 AS initialization,
                    sum(gpus * write_s) / 3600 AS checkpoint
                FROM {log.executions} AS attempts JOIN truth USING (job_id, attempt)"""
            )
            assert books.capacity == pytest.approx(total(books))
            yield {
                part: low - 1e-6 * low <= truth[part] <= high + 1e-6 * high
                for part in truth
                for low, high in [books.ci95.get(part, (books.hours[part],) * 2)]
            }

    return found


def test_injected_hours_are_in_their_intervals(inside: Any) -> None:
    assert sum(all(each.values()) for each in inside(range(1, 4))) >= 2


@pytest.mark.full
def test_in_ninety_of_a_hundred_fleets(inside: Any) -> None:
    counts = Counter(part for each in inside(range(1, SEEDS + 1)) for part in each if each[part])
    assert min(counts.values()) >= 0.9 * SEEDS


def test_co2_of_the_parts(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    found = ledger(log, signal=500.0)
    kg = carbon.account(log, 500.0).totals["kg_co2"]
    assert found.kg_per_hour == pytest.approx(kg / found.allocated)
    assert kg == pytest.approx(1.6 * 0.4 * 1.1 * 0.5)
    table = found.sections()[0].tables[0].data
    assert sum(each or 0 for each in table["kg_co2"].to_pylist()) == pytest.approx(kg)
    by_part = dict(zip(table["part"].to_pylist(), table["kg_co2"].to_pylist(), strict=True))
    assert by_part["Idle"] is None  # what idle machines draw is not known


def test_hours_without_an_intensity_are_said(tmp_path: Path) -> None:
    log = Log([Attempt(7, ("n1",), 0, 7200)], nodes=EIGHT).open(tmp_path / "log")
    rows = [f"2026-01-0{day}T{hour}:00Z,500,gCO2/kWh,average" for day, hour in ((4, 23), (5, "00"))]
    file = tmp_path / "half.csv"
    file.write_text("\n".join(["timestamp,value,unit,kind", *rows]) + "\n")
    half = ledger(log, signal=carbon.read_signal(file))
    assert half.kg_per_hour == pytest.approx(ledger(log, signal=500.0).kg_per_hour)
    assert any("no intensity for 50 %" in each.text for each in half.unknowns() if each.doubt)


# --- The command ------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    record(tmp_path / "runs" / "run")
    page = tmp_path / "page.html"
    words = [log.store.path, "--runs", tmp_path / "runs", "--json", "--html", page]
    ran = invoke(app, words)
    told = json.loads(ran.stdout)
    assert told["parts"]["productive"]["hours"] == pytest.approx(280 * 8 / 3600)
    assert (told["unit"], told["runs"], told["capacity"]) == ("GPU-hours", 1, pytest.approx(3.2))
    assert "next" in page.read_text()


def test_the_console_serves_the_parts_as_gauges(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720), Attempt(8, ("n2",), 0, 720, "NODE_FAIL"))
    record(tmp_path / "runs" / "run")
    found = ledger(log, [tmp_path / "runs"])
    with console(log.store.path, "--runs", tmp_path / "runs") as (url, _):
        text = httpx.get(f"{url}metrics", timeout=120).text
    served = {
        (sample.name, sample.labels.get("part")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "ledger" in sample.name
    }
    assert served["holdfast_ledger_capacity_hours", None] == pytest.approx(found.capacity)
    assert served["holdfast_ledger_runs", None] == 1
    for part, hours in found.hours.items():
        # What nobody knows (no log of outages here) is absent, never zero.
        assert served.get(("holdfast_ledger_hours", part)) == (hours and pytest.approx(hours))
    low, high = found.ci95["lost_first_order"]
    assert served["holdfast_ledger_hours_lower", "lost_first_order"] == pytest.approx(low)
    assert served["holdfast_ledger_hours_upper", "lost_first_order"] == pytest.approx(high)


def test_gauges_without_usable_records(tmp_path: Path) -> None:
    log = cluster(tmp_path, Attempt(7, ("n1",), 0, 720))
    served = gauges(log, [tmp_path])
    assert served["ledger_runs"] == {(): (0, None, None)}
    assert served["ledger_hours"]["productive", "GPU-hours"][0] is None
    assert served["ledger_hours"]["unrecorded", "GPU-hours"][0] == pytest.approx(
        ledger(log).hours["unrecorded"]
    )


def test_spares_are_counted_on_the_log(tmp_path: Path) -> None:
    """Of 30 days, 40 nodes are out together for 3, one alone for 6: in 95 % of all moments at most 40."""
    log = Log(nodes=dict.fromkeys(names(100), 8))
    log.attempts.append(Attempt(1, ("node001",), 0, 30 * DAY))
    log.outages = [Outage(node, 0, 3 * DAY) for node in names(100)[:40]]
    log.outages.append(Outage(names(100)[50], 10 * DAY, 16 * DAY))
    assert _out_at_most(log.open(tmp_path / "three")) == 40
    log.outages = [Outage(node, 0, DAY) for node in names(100)[:40]]
    assert _out_at_most(log.open(tmp_path / "one")) == 0


def test_what_no_record_tells_is_unknown_by_group_too(tmp_path: Path) -> None:
    log = cluster(
        tmp_path,
        Attempt(7, ("n1",), 0, 720),
        Attempt(8, ("n2",), 0, 720, name="other", partition="b"),
    )
    found = ledger(log, [record(tmp_path / "run")], by="partition")
    assert found.by is not None
    told = {row["partition"]: row["productive"] for row in found.by.to_pylist()}
    assert told == {"main": pytest.approx(280 * 8 / 3600), "b": None}
    assert ledger(log).hours["checkpoint"] is None  # nobody said how long a write takes
    assert (
        ledger(fleet.open(log.store, assumptions=Assumptions(write_s=5))).hours["checkpoint"]
        is not None
    )
