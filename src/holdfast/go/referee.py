"""What a position is worth once dead stones are captured: both sides play on until both pass."""

from __future__ import annotations

from holdfast.go.rules import Game
from holdfast.go.search import PlayoutSearch

_VISITS = 400
_NODES = 40_000


def settle(game: Game, visits: int = _VISITS) -> Game:
    """The game played on by search for both sides, until both pass.

    Dead stones count as alive in the area of a board that was left early; played on for points, they are
    captured.

    Args:
        game: not changed.
        visits: simulations per move.
    """
    settled = game.copy()
    search = PlayoutSearch(nodes=_NODES, by_points=True)
    passes = 0
    for _ in range(2 * game.rows * game.cols):
        choice = search.choose(settled, visits)
        settled.play(choice.cell)
        passes = 0 if choice.cell else passes + 1
        if passes == 2:
            break
    return settled
