"""Shapley values of a nearest-neighbor classifier against the definition."""

from itertools import permutations

import numpy as np
import pytest

from holdfast.data.curation import knn_shapley


@pytest.mark.quick(2)
@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_values_are_those_of_all_orders(k: int) -> None:
    rng = np.random.default_rng(k)
    x, x_test = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    y, y_test = np.array([0, 1, 2, 0, 1, 0]), np.array([0, 1, 2, 0])

    def worth(members: list[int]) -> float:
        total = 0.0
        for point, label in zip(x_test, y_test, strict=True):
            near = sorted(members, key=lambda i: float(((x[i] - point) ** 2).sum()))[:k]
            total += sum(y[i] == label for i in near) / k
        return total / len(x_test)

    expected = np.zeros(len(x))
    orders = list(permutations(range(len(x))))
    for order in orders:
        for place, point in enumerate(order):
            before = list(order[:place])
            expected[point] += worth([*before, point]) - worth(before)
    assert knn_shapley(x, y, x_test, y_test, k) == pytest.approx(expected / len(orders))
