"""Random numbers that nobody knows, and epsilon-greedy choices."""

from __future__ import annotations

import math
import os

import numpy as np
import torch

from holdfast.private.mpc import SharedTensor
from holdfast.private.mpc.bounds import Bound
from holdfast.private.mpc.comparison import to_arithmetic
from holdfast.private.mpc.functions import where
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import invalid

RANDOM_BITS = 20
"""Fractional bits of uniform numbers: epsilon is rounded to a multiple of 2^-20."""


def check_settings(arms: int, epsilon: float) -> None:
    """Refuse settings that are not a bandit's.

    Raises:
        InputError: ``out-of-range``.
    """
    if arms < 2:
        raise invalid("arms", arms, "2 or more", "out-of-range")
    if not 0.0 <= epsilon <= 1.0:
        raise invalid("epsilon", epsilon, "0 to 1: the probability of exploring", "out-of-range")
    if epsilon and not coin_probability(epsilon):
        expected = f"0, or at least 2^-{RANDOM_BITS}: the coin would never explore"
        raise invalid("epsilon", epsilon, expected, "out-of-range")


def coin_probability(epsilon: float) -> float:
    """The probability with which the coin explores: epsilon, rounded to a multiple of 2^-20."""
    return round(epsilon * 2**RANDOM_BITS) / 2**RANDOM_BITS


class Coins:
    """Uniform secret numbers: each party tosses bits, and their XOR is unknown to all.

    Args:
        party: this party.
        seed: of this party's bits, to repeat an experiment; the operating system's bits by default.
    """

    def __init__(self, party: Party, seed: int | None = None) -> None:
        if seed is not None and party.mode != "insecure-local":
            raise invalid("seed", f"mode {party.mode}", "mode insecure-local", "conflict")
        self.party = party
        self._generator = None if seed is None else np.random.default_rng([seed, party.rank])

    def uniform(self, *shape: int) -> SharedTensor:
        """Numbers in [0, 1): one round."""
        count = math.prod(shape) * RANDOM_BITS
        if self._generator is None:
            bits = np.frombuffer(os.urandom(count), dtype=np.uint8) & 1
        else:
            bits = self._generator.integers(0, 2, count, dtype=np.uint8)
        if self.party.group is not None and self.party.rank not in self.party.group:
            bits = np.zeros_like(bits)
        with self.party.channel.scope("uniform"):
            shares = self.party.run(to_arithmetic(self.party, bits.reshape(*shape, RANDOM_BITS)))
        weights = 1 << torch.arange(RANDOM_BITS)
        return self.party.tensor((shares * weights).sum(-1), RANDOM_BITS, bound=Bound(0.0, 1.0))


def explore(scores: SharedTensor, epsilon: float, coins: Coins) -> SharedTensor:
    """Scores, replaced by uniform numbers with probability epsilon, per row: ``[n, arms]``.

    The largest score is then the greedy arm, or a uniform one; nobody knows which of the two.
    """
    n, arms = scores.shape
    numbers = coins.uniform(n, 1 + arms)
    limit = scores.party.public(
        torch.tensor(coin_probability(epsilon), dtype=torch.float64), scale=RANDOM_BITS
    )
    return where(numbers[:, :1] < limit, numbers[:, 1:], scores)  # type: ignore[no-any-return]
