"""What a profile found: totals, classes, modules, attention calls, bounds, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, Section, Unknown, Value
from holdfast.compare import Difference, compare
from holdfast.numbers import counted, duration, number, size
from holdfast.profile.ops.formulas import CLASSES
from holdfast.profile.ops.hardware import Hardware, hardware
from holdfast.profile.ops.lineage import AttentionCall
from holdfast.profile.ops.recording import OpCall
from holdfast.profile.ops.roofline import Roofline, roofline
from holdfast.profile.ops.timing import Timing
from holdfast.report import Tile

_SUMS = ("flops", "vector_flops", "bytes", "calls")


@dataclass(frozen=True)
class OpProfile(Answer):
    """FLOPs, bytes and, where the model ran, seconds of one forward pass."""

    name: str
    device: str
    """meta, fake (both without data), cpu or cuda: where the pass really ran."""
    implementation: str
    """Of attention: fused, or as requested."""
    parameters: int
    """Each shared parameter once."""
    parameter_bytes: int
    ops: list[OpCall]
    attention: list[AttentionCall]
    """In the order of the calls."""
    peak_bytes: int
    """Parameters, buffers and the largest sum of live activations between operators."""
    inputs_text: str = ""
    notes: list[str] = field(default_factory=list)
    machine: Hardware | None = None
    """The ceilings of the roofline section."""
    timing: Timing | None = None
    strict: bool = False
    """Exit with 1 if there are unknown operators."""
    components: tuple[str, ...] = ()
    """Of a pipeline: the first parts of the paths of modules."""
    trace: Path | None = None
    """The Chrome trace that was written."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Operators of {self.name}"

    @property
    def exit_code(self) -> int:
        """1: strict, and an operator has no formula."""
        return int(self.strict and bool(self.unknown_ops))

    def _sum(self, what: str) -> int:
        return sum(getattr(each, what) * each.repeats for each in self.ops)

    @property
    def flops(self) -> int:
        """Of products, convolutions and attention, 2 per multiply-add; causal attention: its triangle."""
        return self._sum("flops")

    @property
    def vector_flops(self) -> int:
        """All other arithmetic."""
        return self._sum("vector_flops")

    @property
    def bytes(self) -> int:
        """Least traffic: inputs and results of every operator once."""
        return self._sum("bytes")

    @property
    def flops_with_full_attention(self) -> int:
        """FLOPs if causal attention computed the whole square, as many counters assume."""
        return self.flops + sum((a.full_flops - a.flops) * a.repeats for a in self.attention)

    @property
    def seconds(self) -> float | None:
        """Inside operators; None where the model did not run."""
        if any(each.seconds is None for each in self.ops):
            return None
        return sum((each.seconds or 0.0) * each.repeats for each in self.ops)

    @property
    def unknown_ops(self) -> list[dict[str, Any]]:
        """Operators without a formula: their FLOPs are missing in every total."""
        found: dict[str, dict[str, Any]] = {}
        for each in self.ops:
            if not each.known:
                row = found.setdefault(each.op, {"op": each.op, "calls": 0, "bytes": 0, "modules": []})
                row["calls"] += each.repeats
                row["bytes"] += each.bytes * each.repeats
                if each.module not in row["modules"]:
                    row["modules"].append(each.module)
        return list(found.values())

    def by_class(self) -> dict[str, dict[str, Any]]:
        """Class -> flops, vector_flops, bytes, calls (and seconds); the classes sum to the totals."""
        rows: dict[str, dict[str, Any]] = {}
        for each in sorted(self.ops, key=lambda op: CLASSES.index(op.op_class)):
            _add(rows.setdefault(each.op_class, dict.fromkeys(_SUMS, 0)), each)
        return rows

    def by_module(self) -> list[dict[str, Any]]:
        """One row per module: its own operators, which sum to the totals, and ``total_*`` with its children's."""
        own: dict[str, dict[str, Any]] = {}
        for each in self.ops:
            kind = {"module": each.module, "type": each.module_type}
            _add(own.setdefault(each.module, {**kind, **dict.fromkeys(_SUMS, 0)}), each)
        totals: dict[str, Counter[str]] = {}
        for path, row in own.items():
            parts = path.split(".") if path else []
            for depth in range(len(parts) + 1):
                sums = totals.setdefault(".".join(parts[:depth]), Counter())
                for what in ("flops", "bytes", "seconds"):
                    sums[f"total_{what}"] += row.get(what, 0)
        timed = self.seconds is not None
        rows = []
        for path in sorted(totals, key=_natural):
            row = own.get(path, {"module": path, "type": "", **dict.fromkeys(_SUMS, 0)})
            sums = totals[path]
            rows.append({**row, **{key: sums[key] for key in ("total_flops", "total_bytes")}})
            if timed:
                rows[-1]["total_seconds"] = float(sums["total_seconds"])
        return rows

    def attention_trace(self) -> list[dict[str, Any]]:
        """One row per attention call, in order."""
        return [asdict(each) for each in self.attention]

    def roofline(self, machine: str | Hardware | None = None) -> Roofline:
        """Least time on a machine.

        Args:
            machine: a name in `HARDWARE`, ``"this"``, or its ceilings; default: that of the profile.
        """
        chosen = machine or self.machine or "h100-sxm"
        return roofline(self.ops, hardware(chosen) if isinstance(chosen, str) else chosen)

    def diff(self, other: OpProfile, tolerance: float = 1e-6) -> Difference:
        """Compare with a later profile of the same model: the figures that `holdfast diff` compares.

        Args:
            other: the later profile.
            tolerance: relative change that does not count.
        """
        return compare(self.document(), other.document(), gate=True, tolerance=tolerance)

    def to_frame(self) -> pa.Table:
        """One row per operator call, as an Arrow table (`.to_pandas()` makes a frame)."""
        return pa.Table.from_pylist([{**asdict(each), "shape": list(each.shape)} for each in self.ops])

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast profile ops``."""
        timing = None if self.timing is None else asdict(self.timing)
        return {
            "target": self.name,
            "device": self.device,
            "attention_implementation": self.implementation,
            "parameters": self.parameters,
            "parameter_bytes": self.parameter_bytes,
            "flops": self.flops,
            "flops_with_full_attention": self.flops_with_full_attention,
            "vector_flops": self.vector_flops,
            "bytes": self.bytes,
            "peak_bytes": self.peak_bytes,
            "seconds": self.seconds,
            "by_class": self.by_class(),
            "by_module": self.by_module(),
            "attention": self.attention_trace(),
            "unknown_ops": self.unknown_ops,
            "roofline": self.roofline().to_dict() if self.machine else None,
            "timing": timing,
            "notes": self.notes,
        }

    def values(self) -> Sequence[Value]:
        """Totals, and FLOPs and bytes per class; all exact."""
        totals = [
            Value("parameters", self.parameters),
            Value("flops", self.flops, "FLOP", better="lower", how="2 per multiply-add"),
            Value("vector_flops", self.vector_flops, "FLOP", better="lower"),
            Value("bytes", self.bytes, "bytes", better="lower"),
            Value("peak_bytes", self.peak_bytes, "bytes", better="lower"),
            Value("unknown_ops", len(self.unknown_ops), better="lower"),
        ]
        classes = [
            Value(f"{what}_{name}", row[what], unit, better="lower")
            for name, row in self.by_class().items()
            for what, unit in (("flops", "FLOP"), ("bytes", "bytes"))
        ]
        return [*totals, *classes]

    def written(self) -> Mapping[str, Path]:
        """The Chrome trace."""
        return {"trace": self.trace} if self.trace else {}

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Model, inputs, where it ran."""
        where = {"meta": "meta tensors: no weights, no data", "fake": "fake tensors: no weights, no data"}
        return [
            ("model", f"{self.name}, {number(self.parameters)} parameters"),
            ("inputs", self.inputs_text or "none"),
            ("device", where.get(self.device, self.device)),
            ("attention", self.implementation),
        ]

    def tiles(self) -> Sequence[Tile]:
        """The totals."""
        from holdfast.profile.ops.sections import si

        found = [
            Tile("Products, 2 FLOP per multiply-add", si(self.flops, "FLOP")),
            Tile("Least traffic", size(self.bytes)),
            Tile("Parameters", number(self.parameters)),
            Tile("Peak memory", size(self.peak_bytes)),
        ]
        if self.machine:
            found.append(Tile(f"Least time, {self.machine.name}", duration(self.roofline().bound_s)))
        if self.timing:
            found.append(Tile("Measured time", duration(self.timing.wall_s)))
        return found

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
        return [*missing, *(Unknown(note) for note in self.notes)]

    def sections(self) -> Sequence[Section]:
        """Classes, ceilings, attention, modules, time."""
        from holdfast.profile.ops import sections

        return sections.of(self)


def _add(row: dict[str, Any], each: OpCall) -> None:
    for what in ("flops", "vector_flops", "bytes"):
        row[what] += getattr(each, what) * each.repeats
    row["calls"] += each.repeats
    if each.seconds is not None:
        row["seconds"] = row.get("seconds", 0.0) + each.seconds * each.repeats


def _natural(path: str) -> list[tuple[int, str]]:
    """Numbers in paths as numbers: layer 2 before layer 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in path.split(".")]

