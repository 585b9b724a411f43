"""Which points a budget goes to, given their scores.

Each policy takes scores (the more, the more is to be gained) and returns k points. Deterministic takes the
highest, proportional draws by them, uniform ignores them, kmeans takes the highest
of each
of many clusters in turn, and dpp draws a set that has high scores and is diverse.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.choices import Policy, within
from holdfast.data.curation.influence_scores import FloatArray

Indices = npt.NDArray[np.int64]


def choose(
    policy: Policy,
    scores: FloatArray,
    k: int,
    rng: np.random.Generator,
    vectors: FloatArray,
) -> Indices:
    """K points, those that are taken first in front.

    Args:
        policy: see `holdfast.data.curation.choices`.
        scores: ``[n]``, not negative.
        k: at most n; the share k / n is the `fraction` that was asked for.
        rng: of the drawing policies.
        vectors: ``[n, p]``; kmeans clusters them, dpp needs their inner products.

    Raises:
        InputError: k above what a k-DPP of these vectors can draw.
    """
    if policy == "dpp":
        return k_dpp(vectors, k, rng)
    if policy == "kmeans":
        return _by_cluster(scores, k, vectors, rng)
    if policy == "deterministic":
        keys = scores.astype(float)
    elif policy == "uniform":
        keys = rng.random(scores.shape)
    else:
        # The largest of log weight + Gumbel noise is a draw in proportion to the weights; the k largest
        # are k draws without replacement.
        keys = np.log(np.maximum(scores, np.finfo(float).tiny)) + rng.gumbel(size=scores.shape)
    return np.argsort(-keys, kind="stable")[:k]


def _by_cluster(
    scores: FloatArray, k: int, vectors: FloatArray, rng: np.random.Generator
) -> Indices:
    """The best of every cluster, then the second best of every cluster ..."""
    from sklearn.cluster import MiniBatchKMeans

    clusters = max(1, min(k, 100))
    label = MiniBatchKMeans(
        clusters, n_init=1, random_state=int(rng.integers(2**31)), batch_size=2048
    ).fit_predict(vectors)
    best_first = np.argsort(-scores, kind="stable")
    order = best_first[np.argsort(label[best_first], kind="stable")]  # cluster by cluster
    place = np.empty(len(scores), np.int64)  # rank of a point inside its cluster
    place[order] = np.arange(len(order)) - np.searchsorted(label[order], label[order])
    return np.lexsort((-scores, place))[:k]


def k_dpp(vectors: FloatArray, k: int, rng: np.random.Generator) -> Indices:
    """An exact draw of k points with probability in proportion to det(L_S), L = V V'.

    Kulesza and Taskar, "k-DPPs: fixed-size determinantal point processes", ICML 2011, on the p x p dual
    matrix V'V, whose eigenvalues other than 0 are those of L.

    Args:
        vectors: V, ``[n, p]``.
        k: at most the rank of V.
        rng: draws.
    """
    values, basis = np.linalg.eigh(vectors.T @ vectors)
    known = values > values[-1] * len(values) * np.finfo(float).eps
    values, basis = values[known], basis[:, known]
    remedy = "ask for less, or choose another policy: dpp draws at most as many points as features"
    within("fraction", k / len(vectors), 0, len(values) / len(vectors), remedy)
    chosen = _eigenvectors(values, k, rng)
    # Orthonormal columns: eigenvectors of L.
    columns = vectors @ (basis[:, chosen] / np.sqrt(values[chosen]))
    picked = np.empty(k, np.int64)
    # Chain rule: the probability of a point is its squared distance from the span of those picked.
    left = (columns**2).sum(axis=1)
    spanned = np.zeros((k, k))
    for step in range(k):
        left = np.maximum(left, 0)
        point = int(rng.choice(len(left), p=left / left.sum()))
        picked[step] = point
        direction = columns[point] - spanned[:step].T @ (spanned[:step] @ columns[point])
        spanned[step] = direction / np.linalg.norm(direction)
        left = left - (columns @ spanned[step]) ** 2
        left[picked[: step + 1]] = 0
    return picked


def _eigenvectors(values: FloatArray, k: int, rng: np.random.Generator) -> list[int]:
    """K eigenvectors, with probability in proportion to the product of their eigenvalues."""
    n = len(values)
    # log e[j, i]: elementary symmetric polynomials of degree j in the first i values; sums of products of
    # hundreds of values over- and underflow otherwise.
    logs = np.log(values)
    e = np.full((k + 1, n + 1), -np.inf)
    e[0] = 0
    for i in range(1, n + 1):
        e[1:, i] = np.logaddexp(e[1:, i - 1], logs[i - 1] + e[:-1, i - 1])
    chosen = []
    for i in range(n, 0, -1):
        if k == 0:
            break
        if np.log(rng.random()) < logs[i - 1] + e[k - 1, i - 1] - e[k, i]:
            chosen.append(i - 1)
            k -= 1
    return chosen
