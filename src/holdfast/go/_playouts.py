"""Compiled games of random moves: uniform, or with captures, escapes and 3x3 patterns near the last move.

The moves and their order are MoGo's (Gelly, Wang, Munos and Teytaud, Modification of UCT with patterns in
Monte-Carlo Go, 2006, section 3.2): answers to atari, patterns around the last move, then any move.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.go._kernels import (
    BLACK,
    BORDER,
    CHAIN,
    COLOR,
    COLS,
    EMPTY,
    FREE,
    INFO,
    LAST,
    LIBERTIES,
    LIBERTY_SQUARES,
    LIBERTY_SUM,
    N_FREE,
    NEAR,
    NEXT,
    PASS,
    PASSES,
    PLACE,
    ROWS,
    TURN,
    WHITE,
    WIDTH,
    Board,
    Flags,
    Ints,
    atari,
    inner,
    legal,
    near_color,
    neighbor,
    play,
)

State = NDArray[np.uint64]
_THROW_IN_ONE_IN = 10
"""One random move in so many may put the own stones in atari."""


@inner
def random_below(state: State, bound: int) -> int:
    """A number from 0 to bound - 1 (xorshift64*); the state, [1], is never 0."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    high = (x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(32)
    return np.int64((high * np.uint64(bound)) >> np.uint64(32))


@inner
def around(width: int, place: int) -> int:
    """Distance of one of the eight points around a point, row by row."""
    place += place >= 4
    return (place // 3 - 1) * width + place % 3 - 1


@inner
def eye(board: Board, point: int, color: int) -> bool:
    """Whether a point is surrounded by a color so that an opponent cannot make it a false eye."""
    if near_color(board[NEAR, point], color) != 4:
        return False
    width = board[INFO, WIDTH]
    hostile, border = 0, 0
    for corner in (0, 2, 5, 7):
        found = board[COLOR, point + around(width, corner)]
        hostile += found == BLACK + WHITE - color
        border |= found == BORDER
    return hostile + border < 2


@inner
def self_atari(board: Board, point: int, color: int) -> bool:
    """Whether a legal move leaves its chain at most one liberty; a capture counts as one."""
    width = board[INFO, WIDTH]
    liberty = 0  # the first that was found
    for side in range(4):
        near = point + neighbor(width, side)
        found = board[COLOR, near]
        other = near
        if found == BORDER:
            continue
        if found == color:
            # Liberties of that chain without the point, which touches it on one to four sides.
            head = board[CHAIN, near]
            sides = 0
            for again in range(4):
                beside = point + neighbor(width, again)
                sides += board[COLOR, beside] == color and board[CHAIN, beside] == head
            n = board[LIBERTIES, head] - sides
            total = board[LIBERTY_SUM, head] - sides * point
            if n == 0:
                continue
            if n * (board[LIBERTY_SQUARES, head] - sides * point * point) != total * total:
                return False
            other = total // n
        elif found != EMPTY and atari(board, board[CHAIN, near]) == 0:
            continue
        if liberty not in (0, other):
            return False
        liberty = other
    return True


@inner
def random_move(board: Board, color: int, state: State, careful: bool) -> int:
    """A legal move drawn uniformly from those that fill no eye, simple ko and without suicide; or PASS.

    Args:
        board: changed in the order of its empty points only.
        color: who plays.
        state: of the random numbers.
        careful: reject most moves that put the own chain in atari.
    """
    left = board[INFO, N_FREE]
    while left > 0:
        place = random_below(state, left)
        point = board[FREE, place]
        if (
            legal(board, point, color, False)
            and not eye(board, point, color)
            and not (
                careful
                and self_atari(board, point, color)
                and random_below(state, _THROW_IN_ONE_IN) > 0
            )
        ):
            return point
        # Out of the part that is still drawn from.
        left -= 1
        last = board[FREE, left]
        board[FREE, place], board[FREE, left] = last, point
        board[PLACE, last], board[PLACE, point] = place, left
    return PASS


@inner
def rescue(board: Board, head: int, color: int, state: State) -> int:
    """A move for a chain in atari: the capture of a neighbor, else the way out; PASS if there is none."""
    width = board[INFO, WIDTH]
    choice, choices = PASS, 0
    stone = head
    while True:
        for side in range(4):
            near = stone + neighbor(width, side)
            if board[COLOR, near] == BLACK + WHITE - color:
                point = atari(board, board[CHAIN, near])
                if point != 0 and legal(board, point, color, False):
                    choices += 1
                    if random_below(state, choices) == 0:
                        choice = point
        stone = board[NEXT, stone]
        if stone == head:
            break
    point = atari(board, head)
    if choices == 0 and legal(board, point, color, False) and not self_atari(board, point, color):
        choice = point
    return choice


@inner
def pattern_code(board: Board, point: int) -> int:
    """The colors of the eight points around a point, in base 4."""
    width = board[INFO, WIDTH]
    code = 0
    for place in range(8):
        code |= board[COLOR, point + around(width, place)] << (2 * place)
    return code


@inner
def policy_move(board: Board, color: int, patterns: Flags, state: State) -> int:
    """A move of a playout with knowledge; `patterns`: [2, 4**8] of `pattern_code`."""
    last, width = board[INFO, LAST], board[INFO, WIDTH]
    if last != PASS and board[COLOR, last] == BLACK + WHITE - color:
        # 1. Capture the stones that were played last, or answer their atari.
        point = atari(board, board[CHAIN, last])
        if point != 0 and legal(board, point, color, False):
            return point
        for side in range(4):
            near = last + neighbor(width, side)
            if board[COLOR, near] == color and atari(board, board[CHAIN, near]) != 0:
                point = rescue(board, board[CHAIN, near], color, state)
                if point != PASS:
                    return point
        # 2. A pattern around them.
        start = random_below(state, 8)
        for place in range(8):
            point = last + around(width, (start + place) & 7)
            if (
                board[COLOR, point] == EMPTY
                and patterns[color - BLACK, pattern_code(board, point)]
                and legal(board, point, color, False)
                and not self_atari(board, point, color)
            ):
                return point
    # 3. Any move.
    return random_move(board, color, state, True)


@inner
def count(board: Board) -> int:
    """Points of black minus points of white where every empty region is one point, as after a playout."""
    width, end = board[INFO, WIDTH], board[INFO, WIDTH] * (board[INFO, ROWS] + 1)
    score = 0
    for point in range(width, end):
        color, near = board[COLOR, point], board[NEAR, point]
        if color == EMPTY:
            score += (near_color(near, BLACK) == 4) - np.int64(near_color(near, WHITE) == 4)
        elif color != BORDER:
            score += 1 if color == BLACK else -1
    return score


@inner
def playout(board: Board, patterns: Flags, state: State, first: Ints, wise: bool) -> int:
    """Play to the end, or three moves per point; gives the number of moves.

    Args:
        board: changed.
        patterns: [2, 4**8].
        state: of the random numbers.
        first: [cells] is given the color that plays on a point first, where it is 0.
        wise: play with knowledge, else uniformly.
    """
    most = 3 * board[INFO, ROWS] * board[INFO, COLS]
    moves = 0
    while moves < most and board[INFO, PASSES] < 2:
        color = board[INFO, TURN]
        if wise:
            point = policy_move(board, color, patterns, state)
        else:
            point = random_move(board, color, state, False)
        play(board, point, color)
        if first[point] == 0:
            first[point] = color
        moves += 1
    return moves
