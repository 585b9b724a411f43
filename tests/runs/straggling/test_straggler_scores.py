"""Scores and costs against brute force, invariances, and what must not make a straggler."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
from straggling.simulated_steps import matrix_of, noise

from holdfast.runs.straggling.scores import Stragglers, stragglers
from holdfast.runs.straggling.transients import least_length

own_times = numpy_strategies.arrays(
    np.float32,
    st.tuples(st.integers(2, 7), st.integers(1, 12)),
    elements=st.floats(0.125, 4, width=16),
)


def by_rank(found: Stragglers, column: str) -> list[object]:
    return [row[column] for row in found.ranks.sort_by("rank").to_pylist()]


def brute_force(own: np.ndarray) -> tuple[list[float], list[float], list[float], list[float]]:
    """Score, cost, recoverable cost and typical delay of every rank, in plain Python."""
    rows = [[float(x) for x in row] for row in own]
    ranks, steps = range(len(rows)), range(len(rows[0]))
    median = [statistics.median(rows[r][s] for r in ranks) for s in steps]
    late = [[rows[r][s] - median[s] for s in steps] for r in ranks]
    typical = [statistics.median(each) for each in late]
    noise = 1.4826 * statistics.median(abs(late[r][s] - typical[r]) for r in ranks for s in steps)
    mean = 1.2533 * statistics.fmean(abs(late[r][s]) for r in ranks for s in steps)
    cost, saved, z = ([0.0 for _ in ranks], [0.0 for _ in ranks], [[] for _ in ranks])
    for s in steps:
        spread = max(noise, 1.4826 * statistics.median(abs(late[r][s]) for r in ranks))
        if not spread:
            spread = mean
        for r in ranks:
            z[r].append(late[r][s] / spread if spread else 0.0)
        column = sorted((late[r][s] for r in ranks), reverse=True)
        slowest = [r for r in ranks if late[r][s] == column[0]]
        for r in slowest:
            cost[r] += column[0] * len(rows) / 3600 / len(slowest)
        saved[slowest[0]] += (column[0] - column[1]) * len(rows) / 3600
    return [statistics.median(each) for each in z], cost, saved, typical


@given(own_times)
@settings(max_examples=100, deadline=None)
def test_scores_and_costs_are_those_of_brute_force(own: np.ndarray) -> None:
    found = stragglers(matrix_of(own))
    score, cost, saved, typical = brute_force(own)
    assert by_rank(found, "score") == pytest.approx(score, rel=1e-4, abs=1e-4)
    assert by_rank(found, "cost_gpu_hours") == pytest.approx(cost, rel=1e-4, abs=1e-9)
    assert by_rank(found, "recoverable_gpu_hours") == pytest.approx(saved, rel=1e-4, abs=1e-9)
    assert by_rank(found, "delay_s") == pytest.approx(typical, rel=1e-4, abs=1e-6)
    assert found.costs.total == pytest.approx(sum(cost), rel=1e-4, abs=1e-9)


@given(own_times, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_permuting_ranks_permutes_the_answer(own: np.ndarray, random: object) -> None:
    order = list(range(own.shape[0]))
    random.shuffle(order)  # type: ignore[attr-defined]
    one, other = stragglers(matrix_of(own)), stragglers(matrix_of(own[order]))
    for column in ("score", "cost_gpu_hours", "delay_s", "late_share", "q_value"):
        before = by_rank(one, column)
        assert by_rank(other, column) == pytest.approx([before[r] for r in order], abs=1e-9)
    before = by_rank(one, "persistent")
    assert by_rank(other, "persistent") == [before[r] for r in order]


@given(own_times, st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_a_constant_added_to_each_step_changes_no_score(own: np.ndarray, seed: int) -> None:
    added = np.random.default_rng(seed).integers(0, 64, own.shape[1]) / 4.0  # exact in float32
    one, other = stragglers(matrix_of(own)), stragglers(matrix_of(own + added))
    assert by_rank(other, "score") == pytest.approx(by_rank(one, "score"), abs=1e-3)
    assert by_rank(other, "cost_gpu_hours") == pytest.approx(
        by_rank(one, "cost_gpu_hours"), abs=1e-6
    )


@given(own_times)
@settings(max_examples=60, deadline=None)
def test_scaling_time_scales_costs_only(own: np.ndarray) -> None:
    one, other = stragglers(matrix_of(own)), stragglers(matrix_of(4 * own))
    for column in ("score", "late_share", "q_value", "slowdown"):
        assert by_rank(other, column) == pytest.approx(by_rank(one, column), abs=1e-6)
    assert by_rank(other, "persistent") == by_rank(one, "persistent")
    cost = np.array(by_rank(one, "cost_gpu_hours"), dtype=float)
    assert by_rank(other, "cost_gpu_hours") == pytest.approx(4 * cost)


def test_a_cost_worked_by_hand() -> None:
    # Step 0: 2 s, median 1 s; step 1: 5 s, median 1.5 s; three ranks of 8 GPUs.
    own = [[1.0, 1.5], [2.0, 1.0], [1.0, 5.0]]
    found = stragglers(matrix_of(own, gpus=8.0))
    assert by_rank(found, "cost_gpu_hours") == pytest.approx([0, 24 / 3600, 3.5 * 24 / 3600])
    assert found.costs.total == pytest.approx(4.5 * 24 / 3600)
    assert found.costs.worked == pytest.approx(7 * 24 / 3600)


def test_ranks_that_tie_share_the_cost() -> None:
    found = stragglers(matrix_of([[1.0], [1.0], [1.0], [2.0], [2.0]]))
    assert by_rank(found, "cost_gpu_hours") == pytest.approx([0, 0, 0, 2.5 / 3600, 2.5 / 3600])
    assert by_rank(found, "recoverable_gpu_hours") == [0, 0, 0, 0, 0]


def test_equal_times_delay_nobody() -> None:
    found = stragglers(matrix_of(np.ones((5, 40))))
    assert by_rank(found, "score") == [0.0] * 5
    assert not found.persistent
    assert found.costs.total == 0
    assert "No rank is persistently slow" in found.to_dict()["sentence"]


def test_rounded_times_have_no_spread_and_still_a_straggler() -> None:
    own = np.ones((4, 40))
    own[3] = 1.5
    found = stragglers(matrix_of(own))
    assert [row["rank"] for row in found.persistent] == [3]
    assert np.isfinite(by_rank(found, "score")).all()


def test_steps_in_which_everyone_is_slow_delay_nobody() -> None:
    own = noise(8, 200, seed=3)
    own[:, 0] += 60  # compilation
    own[:, ::50] += 5  # a checkpoint that all ranks write
    found = stragglers(matrix_of(own))
    assert not found.persistent
    assert not found.spells.spells


def test_a_spell_is_no_habit() -> None:
    own = noise(8, 400, seed=4)
    own[5, 100:140] += 0.5
    found = stragglers(matrix_of(own))
    assert not found.persistent
    (spell,) = found.spells.spells
    assert (spell.rank, spell.first_step, spell.last_step) == (5, 100, 139)
    assert spell.delay_s == pytest.approx(0.5, abs=0.03)
    assert not spell.ongoing
    # It was the slowest in nearly all of these steps: (max - median) x 8 ranks.
    assert spell.cost_gpu_hours == pytest.approx(40 * 0.5 * 8 / 3600, rel=0.1)


def test_the_length_of_a_spell_is_no_chance() -> None:
    # 1,000 ranks x 10,000 steps, P(z > 3) = 0.00135: 1e7 x 0.00135^3 = 0.025 > 1 % > 1e7 x 0.00135^4.
    assert least_length(0.0, 10_000_000, 0.01) == 4
    assert least_length(0.0, 10, 0.5) == 2  # a single step is never a spell
    assert least_length(0.1, 10_000_000, 0.01) == 9  # heavy tails: ten times a decade
    alarms = sum(bool(stragglers(matrix_of(noise(16, 200, s))).spells.spells) for s in range(100))
    assert alarms <= 4


def test_single_late_steps_of_a_rank_are_no_spell() -> None:
    own = noise(8, 400, seed=5)
    own[2, ::20] += 0.5
    found = stragglers(matrix_of(own))
    assert not found.persistent
    assert not found.spells.spells


def test_who_becomes_slow_late_in_the_run_is_slow() -> None:
    own = noise(8, 400, seed=6)
    own[5, 280:] += 0.3
    found = stragglers(matrix_of(own))
    (row,) = found.persistent
    assert row["rank"] == 5
    assert row["since_step"] == pytest.approx(280, abs=3)


def test_a_slow_last_fifth_of_a_long_run_is_enough() -> None:
    own = noise(8, 1000, seed=6)
    own[5, 800:] += 0.3
    (row,) = stragglers(matrix_of(own)).persistent
    assert (row["rank"], row["since_step"]) == (5, pytest.approx(800, abs=5))


def test_too_few_steps_give_no_verdict() -> None:
    own = np.ones((4, 5)) + np.arange(5) / 100
    own[1] += 1
    found = stragglers(matrix_of(own))
    assert found.least_steps == 6
    assert by_rank(found, "persistent") == [None] * 4
    assert "too few" in found.to_dict()["sentence"]
    six = np.ones((4, 6)) + np.arange(6) / 100
    six[1] += 1
    assert by_rank(stragglers(matrix_of(six)), "persistent") == [False, True, False, False]


def test_delays_below_the_least_slowdown_do_not_matter() -> None:
    own = noise(6, 300, seed=7, spread=1e-4)
    own[2] += 0.003
    assert not stragglers(matrix_of(own)).persistent
    found = stragglers(matrix_of(own), least_slowdown=0.001)
    assert [row["rank"] for row in found.persistent] == [2]


SLOW = [(4, 2), (8, 4), (8, 5), (8, 7), (16, 8), (3, 2), (8, 3), (2, 1)]
"""Ranks, and how many of them, the last ones, are slow."""


@pytest.mark.parametrize(("ranks", "slow"), SLOW)
def test_half_of_the_ranks_or_more_may_be_slow(ranks: int, slow: int) -> None:
    own = noise(ranks, 100, seed=8, spread=0.02)
    own[-slow:] += 0.1
    slow_ranks = [*range(ranks - slow, ranks)]
    # One node is slow: its ranks are stragglers.
    labels = [{"node": "b" if rank in slow_ranks else "a"} for rank in range(ranks)]
    found = stragglers(matrix_of(own, labels))
    assert sorted(row["rank"] for row in found.persistent) == slow_ranks
    if ranks > 2:  # of two, the median is between them
        delays_s = [row["delay_s"] for row in found.persistent]
        assert delays_s == pytest.approx([0.1] * slow, abs=0.04)
    assert found.recoverable_gpu_hours > 0
    # A label with slow ranks on both sides does not explain them, nor hide the others.
    if 1 < slow < ranks - 1:
        crossed = [{"node": "b" if rank > ranks - slow else "a"} for rank in range(ranks)]
        groups = stragglers(matrix_of(own, crossed)).groups
        assert groups is None or (groups.label, [*groups.slow]) == (None, slow_ranks)
    # No label says so: the groups are reported, and nobody is called normal.
    told = stragglers(matrix_of(own)).to_dict()
    if 2 * slow < ranks - 1 or ranks == 2:
        assert told["groups"] is None
        return
    assert told["groups"]["slow_ranks"] == slow_ranks
    assert told["groups"]["delay_s"] == pytest.approx(0.1, abs=0.02)
    assert {row["rank"] for row in told["ranks"] if row["persistent"] is None} == {*slow_ranks}


def test_one_node_of_two_whose_ranks_differ() -> None:
    """No gap between the ranks, yet the nodes differ; and a rank that is slow by itself hides neither."""
    own = noise(16, 200, seed=3, spread=0.02) + np.linspace(0, 0.08, 16)[:, None]
    labels = [{"node": f"n{rank % 2}"} for rank in range(16)]
    assert stragglers(matrix_of(own, labels)).groups is None
    own[1::2] += 0.1
    own[4] += 2.0
    found = stragglers(matrix_of(own, labels))
    assert sorted(row["rank"] for row in found.persistent) == [1, 3, 4, 5, 7, 9, 11, 13, 15]
    assert found.groups is not None
    assert found.groups.values == ("n1",)


def test_a_node_that_becomes_slow_late_in_the_run() -> None:
    own = noise(8, 400, seed=5, spread=0.02)
    own[4:, 320:] += 0.1
    found = stragglers(matrix_of(own, [{"switch": str(rank // 4)} for rank in range(8)]))
    assert sorted(row["rank"] for row in found.persistent) == [4, 5, 6, 7]
    assert all(abs(row["since_step"] - 320) <= 2 for row in found.persistent)


@pytest.mark.parametrize("tail", ["normal", "student", "skewed"])
def test_equal_ranks_are_not_two_groups(tail: str) -> None:
    alarms = 0
    for seed in range(100):
        ranks = (3, 4, 8, 16)[seed % 4]
        labels = [{"node": f"n{2 * r // ranks}", "stage": str(r % 3)} for r in range(ranks)]
        own = noise(ranks, 40, seed, tail=tail)
        alarms += stragglers(matrix_of(own, labels), least_slowdown=0.0).groups is not None
    assert alarms <= 4  # 100 runs at 1 %: P(more than 4) < 0.4 %


def test_json_has_the_contract() -> None:
    own = noise(4, 50, seed=9)
    own[3] += 0.4
    told = stragglers(matrix_of(own)).to_dict()
    assert {"rank", "score", "cost_gpu_hours", "persistent"} <= told["ranks"][0].keys()
    assert [row["rank"] for row in told["ranks"] if row["persistent"]] == [3]
    assert told["ranks"][0]["rank"] == 3
    costs = sum(row["cost_gpu_hours"] for row in told["ranks"])
    assert costs == pytest.approx(told["total_cost_gpu_hours"])
