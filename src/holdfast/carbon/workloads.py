"""Workloads: their power hour by hour, the limits within which it can move, what moving it costs.

A penalty is a sum of hinges and squares of the curtailment d (MW less than without a plan; negative:
more), so that a plan at least cost is a convex quadratic program with a provable optimum:

    C(d) = sum_t  b[t] max(B[t], 0) + q[t] d[t]^2 / 2 + sum_k w_k max(r_k[t] d[t] - knot_k, 0)
    B[t] = energy put off at the end of hour t: the running sum of d

Units: latency and throughput penalties in hours lost, batch penalties in job-hours of extra waiting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast.carbon.formats import instants, read_records
from holdfast.carbon.signals import HOUR_S, FloatArray, refused
from holdfast.config import read_config

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

    def value(self, d: FloatArray, due: float = 0.0) -> float:
        """The penalty of a curtailment.

        Args:
            d: [T] curtailment, MW.
            due: MWh put off before the first hour.
        """
        total = float((self.quadratic * d * d).sum()) / 2
        total += float(self.backlog @ np.maximum(due + np.cumsum(d), 0.0))
        return total + sum(hinge.weight * float(hinge.above(d).sum()) for hinge in self.hinges)

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
    left = np.arange(hours, 0.0, -1.0)  # [T] hours from each hour on, itself included
    hinges = (Hinge(w[3], np.full(hours, jobs_per_mw)),) if w[3] else ()
    backlog = (w[0] + np.where(left > slo_h, w[4], 0.0)) * jobs_per_mw + w[1]
    # The running sum of what is never negative: each hour counts in all that follow.
    return Penalty(hinges, backlog, 2.0 * w[2] * left * jobs_per_mw)


def segments(curve: Curve) -> list[tuple[float, float]]:
    """(knot, increase of slope) of a convex curve through points; before the first it is 0.

    Raises:
        InputError: ``not-convex``, with the point at which the slope falls.
    """
    points = sorted((float(x), float(y)) for x, y in curve)
    if points and points[0] != (0.0, 0.0):
        points.insert(0, (0.0, 0.0))
    pieces, slope = [], 0.0
    for (x0, y0), (x1, y1) in pairwise(points):
        rise = (y1 - y0) / max(x1 - x0, 1e-12)
        if rise < slope - 1e-9:
            problem, place = "the penalty curve is not convex", f"curve at {x0:g}"
            expected = "slopes that never fall, from (0, 0) on"
            raise refused(problem, "not-convex", None, place, f"{slope:.4g}, {rise:.4g}", expected)
        if rise > slope:
            pieces.append((x0, rise - slope))
            slope = rise
    return pieces


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


@dataclass(frozen=True)
class WorkloadSpec:
    """One table ``[workloads.NAME]`` of a penalties file.

    Attributes:
        kind: batch: energy is moved in time; online: less power means latency; training: less
            throughput.
        flex: largest share of its power that can be curtailed (default: that of the plan).
        max_power: MW that it can draw at most (default: no limit but the site's).
        entitlement: its weight in fair policies (default: its energy in MWh).
        jobs: batch, training: jobs that run at mean power.
        slo_h: batch: hours of `backlog_late`.
        weights: batch: feature -> weight. ``{"backlog_jobs": 1.0}``: an hour that a job waits costs one.
        curve: online: (share of power curtailed, penalty per hour). training: (watts, throughput); the
            throughput at the largest power is that without a plan.
        scale: multiplies the penalty, to bring workloads to one currency.
    """

    kind: Literal["batch", "online", "training"] = "batch"
    flex: float | None = None
    max_power: float | None = None
    entitlement: float | None = None
    jobs: float = 1.0
    slo_h: int = 24
    weights: dict[str, float] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    scale: float = 1.0


@dataclass(frozen=True)
class Workload:
    """A load with its limits and penalty; `power` [H] is in MW, without a plan."""

    name: str
    power: FloatArray
    spec: WorkloadSpec = WorkloadSpec()

    def __post_init__(self) -> None:
        """Make floats of whole numbers, which would be cut down or wrap around."""
        object.__setattr__(self, "power", np.asarray(self.power, np.float64))

    @property
    def costs(self) -> bool:
        """Whether any curtailment has a penalty."""
        return bool(any(self.spec.weights.values()) or self.spec.curve) and self.spec.scale > 0

    @property
    def curve(self) -> Curve:
        """(share of power curtailed, loss), of work that is not batch."""
        training = self.spec.kind == "training"
        return lost_throughput(self.spec.curve) if training else self.spec.curve

    def flex(self, default: float) -> float:
        """Largest share of its power that can be curtailed: as stated, and no further than measured."""
        stated = default if self.spec.flex is None else self.spec.flex
        if self.spec.kind == "batch":
            return stated
        return min(stated, max(share for share, _ in self.curve))

    def penalty(self, hours: slice) -> Penalty:
        """Its penalty on some of its hours."""
        spec, power = self.spec, self.power[hours]
        mean, none = max(float(self.power.mean()), 1e-12), np.zeros(len(power))
        if spec.kind == "batch":
            scaled = {name: spec.scale * weight for name, weight in spec.weights.items()}
            return batch_penalty(scaled, spec.jobs / mean, len(power), spec.slo_h)
        share = 1.0 / np.where(power > 0, power, np.inf)
        # The hours of training that are lost are run later, at mean power.
        jobs, owed = (spec.jobs, mean) if spec.kind == "training" else (1.0, 0.0)
        hinges = [
            Hinge(spec.scale * jobs * slope, share, knot, owed * slope)
            for knot, slope in segments(self.curve)
        ]
        return Penalty(tuple(hinges), none, none)


@dataclass(frozen=True)
class Load:
    """The power of workloads, hour by hour; without a start, of the hours of the signal."""

    workloads: tuple[Workload, ...]
    start_s: int | None = None
    source: str = ""

    @property
    def hours(self) -> int:
        """Number of hours."""
        return len(self.workloads[0].power)


def read_load(path: str | Path, *, timezone: str = "", penalties: str | Path | None = None) -> Load:
    """A load from a CSV file: a column of times, then one of MW per workload.

    The times are hours, in order and without gaps.

    Args:
        path: the file, plain or compressed.
        timezone: IANA name of the zone of times that state none.
        penalties: a file for `read_penalties`; without it, work is moved at no cost.

    Raises:
        InputError: with the line.
    """
    records = read_records(Path(path))
    names = records.columns[1:]
    if not names or len(set(records.columns)) < len(records.columns):
        expected = "a column of times, then one column of MW per workload"
        raise refused("not a load", "missing-column", path, "line 1", None, expected)
    for name in names:
        if re.search(r"[\s_(\[]([kK][wW][hH]?|G?Wh?)(?![A-Za-z])", name):
            expected = "MW; convert the column, and leave the unit out of its name"
            raise refused("not a power in MW", "invalid-value", path, "line 1", name, expected)
    places, times = records.places, records.column(records.columns[0])
    moments = instants(records.path, times, places, timezone)
    for n in np.flatnonzero(np.diff(moments) != HOUR_S)[:1] + 1:
        problem, found = "hours must follow each other", f"{times[n]} after {times[n - 1]}"
        raise refused(problem, "invalid-value", path, places[n], found, "one row per hour")
    power = np.array([records.numbers(name) for name in names]).T
    for row, column in np.argwhere(~((power >= 0) & (power < np.inf)))[:1]:
        found = records.rows[row][1][names[column]] or "nothing"
        raise refused("not a power", "invalid-value", path, places[row], found, "MW, at least 0")
    specs = {} if penalties is None else read_penalties(penalties, names)
    workloads = [
        Workload(name, mw, specs.get(name, WorkloadSpec()))
        for name, mw in zip(names, power.T, strict=True)
    ]
    return Load(tuple(workloads), int(moments[0]), str(path))


@dataclass(frozen=True)
class PenaltiesFile:
    """All tables of a penalties file."""

    workloads: dict[str, WorkloadSpec]


def read_penalties(path: str | Path, names: Sequence[str]) -> dict[str, WorkloadSpec]:
    """The workloads of a penalties file (TOML or JSON): ``[workloads.NAME]``, as `WorkloadSpec`.

    Args:
        path: the file.
        names: workloads of the load; others in the file are an error, those not in it cost nothing.

    Raises:
        InputError: with the key.
    """
    specs = read_config(Path(path), PenaltiesFile, "the penalties").workloads
    for name, spec in specs.items():
        place = f"workloads.{name}"
        if name not in names:
            raise refused("no such workload", "no-match", path, place, name, ", ".join(names))
        for feature, weight in spec.weights.items():
            if feature not in FEATURES:
                known = ", ".join(FEATURES)
                raise refused("unknown feature", "unknown-name", path, place, feature, known)
            if weight < 0:
                found = f"{feature} {weight:g}"
                problem = "a weight below 0 makes the penalty non-convex"
                raise refused(problem, "not-convex", path, place, found, "at least 0")
        if spec.kind != "batch" and not spec.curve:
            problem = f"{spec.kind} work without a penalty curve would be dropped for nothing"
            raise refused(problem, "missing-key", path, f"{place}.curve")
    return specs
