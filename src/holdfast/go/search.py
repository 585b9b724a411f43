"""Choosing a move by search: what a search finds, and playout search within visits or time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from holdfast.go import _kernels as kernels
from holdfast.go import _search
from holdfast.go._kernels import Floats, Ints
from holdfast.go._playouts import State
from holdfast.go._search import CHILDREN, FIRST, MOVE, VISITS, WINS, Position, Tree
from holdfast.go.patterns import pattern_table
from holdfast.go.rules import Game

DEPTH = 200
"""Moves that one simulation goes down the tree at most."""
SLICE_S = 0.02
"""Seconds of simulations between two looks at the clock."""
NODES = 1_000_000


@dataclass(frozen=True)
class Candidate:
    """A move that a search considered."""

    cell: int
    visits: int
    win_rate: float
    """Share of the simulations behind it that its side won."""
    prior: float | None
    """What a network's policy gave it, the noise of self-play included; None: there is no network."""
    line: list[int]
    """The move, and the moves behind it that were visited most."""


@dataclass(frozen=True)
class Choice:
    """What a search found."""

    cell: int
    """The move; 0 is the pass."""
    win_rate: float
    """Share of its simulations that the side to move won."""
    visits: int
    """Simulations below the position, those of earlier searches included."""
    candidates: list[Candidate]
    """Moves with visits, the most first."""
    line: list[int]
    """The moves that were visited most, one after the other."""


def make_tree(nodes: int, columns: int) -> Tree:
    """An empty tree with room for nodes; pages of memory are taken when they are written."""
    return Tree(
        links=np.zeros((nodes, 3), np.int32),
        values=np.zeros((nodes, columns), np.float32),
        used=np.ones(1, np.int64),
    )


def make_position(game: Game, by_points: bool = False) -> Position:
    """A search's own view of a game, which grows the game's history."""
    game.reserve(DEPTH)
    cells = game.board.shape[1]
    root = game.board.copy()
    if game.over:  # it is played on
        root[kernels.INFO, kernels.PASSES] = 0
    return Position(
        root=root,
        board=np.empty_like(game.board),
        history=game.history,
        patterns=pattern_table(),
        points=np.zeros(cells, np.int64),
        first=np.zeros(cells, np.int64),
        owner=np.zeros(cells, np.int8),
        path=np.zeros(DEPTH, np.int64),
        komi=0.0 if by_points else float(game.komi),
        by_points=by_points,
    )


def random_state(seed: int) -> State:
    """[1] Any state but 0 of the random numbers of playouts: the golden ratio spreads small seeds."""
    mixed = (seed + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)
    return np.array([mixed or 1], np.uint64)


def children(tree: Tree, node: int) -> Ints:
    """The nodes below a node."""
    first = int(tree.links[node, FIRST])
    return np.arange(first, first + int(tree.links[node, CHILDREN]))


@dataclass
class TreeOfGame:
    """A tree that follows a game from move to move."""

    columns: int
    nodes: int = NODES
    tree: Tree = field(init=False)
    _setting: tuple[object, ...] = ()
    _moves: list[tuple[int, int]] = field(default_factory=list)
    _turn: int = kernels.BLACK

    def __post_init__(self) -> None:
        self.tree = make_tree(self.nodes, self.columns)

    def follow(self, game: Game) -> Tree:
        """The tree for a position: below the moves since the last call, or an empty one."""
        setting = (game.rows, game.cols, game.rules, game.komi)
        known, turn = len(self._moves), self._turn
        node = 0 if setting == self._setting and game.moves[:known] == self._moves else -1
        for color, cell in game.moves[known:]:
            below = children(self.tree, max(node, 0))
            match = below[self.tree.links[below, MOVE] == cell]
            # The sides take turns in a tree.
            node = int(match[0]) if node >= 0 and color == turn and len(match) else -1
            turn = 3 - color
        if turn != game.turn:
            node = -1
        if node:
            target = make_tree(self.nodes, self.columns)
            if node > 0:
                _search.reroot(self.tree, node, target)
            self.tree = target
        self._setting, self._moves, self._turn = setting, list(game.moves), game.turn
        return self.tree


def choice_of(tree: Tree, order: Floats, prior: int | None = None) -> Choice:
    """What a tree says of its root.

    Args:
        tree: after some simulations.
        order: [nodes] the measure by which moves are chosen.
        prior: column of the values that has a network's policy.
    """

    def best(node: int) -> int:
        first, count = tree.links[node, FIRST], tree.links[node, CHILDREN]
        return int(first + order[first : first + count].argmax()) if count else 0

    def line(node: int) -> list[int]:
        moves = []
        while node and tree.values[node, VISITS]:
            moves.append(int(tree.links[node, MOVE]))
            node = best(node)
        return moves

    candidates = [
        Candidate(
            int(tree.links[node, MOVE]),
            int(tree.values[node, VISITS]),
            float(tree.values[node, WINS] / tree.values[node, VISITS]),
            None if prior is None else float(tree.values[node, prior]),
            line(node),
        )
        for node in children(tree, 0).tolist()
        if tree.values[node, VISITS]
    ]
    candidates.sort(key=lambda row: (-row.visits, row.cell))
    first = best(0)
    rate = float(tree.values[first, WINS] / max(1.0, tree.values[first, VISITS]))
    visits = sum(row.visits for row in candidates)
    return Choice(int(tree.links[first, MOVE]), rate, visits, candidates, line(first))


class PlayoutSearch:
    """Monte-Carlo tree search whose positions are valued by playouts with knowledge.

    Args:
        seed: of the random numbers.
        nodes: room of the tree, 36 bytes each.
        by_points: look for points, without komi, rather than for the most probable win.
    """

    def __init__(self, seed: int = 1, nodes: int = NODES, by_points: bool = False) -> None:
        self.by_points = by_points
        self._tree = TreeOfGame(columns=6, nodes=nodes)
        self._state = random_state(seed)

    def choose(self, game: Game, visits: int | None = None, seconds: float | None = None) -> Choice:
        """Search a position for the side to move.

        Args:
            game: not changed but for the room of its history.
            visits: number of new simulations; None: no limit.
            seconds: wall time; None: no limit.
        """
        begin = time.monotonic()
        tree, position = self._tree.follow(game), make_position(game, self.by_points)
        left = visits if visits is not None else 1 << 62
        size, last = 16, begin
        while left > 0:
            size = min(size, left)
            _search.simulate(tree, position, self._state, size)
            left -= size
            now = time.monotonic()
            spent, last = max(now - last, 1e-6), now
            if seconds is not None and now + SLICE_S - begin >= seconds:
                break
            size = max(1, int(size * min(2.0, SLICE_S / spent)))
        return choice_of(tree, tree.values[:, VISITS])
