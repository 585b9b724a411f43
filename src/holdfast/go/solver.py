"""Exact values of small boards under superko, proved by search over whole games.

Source: depth-first proof-number search (Nagai, Df-pn algorithm for searching AND/OR trees, 2002), without a
table of proofs: under superko, what a position is worth depends on how it was reached.

On boards of up to 16 points a line ends where the values of all positions decide it (`_loops`). This is
proved then: a side reaches what it needs by moves that never lead to a state again, whatever the other side
plays that simple ko allows, which is more than superko does; and superko forbids none of its own moves, as
no line of that play brings it to stones that the game, or the line, had before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from holdfast.go import _loops
from holdfast.go._kernels import BLACK, INFO, KO, PASS, PASSES, WHITE
from holdfast.go.rules import Game, on_board

_MOST_POINTS = 16
_DEPTH = 200
"""Moves that are looked ahead."""
_NEVER = 1 << 60
"""Number of a node that is decided the other way."""


@dataclass
class _Node:
    """A move, and how many positions at least must be won to prove, or lost to disprove, black's lead."""

    move: int
    numbers: list[int]
    """Of the proof, of the disproof; 0: it is done."""
    below: list[_Node] = field(default_factory=list)


def solve(game: Game, positions: int = 20_000) -> tuple[int, int]:
    """Bounds of the score with best play: points of black minus points of white, without komi.

    Without superko the bounds are those of endless play that counts against black, and for black.

    Args:
        game: not changed but for the room of its history; under its rules.
        positions: how many may be looked at for one proof.

    Returns:
        What black can reach at least and at most, which are the same where the value is proved.
    """
    if game.over:
        return (round(game.score() + game.komi),) * 2
    low, high = -game.rows * game.cols, game.rows * game.cols
    search = _Search(game, len(game.moves) + _DEPTH)
    if search.values is not None and not game.history.superko:
        return search.claim(BLACK), -search.claim(WHITE)
    while low < high:
        search.lead, search.left = (low + high + 1) // 2, positions
        root = _Node(PASS, [1, 1])
        search.work(root, [_NEVER, _NEVER])
        if root.numbers[0] == 0:
            low = search.lead
        elif root.numbers[1] == 0:
            high = search.lead - 1
        else:
            break
    return low, high


class _Search:
    """Whether black can reach a lead; `left` is how many positions may still be looked at.

    Args:
        game: where the search begins.
        longest: moves of a game after which it is left open.
    """

    def __init__(self, game: Game, longest: int) -> None:
        self.game, self.longest, self.lead, self.left = game, longest, 0, 0
        self.values = None
        if game.rows * game.cols <= _MOST_POINTS:
            # Superko forbids the suicide of one stone, which changes nothing.
            least = 2 if game.history.superko and not game.history.situational else 1
            self.values = _values(game.rows, game.cols, least if game.history.suicide else 99)
        self.bits = np.zeros(game.board.shape[1], np.int64)
        self.bits[on_board(game.rows, game.cols)] = 1 << np.arange(game.rows * game.cols)

    def work(self, node: _Node, most: list[int]) -> None:
        """Search below a node until a number is 0 or reaches what its parent allows."""
        own = int(self.game.turn == WHITE)  # the number that one good move suffices for
        if not node.below:
            self.left -= 1
            for move in [PASS, *self.game.legal()]:
                with self.game.trial(move):
                    node.below.append(_Node(move, self._numbers()))
        while True:
            # 1. One move proves, all moves disprove; the other way round for white.
            first, *others = sorted(node.below, key=lambda child: child.numbers[own])
            total = sum(child.numbers[1 - own] for child in node.below)
            node.numbers[own] = first.numbers[own]
            node.numbers[1 - own] = min(_NEVER, total)
            if 0 in node.numbers:
                node.below.clear()
                break
            if node.numbers[0] >= most[0] or node.numbers[1] >= most[1] or self.left <= 0:
                break
            # 2. The most promising move, until another one is.
            limits = [most[1 - own] - total + first.numbers[1 - own]] * 2
            limits[own] = min(most[own], others[0].numbers[own] + 1 if others else _NEVER)
            with self.game.trial(first.move):
                self.work(first, limits)

    def _numbers(self) -> list[int]:
        """Numbers of a new node, which is decided where a side has what it needs."""
        game = self.game
        if game.over:
            return [0, _NEVER] if game.score() + game.komi >= self.lead else [_NEVER, 0]
        if self._reaches(BLACK, self.lead):
            return [0, _NEVER]
        if self._reaches(WHITE, 1 - self.lead):
            return [_NEVER, 0]
        if len(game.moves) > self.longest:
            return [_NEVER, _NEVER]
        replies = len(game.legal()) + 1
        return [1, replies] if game.turn == BLACK else [replies, 1]

    def claim(self, color: int) -> int:
        """Lead that a color reaches by simple ko; sets its `state`, and the `stones` of all positions."""
        assert self.values is not None
        history, info = self.game.history, self.game.board[INFO]
        cells, moves = history.cells[: history.count[0]], self.game.turn == color
        own, other = (cells == color) @ self.bits, (cells == BLACK + WHITE - color) @ self.bits
        mover, second = (own[-1], other[-1]) if moves else (other[-1], own[-1])
        state = _loops.state_of(mover | self.bits[info[KO]], second, self.values)
        self.state = state + 2 * int(info[PASSES] > 0) + int(not moves)
        self.stones = list(zip(other, own, strict=True))
        return int(_loops.claim(self.state, self.values))

    def _reaches(self, color: int, lead: int) -> bool:
        """Whether a side certainly reaches a lead, by the values of positions."""
        if (board := self.values) is None or self.claim(color) < lead:
            return False
        again = (_loops.recreates(self.state, *stones, board) for stones in self.stones)
        return bool(_loops.assured(self.state, board)) and not any(again)


@lru_cache(maxsize=1)
def _values(rows: int, cols: int, suicide: int) -> _loops.Values:
    """The values of all positions, 20 s of CPU time and 0.5 GB for 4x4; `suicide`: see `Values`."""
    points = rows * cols
    grid = np.arange(points).reshape(rows, cols)
    grids = [grid, grid.T] if rows == cols else [grid]
    turned = [
        one[::down, ::right].ravel() for one in grids for down in (1, -1) for right in (1, -1)
    ]
    bits = np.arange(1 << points)[:, None] >> np.arange(points) & 1  # [2**points, points]
    board = _loops.Values(
        points=points,
        cols=cols,
        full=(1 << points) - 1,
        first=sum(1 << cols * row for row in range(rows)),
        suicide=suicide,
        sums=np.stack([bits @ 3**order for order in turned]).astype(np.int32),
        places=np.full(3**points, _loops.ILLEGAL, np.int32),
        numbers=np.empty(3 ** (points - 1) + 9, np.int32),
        values=np.empty(0, np.int8),
        clock=np.empty(0, np.int32),
        marks=np.empty(0, np.int8),
        stack=np.empty(0, np.int32),
    )
    count = _loops.enumerate_positions(board)
    board = board._replace(
        numbers=board.numbers[:count].copy(),
        values=np.tile(np.array([-points, points], np.int8), 2 * count),
        clock=np.zeros(4 * count, np.int32),
        marks=np.zeros(4 * count, np.int8),
        stack=np.empty(4 * count, np.int32),
    )
    time = 0
    while _loops.sweep(board, time):
        time += 2 * count
    return board
