"""Games of Go: moves, ko and superko, undo, Tromp-Taylor area.

game = go.Game(9, rules="tromp-taylor", komi=7.5)
game.play("E5")
game.play("pass")
game.score()
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InputError
from holdfast.go import _kernels as kernels
from holdfast.go._kernels import BLACK, EMPTY, INFO, PASS, WHITE, Ints, Ints8

MOST_ROWS = 19
LETTERS = "ABCDEFGHJKLMNOPQRST"  # without I
COLORS = {"b": BLACK, "black": BLACK, "w": WHITE, "white": WHITE}
_SEED = 1902_04522


@dataclass(frozen=True)
class Rules:
    """What a position allows; the score is the area, always."""

    ko: Literal["simple", "positional", "situational"]
    """Simple ko; or no position twice (positional), or not twice with the same side to move."""
    suicide: bool
    """Whether a move may leave its own chain without liberties, which is then removed."""


RULES: Mapping[str, Rules] = {
    "tromp-taylor": Rules("positional", suicide=True),
    "chinese": Rules("positional", suicide=False),
    "aga": Rules("situational", suicide=False),
    "new-zealand": Rules("situational", suicide=True),
    "simple-ko": Rules("simple", suicide=False),
}
"""Rule sets by name."""


class IllegalMove(InputError):
    """A move that the rules forbid; `code` is ``occupied``, ``suicide``, ``ko`` or ``superko``."""

    def __init__(self, code: str, vertex: str) -> None:
        super().__init__("illegal move", code=code, place=vertex, found=code)


def read_size(text: str) -> tuple[int, int]:
    """Rows and columns of ``9x9``, ``7x5`` or ``9``.

    Raises:
        InputError: if it is not a size from 2x2 to 19x19.
    """
    found = re.fullmatch(r"(\d{1,3})(?:x(\d{1,3}))?", text)
    rows, cols = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not (2 <= rows <= MOST_ROWS and 2 <= cols <= MOST_ROWS):
        raise InputError(
            "invalid board size",
            code="invalid-value",
            place="size",
            found=text,
            expected="rows x columns from 2x2 to 19x19, such as 9x9",
        )
    return rows, cols


def named_rules(name: str) -> Rules:
    """The rules of a name.

    Raises:
        InputError: if there is none of that name.
    """
    if name not in RULES:
        expected = ", ".join(RULES)
        raise InputError(
            "unknown rules", code="unknown-name", place="rules", found=name, expected=expected
        )
    return RULES[name]


@dataclass
class Game:
    """A game: its moves, its position, and the earlier positions that superko forbids."""

    rows: int = 19
    """Number of rows, 1 to 19."""
    cols: int = 0
    """Number of columns; 0: as many as rows."""
    rules: str | Rules = "tromp-taylor"
    """Name in `RULES`, or rules."""
    komi: float = 7.5
    """Points for white."""
    moves: list[tuple[int, int]] = field(default_factory=list, init=False)
    """Color (1 black, 2 white) and cell of each move so far; cell 0 is the pass."""

    def __post_init__(self) -> None:
        self.cols = self.cols or self.rows
        if not (1 <= self.rows <= MOST_ROWS and 1 <= self.cols <= MOST_ROWS):
            read_size(f"{self.rows}x{self.cols}")
        if not abs(self.komi) < np.inf:
            raise InputError(
                "invalid komi", code="out-of-range", place="komi", found=str(self.komi)
            )
        cells = max((self.rows + 2) * (self.cols + 1) + 1, kernels.LEAST_CELLS)
        self.board = np.empty((kernels.PLANES, cells), np.int64)
        self._points = np.empty(cells, np.int64)
        self.history = _history(4 * self.rows * self.cols, cells)
        self.set_rules(self.rules)
        self._start()

    def set_rules(self, rules: str | Rules) -> None:
        """Go on under other rules; positions so far were remembered under those before."""
        self.rules = named_rules(rules) if isinstance(rules, str) else rules
        self.history = self.history._replace(
            superko=self.rules.ko != "simple",
            situational=self.rules.ko == "situational",
            suicide=self.rules.suicide,
        )

    def _start(self) -> None:
        """The empty board, which is the first position."""
        self.moves.clear()
        kernels.clear(self.board, self.rows, self.cols)
        self.history.table[:], self.history.count[0] = 0, 0
        kernels.remember(self.history, self.board, np.uint64(0))

    @property
    def turn(self) -> int:
        """Color to move: 1 black, 2 white."""
        return int(self.board[INFO, kernels.TURN])

    @property
    def over(self) -> bool:
        """Whether the last two moves were passes."""
        return bool(self.board[INFO, kernels.PASSES] >= 2)

    @property
    def colors(self) -> Ints8:
        """[rows, cols] 0 empty, 1 black, 2 white; row 0 is the top, the highest number."""
        return self._grid(self.board[kernels.COLOR]).astype(np.int8)

    def _grid(self, cells: NDArray[np.generic]) -> NDArray[np.generic]:
        return cells[on_board(self.rows, self.cols)].reshape(self.rows, self.cols)

    def cell(self, vertex: str) -> int:
        """The cell of a vertex such as ``D4`` or ``pass``.

        Raises:
            InputError: if it is not a vertex of this board.
        """
        text = vertex.upper()
        if text == "PASS":
            return PASS
        col, number = LETTERS.find(text[:1]), text[1:]
        if not (
            text
            and 0 <= col < self.cols
            and number.isascii()
            and number.isdecimal()
            and 1 <= int(number[:3]) <= self.rows
        ):
            last = f"{LETTERS[self.cols - 1]}{self.rows}"
            expected = f"A1 to {last}, or pass"
            raise InputError(
                "invalid vertex", code="invalid-value", found=vertex, expected=expected
            )
        return (self.rows - int(number) + 1) * (self.cols + 1) + col + 1

    def vertex(self, cell: int) -> str:
        """The name of a cell, such as ``D4``."""
        if cell == PASS:
            return "pass"
        row, col = divmod(cell, self.cols + 1)
        return f"{LETTERS[col - 1]}{self.rows + 1 - row}"

    def legal(self, color: int | None = None) -> list[int]:
        """The cells where a color (default: the side to move) may play, in order; passing is legal, too."""
        found = kernels.allowed(self.board, self.history, self._points, color or self.turn)
        return sorted(self._points[:found].tolist())

    def play(self, move: str | int, color: int | None = None) -> None:
        """Play a move.

        Args:
            move: vertex, such as ``D4`` or ``pass``, or cell.
            color: 1 black, 2 white; by default the side to move.

        Raises:
            IllegalMove: if the rules forbid it.
            InputError: if it is not a vertex of this board.
        """
        cell = self.cell(move) if isinstance(move, str) else move
        color = color or self.turn
        if problem := self._problem(cell, color):
            raise IllegalMove(problem, self.vertex(cell))
        self._put(cell, color)

    def _problem(self, cell: int, color: int) -> str:
        """The code of the rule that forbids a move, or nothing."""
        board = self.board
        if cell == PASS:
            return ""
        if board[kernels.COLOR, cell] != EMPTY:
            return "occupied"
        if not kernels.legal(board, cell, color, self.history.suicide):
            return "ko" if cell == board[INFO, kernels.KO] else "suicide"
        return "superko" if kernels.repeats(board, self.history, cell, color) else ""

    def _put(self, cell: int, color: int) -> None:
        self.reserve(1)
        kernels.advance(self.board, self.history, cell, color)
        self.moves.append((color, cell))

    @contextmanager
    def trial(self, cell: int) -> Iterator[None]:
        """Play a legal move, and take it back when the block ends."""
        before = self.board.copy()
        self._put(cell, self.turn)
        yield
        self.moves.pop()
        kernels.forget(self.history)
        self.board[:] = before

    def reserve(self, more: int) -> None:
        """Make room for positions that follow."""
        old, count = self.history, int(self.history.count[0])
        if count + more <= len(old.keys):
            return
        new = _history(2 * (count + more), old.cells.shape[1])
        new.keys[:count], new.cells[:count] = old.keys[:count], old.cells[:count]
        self.history = old._replace(table=new.table, keys=new.keys, cells=new.cells)
        for number, key in enumerate(old.keys[:count]):
            self.history.table[kernels.find_slot(self.history, key, 0)] = number + 1

    def undo(self) -> None:
        """Take the last move back.

        Raises:
            InputError: if there is none.
        """
        if not self.moves:
            raise InputError("no move to undo", code="no-data")
        moves = self.moves[:-1]
        self._start()
        for color, cell in moves:
            self._put(cell, color)

    def copy(self) -> Game:
        """A game of its own with the same moves."""
        other = Game(self.rows, self.cols, self.rules, self.komi)
        for color, cell in self.moves:
            other._put(cell, color)
        return other

    def owners(self) -> Ints8:
        """[rows, cols] Whose area each point is: 0 nobody's, 1 black's, 2 white's, 3 reached by both."""
        owner = np.empty(self.board.shape[1], np.int8)
        kernels.area(self.board, owner)
        return self._grid(owner).astype(np.int8)

    def score(self) -> float:
        """Tromp-Taylor area: points of black minus points of white, minus komi."""
        owner = self.owners()
        return float(np.sum(owner == BLACK) - np.sum(owner == WHITE) - self.komi)

    def __str__(self) -> str:
        rows = ["".join(f" {'.XO'[color]}" for color in row) for row in self.colors]
        lines = [f"{self.rows - n:2}{row}" for n, row in enumerate(rows)]
        return "\n".join([*lines, "   " + " ".join(LETTERS[: self.cols])])


