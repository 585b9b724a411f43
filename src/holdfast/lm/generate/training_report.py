"""How well each exit of a model predicts held-out text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.lm.generate.architectures import architecture
from holdfast.lm.generate.exit_recipe import PAPER
from holdfast.numbers import counted, number, percent
from holdfast.report.figures import lines

_BATCH = 8


@torch.no_grad()
def evaluate_exits(model: Any, pieces: np.ndarray) -> list[dict[str, Any]]:
    """Perplexity of every exit, and how often it agrees with the last one.

    Args:
        model: causal model of transformers, of a supported family.
        pieces: windows of tokens, [N, T].

    Returns:
        One row per exit: layers (1 to L), perplexity, agreement (share of the positions whose most likely
        token is that of the last layer).
    """
    arch = architecture(model)
    count, training = len(arch.layers), model.training
    model.eval()
    nll, agreed = torch.zeros(count, dtype=torch.float64), torch.zeros(count)
    device = next(model.parameters()).device
    for first in range(0, len(pieces), _BATCH):
        ids = torch.from_numpy(pieces[first : first + _BATCH]).long().to(device)
        out = model(input_ids=ids, use_cache=False, output_hidden_states=True)
        choice = out.logits[:, :-1].argmax(-1)  # [B, T - 1]
        for place, state in enumerate(out.hidden_states[1:]):
            # The last state is behind the norm already.
            logits = out.logits if place == count - 1 else arch.head(arch.norm(state))
            logits = logits[:, :-1]
            losses = nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="sum"
            )
            nll[place] += float(losses)
            agreed[place] += int((logits.argmax(-1) == choice).sum())
    model.train(training)
    positions = pieces.shape[0] * (pieces.shape[1] - 1)
    return [
        {
            "layers": place + 1,
            "perplexity": math.exp(min(700.0, float(nll[place]) / positions)),
            "agreement": float(agreed[place]) / positions,
        }
        for place in range(count)
    ]


@dataclass(frozen=True)
class TrainedExits(Answer):
    """A model after training, and how well each of its exits predicts held-out text.

    Args:
        model: folder of the model and its tokenizer.
        steps: optimizer steps.
        tokens: tokens trained on, with repetitions.
        layers_run: share of layer computations that dropout left.
        exits: one row per exit: layers, perplexity, agreement (share of positions whose most likely
            token is that of the last layer: the acceptance rate of greedy drafts).
        losses: one row per checkpoint: step, loss (weighted over the exits), last_loss.
        recipe: recipe of the run.
        files: number of text files; skipped: those that are not UTF-8 text.
    """

    model: Path
    steps: int
    tokens: int
    layers_run: float
    exits: list[dict[str, Any]]
    losses: list[dict[str, Any]]
    recipe: dict[str, Any]
    files: int
    skipped: int

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Training for early exits"

    def written(self) -> Mapping[str, Path]:
        """The model."""
        return {"model": self.model}

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The text."""
        return [("text", f"{counted(self.files, 'file')} read, {self.skipped} skipped (not UTF-8)")]

    def values(self) -> Sequence[Value]:
        """Perplexity of the last layer, compute."""
        last = self.exits[-1]["perplexity"]
        return [
            Value("perplexity", last, better="lower", how="held-out text, per token"),
            Value("layers_run", self.layers_run, better="lower", how="1 - mean dropout rate"),
        ]

    def sections(self) -> Sequence[Section]:
        """The exits, from the first to the last layer."""
        last, half = self.exits[-1], self.exits[len(self.exits) // 2 - 1]
        sentence = (
            f"Perplexity on held-out text is {number(last['perplexity'], 2)}; after {half['layers']} of "
            f"{last['layers']} layers it is {number(half['perplexity'], 2)}, and the most likely token "
            f"agrees with the whole model's at {percent(half['agreement'], 1)} of the positions."
        )
        columns = {
            "layers": ColumnFormat("Layers"),
            "perplexity": ColumnFormat("Perplexity per token", digits=2),
            "agreement": ColumnFormat("Agreement with the last layer", "%", digits=1),
        }
        how = How(
            [
                "layer l is skipped with probability S(t) p (2^(l / (L - 1)) - 1)",
                "loss = sum over the selected exits of e(l) CE(l) / sum of e(l)",
            ],
            parameters={name: str(value) for name, value in self.recipe.items()},
            source=PAPER,
        )
        tables = [
            Table(pa.Table.from_pylist(self.exits), columns, "One row per exit, on held-out text.")
        ]
        figures = [
            lines(self.exits, "layers", y, "Layers before the exit", title, points=True)
            for y, title in (("perplexity", "Perplexity per token"), ("agreement", "Agreement"))
        ]
        return [Section("exits", "How good are the early exits?", sentence, figures, tables, how)]
