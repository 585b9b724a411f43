"""Compiled ladder reading: a proof search over ataris and the answers to them."""

from __future__ import annotations

from holdfast.go._kernels import (
    BLACK,
    CHAIN,
    COLOR,
    EMPTY,
    INFO,
    NEXT,
    PASS,
    WHITE,
    WIDTH,
    Board,
    Ints,
    atari,
    copy,
    inner,
    legal,
    neighbor,
    outer,
    play,
)

ESCAPES, CAPTURED, UNKNOWN = range(3)


@inner
def _with(found: Ints, count: int, most: int, point: int) -> int:
    """The number of points in a list once one is in it, unless there are as many as may be."""
    for place in range(count):
        if found[place] == point:
            return count
    if count < most:
        found[count] = point
        count += 1
    return count


@inner
def liberties(board: Board, head: int, found: Ints) -> int:
    """Number of different liberties of a chain, 3 for more; `found` [3] has them."""
    width = board[INFO, WIDTH]
    count, stone = 0, head
    while count < 3:
        for side in range(4):
            near = stone + neighbor(width, side)
            if board[COLOR, near] == EMPTY:
                count = _with(found, count, 3, near)
        stone = board[NEXT, stone]
        if stone == head:
            break
    return count


@inner
def answers(board: Board, head: int, found: Ints) -> int:
    """Moves that can save a chain in atari: captures of chains around it, and the way out last."""
    width = board[INFO, WIDTH]
    other = BLACK + WHITE - board[COLOR, head]
    count, stone = 0, head
    while True:
        for side in range(4):
            near = stone + neighbor(width, side)
            if board[COLOR, near] == other and atari(board, board[CHAIN, near]) != PASS:
                count = _with(found, count, found.size - 1, atari(board, board[CHAIN, near]))
        stone = board[NEXT, stone]
        if stone == head:
            break
    return _with(found, count, found.size, atari(board, head))


@outer
def read(
    boards: Ints,
    moves: Ints,
    line: Ints,
    budget: Ints,
    target: int,
    attacking: bool,
    level: int,
) -> int:
    """Whether the chain of a stone is captured if every move of the attacker gives atari.

    Args:
        boards: [depth, PLANES, cells]; that of the level is the position.
        moves: [depth, 16] room for the moves at each depth.
        line: [depth] is given the capturing moves with the last answers to them; -1 ends it.
        budget: [1] number of positions that may still be read.
        target: a stone of the chain, which has one or two liberties if the attacker moves, or one.
        attacking: whether the attacker moves first.
        level: number of moves played.

    Returns:
        CAPTURED, ESCAPES, or UNKNOWN where positions or depth did not suffice.
    """
    board = boards[level]
    budget[0] -= 1
    color, head = board[COLOR, target], board[CHAIN, target]
    if color == EMPTY:
        return CAPTURED
    if budget[0] < 0 or level == boards.shape[0] - 1:
        return UNKNOWN
    if attacking:
        left = liberties(board, head, moves[level])
        mover, good, verdict = BLACK + WHITE - color, CAPTURED, ESCAPES
    else:
        left = answers(board, head, moves[level])
        mover, good, verdict = color, ESCAPES, CAPTURED
    # Out of reach; or the attacker's stone was not an atari, or it was captured.
    if left == 3 if attacking else atari(board, head) == PASS:
        return ESCAPES
    while left > 0:
        left -= 1
        point = moves[level, left]
        if legal(board, point, mover, False):
            copy(boards[level + 1], board)
            play(boards[level + 1], point, mover)
            line[level], line[level + 1] = point, -1
            found = read(boards, moves, line, budget, target, not attacking, level + 1)
            if found == good:
                return good
            if found == UNKNOWN:
                verdict = UNKNOWN
    return verdict
