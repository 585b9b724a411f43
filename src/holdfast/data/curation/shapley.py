"""What each training point adds to a nearest-neighbor classifier: exact Shapley values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.influence import FloatArray, check

_ROWS = 256


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
        k: neighbors.

    Returns:
        ``[n]``; they add up to the mean share of the k neighbors that have the test label.
    """
    check(x, y)
    n = len(x)
    rank = np.arange(1, n)
    # The farthest of n points: s_n = hit_n min(k, n) / (n k); then, towards the nearest,
    # s_i = s_{i+1} + (hit_i - hit_{i+1}) / k min(k, i) / i.
    factor = np.minimum(k, rank) / (k * rank)
    squares = (x**2).sum(axis=1)
    total = np.zeros(n)
    for start in range(0, len(x_test), _ROWS):
        block = x_test[start : start + _ROWS]
        # |a - b|^2 less the part that is the same for all training points.
        order = np.argsort(squares - 2 * block @ x.T, axis=1, kind="stable")
        hit = (y[order] == y_test[start : start + _ROWS, None]).astype(float)
        values = np.empty_like(hit)
        values[:, -1] = hit[:, -1] * min(k, n) / (n * k)
        steps = (hit[:, :-1] - hit[:, 1:]) * factor
        values[:, :-1] = values[:, -1:] + np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]
        np.add.at(total, order.ravel(), values.ravel())
    return total / len(x_test)
