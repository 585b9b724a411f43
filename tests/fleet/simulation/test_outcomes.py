"""Outcomes of a run: a history with known numbers, and random ones against minute-by-minute counting."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from holdfast.fleet.simulation.outcomes import (
    FEWEST_LARGE_RUNS,
    FEWEST_RUNS,
    LONG_RUN_HOURS,
    TOPS,
    Outcome,
    Scope,
    metrics,
    outcome,
    scope,
    window_ms,
)
from holdfast.fleet.simulation.records import State
from runs import HOUR, Attempt, History, Job, known

ALL_CLASSES = (0, 1, 2)


def scope_of(outcomes: list[Outcome]) -> Scope:
    return scope(outcomes, History().scenario)


def everything(hours: int = 0, large: int = 256, sizes: tuple[int, ...] = ()) -> Scope:
    return Scope(ALL_CLASSES, hours, large, sizes, ())


def hand_made() -> History:
    """Four jobs in two days; outcomes count from 7 h 12 min on.

    Job 1 (high, 256 GPUs) needs 24 h. It runs from 8 h, initialises for 12 min, works, and a node fails at
    24 h: 12 h of work are kept, 3 h 48 min lost. It waits until 26 h (the requeue delay is part of that),
    and for that job 2 is signalled at 25 h 50 min. It initialises for 12 min and ends at 38 h 12 min.
    Job 2 (low, 256 GPUs) waits from 8 h to 16 h. Of its 10 h it keeps 9 h and loses 30 min; it still
    waits in the end. Job 3 (8 GPUs) was submitted at 18 h, ran from 19 h to 20 h, preempted by job 2; it
    starts again at 21 h and runs still. Job 4 (8 GPUs) runs from 0 h to 14 h 24 min.
    """
    h = HOUR
    return History(
        jobs=[
            Job(8 * h, 256, 24 * h, qos=2),
            Job(8 * h, 256, 30 * h, qos=0),
            Job(18 * h, 8, 100 * h, qos=0),
            Job(0.0, 8, 14.4 * h),
        ],
        attempts=[
            Attempt(
                0, 1, range(32), 8 * h, 24 * h, State.NODE_FAIL, productive=12 * h, lost=3.8 * h,
                init=0.2 * h, failure=0,
            ),
            Attempt(
                0, 2, range(32), 26 * h, 38.2 * h, eligible=24 * h + 120, productive=12 * h,
                init=0.2 * h,
            ),
            Attempt(
                1, 1, range(32, 64), 16 * h, 26 * h, State.PREEMPTED, productive=9 * h,
                lost=0.5 * h, preemptor=0, signal=25 * h + 3000,
            ),
            Attempt(1, 2, (), -0.001, state=State.PENDING, eligible=26 * h + 120),
            Attempt(
                2, 1, [63], 19 * h, 20 * h, State.PREEMPTED, lost=0.5 * h, init=0.5 * h,
                preemptor=1,
            ),
            Attempt(
                2, 2, [62], 21 * h, state=State.RUNNING, eligible=20 * h, productive=26 * h,
                init=0.5 * h,
            ),
            Attempt(3, 1, [61], 0.0, 14.4 * h, productive=14.4 * h),
        ],
    )  # fmt: skip


def test_the_numbers_of_a_known_history() -> None:
    found = outcome(hand_made().run())
    assert window_ms(2.0) == (7.2 * 3.6e6, 48 * 3.6e6)
    assert found.days == pytest.approx(1.7)
    values = metrics(found, everything(sizes=(7,)))
    assert values["ettr_large_runs"] == pytest.approx((24 / 30.2 + 9 / 40) / 2)
    assert TOPS[7] == 256
    assert values["ettr_gpus_256"] == values["ettr_large_runs"]
    assert values["productive_share_of_large_runs"] == pytest.approx((24 + 9) / (28.2 + 10))
    assert values["interruptions_per_large_run"] == 1
    # Half of job 4 is before the window.
    busy = 256 * (28.2 + 10) + 8 * (1 + 27 + 7.2)
    kept = 256 * (24 + 9) + 8 * (26 + 7.2)
    assert values["utilisation"] == pytest.approx(busy / (512 * 40.8))
    assert values["goodput_share_of_capacity"] == pytest.approx(kept / (512 * 40.8))
    assert values["goodput_share_of_busy_time"] == pytest.approx(kept / busy)
    assert values["goodput_gpu_hours_per_day"] == pytest.approx(kept / 1.7)
    assert values["lost_first_order_gpu_hours_per_day"] == pytest.approx(256 * 4 / 1.7)
    assert values["lost_second_order_gpu_hours_per_day"] == pytest.approx(256 * 0.5 / 1.7)
    assert values["lost_other_preemption_gpu_hours_per_day"] == pytest.approx(8 / 1.7)
    # Of the three ended attempts of large jobs, a node failure took one.
    assert values["failed_share_of_attempts_gpus_256_up"] == pytest.approx(1 / 3)
    assert values["completed_jobs_per_day"] == pytest.approx(2 / 1.7)
    # Waits that began from 7.2 h to 43.2 h: those of jobs 1, 2, 3; job 2's second is not over.
    waits_h = [0, 2 - 120 / 3600, 8, 22 - 120 / 3600, 1, 1]
    assert values["queue_wait_mean_s"] == pytest.approx(np.mean(waits_h) * 3600)
    assert values["queue_wait_p90_s"] == pytest.approx(np.quantile(waits_h, 0.9) * 3600)
    assert found.largest_gpus == 256
    assert found.required_gpu_ms == pytest.approx((256 * (24 + 30) + 8 * 100) * 3.6e6)  # not job 4


def test_pulled_nodes_are_no_capacity() -> None:
    history = hand_made()
    cluster = replace(history.scenario.cluster, without=("node02", "node64"))
    fewer = history.but(scenario=replace(history.scenario, cluster=cluster))
    ratio = outcome(fewer.run()).capacity_gpu_ms / outcome(history.run()).capacity_gpu_ms
    assert ratio == pytest.approx(62 / 64)


def test_the_class_and_the_length_decide_which_runs_count() -> None:
    found = outcome(hand_made().run())
    high = replace(everything(24), classes=(2,))
    assert metrics(found, high)["ettr_large_runs"] == pytest.approx(24 / 30.2)
    assert np.isnan(metrics(found, replace(high, classes=(1,)))["ettr_large_runs"])
    assert found.runs["runs"][0, :, 7].tolist() == [1.0] * 6  # job 2 needs 30 h
    assert found.runs["runs"][:, 0].sum() == 3  # job 4 was submitted before the window
    shorter = hand_made()
    shorter.jobs[1] = replace(shorter.jobs[1], work=13 * HOUR)
    assert outcome(shorter.run()).runs["runs"][0, :, 7].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_a_failure_after_the_signal_makes_no_second_order() -> None:
    late = hand_made()
    late.attempts[2] = replace(late.attempts[2], signal=23.9 * HOUR)
    values = metrics(outcome(late.run()), everything())
    assert values["lost_second_order_gpu_hours_per_day"] == 0
    assert values["lost_other_preemption_gpu_hours_per_day"] == pytest.approx((8 + 128) / 1.7)


def random_history(seed: int) -> History:
    """Jobs that run, fail, are preempted, wait and run on, in whole minutes."""
    draw = np.random.default_rng(seed)
    jobs, attempts = [], []
    end_min = 2 * 1440
    for job in range(12):
        at = int(draw.integers(0, end_min))
        jobs.append(
            Job(
                60.0 * at,
                int(draw.choice([1, 8, 16, 64, 256])),
                HOUR * float(draw.choice([0.5, 2, 5, 8, 13, 30])),
                qos=int(draw.integers(3)),
            )
        )
        for attempt in range(1, int(draw.integers(2, 5))):
            eligible = at if attempt == 1 else at + 2
            start = eligible + int(draw.integers(0, 400))
            stop = start + int(draw.integers(0, 900))
            times = {"eligible": 60.0 * eligible}
            if start >= end_min:
                if eligible < end_min:
                    attempts.append(Attempt(job, attempt, (), -0.001, state=State.PENDING, **times))
                break
            part = 60.0 * (min(stop, end_min) - start)
            kept = float(draw.uniform(0, 1))
            times |= {"productive": part * kept, "lost": part * (1 - kept) / 2}
            if stop >= end_min:
                attempts.append(
                    Attempt(job, attempt, [0], 60.0 * start, state=State.RUNNING, **times)
                )
                break
            state = State(int(draw.choice([State.COMPLETED, State.NODE_FAIL, State.PREEMPTED])))
            attempts.append(
                Attempt(
                    job, attempt, [0], 60.0 * start, 60.0 * stop, state,
                    failure=0 if state == State.NODE_FAIL else -1,
                    preemptor=int(draw.integers(12)) if state == State.PREEMPTED else -1,
                    **times,
                )
            )  # fmt: skip
            if state == State.COMPLETED:
                break
            at = stop
    return History(jobs=jobs, attempts=attempts)


def minute_by_minute(history: History, job: int) -> tuple[int, int, float]:
    """Minutes that a job is in the system, that it runs, and productive ones."""
    mine = [each for each in history.attempts if each.job == job]
    system = running = 0
    productive = 0.0
    for minute in range(round(1440 * history.days)):
        time = 60.0 * minute + 30
        system += time > history.jobs[job].submit and any(a.end < 0 or a.end > time for a in mine)
        for each in mine:
            if 0 <= each.start < time and (each.end < 0 or each.end > time):
                stop = each.end if each.end >= 0 else 86_400 * history.days
                running += 1
                productive += 60 * each.productive / (stop - each.start)
    return system, running, productive / 60


@pytest.mark.parametrize("seed", range(6))
def test_runs_are_measured_as_minute_by_minute(seed: int) -> None:
    history = random_history(seed)
    found = outcome(history.run())
    begin, end = (each / 1e3 for each in window_ms(history.days))
    names = ("runs", "ettr", "run_ms", "run_productive_ms", "interruptions")
    expected = {name: np.zeros(found.runs[name].shape) for name in names}
    for number, job in enumerate(history.jobs):
        system, running, productive = minute_by_minute(history, number)
        if not system or not begin <= job.submit <= 0.9 * end:
            continue
        ends = [each for each in history.attempts if each.job == number and each.end >= 0]
        cut = sum(each.state in (State.NODE_FAIL, State.PREEMPTED) for each in ends)
        for row, hours in enumerate(LONG_RUN_HOURS):
            if job.work >= 3600 * hours:
                place = (job.qos, row, int(np.searchsorted(TOPS, job.gpus)))
                sums = (1, productive / system, 60_000 * running, 60_000 * productive, cut)
                for name, value in zip(names, sums, strict=True):
                    expected[name][place] += value
    assert expected["runs"].sum() > 20
    for name in names:
        np.testing.assert_allclose(found.runs[name], expected[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("seed", range(4))
def test_losses_have_one_cause_each(seed: int) -> None:
    """By loops over the rows: first order, then second order, then the other preemptions."""
    history = random_history(seed)
    begin = window_ms(2.0)[0] / 1e3
    lost = dict.fromkeys(("first_order", "second_order", "other_preemption"), 0.0)
    for each in history.attempts:
        if each.end < begin:
            continue
        hours = each.lost * history.jobs[each.job].gpus / 3600
        if each.failure >= 0:
            lost["first_order"] += hours
        elif each.state == State.PREEMPTED:
            before = [
                other
                for other in history.attempts
                if other.job == each.preemptor and other.failure >= 0 and 0 <= other.end <= each.end
            ]
            lost["second_order" if before else "other_preemption"] += hours
    found = outcome(history.run())
    for name, hours in lost.items():
        assert found.lost_gpu_ms[name] / 3.6e6 == pytest.approx(hours, rel=1e-5)


def test_an_empty_run_has_nothing_to_measure() -> None:
    found = outcome(History().run())
    values = metrics(found, scope_of([found]))
    assert values["utilisation"] == 0
    assert np.isnan(values["ettr_large_runs"])
    assert np.isnan(values["queue_wait_mean_s"])


def many(gpus: int, hours: float, qos: int, count: int) -> Outcome:
    """Runs of one kind, all measured."""
    history = History(
        jobs=[Job(8 * HOUR, gpus, hours * HOUR, qos=qos)] * count,
        attempts=[Attempt(each, 1, [0], 8 * HOUR, 9 * HOUR) for each in range(count)],
    )
    return outcome(history.run())


def test_the_scope_is_the_longest_large_runs_of_the_class_that_waits_least() -> None:
    enough = FEWEST_LARGE_RUNS
    chosen = scope_of([many(64, 30, 2, enough)])
    assert chosen == Scope((2,), 24, 32, (5,), (5,))
    assert TOPS[5] == 64
    # Half in each replica is enough; too few of the highest class are not.
    assert scope_of([many(64, 30, 2, enough // 2)] * 2).classes == (2,)
    assert scope_of([many(64, 30, 1, enough)]).classes == ALL_CLASSES
    assert scope_of([many(64, 7, 2, enough)]).long_run_hours == 6
    assert scope_of([many(4096, 30, 2, enough)]).large_gpus == 512
    few = scope_of([many(64, 30, 2, FEWEST_RUNS)])
    assert (few.classes, few.long_run_hours, few.sizes) == (ALL_CLASSES, 0, (5,))
    assert scope_of([many(64, 30, 2, FEWEST_RUNS - 1)]).sizes == ()


def test_known_run_of_every_mechanism() -> None:
    found = outcome(known().run())
    values = metrics(found, scope_of([found]))
    assert 0 < values["goodput_share_of_capacity"] < values["utilisation"] < 1
    assert values["lost_second_order_gpu_hours_per_day"] > 0  # job 3 had failed before it preempted


def test_outcomes_are_small_and_cross_to_other_processes() -> None:
    found = outcome(known().run())
    sent = pickle.dumps(found)
    assert len(sent) < 50_000
    assert metrics(pickle.loads(sent), everything()) == pytest.approx(
        metrics(found, everything()), nan_ok=True
    )
