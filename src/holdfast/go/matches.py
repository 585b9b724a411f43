"""Matches between two players: both colors, a referee, identical games counted once, Elo."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.errors import InputError
from holdfast.go.controller import EngineFailure, GtpProcess
from holdfast.go.elo import Interval, elo_difference, elo_text
from holdfast.go.puct import make_search
from holdfast.go.referee import settle
from holdfast.go.rules import Game, Rules, result_text
from holdfast.numbers import counted, duration

_MOVES_PER_POINT = 4
"""A game with more moves than this is ended and scored."""


class SearchPlayer:
    """Search with a number of simulations per move: of a network, or by playouts."""

    def __init__(self, visits: int, seed: int, net: str | None = None) -> None:
        self.visits, self.seed, self.net, self.core_s = visits, seed, net, 0.0
        self.search = make_search(net, seed, nodes=2)  # a file that is no network fails here

    def start(self, game: Game) -> None:
        """Another game has other random numbers."""
        self.seed += 1
        self.search = make_search(self.net, self.seed, nodes=max(20_000, 40 * self.visits))

    def move(self, game: Game) -> str:
        """The move that was visited most."""
        begin = time.thread_time()
        choice = self.search.choose(game, self.visits)
        self.core_s += time.thread_time() - begin
        return game.vertex(choice.cell)

    def close(self) -> None:
        """Nothing to end."""


class GtpPlayer:
    """An engine in a process of its own."""

    def __init__(self, line: str) -> None:
        self.line, self.core_s = line, 0.0
        self.engine: GtpProcess | None = GtpProcess(line)

    def start(self, game: Game) -> None:
        """Set up the board; an engine that failed is started anew."""
        self.engine = self.engine or GtpProcess(self.line)
        size = f"boardsize {game.rows}"
        if game.rows != game.cols:
            size = f"rectangular_boardsize {game.cols} {game.rows}"
        for command in (size, "clear_board", f"komi {game.komi:g}"):
            self.engine.send(command)

    def move(self, game: Game) -> str:
        """Send the opponent's last move, and ask for one."""
        assert self.engine is not None
        for color, cell in game.moves[-1:]:
            self.engine.send(f"play {'.bw'[color]} {game.vertex(cell)}")
        return self.engine.send(f"genmove {'.bw'[game.turn]}").lower()

    def close(self) -> None:
        """End the process."""
        if self.engine is not None:
            self.engine.close()
            self.core_s += self.engine.cpu_s
            self.engine = None


Player = SearchPlayer | GtpPlayer
"""Who plays games; `core_s` is the CPU seconds so far."""


def make_player(text: str, seed: int) -> Player:
    """A player of ``visits:N``, of a network ``FILE.safetensors:N``, or of a GTP command line."""
    if not (found := re.fullmatch(r"(?:visits|(.*\.safetensors))(?::(.*))?", text)):
        return GtpPlayer(text)
    if not re.fullmatch(r"[1-9]\d{0,8}", found[2] or "", re.ASCII):
        raise InputError(
            "invalid player",
            code="invalid-value",
            place="player",
            found=text,
            expected="visits:N or FILE.safetensors:N with a number of simulations per move",
        )
    return SearchPlayer(int(found[2]), seed, found[1])


@dataclass(frozen=True)
class Played:
    """One game of a match."""

    black: str
    """Who had black: a or b."""
    winner: str
    """a, b, or nothing: a draw."""
    result: str
    """Such as B+3.5, W+Resign, B+Forfeit."""
    moves: tuple[tuple[int, int], ...]
    """Color and cell of each move."""
    reason: str = ""
    """Why the game was forfeited."""


