"""Random batch workloads and the Standard Workload Format (SWF) that other simulators read.

SWF has one line of 18 numbers a job, -1 where unknown, after comment lines that start with ";":
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """Jobs in order of submission on a machine of equal processors; times are whole seconds."""

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
        mean_runtime: seconds.
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
