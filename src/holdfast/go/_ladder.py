"""Compiled ladder reading: a proof search over ataris and the answers to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.go._kernels import (
    BLACK,
    CHAIN,
    COLOR,
    EMPTY,
    INFO,
    NEXT,
    PASS,
    UNCOUNTED,
    WHITE,
    WIDTH,
    Board,
    atari,
    copy,
    legal,
    neighbor,
    play,
)
from holdfast.kernels import kernel

ESCAPES, CAPTURED, UNKNOWN = range(3)


@kernel(**UNCOUNTED)
def liberties(board: Board, head: int, found: NDArray[np.int64]) -> int:
    """Number of different liberties of a chain, 3 for more; `found` [3] has them."""
    width = board[INFO, WIDTH]
    count, stone = 0, head
    while count < 3:
        for side in range(4):
            near = stone + neighbor(width, side)
            if board[COLOR, near] == EMPTY and count < 3:
                new = True
                for place in range(count):
                    new = new and found[place] != near
                if new:
                    found[count] = near
                    count += 1
        stone = board[NEXT, stone]
        if stone == head:
            break
    return count


@kernel(**UNCOUNTED)
def answers(board: Board, head: int, found: NDArray[np.int64]) -> int:
    """Moves that can save a chain in atari: captures of chains around it, and the way out last."""
    width = board[INFO, WIDTH]
    other = BLACK + WHITE - board[COLOR, head]
    count, stone = 0, head
    while True:
        for side in range(4):
            near = stone + neighbor(width, side)
            if board[COLOR, near] == other and count < found.size - 1:
                point = atari(board, board[CHAIN, near])
                new = point != PASS
                for place in range(count):
                    new = new and found[place] != point
                if new:
                    found[count] = point
                    count += 1
        stone = board[NEXT, stone]
        if stone == head:
            break
    out = atari(board, head)
    for place in range(count):
        if found[place] == out:
            return count
    found[count] = out
    return count + 1


@kernel(nogil=True, error_model="numpy")
def read(
    boards: NDArray[np.int64],
    moves: NDArray[np.int64],
    line: NDArray[np.int64],
    target: int,
    attacking: bool,
    budget: int,
) -> int:
    """Whether the chain of a stone is captured if every move of the attacker gives atari.

    Args:
        boards: [depth, PLANES, cells]; 0 is the position.
        moves: [depth, 16] room for the moves at each depth.
        line: [depth] is given the capturing moves with the last answers to them; -1 ends it.
        target: a stone of the chain, which has one or two liberties if the attacker moves, or one.
        attacking: whether the attacker moves first.
        budget: number of positions.

    Returns:
        CAPTURED, ESCAPES, or UNKNOWN where positions or depth did not suffice.
    """
    depth = boards.shape[0]
    left = np.zeros(depth, np.int64)  # moves of a level that were not tried; -1: none is listed yet
    doubt = np.zeros(depth, np.bool_)  # a move of the level has no verdict
    color = boards[0, COLOR, target]
    level, verdict = 0, -1  # -1: the level has no verdict yet
    left[0] = -1
    while True:
        board, attacks = boards[level], attacking == (level % 2 == 0)
        mover = BLACK + WHITE - color if attacks else color
        good = CAPTURED if attacks else ESCAPES
        if verdict >= 0:  # of the move that was tried last at this level
            if verdict == UNKNOWN:
                doubt[level] = True
            if verdict != good:
                verdict = -1
        elif left[level] == -1:
            budget -= 1
            head = board[CHAIN, target]
            if board[COLOR, target] != color:
                verdict = CAPTURED
            elif budget < 0 or level == depth - 1:
                verdict = UNKNOWN
            elif attacks:
                left[level] = liberties(board, head, moves[level])
                if left[level] == 3:
                    verdict = ESCAPES
            elif atari(board, head) == PASS:
                verdict = ESCAPES  # the attacker's stone was not an atari, or it was captured
            else:
                left[level] = answers(board, head, moves[level])
        if verdict < 0:
            if left[level] > 0:
                left[level] -= 1
                point = moves[level, left[level]]
                if legal(board, point, mover, False):
                    copy(boards[level + 1], board)
                    play(boards[level + 1], point, mover)
                    line[level], line[level + 1] = point, -1
                    level += 1
                    left[level], doubt[level] = -1, False
                continue
            verdict = UNKNOWN if doubt[level] else ESCAPES if attacks else CAPTURED
        if level == 0:
            return verdict
        level -= 1
