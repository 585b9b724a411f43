"""Exact values of small boards, proved by search over whole games, so that ko and superko are exact.

Source: depth-first proof-number search (Nagai, Df-pn algorithm for searching AND/OR trees, 2002), without a
table of positions: under superko, what a position is worth depends on how it was reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.ndimage import binary_dilation, label

from holdfast.go._kernels import BLACK, PASS, WHITE
from holdfast.go.rules import Game

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

    Args:
        game: not changed but for the room of its history; under its rules.
        positions: how many may be looked at for one proof.

    Returns:
        What black can reach at least and at most, which are the same where the value is proved.
    """
    low, high = -game.rows * game.cols, game.rows * game.cols
    search = _Search(game, len(game.moves) + _DEPTH)
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


@dataclass
class _Search:
    """Whether black can reach a lead."""

    game: Game
    longest: int
    """Moves of a game after which it is left open."""
    lead: int = 0
    left: int = 0
    """Positions that may still be looked at."""
    known: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """What `secured` said of a position and a color."""

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
        game, history = self.game, self.game.history
        if game.over:
            return [0, _NEVER] if game.score() + game.komi >= self.lead else [_NEVER, 0]
        for color in (BLACK, WHITE):
            key = (game.colors.tobytes(), color)
            if key not in self.known:
                self.known[key] = 2 * secured(game, color) - game.rows * game.cols
            # Where it never had more stones, superko will forbid none of its moves, which add to them.
            stones = (history.cells[: history.count[0], 1:] == color).sum(1)
            needed = self.lead if color == BLACK else 1 - self.lead
            if self.known[key] >= needed and stones[-1] == stones.max():
                return [0, _NEVER] if color == BLACK else [_NEVER, 0]
        if len(game.moves) > self.longest:
            return [_NEVER, _NEVER]
        replies = len(game.legal()) + 1
        return [1, replies] if game.turn == BLACK else [replies, 1]


def secured(game: Game, color: int) -> int:
    """Points that a color keeps whatever the other one plays, if superko forbids none of its moves.

    A chain with two regions around it whose every point touches it can never be captured: what the other
    side plays there is captured by stones that join the chain, which leaves a region of that kind again.
    """
    chains, count = label(game.colors == color)
    most = 0
    for number in range(1, count + 1):
        chain = chains == number
        regions, _ = label(~chain)
        # 0 is the chain itself.
        safe = set(np.unique(regions)) - {0} - set(np.unique(regions[~binary_dilation(chain)]))
        if len(safe) > 1:
            most = max(most, int(chain.sum() + np.isin(regions, list(safe)).sum()))
    return most
