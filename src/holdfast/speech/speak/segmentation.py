"""The aligner's network: where one phone ends and the next begins.

Deep Voice 4.2: convolutions and recurrent layers trained with CTC over *pairs* of phones. Which pair of
phones is being said is certain only at the boundary between the two, so that is where the output has its
peak; with single phones the peak is anywhere in the phone. Unlike there, the score of a pair is the sum of
two: of the phone that ends and of the one that begins. So 81 outputs are learned instead of 1,601, and
pairs that training did not have can be aligned. The features, the network and the training are those of
`holdfast.speech.recognize`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.speech.recognize.labels import BLANK, Alphabet
from holdfast.speech.recognize.model import Description, SpeechModel
from holdfast.speech.recognize.results import TrainedModel
from holdfast.speech.recognize.training import TrainConfig, train
from holdfast.speech.speak.dictionary import UNITS, plain_phone


class PhoneAlphabet(Alphabet):
    """Outputs that are pairs of phones (``HH AH``), or phones for comparison.

    A text is phones with spaces between, such as ``SIL HH AH0 L OW1 SIL``.
    """

    @classmethod
    def of_texts(cls, texts: Iterable[str], bigrams: bool, characters: str = "") -> Alphabet:
        """All pairs of phones, or all phones, whatever the texts have."""
        return cls(tuple(f"{a} {b}" for a in UNITS for b in UNITS) if bigrams else tuple(UNITS))

    @property
    def pairs(self) -> bool:
        """Whether labels are pairs."""
        return " " in self.labels[0]

    def unknown(self, text: str) -> Counter[str]:
        """What is not a phone, with their counts."""
        return Counter(each for each in text.split() if plain_phone(each) not in UNITS)

    def encode(self, text: str) -> list[int]:
        """Outputs of phones: one less with pairs."""
        steps = [self.column(*each) for each in pairwise(["", *text.split()])]
        return [each for each in steps if each != BLANK]

    def column(self, before: str, phone: str) -> int:
        """Output of the step from one phone to the next; of pairs, the blank if there is none before."""
        if not self.pairs:
            return self._index[plain_phone(phone)]
        return self._index[f"{plain_phone(before)} {plain_phone(phone)}"] if before else BLANK


class PairOutputs(nn.Linear):
    """Scores of the blank and of the ends and beginnings of phones, added to those of pairs [..., 1601]."""

    def __init__(self, units: int) -> None:
        count = len(UNITS)
        super().__init__(units, 1 + 2 * count)
        ends = torch.eye(count).repeat_interleave(count, 1)  # pair a * count + b: a ends, b begins
        pairs = torch.cat([ends, torch.eye(count).repeat(1, count)])
        self.register_buffer("sums", torch.block_diag(torch.ones(1, 1), pairs), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] -> [..., 1601]."""
        parts: Tensor = super().forward(x) @ self.sums
        return parts


class Aligner(SpeechModel):
    """The network with its labels."""

    alphabet: PhoneAlphabet
    alphabet_type = PhoneAlphabet

    def __init__(self, description: Description) -> None:
        super().__init__(description)
        if self.alphabet.pairs:
            self.network.outputs = PairOutputs(self.network.outputs.in_features)

    @property
    def delay_s(self) -> float:
        """Seconds by which outputs are behind boundaries, where it was measured (``training.delay_s``)."""
        return float(self.description.training.get("delay_s", 0.0))

    @property
    def silence_delay_s(self) -> float:
        """The same of boundaries before silences, beyond `delay_s`."""
        return float(self.description.training.get("silence_delay_s", 0.0))


def train_aligner(config: str | Path, output: str | Path, resume: bool = False) -> TrainedModel:
    """Train the network for `align`, as `holdfast.speech.recognize.train` does for its own.

    Args:
        config: the same configuration file, with ``network.bigrams = true`` for pairs. The texts of the
            manifest are phones, the silences among them: ``SIL HH AH0 L OW1 SIL``.
        output: folder of the model.
        resume: continue an interrupted run.

    Raises:
        InputError: what `train` refuses; ``unsupported`` for a test set or an alphabet in the file.
        HoldfastError: ``diverged`` if the loss is not finite.
    """
    data = read_config(config, TrainConfig, "the configuration").data
    if data.test or data.alphabet:
        raise InputError(
            "an aligner is trained without test set and alphabet",
            code="unsupported",
            path=config,
            place="data.test" if data.test else "data.alphabet",
            remedy="remove the key; measure boundaries with align",
        )
    return train(config, output, resume, Aligner)
