"""Spherical k-means, and how well each point sits in its cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.embedding import Vectors
from holdfast.data.curation.influence_scores import FloatArray

CLUSTERS = 100
PER_CLUSTER = 10
"""Fewer clusters where there would be fewer points in each, on average."""
_SAMPLE = 256
"""Points per cluster that the centroids are fitted to."""
_ROUNDS = 25

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

    def badness(self) -> dict[str, FloatArray]:
        """The metrics of SCIP, each larger for what should go first ``[n]``.

        Small clusters; far from the centroid; combined, the mean rank of the two.
        """
        from scipy.stats import rankdata

        small = -np.bincount(self.label)[self.label].astype(float)
        # Rounded: equal vectors are equally far, whatever the order of a sum.
        far = np.asarray(np.round(1 - self.similarity, 6), float)
        return {
            "small-cluster": small,
            "far-from-centroid": far,
            "combined": (rankdata(small) + rankdata(far)) / len(far),
        }


def cluster(vectors: Vectors, seed: int = 0, k: int | None = None) -> Clusters:
    """Clusters of unit vectors by spherical k-means (Dhillon and Modha 2001).

    The centroids are fitted to at most 256 points for each; then every point goes to the nearest.

    Args:
        vectors: ``[n, d]``.
        seed: of the sample and the first centroids.
        k: number of clusters; None: 100, or n / 10 if that is less.
    """
    n = len(vectors)
    k = max(1, min(CLUSTERS, n // PER_CLUSTER) if k is None else min(k, n))
    rng = np.random.default_rng(seed)
    sample = np.sort(rng.permutation(n)[: _SAMPLE * k])
    centroids = _centroids(vectors[sample], k, rng)
    cosines = vectors @ centroids.T  # [n, k]
    return Clusters(centroids, cosines.argmax(axis=1), cosines.max(axis=1))


def _centroids(points: Vectors, k: int, rng: np.random.Generator) -> Vectors:
    from scipy.sparse import csr_matrix
    from sklearn.cluster import kmeans_plusplus

    n, state = len(points), int(rng.integers(2**31))
    centroids = kmeans_plusplus(points, k, random_state=state, n_local_trials=1)[0]
    for _ in range(_ROUNDS):
        label = (points @ centroids.T).argmax(axis=1)
        members = csr_matrix((np.ones(n, np.float32), (label, np.arange(n))), shape=(k, n))
        sums = members @ points  # [k, d]
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        # A cluster that lost its points keeps its centroid.
        centroids = np.where(length > 0, sums / np.where(length > 0, length, 1), centroids)
    return np.asarray(centroids, np.float32)
