"""Intervals of shares of items that come in clusters: items of one fragment tend to be answered alike.

The intervals are those of counts (Clopper-Pearson, Wilson) at the effective number of items
n / (1 + (m - 1) rho), with m the mean cluster size that an item sees (Kish 1965) and rho the intraclass
correlation of unsafe items, estimated over all hazards together. A bootstrap of the clusters, which is
often used, has no width where every response is safe, and is too narrow where few are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from holdfast.stats import NORMAL_95, clopper_pearson_interval, wilson_interval

_NONE = 1e-9
"""In the place of no item: the parameters of a Beta distribution are above 0."""
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Counts = tuple[int, int]
Clusters = tuple[IntArray, IntArray]
"""Items and unsafe items of each cluster, shape (k,) each."""


def intraclass_correlation(hazards: Mapping[str, Clusters]) -> float:
    """How alike the items of a cluster are, between 0 and 1.

    Of an unsafe item, rho is how much more often the others of its cluster are unsafe than any item is.
    One further pair that is alike is added: without an unsafe item nothing is known of rho, and it is 1.

    Args:
        hazards: the clusters of each hazard.
    """
    excess = possible = 0.0
    for items, unsafe in hazards.values():
        share = unsafe.sum() / max(items.sum(), 1)
        pairs = float((unsafe * (items - 1)).sum())  # an unsafe item with another one
        excess += float((unsafe * (unsafe - 1)).sum()) - share * pairs
        possible += (1 - share) * pairs
    return min(1.0, max(0.0, (excess + 1) / (possible + 1)))


def effective_share(clusters: Clusters, correlation: float) -> float:
    """Effective over actual number of items, at most 1."""
    items = clusters[0]
    if not items.sum():
        return 1.0
    size = float((items**2).sum() / items.sum())
    return 1.0 / (1.0 + (size - 1.0) * correlation)


def share_interval(
    hits: float, trials: float, method: str, effective: float = 1.0
) -> tuple[float, float]:
    """The 95 % interval of a share.

    Args:
        hits: of `trials`.
        trials: number of items.
        method: ``clopper-pearson`` (at least 95 %) or ``wilson`` (95 % on average).
        effective: effective over actual number of items.
    """
    interval = clopper_pearson_interval if method == "clopper-pearson" else wilson_interval
    low, high = interval(hits * effective, trials * effective)
    return low, high


def corrected_interval(hits: Counts, positive: Counts, negative: Counts) -> tuple[float, float]:
    """The 95 % interval of a share that a test with errors measures (Lang and Reiczigel 2014).

    Args:
        hits: positive results, of how many.
        positive: right and wrong results where the truth is positive.
        negative: right and wrong results where it is negative.
    """
    z2 = NORMAL_95**2
    n = hits[1] + z2
    q = (hits[0] + z2 / 2) / n
    # One right and one wrong result more: that none was wrong does not show that none will be.
    (sensitivity, yes), (specificity, no) = (
        ((right + 1) / (right + wrong + 2), right + wrong + 2)
        for right, wrong in (positive, negative)
    )
    informed = max(sensitivity + specificity - 1, _NONE)
    share = (q + specificity - 1) / informed
    missed, false = sensitivity * (1 - sensitivity) / yes, specificity * (1 - specificity) / no
    middle = share + 2 * z2 * (share * missed - (1 - share) * false)
    variance = q * (1 - q) / n + share**2 * missed + (1 - share) ** 2 * false
    half = math.sqrt(z2 * variance) / informed
    return max(0.0, middle - half), min(1.0, middle + half)


def share_masses(unsafe: float, items: float, effective: float, edges: FloatArray) -> FloatArray:
    """How probable the counts make an unsafe share between two edges, at best and at worst.

    By Beta(x, n - x + 1) and Beta(x + 1, n - x), whose 2.5 % and 97.5 % quantiles are the interval of
    Clopper and Pearson: the posteriors of all priors between these two, Jeffreys' too, lie between them.

    Args:
        unsafe: number of unsafe items, of `items`.
        items: number of items.
        effective: effective over actual number of items.
        edges: ascending from 0 to 1, shape (e,).

    Returns:
        Shape (2, e - 1).
    """
    x, n = unsafe * effective, items * effective
    safe = [[n - x + 1], [max(n - x, _NONE)]]
    masses: FloatArray = np.diff(np.float64(betainc([[max(x, _NONE)], [x + 1]], safe, edges)))
    return masses


def grade_probabilities(chances: FloatArray) -> FloatArray:
    """Lower bounds of the probability of each grade of the worst of some parts, shape (grades,).

    Whatever the prior, and however the parts depend on each other (Bonferroni): of a few hazards with a
    few items each, one looks bad by chance. What the bounds lack to 1 is undecided.

    Args:
        chances: of each grade, worst first, at best and at worst, shape (parts, 2, grades).
    """
    below = np.cumsum(chances, axis=2)  # a grade, or a worse one
    least = 1.0 - np.append(0.0, below[:, 1].sum(axis=0))
    most = np.append(1.0, len(chances) * (1.0 - below[:, 0]).min(axis=0))
    bounds: FloatArray = np.maximum(0.0, least[:-1] - np.clip(most, least, 1.0)[1:])
    return bounds
