"""GPU-hours lost: against loops over random logs, and a cascade of known scale against its formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from logs import COLUMNS, Attempt, Check, Log, names, random_log, stamp
from test_attribution import identities, infrastructure_by_loops

import holdfast.fleet as fleet
from conftest import RandomFleet
from holdfast.fleet import Assumptions
from holdfast.fleet.losses import losses
from holdfast.fleet.preemption import preemptions

HALF_S = 1800

SIZES = [(0, 0), (1, 1), (2, 8), *((2**k + 1, 2 ** (k + 1)) for k in range(3, 20))]


def lost_hours(attempt: Attempt, half_s: float = HALF_S) -> float:
    return attempt.gpu_count * min(attempt.ran_s, half_s) / 3600


def size_of(attempt: Attempt) -> tuple[int, int]:
    (size,) = [(low, high) for low, high in SIZES if low <= attempt.gpu_count <= high]
    return size


def test_totals_causes_and_sizes(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    who = identities(log)
    by_identity = {a.identity: a for a in rows.attempts}
    failures = list(infrastructure_by_loops(rows))
    failed = {a.identity for a, _, _ in failures}
    second = []
    for row in log.rows(f'SELECT * FROM {preemptions(log)} WHERE "order" = 2'):
        victim = by_identity[who[row["key"]]]
        preemptor = int(row["preemptor"])
        before = [
            (a.stop, label)
            for a, label, _ in failures
            if a.job == preemptor and a.stop <= victim.stop + 1
        ]
        loss = 0.0 if victim.identity in failed else lost_hours(victim)
        latest = max(stop for stop, _ in before)
        second.append((victim, loss, {label for stop, label in before if stop == latest}))
    answer = fleet.goodput(log)
    ran = [a for a in rows.attempts if a.start is not None]
    assert answer.total_gpu_hours == pytest.approx(sum(a.gpu_count * a.ran_s for a in ran) / 3600)
    assert answer.failures == len(failures)
    assert answer.preemptions_second_order == len(second) > 0
    assert answer.lost_first_order == pytest.approx(sum(lost_hours(a) for a, _, _ in failures))
    assert answer.lost_second_order == pytest.approx(sum(loss for _, loss, _ in second))
    assert answer.lost_gpu_hours == answer.lost_first_order + answer.lost_second_order
    assert {len(labels) for _, _, labels in second} == {1}
    by_cause: dict[str, list[float]] = {}
    for attempt, label, _ in failures:
        sums = by_cause.setdefault(label, [0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += lost_hours(attempt)
    for _, loss, (label,) in second:
        by_cause.setdefault(label, [0, 0.0, 0.0])[2] += loss
    found = {
        row["cause"]: [row["failures"], row["first_order"], row["second_order"]]
        for row in answer.by_cause.to_pylist()
    }
    assert found.keys() == by_cause.keys()
    for label, sums in by_cause.items():
        assert found[label] == pytest.approx(sums)
    by_size: dict[tuple[int, int], list[float]] = {}
    for attempt in ran:
        hours = attempt.gpu_count * attempt.ran_s / 3600
        by_size.setdefault(size_of(attempt), [0.0, 0, 0.0, 0.0])[0] += hours
    for attempt, _, _ in failures:
        by_size[size_of(attempt)][1] += 1
        by_size[size_of(attempt)][2] += lost_hours(attempt)
    for victim, loss, _ in second:
        by_size[size_of(victim)][3] += loss
    shown = answer.by_job_size.to_pylist()
    assert [(row["gpus_min"], row["gpus_max"]) for row in shown] == sorted(by_size)
    for row in shown:
        sums = [row[name] for name in ("gpu_hours", "failures", "first_order", "second_order")]
        assert sums == pytest.approx(by_size[row["gpus_min"], row["gpus_max"]])


def test_crash_loops_by_loops(random_fleet: RandomFleet) -> None:
    log, rows = random_fleet.log, random_fleet.rows
    expected: dict[str, tuple[int, float]] = {}
    for job in {a.job for a in rows.attempts}:
        last = max(
            a.submitted if a.start is None else a.start for a in rows.attempts if a.job == job
        )
        requeued = sorted(
            (
                a
                for a, _, _ in infrastructure_by_loops(rows)
                if a.job == job and a.end is not None and last >= a.end
            ),
            key=lambda a: a.stop,
        )
        ends = [a.stop for a in requeued]
        if any(c - a <= 86_400 for a, c in zip(ends, ends[2:], strict=False)):
            own = sum(map(lost_hours, requeued))
            others = sum(
                row["lost"]
                for row in log.rows(losses(log)[1])
                if row["order"] == 2 and row["preemptor"] == str(job)
            )
            expected[str(job)] = (len(requeued), own + others)
    loops = fleet.goodput(log).crash_loops.to_pylist()
    assert expected
    assert [row["requeues"] for row in loops] == sorted(
        (requeues for requeues, _ in expected.values()), reverse=True
    )
    found = {row["job_id"]: (row["requeues"], row["gpu_hours_lost"]) for row in loops}
    assert found.keys() == expected.keys()
    for job_id, numbers in expected.items():
        assert found[job_id] == pytest.approx(numbers)


def cascade() -> Log:
    """One job of 1,024 GPUs, requeued 35 times, displaces 548 jobs of 64 GPUs on its nodes."""
    nodes = names(128)
    round_s, up_s = 3 * 3600, 2 * 3600
    log = Log(qos=[("high", 100, 0, "low"), ("low", 1, 60, "")], nodes=dict.fromkeys(nodes, 8))
    # 23 restarts meet 16 victims, 12 meet 15: 548.
    job = 1000
    for turn in range(36):
        begin = turn * round_s
        end = begin + up_s if turn < 35 else begin + 600
        state = "NODE_FAIL" if turn < 35 else "COMPLETED"
        submit = begin - round_s + up_s + 1 if turn else 0
        log.attempts.append(Attempt(1, nodes, begin, end, state, qos="high", submit=submit))
        if turn == 35:
            break
        for place in range(16 if turn < 23 else 15):
            job += 1
            mine = nodes[8 * place : 8 * place + 8]
            ran_s = 3000 if place % 2 else 900
            stop = begin + round_s - 20 - place
            log.attempts.append(Attempt(job, mine, stop - ran_s, stop, "PREEMPTED", qos="low"))
    # Seven more are displaced by a job that never failed: first order.
    other = tuple(f"o{i}" for i in range(7))
    log.attempts += [
        Attempt(10 + i, (node,), 0, 5000 + i, "PREEMPTED", qos="low")
        for i, node in enumerate(other)
    ]
    log.attempts.append(Attempt(2, other, 5030, 9000, qos="high", submit=4900))
    return log


def test_one_large_job_requeued_35_times_causes_548_preemptions(tmp_path: Path) -> None:
    log = cascade().open(tmp_path)
    answer = fleet.goodput(log)
    assert answer.failures == 35
    assert answer.preemptions == 555
    assert answer.preemptions_second_order == 548
    # 2 h ran each time, so half of the hourly checkpoint interval is lost: 1,024 x 0.5 h.
    assert answer.lost_first_order == pytest.approx(35 * 1024 * 0.5)
    # Victims on even places ran for 15 min and lose all of it, the others lose half an hour.
    even, odd = 23 * 8 + 12 * 8, 23 * 8 + 12 * 7
    assert even + odd == 548
    assert answer.lost_second_order == pytest.approx(64 * (even * 0.25 + odd * 0.5))
    (loop,) = answer.crash_loops.to_pylist()
    assert (loop["job_id"], loop["gpus"]) == ("1", 1024)
    assert (loop["requeues"], loop["preempted"]) == (35, 548)
    assert loop["gpu_hours_lost"] == pytest.approx(answer.lost_gpu_hours)
    assert answer.by_cause["cause"].to_pylist() == ["unattributed"]
    model = fleet.mttf(log).model
    assert model.failures_ == 35
    assert model.node_days_ == pytest.approx(128 * (35 * 7200 + 600) / 86_400)


def test_work_is_lost_once(tmp_path: Path) -> None:
    """A node failure in the grace period of a second-order preemption: first order counts it."""
    attempts = [
        Attempt(2, ("n2", "n3"), 0, 900, "NODE_FAIL", qos="high"),
        Attempt(1, ("n1", "n2"), 0, 1000, "FAILED", qos="low", exit_code="15:0"),
        Attempt(2, ("n2", "n3"), 1010, 5000, qos="high", submit=905),
    ]
    qos = [("high", 100, 0, "low"), ("low", 1, 60, "")]
    log = Log(attempts, [Check(990, "n1", "check nvlink")], qos=qos).open(tmp_path)
    answer = fleet.goodput(log)
    assert (answer.failures, answer.preemptions_second_order) == (2, 1)
    assert answer.lost_first_order == pytest.approx(16 * (900 + 1000) / 3600)
    assert answer.lost_second_order == 0


def test_users_and_accounts_add_up_to_the_whole(random_fleet: RandomFleet) -> None:
    answer, log = fleet.goodput(random_fleet.log), random_fleet.log
    owner = {
        row["key"]: row for row in log.rows(f'SELECT key, "user", account FROM {log.executions}')
    }
    for name, table in (("user", answer.by_user), ("account", answer.by_account)):
        expected: dict[object, list[float]] = {}
        for rows, place in zip(losses(log), (1, 2), strict=True):
            for row in log.rows(f"SELECT key, lost FROM {rows}"):
                counts = expected.setdefault(owner[row["key"]][name], [0, 0.0, 0.0])
                counts[0] += place == 1
                counts[place] += row["lost"]
        for row in table.to_pylist():
            counts = expected.get(row[name], [0, 0.0, 0.0])
            found = [row["failures"], row["first_order"], row["second_order"]]
            assert found == pytest.approx(counts)
        assert sum(table["hours"].to_pylist()) == pytest.approx(answer.total_hours)


def test_a_log_without_gpus_counts_node_hours(tmp_path: Path) -> None:
    attempts = [
        Attempt(1, ("n1", "n2"), 0, 50 * 3600, "NODE_FAIL", gpus=0),
        Attempt(2, ("n1",), 51 * 3600, 99 * 3600, gpus=0),
    ]
    log = Log(attempts).open(tmp_path)
    answer = fleet.goodput(log)
    assert answer.unit == "node-hours"
    assert answer.total_hours == pytest.approx(2 * 50 + 48)
    assert answer.lost_first_order == pytest.approx(2 * 0.5)
    assert (answer.total_gpu_hours, answer.lost_gpu_hours) == (0.0, 0.0)
    status = fleet.status(log)
    assert (status.gpu_hours, status.node_hours) == (0.0, pytest.approx(148))
    assert status.to_dict()["by_node_time"]["NODE_FAIL"] == pytest.approx(100 / 148)  # type: ignore[index]


def test_the_checkpoint_interval_is_an_assumption(tmp_path: Path) -> None:
    rows = Log([Attempt(1, ("n1",), 0, 1000, "NODE_FAIL")])
    log = rows.open(tmp_path, Assumptions(checkpoint_interval_s=600))
    assert fleet.goodput(log).lost_first_order == pytest.approx(8 * 300 / 3600)


def loop_of(job_ids: list[int], apart_s: int, name: str = "train") -> list[Attempt]:
    """Attempts on one node: all but the last fail."""
    *failing, last = [
        Attempt(job, ("n1",), begin, begin + 1000, "NODE_FAIL", submit=begin, name=name)
        for job, begin in zip(job_ids, range(0, 10**9, apart_s), strict=False)
    ]
    return [*failing, replace(last, state="COMPLETED")]


def test_a_loop_is_three_requeues_within_a_day(tmp_path: Path) -> None:
    fast = loop_of([1] * 4, 43_200)  # ends 0, 12 and 24 h after the first
    slow = loop_of([2] * 4, 43_201)
    given_up = loop_of([3] * 4, 5000)[:-1]  # the last failure was not requeued
    loops = fleet.goodput(Log(fast + slow + given_up).open(tmp_path)).crash_loops
    assert loops.select(["job_id", "requeues"]).to_pylist() == [{"job_id": "1", "requeues": 3}]


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[:-1]], ids=["with WorkDir", "without"])
def test_a_loop_across_job_ids_takes_the_name(tmp_path: Path, columns: Sequence[str]) -> None:
    one_name = loop_of([1, 2, 3, 4], 5000)
    several = [replace(a, name=f"run{a.job}") for a in loop_of([5, 6, 7, 8], 5000)]
    store = Log(one_name + several).store(tmp_path, columns)
    assert len(fleet.goodput(store).crash_loops) == 0
    by_name = fleet.open(store, assumptions=Assumptions(chain_by_name=True))
    assert fleet.goodput(by_name).crash_loops["requeues"].to_pylist() == [3]


def test_the_window_cuts_the_hours(tmp_path: Path) -> None:
    rows = random_log(5, jobs=40)
    since = 20_000
    log = rows.open(tmp_path, since="2026-01-05T05:33:20")
    exposed = sum(
        a.gpu_count * min(a.ran_s, max(a.stop - since, 0))
        for a in rows.attempts
        if a.start is not None and a.stop >= since
    )
    answer = fleet.goodput(log)
    assert answer.total_gpu_hours == pytest.approx(exposed / 3600)
    assert answer.failures == sum(
        attempt.stop >= since for attempt, _, _ in infrastructure_by_loops(rows)
    )


def test_failures_without_gpus_are_not_in_the_figure(tmp_path: Path) -> None:
    attempts = [
        Attempt(1, ("n1",), 0, 7200, "NODE_FAIL"),
        Attempt(2, ("n2", "n3", "n4"), 0, 1200, "NODE_FAIL", gpus=0),
        Attempt(3, ("n5",), 0, 40_000, "NODE_FAIL", gpus=0),
    ]
    found = fleet.goodput(Log(attempts).open(tmp_path))
    assert (found.unit, found.lost_hours, found.failures) == ("GPU-hours", 8 * 0.5, 3)
    assert found.without_gpus == {"attempts": 2, "node_hours": 3 / 3 + 0.5}
    assert "2 without GPUs" in found.sections()[0].sentence
    alone = fleet.goodput(Log(attempts[1:]).open(tmp_path / "alone"))
    assert (alone.unit, alone.without_gpus["attempts"]) == ("node-hours", 0)


@pytest.mark.parametrize(("held", "doubtful"), [("gpu:a100:4", 3), ("", 0), ("bandwidth:2", 0)])
def test_gpus_that_stand_in_an_older_column_alone(tmp_path: Path, held: str, doubtful: int) -> None:
    rows = [
        f"{k}|{state}|{stamp(k)}|{stamp(k)}|{stamp(k + 7200)}|2|n[1-2]|cpu=8,node=2|{held}"
        for k, state in enumerate(["NODE_FAIL", "COMPLETED", "COMPLETED"], 1)
    ]
    rows.insert(1, f"1.0|COMPLETED|{stamp(1)}|{stamp(1)}|{stamp(90)}|2|n[1-2]|cpu=8|{held}")
    header = "JobID|State|Submit|Start|End|NNodes|NodeList|AllocTRES|AllocGRES"
    (tmp_path / "log.psv").write_text("\n".join([header, *rows]) + "\n")
    log = fleet.open(tmp_path / "log.psv")
    for answer in (fleet.goodput(log), fleet.mttf(log), fleet.lemons(log), fleet.report(log)):
        doubts = [
            each.text for each in answer.unknowns() if each.doubt and "AllocGRES" in each.text
        ]
        assert [str(doubtful) in each for each in doubts] == [True] * bool(doubtful)
