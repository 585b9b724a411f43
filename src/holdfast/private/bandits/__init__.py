"""Contextual bandits on secret contexts, actions and rewards (Hannun et al., arXiv 1910.05299).

bandit = LinearBandit(party, arms=10, features=20, epsilon=0.01, arm_party=0, reward_party=1)
arm = bandit.choose(contexts)      # at the arm party; None at all others
bandit.learn(rewards)              # known to the reward party alone
privacy_loss(arms=10, epsilon=0.01, steps=1000)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.private.bandits.linear import LinearBandit
    from holdfast.private.bandits.privacy import PrivacyLoss, privacy_loss

_HOMES = {"LinearBandit": "linear", "PrivacyLoss": "privacy", "privacy_loss": "privacy"}

__all__ = ["LinearBandit", "PrivacyLoss", "privacy_loss"]

__getattr__ = lazily(__name__, _HOMES)
