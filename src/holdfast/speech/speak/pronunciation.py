"""Text to phonemes: words of a dictionary, and for all others the network."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Section, Table, Unknown
from holdfast.errors import InputError
from holdfast.speech.speak.dictionary import PAUSE, Phones, read_dictionary
from holdfast.speech.speak.normalization import PAUSES, words_of

if TYPE_CHECKING:
    from holdfast.speech.speak.g2p import LettersToPhones

_LIKELY = log(0.2)
"""Other pronunciations of the network are kept from this share of the best one's probability on."""


@dataclass(frozen=True)
class Word:
    """A word as it is said, or a pause."""

    text: str
    """In lower case; the name of a letter ends with a dot; a pause is its mark, such as ``,``."""
    phones: Phones
    """ARPAbet with stress, of CMUdict; of a pause ``("SIL",)``."""
    alternates: tuple[Phones, ...]
    """All pronunciations, `phones` first: of *read*, *live*, *wind* the sense decides; it is not known."""
    source: str
    """``dictionary``, ``network`` or ``pause``."""


@dataclass(frozen=True)
class Pronunciation(Answer):
    """The words of a text with their phones."""

    words: tuple[Word, ...]

    title = "Phonemes"

    def unknowns(self) -> Sequence[Unknown]:
        """Words outside the dictionary, and words of several pronunciations."""
        guessed = {each.text for each in self.words if each.source == "network"}
        several = {each.text for each in self.words if each.alternates[1:]} - guessed
        kinds = (
            ("Not in the dictionary, pronounced by the network", guessed, True),
            ("Several pronunciations, the first is taken", several, False),
        )
        return [
            Unknown(f"{kind}: {', '.join(sorted(words))}.", doubt=doubt)
            for kind, words, doubt in kinds
            if words
        ]

    def sections(self) -> Sequence[Section]:
        """One row per word."""
        spoken = [each for each in self.words if each.source != "pause"]
        phones = sum(len(each.phones) for each in spoken)
        rows = [
            (
                each.text,
                " ".join(each.phones),
                each.source,
                "; ".join(map(" ".join, each.alternates[1:])),
            )
            for each in self.words
        ]
        columns = {name: ColumnFormat() for name in ("word", "phones", "source")}
        columns["others"] = ColumnFormat(label="other pronunciations")
        table = pa.table([*zip(*rows, strict=True)], [*columns])
        sentence = f"{len(spoken):,} words, {phones:,} phones."
        return [Section("words", "How is it said?", sentence, tables=[Table(table, columns)])]


class Phonemizer:
    """A dictionary and the network for words that it does not have.

    Args:
        model: folder that `train_phonemizer` wrote; None: the one of `model_folder`.

    Raises:
        InputError: ``not-found``; what `read_dictionary` refuses.
    """

    def __init__(self, model: str | Path | None = None) -> None:
        self.folder = model_folder(model, "phonemes")
        self.dictionary = read_dictionary(self.folder / "dictionary")

    @cached_property
    def network(self) -> LettersToPhones:
        """The network; a text whose words are all in the dictionary does without, and without torch.

        Raises:
            InputError: what `LettersToPhones.load` refuses.
        """
        from holdfast.speech.speak.g2p import LettersToPhones

        return LettersToPhones.load(self.folder)

    def __call__(self, text: str) -> tuple[Word, ...]:
        """The words of a text; see `phonemes`. Without a word there are pauses, or nothing."""
        return tuple(map(self._word, words_of(text, self.dictionary.__contains__)))

    def _word(self, text: str) -> Word:
        if text in PAUSES:
            return Word(text, (PAUSE,), ((PAUSE,),), "pause")
        found = tuple(self.dictionary.get(text, ()))
        if found:
            return Word(text, found[0], found, "dictionary")
        guesses = self.network.best(text.replace(".", ""))
        best = guesses[0].log_prob
        likely = tuple(each.phones for each in guesses if each.log_prob > best + _LIKELY)
        return Word(text, likely[0], likely, "network")


def phonemes(text: str, model: str | Path | None = None) -> Pronunciation:
    """How an English text is said: its words with ARPAbet phones, punctuation as pauses.

    Args:
        text: numbers, money, times, abbreviations, acronyms and addresses are read as words.
        model: folder of a model; None: the environment's ``HOLDFAST_PHONEMES``, or the one in
            ``examples/speech/phonemes`` of the clone that holdfast runs from.

    Raises:
        InputError: ``unknown-character`` (another script, a symbol without a name), ``empty-input``,
            ``out-of-range`` (a word of more than 60 letters); ``not-found`` or ``damaged`` for the model.
    """
    words = Phonemizer(model)(text)
    check_words(words, text)
    return Pronunciation(words)


def check_words(words: Iterable[Word], text: str) -> None:
    """Refuse a text of pauses alone.

    Raises:
        InputError: ``empty-input``.
    """
    if all(each.source == "pause" for each in words):
        found = repr(text[:40])
        raise InputError(
            "the text has no words", code="empty-input", found=found, expected="English"
        )


def model_folder(model: str | Path | None, name: str) -> Path:
    """The folder of a model.

    Args:
        model: as the user names it.
        name: of the environment variable (``HOLDFAST_NAME``) and the shipped folder otherwise.

    Raises:
        InputError: ``not-found`` without a complete model there.
    """
    shipped = Path(__file__).parents[4] / "examples" / "speech" / name
    variable = f"HOLDFAST_{name.upper()}"
    folder = Path(model or os.environ.get(variable) or shipped)
    if not (folder / "model.json").is_file():
        raise InputError(
            "model not found",
            code="not-found",
            path=folder,
            expected="a folder with model.json",
            remedy=f"name one with --model or {variable}; examples/speech/{name} of the repository has one",
        )
    return folder
