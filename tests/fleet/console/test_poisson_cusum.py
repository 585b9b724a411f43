"""The CUSUM against a fine step by step, its run length against simulation and known cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.fleet.console.poisson_cusum import (
    IN_CONTROL_RUN,
    RATIO,
    average_run_length,
    drift,
    statistic,
    threshold_for,
)


def run_lengths(threshold: float, ratio: float, rate: float, runs: int, seed: int) -> np.ndarray:
    """Failures expected in control until the alarm, simulated for many fleets at once."""
    rng = np.random.default_rng(seed)
    fall = drift(ratio)
    value, spent = np.zeros(runs), np.zeros(runs)
    running = np.ones(runs, bool)
    while running.any():
        gaps = rng.exponential(1 / rate, runs)
        value = np.where(running, np.maximum(value - fall * gaps, 0) + 1, value)
        spent = np.where(running, spent + gaps, spent)
        running &= value < threshold
    return spent


@pytest.mark.parametrize(("threshold", "ratio"), [(0.7, 2.0), (2.5, 2.0), (4.6, 2.0), (3.3, 1.5)])
def test_in_control_run_length_is_the_simulated_one(threshold: float, ratio: float) -> None:
    spent = run_lengths(threshold, ratio, 1.0, 40_000, seed=7)
    error = spent.std() / math.sqrt(len(spent))
    assert abs(spent.mean() - average_run_length(threshold, ratio)) < 4 * error


def test_the_shipped_threshold_gives_the_promised_rate_of_false_alarms() -> None:
    threshold = threshold_for()
    assert average_run_length(threshold) == pytest.approx(IN_CONTROL_RUN, rel=1e-6)
    spent = run_lengths(threshold, RATIO, 1.0, 2_000, seed=11)
    error = spent.std() / math.sqrt(len(spent))
    assert abs(spent.mean() - IN_CONTROL_RUN) < 4 * error


def test_a_doubled_rate_is_found_within_thirty_failures() -> None:
    spent = run_lengths(threshold_for(), RATIO, 2.0, 4_000, seed=3)
    assert 2 * spent.mean() == pytest.approx(25, abs=2)  # failures that happen until the alarm
    tripled = run_lengths(threshold_for(), RATIO, 3.0, 4_000, seed=3)
    assert 3 * tripled.mean() < 20


def test_a_threshold_below_one_alarms_at_the_first_failure() -> None:
    assert average_run_length(0.999) == pytest.approx(1.0)


def test_run_length_solves_its_integral_equation() -> None:
    """u(s), the time to an alarm from state s, is 1 + E[u(next state)]: solved by iteration.

    Between failures at least 1 is added, so with h <= 2 every state after a failure lies in [1, h).
    """
    d, h = drift(2.0), 1.6
    states = np.linspace(1.0, h, 61)
    # Gaps that end in [1, h); shorter ones give an alarm, longer ones end at 1.
    gaps = np.linspace((states + 1 - h) / d, states / d, 400)  # [gap, state]
    u = np.ones_like(states)
    for _ in range(200):
        inner = np.exp(-gaps) * np.interp(states - d * gaps + 1, states, u)
        u = 1.0 + np.trapezoid(inner, gaps, axis=0) + np.exp(-states / d) * u[0]
    assert 1.0 + u[0] == pytest.approx(average_run_length(h), rel=1e-3)


def test_the_statistic_step_by_step() -> None:
    rng = np.random.default_rng(5)
    moments = np.round(np.sort(rng.uniform(0, 40, 90)), 3)
    fall, value, after = drift(2.0), 0.0, []
    for step in range(41_000):  # a thousand steps an expected failure
        value = max(0.0, value - fall / 1000)
        value += np.count_nonzero(np.round(moments * 1000) == step + 1)
        after.append(value)
    assert statistic(moments.tolist(), 41.0, 2.0) == pytest.approx(after[-1], abs=0.02)
    seen = moments[moments <= 20].tolist()
    assert statistic(seen, 20.0, 2.0) == pytest.approx(after[19_999], abs=0.02)


def test_without_failures_nothing_is_wrong() -> None:
    assert statistic([], 100.0) == 0.0
    assert statistic([100.0], 100.0) == 1.0
