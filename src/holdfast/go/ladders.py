"""Ladders of a position: which chains are captured by ataris alone, proved by search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown
from holdfast.errors import InputError
from holdfast.go import _kernels as kernels
from holdfast.go._ladder import liberties, read
from holdfast.go.records import read_sgf
from holdfast.go.rules import Game
from holdfast.numbers import counted

_COLORS = ("", "black", "white")
_VERDICTS = ("escapes", "captured", "unknown")
DEPTH = 400
POSITIONS = 200_000


@dataclass(frozen=True)
class Ladder:
    """A chain with one or two liberties."""

    vertex: str
    """One of its stones."""
    color: str
    stones: int
    liberties: int
    attacked: str
    """What happens if the opponent moves first: escapes, captured or unknown."""
    defended: str
    """What happens if its own side answers the atari; a chain with two liberties is in none."""
    line: tuple[str, ...]
    """Moves of the capture, if the opponent moves first."""


@dataclass(frozen=True)
class Ladders(Answer):
    """The ladders of a position."""

    source: str
    move: int
    """Number of moves played."""
    to_move: str
    ladders: Sequence[Ladder]

    title = "Ladders"

    def sections(self) -> Sequence[Section]:
        """Which chains are caught."""
        caught = [row for row in self.ladders if row.attacked == "captured"]
        sentence = (
            f"{len(caught)} of {counted(len(self.ladders), 'chain')} with one or two liberties"
        )
        sentence += " are captured in a ladder if the opponent moves first."
        if not self.ladders:
            sentence = "No chain has one or two liberties."
        rows = [
            {
                "stone": row.vertex,
                "color": row.color,
                "stones": row.stones,
                "attacked": row.attacked,
                "defended": row.defended,
                "line": " ".join(row.line[:8]) + (" ..." if len(row.line) > 8 else ""),
            }
            for row in self.ladders
        ]
        columns = {
            "stone": ColumnFormat("Stone"),
            "color": ColumnFormat("Color"),
            "stones": ColumnFormat("Stones"),
            "attacked": ColumnFormat("If attacked"),
            "defended": ColumnFormat("If defended"),
            "line": ColumnFormat("Moves"),
        }
        how = How(
            "every attack gives atari; the defender extends or captures; three liberties escape",
            notes=f"All lines are read, up to {POSITIONS:,} positions and {DEPTH} moves.",
        )
        tables = [Table(pa.Table.from_pylist(rows), columns)] if rows else []
        return [
            Section("ladders", "Which chains are caught in a ladder?", sentence, [], tables, how)
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """Chains whose search was ended."""
        open_ = [row.vertex for row in self.ladders if "unknown" in (row.attacked, row.defended)]
        if not open_:
            return []
        text = f"No verdict on {', '.join(open_)}: more than {POSITIONS:,} positions."
        return [Unknown(text, "Read the position by hand.", doubt=True)]


def ladder(path: str | Path, ply: int | None = None) -> Ladders:
    """Read the ladders of a position of a game record.

    Args:
        path: SGF file.
        ply: number of moves of its main line; None: all.

    Raises:
        InputError: an invalid record.
    """
    game = read_sgf(path, ply)
    found = [ladder_of(game, cell) for cell in _weak_chains(game)]
    return Ladders(str(path), len(game.moves), _COLORS[game.turn], found)


def _weak_chains(game: Game) -> list[int]:
    """One stone, the first, of each chain with one or two liberties."""
    board, room, seen, found = game.board, np.zeros(3, np.int64), set[int](), []
    for cell in np.flatnonzero(np.isin(board[kernels.COLOR], (kernels.BLACK, kernels.WHITE))):
        head = int(board[kernels.CHAIN, cell])
        if head not in seen and liberties(board, head, room) < 3:
            found.append(int(cell))
        seen.add(head)
    return found


def ladder_of(game: Game, cell: int, positions: int = POSITIONS) -> Ladder:
    """Read the ladder of the chain on a cell.

    Raises:
        InputError: if there is no chain, or it has three liberties or more.
    """
    board, room = game.board, np.zeros(3, np.int64)
    color = int(board[kernels.COLOR, cell])
    head = int(board[kernels.CHAIN, cell])
    count = liberties(board, head, room) if color in (kernels.BLACK, kernels.WHITE) else 0
    if count not in (1, 2):
        raise InputError(
            "not a chain with one or two liberties", code="no-match", place=game.vertex(cell)
        )
    boards = np.empty((DEPTH, *board.shape), np.int64)
    moves = np.zeros((DEPTH, 16), np.int64)
    line = np.full(DEPTH + 1, -1, np.int64)
    verdicts = [0, 0]
    for defends in (1, 0):
        boards[0] = board
        # Whoever moves first may take a ko that only the other side may not retake.
        boards[0, kernels.INFO, kernels.TURN] = color if defends else 3 - color
        verdicts[defends] = int(
            read(boards, moves, line, np.array([positions]), cell, not defends, 0)
        )
    caught = line[: int(np.argmax(line < 0))] if verdicts[0] == 1 else line[:0]
    return Ladder(
        game.vertex(cell),
        _COLORS[color],
        int(board[kernels.SIZE, head]),
        count,
        _VERDICTS[verdicts[0]],
        _VERDICTS[verdicts[1]],
        tuple(game.vertex(int(point)) for point in caught),
    )
