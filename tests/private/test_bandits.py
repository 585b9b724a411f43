"""Private bandits against the same bandit in float64, and who learns what."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from holdfast.errors import InputError
from holdfast.private.bandits import LinearBandit, privacy_loss
from holdfast.private.bandits.exploration import RANDOM_BITS
from holdfast.private.bandits.linear import LARGEST_NORM
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.ring import RangeError


class PlainBandit:
    """The textbook algorithm, with the exploration that the parties' seeds give."""

    def __init__(self, arms, features, epsilon, seed, parties=2):
        self.inverse = np.stack([np.eye(features)] * arms)
        self.sums = np.zeros((arms, features))
        self.epsilon, self.arms = epsilon, arms
        self.generators = [np.random.default_rng([seed, rank]) for rank in range(parties)]

    def choose(self, x):
        size = (1 + self.arms) * RANDOM_BITS
        bits = np.bitwise_xor.reduce(
            [g.integers(0, 2, size, dtype=np.uint8) for g in self.generators]
        )
        numbers = bits.reshape(-1, RANDOM_BITS) @ 2.0 ** np.arange(-RANDOM_BITS, 0)
        if numbers[0] < self.epsilon:
            return int(numbers[1:].argmax())
        return int((np.einsum("kij,kj->ki", self.inverse, self.sums) @ x).argmax())

    def learn(self, x, arm, reward):
        moved = self.inverse[arm] @ x
        self.inverse[arm] -= np.outer(moved, moved) / (1 + x @ moved)
        self.sums[arm] += reward * x


def play(parties, contexts, reward_of, steps, seed=3, epsilon=0.05, **settings):
    """Arms and rewards of the private bandit; party 0 pulls, the last party knows the reward."""
    arms, last = reward_of.shape[1], parties - 1
    pulled = []

    def main(party):
        bandit = LinearBandit(
            party, arms=arms, features=contexts.shape[1], epsilon=epsilon, arm_party=0,
            reward_party=last, seed=seed,
        )  # fmt: skip
        seen = []
        for step in range(steps):
            x = party.secret(
                contexts[step] if party.rank == last else None,
                owner=last,
                shape=contexts[step].shape,
            )
            arm = bandit.choose(x)
            seen.append(arm)
            if party.rank == 0:
                pulled.append(arm[0])
            party.channel.exchange(b"p")  # the world: an arm was pulled
            bandit.learn([reward_of[step, pulled[step]]] if party.rank == last else None)
        return seen, bandit.weights.reveal(to=0)

    return simulate(parties, main, fraction_bits=20, **settings), pulled


def play_plain(contexts, reward_of, steps, seed=3, epsilon=0.05, parties=2):
    bandit = PlainBandit(reward_of.shape[1], contexts.shape[1], epsilon, seed, parties)
    pulled = []
    for x, rewards in zip(contexts[:steps], reward_of, strict=False):
        pulled.append(bandit.choose(x))
        bandit.learn(x, pulled[-1], rewards[pulled[-1]])
    return pulled, np.einsum("kij,kj->ki", bandit.inverse, bandit.sums)


def world(steps=25, features=4, arms=3):
    rng = np.random.default_rng(1)
    contexts = rng.normal(size=(steps, features))
    truth = rng.normal(size=(features, arms))
    return contexts, ((contexts @ truth).argmax(1)[:, None] == np.arange(arms)).astype(float)


@pytest.mark.parametrize(("parties", "settings"), [(2, {}), (3, {})])
def test_the_private_bandit_plays_as_the_plain_one(parties, settings):
    contexts, rewards = world()
    (results, pulled) = play(parties, contexts, rewards, 10, **settings)
    plain, weights = play_plain(contexts, rewards, 10, parties=parties)
    assert pulled == plain
    assert np.abs(results[0][1].numpy() - weights).max() < 1e-3
    for rank in range(1, parties):
        assert results[rank][0] == [None] * 10


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"arms": 1}, "arms"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"epsilon": -0.1}, "epsilon"),
        ({"epsilon": 1e-7}, "epsilon"),
        ({"arm_party": 2}, "arm_party"),
    ],
)
def test_impossible_settings_are_refused(settings, place):
    def main(party):
        LinearBandit(party, **({"arms": 2, "features": 3} | settings))

    with pytest.raises(InputError) as error:
        simulate(2, main)
    assert (error.value.code, error.value.place) == ("out-of-range", place)


