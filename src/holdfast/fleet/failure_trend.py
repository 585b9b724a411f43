"""Does the failure rate drift? An exact test and interval of its change from bin to bin of time.

Counts x_i of month m_i (or of another bin) with exposure T_i are Poisson with mean T_i e^{a + b m_i}.
Given their total n, S = sum m_i x_i is the sum of n independent draws of a month with probabilities
proportional to T_i e^{b m_i}: its distribution is an n-fold convolution, free of a, and stochastically
increasing in b.
So tests and intervals of the rate ratio e^b are exact (Cox and Hinkley 1974, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.fleet.failure_model import SMALL_EXPECTED_COUNT, FloatArray, checked_counts
from holdfast.plain import plain

EXACT_UP_TO = 30_000  # values of S; with more the normal approximation has the same digits
STEEPEST = 30.0  # |b|: a rate ratio of e^30 a month stands for zero or infinity
TAIL = 0.025


@dataclass(frozen=True)
class Trend:
    """The change of the failure rate from one bin of time to the next."""

    rate_ratio: float | None
    """e^b: 1.1 is a rise of 10 % a bin. None if it cannot be told; inf is None in `to_dict`."""
    ci95: tuple[float, float] | None
    """Of the ratio; the upper end may be infinite."""
    p_value: float | None
    """Two-sided, of "no trend"."""
    dispersion_p_value: float | None
    """Of bins that scatter like Poisson counts; None where one expects fewer than 5 failures."""
    failures: int
    bins: int
    """Bins with exposure."""
    method: str
    unit: str
    """What one bin is: "month", "week", "day", "hour", "10 minutes" or "minute"."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite bound is null."""
        values: dict[str, Any] = plain(
            {field.name: getattr(self, field.name) for field in fields(self)}
        )
        return {**values, "per": values.pop("unit")}


def trend(
    month_index: npt.ArrayLike,
    failures: npt.ArrayLike,
    node_days: npt.ArrayLike,
    unit: str = "month",
) -> Trend:
    """Test and measure the change of the failure rate from bin to bin of time, a month unless said.

    Args:
        month_index: whole numbers, any origin, shape (k,): 0, 1, 2 ... for consecutive months.
        failures: counts, shape (k,).
        node_days: exposure, shape (k,); months without are left out.
        unit: what one bin is, if not a month.

    Raises:
        InputError: fractional months or counts, or failures without exposure.
    """
    counts, days = checked_counts(failures, node_days)
    month = np.asarray(month_index, dtype=np.float64)
    if month.shape != counts.shape or not (np.isfinite(month).all() and (month % 1 == 0).all()):
        raise InputError(
            "a month index is not a whole number, or their number differs", code="conflict"
        )
    month, counts, days = month[days > 0], counts[days > 0], days[days > 0]
    total = int(counts.sum())
    months = int(np.unique(month).size)
    if months < 2 or total == 0:
        return Trend(None, None, None, None, total, months, "none: too little data", unit)
    month = (month - month.min()).astype(np.int64)
    months_of = _Months(month, days, total)
    observed = int(month @ counts)
    slope = _root(lambda b: months_of.mean(b) - observed / total)
    if total * int(month.max()) <= EXACT_UP_TO:
        low_tail, high_tail = months_of.tails(observed, 0.0)
        p_value = min(1.0, 2 * min(low_tail, high_tail))
        low = _root(lambda b: months_of.tails(observed, b)[1] - TAIL)
        high = _root(lambda b: TAIL - months_of.tails(observed, b)[0])
        method = "exact conditional"
    else:
        error = 1 / math.sqrt(total * months_of.variance(slope))
        low, high = slope - 1.959963984540054 * error, slope + 1.959963984540054 * error
        p_value = math.erfc(abs(slope / error) / math.sqrt(2))
        method = "normal approximation of the Poisson regression"
    return Trend(
        _ratio(slope),
        (_ratio(low), _ratio(high)),
        p_value,
        _scatter(counts, total * months_of.shares(slope)),
        total,
        months,
        method,
        unit,
    )


class _Months:
    """Distribution of the months of the failures, given their total, when the log rate has slope b."""

    def __init__(self, month: npt.NDArray[np.int64], days: FloatArray, total: int) -> None:
        self.month, self.total = month, total
        self.log_days = np.log(days)

    def shares(self, b: float) -> FloatArray:
        logs = self.log_days + b * self.month
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def mean(self, b: float) -> float:
        return float(self.shares(b) @ self.month)

    def variance(self, b: float) -> float:
        shares = self.shares(b)
        return float(shares @ self.month**2 - (shares @ self.month) ** 2)

    def tails(self, observed: int, b: float) -> tuple[float, float]:
        """P(S <= observed) and P(S >= observed), by the n-th power of the Fourier transform."""
        length = self.total * int(self.month.max()) + 1
        size = 1 << (length - 1).bit_length()
        one = np.zeros(int(self.month.max()) + 1)
        np.add.at(one, self.month, self.shares(b))
        pmf = np.fft.irfft(np.fft.rfft(one, size) ** self.total, size)[:length].clip(0)
        return min(float(pmf[: observed + 1].sum()), 1.0), min(float(pmf[observed:].sum()), 1.0)


def _root(function: Callable[[float], float]) -> float:
    """Where an increasing function of the slope crosses zero, within +-STEEPEST."""
    from scipy.optimize import brentq

    if function(-STEEPEST) >= 0:
        return -STEEPEST
    if function(STEEPEST) <= 0:
        return STEEPEST
    return float(brentq(function, -STEEPEST, STEEPEST, xtol=1e-13))


def _scatter(counts: FloatArray, expected: FloatArray) -> float | None:
    """P-value of Pearson's chi-square around the fitted trend (two parameters fitted)."""
    freedom = counts.size - 2
    if freedom < 1 or expected.min() < SMALL_EXPECTED_COUNT:
        return None
    from scipy.special import chdtrc

    return float(chdtrc(freedom, float(((counts - expected) ** 2 / expected).sum())))


def _ratio(slope: float) -> float:
    if abs(slope) > STEEPEST - 1e-6:
        return math.inf if slope > 0 else 0.0
    return math.exp(slope)
