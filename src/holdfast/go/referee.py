"""What a position is worth once dead stones are captured: both sides play on until both pass."""

from __future__ import annotations

import numpy as np

from holdfast.go import _kernels as kernels
from holdfast.go.rules import Game
from holdfast.go.search import PlayoutSearch

_VISITS = 400
_NODES = 40_000


def settle(game: Game, visits: int = _VISITS) -> Game:
    """The game played on by search for both sides, until both pass.

    Dead stones count as alive in the area of a board that was left early; played on for points, they are
    captured. Where a side put stones in atari itself and lost them, as in a seki, it could have passed: the
    game is played on anew without such moves.

    Args:
        game: not changed.
        visits: simulations per move.
    """
    kept: set[int] = set()
    while True:
        settled, risked = _play_on(game, visits, kept)
        owner = np.empty(game.board.shape[1], np.int8)
        kernels.area(settled.board, owner)
        lost = {cell for cell in risked if owner[cell] != game.board[kernels.COLOR, cell]}
        if not lost:
            return settled
        kept |= lost


def _play_on(game: Game, visits: int, kept: set[int]) -> tuple[Game, set[int]]:
    """The game at its end, and the cells of stones of `game` that their own side put in atari.

    Args:
        game: not changed.
        visits: simulations per move.
        kept: cells of stones that their own side does not put in atari.
    """
    settled, risked = game.copy(), set[int]()
    search = PlayoutSearch(nodes=_NODES, by_points=True)
    passes = 0
    for _ in range(2 * game.rows * game.cols):
        # A search that could end the game by a pass would not look for what it can capture.
        settled.board[kernels.INFO, kernels.PASSES] = 0
        move = kernels.PASS
        for candidate in search.choose(settled, visits).candidates:
            stones = _self_atari(game, settled, candidate.cell)
            if not stones & kept:
                move = candidate.cell
                risked |= stones
                break
        settled.play(move)
        passes = 0 if move else passes + 1
        if passes == 2:
            break
    return settled, risked


def _self_atari(game: Game, settled: Game, cell: int) -> set[int]:
    """The cells of stones of `game` that a move of their own side leaves one liberty."""
    with settled.trial(cell):
        chain, color = settled.board[kernels.CHAIN], settled.board[kernels.COLOR]
        if cell == kernels.PASS or not kernels.atari(settled.board, chain[cell]):
            return set()
        same = (chain == chain[cell]) & (color == color[cell])
        return set((same & (game.board[kernels.COLOR] == color)).nonzero()[0].tolist())
