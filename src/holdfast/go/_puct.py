"""Compiled steps of PUCT in batches: selection with virtual loss, expansion and backup.

Sources: Silver et al., Mastering the game of Go without human knowledge (2017), Methods; virtual loss and
the value of moves without visits as in ELF OpenGo (Tian et al., 2019, section 3); simulations in flight
that count as visits but not in values as in Liu et al., Watch the unobserved (2020).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from holdfast.go._kernels import (
    BLACK,
    COLS,
    INFO,
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
    advance,
    allowed,
    area,
    copy,
    forget,
    outer,
)
from holdfast.go._playouts import State, count, eye, playout
from holdfast.go._search import (
    CHILDREN,
    FIRST,
    MOVE,
    VISITS,
    WINS,
    Position,
    Tree,
    add_child,
    worth,
)

# Columns of Tree.values behind visits and wins.
PRIOR, IN_FLIGHT = 2, 3
COLUMNS = 4
HISTORY = 8
"""Positions that a network sees."""
PLANES = 2 * HISTORY + 2
"""Of a network: own stones and the opponent's, newest first; black to move, white to move."""


class Batch(NamedTuple):
    """Leaves on their way through an evaluator."""

    planes: Floats
    """[batch, PLANES, rows, cols]"""
    legal: Flags
    """[batch, cells] Moves that fill no own eye; all False where the game is over."""
    values: Floats
    """[batch] Probability that the side to move wins; filled where the game is over, else the share of the
    playouts that it won."""
    paths: Ints
    """[batch, depth] Nodes from the root to the leaf, then -1."""


@outer
def _best(tree: Tree, node: int, c: float, loss: float) -> int:
    """The child with the largest Q + c P sqrt(N) / (1 + n)."""
    values = tree.values
    first, count = tree.links[node, FIRST], tree.links[node, CHILDREN]
    # A move without visits is worth the mean of its node, whose own wins are the opponent's.
    mean = 1.0 - values[node, WINS] / values[node, VISITS]
    root = math.sqrt(values[node, VISITS] + values[node, IN_FLIGHT])
    best, choice = -1.0, first
    for child in range(first, first + count):
        visits, in_flight = values[child, VISITS], values[child, IN_FLIGHT]
        # A simulation in flight is a visit, and as many losses as the caller says.
        played = visits + loss * in_flight
        q = values[child, WINS] / played if played > 0 else mean
        score = q + c * values[child, PRIOR] * root / (1.0 + visits + in_flight)
        if score > best:
            best, choice = score, child
    return choice


@outer
def describe(planes: Floats, history: History, board: Board) -> None:
    """Write what an evaluator sees of a position, [PLANES, rows, cols], for the side to move."""
    width, color = board[INFO, WIDTH], board[INFO, TURN]
    planes[:] = 0.0
    planes[PLANES - (2 if color == BLACK else 1)] = 1.0
    for age in range(min(HISTORY, history.count[0])):
        cells = history.cells[history.count[0] - 1 - age]
        for row in range(board[INFO, ROWS]):
            for col in range(board[INFO, COLS]):
                stone = cells[(row + 1) * width + col + 1]
                if stone in (BLACK, WHITE):
                    planes[age if stone == color else HISTORY + age, row, col] = 1.0


@outer
def select(
    tree: Tree,
    position: Position,
    batch: Batch,
    size: int,
    c: float,
    loss: float,
    playouts: int,
    state: State,
) -> None:
    """Walk to leaves, which are described for an evaluator; nodes on the way are in flight."""
    board, history, scratch = position.board, position.history, position.history.scratch
    for number in range(size):
        # 1. Down to a node without children.
        copy(board, position.root)
        path = batch.paths[number]
        path[:] = -1
        node, depth = 0, 0
        while True:
            path[depth] = node
            tree.values[node, IN_FLIGHT] += 1.0
            if tree.links[node, FIRST] == 0 or depth + 1 == path.size:
                break
            node = _best(tree, node, c, loss)
            depth += 1
            advance(board, history, np.int64(tree.links[node, MOVE]), board[INFO, TURN])
        # 2. What an evaluator sees; a game that is over has its value.
        color = board[INFO, TURN]
        batch.legal[number] = False
        if board[INFO, PASSES] >= 2:
            black = worth(board, position, area(board, position.owner))
        else:
            found = allowed(board, history, position.points, color)
            for point in position.points[:found]:
                if not eye(board, point, color):
                    batch.legal[number, point] = True
            batch.legal[number, PASS] = True
            black = 0.0
            for _ in range(playouts):
                copy(scratch, board)
                playout(scratch, position.patterns, state, position.first, True)
                black += worth(board, position, count(scratch)) / playouts
        describe(batch.planes[number], history, board)
        batch.values[number] = black if color == BLACK else 1.0 - black
        for _ in range(depth):
            forget(history)


@outer
def expand(tree: Tree, batch: Batch, policy: Floats, size: int) -> None:
    """Give leaves their moves with priors, and add the values on the way back.

    Args:
        tree: with what `select` left in flight.
        batch: of `select`, with all values.
        policy: [batch, cells] not negative; what is not legal is ignored.
        size: leaves in the batch.
    """
    for number in range(size):
        path, legal = batch.paths[number], batch.legal[number]
        depth = (path >= 0).sum() - 1
        leaf = path[depth]
        # 1. Children, unless another leaf of the batch was the same node or the tree is full.
        moves, total = legal.sum(), (policy[number] * legal).sum()
        if moves > 0 and tree.links[leaf, FIRST] == 0 and tree.used[0] + moves <= len(tree.links):
            for move in range(legal.size):
                if legal[move]:
                    share = policy[number, move] / total if total > 0 else 1.0 / moves
                    tree.values[add_child(tree, leaf, move), PRIOR] = share
        # 2. Values, each for the side that played the node.
        value = 1.0 - batch.values[number]
        for node in path[depth::-1]:
            tree.values[node, VISITS] += 1.0
            tree.values[node, WINS] += value
            tree.values[node, IN_FLIGHT] -= 1.0
            value = 1.0 - value
