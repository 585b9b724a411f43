"""Aggregation rules that survive up to f clients that lie, in float64.

They ignore the number of examples, which a liar would state as it likes, and need a least number of
updates for f: `RULES` in `aggregation` has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.errors import InputError
from holdfast.federated.updates import Array, Update, Weights, flat


def stacked(updates: Sequence[Update], name: str) -> Array:
    """One array of all updates in float64, [updates, ...]."""
    return np.stack([update.weights[name] for update in updates]).astype(np.float64)


def mean_of(values: Array) -> Array:
    """Mean over updates, of values [updates, ...] whose sum may be beyond the largest float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = values.mean(axis=0)
        if np.isfinite(mean).all():
            return np.asarray(mean)
        parts = (values / len(values)).sum(axis=0)
    bounded = np.clip(parts, values.min(axis=0), values.max(axis=0))
    return np.asarray(np.where(np.isfinite(mean), mean, bounded))


def median(updates: Sequence[Update], f: int) -> Weights:
    """Median of each coordinate (Yin et al., arXiv 1803.01498): the mean of the middle one or two."""
    return trimmed_mean(updates, (len(updates) - 1) // 2)


def trimmed_mean(updates: Sequence[Update], f: int) -> Weights:
    """Mean of each coordinate without its f largest and f smallest (Yin et al., arXiv 1803.01498)."""
    kept = slice(f, len(updates) - f)
    return {
        name: mean_of(np.sort(stacked(updates, name), axis=0)[kept]) for name in updates[0].weights
    }


def krum(updates: Sequence[Update], f: int) -> Weights:
    """The update closest to its n - f - 2 nearest (Blanchard et al., arXiv 1703.02757)."""
    return updates[nearest_first(squared_distances(updates), f)[0]].weights


def multi_krum(updates: Sequence[Update], f: int) -> Weights:
    """Mean of the n - f updates with the best Krum scores."""
    best = nearest_first(squared_distances(updates), f)[: len(updates) - f]
    chosen = [updates[place] for place in sorted(best)]
    return {name: mean_of(stacked(chosen, name)) for name in chosen[0].weights}


def bulyan(updates: Sequence[Update], f: int) -> Weights:
    """Mean per coordinate of the values around the median of updates that Krum selects.

    Krum selects n - 2f updates, one at a time; of each coordinate the n - 4f values closest to their
    median are averaged (El Mhamdi, Guerraoui and Rouault, arXiv 1802.07927).
    """
    distances = squared_distances(updates)
    left, selected = list(range(len(updates))), []
    while len(selected) < len(updates) - 2 * f:
        best = nearest_first(distances[np.ix_(left, left)], f)[0]
        selected.append(left.pop(best))
    chosen = [updates[place] for place in sorted(selected)]
    close = len(chosen) - 2 * f

    middle = median(chosen, f)

    def around_median(name: str, values: Array) -> Array:
        # In halves, since a difference may be twice the largest float64.
        away = np.abs(values / 2 - middle[name] / 2)
        order = np.argsort(away, axis=0, kind="stable")
        return mean_of(np.take_along_axis(values, order[:close], axis=0))

    return {name: around_median(name, stacked(chosen, name)) for name in chosen[0].weights}


def squared_distances(updates: Sequence[Update]) -> Array:
    """Squared Euclidean distances between the floating-point tensors of updates, [n, n], in float64.

    |a|^2 + |b|^2 - 2ab would cancel: what all updates share may be a million times their differences.

    Raises:
        InputError: ``unsupported`` if the updates have integers alone.
    """
    from scipy.spatial.distance import pdist, squareform

    vectors = np.stack([flat(update.weights) for update in updates])
    if not vectors.shape[1]:
        problem, expected = "updates without distances", "floating-point weights"
        raise InputError(problem, code="unsupported", place="weights", expected=expected)
    return np.asarray(squareform(pdist(vectors, "sqeuclidean")))


def nearest_first(distances: Array, f: int) -> list[int]:
    """Places by Krum's score, best first: the sum of the n - f - 2 smallest distances to others.

    The two of a closest pair have the same score where one neighbor counts: the sum of all distances
    decides, not the order of the updates.
    """
    near = max(len(distances) - f - 2, 0)
    # Column 0 of the sorted distances is the update itself.
    scores = np.sort(distances, axis=1)[:, 1 : near + 1].sum(axis=1)
    return [int(place) for place in np.lexsort((distances.sum(axis=1), scores))]
