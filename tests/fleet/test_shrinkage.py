"""Shrinkage of failure rates, against SciPy's distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from holdfast.fleet.lemon_statistics import gamma_prior, shrink


def test_prior_is_the_maximum_of_the_negative_binomial_likelihood():
    rng = np.random.default_rng(8)
    days = rng.uniform(5, 60, 500)
    count = rng.poisson(rng.gamma(0.8, 1 / 40, 500) * days).astype(float)

    def cost(log):
        a, b = np.exp(log)
        return -stats.nbinom.logpmf(count, a, b / (b + days)).sum()

    peer = optimize.minimize(cost, [0.0, 3.0], method="Nelder-Mead", options={"xatol": 1e-8})
    found = gamma_prior(count, days)
    assert found is not None
    assert np.log(found) == pytest.approx(peer.x, abs=1e-3)
    assert cost(np.log(found)) <= peer.fun + 1e-6
    assert found == pytest.approx((0.8, 40), rel=0.35)


def test_shrinkage_is_the_conjugate_posterior():
    blame, days = np.array([0.0, 2.0, 3.5]), np.array([10.0, 40.0, 20.0])
    mean, low, high = shrink(blame, days, (1.5, 80.0))
    for i in range(3):
        posterior = stats.gamma(1.5 + blame[i], scale=1 / (80 + days[i]))
        assert mean[i] == pytest.approx(posterior.mean())
        assert (low[i], high[i]) == pytest.approx(posterior.ppf([0.025, 0.975]))
