"""Coins that nobody knows, epsilon-greedy choices, and what they cost in privacy, by closed forms."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from holdfast.errors import InputError
from holdfast.private.bandits import privacy_loss
from holdfast.private.bandits.exploration import RANDOM_BITS, Coins, coin_probability, explore
from holdfast.private.mpc.launch import simulate


@pytest.mark.parametrize(
    ("parties", "settings"), [(1, {}), (2, {}), (3, {}), (3, {"mode": "replicated3"})]
)
def test_coins_are_uniform_and_independent(parties, settings):
    """Chi-square of 16 bins, of pairs, and of the lowest bit: each missed once in a billion."""
    settings = {"fraction_bits": RANDOM_BITS, **settings}
    x = simulate(parties, lambda party: Coins(party).uniform(40, 100).reveal(), **settings)[0]
    numbers = (x * 2**RANDOM_BITS).numpy().ravel()
    assert np.array_equal(numbers, np.round(numbers))  # multiples of 2^-20, all below 1
    assert 0 <= numbers.min() <= numbers.max() < 2**RANDOM_BITS
    bins = (numbers * 16 // 2**RANDOM_BITS).astype(int)
    assert stats.chisquare(np.bincount(bins, minlength=16)).pvalue > 1e-9
    pairs = np.histogram2d(bins[:-1], bins[1:], bins=4)[0]
    assert stats.chi2_contingency(pairs).pvalue > 1e-9
    assert stats.binomtest(int((numbers.astype(int) & 1).sum()), len(numbers)).pvalue > 1e-9


def test_each_party_alone_decides_nothing():
    """The coins of two seeded parties are the XOR of their bits, so one of them may be known."""

    def main(party):
        return Coins(party, seed=4).uniform(50).reveal()

    got = simulate(3, main, fraction_bits=RANDOM_BITS)[0].numpy()
    bits = np.zeros((50, RANDOM_BITS), np.uint8)
    for rank in range(3):
        tossed = np.random.default_rng([4, rank]).integers(0, 2, 50 * RANDOM_BITS, dtype=np.uint8)
        bits ^= tossed.reshape(50, RANDOM_BITS)
    wanted = [
        sum(Fraction(int(bit), 2 ** (RANDOM_BITS - n)) for n, bit in enumerate(row)) for row in bits
    ]
    assert got.tolist() == [float(each) for each in wanted]


def test_a_seed_is_for_experiments_in_one_process():
    def main(party):
        Coins(party, seed=1)

    with pytest.raises(InputError) as error:
        simulate(3, main, mode="replicated3")
    assert (error.value.code, error.value.place) == ("conflict", "seed")


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_choices_are_greedy_but_for_a_share_of_epsilon(epsilon):
    n, arms = 3000, 4

    def main(party):
        scores = party.secret(torch.tensor([[0.5, 900.0, -3.0, 2.0]]).expand(n, arms), owner=0)
        return explore(scores, epsilon, Coins(party)).argmax(-1).reveal()

    counts = np.bincount(simulate(1, main)[0].numpy(), minlength=arms)
    if epsilon == 0:
        assert counts.tolist() == [0, n, 0, 0]
        return
    other = epsilon / arms
    expected = np.array([other, 1 - epsilon + other, other, other]) * n
    assert stats.chisquare(counts, expected).pvalue > 1e-9


@pytest.mark.parametrize(
    ("epsilon", "played"),
    [(0.0, 0), (1.0, 2**20), (0.5, 2**19), (2.0**-20, 1), (1.4 * 2.0**-20, 1), (0.3, 314573)],
)
def test_the_coin_plays_multiples_of_2_to_the_minus_20(epsilon, played):
    assert Fraction(coin_probability(epsilon)) == Fraction(played, 2**20)


# --- Privacy ---------------------------------------------------------------------------------------


def gap(arms: int, epsilon: float, steps: int, loss: float) -> float:
    """Sum of max(0, P - e^loss Q) over all outcomes of some steps, in logarithms.

    Each step shows the one greedy arm, the other, or neither; wins less losses decide the ratio.
    """
    other, step = epsilon / arms, math.log1p(arms * (1 - epsilon) / epsilon)
    chances = [1 - epsilon + other, other, max(0.0, (arms - 2) * other)]
    total = 0.0
    for wins in range(steps + 1):
        for losses in range(steps + 1 - wins):
            neither = steps - wins - losses
            if (wins - losses) * step <= loss or (neither and not chances[2]):
                continue
            count = math.lgamma(steps + 1) - sum(
                math.lgamma(n + 1) for n in (wins, losses, neither)
            )
            powers = zip((wins, losses, neither), chances, strict=True)
            chance = count + sum(n * math.log(p) for n, p in powers if n)
            total += math.exp(chance) * -math.expm1(loss - (wins - losses) * step)
    return total


@pytest.mark.parametrize("delta", [1e-6])
@pytest.mark.parametrize(
    ("arms", "epsilon", "steps"),
    [(2, 0.5, 1), (2, 0.5, 30), (3, 0.9, 12), (100, 0.5, 10)],
)
def test_the_composed_loss_is_that_of_all_outcomes(arms, epsilon, steps, delta):
    """The outcomes are few enough to sum them; the loss is never below, and hardly above."""
    played = coin_probability(epsilon)
    loss = privacy_loss(arms, epsilon, steps, delta).composed
    assert gap(arms, played, steps, loss) <= delta * (1 + 1e-6)
    slack = steps * 2e-4 + 1e-3
    assert loss < slack or gap(arms, played, steps, loss - slack) > delta


@pytest.mark.parametrize(("arms", "epsilon"), [(50, 0.75)])
def test_one_step_is_the_randomized_response_of_dp_accounting(arms, epsilon):
    distribution = privacy_loss_distribution.from_randomized_response(epsilon, arms)
    for steps, delta in ((1, 1e-3), (8, 1e-3), (8, 1e-9)):
        composed = distribution.self_compose(steps) if steps > 1 else distribution
        wanted = composed.get_epsilon_for_delta(delta)
        got = privacy_loss(arms, epsilon, steps, delta).composed
        assert got == pytest.approx(wanted, abs=steps * 2e-4 + 1e-3)


@pytest.mark.parametrize("steps", [10**7])
def test_many_steps_have_a_finite_bound_in_little_memory(steps):
    """Between the mean loss of a step, from which the sum hardly deviates, and the largest."""
    greedy = 0.75
    mean = (2 * greedy - 1) * math.log(3)
    loss = privacy_loss(2, 0.5, steps)
    assert loss.per_action == pytest.approx(math.log(3))
    assert steps * mean <= loss.composed <= steps * loss.per_action * (1 + 1e-12)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ((1, 0.5, 1), "arms"),
        ((2, -1e-9, 1), "epsilon"),
        ((2, math.nan, 1), "epsilon"),
        ((2, 2.0**-22, 1), "epsilon"),
        ((2, 0.5, 0), "steps"),
        ((2, 0.5, math.nan), "steps"),
        ((2, 0.5, 1, 0.0), "delta"),
        ((2, 0.5, 1, 1.0), "delta"),
        ((2, 0.5, 1, math.nan), "delta"),
    ],
)
def test_privacy_of_no_bandit_is_refused(arguments, place):
    with pytest.raises(InputError) as error:
        privacy_loss(*arguments)
    assert (error.value.code, error.value.place) == ("out-of-range", place)


def test_the_json_has_null_for_what_is_infinite():
    document = privacy_loss(3, 0.0, 2).to_dict()
    assert document["per_action"] is document["composed"] is None
    assert (document["arms"], document["epsilon"], document["steps"]) == (3, 0.0, 2)