def test_the_privacy_claim_is_that_of_the_coin():
    with pytest.raises(InputError) as error:  # the coin would never explore
        privacy_loss(10, 1e-7, 1)
    assert (error.value.code, error.value.place) == ("out-of-range", "epsilon")
    played = round(0.7e-6 * 2**RANDOM_BITS) / 2**RANDOM_BITS
    assert privacy_loss(10, 0.7e-6, 1).per_action == pytest.approx(
        math.log(1 + 10 * (1 - played) / played)
    )


def test_contexts_beyond_the_norm_are_refused():
    long = np.array([[1.0, 2.0, 2.0], [12.0, 0.0, 0.0]])  # squared norms 9 and 144

    def by_owner(party):
        bandit = LinearBandit(party, arms=2, features=3)
        bandit.share_contexts(long if party.rank == 0 else None, owner=0, users=2)

    def in_secret(party, user):
        bandit = LinearBandit(party, arms=2, features=3)
        bandit.choose(party.secret(long[user] if party.rank == 0 else None, owner=0, shape=(3,)))

    with pytest.raises(InputError) as error:
        simulate(2, by_owner, fraction_bits=20)
    assert (error.value.code, error.value.place) == ("out-of-range", "context[1]")
    simulate(2, lambda party: in_secret(party, 0), fraction_bits=20)
    with pytest.raises(RangeError):
        simulate(2, lambda party: in_secret(party, 1), fraction_bits=20)


@pytest.mark.full
def test_a_thousand_steps_on_mnist(shared_data):
    folder = shared_data / "mnist"
    names = ("images-idx3", 16), ("labels-idx1", 8)
    images, labels = (
        np.frombuffer(
            gzip.decompress((folder / f"mnist-t10k-{name}-ubyte.gz").read_bytes())[skip:], np.uint8
        )
        for name, skip in names
    )
    pixels = images.reshape(-1, 784) / 255.0
    centered = pixels - pixels.mean(0)
    contexts = centered @ np.linalg.svd(centered[:2000], full_matrices=False)[2][:20].T
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    rewards = (labels[:, None] == np.arange(10)).astype(float)
    (_, pulled) = play(2, contexts[:1000], rewards, 1000, epsilon=0.01)
    plain, _ = play_plain(contexts, rewards, 1000, epsilon=0.01)
    total, wanted = (rewards[np.arange(1000), arms].sum() for arms in (pulled, plain))
    assert abs(total - wanted) <= 0.01 * wanted


# --- Settings at and beyond both ends, and the ridge regression of scikit-learn --------------------


