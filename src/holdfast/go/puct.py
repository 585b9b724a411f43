"""PUCT with an evaluator of positions, such as a network: batches, virtual loss, symmetries, tree reuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from holdfast.go import _puct
from holdfast.go._puct import COLUMNS, PLANES, PRIOR, Batch
from holdfast.go._search import FIRST, VISITS, WINS
from holdfast.go.rules import Game
from holdfast.go.search import DEPTH, Choice, TreeOfGame, children, choice_of, make_position

Floats = NDArray[np.float32]
Evaluator = Callable[[Floats], tuple[Floats, Floats]]
"""Planes [batch, 18, rows, cols] -> policy [batch, rows * cols + 1], not negative, the pass last; and the
probability [batch] that the side to move wins."""


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
    virtual_loss: float = 1.0
    """Losses that a simulation in flight counts for."""
    symmetries: bool = True
    """Whether each batch is shown in a random orientation."""
    noise: float = 0.0
    """Share of Dirichlet noise in the priors of the root, for self-play."""
    seed: int = 1
    nodes: int = 200_000
    """Room of the tree; a full tree grows no deeper."""
    _tree: TreeOfGame = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tree = TreeOfGame(COLUMNS, self.nodes)
        self._random = np.random.default_rng(self.seed)

    @property
    def tree(self) -> TreeOfGame:
        """The tree of the last search."""
        return self._tree

    def choose(self, game: Game, visits: int) -> Choice:
        """Add simulations to the tree of a position.

        Args:
            game: not changed but for the room of its history.
            visits: number of simulations.

        Raises:
            ValueError: if the evaluator gives numbers that are not finite, or of another shape.
        """
        tree, position = self._tree.follow(game), make_position(game)
        points = game.rows * game.cols
        batch = Batch(
            planes=np.empty((self.batch, PLANES, game.rows, game.cols), np.float32),
            legal=np.empty((self.batch, points + 1), np.bool_),
            values=np.zeros(self.batch, np.float32),
            paths=np.empty((self.batch, DEPTH), np.int64),
        )
        left, fresh = visits, True
        while left > 0:
            # The first simulation of a new tree finds the root's moves, alone.
            size = min(self.batch, left) if tree.links[0, FIRST] else 1
            if fresh and tree.links[0, FIRST]:
                fresh = False
                self._add_noise(children(tree, 0))
            _puct.select(tree, position, batch, size, self.c, self.virtual_loss)
            policy = self._evaluated(batch, size)
            _puct.expand(tree, batch, policy, size, game.cols, self.virtual_loss)
            left -= size
        # Equal visits: the better value.
        values = tree.values
        order = values[:, VISITS] + values[:, WINS] / (values[:, VISITS] + 1.0) / 2.0
        return choice_of(tree, order.astype(np.float32))

    def _evaluated(self, batch: Batch, size: int) -> Floats:
        """The policy [size, points + 1]; writes the values of games that are not over."""
        rows, cols = batch.planes.shape[2:]
        choices = (8 if rows == cols else 4) if self.symmetries else 1
        symmetry = int(self._random.integers(choices))
        shown = np.ascontiguousarray(oriented(batch.planes[:size], symmetry))
        policy, values = self.evaluate(shown)
        policy, values = np.asarray(policy, np.float32), np.asarray(values, np.float32)
        if policy.shape != (size, rows * cols + 1) or values.shape != (size,):
            raise ValueError(f"evaluator: shapes {policy.shape} and {values.shape}")
        if not (np.isfinite(policy).all() and np.isfinite(values).all() and (policy >= 0).all()):
            raise ValueError("evaluator: values that are not finite, or a negative policy")
        running = batch.legal[:size, -1]
        batch.values[:size][running] = np.clip(values[running], 0.0, 1.0)
        board = policy[:, :-1].reshape(-1, *shown.shape[2:])
        back = restored(board, symmetry).reshape(size, -1)
        return np.concatenate([back, policy[:, -1:]], axis=1)

    def _add_noise(self, below: NDArray[np.int64]) -> None:
        """Mix the priors of the root's moves with noise of concentration 10 / moves."""
        if self.noise:
            values = self._tree.tree.values
            drawn = self._random.dirichlet(np.full(len(below), 10.0 / len(below)))
            values[below, PRIOR] = (1 - self.noise) * values[below, PRIOR] + self.noise * drawn
