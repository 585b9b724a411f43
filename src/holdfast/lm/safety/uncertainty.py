"""Intervals of shares of items that come in clusters: items of one fragment tend to be answered alike.

The intervals are those of counts (Clopper-Pearson, Wilson) at the effective number of items
n / (1 + (m - 1) rho), with m the mean cluster size that an item sees (Kish 1965) and rho the intraclass
correlation of unsafe items, estimated over all hazards together. A bootstrap of the clusters, which is
often used, has no width where every response is safe, and is too narrow where few are not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from holdfast.stats import clopper_pearson_interval, wilson_interval

IntArray = npt.NDArray[np.int64]
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


def draw_shares(
    unsafe: float, items: float, effective: float, draws: int, generator: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Unsafe shares that the counts leave possible: the posterior under Jeffreys' prior, shape (draws,)."""
    x, n = unsafe * effective, items * effective
    return generator.beta(x + 0.5, n - x + 0.5, draws)
