"""Game records in SGF, read by sgfmill: the main line, with handicap and setup stones."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from holdfast.errors import InputError
from holdfast.files import read_whole
from holdfast.go._kernels import INFO, TURN
from holdfast.go.rules import COLORS, LETTERS, MOST_ROWS, Game, IllegalMove, Rules

LARGEST = 10_000_000
"""Bytes of a record."""
LENIENT = Rules("simple", suicide=True)
"""Records of any rules are read; only occupied points and simple ko are errors."""

_FOX_KOMI = {375.0: 7.5, 650.0: 6.5}
"""Of records of the Fox server, in hundredths: of stones by Chinese rules, else of points."""


def read_sgf(path: str | Path, ply: int | None = None) -> Game:
    """The game of a record after some moves of its main line.

    Args:
        path: SGF file (FF 3 or 4) of one game on a square board.
        ply: number of moves; None: all. Setup and handicap stones do not count.

    Returns:
        A game whose moves begin with the setup stones.

    Raises:
        InputError: unreadable, not SGF, another game than Go, more komi than points, an illegal move, or
            fewer moves than `ply`.
    """
    with warnings.catch_warnings():  # of escapes in its comments, where it is compiled first
        warnings.simplefilter("ignore")
        from sgfmill import sgf, sgf_moves

    data = read_whole(path, "game record")
    if len(data) > LARGEST:
        raise InputError("game record is too large", code="out-of-range", path=path)
    try:
        record = sgf.Sgf_game.from_bytes(_in_utf8(data))
        root = record.get_root()
        setup, plays = sgf_moves.get_setup_and_moves(record)
        size, komi = record.get_size(), record.get_komi()
        kind = root.get_raw("GM") if root.has_property("GM") else b"1"
        first = root.get("PL") if root.has_property("PL") else None
    except (ValueError, LookupError, RecursionError) as error:
        raise InputError(
            "invalid game record",
            code="invalid-syntax",
            path=path,
            found=str(error) or type(error).__name__,
            expected="SGF of a game of Go on a square board; setup stones in the first node only",
        ) from None
    if not 2 <= size <= MOST_ROWS:
        raise InputError(
            "invalid board size",
            code="out-of-range",
            path=path,
            found=str(size),
            expected="2 to 19",
        )
    komi = _FOX_KOMI.get(komi, komi)
    if not abs(komi) <= size * size:  # NaN, too
        raise InputError(
            "invalid komi",
            code="out-of-range",
            path=path,
            place="KM",
            found=f"{komi:g}",
            expected=f"at most the {size * size} points of the board",
        )
    if kind.strip() != b"1":
        expected = "GM[1], Go"
        found = f"GM[{kind.decode(errors='replace')}]"
        raise InputError(
            "not a game of Go", code="unsupported", path=path, found=found, expected=expected
        )
    game = Game(size, rules=LENIENT, komi=komi)
    for color, (row, col) in setup.list_occupied_points():
        game.play(f"{LETTERS[col]}{row + 1}", COLORS[color])
    if plays or first:
        game.board[INFO, TURN] = COLORS[first or plays[0][0]]
    if ply is not None and not 0 <= ply <= len(plays):
        raise InputError(
            "no such move",
            code="out-of-range",
            path=path,
            found=str(ply),
            expected=f"0 to {len(plays)}",
        )
    for number, (color, point) in enumerate(plays[:ply], 1):
        vertex = "pass" if point is None else f"{LETTERS[point[1]]}{point[0] + 1}"
        try:
            game.play(vertex, COLORS[color])
        except IllegalMove as error:
            raise InputError(
                f"illegal move {vertex}",
                code=error.code,
                path=path,
                place=f"move {number}",
                found=error.code,
            ) from None
    return game


def _in_utf8(data: bytes) -> bytes:
    """A record whose characters hold no SGF: bytes of Big5 or Shift_JIS may be brackets or backslashes."""
    stated = re.search(rb"CA\[\s{0,9}([\w.:-]{1,40})\s{0,9}\]", data)
    if stated is None:
        return data
    utf8 = data[: stated.start(1)] + b"UTF-8" + data[stated.end(1) :]
    try:
        return utf8.decode(stated[1].decode(), "replace").encode()
    except LookupError:  # of no known encoding
        return data
