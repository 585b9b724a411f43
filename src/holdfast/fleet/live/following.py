"""What became of nodes after a moment, beside matched nodes at the same time.

**Matched.** The nodes of the same kind to which the same was not done in the time before, with about as
much exposure then (half to twice as many node-days; all of them where these are few). Their own future
chooses none of them, so that a fleet without bad nodes shows no gain. A rule sees failures up to its
moment and is judged by those after it: regression to the mean, the trap of before and after, is in
neither. Actions are matched by history too: a node is repaired because it failed, so it is held against
nodes that failed as often and were left alone.

**Intervals.** Failures of one reason (a cluster of `holdfast.fleet.incidents`) are one event; sums of
them have the interval of Fay and Feuer (1997), differences of two that of Zou and Donner (2008,
Statistics in Medicine 27).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holdfast.fleet.failure_model import weighted_poisson_interval
from holdfast.fleet.live.rules import History
from holdfast.stats import FloatArray

FEWEST = 5  # Matched nodes below which all that qualify are taken
ALIKE = 2.0  # Exposure of a matched node, at most so many times larger or smaller
FAILED = 0.5  # Blame from which a node failed again


class Amount(NamedTuple):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def __sub__(self, other: Amount) -> Amount:
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        value = self.value - other.value
        return Amount(value, value - below, value + above)

    def scaled(self, factor: float) -> Amount:
        """In another unit."""
        return Amount(*(each * factor for each in self))


@dataclass(frozen=True)
class Followed:
    """Nodes after their moments, all together."""

    failures: Amount
    matched_failures: Amount  # That as much time on matched nodes had
    hours: Amount  # Lost in those failures and out of service after them
    matched_hours: Amount
    node_days: float
    before: float | None  # Failures per node-day in as long a time before, of those with a match
    full: int  # Nodes that were followed all the time; of them ...
    again: int  # ... failed again
    matched_again: float | None  # Share of the matched nodes that failed in that time
    unmatched: int  # Nodes without any matched one


def follow(
    past: History,
    done: Sequence[tuple[int, float, float]],
    horizon_s: float,
    hours_out: FloatArray | float = 0.0,
    *,
    by_history: bool = False,
) -> Followed:
    """Count what happened to nodes after something was done to them.

    Args:
        past: the log.
        done: place of the node, when it was done, and when it was over, so that following begins; in
            order of time.
        horizon_s: for how long nodes are followed, at most.
        hours_out: for which a failure takes each node away, beside the work that it loses, shape (nodes,).
        by_history: match only nodes that failed as often in the time before.
    """
    log = past.log
    kinds = past.kinds
    place, blame, hours = (past.incidents[k].to_numpy() for k in ("place", "blame", "hours"))
    hours = hours + (np.zeros(len(kinds)) + hours_out)[place]
    own, matched = np.zeros((2, place.size))  # weight of each incident on either side
    days = before = used_before = 0.0
    full = again = unmatched = 0
    shares, parts = [], []
    last = np.full(len(kinds), -np.inf)  # when it was last done to each node
    for node, begin_s, end_s in done:
        until = min(end_s + horizon_s, past.end_s)
        # The check that fired, or the failure that was seen, is no failure after it.
        rows = past.between(end_s + log.assumptions.check_before_s, until)
        used = past.used(until) - past.used(end_s)
        earlier = past.used(begin_s) - past.used(begin_s - horizon_s)
        failed = np.bincount(place[rows], blame[rows], len(kinds))
        ago = past.between(begin_s - horizon_s, begin_s)
        history = np.bincount(place[ago], blame[ago], len(kinds))
        last[node] = begin_s
        fit = (kinds == kinds[node]) & (used > 0) & (last <= begin_s - horizon_s)
        if by_history:
            fit &= np.abs(history - history[node]) < FAILED
        near = fit & (earlier <= ALIKE * earlier[node]) & (earlier >= earlier[node] / ALIKE)
        fit = near if near.sum() >= FEWEST else fit
        if not fit.any():
            unmatched += 1
            continue
        before += history[node]
        used_before += earlier[node]
        mine = place[rows] == node
        own[rows] += mine
        parts.append(float(used[node] / used[fit].sum()))
        matched[rows] += fit[place[rows]] * parts[-1]
        days += used[node]
        if until == end_s + horizon_s:
            full += 1
            again += int(failed[node] >= FAILED)
            shares.append(float(np.mean(failed[fit] >= FAILED)))
    part = float(np.mean(parts)) if parts else 1.0
    each_h = float(hours.mean()) if hours.size else 1.0
    return Followed(
        _sum(past, own * blame, 1.0),
        _sum(past, matched * blame, part),
        _sum(past, own * blame * hours, each_h),
        _sum(past, matched * blame * hours, part * each_h),
        days,
        float(before / used_before) if used_before else None,
        full,
        again,
        float(np.mean(shares)) if shares else None,
        unmatched,
    )


def _sum(past: History, weights: FloatArray, usual: float) -> Amount:
    """A sum over incidents, those of one cluster together; of none, with the weight of a usual one."""
    _, cluster = np.unique(past.incidents["cluster"].to_numpy(), return_inverse=True)
    sums = np.bincount(cluster, weights)
    sums = sums[sums > 0]
    if not sums.size:
        return Amount(0.0, 0.0, weighted_poisson_interval([])[1] * usual)
    return Amount(float(sums.sum()), *weighted_poisson_interval(sums))
