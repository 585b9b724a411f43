"""Intervals and tests, against SciPy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from holdfast.stats import (
    benjamini_hochberg,
    chi_square,
    clopper_pearson_interval,
    jackknife_error,
    poisson_interval,
    wilson_interval,
)


@given(failures=st.integers(0, 100_000), node_days=st.floats(1e-3, 1e9))
def test_interval_is_garwoods(failures, node_days):
    low, high = poisson_interval(failures, node_days)
    lowest = stats.chi2.ppf(0.025, 2 * failures) / 2 / node_days if failures else 0
    assert low == pytest.approx(lowest, rel=1e-9)
    assert high == pytest.approx(stats.chi2.ppf(0.975, 2 * failures + 2) / 2 / node_days, rel=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_q_values_are_the_step_up_procedure(p_values):
    q = benjamini_hochberg(p_values)
    p = np.array(p_values)
    for alpha in (0.01, 0.05, 0.2, 0.5):
        ranked = np.sort(p)
        passed = [i for i in range(p.size) if ranked[i] <= alpha * (i + 1) / p.size]
        threshold = ranked[passed[-1]] if passed else -1.0
        close = np.abs(q - alpha) < 1e-12  # rounding may decide these
        np.testing.assert_array_equal((q <= alpha)[~close], (p <= threshold)[~close])
    assert q == pytest.approx(stats.false_discovery_control(p), abs=1e-12)


@pytest.mark.parametrize(
    ("hits", "count"), [(0, 5), (5, 5), (3, 4), (120, 400), (1, 1), (0, 1), (7, 9_000_000)]
)
def test_intervals_of_shares_are_those_of_scipy(hits: int, count: int) -> None:
    for method, interval in (("wilson", wilson_interval), ("exact", clopper_pearson_interval)):
        expected = stats.binomtest(hits, count).proportion_ci(method=method)
        found = interval(hits, count)
        assert found == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)


def test_without_trials_nothing_is_known() -> None:
    assert wilson_interval(0.0, 0) == clopper_pearson_interval(0, 0) == (0.0, 1.0)


def test_chi_square_is_that_of_scipy() -> None:
    table = np.random.default_rng(1).integers(1, 60, (3, 5)).astype(float)
    expected = stats.chi2_contingency(table, correction=False)
    assert chi_square(table) == pytest.approx(
        (expected.statistic, expected.dof, expected.pvalue), rel=1e-12
    )
    padded = np.zeros((4, 6))
    padded[:3, :5] = table
    assert chi_square(padded) == pytest.approx(chi_square(table))


def test_a_table_of_one_row_has_nothing_to_depend_on() -> None:
    assert chi_square(np.array([[3.0, 4.0]])) == (0.0, 0, 1.0)
    assert chi_square(np.zeros((2, 2))) == (0.0, 0, 1.0)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(3).normal(size=20)
    without = (values.sum() - values) / 19
    assert jackknife_error(without) == pytest.approx(stats.sem(values))
