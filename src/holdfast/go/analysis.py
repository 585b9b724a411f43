"""What a position is worth while a search goes on: moves, win rates, the lead and who owns the points.

The lines are those of Leela Zero's ``lz-analyze`` and KataGo's ``kata-analyze``, which clients draw.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.go import _search
from holdfast.go._kernels import BLACK
from holdfast.go._puct import PLANES, describe
from holdfast.go.puct import PuctSearch
from holdfast.go.rules import Game, on_board
from holdfast.go.search import Choice, PlayoutSearch, make_position, random_state

MOST_VISITS = 8_000_000
"""Simulations of an analysis; the counts of a tree are exact to twice as many."""
_SLICE_S = 0.1
"""Seconds of search between two looks at whether to stop."""
_PLAYOUTS = 200


class Judge:
    """Who will own the points of a position: by a network's head for owners, else by playouts.

    Args:
        net: file of a network.
        seed: of the playouts.

    Raises:
        InputError: if the file is not a network.
    """

    def __init__(self, net: str | Path | None = None, seed: int = 1) -> None:
        self._state, self._net = random_state(seed), None
        if net is not None:
            from holdfast.go.net import load_net

            self._net = load_net(net).eval()

    def owners(self, game: Game) -> NDArray[np.float64]:
        """[rows, cols] From 1, a point of the side to move, to -1, the opponent's."""
        if self._net is None:
            lead = np.zeros(game.board.shape[1])
            _search.own(make_position(game), self._state, _PLAYOUTS, lead)
            by_black = lead[on_board(game.rows, game.cols)].reshape(game.rows, game.cols)
            return by_black if game.turn == BLACK else -by_black
        import torch

        planes = np.empty((1, PLANES, game.rows, game.cols), np.float32)
        describe(planes[0], game.history, game.board)
        with torch.inference_mode():
            logits = self._net(torch.from_numpy(planes))[3][0]
        owners: NDArray[np.float64] = np.tanh(logits.double().numpy() / 2)
        return owners

    def lead(self, game: Game, owners: NDArray[np.float64]) -> float:
        """Points by which the side to move is expected to lead, komi counted."""
        komi = game.komi if game.turn == BLACK else -game.komi
        return float(owners.sum() - komi)


@dataclass
class Analysis:
    """A search that goes on until somebody stops it."""

    search: PuctSearch | PlayoutSearch
    game: Game
    judge: Judge | None
    """None: as Leela Zero writes, without lead and owners."""
    interval_s: float = 1.0
    most: int = 1_000
    """Moves of a line."""
    with_owners: bool = False

    def run(self, stopped: Callable[[float | None], bool]) -> Iterator[str]:
        """A line of every interval.

        Args:
            stopped: whether to stop; waits some seconds for it, with None as long as it takes.
        """
        leads, visits = dict[int, float](), 0
        while not stopped(0.0 if visits < MOST_VISITS else None):
            until = time.monotonic() + self.interval_s
            while True:
                left = max(0.0, until - time.monotonic())
                choice = self.search.choose(self.game, seconds=min(_SLICE_S, left))
                visits = choice.visits
                if time.monotonic() >= until or visits >= MOST_VISITS or stopped(0.0):
                    break
            if choice.candidates:
                yield self._line(choice, leads)

    def _line(self, choice: Choice, leads: dict[int, float]) -> str:
        game, judge = self.game, self.judge
        words = []
        # Order 0 is the move that would be played, which differs from the most visits only in a tie.
        ranked = sorted(choice.candidates, key=lambda row: row.cell != choice.cell)
        for order, row in enumerate(ranked[: self.most]):
            move = game.vertex(row.cell)
            words.append(
                f"info move {move} visits {row.visits} winrate {self._share(row.win_rate)}"
            )
            if judge is not None:
                if row.cell not in leads:
                    with game.trial(row.cell):
                        leads[row.cell] = -judge.lead(game, judge.owners(game))
                lead = f"{leads[row.cell]:.2f}"
                words.append(f"scoreMean {lead} scoreLead {lead}")
            if row.prior is not None:
                words.append(f"prior {self._share(row.prior)}")
            words.append(f"order {order} pv {' '.join(map(game.vertex, row.line))}")
        if judge is not None and self.with_owners:
            words.append("ownership " + " ".join(f"{one:.3f}" for one in judge.owners(game).flat))
        return " ".join(words)

    def _share(self, share: float) -> str:
        """From 0 to 1, or in ten thousandths, as the protocol has it."""
        return f"{share:.6f}" if self.judge else f"{10_000 * share:.0f}"
