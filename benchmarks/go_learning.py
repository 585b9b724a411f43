"""Whether self-play learns: checkpoints of a network that began with random weights, against each other.

    python benchmarks/go_learning.py FOLDER

Trains `examples/go/train-5x5.toml`; FOLDER keeps the run, so that a call that was interrupted resumes.
Search is by the network alone. Every game begins with two to four random moves, and both players have each
beginning with both colors: players that are sure of their moves would repeat one game.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tomllib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from holdfast.go import Game, Training, elo_difference, settle, train
from holdfast.go.elo import elo_text
from holdfast.go.matches import SearchPlayer
from holdfast.go.net import Net, NetSize, save_net
from holdfast.go.puct import PuctSearch
from measuring import machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "go_learning.json"
CONFIG = HERE.parent / "examples" / "go" / "train-5x5.toml"
VISITS, GAMES = 50, 100
PAIRS = ((4, 0), (12, 4), (20, 12), (20, 4))
"""Iterations of the checkpoints that play."""


class NetworkAlone(SearchPlayer):
    """A checkpoint, without playouts."""

    def start(self, game: Game) -> None:
        """As in a match."""
        super().start(game)
        assert isinstance(self.search, PuctSearch)
        self.search.playouts = 0


def checkpoint(folder: Path, iterations: int) -> tuple[Path, float]:
    """The network after some iterations, and the core-seconds until then."""
    config = tomllib.loads(CONFIG.read_text())
    path = folder / f"at-{iterations}.safetensors"
    if not iterations:
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(1)
        save_net(Net(NetSize(**config["net"])), path)
        return path, 0.0
    run = train(config | {"iterations": iterations}, folder)
    assert isinstance(run, Training)
    if not path.exists():
        assert len(run.iterations) == iterations, "the run is past this checkpoint"
        shutil.copy(run.net, path)
    return path, sum(row.core_s for row in run.iterations[:iterations])


def play(players: Sequence[NetworkAlone], number: int) -> tuple[object, int]:
    """What is different in a game, and who won: 1 the first player, 0 nobody, -1 the second."""
    draw, game = random.Random(number // 2), Game(5, rules="chinese", komi=7.5)
    for _ in range(2 + draw.randrange(3)):
        game.play(draw.choice(game.legal()))
    colors = {1 + number % 2: players[0], 2 - number % 2: players[1]}
    for player in players:
        player.start(game)
    while not game.over and len(game.moves) < 100:
        game.play(colors[game.turn].move(game))
    score = settle(game).score() * (1 if colors[1] is players[0] else -1)
    return (number % 2, tuple(game.moves)), (score > 0) - (score < 0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, play, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    host = machine()
    steps = {each: checkpoint(options.folder, each) for each in sorted({*sum(PAIRS, ())})}
    rows = []
    for later, earlier in PAIRS:
        seeds = {later: 1 << 21, earlier: 5 << 21}
        players = [NetworkAlone(VISITS, seed, str(steps[one][0])) for one, seed in seeds.items()]
        games = dict(play(players, number) for number in range(GAMES))
        won = [list(games.values()).count(one) for one in (1, -1, 0)]
        rows.append(
            {
                "after iterations": f"{later} against {earlier}",
                "core-seconds": f"{steps[later][1]:,.0f} against {steps[earlier][1]:,.0f}",
                "won, lost, drawn": ", ".join(map(str, won)),
                "Elo": elo_text(*elo_difference(*won)),
            }
        )
        print(rows[-1], flush=True)
    result = {
        "title": "Go: learning by self-play",
        "script": "benchmarks/go_learning.py",
        "input": "`examples/go/train-5x5.toml`: 5x5 from random weights, the network alone",
        "comparisons": [],
        "limits": [],
        "figures": {},
        "tables": [{"caption": f"Checkpoints, {VISITS} simulations a move", "rows": rows}],
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "numba", "numpy", "torch")},
        "notes": [
            "Games begin with two to four random moves, each beginning with both colors; identical games "
            "count once. One training; another seed is not in the intervals."
        ],
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
