"""Mixtures of fidelities: a pure draw with the shares that were asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy import stats

from holdfast.data.records.tuning.mixture import Mixture
from holdfast.errors import InputError

MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """The published generator in Python's integers: an oracle of the vectorised one."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def drawn_by_hand(mixture: Mixture, number: int, seed: int, epoch: int, groups: int) -> int:
    key = 0
    for word in ({"record": 1, "image": 2}[mixture.by], seed, epoch):
        key = splitmix64(key ^ (word & MASK))
    uniform = (splitmix64((key + number * 0x9E3779B97F4A7C15) & MASK) >> 11) / 2**53
    total = sum(mixture.weights.values())
    reached = 0.0
    for fidelity in range(1, groups + 1):
        names = (fidelity, "full") if fidelity == groups else (fidelity,)
        reached += sum(mixture.weights.get(name, 0) for name in names) / total
        if uniform < reached:
            return fidelity
    return groups


@given(
    st.integers(-(2**70), 2**70),
    st.integers(0, 2**40),
    st.lists(st.integers(0, 2**31), max_size=8),
    st.sampled_from(["record", "image"]),
)
def test_a_draw_is_the_scalar_definition(seed, epoch, numbers, by):
    mixture = Mixture({1: 1, 3: 2, "full": 1}, by)
    found = mixture.draw(numbers, seed=seed, epoch=epoch, groups=5)
    assert found.tolist() == [drawn_by_hand(mixture, n, seed, epoch, 5) for n in numbers]


def test_the_first_outputs_are_those_published_for_splitmix64():
    # Seed 1234567 of the reference implementation.
    state, found = 1234567, []
    for _ in range(3):
        found.append(splitmix64(state))
        state = (state + 0x9E3779B97F4A7C15) & MASK
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_the_shares_drawn_are_the_weights():
    mixture = Mixture({1: 3, 2: 0, 4: 1, "full": 4})
    found = mixture.draw(np.arange(80_000), seed=7, epoch=3, groups=5)
    counts = np.bincount(found, minlength=6)[1:]
    assert counts[[1, 2]].tolist() == [0, 0]
    assert stats.chisquare(counts[[0, 3, 4]], np.array([3, 1, 4]) * 10_000).pvalue > 1e-3


@pytest.mark.parametrize("axis", ["seed", "epoch", "by"])
def test_draws_of_other_seeds_epochs_and_kinds_are_independent(axis):
    numbers = np.arange(20_000)
    settings = {"seed": 1, "epoch": 1, "by": "record"}
    other = settings | {axis: {"seed": 2, "epoch": 2, "by": "image"}[axis]}
    weights = {1: 1, 5: 1}

    def draw(seed, epoch, by):
        return Mixture(weights, by).draw(numbers, seed=seed, epoch=epoch, groups=5) == 5

    table = np.histogram2d(draw(**settings), draw(**other), bins=2)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_more_weight_above_lowers_no_fidelity():
    numbers = np.arange(5_000)
    low = Mixture({1: 3, 5: 1}).draw(numbers, seed=0, epoch=0, groups=5)
    high = Mixture({1: 1, 3: 1, 5: 2}).draw(numbers, seed=0, epoch=0, groups=5)
    assert (high >= low).all()
    assert (high > low).any()


def test_full_is_the_last_group_and_adds_to_it():
    assert Mixture({"full": 1, 3: 1}).shares(3).tolist() == [0, 0, 1]
    assert Mixture({"full": 1, 3: 1}).shares(5).tolist() == [0, 0, 0.5, 0, 0.5]


@pytest.mark.parametrize(
    ("weights", "by"),
    [
        ({}, "record"),
        ({1: 0}, "record"),
        ({1: -1, 2: 5}, "record"),
        ({1: float("nan")}, "record"),
        ({1: float("inf")}, "record"),
        ({0: 1}, "record"),
        ({1.5: 1}, "record"),
        ({True: 1}, "record"),
        ({"half": 1}, "record"),
        ({1: 1}, "sample"),
    ],
)
def test_bad_mixtures_are_refused(weights, by):
    with pytest.raises(InputError):
        Mixture(weights, by)


def test_a_fidelity_above_the_dataset_is_refused():
    with refused("out-of-range"):
        Mixture({6: 1}).draw([0], seed=0, epoch=0, groups=5)
