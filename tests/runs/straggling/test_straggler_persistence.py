"""The test for habit: its null distribution, its false alarms, its power."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from straggling.simulated_steps import matrix_of, noise

from holdfast.runs.straggling.delays import delays
from holdfast.runs.straggling.persistence import least_steps, persistence, poisson_binomial
from holdfast.runs.straggling.scores import stragglers


@pytest.mark.parametrize("marks", [[1], [1, 2, 0], [3, 1, 1, 2], [2, 2, 2, 2, 2], [4, 4, 0, 1]])
def test_null_distribution_is_that_of_enumeration(marks: list[int]) -> None:
    # Rank 0 of 4: in each step `k` of the ranks are marked, every choice of them equally likely.
    chance = np.zeros(len(marks) + 1)
    steps = [list(itertools.combinations(range(4), k)) for k in marks]
    for outcome in itertools.product(*steps):
        chance[sum(0 in chosen for chosen in outcome)] += 1
    chance /= math.prod(len(step) for step in steps)
    assert poisson_binomial(marks, 4)[: len(chance)] == pytest.approx(chance, abs=1e-12)


def test_tail_keeps_its_digits() -> None:
    assert poisson_binomial([1] * 200, 4)[200] == pytest.approx(0.25**200, rel=1e-9)


def test_least_steps_can_convict_and_one_less_cannot() -> None:
    for ranks in (2, 4, 64, 1024):
        steps = least_steps(ranks, 0.01)
        assert 3 * ranks * float(ranks) ** -steps <= 0.01
        assert 3 * ranks * float(ranks) ** -(steps - 1) > 0.01


@pytest.mark.parametrize("tail", ["normal", "student", "skewed"])
def test_q_values_keep_their_rate_without_stragglers(tail: str) -> None:
    # The rate is asked of the q-values alone, without the other two conditions, at a rate large enough
    # to be measured: of n runs at most a binomial number may have one below it.
    alpha, runs = 0.1, 250
    alarms = 0
    for seed in range(runs):
        found = delays(matrix_of(noise(5, 24, seed, tail=tail)))
        alarms += bool((persistence(found, alpha=alpha, least_delay_s=0.0).q_value <= alpha).any())
    assert alarms <= alpha * runs + 3 * math.sqrt(alpha * (1 - alpha) * runs)


def test_false_alarms_stay_below_the_stated_rate() -> None:
    alarms = sum(
        bool(stragglers(matrix_of(noise(ranks, 40, seed)), least_slowdown=0.0).persistent)
        for ranks in (3, 8)
        for seed in range(100)
    )
    assert alarms <= 6  # 200 runs at 1 %: P(more than 6) < 0.5 %


@pytest.mark.full
@pytest.mark.parametrize("tail", ["normal", "student", "skewed"])
@pytest.mark.parametrize(("ranks", "steps"), [(2, 60), (4, 20), (8, 200), (32, 100)])
def test_false_alarms_over_many_runs(tail: str, ranks: int, steps: int) -> None:
    runs = 1000
    alarms = sum(
        bool(stragglers(matrix_of(noise(ranks, steps, seed, tail=tail))).persistent)
        for seed in range(runs)
    )
    assert alarms <= 0.01 * runs + 3 * math.sqrt(0.01 * runs)


def test_slow_drifts_of_all_ranks_are_no_habit() -> None:
    # Noise that lasts (lag-one correlation 0.95) breaks the independence of steps; the other two
    # conditions hold the false alarms down.
    alarms = 0
    for seed in range(60):
        white = np.random.default_rng(seed).standard_normal((8, 200))
        red = np.zeros_like(white)
        for step in range(1, 200):
            red[:, step] = 0.95 * red[:, step - 1] + math.sqrt(1 - 0.95**2) * white[:, step]
        alarms += bool(stragglers(matrix_of(1 + 0.05 * red)).persistent)
    assert alarms <= 6


@pytest.mark.parametrize(
    ("ranks", "steps", "delay", "least_power"),
    [(4, 20, 0.10, 0.8), (8, 200, 0.05, 0.95), (64, 50, 0.10, 0.95), (2, 60, 0.1, 0.95)],
)
def test_injected_stragglers_are_found(
    ranks: int, steps: int, delay: float, least_power: float
) -> None:
    # Noise of 5 % of a step; one rank is slower by one or two times the noise.
    hits = wrong = 0
    for seed in range(40):
        own, slow = noise(ranks, steps, seed), seed % ranks
        own[slow] += delay
        named = [row["rank"] for row in stragglers(matrix_of(own)).persistent]
        hits += slow in named
        wrong += any(rank != slow for rank in named)
    assert hits >= least_power * 40
    assert wrong <= 2


def test_several_stragglers_are_found_together() -> None:
    own = noise(16, 100, seed=1)
    own[[2, 3, 11]] += 0.15
    found = stragglers(matrix_of(own))
    assert sorted(row["rank"] for row in found.persistent) == [2, 3, 11]
    # Without them the slowest is an ordinary rank: most of the cost is theirs together, little of it
    # is any single one's.
    assert found.recoverable_gpu_hours > 0.5 * found.costs.total
    assert (
        sum(row["recoverable_gpu_hours"] for row in found.persistent) < found.recoverable_gpu_hours
    )
