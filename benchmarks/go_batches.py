"""What batches cost at equal simulations: a search with eight leaves in flight against one with one.

    python benchmarks/go_batches.py [--turn N]

Both players are the network of examples/go on 7x7 with as many simulations a move; one collects eight
leaves per batch, with a virtual loss of 1 each. Games are kept in `benchmarks/results/go_batches.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from holdfast.go import Game, PuctSearch, elo_difference
from holdfast.go.elo import interval_text
from holdfast.go.matches import Player, SearchPlayer, _play
from measuring import limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "go_batches.json"
NET = str(HERE.parent / "examples" / "go" / "net-7x7.safetensors")
VISITS, BATCH, GAMES, ALLOWED, LEAST_RATE = 64, 8, 400, 50.0, 4.0


class Batched(SearchPlayer):
    """A network whose search has some leaves in flight."""

    def __init__(self, batch: int, seed: int) -> None:
        super().__init__(VISITS, seed, NET)
        self.batch = batch

    def start(self, game: Game) -> None:
        """As in a match, with its own size of batches."""
        super().start(game)
        assert isinstance(self.search, PuctSearch)
        self.search.batch = self.batch


def simulations_per_s(batch: int) -> float:
    """Simulations per second of CPU time on the empty board."""
    player = Batched(batch, 1)
    player.start(Game(7))
    player.search.choose(Game(7), 100)
    begin = time.thread_time()
    for _ in range(5):
        player.start(Game(7))
        player.search.choose(Game(7), 400)
    return 2000 / (time.thread_time() - begin)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, and write all games."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turn", type=int, default=GAMES, help="most games of this call")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    host = machine()
    games: list[dict[str, str]] = []
    if RESULT.exists():
        games = json.loads(RESULT.read_text(encoding="utf-8"))["games"]
    rates = {batch: simulations_per_s(batch) for batch in (1, BATCH)}
    until = min(GAMES, len(games) + options.turn)
    for number in range(len(games), until):
        seed = 4 * number << 20
        players: list[Player] = [Batched(BATCH, seed), Batched(1, seed + (2 << 20))]
        one = _play(players, Game(7, rules="chinese", komi=7.5), first=number % 2)
        moves = " ".join(str(cell) for _, cell in one.moves)
        games.append({"black": one.black, "winner": one.winner, "moves": moves})
        if len(games) % 20 == 0:
            write(games, rates, host)
            print(len(games), flush=True)
    write(games, rates, host)


def write(games: list[dict[str, str]], rates: dict[int, float], host: object) -> None:
    """The result so far; identical games count once."""
    different = list({(game["black"], game["moves"]): game for game in games}.values())
    wins, losses = (sum(game["winner"] == side for game in different) for side in "ab")
    elo, (low, high) = elo_difference(wins, losses, len(different) - wins - losses)
    lost = None if elo is None else -elo
    what = f"Elo lost by batches of {BATCH} at equal simulations"
    rate = limited(
        "simulations per CPU second, beside those of single ones",
        rates[BATCH] / rates[1],
        "x",
        LEAST_RATE,
    )
    limits = [limited(what, lost or 0.0, "Elo", ALLOWED), rate | {"least": True}]
    repeated = len(games) - len(different)
    note = (
        f"The search with batches of {BATCH} won {wins} and lost {losses} of {len(different)} different "
        f"games ({repeated} repeated), {VISITS} simulations a move with eight playouts each, virtual loss "
        f"1, both colors, komi 7.5: Elo {interval_text((low, high))} (95 %). Simulations per second of "
        f"CPU time: {rates[BATCH]:,.0f} with batches of {BATCH}, {rates[1]:,.0f} with 1."
    )
    result = {
        "title": "Go: batches",
        "script": "benchmarks/go_batches.py",
        "input": "Games of the network of examples/go with itself on 7x7",
        "comparisons": [],
        "limits": limits,
        "figures": {},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "numba", "numpy", "torch")},
        "notes": [note],
        "games": games,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
