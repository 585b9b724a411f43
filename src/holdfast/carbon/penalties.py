"""What a change of a workload's power costs it: convex penalties, measured or fitted.

A penalty is a sum of hinges and squares of the curtailment d (MW less than without a plan; negative:
more), so that a plan at least cost is a convex quadratic program with a provable optimum:

    C(d) = sum_t  b[t] max(B[t], 0) + q[t] d[t]^2 / 2 + sum_k w_k max(r_k[t] d[t] - knot_k, 0)
    B[t] = energy put off at the end of hour t: the running sum of d

Units: latency and throughput penalties in hours lost, batch penalties in job-hours of extra waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from holdfast.carbon.signals import FloatArray, refused

FEATURES = ("backlog_jobs", "backlog_energy", "squared", "curtailed_jobs", "backlog_late")
"""Of batch work, after Carbon Responder (arXiv 2311.08589); J: jobs that run, U: power.

backlog_jobs    sum max(cumsum(J d / U), 0)             job-hours put off
backlog_energy  sum max(cumsum(d), 0)                   MWh put off
squared         sum cumsum(J d^2 / U)
curtailed_jobs  sum J max(d, 0) / U
backlog_late    sum max(cumsum(J d / U), 0) of all hours that are followed by `slo_h` more
"""
Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Hinge:
    """One term w max(r d - knot, 0).

    Attributes:
        weight: penalty per unit above the knot and hour, >= 0.
        rate: [T] r, >= 0.
        knot: in units of r d.
        owed: MWh that must be spent later per unit above the knot: work that is late, not dropped.
    """

    weight: float
    rate: FloatArray
    knot: float = 0.0
    owed: float = 0.0

    def above(self, d: FloatArray) -> FloatArray:
        """[T] max(r d - knot, 0)."""
        return np.maximum(self.rate * d - self.knot, 0.0)


@dataclass(frozen=True)
class Penalty:
    """A penalty on T hours.

    Attributes:
        hinges: terms of each hour alone.
        backlog: [T] penalty per MWh that is put off at the end of each hour, >= 0.
        quadratic: [T] q of q d^2 / 2, >= 0.
    """

    hinges: tuple[Hinge, ...]
    backlog: FloatArray
    quadratic: FloatArray

    def hourly(self, d: FloatArray, due: float = 0.0) -> FloatArray:
        """[T] penalty of each hour.

        Args:
            d: [T] curtailment, MW.
            due: MWh put off before the first hour.
        """
        total = self.quadratic * d * d / 2
        total = total + self.backlog * np.maximum(due + np.cumsum(d), 0.0)
        for hinge in self.hinges:
            total = total + hinge.weight * hinge.above(d)
        return total

    def value(self, d: FloatArray, due: float = 0.0) -> float:
        """The penalty of a curtailment; arguments as of `hourly`."""
        return float(self.hourly(d, due).sum())

    def first(self, hours: int) -> Penalty:
        """Its first hours."""
        hinges = tuple(replace(hinge, rate=hinge.rate[:hours]) for hinge in self.hinges)
        return Penalty(hinges, self.backlog[:hours], self.quadratic[:hours])

    def owed(self, d: FloatArray) -> FloatArray:
        """[T] MWh that the work lost in each hour needs later."""
        none = np.zeros(len(d))
        return sum((hinge.owed * hinge.above(d) for hinge in self.hinges if hinge.owed), none)


def batch_penalty(
    weights: Mapping[str, float], jobs_per_mw: float, hours: int, slo_h: int
) -> Penalty:
    """The penalty of batch work from the weights of its features.

    Args:
        weights: of `FEATURES`, >= 0.
        jobs_per_mw: jobs that run per MW, J / U.
        hours: T.
        slo_h: hours that the backlog of an hour may stand before it counts in `backlog_late`.
    """
    w = [weights.get(name, 0.0) for name in FEATURES]
    left = hours - np.arange(hours)  # [T] hours from each hour on, itself included
    hinges = (Hinge(w[3], np.full(hours, jobs_per_mw)),) if w[3] else ()
    backlog = np.array((w[0] + w[4] * (left > slo_h)) * jobs_per_mw + w[1], np.float64)
    # The running sum of what is never negative: each hour counts in all that follow.
    return Penalty(hinges, backlog, np.array(2 * w[2] * left * jobs_per_mw, np.float64))


def segments(curve: Curve) -> list[tuple[float, float]]:
    """(knot, increase of slope) of a convex curve through points; before the first it is 0.

    Raises:
        InputError: ``not-convex``, with the point at which the slope falls.
    """
    points = sorted((float(x), float(y)) for x, y in curve)
    if points and points[0] != (0.0, 0.0):
        points.insert(0, (0.0, 0.0))
    found, slope = [], 0.0
    for (x0, y0), (x1, y1) in pairwise(points):
        rise = (y1 - y0) / max(x1 - x0, 1e-12)
        if rise < slope - 1e-9:
            problem, place = "the penalty curve is not convex", f"curve at {x0:g}"
            expected = "slopes that never fall, from (0, 0) on"
            raise refused(problem, "not-convex", None, place, f"{slope:.4g}, {rise:.4g}", expected)
        if rise > slope:
            found.append((x0, rise - slope))
            slope = rise
    return found


def lost_throughput(curve: Curve) -> list[tuple[float, float]]:
    """(share of power curtailed, share of throughput lost) of measured (watts, throughput).

    Points above the lower convex hull of the losses are left out: a job can alternate between two
    power limits, and so has every point between them.

    Raises:
        InputError: ``invalid-value`` for fewer than two powers, or powers or throughputs of 0.
    """
    points = sorted((float(watts), float(rate)) for watts, rate in curve)
    if len(points) < 2 or min(map(min, points)) <= 0 or points[0][0] == points[-1][0]:
        problem = "a throughput curve needs two powers, and throughputs above 0"
        raise refused(problem, "invalid-value", None, "curve", str(points)[:100])
    most, full = points[-1]
    hull: list[tuple[float, float]] = []
    for watts, rate in reversed(points):
        x, y = 1 - watts / most, 1 - rate / full
        # A point above the line from the one before it to the next is on no hull.
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (
            y - hull[-2][1]
        ) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((x, y))
    return hull
