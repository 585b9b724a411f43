"""Go: rules, search, matches, and what each point of Elo costs.

game = go.Game(9)
game.play("E5")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.go.rules import RULES, Game, IllegalMove, Rules, perft

_HOMES = {
    "RULES": "rules",
    "Game": "rules",
    "IllegalMove": "rules",
    "Rules": "rules",
    "perft": "rules",
}

__all__ = ["RULES", "Game", "IllegalMove", "Rules", "perft"]

__getattr__ = lazily(__name__, _HOMES)
