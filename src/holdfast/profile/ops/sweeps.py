"""What a larger input costs: a profile per size, and the exponent that FLOPs, bytes and memory follow."""

from __future__ import annotations


from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.numbers import brief, size
from holdfast.profile.ops.profiling import profile_workload
from holdfast.profile.ops.result import OpProfile
from holdfast.profile.ops.running import Workload
from holdfast.profile.ops.timing import peak_memory
from holdfast.report.figures import lines

_SERIES = ("hardware", "user", "system", "good", "purple", "sky", "first", "unattributed")


@dataclass(frozen=True)
class Sweep(Answer):
    """Profiles of one model at several sizes and with several implementations of attention."""

    name: str
    over: str
    """The setting that varies."""
    device: str
    rows: list[dict[str, Any]]
    """One per value and implementation: totals, FLOPs per class, largest score matrix, and on cpu seconds."""
    exponents: list[dict[str, Any]]
    """Per implementation and figure: exponent, its 95 % interval, range of values."""
    notes: list[str]

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"{self.name} over {self.over}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast profile sweep``."""
        return {
            "target": self.name,
            "over": self.over,
            "device": self.device,
            "points": self.rows,
            "exponents": self.exponents,
            "notes": self.notes,
        }

    def values(self) -> Sequence[Value]:
        """Totals at every point."""
        return [
            Value(
                f"{what}_{row['attention_implementation']}_{row['value']}", row[what], unit, better="lower"
            )
            for row in self.rows
            for what, unit in (("flops", "FLOP"), ("bytes", "bytes"), ("peak_bytes", "bytes"))
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Target, setting, device."""
        values = ", ".join(dict.fromkeys(str(row["value"]) for row in self.rows))
        return [("model", self.name), (self.over, values), ("device", self.device)]

    def _kinds(self) -> list[str]:
        return list(dict.fromkeys(row["attention_implementation"] for row in self.rows))

    def sections(self) -> Sequence[Section]:
        """Growth, and implementations of attention side by side."""
        sections = [self._growth()]
        if len(self._kinds()) > 1:
            sections.append(self._implementations())
        return sections

    def _growth(self) -> Section:
        first = self._kinds()[0]
        rows = [row for row in self.rows if row["attention_implementation"] == first]
        fitted = [row for row in self.exponents if row["attention_implementation"] == first]
        by_name = {row["figure"]: row for row in fitted}
        parts = [
            f"{label} as {self.over}^{by_name[name]['exponent']:.2f}"
            for name, label in (
                ("flops", "FLOPs grow"),
                ("flops_attention", "those of attention"),
                ("peak_bytes", "peak memory"),
            )
            if name in by_name
        ]
        sentence = f"From {self.over} {rows[0]['value']} to {rows[-1]['value']}: {', '.join(parts)}."
        drawn = [
            {"value": row["value"], "class": name.removeprefix("flops_"), "gflop": row[name] / 1e9}
            for row in rows
            for name in row
            if name.startswith("flops_") and row[name]
        ]
        classes = list(dict.fromkeys(row["class"] for row in drawn))
        figure = lines(
            drawn,
            "value",
            "gflop",
            self.over,
            "Matrix FLOPs (GFLOP)",
            series="class",
            meanings=dict(zip(classes, _SERIES, strict=False)),
            points=True,
            log_x=True,
            log_y=True,
        )
        columns = {
            "figure": ColumnFormat("Figure"),
            "attention_implementation": ColumnFormat("Attention", detail=True),
            "exponent": ColumnFormat("Exponent", digits=2, interval=("low", "high")),
            "smallest": ColumnFormat("Smallest"),
            "largest": ColumnFormat("Largest"),
        }
        how = How(
            f"log figure = a + exponent x log {self.over}, by least squares; 95 % interval of the slope",
            notes="An exponent between two whole numbers is a mixture: a sum of powers is not a power.",
        )
        table = Table(pa.Table.from_pylist(fitted), columns)
        return Section("growth", "How does it grow?", sentence, [figure], [table], how)

    def _implementations(self) -> Section:
        columns = {
            "value": ColumnFormat(self.over),
            "attention_implementation": ColumnFormat("Attention"),
            "flops": ColumnFormat("Matrix", "GFLOP", digits=1),
            "bytes": ColumnFormat("Bytes", "MB", digits=1),
            "peak_bytes": ColumnFormat("Peak memory", "MB", digits=1),
            "bound_s": ColumnFormat("Least time", "ms", digits=3),
        }
        if self.device == "cpu":
            columns["seconds"] = ColumnFormat("Measured", "ms", digits=2)
            columns["measured_peak_bytes"] = ColumnFormat("Measured peak", "MB", digits=1)
        units = {"flops": 1e9, "bytes": 1e6, "peak_bytes": 1e6, "measured_peak_bytes": 1e6}
        units |= {"bound_s": 1e-3, "seconds": 1e-3}
        shown = [
            {key: row[key] / units[key] if key in units else row[key] for key in columns}
            for row in self.rows
        ]
        last = self.rows[-1]["value"]
        at_last = {r["attention_implementation"]: r for r in self.rows if r["value"] == last}
        a, *others = at_last.values()
        what = "seconds" if self.device == "cpu" else "bytes"
        other = others[0]
        sentence = (
            f"At {self.over} {last}, {other['attention_implementation']} attention takes "
            f"{brief(other[what] / a[what])} times the {'time' if what == 'seconds' else 'traffic'} of "
            f"{a['attention_implementation']} and peaks at {size(other['peak_bytes'])} instead of "
            f"{size(a['peak_bytes'])}."
        )
        kinds = self._kinds()
        drawn = [
            {
                "value": row["value"],
                "attention": row["attention_implementation"],
                "megabytes": row.get("measured_peak_bytes", row["peak_bytes"]) / 1e6,
            }
            for row in self.rows
        ]
        figure = lines(
            drawn,
            "value",
            "megabytes",
            self.over,
            "Peak memory (MB)",
            series="attention",
            meanings=dict(zip(kinds, _SERIES, strict=False)),
            points=True,
            log_x=True,
            log_y=True,
        )
        how = How(
            "fused: one kernel without a score matrix; math: products, scale, mask and softmax through memory",
            notes="Measured peak: allocations of one run beside weights and inputs.",
        )
        table = Table(pa.Table.from_pylist(shown), columns)
        return Section("attention", "Is fused attention worth it?", sentence, [figure], [table], how)


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
        raise InputError(
            "too few values",
            code="invalid-value",
            place="--over",
            found=", ".join(map(str, values)),
            expected="at least two different positive numbers",
        )
    rows, notes = [], []
    for value in sorted(set(values)):
        for kind in attention:
            work = make(value)
            made = profile_workload(work, device, kind, machine, runs)
            row = {"value": value, "attention_implementation": kind, **_point(made)}
            if device == "cpu":
                row["seconds"] = made.timing.wall_s if made.timing else None
                row["measured_peak_bytes"] = peak_memory(work, kind)
            rows.append(row)
            notes += [note for note in made.notes if note not in notes]
    return Sweep(name, over, device, rows, _exponents(rows), notes)


def _point(made: OpProfile) -> dict[str, Any]:
    names = ("parameters", "flops", "vector_flops", "bytes", "peak_bytes")
    by_kind: dict[str, int] = {}
    for each in made.attention:
        key = f"attention_flops_{each.kind.replace('-', '_')}"
        by_kind[key] = by_kind.get(key, 0) + each.flops * each.repeats
    by_class = {f"flops_{name}": row["flops"] for name, row in made.by_class().items() if row["flops"]}
    scores = [a.batch * a.heads * a.query_length * a.key_length for a in made.attention]
    return {
        **{name: getattr(made, name) for name in names},
        "bound_s": made.roofline().bound_s,
        **by_class,
        **by_kind,
        "largest_score_matrix": max(scores, default=0),
    }


def _exponents(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Slopes in log-log coordinates of every figure that is positive throughout."""
    from scipy.stats import linregress, t

    found = []
    for kind in dict.fromkeys(row["attention_implementation"] for row in rows):
        own = [row for row in rows if row["attention_implementation"] == kind]
        x = np.log([row["value"] for row in own])
        for name in own[0]:
            if name in ("value", "attention_implementation", "parameters"):
                continue
            ys = [row.get(name) or 0 for row in own]
            if min(ys) <= 0 or max(ys) == min(ys):
                continue
            fit = linregress(x, np.log(ys))
            # Two points have no residual.
            reach = fit.stderr * t.ppf(0.975, len(x) - 2) if len(x) > 2 else None
            found.append(
                {
                    "attention_implementation": kind,
                    "figure": name,
                    "exponent": float(fit.slope),
                    "low": None if reach is None else float(fit.slope - reach),
                    "high": None if reach is None else float(fit.slope + reach),
                    "smallest": own[0]["value"],
                    "largest": own[-1]["value"],
                }
            )
    return found
