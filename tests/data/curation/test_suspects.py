"""Wrong labels: against scikit-learn's cross-validation, a maximum of the likelihood, planted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from labelled_points import points, rotation
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from holdfast.data.curation import AugmentationSelector
from holdfast.data.curation.suspects import doubtful_labels, label_suspects


def apart(n: int, classes: int, distance: float, seed: int) -> tuple[Any, Any]:
    """Classes whose centers lie so far apart, in 6 dimensions."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(n, 6)) + distance / np.sqrt(2) * np.eye(6)[y], y


def flipped(y: Any, classes: int, share: float, seed: int) -> tuple[Any, set[int]]:
    """Labels of which a share is another class, and where."""
    rng = np.random.default_rng(seed)
    wrong = rng.choice(len(y), int(share * len(y)), replace=False)
    noisy = y.copy()
    noisy[wrong] = (y[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return noisy, set(wrong.tolist())


def held_out(x: Any, y: Any, c: float = 10.0, seed: int = 0) -> Any:
    """Probabilities of classes by models that did not see the point, by scikit-learn alone."""
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    model = LogisticRegression(C=c, fit_intercept=False, tol=1e-9, max_iter=5000)
    ones = np.c_[x - x.mean(axis=0), np.ones(len(x))]
    return cross_val_predict(model, ones, y, cv=folds, method="predict_proba")


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_contradicted_points_are_those_of_cross_validation(classes: int, seed: int) -> None:
    x, y = apart(240, classes, 2.5, seed)
    y, _ = flipped(y, classes, 0.08, seed)
    contradicted, signal = doubtful_labels(x, y, 10.0, seed)[1:]
    assert signal
    expected = held_out(x, y, seed=seed).argmax(axis=1) != y
    assert contradicted.tolist() == np.flatnonzero(expected).tolist()


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("share", [0.03, 0.2])
def test_planted_labels_of_several_classes(classes: int, share: float) -> None:
    x, y = apart(400, classes, 6.0, 10 * classes)
    noisy, wrong = flipped(y, classes, share, classes)
    found = set(label_suspects(x, noisy).tolist())
    chosen = AugmentationSelector(fraction=0.05).fit(x, noisy).selected_
    assert len(wrong & set(chosen.tolist())) <= 0.1 * len(
        chosen
    )  # though theirs are the highest scores
    assert len(found & wrong) >= 0.9 * len(wrong)
    assert len(found - wrong) <= max(2, 0.1 * len(found))


@pytest.mark.parametrize(
    ("seeds", "most"), [(range(3), 1), pytest.param(range(100), 6, marks=pytest.mark.full)]
)
def test_right_labels_of_any_shares_and_distances(seeds: range, most: int) -> None:
    """The test for wrong labels has a level of 1 %: so many sets of right ones may have suspects."""
    false = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        classes = int(rng.integers(2, 5))
        y = rng.choice(classes, 400, p=rng.dirichlet(np.full(classes, 4.0)))
        for distance in (0.0, 1.0, 3.0, 8.0):
            x = rng.normal(size=(400, 6)) + distance / np.sqrt(2) * np.eye(6)[y]
            suspects, _, signal = doubtful_labels(x, y, 10.0, seed)
            false += len(suspects) > 0
            assert signal or distance < 3
    assert false <= most


def test_names_axes_and_places_of_points_make_no_suspects() -> None:
    x, y = apart(200, 3, 7.0, 7)
    y, _ = flipped(y, 3, 0.1, 8)
    expected = label_suspects(x, y).tolist()
    assert len(expected) > 10
    for features, labels in (
        (x @ rotation(6), y),
        (x - 1e7, y),
        (x.astype(np.float32), y.astype(np.uint8)),
        (x, np.array(["ant", "bee", "cat"])[y]),
        (x, 10.0 * y - 3),
    ):
        assert set(label_suspects(features, labels).tolist()) == set(expected)
    # In another order, other points are held out together: nearly the same suspects.
    order = np.random.default_rng(0).permutation(200)
    again = {int(order[n]) for n in label_suspects(x[order], y[order])}
    assert len(again & set(expected)) >= 0.8 * len(again | set(expected))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((50, 2)), np.arange(50) % 2),  # nothing to see
        (np.full((50, 1), 1e60), np.arange(50) % 2),
        (np.eye(6), np.arange(6)),  # a point per class
        (np.r_[np.zeros((9, 1)), np.ones((1, 1))], np.r_[np.zeros(9), 1]),  # one of the second
        (np.arange(4.0)[:, None], np.arange(4) % 2),
        (points(40, 200, 2)[0], np.random.default_rng(0).integers(0, 2, 40)),  # wide noise
    ],
)
def test_where_nothing_can_be_told_nobody_is_suspected(x: Any, y: Any) -> None:
    suspects, contradicted, signal = doubtful_labels(x, y, 10.0, 0)
    assert (len(suspects), len(contradicted), signal) == (0, 0, False)
