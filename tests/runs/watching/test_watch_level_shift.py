"""Medians kept as values come and go, and what counts as a lasting rise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runs.watching.level_shift import LevelShift, SortedWindow
from holdfast.runs.watching.thresholds import DEFAULTS, Thresholds

values = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=60)


@given(values, st.integers(1, 20))
def test_a_window_has_numpys_median_and_deviation(numbers: list[float], size: int) -> None:
    window = SortedWindow(size)
    left = [window.add(number) for number in numbers]
    kept = numbers[-size:]
    assert window.median() == pytest.approx(np.median(kept), abs=1e-9)
    deviation = 1.4826 * np.median(np.abs(np.array(kept) - np.median(kept)))
    assert window.deviation() == pytest.approx(deviation, abs=1e-6)
    assert [value for value in left if value is not None] == numbers[: max(0, len(numbers) - size)]


def feed(shift: LevelShift, values: list[float]) -> list[bool]:
    """Whether the shift is open after each value, which took its own time."""
    states = []
    for label, value in enumerate(values):
        shift.add(value, value, label)
        states.append(shift.open)
    return states


STEADY = [1.0, 1.02, 0.98, 1.01, 0.99] * 40


def test_a_doubling_opens_once_it_was_confirmed_and_closes_when_over() -> None:
    shift = LevelShift(DEFAULTS, 1.5)
    before = feed(shift, STEADY)
    during = feed(shift, [2.0] * 60)
    level, lasted_s = shift.level, shift.lasted_s
    after = feed(shift, [1.0] * 20)
    assert not any(before)
    assert during.index(True) * 2.0 == pytest.approx(DEFAULTS.confirm_s + 10, abs=4)
    assert all(during[during.index(True) :])
    assert level == 2.0
    assert lasted_s >= DEFAULTS.confirm_s
    assert after.index(False) == 5  # a majority of the last eleven
    assert not any(after[5:])


@pytest.mark.parametrize("length", [1, 3, 5])
def test_a_few_long_values_are_no_rise(length: int) -> None:
    shift = LevelShift(DEFAULTS, 1.5)
    assert not any(feed(shift, (STEADY + [40.0] * length) * 5))


def test_a_rise_below_the_factor_or_within_the_noise_is_none() -> None:
    assert not any(feed(LevelShift(DEFAULTS, 1.5), STEADY + [1.4] * 300))
    draw = np.random.default_rng(3)
    noisy = np.exp(0.6 * draw.standard_normal(400)).tolist()
    louder = (1.55 * np.exp(0.6 * draw.standard_normal(25))).tolist()
    assert not any(feed(LevelShift(DEFAULTS, 1.5), noisy + louder))


def test_the_usual_does_not_learn_from_a_rise() -> None:
    shift = LevelShift(DEFAULTS, 1.5)
    feed(shift, STEADY)
    feed(shift, [2.0] * 600)
    assert shift.open
    assert shift.usual == pytest.approx(1.0, abs=0.02)


def test_a_slow_drift_becomes_the_usual() -> None:
    drift = np.linspace(1.0, 3.0, 8000).tolist()
    assert not any(feed(LevelShift(DEFAULTS, 1.5), drift))


def test_a_new_level_settles() -> None:
    shift = LevelShift(Thresholds(settle_s=500), 1.5)
    states = feed(shift, STEADY + [2.0] * 500)
    assert any(states)
    assert not states[-1]
    assert shift.usual == pytest.approx(2.0)


def test_where_slow_episodes_are_usual_they_are_no_rise() -> None:
    draw = np.random.default_rng(5)
    noise, values = 0.0, []
    for _ in range(12_000):
        noise = 0.95 * noise + 0.3 * np.sqrt(1 - 0.95**2) * draw.standard_normal()
        values.append(5.0 * float(np.exp(noise)))
    states = feed(LevelShift(DEFAULTS, 1.5), values)
    opened = sum(now and not before for before, now in pairwise(states))
    assert opened <= 2
    assert max(values) > 2.0 * float(np.median(values))
