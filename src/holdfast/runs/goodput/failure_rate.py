"""How often the nodes of a run fail: said, known from the fleet's log, or counted in the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.fleet.checkpoint_interval import SECONDS_PER_DAY
from holdfast.runs.goodput.attempts import AttemptAccount
from holdfast.stats import poisson_interval


@dataclass(frozen=True)
class FailureRate:
    """Failures per node and day that end the run, and where the number is from."""

    per_node_day: float
    low: float
    """The exact 95 % interval of a Poisson count (Garwood 1936); of a rate that was said, the rate."""
    high: float
    source: Literal["given", "fleet", "run"]
    failures: int | None
    """The count behind it; None for a rate that was said."""
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


def failure_rate(
    attempts: Sequence[AttemptAccount],
    *,
    rate_per_node_day: float | None = None,
    fleet: str | Path | None = None,
) -> FailureRate | None:
    """The rate to reckon with: the one given, else the fleet's, else the run's own.

    Args:
        attempts: of the run.
        rate_per_node_day: failures per node and day, where the user knows it.
        fleet: a store of `holdfast.fleet`, or a log of node failures.

    Returns:
        The rate; None where the run lived for no time.
    """
    if rate_per_node_day is not None:
        return FailureRate(
            rate_per_node_day, rate_per_node_day, rate_per_node_day, "given", None, None
        )
    if fleet is not None:
        from holdfast.fleet.failures import mttf

        model = mttf(fleet, min_gpus=0).model
        low, high = model.ci95_
        return FailureRate(
            model.rate_per_1000_node_days_ / 1000,
            low / 1000,
            high / 1000,
            "fleet",
            model.failures_,
            model.node_days_,
        )
    node_days = node_seconds(attempts) / SECONDS_PER_DAY
    if node_days <= 0:
        return None
    failures = interruptions(attempts)
    low, high = poisson_interval(failures, node_days)
    return FailureRate(failures / node_days, low, high, "run", failures, node_days)


def interruptions(attempts: Sequence[AttemptAccount]) -> int:
    """Attempts that did not end by themselves."""
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
