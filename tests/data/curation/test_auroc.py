"""Areas under the ROC curve: scikit-learn, Mann and Whitney's U, DeLong's variance, coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, norm
from sklearn.metrics import roc_auc_score

from holdfast.data.curation.auroc import Auroc, auroc, mean

ALL = st.sampled_from([0.0, -0.0, 1.0, 1.0 + 2**-52, 5e-324, 1e308, -1e308, -2.0, 3.0])


@st.composite
def scored(draw: Any) -> tuple[Any, Any]:
    """Scores with ties and of any size, and which are of corrupted files: some of each kind."""
    scores = draw(st.lists(ALL, min_size=2, max_size=12))
    bad = draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    return np.array(scores), np.array([True, *bad[1:-1], False])


@given(scored())
def test_an_area_is_that_of_scikit_learn_and_of_mann_and_whitney(case: tuple[Any, Any]) -> None:
    scores, bad = case
    area = auroc(scores[None], bad[None], np.ones(len(bad), bool))
    assert area.value == pytest.approx(roc_auc_score(bad, scores))
    u = mannwhitneyu(scores[bad], scores[~bad]).statistic
    assert area.value == pytest.approx(u / bad.sum() / (~bad).sum())
    assert area.derivatives.sum() == pytest.approx(0, abs=1e-12)  # a weight for all changes nothing
    low, high = area.ci95()
    assert 0 <= low <= area.value <= high <= 1
    # The other way around, and on any other scale that keeps the order.
    against = auroc(-scores[None], bad[None], np.ones(len(bad), bool))
    assert against.value == pytest.approx(1 - area.value)
    assert against.derivatives == pytest.approx(-area.derivatives)
    order = np.unique(scores, return_inverse=True)[1].astype(float)
    for scale in (order, 1e-300 * order, np.exp(order)):
        assert auroc(scale[None], bad[None], np.ones(len(bad), bool)).value == area.value


def delong(bad: Any, good: Any) -> float:
    """The variance of an area by DeLong, DeLong and Clarke-Pearson (1988), equation 3, pair by pair."""
    psi = np.array([[(x > y) + 0.5 * (x == y) for y in good] for x in bad])
    one, other = psi.mean(axis=1), psi.mean(axis=0)
    return float(one.var(ddof=1) / len(bad) + other.var(ddof=1) / len(good))


@pytest.mark.parametrize(("m", "n"), [(40, 40), (200, 30)])
def test_the_error_of_one_draw_is_that_of_delong(m: int, n: int) -> None:
    rng = np.random.default_rng(m)
    bad, good = rng.integers(0, 9, m) + 2.0, rng.integers(0, 9, n) + 0.0
    area = auroc(np.r_[bad, good][None], (np.arange(m + n) < m)[None], np.ones(m + n, bool))
    assert area.standard_error == pytest.approx(np.sqrt(delong(bad, good)), rel=1 / min(m, n))


def test_a_difference_of_areas_knows_that_files_are_the_same() -> None:
    """DeLong's covariance: of two scores that agree in nearly all, the difference is sure."""
    rng = np.random.default_rng(3)
    bad = np.arange(80) < 40
    scores = rng.normal(size=80) + bad
    near = scores + 0.02 * rng.normal(size=80)
    one, other = (auroc(each[None], bad[None], np.ones(80, bool)) for each in (scores, near))
    apart = auroc((rng.normal(size=80) + bad)[None], bad[None], np.ones(80, bool))
    assert (one - other).standard_error < 0.1 * (one - apart).standard_error
    assert (one - one).standard_error == 0
    both = mean([one, apart])
    assert both.value == pytest.approx((one.value + apart.value) / 2)
    assert both.derivatives == pytest.approx((one.derivatives + apart.derivatives) / 2)
    # The same by leaving out one file after the other.
    left = []
    for file in range(80):
        keep = np.arange(80) != file
        parts = [(s[keep & bad][:, None] > s[keep & ~bad]).mean() for s in (scores, near)]
        left.append(parts[0] - parts[1])
    jackknife = np.sqrt(79 / 80 * np.sum((left - np.mean(left)) ** 2))
    assert (one - other).standard_error == pytest.approx(jackknife, rel=0.05)


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_intervals_cover_the_true_area(shift: float) -> None:
    """Of two normal scores: Phi(shift / sqrt(2))."""
    rng, true, held = np.random.default_rng(5), float(norm.cdf(shift / np.sqrt(2))), 0
    bad = np.arange(120) < 40
    for _ in range(200):
        scores = rng.normal(size=120) + shift * bad
        low, high = auroc(scores[None], bad[None], np.ones(120, bool)).ci95()
        held += low <= true <= high
    assert held >= 0.92 * 200


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_intervals_of_areas_without_spread(value: float) -> None:
    area = Auroc(value, np.zeros(100))
    low, high = area.ci95()
    assert low <= value <= high
    assert (low, high) == ((0.5, 0.5) if value == 0.5 else (low, high))
    assert value == 0.5 or 0.01 < high - low < 0.1
