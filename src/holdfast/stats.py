"""Intervals and tests of counts and shares, thin over `scipy.special`.

`scipy.stats` is not imported: it takes half a second, and every command would pay for it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

NORMAL_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

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
