"""Compiled tree search by playouts: UCT with all-moves-as-first values (RAVE) and priors.

Sources: Gelly and Silver, Monte-Carlo tree search and rapid action value estimation in computer Go (2011),
sections 4 and 5; the schedule of RAVE is the minimum of squared error of section 5.2, with one constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.go._kernels import (
    BLACK,
    BORDER,
    CHAIN,
    COLOR,
    COLS,
    EMPTY,
    INFO,
    LAST,
    PASS,
    PASSES,
    ROWS,
    TURN,
    WHITE,
    WIDTH,
    Board,
    Flags,
    Floats,
    History,
    Ints,
    Ints8,
    Ints32,
    advance,
    allowed,
    area,
    atari,
    copy,
    forget,
    inner,
    neighbor,
    outer,
)
from holdfast.go._playouts import (
    State,
    around,
    count,
    eye,
    pattern_code,
    playout,
    self_atari,
)

# Columns of Tree.links.
FIRST, CHILDREN, MOVE = range(3)
# Columns of Tree.values; wins are those of the side that played the node's move.
VISITS, WINS, RAVE_VISITS, RAVE_WINS, PRIOR_VISITS, PRIOR_WINS = range(6)

EXPAND_AT = 4.0
"""Visits of a node before its moves become nodes."""
_RAVE_EQUIVALENT = 3000.0
"""Visits at which the visits of a move and those of RAVE count alike."""


class Tree(NamedTuple):
    """Nodes in the order in which they were made; node 0 is the root."""

    links: Ints32
    """[nodes, 3] First child (0: none), number of children, move."""
    values: Floats
    """[nodes, 6] Visits and wins: real, of RAVE, and of the prior."""
    used: Ints
    """[1] Number of nodes."""


class Position(NamedTuple):
    """What a search starts from, and room to play in."""

    root: Board
    board: Board
    """Room for the board of a simulation."""
    history: History
    """With room for as many positions as `path` has nodes."""
    patterns: Flags
    """[2, 4**8]"""
    points: Ints
    """[cells] Room for moves."""
    first: Ints
    """[cells] Room for the color that played on a point first."""
    owner: Ints8
    """[cells] Room for who owns a point."""
    path: Ints
    """[depth] Room for the nodes of a simulation."""
    komi: float
    by_points: bool
    """Whether a game is worth its share of the points, or a win."""


@inner
def _prior(values: Floats, node: int, board: Board, point: int, color: int, good: bool) -> None:
    """Virtual games of a move: captures, patterns, self-atari, the distance to the last move, the edge."""
    width = board[INFO, WIDTH]
    visits, wins = 10.0, 5.0
    # 1. Captures and answers to atari, patterns, stones in atari.
    urgent = False
    for side in range(4):
        near = point + neighbor(width, side)
        found = board[COLOR, near]
        if EMPTY < found < BORDER and atari(board, board[CHAIN, near]) != 0:
            urgent = True
    if self_atari(board, point, color):
        visits += 10.0
    elif urgent:
        visits, wins = visits + 20.0, wins + 20.0
    elif good:
        visits, wins = visits + 10.0, wins + 10.0
    # 2. Near the last move.
    row, col = point // width, point % width
    last = board[INFO, LAST]
    if last != PASS:
        distance = abs(row - last // width) + abs(col - last % width)
        if distance <= 4:
            bonus = 24.0 - 5.0 * distance
            visits, wins = visits + bonus, wins + bonus
    # 3. On open ground: not on the first two lines, rather on the third and fourth.
    open_ = True
    for place in range(8):
        near = point + around(width, place)
        open_ = open_ and board[COLOR, near] in (EMPTY, BORDER)
    if open_:
        line = min(row, col, board[INFO, ROWS] + 1 - row, board[INFO, COLS] + 1 - col)
        visits += 10.0
        wins += 10.0 if line >= 3 else 0.0
    values[node, PRIOR_VISITS], values[node, PRIOR_WINS] = visits, wins


@inner
def add_child(tree: Tree, node: int, move: int) -> int:
    """Append a child to the node whose children are being made."""
    child = tree.used[0]
    tree.used[0] = child + 1
    tree.links[child, FIRST], tree.links[child, CHILDREN] = 0, 0
    tree.links[child, MOVE] = move
    for column in range(tree.values.shape[1]):
        tree.values[child, column] = 0.0
    if tree.links[node, FIRST] == 0:
        tree.links[node, FIRST] = child
    tree.links[node, CHILDREN] += 1
    return child


@inner
def _expand(tree: Tree, node: int, position: Position, board: Board) -> None:
    """Make a node for every move that fills no eye, and for the pass."""
    color = board[INFO, TURN]
    found = allowed(board, position.history, position.points, color)
    if tree.used[0] + found + 1 > tree.links.shape[0]:
        return
    for place in range(found):
        point = position.points[place]
        if not eye(board, point, color):
            child = add_child(tree, node, point)
            good = position.patterns[color - BLACK, pattern_code(board, point)]
            _prior(tree.values, child, board, point, color, good)
    child = add_child(tree, node, PASS)
    tree.values[child, PRIOR_VISITS] = 10.0
    tree.values[child, PRIOR_WINS] = 5.0 if board[INFO, PASSES] else 1.0


@inner
def _select(tree: Tree, node: int) -> int:
    """The child with the largest mean of its values and those of RAVE, weighted by their errors."""
    first = tree.links[node, FIRST]
    best, choice = -1.0, first
    for child in range(first, first + tree.links[node, CHILDREN]):
        visits = tree.values[child, VISITS] + tree.values[child, PRIOR_VISITS]
        wins = tree.values[child, WINS] + tree.values[child, PRIOR_WINS]
        mean, rave = wins / visits, tree.values[child, RAVE_VISITS]
        if rave > 0.0:
            weight = rave / (rave + visits + rave * visits / _RAVE_EQUIVALENT)
            mean += weight * (tree.values[child, RAVE_WINS] / rave - mean)
        if mean > best:
            best, choice = mean, child
    return choice


@inner
def worth(board: Board, position: Position, points: int) -> float:
    """What the end of a game is worth for black, from 0 to 1, by its points more than white's."""
    score = points - position.komi
    if position.by_points:
        return 0.5 + 0.5 * score / (board[INFO, ROWS] * board[INFO, COLS])
    return 1.0 if score > 0 else 0.5 if score == 0 else 0.0


