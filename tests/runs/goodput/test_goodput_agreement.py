"""Silent corruption: who leaves the value that replicas share, and what is no corruption."""

from __future__ import annotations

import random

import pytest
from goodput.building import Script, recorded

from holdfast.runs.goodput.accounting import breakdown
from holdfast.runs.goodput.agreement import Disagreement


def told(values: list[list[float | None]], name: str = "weight_norm") -> tuple[Disagreement, ...]:
    """What is found in the values of each rank, step by step."""
    scripts = []
    for rank, own in enumerate(values):
        script = Script(rank=rank, world_size=len(values), end="clean")
        for step, value in enumerate(own, 1):
            fields = {} if value is None else {name: value}
            script.steps(step, 1, float(step), 1.0, **fields)
        scripts.append(script)
    return breakdown(recorded(scripts), now_s=1.9e9).disagreements


@pytest.mark.parametrize("name", ["weight_norm", "grad_norm", "loss"])
@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_the_rank_that_leaves_the_others_is_named(name: str, ranks: int) -> None:
    drawn = random.Random(f"{name} {ranks}")
    usual = [drawn.uniform(1, 100) for _ in range(20)]
    values = [[each * (1 + drawn.uniform(-1e-7, 1e-7)) for each in usual] for _ in range(ranks)]
    victim, at = drawn.randrange(ranks), drawn.randint(11, 18)
    values[victim][at - 1 :] = [each * 1.001 for each in values[victim][at - 1 :]]
    (found,) = told([*values], name)  # type: ignore[list-item]
    assert (found.value, found.ranks, found.first_step) == (name, (victim,), at)
    assert (found.last_equal_step, len(found.others)) == (at - 1, ranks - 1)


def test_of_two_which_is_wrong_is_not_known() -> None:
    (found,) = told([[5.0, 6.0, 7.0], [5.0, 6.0, 7.1]])
    assert (found.ranks, found.others, found.first_step) == ((0, 1), (), 3)
    (found,) = told([[5.0, 6.0], [5.0, 6.0], [5.0, 6.1], [5.0, 6.1]])
    assert (found.ranks, found.others) == ((0, 1, 2, 3), ())


def test_shards_and_losses_of_their_own_are_not_compared() -> None:
    assert told([[1.0, 2.0], [3.0, 4.0], [5.0, 5.0]]) == ()
    # Stages of two replicas each: those of one stage are compared.
    (found,) = told([[1.0, 1.0], [1.0, 1.0], [2.0, 2.0], [2.0, 2.5]])
    assert found.ranks == (2, 3)
    # A first loss may be alike by chance.
    assert told([[1.0, 2.0, 3.0], [1.0, 2.1, 3.1], [1.0, 2.2, 3.2]], "loss") == ()


def test_steps_without_a_value_on_all_ranks_are_left_out() -> None:
    nan = float("nan")
    assert told([[1.0, None, 3.0], [1.0, 2.5, 3.0], [1.0, nan, 3.0]]) == ()
    assert told([[1.0, 2.0]]) == ()
