"""PUCT with an evaluator of positions, such as a network: batches, virtual loss, symmetries, tree reuse."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from holdfast.go import _puct
from holdfast.go._kernels import PASS, Floats, Ints
from holdfast.go._puct import COLUMNS, PLANES, PRIOR, Batch
from holdfast.go._search import FIRST, VISITS, WINS
from holdfast.go.rules import Game, on_board
from holdfast.go.search import (
    DEPTH,
    NODES,
    Choice,
    PlayoutSearch,
    TreeOfGame,
    children,
    choice_of,
    make_position,
    random_state,
)

Evaluator = Callable[[Floats], tuple[Floats, Floats]]
"""Planes [batch, 18, rows, cols] -> policy [batch, rows * cols + 1], not negative, the pass last; and the
probability [batch] that the side to move wins."""

LEAF_PLAYOUTS = 8
"""Playouts from each leaf where a network plays; they cost about as much as the network's batch."""


def oriented(planes: Floats, symmetry: int) -> Floats:
    """[..., rows, cols] One of the eight symmetries of the square; the first four keep rectangles."""
    if symmetry & 1:
        planes = planes[..., ::-1, :]
    if symmetry & 2:
        planes = planes[..., :, ::-1]
    return np.swapaxes(planes, -1, -2) if symmetry & 4 else planes


def restored(planes: Floats, symmetry: int) -> Floats:
    """What `oriented` was given."""
    if symmetry & 4:
        planes = np.swapaxes(planes, -1, -2)
    return oriented(planes, symmetry & 3)


@dataclass
class PuctSearch:
    """Tree search with priors and values of an evaluator."""

    evaluate: Evaluator
    """Called with a whole batch; no position is evaluated twice but in one batch."""
    batch: int = 8
    """Leaves per call."""
    c: float = 1.5
    """Weight of the priors."""
    virtual_loss: float = 0.0
    """Losses that a simulation in flight counts for in the value of a move; it always counts as a visit.
    ELF OpenGo has 1, which spreads short searches over more moves than single leaves visit."""
    symmetries: bool = True
    """Whether each batch is shown in a random orientation."""
    noise: float = 0.0
    """Share of Dirichlet noise in the priors of the root, for self-play."""
    playouts: int = 0
    """Playouts from each leaf; the share that wins is half of the leaf's value."""
    seed: int = 1
    nodes: int = NODES
    """Room of the tree; a full tree grows no deeper."""
    tree: TreeOfGame = field(init=False, repr=False)
    """The tree of the last search."""

    def __post_init__(self) -> None:
        self.tree = TreeOfGame(COLUMNS, self.nodes)
        self._random = np.random.default_rng(self.seed)
        self._state = random_state(self.seed)

    def choose(self, game: Game, visits: int | None = None, seconds: float | None = None) -> Choice:
        """Add simulations to the tree of a position.

        Args:
            game: not changed but for the room of its history.
            visits: number of simulations; None: no limit.
            seconds: wall time; None: no limit.

        Raises:
            ValueError: if the evaluator gives numbers that are not finite, or of another shape.
        """
        steps = self.steps(game, visits, seconds)
        planes = next(steps)
        while True:
            try:
                planes = steps.send(self.evaluate(planes))
            except StopIteration as end:
                choice: Choice = end.value
                return choice

    def steps(
        self, game: Game, visits: int | None = None, seconds: float | None = None
    ) -> Generator[Floats, tuple[Floats, Floats], Choice]:
        """The search of `choose`, which yields planes and is sent what an evaluator says of them.

        Many games share one batch of an evaluator so.
        """
        begin, longest = time.monotonic(), 0.0
        tree, position = self.tree.follow(game), make_position(game)
        batch = Batch(
            planes=np.empty((self.batch, PLANES, game.rows, game.cols), np.float32),
            legal=np.empty((self.batch, game.board.shape[1]), np.bool_),
            values=np.zeros(self.batch, np.float32),
            paths=np.empty((self.batch, DEPTH), np.int64),
        )
        left, noisy = visits if visits is not None else 1 << 62, not self.noise
        while left > 0:
            # The first simulation of a new tree finds the root's moves, alone.
            size = min(self.batch, left) if tree.links[0, FIRST] else 1
            if not noisy and tree.links[0, FIRST]:
                noisy = True
                self._add_noise(children(tree, 0))
            last = time.monotonic()
            _puct.select(
                tree, position, batch, size, self.c, self.virtual_loss, self.playouts, self._state
            )
            choices = (8 if game.rows == game.cols else 4) if self.symmetries else 1
            symmetry = int(self._random.integers(choices))
            shown = np.ascontiguousarray(oriented(batch.planes[:size], symmetry))
            policy = self._checked(batch, shown, symmetry, (yield shown))
            _puct.expand(tree, batch, policy, size)
            left -= size
            longest = max(longest, time.monotonic() - last)
            if seconds is not None and time.monotonic() + longest - begin >= seconds:
                break
        # Equal visits: the better value.
        values = tree.values
        order = values[:, VISITS] + values[:, WINS] / (values[:, VISITS] + 1.0) / 2.0
        return choice_of(tree, order.astype(np.float32), PRIOR)

    def _add_noise(self, below: Ints) -> None:
        """Mix the priors of the root's moves with noise of concentration 10 / moves."""
        values = self.tree.tree.values
        drawn = self._random.dirichlet(np.full(len(below), 10.0 / len(below)))
        values[below, PRIOR] = (1 - self.noise) * values[below, PRIOR] + self.noise * drawn

    def _checked(
        self, batch: Batch, shown: Floats, symmetry: int, found: tuple[Floats, Floats]
    ) -> Floats:
        """The policy [batch, cells]; writes the values of games that are not over."""
        size, _, rows, cols = shown.shape
        policy, values = (np.asarray(part, np.float32) for part in found)
        if policy.shape != (size, rows * cols + 1) or values.shape != (size,):
            raise ValueError(f"evaluator: shapes {policy.shape} and {values.shape}")
        if not (np.isfinite(policy).all() and np.isfinite(values).all() and (policy >= 0).all()):
            raise ValueError("evaluator: values that are not finite, or a negative policy")
        running = batch.legal[:size, PASS]
        weight = 0.5 if self.playouts else 1.0
        own = batch.values[:size]
        own[running] += weight * (np.clip(values[running], 0.0, 1.0) - own[running])
        back = restored(policy[:, :-1].reshape(-1, rows, cols), symmetry)
        of_cells = np.zeros(batch.legal.shape, np.float32)
        of_cells[:size, on_board(rows, cols)] = back.reshape(size, -1)
        of_cells[:size, PASS] = policy[:, -1]
        return of_cells


def make_search(
    net: str | Path | None, seed: int, nodes: int = NODES
) -> PlayoutSearch | PuctSearch:
    """The search of a network's file, or by playouts without one.

    Raises:
        InputError: if the file is not a network.
    """
    if net is None:
        return PlayoutSearch(seed, nodes)
    from holdfast.go.net import evaluator, load_net

    return PuctSearch(evaluator(load_net(net)), playouts=LEAF_PLAYOUTS, seed=seed, nodes=nodes)
