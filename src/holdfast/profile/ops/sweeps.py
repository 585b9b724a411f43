"""What a larger input costs: a profile per size, and the exponent that FLOPs, bytes and memory follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.answer import Answer, ColumnFormat, Section, Unknown, Value
from holdfast.numbers import brief, size
from holdfast.profile.ops.profiling import profile
from holdfast.profile.ops.result import OpProfile
from holdfast.profile.ops.roofline import grouped
from holdfast.profile.ops.running import Workload
from holdfast.profile.ops.sections import log_lines, section
from holdfast.profile.ops.targets import refused

_KIND = "attention_implementation"


@dataclass(frozen=True)
class Sweep(Answer):
    """Profiles of one model at several sizes and with several implementations of attention.

    Attributes:
        over: The setting that varies.
        points: One per value and implementation: totals, FLOPs per class and kind of attention, on cpu
            seconds.
        exponents: Per implementation and figure: exponent and its 95 % interval.
    """

    name: str
    over: str
    device: str
    points: list[dict[str, Any]]
    exponents: list[dict[str, Any]]
    notes: list[str]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"{self.name} over {self.over}"

    def values(self) -> Sequence[Value]:
        """Totals at every point."""
        return [
            Value(f"{what}_{row[_KIND]}_{row['value']}", row[what], unit, better="lower")
            for row in self.points
            for what, unit in (("flops", "FLOP"), ("bytes", "bytes"), ("peak_bytes", "bytes"))
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Target, setting, device."""
        values = ", ".join(dict.fromkeys(str(row["value"]) for row in self.points))
        return [("model", self.name), (self.over, values), ("device", self.device)]

    def unknowns(self) -> Sequence[Unknown]:
        """What was assumed."""
        return [Unknown(note) for note in self.notes]

    def sections(self) -> Sequence[Section]:
        """Growth, and implementations of attention side by side."""
        kinds = list(dict.fromkeys(row[_KIND] for row in self.points))
        growth = self._growth(kinds[0])
        return [growth] if len(kinds) == 1 else [growth, self._implementations(kinds)]

    def _growth(self, kind: str) -> Section:
        points = [row for row in self.points if row[_KIND] == kind]
        fitted = [row for row in self.exponents if row[_KIND] == kind]
        slopes = {row["figure"]: row["exponent"] for row in fitted}
        labels = {
            "flops": "FLOPs grow",
            "flops_attention": "those of attention",
            "peak_bytes": "peak memory",
        }
        parts = [
            f"{label} as {self.over}^{slopes[name]:.2f}"
            for name, label in labels.items()
            if name in slopes
        ]
        first, last = points[0]["value"], points[-1]["value"]
        sentence = f"From {self.over} {first} to {last}: {', '.join(parts) or 'no change'}."
        drawn = [
            {"value": row["value"], "class": name.removeprefix("flops_"), "gflop": row[name] / 1e9}
            for row in points
            for name in row
            if name.startswith("flops_") and row[name]
        ]
        return section(
            "growth",
            "How does it grow?",
            sentence,
            fitted,
            "figure exponent",
            log_lines(drawn, "value", "gflop", self.over, "Matrix FLOPs (GFLOP)", "class"),
            forms={"exponent": ColumnFormat("Exponent", digits=2, interval=("low", "high"))},
            formula=f"log figure = a + exponent x log {self.over}, by least squares; 95 % interval",
            notes="An exponent between two whole numbers is a mixture: a sum of powers is not a power.",
        )

    def _implementations(self, kinds: Sequence[str]) -> Section:
        last = self.points[-1]["value"]
        a, b = [row for row in self.points if row["value"] == last][:2]
        what, noun = ("seconds", "time") if "seconds" in a else ("bytes", "traffic")
        sentence = (
            f"At {self.over} {last}, {b[_KIND]} attention takes {brief(b[what] / a[what])} times the "
            f"{noun} of {a[_KIND]} and peaks at {size(b['peak_bytes'])} instead of {size(a['peak_bytes'])}."
        )
        drawn = [{**row, "megabytes": row["peak_bytes"] / 1e6} for row in self.points]
        return section(
            "attention",
            "Is fused attention worth it?",
            sentence,
            self.points,
            f"value {_KIND} flops bytes peak_bytes bound_s seconds",
            log_lines(drawn, "value", "megabytes", self.over, "Peak memory (MB)", _KIND),
            forms={"value": ColumnFormat(self.over)},
            formula="fused: one kernel without a score matrix; math: products, scale, mask and softmax in "
            "memory; peak memory: weights and the largest sum of live tensors between operators",
        )


def sweep(
    make: Callable[[Any], Workload],
    over: str,
    values: Sequence[float],
    *,
    device: str = "meta",
    attention: Sequence[str] = ("fused",),
    machine: str | None = None,
    runs: int = 3,
    name: str = "model",
) -> Sweep:
    """Profile a model at several values of one setting.

    Args:
        make: value -> model and inputs.
        over: name of the setting.
        values: at least two different positive numbers.
        device: see `profile`.
        attention: implementations to compare: fused, math; on cpu also flash.
        machine: see `profile`.
        runs: measured runs on cpu.
        name: for titles.

    Raises:
        InputError: ``invalid-value`` for values that no exponent can be fitted to.
    """
    if len(set(values)) < 2 or min(values) <= 0:
        expected = "at least two different positive numbers"
        raise refused("too few values", "invalid-value", "--over", list(values), expected)
    points, notes = [], dict[str, None]()
    for value in sorted(set(values)):
        for kind in attention:
            work = make(value)
            result = profile(work, device=device, attention=kind, machine=machine, runs=runs)
            points.append({"value": value, _KIND: kind, **_point(result)})
            if result.timing:
                points[-1]["seconds"] = result.timing.wall_s
            notes |= dict.fromkeys(result.notes)
    exponents = [row for kind in attention for row in _exponents(points, kind)]
    return Sweep(name, over, device, points, exponents, list(notes))


def _point(result: OpProfile) -> dict[str, Any]:
    totals = ("parameters", "flops", "vector_flops", "bytes", "peak_bytes")
    kinds = grouped(result.attention_trace(), ("kind",), ("flops",))
    return {
        **{name: getattr(result, name) for name in totals},
        "bound_s": result.roofline().bound_s,
        **{
            f"flops_{name}": row["flops"] for name, row in result.by_class().items() if row["flops"]
        },
        **{f"attention_{row['kind'].replace('-', '_')}": row["flops"] for row in kinds},
    }


def _exponents(points: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Slopes in log-log coordinates of every figure that is positive throughout and changes."""
    from scipy.stats import linregress, t

    own = [row for row in points if row[_KIND] == kind]
    x = np.log([row["value"] for row in own])
    rows = []
    for name in own[0]:
        ys = [row.get(name) or 0 for row in own if name not in ("value", _KIND)]
        if not ys or min(ys) <= 0 or max(ys) == min(ys):
            continue
        fit = linregress(x, np.log(ys))
        slope = float(fit.slope)
        row = {_KIND: kind, "figure": name, "exponent": slope, "low": None, "high": None}
        if len(x) > 2:  # two points have no residual
            reach = float(fit.stderr * t.ppf(0.975, len(x) - 2))
            row |= {"low": slope - reach, "high": slope + reach}
        rows.append(row)
    return rows
