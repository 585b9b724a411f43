"""Numbers, intervals and durations as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.numbers import bounds, duration, interval, number, p_value, percent, probability


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, None, "–"),
        (math.nan, 2, "–"),
        (math.inf, None, "∞"),
        (-math.inf, None, "−∞"),
        (1204, None, "1,204"),
        (0, None, "0"),
        (0.0, None, "0"),
        (0.65023, None, "0.6502"),
        (47.7, 2, "47.70"),
        (-3.14159, 1, "−3.1"),
        (-0.04, 1, "0.0"),
        (8.3e-7, 3, "<0.001"),
        (0.4, 0, "<1"),
        (123456.7, None, "123,457"),
        (1e-9, None, "1.000e−09"),
        (9.9996, None, "10.000"),
        (-(2**63) - 1, None, "−9,223,372,036,854,775,809"),
        (10**29 + 1, None, "100,000,000,000,000,000,000,000,000,001"),
        (10**30, None, "1.000e+30"),
        (26**400, None, "9.758e+565"),
    ],
)
def test_numbers(value: float | None, digits: int | None, text: str) -> None:
    assert number(value, digits) == text


@pytest.mark.parametrize(
    ("lower", "upper", "text"),
    [
        (0.0860, 0.99961, "[0.0860, 0.9996]"),
        (0.9995, 1.0, "[0.9995, 1.00]"),
        (0.99999, 1 - 1e-9, "[0.999990, >0.999999]"),
        (0.0, 1.23e-8, "[0, 1.23e−08]"),
        (0.99949, 0.99951, "[0.999, 0.9995]"),
    ],
)
def test_bounds_below_one_never_read_as_one(lower: float, upper: float, text: str) -> None:
    assert bounds(lower, upper) == text


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.312, None, "31 %"),
        (0.312, 1, "31.2 %"),
        (0.031, None, "3.1 %"),
        (0.0002, None, "<0.1 %"),
        (0.9921, None, "99.2 %"),
        (0.99999, None, ">99.9 %"),
        (0.999, 0, ">99 %"),
        (0, None, "0 %"),
        (1, None, "100 %"),
        (1, 1, "100.0 %"),
        (None, None, "–"),
        (math.nan, None, "–"),
    ],
)
def test_percentages(share: float | None, digits: int | None, text: str) -> None:
    assert percent(share, digits) == text


def test_intervals() -> None:
    assert interval(5.1, 9.82, 1) == "[5.1, 9.8]"
    assert interval(27.1085, math.inf, 1) == "[27.1, ∞)"
    assert interval(None, 2, 0) == "[–, 2]"
    assert interval(1.394e-64, 6.431) == "[<0.001, 6.431]"
    assert interval(2e-9, 3e-9) == "[2.000e−09, 3.000e−09]"
    assert interval(1e-9, 52341.0) == "[<1, 52,341]"
    assert interval(0, 6.431) == "[0, 6.431]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5400, "1 h 30 min"),
        (3599.6, "1 h"),
        (86399, "1 d"),
        (4124160, "47 d 18 h"),
        (90, "1 min 30 s"),
        (59.7, "1 min"),
        (12.2, "12 s"),
        (0.25, "0.25 s"),
        (-90, "−1 min 30 s"),
        (math.inf, "∞"),
        (None, "–"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(min_value=10, max_value=1e9))
def test_a_duration_is_within_one_part_in_eighty_of_the_truth(seconds: float) -> None:
    sizes = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    words = duration(seconds).replace(",", "").split()
    back = sum(int(n) * sizes[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert abs(back - seconds) <= max(0.5, seconds / 48)


def test_a_p_value_is_never_zero() -> None:
    assert p_value(0.0314) == "p = 0.0314"
    assert p_value(1e-9) == "p < 0.000001"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1.00"), (0.0862, "0.0862"), (0.00012, "1.20e−04"), (1.23e-9, "1.23e−09")],
)
def test_probabilities_are_never_too_small_to_tell(value: float, text: str) -> None:
    assert probability(value) == text
