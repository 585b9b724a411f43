"""The 3x3 patterns of MoGo's playouts, as a table over the colors of the eight points around a move.

Source: Gelly, Wang, Munos and Teytaud, Modification of UCT with patterns in Monte-Carlo Go (2006),
figures 5 to 8. A pattern holds under the eight symmetries, and with the colors exchanged unless it is
said to be for one side to move.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from holdfast.go._kernels import Flags

# X and O are colors, # is the border, ? is anything, x is anything but X; the move is in the middle.
HANE = (("XOX", "...", "???"), ("XO.", "...", "?.?"), ("XO?", "X..", "?.?"))
HANE_OF_X = ("XOO", "...", "?.?")
CUT = ("XO?", "O.?", "???")
CUT_WITH_SUPPORT = (("XO?", "O.O", "?.?"), ("XO?", "O..", "?O?"))
"""What the cut is not: the opponent connects there."""
CROSS_CUT = ("?X?", "O.O", "xxx")
EDGE = (("X.?", "O.?", "###"), ("?XO", "X.?", "###"), ("?XO", "?.O", "###"))
EDGE_OF_X = ("?XO", "?.X", "###")
_STATES = {
    "X": {1},
    "O": {2},
    ".": {0},
    "#": {3},
    "?": {0, 1, 2, 3},
    "x": {0, 2, 3},
    "o": {0, 1, 3},
}


@cache
def pattern_table() -> Flags:
    """[2, 4**8] Whether black, or white, plays in the middle of a neighborhood in base 4, row by row."""
    either = _any([*HANE, CROSS_CUT, *EDGE]) | _matches(CUT) & ~_any(CUT_WITH_SUPPORT)
    either |= _swapped(either)
    for_one = _any([HANE_OF_X, EDGE_OF_X])
    return np.stack([either | for_one, either | _swapped(for_one)])


def _any(patterns: Iterable[tuple[str, ...]]) -> Flags:
    found: Flags = np.any([_matches(pattern) for pattern in patterns], axis=0)
    return found


def _matches(pattern: tuple[str, ...]) -> Flags:
    """[4**8] Where a pattern matches in any of its eight orientations."""
    found = np.zeros(4**8, bool)
    grid = np.array([list(row) for row in pattern])
    for turned in (grid, grid.T):
        for turns in range(4):
            cells = np.delete(np.rot90(turned, turns).ravel(), 4)
            fits = np.ones((4,) * 8, bool)
            for place, symbol in enumerate(cells):
                # Place 0 is the lowest digit, the last axis.
                state = np.isin(np.arange(4), list(_STATES[symbol]))
                fits &= np.moveaxis(np.broadcast_to(state, (4,) * 8), 7, 7 - place)
            found |= fits.ravel()
    return found


def _swapped(table: Flags) -> Flags:
    """[4**8] The table with black and white exchanged."""
    codes = np.arange(4**8)
    low, high = codes & 0x5555, codes >> 1 & 0x5555
    one_color = low ^ high  # exactly one of the two bits
    return table[codes ^ one_color ^ (one_color << 1)]
