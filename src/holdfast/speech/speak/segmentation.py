"""The aligner's network: where one phone ends and the next begins.

Deep Voice 4.2: convolutions and recurrent layers trained with CTC over *pairs* of phones. Which pair of
phones is being said is certain only at the boundary between the two, so that is where the output has its
peak; with single phones the peak is anywhere in the phone. The features, the network and the training are
those of `holdfast.speech.recognize`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.speech.recognize.alphabet import Alphabet
from holdfast.speech.recognize.model import SpeechModel
from holdfast.speech.recognize.results import TrainedModel
from holdfast.speech.recognize.training import TrainConfig, train
from holdfast.speech.speak.dictionary import PAUSE, PHONES, plain_phone

UNITS = frozenset({PAUSE, *map(plain_phone, PHONES)})
"""What is recognized: phones without stress, and silence."""


class PhoneAlphabet(Alphabet):
    """Outputs that are pairs of phones (``HH AH``), or phones for comparison.

    A text is phones with spaces between, such as ``SIL HH AH0 L OW1 SIL``.
    """

    @classmethod
    def of_texts(cls, texts: Iterable[str], bigrams: bool, characters: str = "") -> Alphabet:
        """The labels of a training set.

        Args:
            texts: phones.
            bigrams: whether labels are pairs; else phones.
            characters: not used: labels are those of the texts.
        """
        return cls(tuple(sorted({each for text in texts for each in labels_of(text, bigrams)})))

    @property
    def pairs(self) -> bool:
        """Whether labels are pairs."""
        return " " in self.labels[0]

    def unknown(self, text: str) -> Counter[str]:
        """What is not a phone, or a label that the network does not have, with their counts."""
        strange = Counter(each for each in text.split() if plain_phone(each) not in UNITS)
        found = labels_of(text, self.pairs)
        return strange or Counter(each for each in found if each not in self._index)

    def encode(self, text: str) -> list[int]:
        """Outputs of phones."""
        return [self._index[each] for each in labels_of(text, self.pairs)]

    def column(self, before: str, phone: str) -> int | None:
        """Output of the step from one phone to the next; None: training had no such pair."""
        return self._index.get(f"{before} {phone}" if self.pairs else phone)


def labels_of(text: str, pairs: bool) -> list[str]:
    """Labels of phones, in their order."""
    phones = [plain_phone(each) for each in text.split()]
    return [f"{a} {b}" for a, b in pairwise(phones)] if pairs else phones


class Aligner(SpeechModel):
    """The network with its labels."""

    alphabet: PhoneAlphabet
    alphabet_type = PhoneAlphabet


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
