"""Linear contextual bandit whose contexts, model, exploration and rewards are secret.

Per arm a: the inverse covariance A_a^-1 (starts as I), the reward-weighted sum b_a (0), and w_a =
A_a^-1 b_a. An arm's score is w_a . x. The arm party learns the chosen arm, the reward party knows the
reward, and nobody learns anything else: the update runs on the secret one-hot vector of the arm.
"""

from __future__ import annotations

from typing import Any

import torch

from holdfast.errors import InputError
from holdfast.private.bandits.exploration import Coins, check_settings, explore
from holdfast.private.mpc import SharedTensor
from holdfast.private.mpc.functions import cat, one_hot, reciprocal
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import invalid


class LinearBandit:
    """Epsilon-greedy linear bandit.

    Args:
        party: this party; 20 fractional bits suit it.
        arms: number of arms, K.
        features: number of features of a context, d.
        epsilon: probability of a uniform arm.
        arm_party: rank that learns, and pulls, the arm.
        reward_party: rank that knows the reward.
        largest_norm: bound of a context's squared norm; a power of two.
        seed: of exploration, to repeat an experiment in one process.

    Attributes:
        inverse: A^-1, ``[K, d, d]``.
        sums: b, ``[K, d]``.
        weights: w, ``[K, d]``.
    """

    def __init__(
        self,
        party: Party,
        *,
        arms: int,
        features: int,
        epsilon: float = 0.01,
        arm_party: int = 0,
        reward_party: int = 1,
        largest_norm: float = 64.0,
        seed: int | None = None,
    ) -> None:
        check_settings(arms, epsilon)
        for name, rank in (("arm_party", arm_party), ("reward_party", reward_party)):
            if rank not in range(party.parties):
                raise invalid(name, rank, f"0 to {party.parties - 1}", "out-of-range")
        self.party, self.arms, self.features, self.epsilon = party, arms, features, epsilon
        self.arm_party, self.reward_party = arm_party, reward_party
        self.largest_norm = largest_norm
        identity = torch.eye(features, dtype=torch.float64).expand(arms, features, features)
        self.inverse = party.public(identity)
        self.sums = party.public(torch.zeros(arms, features, dtype=torch.float64))
        self.weights = party.public(torch.zeros(arms, features, dtype=torch.float64))
        self._coins = Coins(party, seed)
        self._waiting: list[tuple[SharedTensor, SharedTensor]] = []

    def choose(self, contexts: SharedTensor) -> list[int] | None:
        """The arms for some users.

        Args:
            contexts: ``[n, d]``, secret; ``[d]`` for one user.

        Returns:
            Their arms at the arm party, None at all others.
        """
        with self.party.channel.scope("choose"):
            x = contexts.reshape(-1, self.features)
            scores = explore(x @ self.weights.T, self.epsilon, self._coins)
            chosen = scores.argmax(-1)
            self._waiting += zip(
                x.reshape(-1, 1, self.features), one_hot(chosen, self.arms), strict=True
            )
            # The arm is the output of the method: no policy of a context forbids it to the arm party.
            chosen.allowed = frozenset({self.arm_party})
            arms = chosen.reveal(to=self.arm_party)
        return None if arms is None else [int(arm) for arm in arms]

    def learn(self, rewards: Any = None) -> None:
        """Update the model with the rewards of the users since the last call, in their order.

        Args:
            rewards: one per user, at the reward party; ignored at all others.
        """
        waiting, self._waiting = self._waiting, []
        if not waiting:
            raise InputError(
                "learn without choose", code="no-data", expected="arms that were chosen"
            )
        shared = self.party.secret(
            None if rewards is None else torch.as_tensor(rewards, dtype=torch.float64),
            owner=self.reward_party,
            shape=(len(waiting),),
            name="reward",
        )
        with self.party.channel.scope("learn"):
            for number, (x, one_hot_arm) in enumerate(waiting):
                self._update(x, one_hot_arm.reshape(-1, 1), shared[number])

    def _update(self, x: SharedTensor, arm: SharedTensor, reward: SharedTensor) -> None:
        """One rank-1 update (Sherman and Morrison) of the arm's model.

        Args:
            x: context, ``[1, d]``.
            arm: one-hot, ``[K, 1]``.
            reward: scalar.
        """
        k, d = self.arms, self.features
        # The chosen arm's model, gathered first: one reciprocal instead of K.
        state = cat([self.inverse.reshape(k, d * d), self.sums, self.weights], dim=1)
        chosen = arm.T @ state  # [1, d d + 2 d]
        inverse, sums, weights = (
            chosen[:, : d * d].reshape(d, d),
            chosen[:, -2 * d : -d],
            chosen[:, -d:],
        )
        moved = (x @ inverse).narrowed()  # v = A^-1 x, [1, d]
        norm = (x * moved).sum() + 1.0
        factor = reciprocal(norm, low=1.0, high=self.largest_norm * 2)
        shift = (moved.T @ (moved * factor)).narrowed()  # v v' / (1 + x' v)
        gain = (x * reward).narrowed()
        weights_move = (sums + gain) @ (inverse - shift) - weights
        move = cat([-shift.reshape(1, d * d), gain, weights_move], dim=1).narrowed()
        state = (state + arm @ move).narrowed()
        self.inverse = state[:, : d * d].reshape(k, d, d)
        self.sums, self.weights = state[:, -2 * d : -d], state[:, -d:]
