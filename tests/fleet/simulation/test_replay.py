"""The jobs of a log that arrive again: against cases worked out by hand and against plain loops."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logs import Attempt, Check, Log, names

import holdfast.fleet as fleet
from conftest import RandomFleet
from holdfast import progress
from holdfast.errors import InputError
from holdfast.fleet import Assumptions, FleetLog
from holdfast.fleet.attribution import infrastructure_failures
from holdfast.fleet.preemption import preemptions
from holdfast.fleet.simulation.engine import run
from holdfast.fleet.simulation.job_runs import job_runs
from holdfast.fleet.simulation.records import State
from holdfast.fleet.simulation.replay import replay_jobs
from holdfast.fleet.simulation.scenario import (
    Cluster,
    Qos,
    Scenario,
    Size,
    Workload,
    scenario,
)
from holdfast.fleet.simulation.simulated_log import simulate
from holdfast.fleet.simulation.workload import draw_jobs

H = 3600
NODES = names(4)
SCENARIO = Scenario(
    "replayed",
    Cluster(4),
    (Qos("low", 1), Qos("normal", 2), Qos("high", 3)),
    Workload("synthetic", 1.0, sizes=(Size(8, 1.0, 1.0),)),
    begin="2026-01-05T00:00:00Z",
)
ASSUMED = Assumptions(checkpoint_interval_s=H, write_s=0)


def test_work_of_each_kind_of_end(tmp_path: Path) -> None:
    two, one = NODES[:2], NODES[:1]
    log = Log(
        [
            # completed in 2 h + init
            Attempt(1, one, 0, 2 * H + 300, qos="low", limit_s=4 * H),
            # NODE_FAIL after 2.5 h of work keeps 2 h, then needs 1 h more
            Attempt(2, two, 0, 2 * H + H // 2 + 300, "NODE_FAIL"),
            Attempt(2, two, 4 * H, 5 * H + 300, submit=3 * H, eligible=3 * H + 120),
            # failed of itself
            Attempt(3, one, 10, 10 + 1300, "FAILED", exit_code="1:0"),
            # ran out of time: needs more than its limit
            Attempt(4, one, 20, 20 + H, "TIMEOUT", limit_s=H),
            # cancelled before it started: not replayed
            Attempt(5, (), None, 500, "CANCELLED", submit=30, gpus=8),
            # waits: as completed jobs of its size
            Attempt(6, (), None, None, "PENDING", submit=40, gpus=8),
            # cut off for good in its initialisation
            Attempt(7, one, 50, 150, "NODE_FAIL", qos="high"),
            # no GPU: not replayed
            Attempt(8, one, 60, 5000, gpus=0),
            # 12 GPUs on two nodes are two whole nodes
            Attempt(9, two, 70, 70 + H + 300, gpus=12),
        ],
        nodes=dict.fromkeys(NODES, 8),
    ).open(tmp_path, ASSUMED)
    jobs = replay_jobs(log, SCENARIO)
    rows = list(
        zip(
            (jobs.submit_ms // 1000).tolist(),
            jobs.gpus.tolist(),
            (jobs.work_ms / 1000).tolist(),
            [State(each).name for each in jobs.end_state.tolist()],
            jobs.qos.tolist(),
            strict=True,
        )
    )
    assert rows == [
        (0, 8, 2 * H, "COMPLETED", 0),
        (0, 16, 3 * H, "COMPLETED", 1),
        (10, 8, 1000, "FAILED", 1),
        (20, 8, H - 300 + H, "COMPLETED", 1),
        (40, 8, 2 * H, "COMPLETED", 1),
        (50, 8, 1, "CANCELLED", 2),
        (70, 16, H, "COMPLETED", 1),
    ]
    assert jobs.limit_ms[0] == 4 * H * 1000
    assert jobs.limit_ms[3] == H * 1000
    assert jobs.submit_ms.dtype == np.int64
    assert jobs.end_state.dtype == np.int8


def test_initialisation_is_no_longer_than_completed_attempts_allow(tmp_path: Path) -> None:
    log = Log(
        [Attempt(i, NODES[:1], 100 * i, 100 * i + 40) for i in range(1, 30)],
        nodes=dict.fromkeys(NODES, 8),
    ).open(tmp_path, ASSUMED)
    assert log.init_s == 40


def test_writes_are_taken_off_the_runtime(tmp_path: Path) -> None:
    assumed = replace(ASSUMED, write_s=60.0)
    log = Log(
        [
            # 2.5 h of work and three writes, the last one at the end
            Attempt(1, NODES[:1], 0, 300 + 2 * H + H // 2 + 180),
            # stopped after 2.5 h of work and two writes
            Attempt(2, NODES[:1], 0, 300 + 2 * H + H // 2 + 120, "CANCELLED"),
        ],
        nodes=dict.fromkeys(NODES, 8),
    ).open(tmp_path, assumed)
    assert job_runs(log).made_s.tolist() == [2.5 * H, 2.5 * H]


def test_a_later_beginning_leaves_the_rest(tmp_path: Path) -> None:
    log = Log(
        [
            Attempt(1, NODES[:1], 0, 2 * H),
            Attempt(2, NODES[:1], 0, 4 * H),
            Attempt(3, NODES[:1], 3 * H, 5 * H),
        ],
        nodes=dict.fromkeys(NODES, 8),
    ).open(tmp_path, replace(ASSUMED, init_s=0.0))
    jobs = replay_jobs(log, replace(SCENARIO, begin="2026-01-05T02:00:00Z"))
    assert jobs.submit_ms.tolist() == [0, H * 1000]
    assert jobs.work_ms.tolist() == [2 * H * 1000, 2 * H * 1000]
    elsewhere = replay_jobs(log, replace(SCENARIO, begin="2020-01-01T00:00:00Z"))
    assert elsewhere.submit_ms.tolist() == [0, 0, 3 * H * 1000]


def test_a_random_log_as_plain_loops(random_fleet: RandomFleet) -> None:
    log, assumed = random_fleet.log, random_fleet.log.assumptions
    failed = set(log.frame(infrastructure_failures(log))["key"])
    taken = set(log.frame(preemptions(log))["key"])
    init = log.init_s
    attempts = log.frame(log.attempts).to_dict("records")
    jobs: dict[str, list[dict]] = {}
    for row in sorted(attempts, key=lambda r: (r["ran"], r["start_s"], r["attempt"])):
        if row["gpus"] > 0:
            jobs.setdefault(row["job_id"], []).append(row)
    expected = {}
    for job, rows in jobs.items():
        ran = [row for row in rows if row["ran"]]
        if not ran:
            expected[job] = (0.0, "PENDING", 0)
            continue
        total = 0.0
        for row in ran:
            rest = max(row["runtime_s"] - init, 0.0)
            cut = row is not ran[-1] and row["key"] in failed | taken
            half = assumed.checkpoint_interval_s / 2
            total += max(rest - min(row["runtime_s"], half), 0.0) if cut else rest
        last = ran[-1]
        end = last["state"]
        if last["key"] in failed | taken or end in ("PREEMPTED", "NODE_FAIL"):
            end = "CUT"
        expected[job] = (total, end, len(ran))
    runs = job_runs(log)
    found = sorted(zip(runs.made_s.tolist(), runs.end.tolist(), runs.starts.tolist(), strict=True))
    assert found == sorted(expected.values())
    made = replay_jobs(log, replace(SCENARIO, cluster=Cluster(10)))
    assert len(made.gpus) == len(expected)
    assert (np.diff(made.submit_ms) >= 0).all()
    assert (made.work_ms >= 1000).all()


def test_a_simulated_log_gives_back_its_jobs(tmp_path: Path) -> None:
    of, days, seed = scenario("small"), 20, 4
    progress.set_quiet(True)
    simulate(of, tmp_path / "store", days=days, seed=seed)
    log = fleet.open(tmp_path / "store", assumptions=Assumptions(write_s=of.checkpoint.write_s))
    drawn, found = draw_jobs(of, days, seed), replay_jobs(log, of)
    assert found.submit_ms.tolist() == drawn.submit_ms.tolist()
    assert found.gpus.tolist() == drawn.gpus.tolist()
    assert found.qos.tolist() == drawn.qos.tolist()
    # All but those that the log does not show the end of; times of a log are whole seconds.
    ended = np.abs(found.work_ms - drawn.work_ms) <= 2000
    assert ended.mean() > 0.97
    assert (found.end_state == drawn.end_state).mean() > 0.99
    again = run(of, days=days, seed=seed, jobs=found)
    first = run(of, days=days, seed=seed)
    assert again.utilisation == pytest.approx(first.utilisation, abs=0.02)


def test_the_testbed(testbed_log: FleetLog) -> None:
    of = replace(SCENARIO, cluster=Cluster(16), begin=_iso(testbed_log.begin_s))
    jobs = replay_jobs(testbed_log, of)
    # 555 jobs, of which 8 were cancelled while they waited and 2 + 1 have other states unstarted.
    assert 530 < len(jobs.gpus) <= 555
    assert jobs.gpus.max() == 128
    # What jobs needed is no more than what they used.
    used = testbed_log.frame(testbed_log.executions)
    done = np.isin(jobs.end_state, [State.COMPLETED, State.FAILED, State.CANCELLED])
    assert done.all()
    assert 0 < (jobs.work_ms / 1000 * jobs.gpus).sum() < 3 * (used.runtime_s * used.gpus).sum()


def test_processors_stand_in_for_gpus(tmp_path: Path) -> None:
    swf = tmp_path / "log.swf"
    lines = ["; Version: 2.2", "; UnixStartTime: 1000000000", "; MaxProcs: 64", "; MaxNodes: 8"]
    lines += [
        f"{job} {job * 60} 5 600 {job} -1 -1 {job} 900 -1 1 {job % 3} 1 -1 1 1 -1 -1"
        for job in range(1, 21)
    ]
    swf.write_text("\n".join(lines) + "\n")
    fleet.ingest([swf], tmp_path / "store")
    one = replace(SCENARIO, qos=(Qos("normal", 1),), cluster=Cluster(8))
    log = fleet.open(tmp_path / "store", assumptions=replace(ASSUMED, init_s=0.0))
    jobs = replay_jobs(log, one)
    assert jobs.gpus.tolist() == [
        job if job <= 8 else math.ceil(job / 8) * 8 for job in range(1, 21)
    ]
    assert set(jobs.work_ms.tolist()) == {600_000}


def test_bad_input(tmp_path: Path) -> None:
    log = Log(
        [Attempt(1, NODES, 0, H, qos="low"), Attempt(2, NODES[:1], 0, H, qos="normal")],
        nodes=dict.fromkeys(NODES, 8),
    ).open(tmp_path, ASSUMED)
    with pytest.raises(InputError, match="larger than the cluster") as caught:
        replay_jobs(log, replace(SCENARIO, cluster=Cluster(3)))
    assert caught.value.found == "32 GPUs"
    classes = replace(SCENARIO, qos=(Qos("normal", 1), Qos("urgent", 2)))
    with pytest.raises(InputError, match="class of service") as caught:
        replay_jobs(log, classes)
    assert caught.value.found == "'low'"
    empty = Log(checks=[Check(5.0, "n000", "check mount")]).open(tmp_path / "empty")
    with pytest.raises(InputError, match="no job to replay"):
        replay_jobs(empty, SCENARIO)


def _iso(epoch_s: float) -> str:
    from holdfast.fleet.moments import iso

    return iso(epoch_s) or ""
