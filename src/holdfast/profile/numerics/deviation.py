"""How far a result deviates from its golden value: one record of measures, non-finite values apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.profile.numerics.formats import FloatArray, Format, spacing

Row = dict[str, Any]


@dataclass(frozen=True)
class Deviation:
    """Distances between a result and its golden value, over the elements where both are finite.

    Attributes:
        max_abs: Largest absolute difference; None where no element can be compared.
        mean_abs: Mean absolute difference.
        frobenius: Norm of the difference over the norm of the golden value; None where that is zero.
        max_ulp: Largest difference in ulps of the result's format at the golden value.
        cosine: Cosine of the angle between both; None where one is zero.
        non_finite: NaN and infinities of the result where the golden value is finite or differs.
        first_non_finite: Index of the first of them.
        golden_non_finite: NaN and infinities of the golden value itself.
    """

    max_abs: float | None
    mean_abs: float | None
    frobenius: float | None
    max_ulp: float | None
    cosine: float | None
    non_finite: int
    first_non_finite: tuple[int, ...] | None
    golden_non_finite: int


def deviation(result: FloatArray, golden: FloatArray, form: Format) -> Deviation:
    """Measure a result against its golden value.

    Args:
        result: any shape, exact in float64.
        golden: of the same shape.
        form: the format of the result, for ulps.
    """
    usable = np.isfinite(result) & np.isfinite(golden)
    # The same infinity, or NaN, where the golden value is that is right.
    wrong = ~np.isfinite(result) & (result != golden) & ~(np.isnan(result) & np.isnan(golden))
    counts: dict[str, Any] = {
        "non_finite": int(wrong.sum()),
        "first_non_finite": tuple(np.argwhere(wrong)[0].tolist()) if wrong.any() else None,
        "golden_non_finite": int((~np.isfinite(golden)).sum()),
    }
    y, g = result[usable], golden[usable]
    if not y.size:
        return Deviation(None, None, None, None, None, **counts)
    difference = np.abs(y - g)
    size, other = float(np.linalg.norm(g)), float(np.linalg.norm(y))
    return Deviation(
        float(difference.max()),
        float(difference.mean()),
        float(np.linalg.norm(difference)) / size if size else None,
        float((difference / spacing(g, form)).max()),
        float(np.dot(y / other, g / size)) if size and other else None,
        **counts,
    )


MEASURES = ("max_abs", "mean_abs", "frobenius", "max_ulp", "cosine")


def summary(deviations: Sequence[Deviation]) -> dict[str, Any]:
    """Summarize several samples: means of the measures, the range of max_abs, sums of the counts."""
    largest = [each.max_abs for each in deviations if each.max_abs is not None]
    wrong = [each for each in deviations if each.non_finite]
    return {
        **{key: mean(getattr(each, key) for each in deviations) for key in MEASURES},
        "max_abs_low": min(largest, default=None),
        "max_abs_high": max(largest, default=None),
        "non_finite": sum(each.non_finite for each in wrong),
        "first_non_finite": wrong[0].first_non_finite if wrong else None,
        "golden_non_finite": sum(each.golden_non_finite for each in deviations),
    }


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def digits(value: float | None) -> str:
    """A deviation in a sentence: three digits of any magnitude."""
    return "unknown" if value is None else f"{value:.3g}"
