"""The roofline: the least time that each operator can take on a machine, and which ceiling sets it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.profile.ops.hardware import Hardware

SUMS = ("calls", "flops", "vector_flops", "bytes")
LIMITS = ("compute", "vector", "memory")


def grouped(
    rows: Iterable[Mapping[str, Any]], by: Sequence[str], add: Sequence[str]
) -> list[dict[str, Any]]:
    """One row per combination of values, in the order of their first row, with sums.

    Args:
        rows: with the columns named.
        by: columns whose values make a group.
        add: columns to sum; those that the rows lack are left out.
    """
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        group = groups.setdefault(key, dict(zip(by, key, strict=True)))
        for name in add:
            if row.get(name) is not None:
                group[name] = group.get(name, 0) + row[name]
    return list(groups.values())


@dataclass(frozen=True)
class Roofline:
    """Bounds of a profile on one machine.

    Attributes:
        ops: One per operator call, repeats included: bound_s, limit, and bound_s again under the limit's
            name.
    """

    hardware: Hardware
    ops: list[dict[str, Any]]

    @property
    def bound_s(self) -> float:
        """Least seconds of the whole pass, operators one after another."""
        return sum(row["bound_s"] for row in self.ops)

    def share(self, limit: str, *, products: bool = False) -> float:
        """Share of the bound that one ceiling sets: of all operators, or of products alone."""
        rows = [row for row in self.ops if row["flops"] or not products]
        total = sum(row["bound_s"] for row in rows)
        return sum(row["bound_s"] for row in rows if row["limit"] == limit) / (total or 1.0)

    def by(self, *columns: str) -> list[dict[str, Any]]:
        """Sums per group of operators, the largest bound first; intensity, main limit and its share."""
        rows = grouped(self.ops, columns, (*SUMS, "bound_s", "seconds", *LIMITS))
        unmeasured = {
            tuple(row[name] for name in columns) for row in self.ops if row.get("seconds") is None
        }
        for row in rows:
            parts = {limit: row.pop(limit, 0.0) for limit in LIMITS}
            row["limit_share"] = max(parts.values()) / (row["bound_s"] or 1.0)
            # Where nothing takes time, such as views, nothing limits.
            row["limit"] = max(parts, key=parts.__getitem__) if row["limit_share"] else None
            work = row["flops"] + row["vector_flops"]
            row["intensity"] = work / row["bytes"] if row["bytes"] else None
            key = tuple(row[name] for name in columns)
            if row.get("seconds") and key not in unmeasured:
                row["efficiency"] = row["bound_s"] / row["seconds"]
        return sorted(rows, key=lambda row: -row["bound_s"])

    def to_dict(self) -> dict[str, Any]:
        """The part of the JSON."""
        return {
            "hardware": self.hardware.name,
            "source": self.hardware.source,
            "bound_s": self.bound_s,
            **{f"{limit}_share": self.share(limit) for limit in LIMITS},
            "products_compute_share": self.share("compute", products=True),
            "by_class": self.by("op_class"),
        }


def roofline(rows: Iterable[Mapping[str, Any]], machine: Hardware) -> Roofline:
    """Bounds of operators on a machine.

    Args:
        rows: of operators: calls, flops, vector_flops, bytes (of all calls), dtype.
        machine: its ceilings.
    """
    bounded = []
    for row in rows:
        seconds = {
            "compute": row["flops"] / machine.peak(row["dtype"]),
            "vector": row["vector_flops"] / machine.vector_peak,
            "memory": row["bytes"] / machine.bandwidth_of(row["bytes"] // row["calls"]),
        }
        limit = max(seconds, key=seconds.__getitem__)
        bound = seconds[limit]
        bounded.append({**row, "bound_s": bound, "limit": limit, limit: bound})
    return Roofline(machine, bounded)
