"""What can be asked for by name; help knows the names without loading scikit-learn."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

from holdfast.errors import InputError

Score = Literal["influence", "loss", "margin"]
Policy = Literal["uniform", "proportional", "deterministic", "kmeans", "dpp"]
Strategy = Literal["single", "summary", "probe", "align", "uniform"]
PriceKind = Literal["linear", "convex", "setup", "tiered"]
PruneScore = Literal[
    "calibrated",
    "small-cluster",
    "far-from-centroid",
    "combined",
    "learned",
    "parse-errors",
    "longest",
]


def bounded(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with two columns, ``low`` and ``high``, in the place of their interval ``ci95``."""
    made = [dict(row) for row in rows]
    for row in made:
        row["low"], row["high"] = row.pop("ci95")
    return made


def one_of(what: str, name: str, names: Collection[str]) -> None:
    """Refuse a name that is not among the known ones."""
    if name not in names:
        raise InputError(
            f"unknown {what}", code="unknown-name", found=name, expected=", ".join(names)
        )


def within(
    place: str, value: float, low: float, high: float = float("inf"), remedy: str | None = None
) -> None:
    """Refuse a number that is not finite or not between two others."""
    if not low <= value <= high or value == float("inf"):
        limits = f"{low:,} or more" if high == float("inf") else f"{low:,} to {high:,}"
        raise InputError(
            f"invalid {place}",
            code="out-of-range",
            place=place,
            found=f"{value:,}",
            expected=limits,
            remedy=remedy,
        )
