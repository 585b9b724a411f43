"""Machines compared to the last bit."""

from __future__ import annotations

import numpy as np

from holdfast.automata import Fst

ARRAYS = ("offsets", "ilabel", "olabel", "nextstate", "weight", "final")


def assert_same(found: Fst, expected: Fst) -> None:
    for name in ARRAYS:
        left, right = getattr(found, name), getattr(expected, name)
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, name)
    assert found.start == expected.start
    assert found.semiring == expected.semiring
    assert found.isymbols == expected.isymbols
    assert found.osymbols == expected.osymbols
