"""Censored fits against closed forms, lifelines, and known parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.fleet.simulation.durations import Prior, fit


def test_lognormal_without_censoring_is_the_closed_form() -> None:
    logs = np.random.default_rng(1).normal(7.0, 0.8, 500)
    found = fit("lognormal", np.exp(logs), np.ones(500, bool), least=0.0)
    assert found.mu == pytest.approx(logs.mean(), rel=1e-6)
    assert found.sigma == pytest.approx(logs.std(), rel=1e-6)
    # Information of (mu, log sigma): n / sigma^2 and 2 n.
    assert found.covariance[0, 0] == pytest.approx(logs.var() / 500, rel=1e-3)
    assert found.covariance[1, 1] == pytest.approx(1 / 1000, rel=1e-3)
    assert found.mean == pytest.approx(math.exp(logs.mean() + logs.var() / 2), rel=1e-5)


@pytest.mark.parametrize("family", ["lognormal", "weibull"])
def test_right_censoring_as_lifelines(family: str) -> None:
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(2)
    time = (
        np.exp(rng.normal(6.0, 1.3, 800)) if family == "lognormal" else 400 * rng.weibull(0.6, 800)
    )
    cut = rng.exponential(900, 800)
    seen, time = time < cut, np.minimum(time, cut)
    found = fit(family, time, seen, least=0.0)  # type: ignore[arg-type]
    if family == "lognormal":
        oracle = lifelines.LogNormalFitter().fit(time, seen)
        assert found.mu == pytest.approx(oracle.mu_, rel=1e-4)
        assert found.sigma == pytest.approx(oracle.sigma_, rel=1e-4)
        assert found.covariance[0, 0] ** 0.5 == pytest.approx(
            oracle.summary.loc["mu_", "se(coef)"], rel=1e-2
        )
    else:
        oracle = lifelines.WeibullFitter().fit(time, seen)
        assert found.scale == pytest.approx(oracle.lambda_, rel=1e-4)
        assert found.shape == pytest.approx(oracle.rho_, rel=1e-4)


@pytest.mark.parametrize("family", ["lognormal", "weibull"])
def test_left_censoring_as_lifelines(family: str) -> None:
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(3)
    time = np.exp(rng.normal(2.0, 1.5, 600)) if family == "lognormal" else 9 * rng.weibull(0.5, 600)
    found = fit(family, time, np.ones(600, bool), least=3.0)  # type: ignore[arg-type]
    low, high = np.where(time <= 3.0, 0.0, time), np.where(time <= 3.0, 3.0, time)
    fitter = lifelines.LogNormalFitter() if family == "lognormal" else lifelines.WeibullFitter()
    oracle = fitter.fit_interval_censoring(low, high)
    first, second = (found.mu, found.sigma) if family == "lognormal" else (found.scale, found.shape)
    names = ("mu_", "sigma_") if family == "lognormal" else ("lambda_", "rho_")
    assert first == pytest.approx(getattr(oracle, names[0]), rel=2e-3)
    assert second == pytest.approx(getattr(oracle, names[1]), rel=2e-3)


def test_exponential_rate_is_ends_over_time() -> None:
    # With the shape held at one, the scale is the time over the ends.
    rng = np.random.default_rng(4)
    time = rng.exponential(100.0, 4_000)
    seen, time = time < 150, np.minimum(time, 150)
    found = fit("weibull", time, seen, sigma=1.0, least=0.0)
    assert found.shape == 1.0
    assert found.scale == pytest.approx(time.sum() / seen.sum(), rel=1e-3)


def test_bins_of_a_large_sample_change_nothing_that_matters() -> None:
    rng = np.random.default_rng(5)
    time = np.exp(rng.normal(7, 1.5, 200_000))
    found = fit("lognormal", time, np.ones(time.size, bool), least=0.0)
    assert found.mu == pytest.approx(np.log(time).mean(), abs=1e-3)
    assert found.sigma == pytest.approx(np.log(time).std(), rel=1e-3)


@pytest.mark.quick(1)
@pytest.mark.full
@pytest.mark.parametrize("family", ["lognormal", "weibull"])
def test_intervals_cover(family: str) -> None:
    """In 200 samples the interval of the scale misses the truth 10 times on average; 22 is p < 1e-3."""
    missed = 0
    for seed in range(200):
        rng = np.random.default_rng(1000 + seed)
        if family == "lognormal":
            time = np.exp(rng.normal(6.0, 1.2, 150))
        else:
            time = 500 * rng.weibull(0.5, 150)
        cut = rng.exponential(1500, 150)
        found = fit(family, np.minimum(time, cut), time < cut)  # type: ignore[arg-type]
        if family == "lognormal":
            low, high = found.mean_ci95
            missed += not low <= math.exp(6.0 + 0.72) <= high
        else:
            low, high = found.scale_ci95
            missed += not low <= 500 <= high
    assert missed <= 22


def test_a_prior_rules_where_nothing_was_seen() -> None:
    belief = Prior(8.0, 0.5, math.log(1.2), 0.3)
    found = fit("lognormal", [10.0, 20.0], [False, False], prior=belief)
    assert found.mu == pytest.approx(8.0, abs=0.05)
    assert found.sigma == pytest.approx(1.2, rel=0.05)


def test_ends_at_one_time_have_no_spread() -> None:
    found = fit("lognormal", np.full(50, 600.0), np.ones(50, bool))
    assert found.sigma < 0.01
    assert found.mean == pytest.approx(600, rel=0.01)


def test_an_interval_of_a_wide_sample_has_no_bound() -> None:
    """The mean of a lognormal that spreads over all of time is not known to a power of ten."""
    found = fit("lognormal", [30.0, 40_000.0, 9e6], [True, False, False])
    assert found.mean_ci95 == (0.0, math.inf)


def test_bad_samples() -> None:
    with pytest.raises(InputError, match="no end was seen"):
        fit("weibull", [5.0, 6.0], [False, False])
    with pytest.raises(InputError, match="missing or negative"):
        fit("weibull", [5.0, -6.0], [True, False])
