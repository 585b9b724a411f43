"""Random games of Go on one core, beside OpenSpiel and pgx.

    python benchmarks/go_playouts.py --peers DIR

DIR has environments ``open_spiel`` and ``pgx`` with the package of that name, which are made where they are
absent; a peer that cannot be installed is left out, which the result says. Writes
`benchmarks/results/go_playouts.json`. Seconds are of CPU time, as other programs run on the machine, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.go import Game
from holdfast.go import _kernels as kernels
from holdfast.go._playouts import count, playout, random_below
from holdfast.go.patterns import pattern_table
from holdfast.kernels import kernel
from measuring import CommandFailed, compared, limited, machine, run

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "go_playouts.json"
GAMES = {9: 20_000, 19: 4_000}
TARGETS = {9: 60_000, 19: 10_000}
PEERS = {"open_spiel": "OpenSpiel", "pgx": "pgx"}


@kernel(nogil=True, error_model="numpy")
def playouts(root: Any, patterns: Any, state: Any, wise: bool, games: int) -> int:
    """Games to their end, which are counted; the moves."""
    board, first = root.copy(), np.zeros(root.shape[1], np.int64)
    moves, total = 0, 0
    for _ in range(games):
        kernels.copy(board, root)
        moves += playout(board, patterns, state, first, wise)
        total += count(board)
    assert abs(total) <= games * root.shape[1]
    return moves


def playout_speed(size: int, games: int, knowledge: bool) -> tuple[float, float]:
    """CPU seconds of a game from the empty board, and its number of moves."""
    game = Game(size)
    state = np.array([88172645463325252], np.uint64)
    begin = time.process_time()
    moves = playouts(game.board, pattern_table(), state, knowledge, games)
    return (time.process_time() - begin) / games, moves / games


@kernel(nogil=True, error_model="numpy")
def superko_games(root: Any, history: Any, state: Any, games: int) -> int:
    """Games of random legal moves under positional superko that fill no eye of one point; the moves."""
    moves = 0
    for _ in range(games):
        board = root.copy()
        start = history.count[0]
        while board[kernels.INFO, kernels.PASSES] < 2 and history.count[0] < history.keys.size:
            color, left = board[kernels.INFO, kernels.TURN], board[kernels.INFO, kernels.N_FREE]
            move = kernels.PASS
            for _ in range(left):
                point = board[kernels.FREE, random_below(state, left)]
                near = board[kernels.NEAR, point]
                if kernels.near_color(near, color) == 4 or not kernels.legal(
                    board, point, color, False
                ):
                    continue
                if not kernels.repeats(board, history, point, color):
                    move = point
                    break
            kernels.advance(board, history, move, color)
            moves += 1
        while history.count[0] > start:
            kernels.forget(history)
    return moves


def superko_speed(games: int) -> float:
    """Moves per CPU second on 9x9, each checked against all positions of its game."""
    game = Game(9)
    game.reserve(400)
    state = np.array([88172645463325252], np.uint64)
    begin = time.process_time()
    moves = superko_games(game.board, game.history, state, games)
    return moves / (time.process_time() - begin)


def peer(peers: Path, name: str, size: int) -> dict[str, float]:
    """Seconds per game and moves per game of a peer, which is installed if it is absent.

    Raises:
        CommandFailed: if it cannot be installed, or does not run.
    """
    venv = peers / name
    if not (venv / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = venv / "bin" / "python"
    run([python, "-m", "pip", "-q", "--disable-pip-version-check", "install", name])
    found = run([python, HERE / "go_playouts_peers.py", name, str(size)], cores=1)
    return dict(json.loads(found.output))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".peers", metavar="DIR")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    host = machine() | {"cores_used": 1}
    comparisons, limits, rows, versions, absent = [], [], [], {}, dict[str, str]()
    for size, games in GAMES.items():
        playout_speed(size, 10, False)
        speeds: dict[str, list[tuple[float, float]]] = {"uniform": [], "with knowledge": []}
        others: dict[str, list[dict[str, float]]] = {name: [] for name in PEERS}
        for _ in range(options.repeats):
            for kind, measured in speeds.items():
                measured.append(playout_speed(size, games, kind != "uniform"))
            for name, found in others.items():
                if name not in absent:
                    try:
                        found.append(peer(options.peers, name, size))
                    except CommandFailed as error:
                        absent[name] = str(error).splitlines()[-1]
        medians = {
            kind: tuple(map(statistics.median, zip(*each, strict=True)))
            for kind, each in speeds.items()
        }
        for kind, (seconds, moves) in medians.items():
            rows.append(_row(f"holdfast, {kind}", size, seconds, moves))
        for name, found in others.items():
            if found:
                seconds, moves = (
                    statistics.median(each[key] for each in found) for key in ("seconds", "moves")
                )
                versions[PEERS[name]] = found[0]["version"]
                rows.append(_row(PEERS[name], size, seconds, moves))
                what = f"1,000 random games, {size}x{size}"
                ours = medians["uniform"][0]
                comparisons.append(
                    compared(what, 1e3 * ours, PEERS[name], 1e3 * seconds, target=5.0)
                )
        what = f"uniform playouts per second, {size}x{size}"
        speed = limited(what, round(1 / medians["uniform"][0]), "1/s", TARGETS[size])
        limits.append(speed | {"least": True})
    superko_speed(10)
    moves = statistics.median(superko_speed(10_000) for _ in range(options.repeats))
    superko = limited("moves per second with superko, 9x9", round(moves), "1/s", 10_000_000)
    limits.append(superko | {"least": True})
    result = {
        "title": "Go: random games",
        "script": "benchmarks/go_playouts.py",
        "input": "Games of random moves from the empty board, 9x9 and 19x19, on one core",
        "comparisons": comparisons,
        "limits": limits,
        "figures": {},
        "tables": [{"caption": "Games and moves per second of CPU time", "rows": rows}],
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "numba", "numpy")} | versions,
        "notes": [
            f"Medians of {options.repeats} runs, taken in turn. Our games draw uniformly from the legal "
            "moves that fill no own eye, under simple ko. The peers draw from all legal moves, the pass "
            "among them, and end a game by two passes or at their limit of moves: OpenSpiel in its own "
            "compiled rollouts, pgx in one compiled loop over the games of a batch without its compile "
            "time, with the fastest batch of 1, 16 and on 9x9 128 games.",
            *(f"{PEERS[name]} is absent: {reason}" for name, reason in absent.items()),
        ],
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _row(player: str, size: int, seconds: float, moves: float) -> dict[str, Any]:
    return {
        "player": player,
        "board": f"{size}x{size}",
        "games/s": 1 / seconds,
        "moves per game": float(moves),
        "moves/s": moves / seconds,
    }


if __name__ == "__main__":
    main()
