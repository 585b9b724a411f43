"""Cosines of gradients and their jackknife, against NumPy on the gradients themselves."""

import math

import numpy as np
import pytest

from holdfast.data.records.tuning.scores import Products, Score, exactly_alike, score


def products_of(full, candidate):
    return Products(full @ full.T, full @ candidate.T, candidate @ candidate.T)


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


@pytest.mark.parametrize("blocks", [2, 3, 10])
@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_value_and_error_are_those_of_the_summed_gradients(blocks, noise):
    draw = np.random.default_rng(blocks)
    full = draw.normal(size=(blocks, 40))
    candidate = full + noise * draw.normal(size=(blocks, 40))
    left = np.array(
        [
            cosine(np.delete(full, b, 0).sum(0), np.delete(candidate, b, 0).sum(0))
            for b in range(blocks)
        ]
    )
    found = score(2, products_of(full, candidate))
    assert found.value == pytest.approx(cosine(full.sum(0), candidate.sum(0)), abs=1e-12)
    assert found.error == pytest.approx(math.sqrt((blocks - 1) * left.var()), rel=1e-6)
    assert found.freedom == blocks - 1


def test_the_interval_holds_the_cosine_of_the_mean_gradients_about_as_often_as_it_says():
    # Gradients of batches scatter around fixed means whose cosine is known.
    draw = np.random.default_rng(5)
    mean = draw.normal(size=30)
    shift = draw.normal(size=30)
    truth = cosine(mean, mean + 0.6 * shift)
    hits, runs = 0, 400
    for _ in range(runs):
        common = draw.normal(size=(10, 30))  # a batch is the same at both fidelities
        full = mean + 0.3 * common
        candidate = mean + 0.6 * shift + 0.3 * common + 0.2 * draw.normal(size=(10, 30))
        low, high = score(1, products_of(full, candidate)).interval
        hits += low <= truth <= high
    assert 0.88 <= hits / runs <= 0.99


@pytest.mark.parametrize(
    ("full", "candidate"),
    [
        (np.zeros((3, 4)), np.ones((3, 4))),
        (np.ones((3, 4)), np.zeros((3, 4))),
        (np.ones((3, 4)), np.full((3, 4), np.nan)),
        (np.ones((3, 4)), np.full((3, 4), np.inf)),
    ],
)
def test_a_gradient_that_is_zero_or_not_finite_has_no_score(full, candidate):
    with np.errstate(invalid="ignore"):
        found = score(1, products_of(full, candidate))
    assert math.isnan(found.value)
    assert found.error is None
    assert math.isnan(found.interval[0])
    assert found.to_dict() == {
        "fidelity": 1, "score": None, "error": None, "low": None, "high": None, "freedom": 2,
    }  # fmt: skip


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_scores_do_not_depend_on_the_size_of_gradients(scale):
    draw = np.random.default_rng(0)
    full, candidate = draw.normal(size=(2, 4, 9))
    expected = score(1, products_of(full, candidate))
    found = score(1, products_of(scale * full, scale * candidate))
    assert found.value == pytest.approx(expected.value)
    assert found.error == pytest.approx(expected.error)


def test_one_block_gives_no_error_and_equal_gradients_no_doubt():
    one = np.ones((1, 3))
    assert score(1, products_of(one, one)) == Score(1, 1.0, None)
    assert exactly_alike(5).interval == (pytest.approx(1.0), pytest.approx(1.0))


@pytest.mark.parametrize("one", [Score(2, 0.5, 0.1, 9), Score(1, math.nan, None)])
def test_a_score_survives_a_checkpoint(one):
    assert repr(Score.from_state(one.state())) == repr(one)
