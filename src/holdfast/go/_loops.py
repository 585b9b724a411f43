"""Compiled values of all positions of a small board, where endless play counts for or against a side.

A position is a number in base 3, a digit per point: 1 is a stone of the side to move, 2 one of the
opponent's. A point that simple ko forbids has a 1 as well: a stone there would have no liberty, and neither
would the one that captured, which no position without a ko has.

Values are those of the side to move, [low, high] before and [low, high] after a pass: what it can force
where endless play counts as the loss of all points, and as their gain. They are the fixpoints from below
and from above of v(s) = max over moves of -v'(s'), low and high in turn (Van der Werf, Van den Herik and
Uiterwijk, Solving Go on small boards, 2003, has the same values by search).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.go._kernels import Ints, Ints8, Ints32, inner, outer

LOW, HIGH, LOW_PASSED, HIGH_PASSED = range(4)
ILLEGAL = -9
ASSURED, DOUBTFUL = 1, 2
_ROOM, _SEARCH = 17, 4096
"""Moves of a position, and states of a search, at most."""


class Values(NamedTuple):
    """A board of at most 16 points, which are bits row by row, and the values of its positions.

    A state is four times the number of a position, plus a column, LOW or another. The side whose low values
    are looked at is to move in even columns; in the odd ones, of the opponent's high value, the opponent.
    """

    points: int
    cols: int
    full: int
    """All points."""
    first: int
    """Points of the first column."""
    suicide: int
    """Stones of the least suicide."""
    sums: Ints32
    """[symmetries, 2**points] Numbers of sets of own stones, turned."""
    places: Ints32
    """[3**points] Where the values of a position are, the same for all of its symmetries, or ILLEGAL."""
    numbers: Ints32
    """[positions] One of the symmetric positions of each place."""
    values: Ints8
    """[4 * positions]"""
    clock: Ints32
    """[4 * positions] When each value was last changed, always after those that it follows from."""
    marks: Ints8
    """[4 * positions] Of states: ASSURED, DOUBTFUL, or 0."""
    stack: Ints32
    """[4 * positions] Room for states that wait."""


@inner
def around(points: int, board: Values) -> int:
    """Points and their neighbors."""
    aside = (points << 1 & ~board.first) | (points & ~board.first) >> 1 | points << board.cols
    return points | aside & board.full | points >> board.cols


@inner
def connected(points: int, within: int, board: Values) -> int:
    """Points, and what they reach within a set."""
    more = around(points, board) & within
    while more != points:
        points, more = more, around(more, board) & within
    return points


@inner
def captured(own: int, other: int, touched: int, board: Values) -> int:
    """Own stones in chains on some points that have no liberty."""
    left, dead = own & touched, 0
    while left:
        chain = connected(left & -left, own, board)
        left &= ~chain
        if around(chain, board) & ~(own | other) == 0:
            dead |= chain
    return dead


@inner
def play(own: int, other: int, point: int, board: Values) -> tuple[int, int, int]:
    """Both sides' stones after a move, own ones -1 where it is illegal, and the point that ko forbids."""
    own |= point
    dead = captured(other, own, around(point, board), board)
    other ^= dead
    if dead == 0:
        lost, size = captured(own, other, point, board), 0
        own ^= lost
        while lost:
            lost &= lost - 1
            size += 1
        return (-1 if 0 < size < board.suicide else own), other, 0
    near = around(point, board)
    alone = near & own == point and near & ~(own | other) == dead
    return own, other, dead if alone and dead & (dead - 1) == 0 else 0


@inner
def score(own: int, other: int, board: Values) -> int:
    """Area of the side to move minus the opponent's."""
    empty = board.full ^ (own | other)
    mine, theirs = connected(own, own | empty, board), connected(other, other | empty, board)
    total = 0
    for place in range(board.points):
        total += ((mine & ~theirs) >> place & 1) - ((theirs & ~mine) >> place & 1)
    return total


@inner
def stones(number: int, board: Values) -> tuple[int, int, int]:
    """Own stones, the opponent's, and the point that ko forbids."""
    own, other, left = 0, 0, number
    for place in range(board.points):
        own |= int(left % 3 == 1) << place
        other |= int(left % 3 == 2) << place
        left //= 3
    ko = captured(own, other, own, board)
    return own ^ ko, other, ko


@outer
def enumerate_positions(board: Values) -> int:
    """Number the classes of symmetric positions, and give their count."""
    count = 0
    for number in range(board.places.size):
        if board.places[number] != ILLEGAL:
            continue
        own, other, ko = stones(number, board)
        own |= ko
        taker = captured(other, own, other, board)
        # Each is one stone, side by side, or both are nothing.
        single = ko & (ko - 1) == 0 and taker & (taker - 1) == 0
        if single and (ko == 0) == (taker == 0) and around(ko, board) & taker == taker:
            for turn in range(board.sums.shape[0]):
                board.places[board.sums[turn, own] + 2 * board.sums[turn, other]] = 4 * count
            board.numbers[count] = number
            count += 1
    return count


@inner
def state_of(own: int, other: int, board: Values) -> int:
    """First state of a position itself, four times its number; a ko is among the own stones."""
    return 4 * np.int64(board.sums[0, own] + 2 * board.sums[0, other])


@inner
def place_of(state: int, board: Values) -> int:
    """Where the value of a state is."""
    return board.places[state >> 2] + (state & 3)


@inner
def claim(state: int, board: Values) -> int:
    """What the side whose low values are looked at can force."""
    value = board.values[place_of(state, board)]
    return -value if state & 1 else value


