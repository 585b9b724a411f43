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
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

FloatArray = npt.NDArray[np.float64]
Interval = tuple[float, float]
Family = Literal["lognormal", "weibull"]

LEAST = 5.0
"""Ends within this many seconds are only known to be so early: logs keep whole seconds."""
MOST_POINTS = 2_000
"""Larger samples are gathered into bins of log t, each a ratio of at most 1.01 wide for 9 decades."""
FLATTEST, STEEPEST = math.log(1e-3), math.log(1e2)
"""Bounds of log sigma: the likelihood has no maximum where all ends fall on one time."""
Z95 = 1.959963984540054


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

    family: Family
    mu: float
    sigma: float
    covariance: FloatArray
    """Of (mu, log sigma), shape [2, 2]."""
    events: float
    """Ends that were seen."""
    censored: float
    """Durations that were cut off."""

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
    least: float = LEAST,
) -> Fit:
    """Fit a distribution to durations.

    Args:
        family: ``"lognormal"`` or ``"weibull"``.
        seconds: durations, shape [n]; any unit if `least` has it too.
        ended: whether the end was seen, shape [n]; else the duration was cut off there.
        prior: what is believed beforehand; None: maximum likelihood.
        least: ends at or below it are censored on the left.

    Raises:
        InputError: if no end was seen (and there is no prior), or a duration is negative or missing.
    """
    time, event = np.asarray(seconds, np.float64), np.asarray(ended, bool)
    if time.shape != event.shape or time.ndim != 1:
        raise InputError("durations and their ends differ in length", code="conflict")
    if not (np.isfinite(time).all() and (time >= 0).all()):
        raise InputError(
            "a duration is missing or negative", code="invalid-value", expected="zero or more"
        )
    if not event.any() and prior is None:
        raise InputError(
            "no end was seen: every duration was cut off",
            code="no-data",
            found=f"{time.size:,} durations",
            expected="one or more that ended",
        )
    early = event & (time <= least)
    late = ~event & (time > 0)
    parts = _Sample(
        *_points(np.log(time[event & ~early])),
        *_points(np.log(time[late])),
        math.log(least) if least > 0 else -math.inf,
        float(early.sum()),
    )
    place = _newton(family, parts, prior, _start(family, time, event, least))
    information = -_hessian(family, parts, prior, place)
    covariance = np.asarray(np.linalg.pinv(information), np.float64)
    events = float(event.sum())
    return Fit(
        family, float(place[0]), math.exp(place[1]), covariance, events, float(time.size) - events
    )


@dataclass(frozen=True)
class _Sample:
    """Log durations and how many there are of each."""

    seen: FloatArray
    seen_weight: FloatArray
    cut: FloatArray
    cut_weight: FloatArray
    least: float
    early: float
    """Ends at or below `least`."""


