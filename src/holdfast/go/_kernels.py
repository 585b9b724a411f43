"""Compiled rules of Go: chains with pseudo-liberties, legality, superko, area.

A board is one array [planes, cells]. Cells are numbered row by row with one border cell before each row and
a border row above and below, so that the four neighbors of `p` are `p - width`, `p - 1`, `p + 1` and
`p + width` everywhere. Cell 0 is border, and as a move it is the pass.

A chain is known by one of its stones, its head. It counts pseudo-liberties: a liberty that touches the
chain on two sides counts twice. Their sum and sum of squares say whether all of them are one point, for
`n * sum(p^2) = (sum p)^2` only then: the chain is in atari, and the point is `sum / n`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.kernels import kernel

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Ints8 = NDArray[np.int8]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Keys = NDArray[np.uint64]
Board = Ints
Key = Any
"""A Zobrist key: `numpy.uint64`, the exclusive or of those of the stones."""

EMPTY, BLACK, WHITE, BORDER = range(4)
PASS = 0
SUICIDE, QUIET, CAPTURES = range(3)

# Planes of a board. Those of chains are valid at heads.
COLOR = 0
CHAIN = 1
"""Head of the chain of a stone."""
NEXT = 2
"""The next stone of the chain, in a ring."""
SIZE = 3
LIBERTIES = 4
"""Number of pseudo-liberties; 0: captured."""
LIBERTY_SUM = 5
LIBERTY_SQUARES = 6
NEAR = 7
"""Neighbors: black + 16 white + 256 empty; the border counts as black and as white."""
FREE = 8
"""[:INFO, N_FREE] The empty points; stones captured last are at the end."""
PLACE = 9
"""Where an empty point stands in FREE."""
INFO = 10
PLANES = 11

# Entries of the plane INFO.
WIDTH, ROWS, COLS, N_FREE, TURN, KO, PASSES, LAST = range(8)
LEAST_CELLS = 8

_NEAR_EMPTY = 256
inner = kernel(_nrt=False, nogil=True, error_model="numpy")
"""Compiles what other kernels call; it makes no arrays, whose references would be counted."""
outer = kernel(nogil=True, error_model="numpy")
"""Compiles what Python calls."""


class History(NamedTuple):
    """What the rules know of a game: the positions so far, and a hash table over them."""

    table: Ints32
    """[slots] 1 + number of a position, or 0; a power of two, half full at most."""
    keys: Keys
    """[positions] Zobrist key of the stones."""
    cells: Ints8
    """[positions, cells] Colors; cell 0 has the side to move where that distinguishes positions."""
    count: Ints
    """[1] Number of positions."""
    zobrist: Keys
    """[2, cells] Of black and white stones."""
    scratch: Board
    """Room to try a move in."""
    superko: bool
    """Whether earlier positions are forbidden."""
    situational: bool
    """Whether positions with another side to move are different ones."""
    suicide: bool
    """Whether a chain may be left without liberties, which is then removed."""


@inner
def near_color(near: int, color: int) -> int:
    """How many of the four neighbors have a color or are border, from a value of the plane NEAR."""
    return (near >> (4 * (color - BLACK))) & 15


@inner
def neighbor(width: int, side: int) -> int:
    """Distance of the neighbor on a side, 0 to 3."""
    distance = width if side & 1 else 1
    return distance if side & 2 else -distance


@inner
def copy(target: Board, source: Board) -> None:
    """Copy a board onto another; a slice would count references."""
    for plane in range(PLANES):
        for cell in range(source.shape[1]):
            target[plane, cell] = source[plane, cell]


@inner
def atari(board: Board, head: int) -> int:
    """The only liberty of a chain, or 0."""
    n, total = board[LIBERTIES, head], board[LIBERTY_SUM, head]
    if n * board[LIBERTY_SQUARES, head] != total * total:
        return 0
    return total // n


@inner
def clear(board: Board, rows: int, cols: int) -> None:
    """Make an empty board with black to move; [PLANES, cells] in place."""
    width = cols + 1
    for plane in range(PLANES):
        for cell in range(board.shape[1]):
            board[plane, cell] = BORDER if plane == COLOR else 0
    board[INFO, WIDTH], board[INFO, ROWS], board[INFO, COLS] = width, rows, cols
    board[INFO, TURN] = BLACK
    for row in range(rows):
        for col in range(cols):
            point = (row + 1) * width + col + 1
            board[COLOR, point] = EMPTY
            board[FREE, row * cols + col] = point
            board[PLACE, point] = row * cols + col
            border = (row == 0) + (row == rows - 1) + (col == 0) + (col == cols - 1)
            board[NEAR, point] = border * 17 + (4 - border) * _NEAR_EMPTY
    board[INFO, N_FREE] = rows * cols


@inner
def _liberty(board: Board, head: int, point: int, sign: int) -> None:
    board[LIBERTIES, head] += sign
    board[LIBERTY_SUM, head] += sign * point
    board[LIBERTY_SQUARES, head] += sign * point * point


@inner
def _remove(board: Board, head: int) -> None:
    """Take a chain without liberties off the board."""
    width = board[INFO, WIDTH]
    color = board[COLOR, head]
    change = _NEAR_EMPTY - (1 << (4 * (color - BLACK)))
    stone = head
    while True:
        board[COLOR, stone] = EMPTY
        board[FREE, board[INFO, N_FREE]] = stone
        board[PLACE, stone] = board[INFO, N_FREE]
        board[INFO, N_FREE] += 1
        for side in range(4):
            near = stone + neighbor(width, side)
            board[NEAR, near] += change
            if board[COLOR, near] == BLACK + WHITE - color:
                _liberty(board, board[CHAIN, near], stone, 1)
        stone = board[NEXT, stone]
        if stone == head:
            break


@inner
def _merge(board: Board, one: int, other: int) -> None:
    """Make two chains one; the smaller takes the head of the larger."""
    if board[SIZE, one] < board[SIZE, other]:
        one, other = other, one
    for plane in range(SIZE, LIBERTY_SQUARES + 1):
        board[plane, one] += board[plane, other]
    stone = other
    while True:
        board[CHAIN, stone] = one
        stone = board[NEXT, stone]
        if stone == other:
            break
    board[NEXT, one], board[NEXT, other] = board[NEXT, other], board[NEXT, one]


@inner
def play(board: Board, point: int, color: int) -> None:
    """Play a legal move, or PASS; captures, and then the own chain if it has no liberty."""
    other = BLACK + WHITE - color
    info = INFO
    board[info, TURN] = other
    board[info, LAST] = point
    board[info, KO] = PASS
    if point == PASS:
        board[info, PASSES] += 1
        return
    board[info, PASSES] = 0
    width = board[info, WIDTH]

    # 1. The point leaves the list of empty points; the last of the list takes its place.
    board[info, N_FREE] -= 1
    last, place = board[FREE, board[info, N_FREE]], board[PLACE, point]
    board[FREE, place] = last
    board[PLACE, last] = place
    empty_before = board[info, N_FREE]

    # 2. A chain of one stone.
    board[COLOR, point] = color
    board[CHAIN, point] = point
    board[NEXT, point] = point
    board[SIZE, point] = 1
    for plane in range(LIBERTIES, LIBERTY_SQUARES + 1):
        board[plane, point] = 0
    change = (1 << (4 * (color - BLACK))) - _NEAR_EMPTY
    for side in range(4):
        near = point + neighbor(width, side)
        board[NEAR, near] += change
        found = board[COLOR, near]
        if found == EMPTY:
            _liberty(board, point, near, 1)
        elif found != BORDER:
            _liberty(board, board[CHAIN, near], point, -1)

    # 3. It joins its neighbors, captures, and is captured itself if nothing else was.
    for side in range(4):
        near = point + neighbor(width, side)
        if board[COLOR, near] == color and board[CHAIN, near] != board[CHAIN, point]:
            _merge(board, board[CHAIN, near], board[CHAIN, point])
    for side in range(4):
        near = point + neighbor(width, side)
        if board[COLOR, near] == other and board[LIBERTIES, board[CHAIN, near]] == 0:
            _remove(board, board[CHAIN, near])
    head = board[CHAIN, point]
    captured = board[info, N_FREE] - empty_before
    if board[LIBERTIES, head] == 0:
        _remove(board, head)
    elif captured == 1 and board[SIZE, head] == 1 and board[LIBERTIES, head] == 1:
        board[info, KO] = board[FREE, empty_before]


@inner
def outcome(board: Board, point: int, color: int) -> int:
    """What a stone on an empty point does: SUICIDE, QUIET or CAPTURES."""
    width = board[INFO, WIDTH]
    found = QUIET if board[NEAR, point] >= _NEAR_EMPTY else SUICIDE
    for side in range(4):
        near = point + neighbor(width, side)
        # The point is a liberty of the chains around it; of one in atari, it is the last.
        if board[COLOR, near] == color and atari(board, board[CHAIN, near]) == 0:
            found = max(found, QUIET)
        elif board[COLOR, near] == BLACK + WHITE - color and atari(board, board[CHAIN, near]) != 0:
            found = CAPTURES
    return found


@inner
def legal(board: Board, point: int, color: int, suicide: bool) -> bool:
    """Whether a stone may be played on an empty point, superko aside."""
    if point == board[INFO, KO] and color == board[INFO, TURN]:
        return False
    if board[NEAR, point] >= _NEAR_EMPTY or suicide:
        return True
    return outcome(board, point, color) != SUICIDE


# --- Superko -------------------------------------------------------------------------------------


@inner
def find_slot(history: History, key: Key, entry: int) -> int:
    """The first slot of a key that holds an entry of the table."""
    mask = history.table.size - 1
    slot = np.int64(key & np.uint64(mask))
    while history.table[slot] != entry:
        slot = (slot + 1) & mask
    return slot


@inner
def remember(history: History, board: Board, key: Key) -> None:
    """Add the position on the board."""
    number = history.count[0]
    history.keys[number] = key
    for cell in range(1, history.cells.shape[1]):
        history.cells[number, cell] = board[COLOR, cell]
    history.cells[number, 0] = board[INFO, TURN] if history.situational else 0
    history.table[find_slot(history, key, 0)] = number + 1
    history.count[0] = number + 1


@inner
def forget(history: History) -> None:
    """Remove the position added last, behind which no other was placed."""
    number = history.count[0]
    history.table[find_slot(history, history.keys[number - 1], number)] = 0
    history.count[0] = number - 1


@inner
def key_after(board: Board, history: History, point: int, color: int) -> Key:
    """Zobrist key of the stones after a legal move of a stone; the board is the last position."""
    scratch, zobrist = history.scratch, history.zobrist
    key = history.keys[history.count[0] - 1] ^ zobrist[color - BLACK, point]
    found = outcome(board, point, color)
    if found != QUIET:
        copy(scratch, board)
        play(scratch, point, color)
        lost = color if found == SUICIDE else BLACK + WHITE - color
        for place in range(board[INFO, N_FREE] - 1, scratch[INFO, N_FREE]):
            key ^= zobrist[lost - BLACK, scratch[FREE, place]]
    return key


@inner
def repeats(board: Board, history: History, point: int, color: int) -> bool:
    """Whether a legal move leads to a position that superko forbids."""
    if not history.superko:
        return False
    scratch, key = history.scratch, key_after(board, history, point, color)
    mask = history.table.size - 1
    slot = np.int64(key & np.uint64(mask))
    while history.table[slot] != 0:
        number = history.table[slot] - 1
        if history.keys[number] == key:
            # A key may be that of another position, too: compare all cells.
            copy(scratch, board)
            play(scratch, point, color)
            mover = history.cells[number, 0]
            same = mover == 0 or mover == scratch[INFO, TURN]
            for cell in range(1, history.cells.shape[1]):
                same = same and history.cells[number, cell] == scratch[COLOR, cell]
            if same:
                return True
        slot = (slot + 1) & mask
    return False


@inner
def allowed(board: Board, history: History, moves: Ints, color: int) -> int:
    """Write the points where a color may play to `moves`, and give their number; the pass is not listed."""
    found = 0
    for place in range(board[INFO, N_FREE]):
        point = board[FREE, place]
        if legal(board, point, color, history.suicide) and not repeats(
            board, history, point, color
        ):
            moves[found] = point
            found += 1
    return found


@inner
def advance(board: Board, history: History, point: int, color: int) -> None:
    """Play a legal move or PASS, and remember the position."""
    key = history.keys[history.count[0] - 1]
    if point != PASS:
        key = key_after(board, history, point, color)
    play(board, point, color)
    remember(history, board, key)


# --- Area ----------------------------------------------------------------------------------------


@outer
def area(board: Board, owner: Ints8) -> int:
    """Tromp-Taylor score: points of black minus points of white; writes who owns each cell.

    A point belongs to a color if it has its stone, or if only that color reaches it through empty points.
    """
    width, end = board[INFO, WIDTH], board[INFO, WIDTH] * (board[INFO, ROWS] + 1)
    for cell in range(board.shape[1]):
        color = board[COLOR, cell]
        owner[cell] = 0 if color == BORDER else color
    # Sweeps down and up until nothing changes: bit 0, black reaches the point; bit 1, white.
    changed = True
    while changed:
        changed = False
        for step in range(2 * (end - width)):
            point = width + step if step < end - width else 2 * end - width - 1 - step
            if board[COLOR, point] == EMPTY:
                before = owner[point]
                for side in range(4):
                    owner[point] |= owner[point + neighbor(width, side)]
                changed = changed or owner[point] != before
    score = 0
    for point in range(width, end):
        score += (owner[point] == BLACK) - np.int64(owner[point] == WHITE)
    return score
