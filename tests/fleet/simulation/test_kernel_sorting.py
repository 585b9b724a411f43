"""The kernel's sort in place against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.fleet.simulation.kernel.preempting import _sort


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 17, 64, 1000])
@pytest.mark.parametrize("most", [2, 1 << 60])
def test_the_first_values_are_sorted_and_the_others_stay(count: int, most: int) -> None:
    values = np.random.default_rng(count).integers(-most, most, count + 3)
    expected = values.copy()
    expected[:count].sort()
    _sort(values, count)
    np.testing.assert_array_equal(values, expected)
