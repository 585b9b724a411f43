"""Go: rules, search, matches, and what each point of Elo costs.

game = go.Game(9)
game.play("E5")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.go.elo import elo_difference, ratings
    from holdfast.go.matches import Match, match
    from holdfast.go.referee import settle
    from holdfast.go.rules import RULES, Game, IllegalMove, Rules, perft
    from holdfast.go.search import Choice, PlayoutSearch

_HOMES = {
    "RULES": "rules",
    "Choice": "search",
    "Game": "rules",
    "IllegalMove": "rules",
    "Match": "matches",
    "PlayoutSearch": "search",
    "Rules": "rules",
    "elo_difference": "elo",
    "match": "matches",
    "perft": "rules",
    "ratings": "elo",
    "settle": "referee",
}

__all__ = [
    "RULES",
    "Choice",
    "Game",
    "IllegalMove",
    "Match",
    "PlayoutSearch",
    "Rules",
    "elo_difference",
    "match",
    "perft",
    "ratings",
    "settle",
]

__getattr__ = lazily(__name__, _HOMES)