@outer
def simulate(tree: Tree, position: Position, state: State, games: int) -> None:
    """Add simulations to a tree: select, expand, play out, back up."""
    board, history, path, first = position.board, position.history, position.path, position.first
    for _ in range(games):
        # 1. Down the tree.
        copy(board, position.root)
        node, depth = 0, 0
        path[0] = 0
        while board[INFO, PASSES] < 2 and depth + 1 < path.size:
            if tree.links[node, FIRST] == 0 and (
                node == 0 or tree.values[node, VISITS] >= EXPAND_AT
            ):
                _expand(tree, node, position, board)
            if tree.links[node, FIRST] == 0:
                break
            node = _select(tree, node)
            depth += 1
            path[depth] = node
            advance(board, history, np.int64(tree.links[node, MOVE]), board[INFO, TURN])
        # 2. To the end of the game.
        for cell in range(first.size):
            first[cell] = 0
        first[PASS] = BORDER  # every playout ends with passes, which says nothing of them
        mover = BLACK + WHITE - board[INFO, TURN]
        if board[INFO, PASSES] >= 2:
            black = worth(board, position, area(board, position.owner))
        else:
            playout(board, position.patterns, state, first, True)
            black = worth(board, position, count(board))
        # 3. Up the tree; moves behind a node count for all of its children of that color.
        for place in range(depth, -1, -1):
            node = path[place]
            tree.values[node, VISITS] += 1.0
            tree.values[node, WINS] += black if mover == BLACK else 1.0 - black
            # Who plays the node's children is who did not play the node.
            other, mover = mover, BLACK + WHITE - mover
            start = tree.links[node, FIRST]
            won = black if mover == BLACK else 1.0 - black
            for child in range(start, start + tree.links[node, CHILDREN]):
                if first[tree.links[child, MOVE]] == mover:
                    tree.values[child, RAVE_VISITS] += 1.0
                    tree.values[child, RAVE_WINS] += won
            if tree.links[node, MOVE] != PASS:
                first[tree.links[node, MOVE]] = other
        for _ in range(depth):
            forget(history)


@outer
def own(position: Position, state: State, games: int, lead: NDArray[np.float64]) -> None:
    """Add to lead [cells] the share of playouts that leave a point to black less that to white."""
    owner = position.owner
    for _ in range(games):
        copy(position.board, position.root)
        playout(position.board, position.patterns, state, position.first, True)
        area(position.board, owner)
        for cell in range(lead.size):
            lead[cell] += ((owner[cell] == BLACK) - np.int64(owner[cell] == WHITE)) / games


@outer
def reroot(tree: Tree, node: int, target: Tree) -> None:
    """Copy the tree below a node into an empty tree, as far as it has room."""
    # The nodes of the target are a queue; until a node's turn comes, FIRST is where its children were.
    target.links[0, :], target.values[0, :] = tree.links[node], tree.values[node]
    place, end = 0, 1
    while place < end:
        first, children = target.links[place, FIRST], target.links[place, CHILDREN]
        target.links[place, FIRST], target.links[place, CHILDREN] = 0, 0
        if first != 0 and end + children <= target.links.shape[0]:
            target.links[place, FIRST], target.links[place, CHILDREN] = end, children
            target.links[end : end + children] = tree.links[first : first + children]
            target.values[end : end + children] = tree.values[first : first + children]
            end += children
        place += 1
    target.used[0] = end
