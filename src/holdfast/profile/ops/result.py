"""What a profile found: totals, classes, modules, attention calls, bounds, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, Section, Unknown, Value
from holdfast.compare import Difference, compare
from holdfast.numbers import counted, number
from holdfast.plain import plain
from holdfast.profile.ops.formulas import CLASSES
from holdfast.profile.ops.hardware import Hardware, hardware
from holdfast.profile.ops.lineage import AttentionCall
from holdfast.profile.ops.recording import OpCall
from holdfast.profile.ops.roofline import SUMS, Roofline, grouped, roofline
from holdfast.profile.ops.timing import Timing
from holdfast.profile.ops.traces import TraceJoin

# Figures of the whole pass.
_TOTALS = (
    "parameters",
    "parameter_bytes",
    "flops",
    "flops_with_full_attention",
    "vector_flops",
    "bytes",
    "peak_bytes",
    "gradient_bytes",
    "optimizer_bytes",
)


@dataclass(frozen=True)
class OpProfile(Answer):
    """FLOPs, bytes and, where the model ran, seconds of one forward pass.

    Attributes:
        device: meta, fake (both without data) or cpu: where the pass really ran.
        implementation: Of attention: fused, or as requested.
        parameters: Each shared parameter once.
        attention: In the order of the calls.
        peak_bytes: Parameters, buffers, the optimizer's moments and the largest sum of live activations
            and gradients between operators.
        gradient_bytes: Of the parameters, in training; else 0.
        optimizer_bytes: Two moments of AdamW per parameter, in training; else 0.
        machine: The ceilings of the roofline.
        trace: Of a real run, from which the seconds are.
        strict: Exit with 1 if there are unknown operators.
    """

    name: str
    device: str
    implementation: str
    parameters: int
    parameter_bytes: int
    ops: list[OpCall]
    attention: list[AttentionCall]
    peak_bytes: int
    inputs_text: str
    notes: list[str]
    machine: Hardware
    timing: Timing | None = None
    trace: TraceJoin | None = None
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    strict: bool = False

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """One per operator call, with its figures for all repeats."""
        rows: list[dict[str, Any]] = [asdict(each) | {"calls": each.repeats} for each in self.ops]
        for row in rows:
            for name in ("flops", "vector_flops", "bytes", "seconds"):
                if row[name] is not None:
                    row[name] *= row["calls"]
        return rows

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Operators of {self.name}"

    @property
    def exit_code(self) -> int:
        """1: strict, and an operator has no formula."""
        return int(self.strict and bool(self.unknown_ops))

    @property
    def flops(self) -> int:
        """FLOPs of products, convolutions and attention, 2 per multiply-add; causal: lower triangle."""
        return sum(row["flops"] for row in self._rows)

    @property
    def flops_with_full_attention(self) -> int:
        """FLOPs if causal attention computed the whole square, as many counters assume."""
        return self.flops + sum((a.full_flops - a.flops) * a.repeats for a in self.attention)

    @property
    def vector_flops(self) -> int:
        """All other arithmetic."""
        return sum(row["vector_flops"] for row in self._rows)

    @property
    def bytes(self) -> int:
        """Least traffic: inputs and results of every operator once."""
        return sum(row["bytes"] for row in self._rows)

    @property
    def seconds(self) -> float | None:
        """Inside operators; None where the model did not run."""
        found = [row["seconds"] for row in self._rows]
        return None if None in found else sum(found)

    @property
    def unknown_ops(self) -> list[dict[str, Any]]:
        """Operators without a formula: their FLOPs are missing in every total."""
        rows = [row for row in self._rows if not row["known"]]
        found = grouped(rows, ("op",), ("calls", "bytes"))
        for each in found:
            modules = (row["module"] for row in rows if row["op"] == each["op"])
            each["modules"] = list(dict.fromkeys(modules))
        return found

    def by_class(self) -> dict[str, dict[str, Any]]:
        """Class -> calls, flops, vector_flops, bytes (and seconds); the classes sum to the totals."""
        found = grouped(self._rows, ("op_class",), (*SUMS, "seconds"))
        found.sort(key=lambda row: CLASSES.index(row["op_class"]))
        return {row.pop("op_class"): row for row in found}

    def by_module(self) -> list[dict[str, Any]]:
        """One row per module: its own operators, which sum to the totals, and ``total_*`` with children."""
        own = {row["module"]: row for row in grouped(self._rows, ("module",), (*SUMS, "seconds"))}
        types = {row["module"]: row["module_type"] for row in self._rows}
        totals: dict[str, Counter[str]] = {}
        for path, row in own.items():
            parts = path.split(".") if path else []
            for depth in range(len(parts) + 1):
                sums = totals.setdefault(".".join(parts[:depth]), Counter())
                for name in ("flops", "bytes", "seconds"):
                    if name in row:
                        sums[f"total_{name}"] += row[name]
        empty = dict.fromkeys(SUMS, 0)
        return [
            {"module": path, "type": types.get(path, ""), **own.get(path, empty), **totals[path]}
            for path in sorted(totals, key=_natural)
        ]

    def attention_kinds(self) -> list[dict[str, Any]]:
        """One row per kind of attention: calls, FLOPs, bytes, least time, its limit (and seconds)."""
        bounds = self.roofline().ops
        rows = [
            {**bounds[index], "kind": call.kind, "calls": call.repeats * (index == call.ops[-1])}
            for call in self.attention
            for index in call.ops
        ]
        return Roofline(self.machine, rows).by("kind")

    def attention_trace(self) -> list[dict[str, Any]]:
        """One row per attention call, in order; `op` is the last of its `ops`."""
        return [asdict(each) | {"op": each.ops[-1]} for each in self.attention]

    def roofline(self, machine: str | Hardware | None = None) -> Roofline:
        """Least time on a machine.

        Args:
            machine: a name in `HARDWARE`, ``"this"``, or its ceilings; default: that of the profile.
        """
        if machine is None:
            return self._roofline
        return roofline(self._rows, hardware(machine) if isinstance(machine, str) else machine)

    @cached_property
    def _roofline(self) -> Roofline:
        return roofline(self._rows, self.machine)

    def diff(self, other: OpProfile, tolerance: float = 1e-6) -> Difference:
        """Compare with a later profile of the same model: the figures that `holdfast diff` compares.

        Args:
            other: the later profile.
            tolerance: relative change that does not count.
        """
        return compare(self.document(), other.document(), gate=True, tolerance=tolerance)

    def to_frame(self) -> pa.Table:
        """One row per operator call, as an Arrow table (`.to_pandas()` makes a frame)."""
        return pa.Table.from_pylist([plain(row) for row in self._rows])

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast profile ops``."""
        return {
            "target": self.name,
            "device": self.device,
            "attention_implementation": self.implementation,
            **{name: getattr(self, name) for name in _TOTALS},
            "by_phase": self.roofline().by("phase"),
            "seconds": self.seconds,
            "by_class": self.by_class(),
            "by_module": self.by_module(),
            "attention": self.attention_trace(),
            "attention_kinds": self.attention_kinds(),
            "unknown_ops": self.unknown_ops,
            "roofline": self.roofline().to_dict(),
            "timing": None if self.timing is None else self.timing.to_dict(),
            "trace": None if self.trace is None else plain(asdict(self.trace)),
            "notes": self.notes,
        }

    def values(self) -> Sequence[Value]:
        """Totals, and FLOPs and bytes per class; all exact."""
        units = {"flops": "FLOP", "vector_flops": "FLOP", "bytes": "bytes", "peak_bytes": "bytes"}
        totals = [
            Value(name, getattr(self, name), unit, better="lower") for name, unit in units.items()
        ]
        totals += [
            Value("parameters", self.parameters),
            Value("unknown_ops", len(self.unknown_ops), better="lower"),
        ]
        return totals + [
            Value(f"{what}_{name}", row[what], units[what], better="lower")
            for name, row in self.by_class().items()
            for what in ("flops", "bytes")
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Model, inputs, where it ran."""
        return [
            ("model", f"{self.name}, {number(self.parameters)} parameters"),
            ("inputs", self.inputs_text or "none"),
            ("device", f"{self.device}, attention {self.implementation}"),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """Operators without a formula, and what was assumed."""
        missing = [
            Unknown(
                f"FLOPs of {each['op']} ({counted(each['calls'], 'call')}, "
                f"in {each['modules'][0] or 'the model'}): no formula.",
                "profile.register_flop_formula(op, formula)",
            )
            for each in self.unknown_ops
        ]
        missing += [
            Unknown(f"Time of {row['op']} ({counted(row['calls'], 'call')}): not in the trace.")
            for row in (self.trace.missing if self.trace else [])
        ]
        return [*missing, *(Unknown(note) for note in self.notes)]

    def sections(self) -> Sequence[Section]:
        """Classes, ceilings, attention, modules, time."""
        from holdfast.profile.ops import sections

        return sections.of(self)


def _natural(path: str) -> list[tuple[int, str]]:
    """Numbers in paths as numbers: layer 2 before layer 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in path.split(".")]
