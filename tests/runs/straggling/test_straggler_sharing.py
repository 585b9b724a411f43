"""What slow ranks share, against counting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from straggling.simulated_steps import matrix_of, noise

from holdfast.runs.straggling.scores import stragglers
from holdfast.runs.straggling.sharing import shared


def test_chance_is_that_of_counting() -> None:
    labels = [{"rack": "a" if rank < 3 else "b"} for rank in range(8)]
    slow = np.isin(np.arange(8), [0, 1, 2])
    (found,) = shared(matrix_of(np.ones((8, 1)), labels), slow, alpha=0.05)
    draws = list(itertools.combinations(range(8), 3))
    assert found.p_value == pytest.approx(sum(set(d) <= {0, 1, 2} for d in draws) / len(draws))
    assert (found.label, found.value, found.slow, found.ranks) == ("rack", "a", 3, 3)
    assert found.q_value == pytest.approx(2 * found.p_value)  # two values were tested


def test_one_slow_rank_shares_nothing_and_single_carriers_are_not_tested() -> None:
    labels = [{"node": f"n{rank}", "rack": "a"} for rank in range(8)]
    matrix = matrix_of(np.ones((8, 1)), labels)
    assert shared(matrix, np.arange(8) == 3, alpha=1.0) == ()
    assert shared(matrix, np.arange(8) < 4, alpha=1.0) == ()
    labels = [{"node": f"n{rank}", "rack": "a" if rank < 4 else "b"} for rank in range(8)]
    (found,) = shared(matrix_of(np.ones((8, 1)), labels), np.arange(8) < 4, alpha=0.05)
    assert found.q_value == pytest.approx(
        2 * found.p_value
    )  # of two racks; nodes are no hypotheses


def test_a_slow_node_is_named() -> None:
    own = noise(64, 60, seed=1)
    own[24:32] += 0.2
    labels = [{"node": f"n{rank // 8}", "stage": str(rank % 4)} for rank in range(64)]
    found = stragglers(matrix_of(own, labels))
    assert [(each.label, each.value, each.slow) for each in found.shared] == [("node", "n3", 8)]
    assert "all with node n3" in found.to_dict()["sentence"]


def test_random_slow_ranks_share_nothing() -> None:
    alarms = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        labels = [
            {"node": f"n{r // 8}", "rack": f"r{r // 32}", "stage": str(r % 4)} for r in range(128)
        ]
        slow = np.isin(np.arange(128), generator.choice(128, 12, replace=False))
        alarms += bool(shared(matrix_of(np.ones((128, 1)), labels), slow, alpha=0.05))
    assert alarms <= 20  # 5 % of 200, and three standard deviations
