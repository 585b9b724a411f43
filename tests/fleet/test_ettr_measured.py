"""Measured ETTR against its definition, W = Q + R + U, worked out by hand and by loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from logs import COLUMNS, Attempt, Log
from scipy import stats
from test_attribution import identities, infrastructure_by_loops
from test_losses import size_of

import holdfast.fleet as fleet
from conftest import RandomFleet
from holdfast.fleet import Assumptions
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.preemption import preemptions

HOUR = 3600


def test_a_run_by_hand(tmp_path: Path) -> None:
    """10 h queued, 20 h until a node fails, 1 h queued, 30 h to the end."""
    attempts = [
        Attempt(1, ("n1", "n2"), 10 * HOUR, 30 * HOUR, "NODE_FAIL", submit=0),
        Attempt(1, ("n1", "n2"), 31 * HOUR, 61 * HOUR, submit=30 * HOUR),
    ]
    assumed = Assumptions(init_s=600, checkpoint_interval_s=2 * HOUR, write_s=HOUR / 2)
    answer = fleet.measured_ettr(Log(attempts).open(tmp_path, assumed))
    (row,) = answer.by_size.to_pylist()
    # Ten minutes after each start; then cycles of 2 h and a write of half an hour. The failure comes
    # after 7 writes and loses 1 h; the second attempt writes 12 times, the last time at its end.
    productive = (20 - 10 / 60 - 7 / 2 - 1) + (30 - 10 / 60 - 12 / 2)
    assert row["ettr"] == pytest.approx(productive / 61)
    assert (row["gpus_min"], row["gpus_max"], row["runs"], row["gpus"]) == (9, 16, 1, 16)
    assert row["interruptions"] == 1
    assert row["queue_s"] == pytest.approx(11 * HOUR / 2)
    assert (row["lo"], row["hi"]) == (0, 1)  # one run tells nothing of another


def test_short_runs_do_not_count(tmp_path: Path) -> None:
    attempts = [Attempt(1, ("n1",), 0, 24 * HOUR - 1), Attempt(2, ("n2",), 0, 24 * HOUR)]
    answer = fleet.measured_ettr(Log(attempts).store(tmp_path))
    assert answer.runs == 1


def test_time_before_a_job_may_start_is_no_queue(tmp_path: Path) -> None:
    attempts = [Attempt(1, ("n1",), 10 * HOUR, 40 * HOUR, submit=0, eligible=9 * HOUR)]
    (row,) = fleet.measured_ettr(Log(attempts).store(tmp_path)).by_size.to_pylist()
    assert row["queue_s"] == HOUR
    assert row["ettr"] == pytest.approx((30 - 1 / 12) / 31)


def test_only_the_class_of_the_highest_priority_is_measured(tmp_path: Path) -> None:
    attempts = [
        Attempt(1, ("n1",), 0, 30 * HOUR, qos="high", priority=1000),
        Attempt(2, ("n2",), 300 * HOUR, 330 * HOUR, qos="low", priority=10, submit=0),
    ]
    answer = fleet.measured_ettr(Log(attempts).store(tmp_path))
    assert answer.runs == 1
    assert answer.by_size["ettr"][0].as_py() > 0.9


@pytest.mark.parametrize("missing", [("QOS",), ("Priority",)])
def test_a_log_without_classes_is_measured_whole(tmp_path: Path, missing: tuple[str, ...]) -> None:
    attempts = [Attempt(j, (f"n{j}",), 0, 30 * HOUR) for j in (1, 2)]
    columns = [name for name in COLUMNS if name not in missing]
    answer = fleet.measured_ettr(Log(attempts).store(tmp_path, columns))
    assert answer.runs == 2


def test_no_long_runs(tmp_path: Path) -> None:
    answer = fleet.measured_ettr(Log([Attempt(1, ("n1",), 0, 10)]).store(tmp_path))
    assert (answer.runs, answer.to_dict()["by_size"], answer.largest()) == (0, [], None)


@pytest.mark.quick(2)
@pytest.mark.parametrize("save", [False, True])
def test_runs_by_loops(random_fleet: RandomFleet, save: bool) -> None:
    rows = random_fleet.rows
    assumed = Assumptions(
        long_run_s=3000, init_s=100, checkpoint_interval_s=900, write_s=100, save_on_signal=save
    )
    log = fleet.open(random_fleet.log.store, assumptions=assumed)
    who = identities(log)
    failed = {a.identity for a, _, _ in infrastructure_by_loops(rows)}
    preempted = {who[row["key"]] for row in log.rows(preemptions(log))}
    runs: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in rows.attempts:
        if attempt.start is not None:
            runs[attempt.job].append(attempt)
    long_runs = [run for run in runs.values() if sum(a.ran_s for a in run) >= 3000]
    high = [run for run in long_runs if run[0].qos == "high"]
    by_size: dict[int, list[float]] = defaultdict(list)
    started: dict[int, list[float]] = defaultdict(list)
    for run in high:
        productive = wall = 0.0
        waits: list[tuple[int, int]] = []
        for a in run:
            assert a.start is not None
            rest = max(a.ran_s - 100, 0)
            writes = -(-rest // 1000) if a.state == "COMPLETED" else rest // 1000
            cut = a.identity in preempted | failed or a.state == "REQUEUED"
            saves = save and a.identity in preempted - failed
            lost = min(a.ran_s, 450) if cut and not saves else 0
            productive += max(rest - writes * 100 - lost, 0)
            waits.append((a.start, max(a.start - a.waits_from, 0)))
            wall += a.ran_s + waits[-1][1]
        if top := max(size_of(a)[1] for a in run):  # 0 without GPUs, of another kind
            by_size[top].append(productive / wall)
            started[top].append(productive / (wall - min(waits)[1]))
    found = fleet.measured_ettr(log).by_size.to_pylist()
    assert [row["gpus_max"] for row in found] == sorted(by_size)
    for row in found:
        values = by_size[row["gpus_max"]]
        assert row["runs"] == len(values)
        assert row["ettr"] == pytest.approx(sum(values) / len(values))
        assert row["started"] == pytest.approx(sum(started[row["gpus_max"]]) / len(values))
        assert 0 <= row["lo"] <= row["ettr"] <= row["hi"] <= 1


@pytest.mark.quick(2)
@pytest.mark.parametrize("preempted", [False, True])
@pytest.mark.parametrize("save", [False, True])
def test_a_run_loses_in_its_ettr_what_goodput_counts(
    tmp_path: Path, preempted: bool, save: bool
) -> None:
    """One GPU-hour lost is one GPU-hour not productive, whoever cut the attempt off."""
    state = "PREEMPTED" if preempted else "NODE_FAIL"
    attempts = [
        Attempt(1, ("n1",), 0, 20 * HOUR, state, submit=0),
        Attempt(1, ("n1",), 20 * HOUR, 50 * HOUR, submit=20 * HOUR),
    ]
    assumed = Assumptions(checkpoint_interval_s=4 * HOUR, save_on_signal=save)
    log = Log(attempts).open(tmp_path, assumed)
    (row,) = fleet.measured_ettr(log).by_size.to_pylist()
    lost_h = 0 if preempted and save else 2
    assert row["ettr"] == pytest.approx((50 - 2 * 5 / 60 - lost_h) / 50)
    if not preempted:  # goodput counts preemptions that a failure caused only
        assert fleet.goodput(log).lost_gpu_hours == pytest.approx(8 * lost_h)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("given", "shortest", "used"), [(None, HOUR, 300), (None, 40, 40), (500, 40, 500)]
)
def test_initialization_is_the_same_everywhere(
    tmp_path: Path, given: float | None, shortest: int, used: float
) -> None:
    """What completed attempts allow bounds the default; a value that the user gives stands."""
    attempts = [
        Attempt(j, (f"n{j}",), j * HOUR, j * HOUR + (30 * HOUR if j == 9 else shortest))
        for j in range(20)
    ]
    log = Log(attempts).open(tmp_path, Assumptions(init_s=given))
    found = fleet.report(log).to_dict()["ettr"]["measured"]
    assert found["assumptions"]["init_s"] == used
    assert found["by_size"][0]["ettr"] == pytest.approx((30 * HOUR - used) / (30 * HOUR))
    assert Analysis(log).ettr_setting["init_s"] == used


@pytest.mark.parametrize("waits_h", [(10, 12, 15, 11), (0, 0, 0, 30)], ids=["inside", "cut"])
def test_the_interval_is_that_of_a_t_test(tmp_path: Path, waits_h: Sequence[int]) -> None:
    """Of a share: none of its ends is above one."""
    attempts = [
        Attempt(j, (f"n{j}",), 40 * HOUR, 70 * HOUR, submit=(40 - wait) * HOUR)
        for j, wait in enumerate(waits_h, 1)
    ]
    log = Log(attempts).open(tmp_path, Assumptions(init_s=0, checkpoint_interval_s=HOUR))
    (row,) = fleet.measured_ettr(log).by_size.to_pylist()
    each = [30 / (30 + wait) for wait in waits_h]
    expected = stats.ttest_1samp(each, 0).confidence_interval()
    assert (row["lo"], row["hi"]) == pytest.approx((expected.low, min(expected.high, 1)))