def _points(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The values and their weights, gathered into bins if there are many."""
    if logs.size <= MOST_POINTS:
        return logs, np.ones(logs.size)
    low, width = float(logs.min()), max(float(np.ptp(logs)), 1e-9) / MOST_POINTS
    place = np.minimum(((logs - low) / width).astype(np.int64), MOST_POINTS - 1)
    weight = np.bincount(place, minlength=MOST_POINTS).astype(np.float64)
    total = np.bincount(place, logs, minlength=MOST_POINTS)
    filled = weight > 0
    return total[filled] / weight[filled], weight[filled]


def _start(
    family: Family, time: FloatArray, event: npt.NDArray[np.bool_], least: float
) -> FloatArray:
    """Where the search begins: ends per time, as if the hazard were constant."""
    floor = max(least, 1e-9)
    each = np.maximum(time, floor)
    mean = float(each.sum()) / max(float(event.sum()), 1.0)
    spread = float(np.log(each[event]).std()) if event.sum() > 1 else 1.0
    spread = min(max(spread, 0.05), 5.0)
    shift = spread**2 / 2 if family == "lognormal" else 0.0
    return np.array([math.log(mean) - shift, math.log(spread)])


def _terms(
    family: Family, sample: _Sample, prior: Prior | None, place: FloatArray
) -> tuple[float, FloatArray]:
    """Log-likelihood (with the prior) and its gradient by (mu, log sigma)."""
    mu, sigma = float(place[0]), math.exp(float(place[1]))
    value, by_mu, by_log_sigma = 0.0, 0.0, 0.0
    z = (sample.seen - mu) / sigma
    log_f, slope = _density(family, z)
    weight = sample.seen_weight
    value += float(weight @ (log_f - math.log(sigma)))
    by_mu -= float(weight @ slope) / sigma
    by_log_sigma -= float(weight @ (z * slope + 1))
    z = (sample.cut - mu) / sigma
    log_s, hazard = _survival(family, z)
    value += float(sample.cut_weight @ log_s)
    by_mu += float(sample.cut_weight @ hazard) / sigma
    by_log_sigma += float(sample.cut_weight @ (z * hazard))
    if sample.early:
        z = np.array([(sample.least - mu) / sigma])
        log_f, reverse = _distribution(family, z)
        value += sample.early * float(log_f[0])
        by_mu -= sample.early * float(reverse[0]) / sigma
        by_log_sigma -= sample.early * float(z[0] * reverse[0])
    if prior is not None:
        off = (mu - prior.mu) / prior.mu_sd
        wide = (float(place[1]) - prior.log_sigma) / prior.log_sigma_sd
        value -= (off**2 + wide**2) / 2
        by_mu -= off / prior.mu_sd
        by_log_sigma -= wide / prior.log_sigma_sd
    return value, np.array([by_mu, by_log_sigma])


def _density(family: Family, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of f(z) and its derivative."""
    if family == "lognormal":
        return -(z**2) / 2 - math.log(2 * math.pi) / 2, -z
    power = np.exp(np.minimum(z, 600.0))
    return z - power, 1 - power


def _survival(family: Family, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of S(z) and the hazard f / S."""
    if family == "lognormal":
        from scipy.special import log_ndtr

        log_s = np.asarray(log_ndtr(-z))
        return log_s, np.exp(_density(family, z)[0] - log_s)
    power = np.exp(np.minimum(z, 600.0))
    return -power, power


def _distribution(family: Family, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of F(z) and the reverse hazard f / F."""
    if family == "lognormal":
        from scipy.special import log_ndtr

        log_f = np.asarray(log_ndtr(z))
    else:
        log_f = np.log(-np.expm1(-np.exp(np.clip(z, -700.0, 600.0))))
    return log_f, np.exp(_density(family, z)[0] - log_f)


def _hessian(family: Family, sample: _Sample, prior: Prior | None, place: FloatArray) -> FloatArray:
    """Second derivatives, by central differences of the gradient."""
    step = 1e-4
    rows = []
    for axis in (0, 1):
        move = np.zeros(2)
        move[axis] = step
        above = _terms(family, sample, prior, place + move)[1]
        below = _terms(family, sample, prior, place - move)[1]
        rows.append((above - below) / (2 * step))
    made = np.array(rows)
    return (made + made.T) / 2


def _newton(family: Family, sample: _Sample, prior: Prior | None, place: FloatArray) -> FloatArray:
    """The maximum: Newton's method, made safe by ascent directions and halved steps."""
    value, gradient = _terms(family, sample, prior, place)
    for _ in range(200):
        curvature, axes = np.linalg.eigh(-_hessian(family, sample, prior, place))
        # Where the likelihood is not concave, go uphill all the same.
        firm = np.maximum(np.abs(curvature), 1e-6 * max(1.0, float(np.abs(curvature).max())))
        step = axes @ ((axes.T @ gradient) / firm)
        step /= max(1.0, float(np.abs(step).max()) / 2)
        share = 1.0
        while share > 1e-10:
            following = place + share * step
            following[1] = min(max(following[1], FLATTEST), STEEPEST)
            reached, slope = _terms(family, sample, prior, following)
            if reached > value:
                break
            share /= 2
        else:
            break
        gained = reached - value
        place, value, gradient = following, reached, slope
        if gained <= 1e-12 * abs(value):
            break
    return place


def _around(center: float, variance: float) -> Interval:
    """The exponential of a normal interval; an unknown variance gives no bound."""
    if not variance >= 0:
        return 0.0, math.inf
    half = Z95 * math.sqrt(variance)
    return math.exp(center - half), math.exp(min(center + half, 700.0))
