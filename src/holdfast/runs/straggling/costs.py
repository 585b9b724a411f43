"""What waiting for the slowest rank costs.

In a step all ranks wait for the slowest. Were it as fast as the median rank, the step would be shorter
by max - median; all GPUs of the run pay for that, so its cost is (max - median) x GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.runs.straggling.delays import Delays
from holdfast.runs.straggling.matrix import Floats, StepMatrix

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Costs:
    """GPU-hours, of all GPUs of the run."""

    by_rank: Floats
    """[R] (max - median) x GPUs of the steps in which the rank was the slowest; ranks that tie share."""
    by_step: Floats
    """[S] (max - median) x GPUs."""
    recoverable: Floats
    """[R] what the run would save if this rank were never slower than the slowest other one."""
    worked: float
    """max x GPUs over all steps: what the run pays for own time at all."""
    slowest: npt.NDArray[np.intp]
    """[S] the (first) slowest rank of each step."""

    @property
    def total(self) -> float:
        """The sum over steps, and over ranks."""
        return float(self.by_step.sum())


def costs(matrix: StepMatrix, delays: Delays) -> Costs:
    """The cost of every step and rank."""
    per_second = float(matrix.gpus.sum()) / SECONDS_PER_HOUR
    late_by = delays.late_by_s
    steps = np.arange(late_by.shape[1])
    # 1. All wait for the slowest rank of each step, [S].
    slowest = late_by.argmax(axis=0)
    most = late_by[slowest, steps].astype(np.float64)
    by_step = most * per_second
    # 2. Its cost is its rank's; ranks that tie share it, [R].
    tied = late_by == late_by.max(axis=0)
    by_rank = tied @ (by_step / tied.sum(axis=0))
    # 3. Without this rank the step would wait for the second slowest: only the difference is recoverable.
    second = np.partition(late_by, -2, axis=0)[-2].astype(np.float64)
    recoverable = np.zeros(late_by.shape[0])
    np.add.at(recoverable, slowest, (most - second) * per_second)
    worked = float((delays.step_s + most).sum()) * per_second
    return Costs(by_rank, by_step, recoverable, worked, slowest)


def recoverable_together(
    matrix: StepMatrix, delays: Delays, members: npt.NDArray[np.bool_]
) -> float:
    """GPU-hours that the run would save if no member were slower than the slowest other rank.

    Args:
        matrix: the own times.
        delays: their delays.
        members: [R] which ranks; not all of them.
    """
    if not members.any() or members.all():
        return 0.0
    most = delays.late_by_s.max(axis=0)
    others = delays.late_by_s[~members].max(axis=0)
    saved = float((most - others).sum(dtype=np.float64))
    return saved * float(matrix.gpus.sum()) / SECONDS_PER_HOUR
