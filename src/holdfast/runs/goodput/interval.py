"""How often the run fails, and the checkpoint interval that would have lost least.

The rate is the one given, else the fleet's, else the run's own. A run of less than an hour or with fewer
than two failures tells nothing of its failures: it gets no advice unless the rate is known from elsewhere.
The expected ETTR is that of `holdfast fleet ettr`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.fleet.checkpoint_interval import SECONDS_PER_DAY, optimal_checkpoint_interval
from holdfast.runs.goodput.attempts import AttemptAccount
from holdfast.runs.goodput.checkpoint_costs import CheckpointCosts
from holdfast.stats import poisson_interval

LEAST_FAILURES = 2
LEAST_S = 3600.0
"""A run with fewer failures or less time alive says too little of its failure rate for advice."""


@dataclass(frozen=True)
class FailureRate:
    """Failures per node and day that end the run, and where the number is from."""

    per_node_day: float
    low: float
    """The exact 95 % interval of a Poisson count (Garwood 1936); of a rate that was given, the rate."""
    high: float
    source: Literal["given", "fleet", "run"]
    failures: int | None
    """The count behind it; None for a rate that was given."""
    node_days: float | None

    def to_dict(self) -> dict[str, Any]:
        """The key ``failure_rate`` of the JSON."""
        return {
            "per_node_day": self.per_node_day,
            "ci95": [self.low, self.high],
            "source": self.source,
            "failures": self.failures,
            "node_days": self.node_days,
        }


@dataclass(frozen=True)
class BestInterval:
    """The checkpoint interval with the highest ETTR in the long run."""

    interval_s: float
    """Step time; at least a step and the time that a checkpoint takes in the background."""
    ci95_s: tuple[float, float | None]
    """At the ends of the failure rate's interval; None: never write."""
    steps: int
    """The same in steps of the run's mean length."""
    saved_s: float | None
    """Training time that it would have saved; None without checkpoints to compare with."""


def failure_rate(
    attempts: Sequence[AttemptAccount],
    *,
    rate_per_node_day: float | None = None,
    fleet: str | Path | None = None,
) -> FailureRate | None:
    """The failure rate: the one given, else the fleet's, else the run's own.

    Args:
        attempts: of the run.
        rate_per_node_day: failures per node and day, where the user knows it.
        fleet: a store of `holdfast.fleet`, or a log of node failures.

    Returns:
        The rate; None where the run lived for no time.
    """
    if rate_per_node_day is not None:
        rate = rate_per_node_day
        return FailureRate(rate, rate, rate, "given", None, None)
    if fleet is not None:
        from holdfast.fleet.failures import mttf

        model = mttf(fleet, min_gpus=0).model
        low, high = (end / 1000 for end in model.ci95_)
        rate = model.rate_per_1000_node_days_ / 1000
        return FailureRate(rate, low, high, "fleet", model.failures_, model.node_days_)
    node_days = node_seconds(attempts) / SECONDS_PER_DAY
    if node_days <= 0:
        return None
    failures = interruptions(attempts)
    low, high = poisson_interval(failures, node_days)
    return FailureRate(failures / node_days, low, high, "run", failures, node_days)


def best_interval(
    attempts: Sequence[AttemptAccount],
    checkpoints: CheckpointCosts,
    rate: FailureRate | None,
    step_s: float | None,
) -> BestInterval | None:
    """The best interval; None where the run cannot tell it.

    Args:
        attempts: of the run.
        checkpoints: what they cost.
        rate: of failures.
        step_s: mean length of a step; None without any.

    Raises:
        InputError: if the rate is invalid.

    Source: `holdfast.fleet.checkpoint_interval`; savings to first order, Young 1974, CACM 17(9).
    """
    if rate is None or not step_s:
        return None
    alive_s = math.fsum(each.end_s - each.begin_s for each in attempts)
    few = (rate.failures or 0) < LEAST_FAILURES or alive_s < LEAST_S
    nodes, write = mean_nodes(attempts), checkpoints.write_s
    # Checked in any case: a rate that is invalid is an error.
    best = optimal_checkpoint_interval(nodes, rate.per_node_day, write_s=write or 0.0)
    if best is None or write is None or (rate.source == "run" and few):
        return None
    least = max(step_s, checkpoints.background_s or 0.0)
    at_high, at_low = (
        optimal_checkpoint_interval(nodes, end, write_s=write) for end in (rate.high, rate.low)
    )
    best, at_high = max(best, least), max(at_high or 0.0, least)
    failures_per_s = nodes * rate.per_node_day / SECONDS_PER_DAY

    def lost(interval_s: float) -> float:
        """Share of the training time that goes to writes and replays."""
        return write / interval_s + failures_per_s * interval_s / 2

    saved = None
    if checkpoints.interval_s:
        trained_s = math.fsum(each.parts["productive"] for each in attempts)
        saved = max(trained_s * (lost(checkpoints.interval_s) - lost(best)), 0.0)
    ends = at_high, None if at_low is None else max(at_low, least)
    return BestInterval(best, ends, max(round(best / step_s), 1), saved)


def interruptions(attempts: Sequence[AttemptAccount]) -> int:
    """Number of attempts that did not end by themselves."""
    return sum(each.interrupted for each in attempts)


def node_seconds(attempts: Sequence[AttemptAccount]) -> float:
    """Seconds that attempts were alive, times their nodes."""
    return math.fsum(len(each.nodes) * (each.end_s - each.begin_s) for each in attempts)


def mean_nodes(attempts: Sequence[AttemptAccount]) -> float:
    """Nodes of the run: the mean over the time that its attempts were alive."""
    alive = math.fsum(each.end_s - each.begin_s for each in attempts)
    if alive <= 0:
        return float(max(len(each.nodes) for each in attempts))
    return node_seconds(attempts) / alive