@outer
def sweep(board: Values, time: int) -> int:
    """Raise low values and lower high ones by the moves of each position; number of changes."""
    values, changes = board.values, 0
    found = np.empty(4, np.int64)
    for state in range(0, values.size, 4):
        time += 2
        old = values[state : state + 4]
        if old[LOW] == old[HIGH] and old[LOW_PASSED] == old[HIGH_PASSED]:
            continue
        own, other, ko = stones(board.numbers[state >> 2], board)
        # 1. Moves of stones, which are the same after a pass.
        low, high = -128, -128
        empty = board.full ^ (own | other | ko)
        while empty:
            mine, theirs, next_ko = play(own, other, empty & -empty, board)
            empty &= empty - 1
            if mine >= 0:
                after = state_of(theirs | next_ko, mine, board)
                low = max(low, claim(after + HIGH, board))
                high = max(high, -claim(after + LOW, board))
        # 2. A pass, which ends the game after another one.
        passed, end = state_of(other, own, board), score(own, other, board)
        found[LOW_PASSED], found[HIGH_PASSED] = max(low, end), max(high, end)
        for column in (LOW_PASSED, HIGH_PASSED, LOW, HIGH):
            if column == LOW:
                found[LOW] = max(low, claim(passed + HIGH_PASSED, board))
                found[HIGH] = max(high, -claim(passed + LOW_PASSED, board))
            if found[column] != old[column]:
                old[column] = found[column]
                board.clock[state + column] = time + int(column < LOW_PASSED)
                changes += 1
    return changes


# --- Superko -------------------------------------------------------------------------------------


@inner
def behind(state: int, other: int, board: Values) -> int:
    """1 if play can lead to a state from another: the claim rises, or its clock falls; 0 or -1."""
    rise = claim(state, board) - claim(other, board)
    if rise == 0:
        rise = board.clock[place_of(other, board)] - board.clock[place_of(state, board)]
    return int(rise > 0) - int(rise < 0)


@inner
def follow(state: int, board: Values, found: Ints) -> int:
    """States after every move of the opponent, or after those by which the side keeps its claim soonest.

    Returns:
        Their number; 0: the game ends.
    """
    own, other, ko = stones(state >> 2, board)
    opponent, count = state & 1, 0
    if state & 2 == 0:
        found[0], count = state_of(other, own, board) + LOW_PASSED + 1 - opponent, 1
    elif opponent == 0 and score(own, other, board) >= claim(state, board):
        return 0
    empty = board.full ^ (own | other | ko)
    while empty:
        mine, theirs, next_ko = play(own, other, empty & -empty, board)
        empty &= empty - 1
        if mine >= 0:
            after = state_of(theirs | next_ko, mine, board) + 1 - opponent
            better = 0 if opponent or count == 0 else behind(after, found[0], board)
            # Those of equal clocks are symmetric positions.
            count = count + 1 if better == 0 else 1 if better > 0 else count
            if better >= 0:
                found[count - 1] = after
    return count


@outer
def reaches(start: int, goal: int, board: Values) -> bool:
    """Whether play can lead from a state to another one, or to more states than there is room for."""
    found, seen = np.empty(_ROOM, np.int64), np.full(2 * _SEARCH, -1, np.int64)
    stack, top, left = np.empty(_SEARCH, np.int64), 1, _SEARCH
    stack[0] = start
    while top:
        top -= 1
        count = follow(stack[top], board, found)
        for place in range(count):
            after = found[place]
            slot = after % seen.size
            while seen[slot] not in (-1, after):
                slot = (slot + 1) % seen.size
            if after == goal or left == 1:
                return True
            if seen[slot] != after and behind(goal, after, board) > 0:
                seen[slot] = stack[top] = after
                top, left = top + 1, left - 1
    return False


@outer
def recreates(start: int, own: int, other: int, board: Values) -> bool:
    """Whether the side can come to play, from a state, so that the stones are these again.

    Args:
        start: a state.
        own: stones of the opponent, who then is to move.
        other: stones of the side.
        board: values that change no more.
    """
    for place in range(board.points + 1):
        ko = 1 << place & board.full  # at last none
        if ko & (own | other) == 0 and captured(own | ko, other, ko, board) == ko:
            goal = state_of(own | ko, other, board) + HIGH
            possible = board.places[goal >> 2] >= 0 and behind(goal, start, board) > 0
            if possible and reaches(start, goal, board):
                return True
    return False


@outer
def assured(start: int, board: Values) -> bool:
    """Whether superko forbids none of the moves by which a side keeps its claim.

    They never lead to a state again; to its stones perhaps, with another side to move or another ko.
    """
    found, marks, stack = np.empty(_ROOM, np.int64), board.marks, board.stack
    first = place_of(start, board)
    stack[0], done, top = start, 0, int(marks[first] == 0)
    doubtful = marks[first] == DOUBTFUL
    marks[first] = max(ASSURED, marks[first])
    while done < top and not doubtful:
        state = stack[done]
        own, other, _ = stones(state >> 2, board)
        if state & 1 == 0:
            own, other = other, own
        doubtful = recreates(state, own, other, board)
        count = follow(state, board, found)
        for place in range(count):
            at = place_of(found[place], board)
            doubtful = doubtful or marks[at] == DOUBTFUL
            if marks[at] == 0:
                marks[at] = ASSURED
                stack[top] = found[place]
                top += 1
        done += 1
    if doubtful:
        for place in range(top):
            marks[place_of(stack[place], board)] = 0
        marks[first] = marks[place_of(stack[max(done, 1) - 1], board)] = DOUBTFUL
    return not doubtful
