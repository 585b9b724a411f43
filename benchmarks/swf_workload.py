"""Random batch workloads and the Standard Workload Format (SWF) that other simulators read.

SWF has one line of 18 numbers a job, -1 where unknown, after comment lines that start with ";":
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.fleet.simulation.engine import Run
from holdfast.fleet.simulation.records import JOBS, Records, State, table
from holdfast.fleet.simulation.scenario import (
    Checkpoint,
    Cluster,
    Qos,
    Scenario,
    Scheduler,
    Size,
)
from holdfast.fleet.simulation.scenario import Workload as Arrivals

Integers = npt.NDArray[np.int64]


DAY_MS = 86_400_000


@dataclass(frozen=True)
class Workload:
    """Jobs in order of submission on a machine of equal processors; times are whole numbers of any unit."""

    processors: int
    """Of the machine."""
    submit: Integers
    """Time of submission, from 0, not falling."""
    size: Integers
    """Processors that each job needs."""
    runtime: Integers
    """How long it runs if nothing stops it, at least 1."""
    limit: Integers
    """The limit its user asked for, at least `runtime`."""

    def __len__(self) -> int:
        return len(self.submit)


def random_workload(
    jobs: int,
    processors: int,
    load: float,
    seed: int,
    *,
    exact_limits: float = 0.2,
    ties: float = 0.2,
    full_machine: float = 0.01,
    mean_runtime: float = 3600.0,
) -> Workload:
    """A workload with what makes scheduling hard.

    Args:
        jobs: how many.
        processors: of the machine.
        load: work submitted over what the machine can do in that time; above 1 the queue grows.
        seed: of the random numbers.
        exact_limits: share of jobs whose limit is their runtime.
        ties: share of jobs submitted at the same moment as the job before.
        full_machine: share of jobs that need every processor.
        mean_runtime: of all jobs; the larger, the fewer end at one moment.
    """
    rng = np.random.default_rng(seed)
    size = 2 ** rng.integers(0, int(np.log2(processors)) + 1, jobs)
    odd = rng.random(jobs) < 0.25
    size[odd] = rng.integers(1, processors + 1, odd.sum())
    size = np.minimum(
        size, np.maximum(1, (processors * rng.random(jobs) ** 2).astype(np.int64) + 1)
    )
    size[rng.random(jobs) < full_machine] = processors
    spread = 1.5  # of the logarithm of the runtime
    runtime = rng.lognormal(np.log(mean_runtime) - spread**2 / 2, spread, jobs)
    runtime = np.maximum(1, runtime.astype(np.int64))
    factor = 1 + rng.exponential(2.0, jobs)
    factor[rng.random(jobs) < exact_limits] = 1
    limit = np.maximum(runtime, (runtime * factor).astype(np.int64))
    gap = rng.exponential(1.0, jobs)
    gap[rng.random(jobs) < ties] = 0
    gap[0] = 0
    span = (size * runtime).sum() / (processors * load)
    submit = np.floor(np.cumsum(gap) / max(gap.sum(), 1e-9) * span).astype(np.int64)
    return Workload(processors, submit, size.astype(np.int64), runtime, limit)


def write_swf(workload: Workload, path: Path) -> None:
    """Write a workload as SWF; job numbers count from 1."""
    lines = [
        "; Version: 2.2",
        f"; MaxJobs: {len(workload)}",
        f"; MaxRecords: {len(workload)}",
        "; UnixStartTime: 0",
        "; TimeZoneString: UTC",
        f"; MaxNodes: {workload.processors}",
        f"; MaxProcs: {workload.processors}",
    ]
    columns = (workload.submit, workload.size, workload.runtime, workload.limit)
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True), 1):
        submit, size, runtime, limit = row
        lines.append(
            f"{number} {submit} -1 {runtime} {size} -1 -1 {size} {limit} -1 1 1 1 1 1 1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


# --- The same for holdfast: a millisecond is the unit of time ------------------------------------


def machine(processors: int, *, backfill: bool) -> Scenario:
    """A machine on which nothing but the scheduling counts.

    Each processor is a node of one GPU; nothing fails, nothing is preempted, jobs neither initialise nor
    write checkpoints, and after every event the whole queue is looked at.
    """
    far = 36_500 * 86_400.0
    return Scenario(
        name="batch",
        cluster=Cluster(processors, gpus_per_node=1, nodes_per_rack=1, nodes_per_pod=processors),
        qos=(Qos("all", 1),),
        workload=Arrivals(jobs_per_day=1.0, sizes=(Size(1, 1.0, 1.0),)),
        scheduler=Scheduler(
            policy="easy" if backfill else "fcfs",
            interval_s=0.0,
            depth=0,
            preemption=False,
            time_limit_s=far,
        ),
        checkpoint=Checkpoint(interval_s=far, write_s=0.0, init_s=0.0),
    )


def jobs_of(workload: Workload) -> Records:
    """The jobs as the simulator takes them."""
    return table(
        JOBS,
        len(workload),
        submit_ms=workload.submit,
        gpus=workload.size,
        work_ms=workload.runtime,
        limit_ms=workload.limit,
        end_state=State.COMPLETED,
    )


def days_for(workload: Workload) -> float:
    """Days in which the jobs have surely ended: even if no two of them ran at once."""
    return (int(workload.submit[-1]) + int(workload.runtime.sum()) + 1) / DAY_MS


def starts_of(made: Run) -> Integers:
    """When each job started; every job must have run exactly once."""
    attempts = made.attempts
    if not (np.sort(attempts.job) == np.arange(len(made.jobs.gpus))).all():
        raise ValueError("a job did not run exactly once")
    starts = np.empty(len(attempts.job), np.int64)
    starts[attempts.job] = attempts.start_ms
    return starts
