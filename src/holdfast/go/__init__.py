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
    from holdfast.go.ledger import Iteration, Training
    from holdfast.go.matches import Match, match
    from holdfast.go.puct import PuctSearch
    from holdfast.go.records import read_sgf
    from holdfast.go.referee import settle
    from holdfast.go.rules import RULES, Game, IllegalMove, Rules, perft
    from holdfast.go.search import Choice, PlayoutSearch
    from holdfast.go.solver import solve
    from holdfast.go.training import train

_HOMES = {
    "RULES": "rules",
    "Choice": "search",
    "Game": "rules",
    "IllegalMove": "rules",
    "Iteration": "ledger",
    "Ladders": "ladders",
    "Match": "matches",
    "PlayoutSearch": "search",
    "PuctSearch": "puct",
    "Rules": "rules",
    "Training": "ledger",
    "elo_difference": "elo",
    "ladder": "ladders",
    "match": "matches",
    "perft": "rules",
    "ratings": "elo",
    "read_sgf": "records",
    "settle": "referee",
    "solve": "solver",
    "train": "training",
}

__all__ = [
    "RULES",
    "Choice",
    "Game",
    "IllegalMove",
    "Iteration",
    "Ladders",
    "Match",
    "PlayoutSearch",
    "PuctSearch",
    "Rules",
    "Training",
    "elo_difference",
    "ladder",
    "match",
    "perft",
    "ratings",
    "read_sgf",
    "settle",
    "solve",
    "train",
]

__getattr__ = lazily(__name__, _HOMES)
