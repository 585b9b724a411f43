"""What batches cost at equal simulations: a search with eight leaves in flight against one with one.

    python benchmarks/go_batches.py [--turn N]

Both players are the network of examples/go on 7x7 with as many simulations a move; one collects eight
leaves per batch, with the virtual loss of `PuctSearch` and with that of ELF OpenGo (1). Games are kept in
`benchmarks/results/go_batches.json`.
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
LOSSES = {"default": PuctSearch.virtual_loss, "as in ELF OpenGo": 1.0}


class Batched(SearchPlayer):
    """A network whose search has some leaves in flight."""

    def __init__(self, batch: int, seed: int, loss: float = PuctSearch.virtual_loss) -> None:
        super().__init__(VISITS, seed, NET)
        self.batch, self.loss = batch, loss

    def start(self, game: Game) -> None:
        """As in a match, with its own size of batches."""
        super().start(game)
        assert isinstance(self.search, PuctSearch)
        self.search.batch, self.search.virtual_loss = self.batch, self.loss


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
    games: dict[str, list[dict[str, str]]] = {name: [] for name in LOSSES}
    if RESULT.exists():
        games = json.loads(RESULT.read_text(encoding="utf-8"))["games"]
    rates = {batch: simulations_per_s(batch) for batch in (1, BATCH)}
    left = options.turn
    for name, loss in LOSSES.items():
        of_loss = games[name]
        for number in range(len(of_loss), min(GAMES, len(of_loss) + left)):
            left -= 1
            seed = 4 * number << 20
            players: list[Player] = [Batched(BATCH, seed, loss), Batched(1, seed + (2 << 20))]
            one = _play(players, Game(7, rules="chinese", komi=7.5), first=number % 2)
            moves = " ".join(str(cell) for _, cell in one.moves)
            of_loss.append({"black": one.black, "winner": one.winner, "moves": moves})
            if len(of_loss) % 20 == 0:
                write(games, rates, host)
                print(name, len(of_loss), flush=True)
    write(games, rates, host)


def write(
    games: dict[str, list[dict[str, str]]], rates: dict[int, float], host: dict[str, object]
) -> None:
    """The result so far; identical games count once."""
    limits, notes = [], []
    for name, of_loss in games.items():
        different = {(game["black"], game["moves"]): game["winner"] for game in of_loss}
        winners = list(different.values())
        wins, losses = winners.count("a"), winners.count("b")
        elo, interval = elo_difference(wins, losses, len(winners) - wins - losses)
        what = (
            f"Elo lost by batches of {BATCH} at equal simulations, "
            f"virtual loss {LOSSES[name]:g} ({name})"
        )
        if elo is not None:  # without games, or where one side won all of them, nothing bounds it
            limits.append(limited(what, -elo, "Elo", ALLOWED))
        notes.append(
            f"Virtual loss {LOSSES[name]:g}: the search with batches of {BATCH} won {wins} and lost "
            f"{losses} of {len(winners)} different games ({len(of_loss) - len(winners)} repeated), "
            f"{VISITS} simulations a move with eight playouts each, both colors, komi 7.5: Elo "
            f"{interval_text(interval)} (95 %)."
        )
    what = "simulations per CPU second, beside those of single ones"
    limits.append(limited(what, rates[BATCH] / rates[1], "x", LEAST_RATE) | {"least": True})
    notes.append(
        f"Simulations per second of CPU time: {rates[BATCH]:,.0f} with batches of {BATCH}, "
        f"{rates[1]:,.0f} with 1."
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
        "notes": notes,
        "games": games,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