@dataclass(frozen=True)
class Match(Answer):
    """Games between two players, from the view of the first."""

    a: str
    b: str
    games: Sequence[Played]
    """Different games; of identical ones the first."""
    repeated: int
    """Games that were identical to one before, and do not count."""
    core_s: tuple[float, float]
    """CPU seconds of each player."""

    title = "Match"

    @property
    def wins(self) -> int:
        """Games that the first player won."""
        return sum(game.winner == "a" for game in self.games)

    @property
    def losses(self) -> int:
        """Games that the second player won."""
        return sum(game.winner == "b" for game in self.games)

    @property
    def draws(self) -> int:
        """Games that nobody won."""
        return len(self.games) - self.wins - self.losses

    @property
    def elo(self) -> tuple[float | None, Interval]:
        """Elo of the first player above the second, and its 95 % interval."""
        return elo_difference(self.wins, self.losses, self.draws)

    def to_dict(self) -> dict[str, object]:
        """The JSON of ``holdfast go match``."""
        elo, interval = self.elo
        return {
            "wins": self.wins,
            "losses": self.losses,
            "draws": self.draws,
            "elo": elo,
            "ci95": list(interval),
            "core_seconds": sum(self.core_s),
            "core_seconds_by_player": list(self.core_s),
            "games": len(self.games),
            "repeated_games": self.repeated,
            "results": Counter(f"{g.black} black, {g.result}" for g in self.games),
            "forfeits": [game.reason for game in self.games if game.reason],
        }

    def values(self) -> Sequence[Value]:
        """The strength and what it cost."""
        elo, interval = self.elo
        return [
            Value("elo", elo, "Elo", interval, "higher", "Bradley-Terry"),
            Value("core_seconds", sum(self.core_s), "s", better="lower"),
        ]

    def sections(self) -> Sequence[Section]:
        """Who is stronger, and by how much."""
        elo, interval = self.elo
        sentence = (
            f"{self.a} won {self.wins} of {counted(len(self.games), 'game')} against {self.b}"
        )
        sentence += f" with {counted(self.draws, 'draw')}" if self.draws else ""
        sentence += f": Elo difference {elo_text(elo, interval)}."
        rows = []
        for color in ("a", "b"):
            games = [game for game in self.games if game.black == color]
            won = sum(game.winner == "a" for game in games)
            rows.append(
                {"black": self.a if color == "a" else self.b, "games": len(games), "won": won}
            )
        columns = {
            "black": ColumnFormat("Black"),
            "games": ColumnFormat("Games"),
            "won": ColumnFormat("Won by the first player"),
        }
        cost = f"{duration(self.core_s[0])} of CPU time against {duration(self.core_s[1])}"
        how = How(
            "P(win) = 1 / (1 + 10^(-d / 400)), d the difference in Elo; a draw is half a win",
            notes=f"Games left early are played on until dead stones are captured. {cost}.",
        )
        asked = "Which player is stronger, and by how much?"
        return [
            Section(
                "strength", asked, sentence, [], [Table(pa.Table.from_pylist(rows), columns)], how
            )
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """What does not count as evidence."""
        found = []
        if self.repeated:
            text = f"{counted(self.repeated, 'game')} repeated an earlier one and did not count."
            found.append(Unknown(text, "Players that vary their moves show more.", doubt=True))
        forfeits = [game.reason for game in self.games if game.reason]
        if forfeits:
            text = f"{counted(len(forfeits), 'game')} ended by forfeit: {forfeits[0]}."
            found.append(Unknown(text, "Look at the engine that failed.", doubt=True))
        return found


def match(
    a: str,
    b: str,
    games: int = 100,
    *,
    size: tuple[int, int] = (9, 9),
    komi: float = 7.5,
    rules: str | Rules = "chinese",
    seed: int = 1,
) -> Match:
    """Play games between two players, who have black in turn.

    Args:
        a: ``visits:N``, playout search with N simulations per move; ``FILE.safetensors:N``, search with a
            network; or the command line of a GTP engine.
        b: the same, of the second player.
        games: how many, identical ones among them.
        size: rows and columns.
        komi: points for white.
        rules: name in `RULES`, or rules; an illegal move loses the game.
        seed: of the searches.

    Raises:
        InputError: unknown rules, or a player that is none.
    """
    players: list[Player] = []
    played: dict[object, Played] = {}
    try:
        for text, own in ((a, 2 * seed), (b, 2 * seed + 1)):
            players.append(make_player(text, own << 20))
        with progress.track("playing", games, "games") as bar:
            for number in range(games):
                game = Game(*size, rules, komi)
                one = _play(players, game, first=number % 2)
                played.setdefault((one.black, one.moves), one)
                bar.advance(1)
    finally:
        for player in players:
            player.close()
    core = (players[0].core_s, players[1].core_s)
    return Match(a, b, list(played.values()), games - len(played), core)


def _play(players: list[Player], game: Game, first: int) -> Played:
    """One game; `first` is who has black."""
    most = _MOVES_PER_POINT * game.rows * game.cols
    reason = ""
    active = first  # whoever is asked for something, and loses by failing
    try:
        for active in (first, 1 - first):
            players[active].start(game)
        active = first
        while not game.over and len(game.moves) < most:
            vertex = players[active].move(game)
            if vertex == "resign":
                reason = vertex
                break
            game.play(vertex)
            active = 1 - active
    except (EngineFailure, InputError) as failure:
        reason = str(failure)
        players[active].close()
    if reason:
        loser: int | None = active
        ending = "Resign" if reason == "resign" else "Forfeit"
        result = f"{'WB'[active != first]}+{ending}"
    else:
        score = settle(game).score()
        loser = None if score == 0 else first if score < 0 else 1 - first
        result = result_text(score)
    winner = "" if loser is None else "ab"[1 - loser]
    forfeit = reason if reason != "resign" else ""
    return Played("ab"[first], winner, result, tuple(game.moves), forfeit)
