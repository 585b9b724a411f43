"""Go: rules, search, matches, and what each point of Elo costs.

game = go.Game(9)
game.play("E5")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.go.elo import elo_difference, ratings
    from holdfast.go.ladders import Ladders, ladder
    from holdfast.go.matches import Match, match
    from holdfast.go.puct import PuctSearch
    from holdfast.go.records import read_sgf
    from holdfast.go.referee import settle
    from holdfast.go.rules import RULES, Game, IllegalMove, Rules, perft
    from holdfast.go.search import Choice, PlayoutSearch

_HOMES = {
    "RULES": "rules",
    "Choice": "search",
    "Game": "rules",
    "IllegalMove": "rules",
    "Ladders": "ladders",
    "Match": "matches",
    "PlayoutSearch": "search",
    "PuctSearch": "puct",
    "Rules": "rules",
    "elo_difference": "elo",
    "ladder": "ladders",
    "match": "matches",
    "perft": "rules",
    "ratings": "elo",
    "read_sgf": "records",
    "settle": "referee",
}

__all__ = [
    "RULES",
    "Choice",
    "Game",
    "IllegalMove",
    "Ladders",
    "Match",
    "PlayoutSearch",
    "PuctSearch",
    "Rules",
    "elo_difference",
    "ladder",
    "match",
    "perft",
    "ratings",
    "read_sgf",
    "settle",
]

__getattr__ = lazily(__name__, _HOMES)
