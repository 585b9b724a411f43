"""The expected ETTR by simulation: a check of the forms that shares no formula with them.

One start of the job lasts a gap G of running time until the next failure. Of it u0 is
initialisation and each further dt + w a kept checkpoint, so it keeps K = floor((G - u0) / (dt + w))
intervals and costs q + G. Gaps are independent: a restart begins a new gap, as if the failed part
had been replaced: the model of the exact form.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.fleet.ettr_forms import EttrParameters, FloatArray, ettr_of, intervals_of_run
from holdfast.stats import NORMAL_95

MOST_DRAWS = 200_000_000  # beyond it a set of runs counts as one that never ends


@dataclass(frozen=True)
class MonteCarloEttr:
    """A simulated expected ETTR."""

    ettr: float  # Ratio of the mean productive time to the mean wall time
    standard_error: float  # Of `ettr`, by the delta method
    replicas: int  # Starts (long run) or whole runs (finite productive time) that were simulated
    seed: int

    @property
    def ci95(self) -> tuple[float, float]:
        """Normal 95 % interval, cut to [0, 1]."""
        half = NORMAL_95 * self.standard_error
        return max(self.ettr - half, 0.0), min(self.ettr + half, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "ci95": list(self.ci95)}


def monte_carlo_ettr(
    parameters: EttrParameters,
    *,
    replicas: int = 100_000,
    seed: int = 0,
) -> MonteCarloEttr:
    """Simulate the expected ETTR of a job.

    Args:
        parameters: of the job; the mean gap between its failures is 1 / `failures_per_s`. Without
            `productive_s` the long run is simulated, else whole runs with their first start.
        replicas: starts (long run) or whole runs to simulate.
        seed: of the random numbers.

    Raises:
        InputError: runs that do not end.
    """
    if replicas < 2:
        raise InputError(
            "too few replicas", code="no-data", found=f"{replicas}", expected="2 or more"
        )
    if parameters.recovery_s is not None:
        remedy = "use the form exact"
        raise InputError(
            "recovery without rollback is not simulated",
            code="unsupported",
            remedy=f"{remedy}, or `holdfast fleet whatif`",
        )
    if parameters.failures_per_s == 0:
        return MonteCarloEttr(ettr_of(parameters), 0.0, replicas, seed)
    rng = np.random.default_rng(seed)
    play = _starts if parameters.productive_s is None else _runs
    # [replicas] each: a start, or a whole run, is one independent sample.
    productive, wall = play(parameters, rng, replicas)
    ratio = float(productive.sum() / wall.sum())
    # The error of a ratio of means by its linearisation (delta method): residuals have mean 0.
    spread = float(np.std(productive - ratio * wall, ddof=1))
    error = spread / math.sqrt(replicas) / float(wall.mean())
    return MonteCarloEttr(ratio, error, replicas, seed)


def _starts(
    p: EttrParameters, rng: np.random.Generator, count: int
) -> tuple[FloatArray, FloatArray]:
    """Kept productive time and wall time of `count` starts of a run without end."""
    # 1. A start lives until the next failure: exponential, [replicas].
    gap = rng.exponential(1 / p.failures_per_s, count)
    # 2. Whole intervals, each with its write, that fit behind the initialisation are kept; the rest is
    # lost.
    intervals = np.floor(np.maximum(gap - p.init_s, 0) / (p.checkpoint_interval_s + p.write_s))
    # 3. Each start waits in the queue first. ETTR is the ratio of the two sums (renewal-reward).
    return intervals * p.checkpoint_interval_s, gap + p.queue_s


def _runs(p: EttrParameters, rng: np.random.Generator, count: int) -> tuple[FloatArray, FloatArray]:
    """The same of `count` whole runs, each from its first submission to its last checkpoint."""
    # 1. The run as intervals: equal ones, each with a write behind it, and a shorter last one.
    needed = p.productive_s or 0.0
    before, last = intervals_of_run(needed, p.checkpoint_interval_s)
    segment = p.checkpoint_interval_s + p.write_s
    last_segment = last + p.write_s
    left = np.full(count, float(before))  # intervals still to do before the last one
    wall = np.zeros(count)
    # 5. Runs that lived long enough are done.
    active = np.arange(count)
    draws = 0
    while active.size:
        draws += active.size
        if draws > MOST_DRAWS:
            raise InputError(
                "the simulated runs do not end: almost no start lives to keep a checkpoint",
                code="damaged",
                found=f"{MOST_DRAWS} starts for {count - active.size} of {count} runs",
                remedy="use the form exact, a shorter checkpoint interval or a shorter run",
            )
        # 2. Every run still going starts again and lives for a gap, [active].
        gap = rng.exponential(1 / p.failures_per_s, active.size)
        # 3. It would end after initialisation and all that is left; what it takes is the shorter of the
        # two.
        need = p.init_s + left[active] * segment + last_segment
        wall[active] += p.queue_s + np.minimum(need, gap)
        # 4. Intervals whose write was done before the failure need not be computed again.
        intervals = np.floor(np.maximum(gap - p.init_s, 0) / segment)
        left[active] -= np.minimum(intervals, left[active])
        active = active[gap < need]
    return np.full(count, needed), wall
