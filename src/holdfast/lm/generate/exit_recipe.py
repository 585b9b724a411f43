"""Which layers are dropped and which exits are trained at an optimizer step: the recipe of LayerSkip.

Layers are counted from 0 to L - 1, steps t from 0 to T - 1. Exit l is the prediction from the output of
layer l by the model's own norm and head; exit L - 1 is the model itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from holdfast.command import Count, Options, Positive, Share, option
from holdfast.lm.generate.settings import in_range

PAPER = "Elhoushi et al.: LayerSkip, ACL 2024 (arXiv 2404.16710)"


@Options
@dataclass(frozen=True)
class ExitRecipe:
    """Layer dropout and early-exit loss.

    Layer l is skipped by a sample with probability S(t) D(l) dropout, where D(l) = 2^(l / (L - 1)) - 1 and
    S(t) = 1, or 2^(t / (T - 1)) - 1 with a ramp. The loss is the mean of the cross entropies of the exits,
    weighted by C(t, l) e(l), where C is 1 for the exits that the curriculum selects:

        e(l) = exit_scale sum_{i <= l} i for l < L - 1,   e(L - 1) = L - 1 + exit_scale sum_{i <= L - 2} i

    With the weights of torchtune, e(l) is the sum of i + 1 over the selected exits i <= l, times exit_scale
    except for the last. The curriculum "rotational" trains every `every`-th exit, shifted by one per step;
    "gradual" starts with the last exit and adds the others downwards, all of them at half of the run; "all"
    trains all. The last exit is always trained.

    Raises:
        InputError: ``out-of-range``.
    """

    dropout: Share = 0.1
    """Probability with which a sample skips the last layer."""
    ramp: bool = False
    """Raise the dropout from 0 during the run (training from scratch)."""
    exit_scale: Annotated[float, option(metavar="SCALE", at_least=0)] = 0.2
    """Weight of early exits relative to the last layer."""
    weights: Literal["layerskip", "torchtune"] = "layerskip"
    """Weights of the exits, of the paper or of torchtune."""
    curriculum: Literal["rotational", "gradual", "all"] = "rotational"
    """Train every N-th exit in turn, exits from the last one downwards, or all."""
    every: Positive = 4
    """Distance of the exits that the rotational curriculum trains in one step."""
    seed: Count = 0
    """Random seed."""

    def __post_init__(self) -> None:
        for name, valid, expected in (
            ("dropout", 0 <= self.dropout < 1, "0 or more, below 1"),
            ("exit_scale", 0 <= self.exit_scale < math.inf, "0 or more"),
            ("every", self.every >= 1, "1 or more"),
            ("seed", self.seed >= 0, "0 or more"),
        ):
            in_range(name, getattr(self, name), valid, expected)

    def drop_rates(self, step: int, steps: int, layers: int) -> np.ndarray:
        """Probability that a sample skips each layer at a step: [L]."""
        ramp = 2 ** (step / max(1, steps - 1)) - 1 if self.ramp else 1.0
        return self.dropout * ramp * (2 ** (np.arange(layers) / (layers - 1)) - 1)

    def selected(self, step: int, steps: int, layers: int) -> np.ndarray:
        """The exits that the curriculum trains at a step: bool [L]."""
        exits = np.arange(layers)
        first = np.arange(layers)
        if self.curriculum == "rotational":
            first = np.where(exits % self.every == step % self.every, exits, layers - 1)
        elif self.curriculum == "gradual":
            first = np.full(layers, layers - 1 - 2 * layers * step // max(1, steps))
        return exits >= first

    def exit_weights(self, step: int, steps: int, layers: int) -> np.ndarray:
        """Weight of each exit in the loss at a step, 0 for those not selected: [L], sums to 1."""
        on = self.selected(step, steps, layers)
        exits = np.arange(layers)
        if self.weights == "torchtune":
            e = np.cumsum((exits + 1) * on) * np.where(exits < layers - 1, self.exit_scale, 1.0)
        else:
            e = self.exit_scale * np.cumsum(exits).astype(float)
            e[-1] = layers - 1 + (e[-2] if layers > 1 else 0.0)
        e = np.where(on, e, 0.0)
        return np.divide(e, e.sum())

    def active_rows(
        self, step: int, steps: int, pass_: int, layer: int, layers: int, rows: int, rank: int
    ) -> np.ndarray:
        """The samples of a batch that run a layer: ascending indices below `rows`.

        Every layer of every process draws from its own stream, which step and forward pass (of accumulated
        gradients) determine: a resumed run needs no stored state.
        """
        rate = self.drop_rates(step, steps, layers)[layer]
        draws = np.random.default_rng([self.seed, rank, layer, step, pass_]).random(rows)
        return np.flatnonzero(draws >= rate)