def on_board(rows: int, cols: int) -> Ints:
    """[points] The cells that are not border, row by row."""
    return (np.arange(1, rows + 1)[:, None] * (cols + 1) + np.arange(1, cols + 1)).ravel()


def _history(positions: int, cells: int) -> kernels.History:
    """Room for a number of positions."""
    slots = 1 << (2 * positions).bit_length()
    return kernels.History(
        table=np.zeros(slots, np.int32),
        keys=np.zeros(positions, np.uint64),
        cells=np.zeros((positions, cells), np.int8),
        count=np.zeros(1, np.int64),
        zobrist=np.random.default_rng(_SEED).integers(1 << 63, size=(2, cells), dtype=np.uint64),
        scratch=np.empty((kernels.PLANES, cells), np.int64),
        superko=True,
        situational=False,
        suicide=True,
    )


def perft(rows: int, cols: int, depth: int, rules: str | Rules = "tromp-taylor") -> int:
    """Number of sequences of `depth` legal moves from the empty board, passes among them.

    Two passes end the game; games that end earlier do not count.
    """
    game = Game(rows, cols, rules)

    def count(depth: int) -> int:
        if depth == 0 or game.over:
            return int(depth == 0)
        moves = [PASS, *game.legal()]
        if depth == 1:
            return len(moves)
        total = 0
        for cell in moves:
            with game.trial(cell):
                total += count(depth - 1)
        return total

    return count(depth)


def result_text(score: float) -> str:
    """A score as SGF and GTP write it: ``B+3.5``, ``W+0.5`` or ``0``."""
    return "0" if score == 0 else f"{'B' if score > 0 else 'W'}+{abs(score):g}"
