"""Games that a network plays with itself, many at once, and what it learns from them.

Playout-cap randomization (Wu 2019, section 3.1): most moves take a quick search, which decides more games;
the others a full one with noise, and only they become training samples.
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.files import write_whole
from holdfast.go._kernels import BLACK, PASS, WHITE
from holdfast.go._puct import PLANES, describe
from holdfast.go.inference import Network, evaluator_of
from holdfast.go.puct import LEAF_PLAYOUTS, Evaluator, Floats, PuctSearch
from holdfast.go.rules import Game, on_board
from holdfast.go.search import PlayoutSearch

Sample = dict[str, Any]
"""Sample of a position by name; a file has one of each, over its positions."""
Running = Generator[Floats, tuple[Floats, Floats], list[Sample]]
NODES = 20_000
"""Room of a tree in self-play; a full tree grows no deeper."""


@dataclass(frozen=True)
class SelfPlay:
    """Settings of self-play."""

    games: int = 128
    """Games of an iteration, over all processes."""
    at_once: int = 32
    """Games of a process that share one batch of the network."""
    visits: int = 100
    """Simulations of a full search."""
    quick_visits: int = 20
    """Simulations of a quick search."""
    playout_visits: int = 400
    """Simulations of a full search of the games that playout search plays; its quick searches have as
    large a share of them as a network's."""
    full_share: float = 0.25
    """Share of full searches."""
    opening_moves: int = 10
    """Moves at the start of a game that are drawn by their visits."""
    noise: float = 0.25
    c: float = 1.1
    batch: int = 4
    """Leaves of a game per batch of the network."""
    leaf_playouts: int = LEAF_PLAYOUTS
    """Playouts from each leaf, whose result is half of its value; 0: the network's value alone."""


@dataclass(frozen=True)
class Part:
    """The games of one process in one iteration."""

    net: Network | None
    """None: playout search plays, to begin with."""
    start: Game
    settings: SelfPlay
    games: int
    seed: int
    path: Path
    """Where the samples are written, atomically; a part whose file exists is done."""


def play_part(part: Part) -> None:
    """Play the games of a part and write their samples, with what they cost."""
    if part.path.exists():
        return
    began, cpu, spent = time.monotonic(), time.thread_time(), [0.0]
    evaluate: Evaluator = _unused
    if part.net is not None:
        evaluate, spent = evaluator_of(part.net)
    # Seeds of games are distinct over parts and iterations.
    games = [_play(part, number) for number in range(part.games)]
    samples = [one for game in _together(games, part.settings.at_once, evaluate) for one in game]
    columns: Sample = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
    inference = sum(spent)
    search = time.thread_time() - cpu
    if part.net is not None and part.net.address is None:
        search -= inference
    waited = max(0.0, time.monotonic() - began - search - inference)
    file = io.BytesIO()
    np.savez_compressed(file, costs=np.array([search, inference, waited]), **columns)
    write_whole(part.path, file.getbuffer())


def _together(
    games: Iterable[Running], at_once: int, evaluate: Evaluator
) -> Iterable[list[Sample]]:
    """Play games side by side: their positions are evaluated in one batch."""
    waiting, running, done = deque(games), dict[Running, Floats](), list[list[Sample]]()

    def advance(game: Running, sent: tuple[Floats, Floats] | None) -> None:
        try:
            running[game] = game.send(sent)  # type: ignore[arg-type]
        except StopIteration as end:
            done.append(end.value)

    while waiting or running:
        while waiting and len(running) < at_once:
            advance(waiting.popleft(), None)
        step = list(running.items())
        running.clear()
        if step:
            policy, values = evaluate(np.concatenate([planes for _, planes in step]))
        begin = 0
        for game, planes in step:
            end = begin + len(planes)
            advance(game, (policy[begin:end], values[begin:end]))
            begin = end
    return done


def _play(part: Part, number: int) -> Running:
    """One game; gives the samples of its full searches."""
    settings, seed = part.settings, part.seed + number
    random = np.random.default_rng(seed)
    game = part.start.copy()
    puct = PuctSearch(
        _unused,
        settings.batch,
        settings.c,
        playouts=settings.leaf_playouts,
        seed=seed,
        nodes=NODES,
    )
    playouts = PlayoutSearch(seed, nodes=NODES)
    samples = list[Sample]()
    while not game.over and len(game.moves) < 3 * game.rows * game.cols:
        full = random.random() < settings.full_share
        limit = settings.visits if full else settings.quick_visits
        if part.net is None:
            choice = playouts.choose(game, limit * settings.playout_visits // settings.visits)
        else:
            puct.noise = settings.noise if full else 0.0
            choice = yield from puct.steps(game, limit)
        visits = np.zeros(game.board.shape[1])
        for row in choice.candidates:
            visits[row.cell] = row.visits
        visits /= visits.sum()
        if full:
            samples.append(_sample(game, visits))
        drawn = len(game.moves) < settings.opening_moves
        game.play(int(random.choice(len(visits), p=visits)) if drawn else choice.cell)
    # The end of the game is what its positions were worth, each for its side to move.
    owners, score = game.owners(), game.score()
    lead = (owners == BLACK).astype(np.int8) - (owners == WHITE)
    for sample in samples:
        sample["owners"] = lead * sample["side"]
        sample["score"] = np.float32(sample["side"] * score)
    return samples


def _unused(_: Floats) -> tuple[Floats, Floats]:
    raise AssertionError("the games of a part are evaluated together")


def _sample(game: Game, visits: NDArray[np.float64]) -> Sample:
    """What is known before the end of the game, with the share of the visits that each cell has."""
    planes = np.empty((PLANES, game.rows, game.cols), np.float32)
    describe(planes, game.history, game.board)
    return {
        "planes": planes.astype(bool),
        "policy": visits[[*on_board(game.rows, game.cols), PASS]].astype(np.float32),
        "side": np.int8(1 if game.turn == BLACK else -1),
    }
