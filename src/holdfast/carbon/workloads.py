"""Workloads: their power hour by hour, the limits within which it can move, what moving it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast.carbon.formats import instants, read_records
from holdfast.carbon.penalties import (
    FEATURES,
    Hinge,
    Penalty,
    batch_penalty,
    lost_throughput,
    segments,
)
from holdfast.carbon.signals import HOUR_S, FloatArray, refused
from holdfast.config import read_config


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
        weights: batch: feature -> weight, as `holdfast carbon fit-penalty` writes them.
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

    @property
    def costs(self) -> bool:
        """Whether any curtailment has a penalty."""
        return bool(any(self.spec.weights.values()) or self.spec.curve) and self.spec.scale > 0

    def flex(self, default: float) -> float:
        """Largest share of its power that can be curtailed: as stated, and no further than measured."""
        stated = default if self.spec.flex is None else self.spec.flex
        if self.spec.kind == "batch":
            return stated
        training = self.spec.kind == "training"
        curve = lost_throughput(self.spec.curve) if training else self.spec.curve
        return min(stated, max(share for share, _ in curve))

    def penalty(self, hours: slice) -> Penalty:
        """Its penalty on some of its hours."""
        spec, power = self.spec, self.power[hours]
        mean, none = max(float(self.power.mean()), 1e-12), np.zeros(len(power))
        if spec.kind == "batch":
            scaled = {name: spec.scale * weight for name, weight in spec.weights.items()}
            return batch_penalty(scaled, spec.jobs / mean, len(power), spec.slo_h)
        share = np.divide(1.0, power, out=none.copy(), where=power > 0)
        if spec.kind == "online":
            curve, weight, owed = spec.curve, spec.scale, 0.0
        else:  # the hours of training that are lost are run later, at mean power
            curve, weight, owed = lost_throughput(spec.curve), spec.scale * spec.jobs, mean
        hinges = [
            Hinge(weight * slope, share, knot, owed * slope) for knot, slope in segments(curve)
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

    The times are hours, in order and without gaps, or numbers that count hours (0, 1, 2 ...).

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
    places = [place for place, _ in records.rows]
    times = [cells[records.columns[0]] for _, cells in records.rows]
    counted = all(text.isdigit() for text in times)
    moments = (
        HOUR_S * np.array([int(text) for text in times])
        if counted
        else instants(records.path, times, places, timezone)
    )
    for n in np.flatnonzero(np.diff(moments) != HOUR_S)[:1] + 1:
        problem, found = "hours must follow each other", f"{times[n]} after {times[n - 1]}"
        raise refused(problem, "invalid-value", path, places[n], found, "one row per hour")
    power = np.array([[records.number(p, cells[n]) for n in names] for p, cells in records.rows])
    for row, column in np.argwhere(~((power >= 0) & (power < np.inf)))[:1]:
        found = records.rows[row][1][names[column]] or "nothing"
        raise refused("not a power", "invalid-value", path, places[row], found, "MW, at least 0")
    specs = {} if penalties is None else read_penalties(penalties, names)
    workloads = [
        Workload(name, mw, specs.get(name, WorkloadSpec()))
        for name, mw in zip(names, power.T, strict=True)
    ]
    return Load(tuple(workloads), None if counted else int(moments[0]), str(path))


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
