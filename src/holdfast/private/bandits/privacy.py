"""What the released actions of an epsilon-greedy bandit tell about one person."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dp_accounting.pld import privacy_loss_distribution

from holdfast.private.bandits.exploration import check_settings, coin_probability
from holdfast.private.mpc.ring import invalid


@dataclass(frozen=True)
class PrivacyLoss:
    """Differential privacy of the actions that the arm party sees."""

    arms: int
    epsilon: float
    """Probability of exploring; not a privacy loss."""
    steps: int
    """Actions that one person's context and reward can move: their own and all later ones."""
    per_action: float
    """Pure privacy loss of one action, ln(1 + K (1 - epsilon) / epsilon); infinite without exploring."""
    composed: float
    """Privacy loss of all actions at `delta`; infinite without exploring."""
    delta: float
    claim: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON; an infinite loss is null."""
        return {name: None if value == math.inf else value for name, value in asdict(self).items()}


def privacy_loss(arms: int, epsilon: float, steps: int, delta: float = 1e-6) -> PrivacyLoss:
    """The privacy loss of an epsilon-greedy bandit's actions, composed exactly.

    Two neighboring histories at worst make two different arms greedy. The privacy loss distribution of that
    pair is composed `steps` times (dp-accounting).

    Args:
        arms: number of arms, K.
        epsilon: probability of a uniform arm.
        steps: number of actions that a person's data can influence.
        delta: probability with which the composed loss may be exceeded.

    Raises:
        InputError: ``out-of-range``.
    """
    check_settings(arms, epsilon)
    epsilon = coin_probability(epsilon)  # what is claimed is what is played
    for name, value, good, expected in (
        ("steps", steps, steps >= 1, "1 or more"),
        ("delta", delta, 0 < delta < 1, "between 0 and 1"),
    ):
        if not good:
            raise invalid(name, value, expected, "out-of-range")
    if epsilon == 0:
        claim = "none: without exploring, an action shows which arm is greedy"
        return PrivacyLoss(arms, epsilon, steps, math.inf, math.inf, delta, claim)
    per_action = math.log1p(arms * (1 - epsilon) / epsilon)
    composed = _composed(arms, epsilon, steps, delta)
    claim = (
        f"({composed:.3g}, {delta:g})-differential privacy of {steps} actions towards the arm party, for "
        "one person's context and reward; joint differential privacy is not claimed"
    )
    return PrivacyLoss(arms, epsilon, steps, per_action, composed, delta, claim)


def _composed(arms: int, epsilon: float, steps: int, delta: float) -> float:
    other = math.log(epsilon / arms)
    greedy = math.log1p(-epsilon * (1 - 1 / arms))
    first, second = (dict.fromkeys(range(arms), other) for _ in range(2))
    first[0] = second[1] = greedy
    per_action = math.log1p(arms * (1 - epsilon) / epsilon)
    # What many actions compose to has as many entries as their losses have intervals.
    interval = max(1e-4, per_action * max(1e-5, steps * 4e-7))
    one = privacy_loss_distribution.from_two_probability_mass_functions(
        first, second, value_discretization_interval=interval
    )
    every = one.self_compose(steps) if steps > 1 else one
    return min(float(every.get_epsilon_for_delta(delta)), steps * per_action)
