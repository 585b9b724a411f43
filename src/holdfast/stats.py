"""Intervals and tests of counts and shares, thin over `scipy.special`.

`scipy.stats` is not imported: it takes half a second, and every command would pay for it.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

NORMAL_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
NO_SPREAD = 1e4
"""A Gamma shape beyond it (rates within 1 % of each other) is called one common rate."""

# --- Intervals -----------------------------------------------------------------------------------


def poisson_interval(count: float, exposure: float = 1.0) -> tuple[float, float]:
    """Exact 95 % interval of a Poisson rate, per unit of exposure (Garwood 1936, Biometrika 28).

    [chi2(0.025; 2n), chi2(0.975; 2n + 2)] / 2T. A count of zero gives (0, 3.689 / exposure).
    """
    from scipy.special import gammaincinv

    low = float(gammaincinv(count, 0.025)) / exposure if count > 0 else 0.0
    return low, float(gammaincinv(count + 1, 0.975)) / exposure


def wilson_interval(hits: float, trials: float) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927); (0, 1) without trials.

    Neither number needs to be whole: an effective sample size will do.
    """
    if trials <= 0:
        return 0.0, 1.0
    share, square = hits / trials, NORMAL_95**2 / trials
    center = (share + square / 2) / (1 + square)
    half = (
        NORMAL_95 / (1 + square) * math.sqrt(share * (1 - share) / trials + square / (4 * trials))
    )
    # Without hits, or with nothing else, the end is exact; rounding would leave 1e-17.
    low = max(0.0, center - half) if share > 0 else 0.0
    return low, min(1.0, center + half) if share < 1 else 1.0


def clopper_pearson_interval(hits: float, trials: float) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson 1934); (0, 1) without trials."""
    from scipy.special import betaincinv

    low = float(betaincinv(hits, trials - hits + 1, 0.025)) if hits > 0 else 0.0
    return low, float(betaincinv(hits + 1, trials - hits, 0.975)) if hits < trials else 1.0


def mean_interval(values: npt.ArrayLike) -> tuple[float, tuple[float, float]]:
    """Mean and its 95 % t-interval, for independent values of a normal distribution.

    mean +- t(0.975; n - 1) s / sqrt(n); infinitely wide for one value.

    Args:
        values: n of them, 1 or more.
    """
    from scipy.special import stdtrit

    sample = np.asarray(values, dtype=np.float64)
    mean, n = float(np.mean(sample)), len(sample)
    if n < 2:
        return mean, (-math.inf, math.inf)
    half = float(stdtrit(n - 1, 0.975)) * float(np.std(sample, ddof=1)) / n**0.5
    return mean, (mean - half, mean + half)


def jackknife_error(estimates: npt.ArrayLike) -> float:
    """Standard error of an estimate, from those that leave out one block of the data each.

    error^2 = (n - 1) / n * sum (x_i - mean x)^2 (Efron and Stein 1981, equation 1.4).

    Args:
        estimates: without block i, shape (n,), n > 1.
    """
    left = np.asarray(estimates, dtype=np.float64)
    return float(np.sqrt((left.size - 1) / left.size * np.sum((left - left.mean()) ** 2)))


# --- Tests ---------------------------------------------------------------------------------------


def benjamini_hochberg(p_values: npt.ArrayLike) -> FloatArray:
    """Q-values: the smallest false discovery rate at which each hypothesis is rejected, shape (n,).

    q_(i) = min over j >= i of n p_(j) / j, for p sorted ascending (Benjamini and Hochberg 1995).
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = p[order] * p.size / np.arange(1, p.size + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1.0)
    return q


def chi_square(table: FloatArray) -> tuple[float, int, float]:
    """Pearson's test of independence, without a correction: (statistic, degrees of freedom, p).

    Args:
        table: [groups, outcomes] counts; rows and columns without any are left out.
    """
    from scipy.special import chdtrc

    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape, default=0) < 2:
        return 0.0, 0, 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return statistic, freedom, float(chdtrc(freedom, statistic))


# --- Shrinkage of rates --------------------------------------------------------------------------


def gamma_prior(counts: FloatArray, exposure: FloatArray) -> tuple[float, float] | None:
    """Gamma(a, b) of units' rates by maximum marginal likelihood; None if they do not differ.

    The marginal of count B in exposure T is
    Gamma(a + B) / Gamma(a) * b^a T^B / (b + T)^(a + B) up to a constant (negative binomial). For a
    given a the best b is the root of sum (aT - bB) / (b + T), which decreases in b.

    Args:
        counts: of each unit, shape (n,); parts of events may be counted.
        exposure: of each unit, shape (n,); those without any are left out.
    """
    from scipy.special import gammaln

    used = exposure > 0
    count, days = counts[used], exposure[used]
    if count.sum() == 0 or count.size < 2:
        return None

    ratio = days.sum() / count.sum()  # b / a, where the search for the next b begins

    def best_b(a: float) -> float:
        # The sum is convex too, so Newton's method from the left of the root converges upwards; a
        # step from the right may fall below zero and is cut short.
        nonlocal ratio
        b = a * ratio
        for _ in range(100):
            value = ((a * days - b * count) / (b + days)).sum()
            slope = -(days * (count + a) / (b + days) ** 2).sum()
            following = max(b - value / slope, b / 10)
            if abs(following - b) <= 1e-12 * b:
                break
            b = following
        ratio = b / a
        return float(b)

    @cache  # each step of the search has one point of the last
    def likelihood(log_a: float) -> float:
        a = math.exp(log_a)
        b = best_b(a)
        # T^B is constant in (a, b); b^a / (b + T)^a through log1p, which large a needs
        terms = gammaln(a + count) - gammaln(a) - count * np.log(b + days)
        return float((terms - a * np.log1p(days / b)).sum())

    grid = np.linspace(math.log(1e-4), math.log(10 * NO_SPREAD), 42)
    top = int(np.argmax([*map(likelihood, grid)]))
    low, high = grid[max(top - 1, 0)], grid[min(top + 1, grid.size - 1)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(40):
        step = golden * (high - low)
        left, right = high - step, low + step
        if likelihood(round(left, 12)) > likelihood(round(right, 12)):
            high = right
        else:
            low = left
    a = math.exp((low + high) / 2)
    return None if a > NO_SPREAD else (a, best_b(a))


def shrink(
    counts: FloatArray, exposure: FloatArray, prior: tuple[float, float] | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior mean and 95 % credible interval of each unit's rate, each shape (n,).

    Gamma(a + B, b + T) has the mean (a + B) / (b + T). Without a prior every unit has the common
    rate, with its exact interval.

    Args:
        counts: of each unit, shape (n,).
        exposure: of each unit, shape (n,).
        prior: (a, b) as `gamma_prior` fits it.
    """
    if prior is None:
        total, days = float(counts.sum()), float(exposure.sum())
        rate = total / days if days > 0 else 0.0
        low, high = poisson_interval(total, days) if days > 0 else (0.0, 0.0)
        one = np.ones(counts.shape)
        return rate * one, low * one, high * one
    from scipy.special import gammaincinv

    a, b = prior
    shape, inverse_scale = a + counts, b + exposure
    low_tail, high_tail = (
        np.asarray(gammaincinv(shape, tail) / inverse_scale) for tail in (0.025, 0.975)
    )
    return shape / inverse_scale, low_tail, high_tail
