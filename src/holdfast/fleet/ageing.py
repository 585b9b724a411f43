"""Do nodes age while a job runs? The Weibull shape of the time to failure, and its Kaplan-Meier curve.

"No ageing" is a constant hazard: P(no failure by t) = exp(-(t/scale)^shape) with shape 1. A shape
below 1 means that failures come early (bad starts, or a mix of good and bad nodes, which alone bends the
curve this way); above 1 that they come with running time. An attempt on N nodes is N lifetimes of its
duration, of which at most one ends in a failure and the others are cut off (censored).

The estimates are maximum likelihood, computed here because lifelines takes longer to import than a
report may take; the tests hold them to lifelines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import InputError

FloatArray = npt.NDArray[np.float64]

MOST_POINTS = 2000  # of the binned sample, half for failures, half for the rest
CURVE_POINTS = 200
SHORTEST_S = 0.5  # schedulers keep whole seconds: a duration of 0 stands for less than one
FEWEST_FAILURES = 3


@dataclass(frozen=True)
class Ageing:
    """The check of a constant hazard."""

    shape: float | None
    """Weibull shape; None with fewer than three failures."""
    shape_ci95: tuple[float, float] | None
    """Normal interval of log(shape), from the observed information."""
    scale_s: float | None
    """Weibull scale, seconds of one node's running."""
    p_value: float | None
    """Likelihood-ratio test of shape = 1."""
    failures: float
    lifetimes: float
    """Node lifetimes, failures included."""
    curve: pa.Table
    """Kaplan-Meier: time_s, survival, low, high (95 %, log-log), at most 200 rows."""

    @property
    def sentence(self) -> str:
        """The finding in words."""
        if self.shape is None or self.shape_ci95 is None or self.p_value is None:
            return f"Ageing cannot be told from {self.failures:g} failures."
        numbers = (
            f"Weibull shape {self.shape:.2f}, 95 % interval {self.shape_ci95[0]:.2f} to "
            f"{self.shape_ci95[1]:.2f}, p = {self.p_value:.2g}"
        )
        if self.p_value >= 0.05:
            return f"The hazard does not change with running time ({numbers})."
        if self.shape < 1:
            return (
                f"Failures come early in a run ({numbers}): bad starts, or a mix of good and bad "
                "nodes."
            )
        return f"The hazard grows with running time ({numbers}): long runs age."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the curve."""
        return {
            "weibull_shape": self.shape,
            "weibull_shape_ci95": None if self.shape_ci95 is None else list(self.shape_ci95),
            "weibull_scale_s": self.scale_s,
            "p_value": self.p_value,
            "failures": self.failures,
            "lifetimes": self.lifetimes,
            "sentence": self.sentence,
        }


def ageing(
    durations_s: npt.ArrayLike,
    failed: npt.ArrayLike,
    *,
    node_count: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
) -> Ageing:
    """Fit the Weibull shape and the Kaplan-Meier curve of the time to failure.

    More than 2,000 rows are first binned to at most 2,000 weighted points: 1,000 bins of equal width
    in log time (a ratio of about 1.02 each) for failures and as many for the rest, each at its mean.

    Args:
        durations_s: running time of each attempt, seconds, shape (n,).
        failed: whether it ended in an infrastructure failure, shape (n,).
        node_count: nodes of each attempt, shape (n,); None: one.
        weights: how many such attempts each row stands for, shape (n,); None: one.

    Raises:
        InputError: negative or missing durations, columns that differ in length, nothing at all.
    """
    duration = np.asarray(durations_s, dtype=np.float64)
    event = np.asarray(failed, dtype=bool)
    nodes = np.ones(duration.shape) if node_count is None else np.asarray(node_count, np.float64)
    weight = np.ones(duration.shape) if weights is None else np.asarray(weights, np.float64)
    if duration.ndim != 1 or any(c.shape != duration.shape for c in (event, nodes, weight)):
        raise InputError("the columns of the durations differ in length", code="conflict")
    if duration.size == 0:
        raise InputError("no durations: nothing ran", code="no-data")
    if not (np.isfinite(duration).all() and duration.min() >= 0):
        raise InputError(
            "a duration is missing or negative",
            code="invalid-value",
            expected="seconds, zero or more",
        )
    if not (nodes.min() >= 1 and np.isfinite(weight).all() and weight.min() >= 0):
        raise InputError("a node count is below 1, or a weight below 0", code="invalid-value")
    duration = np.maximum(duration, SHORTEST_S)
    ended = _points(duration, weight * event)
    cut = _points(duration, weight * (nodes - event))
    failures, survivors = float(ended[1].sum()), float(cut[1].sum())
    curve = _kaplan_meier(ended, cut)
    fit = _weibull(ended, cut) if failures >= FEWEST_FAILURES else None
    if fit is None:
        return Ageing(None, None, None, None, failures, failures + survivors, curve)
    shape, scale, error, p_value = fit
    half = 1.959963984540054 * error
    interval = (shape * math.exp(-half), shape * math.exp(half))
    return Ageing(shape, interval, scale, p_value, failures, failures + survivors, curve)


Points = tuple[FloatArray, FloatArray]  # times (s, ascending) and weights, both (k,)


def _points(duration: FloatArray, weight: FloatArray) -> Points:
    """The weighted times, binned in log time if there are more than half of MOST_POINTS."""
    used = weight > 0
    if not used.all():
        duration, weight = duration[used], weight[used]
    bins = MOST_POINTS // 2
    if duration.size <= bins:
        order = np.argsort(duration, kind="stable")
        return duration[order], weight[order]
    logs = np.log(duration)
    width = max(float(logs.max() - logs.min()), 1e-9) / bins
    index = np.minimum(((logs - logs.min()) / width).astype(np.int64), bins - 1)
    total = np.zeros(bins)
    summed = np.zeros(bins)
    total += np.bincount(index, weight, minlength=bins)
    summed += np.bincount(index, weight * duration, minlength=bins)
    filled = total > 0
    return summed[filled] / total[filled], total[filled]


def _weibull(ended: Points, cut: Points) -> tuple[float, float, float, float] | None:
    """Shape, scale, standard error of log(shape) and the p-value of shape = 1, by maximum likelihood.

    With y = log t, the profile score of the shape k is
    sum(w t^k y) / sum(w t^k) - 1/k - mean of y over failures = 0, whose left side increases in k.
    """
    y = np.log(np.concatenate([ended[0], cut[0]]))
    weight = np.concatenate([ended[1], cut[1]])
    failures = float(ended[1].sum())
    mean_failed = float(ended[1] @ np.log(ended[0])) / failures
    top = float(y.max())

    def powers(k: float) -> FloatArray:
        return np.asarray(weight * np.exp(k * (y - top)), dtype=np.float64)

    def score(k: float) -> float:
        power = powers(k)
        return float(power @ y / power.sum()) - 1 / k - mean_failed

    low, high = math.log(1e-3), math.log(1e3)
    if score(math.exp(high)) < 0:
        return None  # every lifetime fails at the same time: the likelihood has no maximum
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if score(math.exp(middle)) < 0 else (low, middle)
    shape = math.exp((low + high) / 2)

    def log_likelihood(k: float) -> float:
        # at the best scale for this k: sum over failures of log hazard, minus `failures`
        log_scale_k = math.log(float(powers(k).sum()) / failures) + k * top
        return failures * (math.log(k) - log_scale_k + (k - 1) * mean_failed) - failures

    # The profile likelihood of log k has the curvature of the inverse information's (log k) entry:
    # -d2/da2 = n + k^2 n Var(y), the variance of y under the weights w t^k.
    power = powers(shape)
    spread = power @ y**2 / power.sum() - (power @ y / power.sum()) ** 2
    information = failures * (1 + shape**2 * float(spread))
    log_scale = math.log(float(power.sum()) / failures) / shape + top
    from scipy.special import chdtrc

    ratio = max(2 * (log_likelihood(shape) - log_likelihood(1.0)), 0.0)
    return shape, math.exp(log_scale), 1 / math.sqrt(information), float(chdtrc(1, ratio))


def _kaplan_meier(ended: Points, cut: Points) -> pa.Table:
    """The product-limit estimate at the times of failures, with Greenwood's log-log interval."""
    time, start = np.unique(ended[0], return_index=True)
    deaths = np.add.reduceat(ended[1], start) if time.size else np.zeros(0)
    # At risk at t: everything that ended or was cut off at t or later.
    risk = _weight_from(ended, time) + _weight_from(cut, time)
    survival = np.cumprod(1 - deaths / risk)
    left = risk - deaths
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        greenwood = np.cumsum(np.where(left > 0, deaths / (risk * left), 0.0))
        log_survival = np.log(survival)
        half = 1.959963984540054 * np.sqrt(greenwood) / np.abs(log_survival)
        low, high = (np.exp(log_survival * np.exp(sign * half)) for sign in (1, -1))
    inside = (survival > 0) & (survival < 1)
    low, high = np.where(inside, low, survival), np.where(inside, high, survival)
    keep = np.unique(np.linspace(0, max(time.size - 1, 0), CURVE_POINTS - 1).astype(np.int64))
    keep = keep[: time.size]
    columns = {"time_s": time, "survival": survival, "low": low, "high": high}
    first = {"time_s": 0.0, "survival": 1.0, "low": 1.0, "high": 1.0}
    return pa.table(
        {name: np.concatenate([[first[name]], column[keep]]) for name, column in columns.items()}
    )


def _weight_from(points: Points, time: FloatArray) -> FloatArray:
    """Total weight of the points at or after each time."""
    at_least = np.append(np.cumsum(points[1][::-1])[::-1], 0.0)
    return np.asarray(at_least[np.searchsorted(points[0], time, side="left")], dtype=np.float64)
