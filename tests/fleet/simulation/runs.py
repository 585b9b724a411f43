"""Hand-made histories: valid runs of a small cluster in which every number is known.

Times are given in seconds (fractions are milliseconds). `History` keeps plain rows and turns them into
the arrays that the simulator makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.fleet.simulation.engine import Run
from holdfast.fleet.simulation.records import ATTEMPTS, FAILURES, JOBS, Detected, State, table
from holdfast.fleet.simulation.scenario import (
    Blast,
    Checkpoint,
    Cluster,
    Component,
    Qos,
    Scenario,
    Size,
    Workload,
)
from holdfast.fleet.simulation.scenario import Failures as FailureSettings

HOUR = 3600.0
NEVER = -0.001
"""-1 millisecond: "not yet" or "none"."""

SCENARIO = Scenario(
    name="hand",
    begin="2024-01-01T00:00:00Z",
    cluster=Cluster(nodes=64, nodes_per_pod=16),
    qos=(Qos("low", 1), Qos("normal", 2), Qos("high", 3)),
    workload=Workload(jobs_per_day=10.0, users=3, sizes=(Size(8, 1.0, 1.0),)),
    failures=FailureSettings(
        rate_per_node_day=0.01,
        components=(
            Component("GPU memory", 0.5, "gpu_ecc", xid=48, high=0.9, low=0.1),
            Component("InfiniBand link", 0.3, "ib_link", high=0.5, low=0.5),
            Component("node", 0.2, "node_down", high=0.0),
        ),
        blasts=(Blast("switch", "pod", 0.001, "ib_switch"),),
    ),
    checkpoint=Checkpoint(interval_s=3600.0, write_s=0.0, init_s=300.0),
)


@dataclass(frozen=True)
class Job:
    """A row of `records.JOBS`."""

    submit: float
    gpus: int
    work: float = HOUR
    limit: float = 24 * HOUR
    qos: int = 1
    user: int = 0
    end_state: State = State.COMPLETED


@dataclass(frozen=True)
class Attempt:
    """A row of `records.ATTEMPTS`; `nodes` are its nodes."""

    job: int
    attempt: int
    nodes: Sequence[int]
    start: float
    end: float = NEVER
    state: State = State.COMPLETED
    eligible: float | None = None
    """None: when its job was submitted."""
    productive: float = 0.0
    lost: float = 0.0
    init: float = 0.0
    write: float = 0.0
    failure: int = -1
    preemptor: int = -1
    signal: float = NEVER
    expected_failures: float | None = None
    """None: 0.01 a node-day."""


@dataclass(frozen=True)
class Failure:
    """A row of `records.FAILURES`."""

    time: float
    node: int
    component: int
    kind: Detected
    detected: float
    out: float = NEVER
    repaired: float = NEVER
    blast: int = -1
    permanent: bool = False


@dataclass
class History:
    """Rows of a run."""

    jobs: list[Job] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    days: float = 2.0
    scenario: Scenario = SCENARIO
    seed: int = 1

    def run(self) -> Run:
        """The run with these rows, attempts in order of end."""
        jobs = table(JOBS, len(self.jobs))
        for row, job in enumerate(self.jobs):
            _put(jobs, row, submit_ms=job.submit, work_ms=job.work, limit_ms=job.limit)
            for name in ("gpus", "qos", "user", "end_state"):
                getattr(jobs, name)[row] = getattr(job, name)
        ordered = sorted(
            self.attempts,
            key=lambda a: (a.end < 0, a.start < 0, a.end if a.end >= 0 else 0.0, a.job),
        )
        attempts = table(ATTEMPTS, len(ordered))
        nodes: list[int] = []
        end_of_time = self.days * 86_400
        for row, each in enumerate(ordered):
            job = self.jobs[each.job]
            eligible = job.submit if each.eligible is None else each.eligible
            _put(
                attempts, row, eligible_ms=eligible, start_ms=each.start, end_ms=each.end,
                productive_ms=each.productive, lost_ms=each.lost, init_ms=each.init,
                write_ms=each.write, signal_ms=each.signal,
            )  # fmt: skip
            for name in ("job", "attempt", "state", "failure", "preemptor"):
                getattr(attempts, name)[row] = getattr(each, name)
            attempts.gpus[row] = job.gpus
            attempts.node_offset[row] = len(nodes)
            attempts.node_count[row] = len(each.nodes)
            stop = end_of_time if each.end < 0 else each.end
            days = (stop - each.start) * len(each.nodes) / 86_400 if each.start >= 0 else 0.0
            known = each.expected_failures
            attempts.expected_failures[row] = 0.01 * days if known is None else known
            nodes += each.nodes
        failures = table(FAILURES, len(self.failures))
        for row, failure in enumerate(self.failures):
            _put(
                failures, row, time_ms=failure.time, detected_ms=failure.detected,
                out_ms=failure.out, repaired_ms=failure.repaired,
            )  # fmt: skip
            for name in ("node", "component", "kind", "blast", "permanent"):
                getattr(failures, name)[row] = getattr(failure, name)
        return Run(
            scenario=self.scenario,
            seed=self.seed,
            days=self.days,
            jobs=jobs,
            attempts=attempts,
            nodes=np.array(nodes, np.int32),
            failures=failures,
            events=100,
            seconds=0.5,
        )

    def but(self, **changes: Any) -> History:
        """The same with some fields changed."""
        return replace(self, **changes)


def _put(rows: Any, row: int, **seconds: float) -> None:
    for name, value in seconds.items():
        getattr(rows, name)[row] = round(value * 1000)


def known() -> History:
    """One of everything on 64 nodes of 8 GPUs within two days; jobs 1, 2 ... are rows 0, 1 ...

    - Job 1 (low, 256 GPUs) runs on nodes 0-31 until job 3 preempts it: a preemption of second order.
    - Job 2 (normal, 8 GPUs, node 32): the application dies of a failure of GPU memory, which the check
      sees 250 s later; it starts again and completes.
    - Job 3 (high, 192 GPUs, nodes 33-56) hangs from a failure of the link of node 40 until the check
      removes the node; it comes back on nodes 0-23 when job 1 has gone, and completes.
    - Job 4 (normal, 8 GPUs): node 57 falls silent; a long repair with a ticket; it completes elsewhere.
    - Job 5 (normal, 8 GPUs): node 58 is drained under it; it completes all the same.
    - On node 59, one GPU each: job 6 fails by itself, job 7 is cancelled, job 8 runs out of memory,
      job 9 out of time, job 10 is requeued by its user and completes; job 11 (2 GPUs) still runs.
    - Job 12 (512 GPUs) waits.
    """
    h = HOUR
    jobs = [
        Job(0.5, 256, 60 * h, limit=72 * h, qos=0, user=1),
        Job(1.25, 8, 8 * h),
        Job(2.0, 192, 28 * h, limit=48 * h, qos=2),
        Job(3.0, 8, 14 * h),
        Job(4.0, 8, 18 * h - 300 - 13.0),
        Job(5.0, 1, h - 300, user=2, end_state=State.FAILED),
        Job(6.0, 1, h - 300, end_state=State.CANCELLED),
        Job(7.0, 1, h - 300, end_state=State.OUT_OF_MEMORY),
        Job(8.0, 1, 9 * h, limit=2 * h),
        Job(9.0, 1, 3 * h),
        Job(100.0, 2, 400 * h, limit=168 * h),
        Job(200.0, 512, 4 * h),
    ]
    hung, kill = 10 * h + 200.0, 10 * h + 920.0
    failures = [
        Failure(4 * h + 0.7, 32, 0, Detected.HIGH, 4 * h + 250.3, 4 * h + 250.3, 6 * h),
        Failure(10 * h, 40, 1, Detected.HIGH, hung, hung, 12 * h),
        Failure(12 * h, 57, 2, Detected.SILENT, 12 * h + 300, 12 * h + 300, permanent=True),
        Failure(14 * h + 0.1, 58, 1, Detected.LOW, 14 * h + 60.1, 18 * h, 20 * h),
    ]
    attempts = [
        Attempt(
            0, 1, range(32), 10.0, kill, State.PREEMPTED, productive=10 * h + 610, init=300.0,
            preemptor=2, signal=kill - 600,
        ),
        Attempt(
            0, 2, range(32), 31 * h, state=State.RUNNING, eligible=kill + 120,
            productive=17 * h - 300, init=300.0,
        ),
        Attempt(
            1, 1, [32], 11.0, 4 * h + 0.7, State.FAILED, productive=3 * h, lost=h - 310.3, init=300.0,
            failure=0,
        ),
        Attempt(1, 2, [33 + 30], 5 * h, 10 * h + 300, eligible=4 * h + 120.7, productive=5 * h, init=300.0),
        Attempt(
            2, 1, range(33, 57), 12.0, hung, State.NODE_FAIL, productive=9 * h, lost=h - 112, init=300.0,
            failure=1,
        ),
        Attempt(2, 2, range(24), kill, 30 * h, eligible=hung + 120, productive=19 * h, init=300.0),
        Attempt(
            3, 1, [57], 13.0, 12 * h + 300, State.NODE_FAIL, productive=11 * h, lost=h - 13, init=300.0,
            failure=2,
        ),
        Attempt(3, 2, [60], 13 * h, 16 * h + 300, eligible=12 * h + 420, productive=3 * h, init=300.0),
        Attempt(4, 1, [58], 13.0, 18 * h, productive=18 * h - 313, init=300.0),
        Attempt(5, 1, [59], 14.0, h + 14, State.FAILED, productive=h - 300, init=300.0),
        Attempt(6, 1, [59], 15.0, h + 15, State.CANCELLED, productive=h - 300, init=300.0),
        Attempt(7, 1, [59], 16.0, h + 16, State.OUT_OF_MEMORY, productive=h - 300, init=300.0),
        Attempt(8, 1, [59], 17.0, 2 * h + 17, State.TIMEOUT, productive=2 * h - 300, init=300.0),
        Attempt(9, 1, [59], 18.0, 2 * h + 18, State.REQUEUED, productive=h, lost=h - 300, init=300.0),
        Attempt(9, 2, [59], 3 * h, 5 * h + 300, eligible=2 * h + 138, productive=2 * h, init=300.0),
        Attempt(10, 1, [59], 101.0, state=State.RUNNING, productive=47 * h, init=300.0),
        Attempt(11, 1, [], NEVER, state=State.PENDING),
    ]  # fmt: skip
    return History(jobs, attempts, failures)


def changed(run: Run, **parts: Any) -> Run:
    """The run with some of its parts replaced."""
    return replace(run, **parts)


def with_column(rows: Any, name: str, column: Any) -> Any:
    """The records with one column replaced."""
    made = rows.copy()
    made[name] = column
    return made
