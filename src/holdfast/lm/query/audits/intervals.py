"""Intervals and tests of shares: Wilson's, and Pearson's chi-square on a table."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

NORMAL_95 = 1.959963984540054


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share that was seen in `count` trials (Wilson 1927).

    Args:
        share: between 0 and 1.
        count: trials; an effective sample size need not be whole.
    """
    if count <= 0:
        return 0.0, 1.0
    square = NORMAL_95**2 / count
    centre = (share + square / 2) / (1 + square)
    half = NORMAL_95 / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def chi_square(table: npt.NDArray[np.float64]) -> tuple[float, int, float]:
    """Pearson's test of independence, without a correction: (statistic, degrees of freedom, p).

    Args:
        table: [groups, outcomes] counts; rows and columns without any are left out.
    """
    from scipy.stats import chi2

    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape, default=0) < 2:
        return 0.0, 0, 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return statistic, freedom, float(chi2.sf(statistic, freedom))
