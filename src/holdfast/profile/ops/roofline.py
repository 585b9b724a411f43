"""The roofline: the least time that each operator can take on a machine, and which ceiling sets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.profile.ops.hardware import Hardware
    from holdfast.profile.ops.recording import OpCall

COMPUTE, VECTOR, MEMORY = "compute", "vector", "memory"


@dataclass(frozen=True)
class Roofline:
    """Bounds of a profile on one machine."""

    hardware: Hardware
    bounds_s: list[float]
    """Of each operator, its repeats included."""
    limits: list[str]
    """Of each operator: compute, vector or memory."""
    rows: list[dict[str, Any]]
    """One per class: flops, bytes, intensity, bound_s, limit, and seconds and efficiency where measured."""

    @property
    def bound_s(self) -> float:
        """Least seconds of the whole pass, operators one after another."""
        return sum(self.bounds_s)

    def share(self, limit: str) -> float:
        """Share of the bound that one ceiling sets."""
        parts = zip(self.bounds_s, self.limits, strict=True)
        return sum(bound for bound, each in parts if each == limit) / (self.bound_s or 1.0)

    @property
    def products(self) -> float:
        """Share of the bound of matrix products, convolutions and attention that arithmetic sets."""
        products = [row for row in self.rows if row["flops"]]
        total = sum(row["bound_s"] for row in products)
        return sum(row["compute_s"] for row in products) / total if total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The part of the JSON."""
        return {
            "hardware": self.hardware.name,
            "source": self.hardware.source,
            "bound_s": self.bound_s,
            "compute_share": self.share(COMPUTE),
            "products_compute_share": self.products,
            "vector_share": self.share(VECTOR),
            "memory_share": self.share(MEMORY),
            "by_class": self.rows,
        }


def roofline(ops: Sequence[OpCall], machine: Hardware) -> Roofline:
    """Bounds of operators on a machine."""
    bounds, limits = [], []
    for each in ops:
        sides = {
            COMPUTE: each.flops / machine.peak(each.dtype),
            VECTOR: each.vector_flops / machine.vector_peak,
            MEMORY: each.bytes / machine.bandwidth_of(each.bytes),
        }
        limit = max(sides, key=sides.__getitem__)
        bounds.append(sides[limit] * each.repeats)
        limits.append(limit)
    rows: dict[str, dict[str, Any]] = {}
    by_limit: dict[str, dict[str, float]] = {}
    for each, bound, limit in zip(ops, bounds, limits, strict=True):
        row = rows.setdefault(
            each.op_class,
            {"op_class": each.op_class, "flops": 0, "vector_flops": 0, "bytes": 0, "bound_s": 0.0},
        )
        for name in ("flops", "vector_flops", "bytes"):
            row[name] += getattr(each, name) * each.repeats
        row["bound_s"] += bound
        sums = by_limit.setdefault(each.op_class, {})
        sums[limit] = sums.get(limit, 0.0) + bound
        if each.seconds is not None:
            row["seconds"] = row.get("seconds", 0.0) + each.seconds * each.repeats
    for name, row in rows.items():
        row["intensity"] = (row["flops"] + row["vector_flops"]) / row["bytes"] if row["bytes"] else None
        row["compute_s"] = by_limit[name].get(COMPUTE, 0.0)
        row["limit"] = max(by_limit[name], key=by_limit[name].__getitem__)
        if row.get("seconds"):
            row["efficiency"] = row["bound_s"] / row["seconds"]
    ordered = sorted(rows.values(), key=lambda row: -row["bound_s"])
    return Roofline(machine, bounds, limits, ordered)
