"""The Go Text Protocol, version 2: an engine for controllers such as Sabaki, GoGui and twogtp.

Source: Farneback, Specification of the Go Text Protocol, version 2, draft 2 (2002).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np
from scipy.ndimage import binary_dilation, label

from holdfast import __version__
from holdfast.errors import InputError
from holdfast.go._kernels import BLACK, WHITE
from holdfast.go.analysis import Analysis, Judge
from holdfast.go.clock import Clock
from holdfast.go.controller import Lines
from holdfast.go.puct import make_search
from holdfast.go.records import read_sgf
from holdfast.go.referee import settle
from holdfast.go.rules import COLORS, LETTERS, MOST_ROWS, Game, result_text
from holdfast.go.search import Choice

DEFAULT_VISITS = 5000
"""Simulations per move where neither visits nor time are limited."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LEAST_MOVES_LEFT = 12
LONGEST_LINE = 100_000
_ANALYSIS = {"interval": "100", "minmoves": "0", "maxmoves": "1000", "ownership": "false"}
"""Settings of an analysis; every move that was searched is shown, so that `minmoves` changes nothing."""


class Refusal(Exception):
    """A command that fails; the message is that of the protocol."""


@dataclass
class Engine:
    """A GTP engine: a game, a search and a clock; `answer` takes a line and gives the response."""

    game: Game
    visits: int | None = None
    """Simulations per move; None: what the time allows."""
    seconds: float | None = None
    """Seconds per move."""
    seed: int = 1
    net: str | Path | None = None
    """File of a network; None: playouts."""
    clock: Clock = field(default_factory=Clock)
    running: bool = True
    """Until `quit`."""
    analysis: Analysis | None = None
    """What the last command started, and the next line ends."""

    def __post_init__(self) -> None:
        self.search, self.judge = make_search(self.net, self.seed), Judge(self.net, self.seed)
        self._commands: dict[str, Callable[[list[str]], str]] = {
            name[3:]: getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        for name, judge in (("lz-analyze", None), ("kata-analyze", self.judge)):
            self._commands[name] = partial(self._analyze, judge)

    def answer(self, line: str) -> str | None:
        """The response to a line; None: the line has no command.

        The empty line that ends it is behind the lines of an `analysis`, if one began.
        """
        self.analysis = None
        line = _CONTROL.sub("", line.replace("\t", " ")).partition("#")[0]
        words = line[:LONGEST_LINE].split()
        if not words:
            return None
        number = words.pop(0) if words[0].isascii() and words[0].isdecimal() else ""
        try:
            name, *rest = words or [""]
            status, text = "=", self._commands.get(name, _unknown)(rest)
        except Refusal as refusal:
            status, text = "?", str(refusal)
        except InputError as error:
            status, text = "?", error.problem
        end = "\n" if self.analysis else "\n\n"
        return f"{status}{number} {text}".rstrip() + end

    # --- Administration --------------------------------------------------------------------------

    def do_protocol_version(self, _: list[str]) -> str:
        """The version of the protocol."""
        return "2"

    def do_name(self, _: list[str]) -> str:
        """The name of the engine."""
        return "holdfast"

    def do_version(self, _: list[str]) -> str:
        """The version of holdfast."""
        return __version__

    def do_known_command(self, words: list[str]) -> str:
        """Whether there is a command."""
        return "true" if words and words[0] in self._commands else "false"

    def do_list_commands(self, _: list[str]) -> str:
        """All commands."""
        return "\n".join(sorted(self._commands))

    def do_quit(self, _: list[str]) -> str:
        """End."""
        self.running = False
        return ""

    # --- Setting up ------------------------------------------------------------------------------

    def _new_game(self, rows: int, cols: int) -> str:
        self.game = Game(rows, cols, self.game.rules, self.game.komi)
        self.clock.restart()
        return ""

    def do_boardsize(self, words: list[str]) -> str:
        """A square board, empty."""
        return self.do_rectangular_boardsize(words[:1] * 2)

    def do_rectangular_boardsize(self, words: list[str]) -> str:
        """A board of columns and rows, empty; an extension that KataGo has, too."""
        cols, rows = _whole(words, 0), _whole(words, 1)
        if not (2 <= rows <= MOST_ROWS and 2 <= cols <= MOST_ROWS):
            raise Refusal("unacceptable size")
        return self._new_game(rows, cols)

    def do_clear_board(self, _: list[str]) -> str:
        """The board, empty."""
        return self._new_game(self.game.rows, self.game.cols)

    def do_komi(self, words: list[str]) -> str:
        """Points for white."""
        self.game.komi = _real(words, 0)
        return ""

    def do_fixed_handicap(self, words: list[str]) -> str:
        """Black stones on the points of the protocol."""
        count = _whole(words, 0)
        points = _handicap_points(self.game, count)
        if len(points) != count or count < 2:
            raise Refusal("invalid number of stones")
        return self._handicap(points)

    def do_place_free_handicap(self, words: list[str]) -> str:
        """Black stones where the engine likes them, fewer if it has no place."""
        if (count := _whole(words, 0)) < 2:
            raise Refusal("invalid number of stones")
        return self._handicap(_handicap_points(self.game, min(count, 9)))

    def do_set_free_handicap(self, words: list[str]) -> str:
        """Black stones on given points."""
        different = {word.upper() for word in words}
        if len(words) < 2 or len(different) < len(words) or "PASS" in different:
            raise Refusal("bad vertex list")
        self._handicap(words)
        return ""

    def _handicap(self, vertices: list[str]) -> str:
        if self.game.moves:
            raise Refusal("board not empty")
        for cell in [self.game.cell(vertex) for vertex in vertices]:
            self.game.play(cell, BLACK)
        return " ".join(vertices)

    def do_loadsgf(self, words: list[str]) -> str:
        """The position of a game record, before a move if its number follows."""
        if not words:
            raise Refusal("syntax error")
        before = max(_whole(words, 1) - 1, 0) if len(words) > 1 else None
        try:
            game = read_sgf(words[0], before)
        except InputError:
            raise Refusal("cannot load file") from None
        game.set_rules(self.game.rules)
        self.game = game
        self.clock.restart()
        return ""

    # --- Playing ---------------------------------------------------------------------------------

    def do_play(self, words: list[str]) -> str:
        """A move of either side."""
        color = _color(words)
        if len(words) < 2:
            raise Refusal("syntax error")
        self.game.play(words[1], color)
        return ""

    def do_genmove(self, words: list[str]) -> str:
        """Choose a move and play it."""
        begin, color = time.monotonic(), _color(words)
        cell = self.choose(color).cell
        self.game.play(cell, color)
        self.clock.spend(color, time.monotonic() - begin)
        return self.game.vertex(cell)

    def do_reg_genmove(self, words: list[str]) -> str:
        """Choose a move without playing it."""
        return self.game.vertex(self.choose(_color(words)).cell)

    def choose(self, color: int) -> Choice:
        """What the search finds for a side, within visits and time."""
        game = self._seen_by(color)
        expected = max(_LEAST_MOVES_LEFT, (game.rows * game.cols - len(game.moves)) // 3)
        limits = [self.seconds, self.clock.allowance(color, expected)]
        seconds = min((limit for limit in limits if limit is not None), default=None)
        visits = self.visits
        if visits is None and seconds is None:
            visits = DEFAULT_VISITS
        return self.search.choose(game, visits, seconds)

    def _seen_by(self, color: int) -> Game:
        """The game with a side to move: if it moves twice, the other one passed, for the search."""
        if color == self.game.turn:
            return self.game
        game = self.game.copy()
        game.play("pass")
        return game

    def _analyze(self, judge: Judge | None, words: list[str]) -> str:
        """Search until the next line: [color] [interval in centiseconds] and pairs of setting and value."""
        color = self.game.turn
        if words and words[0].lower() in COLORS:
            color = _color([words.pop(0)])
        if words and words[0].isdecimal():
            words.insert(0, "interval")
        settings = _ANALYSIS | dict(zip(words[::2], words[1::2], strict=False))
        if unknown := [name for name in settings if name not in _ANALYSIS]:
            raise Refusal(f"unsupported: {unknown[0]}")
        interval, _, most = (_whole([settings[name]], 0) for name in list(_ANALYSIS)[:3])
        if min(interval, most) < 1 or len(words) % 2:
            raise Refusal("syntax error")
        owners = settings["ownership"] == "true"
        self.analysis = Analysis(
            self.search, self._seen_by(color), judge, interval / 100, most, owners
        )
        return ""

    def do_undo(self, _: list[str]) -> str:
        """Take the last move back."""
        if not self.game.moves:
            raise Refusal("cannot undo")
        self.game.undo()
        return ""

    def do_time_settings(self, words: list[str]) -> str:
        """Main time, and periods with a number of moves."""
        main, period, stones = (_whole(words, place) for place in range(3))
        if min(main, period, stones) < 0:
            raise Refusal("syntax error")
        self.clock.set(main, period, stones)
        return ""

    def do_time_left(self, words: list[str]) -> str:
        """The controller's clock."""
        color, seconds, stones = _color(words), _real(words, 1), _whole(words, 2)
        self.clock.left[color] = (seconds, max(0, stones))
        self.clock.limited = True
        return ""

    # --- The end ---------------------------------------------------------------------------------

    def do_final_score(self, _: list[str]) -> str:
        """The score once dead stones are captured."""
        return result_text(settle(self.game).score())

    def do_final_status_list(self, words: list[str]) -> str:
        """Stones that are dead, alive or in seki, once both sides have played on."""
        if not words or words[0] not in ("dead", "alive", "seki"):
            raise Refusal("syntax error")
        owners, colors = settle(self.game).owners(), self.game.colors
        status = np.where(owners == colors, "alive", "dead")
        for color in (BLACK, WHITE):
            # What nobody fills, once both have played on, is the liberty that keeps a seki.
            groups, _ = label(owners == color)
            shared = groups[binary_dilation(owners == BLACK | WHITE)]
            status[(owners == colors) & np.isin(groups, shared[shared > 0])] = "seki"
        rows, cols = ((colors > 0) & (status == words[0])).nonzero()
        return "\n".join(
            f"{LETTERS[col]}{self.game.rows - row}" for row, col in zip(rows, cols, strict=True)
        )

    def do_showboard(self, _: list[str]) -> str:
        """The board as text."""
        return f"\n{self.game}"


def _unknown(_: list[str]) -> str:
    raise Refusal("unknown command")


def _color(words: list[str]) -> int:
    if not words or words[0].lower() not in COLORS:
        raise Refusal("syntax error")
    return COLORS[words[0].lower()]


def _whole(words: list[str], place: int) -> int:
    value = _real(words, place)
    if value != int(value):
        raise Refusal("syntax error")
    return int(value)


def _real(words: list[str], place: int) -> float:
    try:
        value = float(words[place])
    except (IndexError, ValueError):
        raise Refusal("syntax error") from None
    if not abs(value) < 1e9:  # NaN, too
        raise Refusal("syntax error")
    return value


def _handicap_points(game: Game, count: int) -> list[str]:
    """The fixed handicap of a number of stones, as far as the board has it (GTP 2, section 4.1.1)."""
    if min(game.rows, game.cols) < 7:
        return []
    line = 3 if min(game.rows, game.cols) < 13 else 4
    cols = LETTERS[line - 1], LETTERS[game.cols // 2], LETTERS[game.cols - line]
    rows = line, game.rows // 2 + 1, game.rows + 1 - line
    # Lower left, upper right, upper left, lower right; left, right, lower and upper side.
    order = ("00", "22", "02", "20", "01", "21", "10", "12")
    if not (game.rows % 2 and game.cols % 2 and min(game.rows, game.cols) > 7):
        order = order[:4]
    elif count in (5, 7, 9):
        order = (*order[: count - 1], "11")
    return [f"{cols[int(col)]}{rows[int(row)]}" for col, row in order[:count]]


def serve(engine: Engine, lines: Lines, target: TextIO) -> None:
    """Answer lines until `quit` or their end."""
    engine.search.choose(engine.game, visits=1)  # kernels are compiled before a clock runs
    engine.judge.owners(engine.game)
    settle(Game(2, 2), visits=1)
    while engine.running and (line := lines.next()) is not None:
        if response := engine.answer(line):
            target.write(response)
            target.flush()
        if engine.analysis is not None:
            for info in engine.analysis.run(lines.ready):
                target.write(info + "\n")
                target.flush()
            target.write("\n")
            target.flush()


@contextlib.contextmanager
def protocol_stream() -> Iterator[TextIO]:
    """Standard output for GTP alone; what anything else prints goes to standard error.

    A line that is not GTP ends a controller.
    """
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(own, "w", encoding="utf-8", newline="\n", closefd=False) as stream:
            yield stream
    finally:
        os.dup2(own, 1)
        os.close(own)
