"""Spherical k-means, and how well each point sits in its cluster."""

from __future__ import annotations

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
_BLOCK = 1 << 10

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
        small = -self.sizes[self.label].astype(float)
        # Rounded: equal vectors are equally far, whatever the order of a sum.
        far = np.asarray(np.round(1 - self.similarity, 6), float)
        return {
            "small-cluster": small,
            "far-from-centroid": far,
            "combined": _ranks(small) + _ranks(far),
        }

    def similar(self, vectors: Vectors) -> FloatArray:
        """The score of SemDeDup (arXiv 2303.09540): cosine with the most similar point that stays ``[n]``.

        Inside a cluster the points farthest from the centroid stay first; -1 for the first of all.
        """
        highest = np.full(len(vectors), -1.0)
        for number in range(len(self.centroids)):
            members = np.flatnonzero(self.label == number)
            members = members[np.argsort(self.similarity[members], kind="stable")]
            for start in range(1, len(members), _BLOCK):
                rows = members[start : start + _BLOCK]
                cosines = vectors[rows] @ vectors[members[: start + len(rows)]].T
                # Row i may be compared with the members in front of it only.
                behind = ~np.tri(len(rows), start + len(rows), start - 1, dtype=bool)
                cosines[behind] = -1
                highest[rows] = np.round(cosines.max(axis=1), 6)
        return highest


def _ranks(values: FloatArray) -> FloatArray:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values) / len(values))


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
    from scipy.sparse import csr_matrix
    from sklearn.cluster import kmeans_plusplus

    n = len(points)
    state = int(rng.integers(2**31))
    centroids = kmeans_plusplus(points, k, random_state=state)[0]
    label = np.full(n, -1)
    for _ in range(_ROUNDS):
        cosines = points @ centroids.T
        previous, label = label, cosines.argmax(axis=1)
        if (label == previous).all():
            break
        members = csr_matrix((np.ones(n, np.float32), (label, np.arange(n))), shape=(k, n))
        sums = members @ points  # [k, d]
        length = np.linalg.norm(sums, axis=1)
        # A cluster that lost its points takes those that fit worst where they are.
        lost = np.flatnonzero(length == 0)
        sums[lost] = points[np.argsort(cosines.max(axis=1), kind="stable")[: len(lost)]]
        length[lost] = np.linalg.norm(sums[lost], axis=1)
        centroids = sums / np.where(length > 0, length, 1)[:, None]
    return np.asarray(centroids, np.float32)
