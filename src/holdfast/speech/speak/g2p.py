"""Letters to phones: an encoder-decoder of gated recurrent units with attention, searched with a beam.

Deep Voice 4.1. Shapes: L letters, B words or hypotheses, S steps, H units, P phones with the mark that
begins and ends a word.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn

from holdfast.config import read_config
from holdfast.speech.recognize.model import DESCRIPTION, WEIGHTS, load_weights
from holdfast.speech.recognize.network import Positive
from holdfast.speech.recognize.trainer import Above, TrainingSettings
from holdfast.speech.speak.dictionary import PHONES, Phones

LETTERS = string.ascii_lowercase + "'"
MARK = 0
"""Index of the mark that begins and ends a word, before the phones."""
BEAM = 8
_PHONES_PER_LETTER, _MORE_PHONES = 3, 5
"""A pronunciation has at most so many phones (w is three: D AH1 B AH0 L Y UW0 is an exception)."""


@dataclass(frozen=True)
class PhonemizerSettings(TrainingSettings):
    """How the network is trained."""

    epochs: Positive = 22
    """Passes over the training words."""
    batch: Positive = 128
    """Largest number of pronunciations per step."""
    learning_rate: Above = 3e-3
    """Of the first epoch."""
    anneal: Annotated[float, Meta(ge=1, le=10)] = 1.2
    """The learning rate is divided by this after each epoch."""
    largest_norm: Above = 1.0
    """Gradients with a larger norm are scaled down to it."""
    units: Positive = 208
    """Units of the decoder; the encoder has half of them in each direction."""
    embedding: Positive = 48
    """Values per letter and per phone."""
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.15
    """Share of the units of each layer that a step leaves out."""


@dataclass(frozen=True)
class PhonemizerDescription:
    """Content of model.json."""

    kind: Literal["phonemizer"]
    settings: PhonemizerSettings
    score: Mapping[str, float]
    """Fields of `PhonemizerScore`."""
    history: Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Guess:
    """A pronunciation that the network proposes."""

    phones: Phones
    log_prob: float
    """ln P(phones | letters)."""


class LettersToPhones(nn.Module):
    """Deep Voice 4.1 with attention: the decoder sees the letters beside its own state.

    It also reads what the encoder has at the letter of the same number: a word has about as many phones as
    letters, so attention does not have to learn to go from left to right.

    Args:
        settings: sizes.
    """

    def __init__(self, settings: PhonemizerSettings) -> None:
        super().__init__()
        units, embedding = settings.units, settings.embedding
        half = units // 2
        self.letters = nn.Embedding(len(LETTERS), embedding)
        self.phones = nn.Embedding(len(PHONES) + 1, embedding)
        self.encoder = nn.GRU(embedding, half, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * half, units)
        self.decoder = nn.GRU(embedding + 2 * half, units, batch_first=True)
        self.query = nn.Linear(units, 2 * half)
        self.mixer = nn.Linear(units + 2 * half, units)
        self.outputs = nn.Linear(units, len(PHONES) + 1)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, letters: Tensor, phones: Tensor) -> Tensor:
        """Logits [B, S, P] of each next phone.

        Args:
            letters: of words of one length; [B, L].
            phones: before each step, the mark first; [B, S].
        """
        memory, hidden = self.encode(letters)
        return self.decode(phones, hidden, memory)[0]

    def encode(self, letters: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of both directions [B, L, 2 H'], and the decoder's first state [1, B, H]."""
        memory, ends = self.encoder(self.letters(letters))  # ends: [2, B, H']
        hidden = torch.tanh(self.bridge(ends.transpose(0, 1).flatten(1)))
        return self.dropout(memory), hidden[None].contiguous()

    def decode(
        self, phones: Tensor, hidden: Tensor, memory: Tensor, step: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Logits [B, S, P] behind some phones, and the state after the last, [1, B, H].

        Args:
            phones: the mark or the phone before each step, [B, S].
            hidden: the state before them, [1, B, H].
            memory: of the letters, [B, L, 2 H'].
            step: number of the first step.
        """
        places = torch.arange(step, step + phones.shape[1]).clamp(max=memory.shape[1] - 1)
        both = torch.cat([self.phones(phones), memory[:, places]], dim=2)
        states, hidden = self.decoder(both, hidden)
        states = self.dropout(states)
        attention = (self.query(states) @ memory.transpose(1, 2)).softmax(dim=2)  # [B, S, L]
        both = torch.cat([states, attention @ memory], dim=2)
        return self.outputs(self.dropout(torch.tanh(self.mixer(both)))), hidden

    @classmethod
    def load(cls, folder: Path) -> LettersToPhones:
        """Read the network of a phonemizer.

        Raises:
            InputError: what `read_config` and `load_weights` refuse.
        """
        about = read_config(
            folder / DESCRIPTION, PhonemizerDescription, "the description of the phonemizer"
        )
        model = cls(about.settings)
        load_weights(model, folder / WEIGHTS)
        model.eval()
        return model

    @torch.inference_mode()
    def best(self, word: str, beam: int = BEAM) -> list[Guess]:
        """The most probable pronunciations, the best first, at most `beam`.

        Args:
            word: of `LETTERS`.
            beam: hypotheses that survive a step.
        """
        memory, hidden = self.encode(torch.tensor([[LETTERS.index(each) for each in word]]))
        longest = _PHONES_PER_LETTER * len(word) + _MORE_PHONES
        paths: list[Phones] = [()]
        scores, last = torch.zeros(1, dtype=torch.double), torch.tensor([MARK])
        complete: list[Guess] = []
        for step in range(longest + 1):
            letters = memory.expand(len(last), -1, -1)
            logits, hidden = self.decode(last[:, None], hidden, letters, step)
            totals = scores[:, None] + logits[:, 0].double().log_softmax(1)  # [B, P]
            complete += [
                Guess(path, total)
                for path, total in zip(paths, totals[:, MARK].tolist(), strict=True)
                if path  # a word has a sound
            ]
            complete = sorted(complete, key=lambda each: -each.log_prob)[:beam]
            # A longer path is less probable than its beginning: nothing can come before what is complete.
            worst = complete[-1].log_prob if len(complete) == beam else -torch.inf
            totals[:, MARK] = -torch.inf
            scores, order = totals.flatten().topk(min(beam, totals.numel()))
            scores, order = scores[scores > worst], order[scores > worst]
            if not len(scores):
                break
            parents, last = order // totals.shape[1], order % totals.shape[1]
            hidden = hidden[:, parents]
            paths = [
                (*paths[parent], PHONES[phone - 1])
                for parent, phone in zip(parents.tolist(), last.tolist(), strict=True)
            ]
        return complete
