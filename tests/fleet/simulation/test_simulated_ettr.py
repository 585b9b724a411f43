"""The ETTR of simulated runs against the exact forms, where their assumptions hold.

One gang on N nodes with spare nodes; failures are exponential, end the attempt at once and are the only
reason for ends; a restart waits for the requeue delay and for nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from holdfast.fleet.ettr_forms import EttrParameters, exact_ettr, exact_finite_ettr
from holdfast.fleet.simulation.engine import Run, run
from holdfast.fleet.simulation.records import JOBS, Records, State, table
from holdfast.fleet.simulation.scenario import (
    Blast,
    Checkpoint,
    Cluster,
    Component,
    Detection,
    Failures,
    Qos,
    Repair,
    Scenario,
    Scheduler,
    Size,
    Workload,
)

DAY_S = 86_400.0
DAY_MS = 86_400_000
SPARE = 12
YEARS = 99.9
MINUTE = 60.0


class Setting(NamedTuple):
    nodes: int
    rate_per_node_day: float
    interval_s: float
    write_s: float
    init_s: float
    queue_s: float

    @property
    def parameters(self) -> EttrParameters:
        return EttrParameters(
            self.nodes,
            self.rate_per_node_day,
            self.interval_s,
            self.init_s,
            self.write_s,
            self.queue_s,
        )


SETTINGS = [
    Setting(128, 6.5e-3, 60 * MINUTE, 5 * MINUTE, 5 * MINUTE, 10 * MINUTE),
    Setting(512, 6.5e-3, 30 * MINUTE, 0.0, 5 * MINUTE, 2 * MINUTE),
    Setting(64, 0.05, 5 * MINUTE, 10.0, 20 * MINUTE, 0.0),
    Setting(16, 0.2, 120 * MINUTE, 15 * MINUTE, 10 * MINUTE, 30 * MINUTE),
    Setting(32, 1.0, 20 * MINUTE, 2 * MINUTE, 2 * MINUTE, 1 * MINUTE),
]

STARTS = [6_000, 2_500, 6_000, 12_000, 20_000]
"""As many as make the standard error small beside 1 %."""


def fleet_of(setting: Setting) -> Scenario:
    return Scenario(
        name="one gang",
        cluster=Cluster(setting.nodes + SPARE, nodes_per_pod=50),
        qos=(Qos("all", 1),),
        workload=Workload(jobs_per_day=1.0, sizes=(Size(8, 1.0, 1.0),)),
        scheduler=Scheduler(
            interval_s=0.0, requeue_delay_s=setting.queue_s, time_limit_s=36_500 * DAY_S
        ),
        failures=Failures(
            setting.rate_per_node_day,
            components=(Component("all", 1.0, "check", high=1.0, crash=1.0, permanent=0.0),),
        ),
        detection=Detection(check_interval_s=1.0, heartbeat_s=0.0),
        repair=Repair(30.0, 30.0, 30.0, 30.0),
        checkpoint=Checkpoint(setting.interval_s, setting.write_s, setting.init_s),
    )


def gangs(setting: Setting, submit_ms: list[int], work_ms: int) -> Records:
    count = len(submit_ms)
    return table(
        JOBS,
        count,
        submit_ms=submit_ms,
        gpus=8 * setting.nodes,
        work_ms=work_ms,
        limit_ms=1 << 60,
        end_state=State.COMPLETED,
    )


def days_for(setting: Setting, starts: int) -> float:
    failures_per_day = setting.nodes * setting.rate_per_node_day
    per_start = 1 / failures_per_day + setting.queue_s / DAY_S
    return min(starts * per_start, YEARS * 365)


def long_run(setting: Setting, starts: int, seed: int) -> tuple[Run, float, float]:
    """A run without end; its ETTR from the second start on, and the relative standard error of it."""
    made = run(
        fleet_of(setting),
        days=days_for(setting, starts),
        seed=seed,
        jobs=gangs(setting, [0], 1 << 60),
    )
    attempts = made.attempts
    ended = attempts.end_ms >= 0
    assert (attempts.state[ended] == State.FAILED).all()
    kept = attempts.productive_ms[ended][1:].astype(float)
    wall = np.diff(attempts.end_ms[ended]).astype(float)
    ratio = kept.sum() / wall.sum()
    spread = np.std(kept - ratio * wall, ddof=1) / math.sqrt(len(kept)) / wall.mean()
    return made, ratio, float(spread / ratio)


@pytest.mark.parametrize(("setting", "starts"), list(zip(SETTINGS, STARTS, strict=True)))
def test_long_runs_have_the_exact_ettr(setting: Setting, starts: int) -> None:
    made, ratio, error = long_run(setting, starts, seed=1)
    expected = exact_ettr(setting.parameters)
    assert error < 0.003
    assert ratio == pytest.approx(expected, rel=0.01)
    assert abs(ratio / expected - 1) < 4 * error
    # The queue was the requeue delay: nothing else kept the gang waiting.
    attempts = made.attempts
    started = attempts.start_ms >= 0
    waits = (attempts.start_ms - attempts.eligible_ms)[started]
    assert np.mean(waits) < 0.02 * max(setting.queue_s, 30.0) * 1000


def test_failures_of_a_gang_come_at_its_rate() -> None:
    setting = SETTINGS[0]
    made, _, _ = long_run(setting, starts=8_000, seed=2)
    attempts = made.attempts
    ran_days = (attempts.end_ms - attempts.start_ms)[attempts.end_ms >= 0].sum() / DAY_MS
    count = (attempts.state == State.FAILED).sum()
    expected = setting.nodes * setting.rate_per_node_day * ran_days
    assert abs(count - expected) < 4 * math.sqrt(expected)
    assert attempts.expected_failures.sum() == pytest.approx(expected, rel=1e-3)
    gaps = (attempts.end_ms - attempts.start_ms)[attempts.end_ms >= 0] / DAY_MS
    # Exponential: the standard deviation is the mean.
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.05)


@pytest.mark.parametrize(
    ("setting", "hours"),
    [(SETTINGS[0], 3.0), (SETTINGS[0], 25.5), (SETTINGS[4], 3.0), (SETTINGS[4], 7.1)],
)
def test_whole_runs_have_the_finite_exact_ettr(setting: Setting, hours: float) -> None:
    setting = setting._replace(queue_s=0.0)
    productive_s = hours * 3600
    parameters = replace(setting.parameters, productive_s=productive_s)
    expected = exact_finite_ettr(parameters)
    # One after the other, far enough apart not to meet.
    apart = int(20 * productive_s * 1000 / expected)
    count = min(1_000, int(YEARS * 365 * DAY_MS / apart))
    made = run(
        fleet_of(setting),
        days=count * apart / DAY_MS,
        seed=3,
        jobs=gangs(setting, [k * apart for k in range(count)], int(productive_s * 1000)),
    )
    attempts = made.attempts
    done = attempts.state == State.COMPLETED
    wall = np.full(count, np.nan)
    wall[attempts.job[done]] = (attempts.end_ms - made.jobs.submit_ms[attempts.job])[done]
    assert not np.isnan(wall).any()
    assert wall.max() < apart
    ratio = productive_s * 1000 / wall.mean()
    error = wall.std(ddof=1) / math.sqrt(count) / wall.mean()
    assert error < 0.01
    assert abs(ratio / expected - 1) < 4 * error


@pytest.mark.parametrize(
    ("setting", "recovery_s", "blasts_per_day", "survives"),
    [
        (SETTINGS[0], 3 * MINUTE, 0.0, 1),
        (SETTINGS[3], 10 * MINUTE, 0.5, 1),
        (SETTINGS[4], 2 * MINUTE, 4.0, 1),
        (SETTINGS[4], 5 * MINUTE, 4.0, 32),  # all nodes at once leave no peer, whatever is said
        (SETTINGS[2], 15 * MINUTE, 0.3, 2),
    ],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_recovery_without_rollback_has_the_exact_ettr(
    setting: Setting, recovery_s: float, blasts_per_day: float, survives: int, mode: str
) -> None:
    if mode == "async":
        setting = setting._replace(write_s=0.0)
    fleet = fleet_of(setting)
    shared = Blast("filesystem", "fleet", blasts_per_day, "mount", repair_s=1.0)
    copies = {"recovery_s": recovery_s, "survives": survives, "mode": mode}
    scenario = replace(
        fleet,
        checkpoint=replace(fleet.checkpoint, **copies),
        failures=replace(fleet.failures, blasts=(shared,) * (blasts_per_day > 0)),
    )
    days = 8_000 / (setting.nodes * setting.rate_per_node_day + blasts_per_day)
    made = run(scenario, days=days, seed=5, jobs=gangs(setting, [0], 1 << 60))
    attempts = made.attempts
    productive, wall = attempts.productive_ms.astype(float), days * DAY_MS
    a_day = setting.nodes * setting.rate_per_node_day + blasts_per_day
    parameters = replace(
        setting.parameters,
        rate_per_node_day=a_day / setting.nodes,
        recovery_s=recovery_s,
        state_lost=blasts_per_day / a_day,
    )
    assert productive.sum() / wall == pytest.approx(exact_ettr(parameters), rel=0.006)
    if not blasts_per_day:  # nothing that was done is done again
        assert attempts.lost_ms.sum() == 0


def test_copies_of_a_part_of_the_nodes_are_kept() -> None:
    """A pod of 50 nodes of a gang on 64 fails at once: its copies survive where that many may."""
    setting = Setting(64, 1e-6, 60 * MINUTE, 0.0, 5 * MINUTE, 0.0)
    fleet = fleet_of(setting)
    switch = Blast("switch", "pod", 0.5, "link", repair_s=1.0)
    lost = []
    for survives in (49, 50):
        scenario = replace(
            fleet,
            cluster=Cluster(100, nodes_per_pod=50),
            checkpoint=replace(fleet.checkpoint, recovery_s=60.0, survives=survives),
            failures=replace(fleet.failures, blasts=(switch,)),
        )
        made = run(scenario, days=200, seed=1, jobs=gangs(setting, [0], 1 << 60))
        lost.append(made.attempts.lost_ms.sum())
    assert lost[0] > lost[1] == 0


@pytest.mark.full
@pytest.mark.parametrize(("setting", "starts"), list(zip(SETTINGS, STARTS, strict=True)))
@pytest.mark.parametrize("seed", [11, 12])
def test_longer_runs_are_closer(setting: Setting, starts: int, seed: int) -> None:
    _, ratio, error = long_run(setting, 10 * starts, seed)
    assert abs(ratio / exact_ettr(setting.parameters) - 1) < max(4 * error, 0.001)
