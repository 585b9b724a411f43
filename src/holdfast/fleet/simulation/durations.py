"""Distributions of durations by maximum likelihood, from samples that are partly cut off.

An attempt that did not complete says only that its work takes longer than it had done: it is censored
on the right. One that ended within the first seconds is known to whole seconds: it is censored on the
left. Both families are locations and scales of log t, y = mu + sigma * z:

- lognormal: z is standard normal; the mean is exp(mu + sigma^2 / 2);
- Weibull: z has the survival exp(-exp(z)); scale exp(mu), shape 1 / sigma.

The likelihood is the sum of log f(z) - log sigma over ends that were seen, log S(z) over those cut on the
right and log F(z) over those cut on the left (Kalbfleisch and Prentice, The Statistical Analysis of Failure
Time Data, 2002, chapter 3). Intervals are normal in mu and log sigma, from the observed information.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.stats import NORMAL_95

FloatArray = npt.NDArray[np.float64]
Interval = tuple[float, float]
Family = Literal["lognormal", "weibull"]

LEAST = 5.0  # Ends within this many seconds are only known to be so early: logs keep whole seconds
# Larger samples are gathered into bins of log t, each a ratio of at most 1.01 wide for 9 decades.
MOST_POINTS = 2_000
UNBOUNDED = math.log(1e6)  # An interval whose ends are such a factor from the estimate says nothing
# Bounds: the likelihood has no maximum where all ends fall on one time.
LOG_SIGMA = (math.log(1e-3), math.log(1e2))


@dataclass(frozen=True)
class Prior:
    """Normal beliefs about mu and log sigma, for samples too small to stand alone."""

    mu: float
    mu_sd: float
    log_sigma: float
    log_sigma_sd: float


@dataclass(frozen=True)
class Fit:
    """A fitted distribution of log t."""

    mu: float
    sigma: float
    covariance: FloatArray  # Of (mu, log sigma), shape [2, 2]

    @property
    def sigma_ci95(self) -> Interval:
        """Interval of sigma: the spread of a lognormal distribution."""
        return _around(math.log(self.sigma), self.covariance[1, 1])

    @property
    def mean(self) -> float:
        """Mean of a lognormal t."""
        return math.exp(self.mu + self.sigma**2 / 2)

    @property
    def mean_ci95(self) -> Interval:
        """Interval of the mean of a lognormal t, normal in its logarithm."""
        slope = np.array([1.0, self.sigma**2])
        return _around(self.mu + self.sigma**2 / 2, float(slope @ self.covariance @ slope))

    @property
    def scale(self) -> float:
        """Scale of a Weibull t."""
        return math.exp(self.mu)

    @property
    def scale_ci95(self) -> Interval:
        """Interval of the scale of a Weibull t."""
        return _around(self.mu, self.covariance[0, 0])

    @property
    def shape(self) -> float:
        """Shape of a Weibull t."""
        return 1 / self.sigma

    @property
    def shape_ci95(self) -> Interval:
        """Interval of the shape of a Weibull t."""
        return _around(-math.log(self.sigma), self.covariance[1, 1])


def fit(
    family: Family,
    seconds: npt.ArrayLike,
    ended: npt.ArrayLike,
    *,
    prior: Prior | None = None,
    sigma: float | None = None,
    least: float = LEAST,
) -> Fit:
    """Fit a distribution to durations.

    Args:
        family: ``"lognormal"`` or ``"weibull"``.
        seconds: durations, shape [n]; any unit if `least` has it too.
        ended: whether the end was seen, shape [n]; else the duration was cut off there.
        prior: what is believed beforehand; None: maximum likelihood.
        sigma: if it is known beforehand; 1 is a constant Weibull hazard.
        least: ends at or below it are censored on the left.

    Raises:
        InputError: if no end was seen and there is no prior, or a duration is missing or negative.
    """
    from scipy.optimize import minimize
    from scipy.stats import gumbel_l, norm

    time = np.asarray(seconds, np.float64)
    event = np.asarray(ended, bool)
    if not (time >= 0).all() or not (event.any() or prior):  # not: of a NaN, too
        raise InputError("no end was seen, or a duration is missing or negative", code="no-data")
    early = event & (time <= least)
    ended_logs, seen_weight = _points(np.log(time[event & ~early]))
    cut, cut_weight = _points(np.log(time[~event & (time > 0)]))
    of_log = norm if family == "lognormal" else gumbel_l

    def loss(place: FloatArray) -> float:
        mu = float(place[0])
        log_sigma = float(place[1])
        wide = math.exp(log_sigma)
        with np.errstate(over="ignore"):  # so unlikely that the search turns back
            value = seen_weight @ (of_log.logpdf((ended_logs - mu) / wide) - log_sigma)
            value += cut_weight @ of_log.logsf((cut - mu) / wide)
        if early.any():
            value += early.sum() * of_log.logcdf((math.log(least) - mu) / wide)
        if prior is not None:
            value -= ((mu - prior.mu) / prior.mu_sd) ** 2 / 2
            value -= ((log_sigma - prior.log_sigma) / prior.log_sigma_sd) ** 2 / 2
        return -float(value)

    # The search begins with ends per time, as if the hazard were constant.
    each = np.maximum(time, max(least, 1e-9))
    spread = float(np.log(each[event]).std()) if event.sum() > 1 else 1.0
    spread = min(max(spread, 0.05), 5.0)
    shift = spread**2 / 2 if family == "lognormal" else 0.0
    start = [math.log(each.sum() / max(event.sum(), 1)) - shift, math.log(spread)]
    fixed = [] if sigma is None else [math.log(sigma)]
    free = 2 - len(fixed)
    best = minimize(
        lambda place: loss(np.array([*place, *fixed])),
        start[:free],
        method="Nelder-Mead",
        bounds=[(-50.0, 50.0), LOG_SIGMA][:free],
        options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 600},
    ).x
    best = np.array([*best, *fixed])
    information = _hessian(loss, best)
    information[free:], information[:, free:] = 0.0, 0.0  # what is known has no variance
    covariance = np.linalg.pinv(information)
    return Fit(float(best[0]), math.exp(best[1]), np.asarray(covariance, np.float64))


def _points(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The values and their weights, gathered into bins if there are many."""
    if logs.size <= MOST_POINTS:
        return logs, np.ones(logs.size)
    weight, total = (np.histogram(logs, MOST_POINTS, weights=of)[0] for of in (None, logs))
    filled = weight > 0
    return total[filled] / weight[filled], weight[filled]


def _hessian(loss: Callable[[FloatArray], float], at: FloatArray, step: float = 1e-3) -> FloatArray:
    """Second derivatives, by central differences."""
    x, y = np.eye(2) * step
    middle = loss(at)
    xx, yy = ((loss(at + d) - 2 * middle + loss(at - d)) / step**2 for d in (x, y))
    xy = loss(at + x + y) - loss(at + x - y) - loss(at - x + y) + loss(at - x - y)
    xy /= 4 * step**2
    return np.array([[xx, xy], [xy, yy]])


def _around(center: float, variance: float) -> Interval:
    """The exponential of a normal interval; a variance that is unknown, or so large, gives no bound."""
    half = NORMAL_95 * math.sqrt(variance) if variance >= 0 else math.inf
    if half > UNBOUNDED:
        return 0.0, math.inf
    return math.exp(center - half), math.exp(min(center + half, 700.0))
