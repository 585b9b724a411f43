"""Strength on Elo's scale, with intervals: the model of Bradley and Terry.

P(i beats j) = 1 / (1 + 10^((r_j - r_i) / 400)); a draw is half a win. Source: Hunter, MM algorithms for
generalized Bradley-Terry models, Annals of Statistics 32 (2004).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from holdfast.stats import NORMAL_95, clopper_pearson_interval, wilson_interval

Interval = tuple[float | None, float | None]
_SCALE = 400.0 / math.log(10.0)
_STEPS = 10_000


def elo_of_share(share: float) -> float | None:
    """Difference in Elo at which a share of the points is expected; None for 0 and 1."""
    return _SCALE * math.log(share / (1.0 - share)) if 0.0 < share < 1.0 else None


def elo_difference(wins: int, losses: int, draws: int = 0) -> tuple[float | None, Interval]:
    """Elo of one player above another, and the 95 % interval; None has no limit on that side.

    The interval is exact without draws (Clopper and Pearson), and Wilson's with draws.
    """
    games = wins + losses + draws
    if not games:
        return None, (None, None)
    points = wins + draws / 2
    low, high = (wilson_interval if draws else clopper_pearson_interval)(points, games)
    return elo_of_share(points / games), (elo_of_share(low), elo_of_share(high))


def ratings(points: npt.ArrayLike) -> tuple[list[float], list[float]] | None:
    """Ratings of players with mean 0, and the half widths of their 95 % intervals.

    Args:
        points: [players, players] what the player of the row won against that of the column.

    Returns:
        None where the games do not determine them: some group of players won, or lost, every game
        against all others.
    """
    from scipy.sparse.csgraph import connected_components

    won = np.asarray(points, float)
    # Wins lead from every player to every other.
    if connected_components(won, connection="strong")[0] > 1:
        return None
    games = won + won.T
    strength = np.ones(len(won))
    for _ in range(_STEPS):
        pairs = games / (strength[:, None] + strength[None, :])
        new = won.sum(1) / pairs.sum(1)
        new /= np.exp(np.log(new).mean())
        strength, before = new, strength
        if np.abs(np.log(strength / before)).max() < 1e-10:
            break
    # The information of the log strengths is singular along their sum, which is fixed.
    chance = strength[:, None] / (strength[:, None] + strength[None, :])
    information = -games * chance * chance.T
    np.fill_diagonal(information, 0.0)
    np.fill_diagonal(information, -information.sum(1))
    variance = np.diag(np.linalg.pinv(information))
    return list(_SCALE * np.log(strength)), list(_SCALE * NORMAL_95 * np.sqrt(variance))


def elo_text(elo: float | None, interval: Interval) -> str:
    """Elo with its interval in words."""
    known = "unknown" if elo is None else f"{elo:+.0f}"
    return f"{known} (95 % interval {interval_text(interval)})"


def interval_text(interval: Sequence[float | None]) -> str:
    """An interval in words, such as ``12 to 95`` or ``above 40``."""
    low, high = interval
    if low is None and high is None:
        return "unknown"
    if high is None:
        return f"above {low:+.0f}"
    return f"below {high:+.0f}" if low is None else f"{low:+.0f} to {high:+.0f}"
