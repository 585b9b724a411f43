"""How scores become a choice: against enumeration; the selector against scikit-learn."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import points, refusal, rotation
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from holdfast.data.curation import AugmentationSelector
from holdfast.data.curation.augmentation import margins, together
from holdfast.data.curation.policies import _eigenvectors, choose, k_dpp


def fits(counts: Counter[Any], chances: dict[Any, float]) -> bool:
    """Whether draws have their chances; what has none must not be drawn."""
    likely = {key: chance for key, chance in chances.items() if chance > 1e-12}
    assert set(counts) <= set(likely)
    total = sum(counts.values()) / sum(likely.values())
    expected = [total * chance for chance in likely.values()]
    return bool(chisquare([counts[key] for key in likely], expected).pvalue > 1e-3)


def test_draws_in_proportion_are_those_of_plackett_and_luce() -> None:
    """Without replacement: the chance of an order is the product of shares of what is left."""
    scores, rng = np.array([1.0, 2, 3, 6]), np.random.default_rng(1)
    chances = {}
    for order in permutations(range(4), 3):
        left, chance = scores.sum(), 1.0
        for point in order:
            chance *= scores[point] / left
            left -= scores[point]
        chances[order] = chance
    draws = (choose("proportional", scores, 3, rng, scores[:, None]) for _ in range(2500))
    assert fits(Counter(tuple(draw.tolist()) for draw in draws), chances)


@given(st.lists(st.sampled_from([0.0, 5e-324, 0.5, 1.0, 1e300]), max_size=12), st.data())
def test_the_highest_scores_are_those_of_a_stable_sort(scores: list[float], data: Any) -> None:
    k = data.draw(st.integers(0, len(scores)))
    taken = choose("deterministic", np.array(scores), k, np.random.default_rng(0), np.ones((0, 1)))
    assert taken.tolist() == sorted(range(len(scores)), key=lambda n: -scores[n])[:k]


def test_clusters_give_their_best_in_turn() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 4
    vectors = 50 * np.eye(4)[truth] + rng.normal(size=(60, 4))
    scores = rng.permutation(60).astype(float)
    taken = choose("kmeans", scores, 4, rng, vectors)
    frame = pd.DataFrame({"cluster": truth, "score": scores})
    best = frame.sort_values("score", ascending=False).groupby("cluster").head(1).index
    assert taken.tolist() == best.tolist()  # the best of each, the highest of them first


# --- Determinantal point processes -----------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4])
def test_eigenvectors_are_drawn_by_the_product_of_their_values(k: int) -> None:
    values, rng = np.array([0.5, 1.0, 2.0, 4.0]), np.random.default_rng(k)
    chances = {s: float(np.prod(values[list(s)])) for s in combinations(range(4), k)}
    # The sum of all products is a coefficient of prod (t + value).
    assert sum(chances.values()) == pytest.approx(np.poly(-values)[k])
    counts = Counter(tuple(sorted(_eigenvectors(values, k, rng))) for _ in range(1000))
    assert len(chances) == 1 or fits(counts, chances)


def test_sets_of_points_that_depend_on_each_other_are_never_drawn() -> None:
    """Two copies of a point, and three points in a plane: their determinants are zero."""
    rng = np.random.default_rng(7)
    a, b, c, d = rng.normal(size=(4, 3))
    vectors = np.array([a, a, b, c, d, (b + c) / 2])
    sets = list(combinations(range(6), 3))
    chances = {s: float(np.linalg.det(vectors[list(s)]) ** 2) for s in sets}
    assert sum(chance < 1e-12 for chance in chances.values()) == 5
    counts = Counter(tuple(sorted(k_dpp(vectors, 3, rng).tolist())) for _ in range(800))
    assert fits(counts, chances)


@pytest.mark.parametrize("unit", [1e-100, 1e-30, 1e30, 1e100])
def test_the_unit_and_the_axes_of_vectors_draw_nothing_else(unit: float) -> None:
    vectors = np.random.default_rng(3).normal(size=(50, 20))
    for k in (1, 12, 20):
        expected = k_dpp(vectors, k, np.random.default_rng(k)).tolist()
        assert len(set(expected)) == k
        for other in (unit * vectors, vectors @ rotation(20, k)):
            assert k_dpp(other, k, np.random.default_rng(k)).tolist() == expected


def test_no_more_points_than_the_rank_are_drawn() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 5))
    assert len(k_dpp(flat, 2, rng)) == 2
    assert refusal(k_dpp, flat, 3, rng) == ("out-of-range", "fraction")
    assert refusal(k_dpp, np.zeros((4, 2)), 1, rng) == ("out-of-range", "fraction")
    assert k_dpp(flat, 0, rng).tolist() == []


# --- The selector ----------------------------------------------------------------------------------


def test_losses_are_those_of_scikit_learn() -> None:
    x, y = points(60, 4, 3, seed=1)
    centred = np.c_[x - x.mean(axis=0), np.ones(60)]
    peer = LogisticRegression(C=10.0, fit_intercept=False, tol=1e-10).fit(centred, y)
    expected = -peer.predict_log_proba(centred)[np.arange(60), y]
    chosen = AugmentationSelector("loss", fraction=0.2, exclude_suspects=False).fit(x, y)
    assert chosen.scores_ == pytest.approx(expected, abs=1e-4)
    assert chosen.selected_.tolist() == np.argsort(-expected)[:12].tolist()


@pytest.mark.parametrize("classes", [2, 4])
def test_margins_are_those_of_a_support_vector_machine(classes: int) -> None:
    x, y = points(60, 4, classes, seed=2)
    peer = LinearSVC(C=10.0, dual="auto", max_iter=20_000, random_state=0).fit(x, y)
    decision = peer.decision_function(x)
    if classes == 2:
        decision = np.c_[np.zeros(60), decision]
    expected = [
        row[label] - max(value for other, value in enumerate(row) if other != label)
        for row, label in zip(decision, y, strict=True)
    ]
    assert margins(x, y, x, y, None, 10.0) == pytest.approx(expected)
    names = np.array([f"class {n}" for n in range(classes)])[y]
    assert margins(x, names, x, names, None, 10.0) == pytest.approx(expected)
    chosen = AugmentationSelector("margin", fraction=0.1, exclude_suspects=False).fit(x, y)
    assert chosen.scores_.min() == 0
    assert (np.diff(chosen.scores_[chosen.selected_]) <= 0).all()


def test_it_is_an_estimator_of_scikit_learn() -> None:
    selector = AugmentationSelector("loss", "dpp", 0.3, updates=2, c=3.0)
    assert clone(selector).get_params() == selector.get_params()
    assert selector.set_params(policy="uniform").policy == "uniform"
    x, y = points(30, 3, 2)
    made = AugmentationSelector().fit(x, y)
    assert pickle.loads(pickle.dumps(made)).selected_.tolist() == made.selected_.tolist()


@pytest.mark.parametrize(
    ("score", "policy"),
    [
        ("influence", "dpp"),
        ("influence", "kmeans"),
        ("loss", "proportional"),
        ("loss", "uniform"),
        ("margin", "deterministic"),
    ],
)
def test_names_and_types_of_the_arrays_choose_nothing_else(score: Any, policy: Any) -> None:
    x, y = points(40, 4, 2, seed=5)
    x = np.round(16 * x) / 16
    chooser = AugmentationSelector(score, policy, 0.1, random_state=3)
    expected = chooser.fit(x, y).selected_.tolist()
    assert len(set(expected)) == 4
    for features, labels in (
        (np.asfortranarray(x), y),
        (x.astype(np.float32), y.astype(np.int8)),
        (x, np.array(["a", "b"])[y]),
        (x + 2.0**20, y > 0),
    ):
        assert clone(chooser).fit(features, labels).selected_.tolist() == expected


@pytest.mark.parametrize("downweight", [False, True])
def test_points_and_the_transforms_of_the_chosen_ones(downweight: bool) -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "a"])
    augmented = 10 + np.arange(12.0).reshape(3, 2, 2)
    xs, ys, weight = together(x, y, augmented, np.array([2, 0]), downweight)
    assert xs.tolist() == [*x.tolist(), [18, 19], [20, 21], [10, 11], [12, 13]]
    assert ys.tolist() == ["a", "b", "a", "a", "a", "a", "a"]
    third = 1 / 3  # of a chosen point and of its two transforms
    assert (weight is None) != downweight
    assert weight is None or weight == pytest.approx([third, 1, *[third] * 5])
    assert together(x, y, augmented, np.empty(0, np.int64), downweight)[2] is None


@pytest.mark.parametrize(("fraction", "count"), [(0.0, 0), (1e-9, 0), (0.05, 1), (1.0, 20)])
def test_both_ends_of_the_share(fraction: float, count: int) -> None:
    x, y = points(20, 3, 2)
    x[y == 1] += 9
    assert len(AugmentationSelector(fraction=fraction).fit(x, y).selected_) == count
