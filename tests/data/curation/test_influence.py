"""The classifier and its influences: against torch's autograd and SciPy's optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import points, refusal, rotation

from holdfast.data.curation.influence_scores import (
    LARGEST,
    LIMIT,
    Classifier,
    finite,
    influence,
    influence_vectors,
)


def objective(torch: Any, w: Any, x: Any, y: Any, weight: Any, c: float) -> Any:
    """sum s_i loss_i + |w|^2 / (2 C), by torch: of two classes the first has no weights."""
    scores = x @ w.T
    if len(w) == 1:
        scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
    losses = torch.nn.functional.cross_entropy(scores, y, reduction="none")
    return (weight * losses).sum() + (w**2).sum() / (2 * c)


def by_autograd(model: Classifier, x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
    """The gradient at the fitted weights, and g_i' H^-1 g_j of all pairs of points."""
    torch = pytest.importorskip("torch")
    ones, label = torch.tensor(np.c_[x, np.ones(len(x))]), torch.tensor(y)
    w, s = torch.tensor(model.weights), torch.tensor(weight)

    def of(points: slice, c: float = 1e300) -> Any:
        return lambda v: objective(torch, v, ones[points], label[points], s[points] * 0 + 1, c)

    whole = lambda v: objective(torch, v, ones, label, s, model.c)  # noqa: E731
    hessian = torch.autograd.functional.hessian(whole, w).reshape(w.numel(), -1)
    gradients = torch.stack(
        [torch.autograd.functional.jacobian(of(slice(i, i + 1)), w).ravel() for i in range(len(x))]
    )
    pairs = gradients @ torch.linalg.solve(hessian, gradients.T)
    return torch.autograd.functional.jacobian(whole, w).numpy(), pairs.numpy()


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("c", [0.1, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_influence_is_that_of_torchs_autograd(classes: int, c: float, weighted: bool) -> None:
    x, y = points(30, 3, classes, seed=classes)
    weight = np.random.default_rng(2).uniform(0.2, 3, len(x)) if weighted else np.ones(len(x))
    model = Classifier.fit(x, y, c, weight if weighted else None)
    gradient, pairs = by_autograd(model, x, y, weight)
    assert np.abs(gradient).max() < 1e-5  # it is the optimum
    assert influence(model, x, y, weight) == pytest.approx(np.diag(pairs), rel=1e-4)
    if not weighted:
        vectors = influence_vectors(model, x, y)
        assert vectors @ vectors.T == pytest.approx(pairs, rel=1e-3, abs=1e-4 * pairs.max())


def test_two_points_are_enough() -> None:
    x, y = np.array([[0.5], [-0.25]]), np.array([1, 0])
    model = Classifier.fit(x, y, 1.0)
    pairs = by_autograd(model, x, y, np.ones(2))[1]
    assert influence(model, x, y) == pytest.approx(np.diag(pairs), rel=1e-5)


@given(st.integers(0, 2**16), st.sampled_from([2, 3]))
def test_influence_does_not_depend_on_order_axes_or_copies(seed: int, classes: int) -> None:
    x, y = points(36, 4, classes, seed)
    scores = influence(Classifier.fit(x, y), x, y)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(36), rng.permutation(4)
    turned = x @ rotation(4, seed)
    for other, labels, expected in (
        (x[rows], y[rows], scores[rows]),
        (x[:, columns], y, scores),
        (turned, y, scores),
        (np.asfortranarray(x), y, scores),
    ):
        found = influence(Classifier.fit(other, labels), other, labels)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-7)
    # Every point twice and half of C: twice the objective, the same weights, half of each influence.
    twice, labels = np.r_[x, x], np.r_[y, y]
    half = influence(Classifier.fit(twice, labels, 5.0), twice, labels)
    assert half[:36] == pytest.approx(scores / 2, rel=1e-3, abs=1e-7)
    # A weight of two is a point that is there twice.
    weight = np.where(np.arange(36) < 5, 2.0, 1.0)
    heavy = influence(Classifier.fit(x, y, 10.0, weight), x, y, weight)
    doubled, again = np.r_[x, x[:5]], np.r_[y, y[:5]]
    repeated = influence(Classifier.fit(doubled, again), doubled, again)
    assert heavy == pytest.approx(repeated[:36], rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8])
def test_numbers_of_any_type_are_numbers(dtype: Any) -> None:
    x, y = points(50, 3, 2)
    x = np.round(8 * x).astype(dtype)
    wide = x.astype(float)
    expected = influence(Classifier.fit(wide, y), wide, y)
    assert influence(Classifier.fit(x, y), x, y) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("tiny", [0.0, 5e-324, 1e-310, 1e-200])
def test_columns_that_say_nothing_change_nothing(tiny: float) -> None:
    x, y = points(50, 3, 3)
    more = np.c_[x, tiny * np.random.default_rng(0).normal(size=50)]
    expected = influence(Classifier.fit(x, y), x, y)
    assert influence(Classifier.fit(more, y), more, y) == pytest.approx(expected, rel=1e-5)


def test_more_parameters_than_fit_are_refused_before_any_work() -> None:
    model = Classifier(np.zeros((1, LIMIT + 1)), np.array([0, 1]), 10.0)
    x, y = np.ones((4, LIMIT)), np.arange(4) % 2
    assert refusal(influence, model, x, y) == ("out-of-range", "parameters")
    many = Classifier(np.zeros((4, LIMIT // 2)), np.arange(4), 10.0)  # three of four are free
    assert refusal(influence_vectors, many, x[:, 1 : LIMIT // 2], y)[1] == "parameters"


def test_the_largest_numbers_are_the_last_that_are_taken() -> None:
    finite(np.array([[LARGEST, -LARGEST], [-0.0, 5e-324]]), "x")
    beyond = np.nextafter(LARGEST, np.inf)
    assert refusal(finite, np.array([[0.0], [-beyond]]), "x") == ("out-of-range", "x, row 1")
    assert refusal(finite, np.array([[beyond]]), "x") == ("out-of-range", "x")
