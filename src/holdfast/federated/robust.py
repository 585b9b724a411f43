"""Aggregation rules that survive up to f clients that lie, on vectors of weights in float64.

They ignore the number of examples, which a liar would state as it likes, and need a least number of
updates for f: `RULES` in `aggregation` has it. Arguments are the clients' weights, [clients, n], and f.
"""

from __future__ import annotations

import numpy as np

from holdfast.errors import InputError
from holdfast.federated.updates import Array


def median(values: Array, f: int) -> Array:
    """Median of each coordinate (Yin et al., arXiv 1803.01498): the mean of the middle one or two."""
    return trimmed_mean(values, (len(values) - 1) // 2)


def trimmed_mean(values: Array, f: int) -> Array:
    """Mean of each coordinate without its f largest and f smallest (Yin et al., arXiv 1803.01498)."""
    return np.asarray(np.sort(values, axis=0)[f : len(values) - f].mean(axis=0))


def krum(values: Array, f: int) -> Array:
    """The weights closest to their n - f - 2 nearest (Blanchard et al., arXiv 1703.02757)."""
    return np.asarray(values[nearest_first(squared_distances(values), f)[0]])


def multi_krum(values: Array, f: int) -> Array:
    """Mean of the n - f weights with the best Krum scores."""
    best = nearest_first(squared_distances(values), f)[: len(values) - f]
    return np.asarray(values[sorted(best)].mean(axis=0))


def bulyan(values: Array, f: int) -> Array:
    """Mean per coordinate of the values around the median of the weights that Krum selects.

    Krum selects n - 2f clients, one at a time; of each coordinate the n - 4f values closest to their
    median are averaged (El Mhamdi, Guerraoui and Rouault, arXiv 1802.07927).
    """
    distances = squared_distances(values)
    left, selected = list(range(len(values))), []
    for _ in range(len(values) - 2 * f):
        best = nearest_first(distances[np.ix_(left, left)], f)[0]
        selected.append(left.pop(best))
    chosen = values[sorted(selected)]
    away = np.abs(chosen - median(chosen, f))
    order = np.argsort(away, axis=0, kind="stable")[: len(chosen) - 2 * f]
    return np.asarray(np.take_along_axis(chosen, order, axis=0).mean(axis=0))


def squared_distances(values: Array) -> Array:
    """Squared Euclidean distances, [clients, clients].

    |a|^2 + |b|^2 - 2ab would cancel: what all clients share may be a million times their differences.

    Raises:
        InputError: ``unsupported`` if there are no coordinates.
    """
    from scipy.spatial.distance import pdist, squareform

    if not values.shape[1]:
        problem, expected = "updates without distances", "floating-point weights"
        raise InputError(problem, code="unsupported", place="weights", expected=expected)
    return squareform(pdist(values, "sqeuclidean"))


def nearest_first(distances: Array, f: int) -> list[int]:
    """Places by Krum's score, best first: the sum of the n - f - 2 smallest distances to others.

    The two of a closest pair have the same score where one neighbor counts: the sum of all distances
    decides, not the order of the updates.
    """
    near = max(len(distances) - f - 2, 0)
    # Column 0 of the sorted distances is the update itself.
    scores = np.sort(distances, axis=1)[:, 1 : near + 1].sum(axis=1)
    return [int(place) for place in np.lexsort((distances.sum(axis=1), scores))]
