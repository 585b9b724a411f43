"""Shares and tables, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from holdfast.lm.query.audits.intervals import chi_square, wilson


@pytest.mark.parametrize(("hits", "count"), [(0, 5), (5, 5), (3, 4), (120, 400), (1, 1)])
def test_intervals_are_wilsons(hits: int, count: int) -> None:
    expected = stats.binomtest(hits, count).proportion_ci(method="wilson")
    assert wilson(hits / count, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0.0, 0) == (0.0, 1.0)


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
