"""Shapley values of a nearest-neighbor classifier against the definition."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import points, rotation
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier

from holdfast.data.curation import knn_shapley
from holdfast.errors import InputError


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


def by_recursion(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, k: int) -> np.ndarray:
    """Theorem 1 of Jia et al. point by point, on distances that are differences."""
    n, total = len(x), np.zeros(len(x))
    for row, label in zip(cdist(a, x), b, strict=True):
        order = np.argsort(row, kind="stable")
        hit = (y[order] == label).astype(float)
        value = hit[-1] * min(k, n) / (n * k)
        total[order[-1]] += value
        for i in range(n - 1, 0, -1):
            value += (hit[i - 1] - hit[i]) / k * min(k, i) / i
            total[order[i - 1]] += value
    return total / len(a)


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e8])
@pytest.mark.parametrize("far", [0.0, 1e7])
def test_values_do_not_depend_on_where_zero_is(offset: float, far: float) -> None:
    rng = np.random.default_rng(5)
    x, a = (
        rng.integers(-99, 99, (60, 3)).astype(float),
        rng.integers(-99, 99, (20, 3)).astype(float),
    )
    y, b = rng.integers(0, 3, 60), rng.integers(0, 3, 20)
    x[::2, 1] += far  # two groups far apart
    a[::3, 1] += far
    found = knn_shapley(x + offset, y, a + offset, b, 4)
    assert found == pytest.approx(by_recursion(x, y, a, b, 4), abs=1e-12)


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        ({"x_test": np.array([[0.0, np.nan]])}, "invalid-value", "x_test"),
        ({"x_test": np.zeros((1, 3))}, "invalid-value", "x_test"),
        ({"x_test": np.zeros((0, 2)), "y_test": np.zeros(0)}, "invalid-value", "x_test"),
        ({"x_test": np.array([[0.0, 1e90]])}, "out-of-range", "x_test"),
        ({"y_test": np.array([np.nan])}, "invalid-value", "y_test"),
        ({"k": 0}, "out-of-range", "k"),
    ],
)
def test_what_has_no_value_is_refused(change: dict[str, object], code: str, place: str) -> None:
    given = {"x_test": np.zeros((1, 2)), "y_test": np.zeros(1), "k": 1} | change
    with pytest.raises(InputError) as refused:
        knn_shapley(np.eye(2), np.array([0, 1]), **given)  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.place) == (code, place)


# --- What must not matter, and what the values add up to -------------------------------------------


@given(st.integers(0, 2**16), st.integers(1, 40), st.sampled_from([2, 3]))
def test_values_add_up_to_the_share_of_neighbors_that_are_right(
    seed: int, k: int, classes: int
) -> None:
    x, y = points(30, 3, classes, seed)
    a, b = points(9, 3, classes, seed + 1)
    values = knn_shapley(x, y, a, b, k)
    near = KNeighborsClassifier(min(k, 30)).fit(x, y).kneighbors(a, return_distance=False)
    right = (y[near] == b[:, None]).sum(axis=1) / k  # of an empty set: none
    assert values.sum() == pytest.approx(right.mean())
    # Of two sets of test points the values are the mean.
    parts = 4 / 9 * knn_shapley(x, y, a[:4], b[:4], k) + 5 / 9 * knn_shapley(x, y, a[4:], b[4:], k)
    assert parts == pytest.approx(values)


@given(st.integers(0, 2**16), st.integers(1, 12))
def test_order_axes_units_and_names_change_no_value(seed: int, k: int) -> None:
    x, y = points(24, 3, 3, seed)
    a, b = points(7, 3, 3, seed + 1)
    values = knn_shapley(x, y, a, b, k)
    order = np.random.default_rng(seed).permutation(24)
    names = np.array(["ant", "bee", "cat"])
    turned = rotation(3, seed)
    assert knn_shapley(x[order], y[order], a, b, k) == pytest.approx(values[order])
    for other in (
        knn_shapley(x @ turned, y, a @ turned, b, k),
        knn_shapley(1e-30 * x, y, 1e-30 * a, b, k),
        knn_shapley(1e30 * x, y, 1e30 * a, b, k),
        knn_shapley(np.c_[x, np.full(24, 7.0)], y, np.c_[a, np.full(7, 7.0)], b, k),
        knn_shapley(x, names[y], a, names[b], k),
        knn_shapley(x, y * 1.0, a, b.astype(np.int8), k),
        knn_shapley(np.asfortranarray(x), y, a[::-1], b[::-1], k),
    ):
        assert other == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_worked_example(k: int) -> None:
    """Three points at distances 1, 2, 3 with the labels right, wrong, right."""
    x, y, a, b = np.array([[1.0], [2], [3]]), np.array([1, 0, 1]), np.zeros((1, 1)), np.ones(1)
    # s3 = min(k, 3) / 3k; s2 = s3 - min(k, 2) / 2k; s1 = s2 + 1/k: by hand.
    expected = {1: [5 / 6, -1 / 6, 1 / 3], 2: [1 / 3, -1 / 6, 1 / 3], 3: [1 / 3, 0, 1 / 3]}[k]
    assert knn_shapley(x, y, a, b, k) == pytest.approx(expected)
