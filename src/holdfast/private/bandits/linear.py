"""Linear contextual bandit whose contexts, model, exploration and rewards are secret.

Per arm a: the inverse covariance A_a^-1 (starts as I), the reward-weighted sum b_a (0), and w_a =
A_a^-1 b_a. An arm's score is w_a . x. The arm party learns the chosen arm, the reward party knows the
reward, and nobody learns anything else: the update runs on the secret one-hot vector of the arm.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch

from holdfast.errors import InputError
from holdfast.private.bandits.exploration import Coins, check_settings, explore
from holdfast.private.mpc import SharedTensor
from holdfast.private.mpc.bounds import Bound
from holdfast.private.mpc.functions import cat, one_hot, reciprocal
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import invalid, numbers

LARGEST_NORM = 256.0
"""Of squared norms: the weights of an arm shrink with 1 / |x|, and lose their bits beyond."""


class LinearBandit:
    """Epsilon-greedy linear bandit.

    Args:
        party: this party; 20 fractional bits suit it.
        arms: number of arms, K.
        features: number of features of a context, d.
        epsilon: probability of a uniform arm.
        arm_party: rank that learns, and pulls, the arm.
        reward_party: rank that knows the reward.
        largest_norm: bound of a context's squared norm; at most `LARGEST_NORM`.
        largest_reward: bound of a reward's magnitude.
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
        largest_reward: float = 1.0,
        seed: int | None = None,
    ) -> None:
        check_settings(arms, epsilon)
        if not 0 < largest_norm <= LARGEST_NORM:
            expected = f"above 0, at most {LARGEST_NORM:g}: scale the contexts"
            raise invalid("largest_norm", largest_norm, expected, "out-of-range")
        for name, rank in (("arm_party", arm_party), ("reward_party", reward_party)):
            if rank not in range(party.parties):
                raise invalid(name, rank, f"0 to {party.parties - 1}", "out-of-range")
        self.party, self.arms, self.features, self.epsilon = party, arms, features, epsilon
        self.arm_party, self.reward_party = arm_party, reward_party
        self.largest_norm, self.largest_reward = largest_norm, largest_reward
        self._learned = 0
        identity = torch.eye(features, dtype=torch.float64).expand(arms, features, features)
        self.inverse = party.public(identity)
        self.sums = party.public(torch.zeros(arms, features, dtype=torch.float64))
        self.weights = party.public(torch.zeros(arms, features, dtype=torch.float64))
        self._coins = Coins(party, seed)
        self._waiting: list[tuple[SharedTensor, SharedTensor]] = []

    def share_contexts(
        self, values: Any, *, owner: int, users: int = 1, reveal_to: Collection[int] | None = None
    ) -> SharedTensor:
        """Share contexts, whose norms their owner checks: cheaper than the check in secret of `choose`.

        Args:
            values: at the owner, ``[users, d]``; ignored at all others.
            owner: rank of the party that knows them.
            users: number of contexts, which is public.
            reveal_to: as in `Party.secret`.

        Raises:
            InputError: ``out-of-range`` at the owner for a context whose squared norm is too large.
        """
        if self.party.rank == owner:
            values = self._rows(numbers(values, "context").to(torch.float64))
            norms = values.square().sum(1)
            if bool((norms > self.largest_norm).any()):
                user = int(norms.argmax())
                raise invalid(
                    "context",
                    f"a squared norm of {float(norms[user]):g}",
                    f"at most {self.largest_norm:g}: scale the contexts, or raise largest_norm",
                    "out-of-range",
                    place=f"context[{user}]",
                )
        x = self.party.secret(
            values,
            owner=owner,
            shape=(users, self.features),
            bound=math.sqrt(self.largest_norm),
            reveal_to=reveal_to,
            name="context",
        )
        x.largest_norm = self.largest_norm  # type: ignore[attr-defined]
        return x

    def choose(self, contexts: SharedTensor) -> list[int] | None:
        """The arms for some users.

        Args:
            contexts: ``[n, d]``, secret; ``[d]`` for one user. Norms of those that are not from
                `share_contexts` are checked in secret.

        Returns:
            Their arms at the arm party, None at all others.

        Raises:
            RangeError: if a squared norm is above `largest_norm`.
        """
        with self.party.channel.scope("choose"):
            x = self._rows(contexts)
            if getattr(contexts, "largest_norm", None) != self.largest_norm:
                # 2^-8 for the rounding of d squares.
                x.square().sum(1).within((-1.0, self.largest_norm + 2.0**-8))
                longest = 1.01 * math.sqrt(self.largest_norm)
                x.bound = x.bound.clipped(-longest, longest)
            # |w . x| <= |w| |x|, which is less than the sum over features of the largest entries.
            limit = math.sqrt(self.largest_norm) * self._largest_weight
            scores = x.product(self.weights.T, "matmul", bound=Bound.of(limit))
            scores = explore(scores, self.epsilon, self._coins)
            chosen = scores.argmax(-1)
            self._waiting += zip(
                x.reshape(-1, 1, self.features), one_hot(chosen, self.arms), strict=True
            )
            # The arm is the output of the method: no policy of a context forbids it to the arm party.
            chosen.allowed = frozenset({self.arm_party})
            arms = chosen.reveal(to=self.arm_party)
        return None if arms is None else [int(arm) for arm in arms]

    def _rows(self, contexts: Any) -> Any:
        """Contexts of one user or several as rows of features."""
        if contexts.shape[-1:] != (self.features,):
            raise invalid("context", contexts.shape, f"rows of {self.features} features")
        return contexts.reshape(-1, self.features)

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
            None if rewards is None else numbers(rewards, "reward").to(torch.float64),
            owner=self.reward_party,
            shape=(len(waiting),),
            bound=self.largest_reward,
            name="reward",
        )
        with self.party.channel.scope("learn"):
            for number, (x, one_hot_arm) in enumerate(waiting):
                self._learned += 1
                self._update(x, one_hot_arm.reshape(-1, 1), shared[number])

    # Bounds that the interval arithmetic of single operations cannot see; with a hundredth for rounding.

    @property
    def _largest_weight(self) -> float:
        """|w|^2 + |X w - r|^2 is least at the ridge solution w, so |w| <= |r|: at most sqrt(T) rewards."""
        return 1.01 * math.sqrt(max(1, self._learned)) * self.largest_reward

    @property
    def _largest_sum(self) -> float:
        """B is the sum of T contexts times rewards."""
        length = math.sqrt(self.largest_norm)
        return 1.01 * max(1, self._learned) * self.largest_reward * length

    def _update(self, x: SharedTensor, arm: SharedTensor, reward: SharedTensor) -> None:
        """One rank-1 update (Sherman and Morrison) of the arm's model.

        Args:
            x: context, ``[1, d]``.
            arm: one-hot, ``[K, 1]``.
            reward: scalar.
        """
        k, d = self.arms, self.features
        length = Bound.of(1.01 * math.sqrt(self.largest_norm))
        one, weight = Bound.of(1.01), Bound.of(self._largest_weight)
        # The chosen arm's model, gathered first: one reciprocal instead of K.
        state = cat([self.inverse.reshape(k, d * d), self.sums, self.weights], dim=1)
        chosen = arm.T.product(state, "matmul", bound=state.bound)  # [1, d d + 2 d]
        inverse = chosen[:, : d * d].reshape(d, d)
        sums, weights = chosen[:, -2 * d : -d], chosen[:, -d:]
        # 0 < A^-1 <= I: v = A^-1 x, [1, d], is no longer than x, and x' v is between 0 and |x|^2.
        moved = x.product(inverse, "matmul", bound=length).narrowed()
        products = x.product(
            moved, "mul", bound=Bound(-self.largest_norm, self.largest_norm * 1.01)
        )
        norm = products.sum() + 1.0
        norm.bound = Bound(1.0, 1.01 * self.largest_norm + 1.0)
        factor = reciprocal(norm)
        scaled = moved.product(factor, "mul", bound=length)
        shift = moved.T.product(scaled, "matmul", bound=one).narrowed()  # v v' / (1 + x' v)
        gain = (x * reward).narrowed()
        rest = inverse - shift
        rest.bound = one
        new_weights = (sums + gain).product(rest, "matmul", bound=weight)
        move = cat([-shift.reshape(1, d * d), gain, new_weights - weights], dim=1).narrowed()
        state = (state + arm.product(move, "matmul", bound=move.bound)).narrowed()
        self.inverse = state[:, : d * d].reshape(k, d, d)
        self.sums, self.weights = state[:, -2 * d : -d], state[:, -d:]
        self.inverse.bound, self.weights.bound = one, weight
        self.sums.bound = Bound.of(self._largest_sum)