@pytest.mark.parametrize("largest_norm", [1.0, LARGEST_NORM])
def test_weights_of_every_arm_are_those_of_ridge_regression(largest_norm):
    """(I + X'X) w = X'r with the arms that were pulled, for contexts as long as they may be."""
    rng = np.random.default_rng(3)
    contexts = rng.normal(size=(16, 3))
    contexts *= np.sqrt(largest_norm) / np.linalg.norm(contexts, axis=1, keepdims=True)
    rewards = rng.uniform(-1, 1, 16)
    contexts[::4] *= 0.1  # short ones beside them
    contexts *= 1 - 1e-9

    def main(party):
        bandit = LinearBandit(
            party, arms=3, features=3, epsilon=0.5, seed=5, largest_norm=largest_norm
        )
        arms = []
        for x, reward in zip(np.split(contexts, 4), np.split(rewards, 4), strict=True):
            shared = bandit.share_contexts(x, owner=0, users=4)
            arms += bandit.choose(shared) or [None] * 4
            bandit.learn(reward)
        return arms, bandit.weights.reveal().numpy(), bandit.inverse.reveal().numpy()

    arms, weights, inverses = simulate(2, main, fraction_bits=20)[0]
    assert set(arms) == {0, 1, 2}
    for arm in range(3):
        pulled = np.array(arms) == arm
        model = Ridge(alpha=1.0, fit_intercept=False, solver="cholesky")
        model.fit(contexts[pulled], rewards[pulled])
        assert np.abs(weights[arm] - model.coef_).max() < 1e-3
        gram = np.eye(3) + contexts[pulled].T @ contexts[pulled]
        assert np.abs(inverses[arm] @ gram - np.eye(3)).max() < 1e-4 * max(1.0, np.abs(gram).max())


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"largest_norm": 0.0}, "largest_norm"),
        ({"largest_norm": -1.0}, "largest_norm"),
        ({"largest_norm": math.nan}, "largest_norm"),
        ({"largest_norm": math.nextafter(LARGEST_NORM, math.inf)}, "largest_norm"),
        ({"reward_party": -1}, "reward_party"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.nextafter(1.0, 2.0)}, "epsilon"),
    ],
)
def test_settings_just_outside_are_refused(settings, place):
    def main(party):
        LinearBandit(party, **({"arms": 2, "features": 3} | settings))

    with pytest.raises(InputError) as error:
        simulate(1, main, fraction_bits=20)
    assert (error.value.code, error.value.place) == ("out-of-range", place)


@pytest.mark.parametrize(
    ("shape", "users"), [((3, 4), 6), ((6, 2), 4), ((4, 3), 3), ((12,), 4), ((), 1)]
)
def test_contexts_of_other_widths_are_not_cut_into_others(shape, users):
    settings = {"arms": 2, "features": 3, "reward_party": 0}

    def by_owner(party):
        bandit = LinearBandit(party, **settings)
        bandit.share_contexts(np.ones(shape), owner=0, users=users)

    def in_secret(party):
        LinearBandit(party, **settings).choose(party.secret(np.ones(shape), owner=0))

    for main in (by_owner, in_secret) if shape != (4, 3) else (by_owner,):
        with pytest.raises(InputError) as error:
            simulate(1, main, fraction_bits=20)
        assert (error.value.code, error.value.place) == ("invalid-value", "context")


@pytest.mark.parametrize("rewards", [[1.0], [1.0, 0.0, 1.0], [[1.0, 0.0]]])
def test_rewards_for_other_users_than_were_served_are_refused(rewards):
    def main(party):
        bandit = LinearBandit(party, arms=2, features=2, reward_party=0)
        bandit.choose(party.secret([[0.5, 0.5], [0.1, 0.2]], owner=0))
        bandit.learn(rewards)

    with pytest.raises(InputError) as error:
        simulate(1, main, fraction_bits=20)
    assert (error.value.code, error.value.place) == ("invalid-value", "reward")


@pytest.mark.parametrize(
    ("reward", "code"), [(math.nan, "not-finite"), (1.01, "overflow"), (-2, "overflow")]
)
def test_rewards_beyond_their_bound_are_refused_by_their_owner(reward, code):
    def main(party):
        bandit = LinearBandit(party, arms=2, features=2, reward_party=0)
        bandit.choose(party.secret([0.5, 0.5], owner=0))
        bandit.learn([reward])

    with pytest.raises(InputError) as error:
        simulate(1, main, fraction_bits=20)
    assert (error.value.code, error.value.place) == (code, "reward[0]")


def test_learning_without_a_choice_is_refused():
    def main(party):
        LinearBandit(party, arms=2, features=2).learn([1.0])

    with pytest.raises(InputError) as error:
        simulate(2, main)
    assert error.value.code == "no-data"
