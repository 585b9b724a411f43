"""Spherical k-means, and how well each point sits in its cluster."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.embedding import Vectors
from holdfast.data.curation.influence import FloatArray

CLUSTERS = 100
PER_CLUSTER = 10
"""Fewer clusters where there would be fewer points in each, on average."""
_SAMPLE = 256
"""Points per cluster that the centroids are fitted to."""
_ROUNDS = 25
_ROWS = 1 << 15

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Clusters:
    """Points in clusters.

    Args:
        centroids: unit vectors ``[k, d]``.
        label: the nearest centroid of each point ``[n]``.
        similarity: cosine of each point with it ``[n]``.
    """

    centroids: Vectors
    label: Ids
    similarity: Vectors

    @property
    def sizes(self) -> Ids:
        """Number of points of each cluster ``[k]``."""
        return np.bincount(self.label, minlength=len(self.centroids))

    def badness(self) -> dict[str, FloatArray]:
        """The metrics of SCIP, each larger for what should go first ``[n]``.

        Small clusters; far from the centroid; combined, the mean rank of the two.
        """
        from scipy.stats import rankdata

        small = -self.sizes[self.label].astype(float)
        # Rounded: equal vectors are equally far, whatever the order of a sum.
        far = np.asarray(np.round(1 - self.similarity, 6), float)
        return {
            "small-cluster": small,
            "far-from-centroid": far,
            "combined": (rankdata(small) + rankdata(far)) / len(far),
        }


def cluster(vectors: Vectors, seed: int = 0, k: int | None = None) -> Clusters:
    """Clusters of unit vectors by spherical k-means (Dhillon and Modha 2001).

    The centroids are fitted to at most 256 points for each; then every point goes to the nearest, a block
    at a time: the vectors may be a memory map.

    Args:
        vectors: ``[n, d]``.
        seed: of the sample and the first centroids.
        k: number of clusters; None: 100, or n / 10 if that is less.
    """
    n = len(vectors)
    k = max(1, min(CLUSTERS, n // PER_CLUSTER) if k is None else min(k, n))
    rng = np.random.default_rng(seed)
    sample = np.arange(n)
    if n > _SAMPLE * k:
        sample = np.sort(rng.choice(n, _SAMPLE * k, replace=False))
    centroids = _centroids(np.ascontiguousarray(vectors[sample]), k, rng)
    label, similarity = np.empty(n, np.int64), np.empty(n, np.float32)
    for start in range(0, n, _ROWS):
        part = slice(start, start + _ROWS)
        cosines = vectors[part] @ centroids.T
        label[part] = cosines.argmax(axis=1)
        similarity[part] = cosines.max(axis=1)
    return Clusters(centroids, label, similarity)


def _centroids(points: Vectors, k: int, rng: np.random.Generator) -> Vectors:
    """Of unit vectors, Euclidean distance orders centroids nearly as the cosine does."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    state = int(rng.integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than clusters
        fitted = KMeans(k, n_init=1, max_iter=_ROUNDS, random_state=state).fit(points)
    length = np.linalg.norm(fitted.cluster_centers_, axis=1, keepdims=True)
    return np.asarray(fitted.cluster_centers_ / np.where(length > 0, length, 1), np.float32)
