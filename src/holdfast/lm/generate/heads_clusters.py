"""Clusters of attention heads: k-means, its elbow, and which head computes scores for which."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from holdfast.errors import InputError, MissingExtraError

FLAT = 0.1
"""Least depth of an elbow below the straight line: heads that are equally far apart lie on the line."""


@dataclass(frozen=True)
class Assignment:
    """The representatives of one layer, for one sequence.

    Args:
        keys: key/value heads whose keys are stored, [k], ascending.
        queries: query heads that compute scores, [R], those of one stored key head side by side.
        partner: index in `queries` of the head whose scores each query head uses, [H].
    """

    keys: np.ndarray
    queries: np.ndarray
    partner: np.ndarray

    sources: np.ndarray
    """Query head whose scores each query head uses, [H]."""

    @classmethod
    def of_sources(cls, sources: np.ndarray, kv_heads: int, shares_keys: bool) -> Assignment:
        """The assignment in which each query head uses the scores of its source.

        Args:
            sources: [H], of as many key/value heads (or, sharing keys, query heads per group) as clusters.
            kv_heads: G.
            shares_keys: all keys stay, and sources lie in the group of the head.
        """
        shared = len(sources) // kv_heads  # query heads per key/value head
        if shares_keys:
            keys, queries = np.arange(kv_heads), np.unique(sources)
        else:
            keys = np.unique(sources // shared)
            queries = (keys[:, None] * shared + np.arange(shared)).ravel()
        return cls(keys, queries, np.searchsorted(queries, sources), sources)


def head_sources(
    features: np.ndarray, count: int, kv_heads: int, shares_keys: bool, place: str = ""
) -> np.ndarray:
    """Cluster the heads of a layer: the query head whose scores each query head uses, [H].

    Args:
        features: a vector per query head, [H, F].
        count: clusters of the key/value heads, or of the query heads of each group.
        kv_heads: key/value heads G.
        shares_keys: cluster the query heads of each group.
        place: of errors.

    Raises:
        InputError: ``invalid-value`` for vectors with NaN or infinities.
    """
    shared = len(features) // kv_heads
    sets = clustered_sets(features, kv_heads, shares_keys)
    targets = [_representatives(part, count, place) for part in sets]
    if shares_keys:
        return np.concatenate([one + place_ * shared for place_, one in enumerate(targets)])
    grouped = features.reshape(kv_heads, shared, -1)
    sources = np.empty((kv_heads, shared), int)
    for group, target in enumerate(targets[0]):
        # Heads of a group have no order: each takes the most similar head of the representative.
        distances = ((grouped[group][:, None] - grouped[target]) ** 2).sum(-1)
        heads = np.arange(shared) if target == group else distances.argmin(1)
        sources[group] = target * shared + heads
    return sources.ravel()


def clustered_sets(features: np.ndarray, kv_heads: int, shares_keys: bool) -> list[np.ndarray]:
    """The sets of vectors that are clustered: all key/value heads, or the query heads of each group."""
    grouped = features.reshape(kv_heads, -1, features.shape[-1])
    return list(grouped) if shares_keys else [grouped.mean(1)]


def k_means(vectors: np.ndarray, count: int, place: str = "") -> tuple[np.ndarray, float]:
    """Clusters of vectors [n, F] and the squared distance to their means, by scikit-learn.

    Raises:
        InputError: ``invalid-value`` for NaN or infinities.
    """
    try:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "hf") from error

    if not np.isfinite(vectors).all():
        raise InputError(
            "attention with NaN or infinities",
            code="invalid-value",
            place=place or "attention",
            expected="finite scores",
            remedy="check the weights; compute in float32",
        )
    if count >= len(vectors):
        return np.arange(len(vectors)), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct heads than clusters
        fit = KMeans(count, n_init=1, random_state=0).fit(vectors)
    return fit.labels_, float(fit.inertia_)


def error_curve(vectors: np.ndarray, place: str = "") -> np.ndarray:
    """Squared error of k-means for k = 1 to n clusters of n vectors, relative to one cluster: [n].

    Zero throughout for identical vectors.
    """
    if not np.isfinite(vectors).all():
        k_means(vectors, 1, place)  # raises
    # Distances between n vectors are those of their coordinates in the n dimensions that they span.
    triangle = np.asarray(np.linalg.qr((vectors - vectors.mean(0)).T, mode="r")).T
    errors = np.array([k_means(triangle, k)[1] for k in range(1, len(vectors) + 1)])
    scale = max(float((vectors**2).sum()), 1e-300)
    return np.zeros(len(errors)) if errors[0] <= 1e-12 * scale else errors / errors[0]


def elbow(curve: np.ndarray) -> int:
    """Number of clusters at the elbow of an error curve: the k farthest below its chord.

    n for a curve without an elbow (less than `FLAT` below the chord), 1 where there is no error at all.
    """
    n = len(curve)
    if not curve.any():
        return 1
    depth = 1 - np.arange(n) / max(1, n - 1) - curve
    return int(depth.argmax()) + 1 if depth.max() >= FLAT else n


def _representatives(vectors: np.ndarray, count: int, place: str) -> np.ndarray:
    """For each of n vectors the one nearest to the mean of its cluster, [n]; `count` of them represent."""
    labels = k_means(vectors, count, place)[0]
    targets = np.empty(len(vectors), int)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        distances = ((vectors[members] - vectors[members].mean(0)) ** 2).sum(1)
        targets[members] = members[distances.argmin()]
    # Identical heads make fewer clusters than there is room for: others represent themselves.
    missing = count - len(np.unique(targets))
    spare = np.setdiff1d(np.arange(len(vectors)), targets)[: max(0, missing)]
    targets[spare] = spare
    return targets
