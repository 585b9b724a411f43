"""What each training point adds to a nearest-neighbor classifier: exact Shapley values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.choices import within
from holdfast.data.curation.influence_scores import FloatArray, check, finite
from holdfast.errors import InputError

_ROWS = 256
_EXACT = 1e-9  # Relative error of a squared distance up to which a matrix product computes it


def knn_shapley(
    x: FloatArray,
    y: npt.NDArray[np.generic],
    x_test: FloatArray,
    y_test: npt.NDArray[np.generic],
    k: int = 5,
) -> FloatArray:
    """Exact Shapley values of training points for the accuracy of a k-nearest-neighbor classifier.

    Jia et al., "Efficient task-specific data valuation for nearest neighbor algorithms", VLDB 2019,
    theorem 1:
    with training points sorted by distance, values follow one another from the farthest to the nearest.

    Args:
        x: training features ``[n, d]``.
        y: training labels ``[n]``.
        x_test: test features ``[m, d]``.
        y_test: test labels ``[m]``.
        k: neighbors, 1 or more.

    Returns:
        ``[n]``; they add up to the mean share of the k neighbors that have the test label.

    Raises:
        InputError: arrays that do not fit, numbers that are not finite, no test point, k below 1.
    """
    check(x, y)
    within("k", k, 1)
    if x_test.shape != (len(y_test), x.shape[1]) or not len(y_test):
        raise InputError(
            "the test points do not fit",
            code="invalid-value",
            place="x_test",
            found=f"features {list(x_test.shape)}, {len(y_test)} labels",
            expected=f"features [m, {x.shape[1]}] and m labels, 1 or more",
        )
    finite(x_test, "x_test")
    if y_test.dtype.kind == "f":
        finite(np.asarray(y_test, float)[:, None], "y_test")
    centre = x.mean(axis=0)
    x, x_test = x - centre, x_test - centre
    n = len(x)
    rank = np.arange(1, n)
    # The farthest of n points: s_n = hit_n min(k, n) / (n k); then, towards the nearest,
    # s_i = s_{i+1} + (hit_i - hit_{i+1}) / k min(k, i) / i.
    factor = np.minimum(k, rank) / (k * rank)
    squares = (x**2).sum(axis=1)
    total = np.zeros(n)
    for start in range(0, len(x_test), _ROWS):
        rows = slice(start, start + _ROWS)
        order = np.argsort(_squared_distances(x_test[rows], x, squares), axis=1, kind="stable")
        hit = (y[order] == y_test[rows, None]).astype(float)
        values = np.empty_like(hit)
        values[:, -1] = hit[:, -1] * min(k, n) / (n * k)
        steps = (hit[:, :-1] - hit[:, 1:]) * factor
        values[:, :-1] = values[:, -1:] + np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]
        np.add.at(total, order.ravel(), values.ravel())
    return total / len(x_test)


def _squared_distances(a: FloatArray, b: FloatArray, squares: FloatArray) -> FloatArray:
    """Squared distances ``[len(a), len(b)]``; `squares` are those of the norms of b.

    |a|^2 + |b|^2 - 2 ab is fast, and loses the distance of points that are close to each other and far from
    the center: such blocks are computed by differences.
    """
    from scipy.spatial.distance import cdist

    own = (a**2).sum(axis=1)
    found = own[:, None] + squares - 2 * a @ b.T
    error = 4 * np.finfo(float).eps * (own + squares.max())
    if (error > _EXACT * found.min(axis=1)).any():
        return np.asarray(cdist(a, b, "sqeuclidean"))
    return np.asarray(found)
