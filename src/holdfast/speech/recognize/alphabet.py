"""Labels of the outputs: characters of any script, or non-overlapping pairs of them (bigrams)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from holdfast.speech.recognize.labels import Labels

BLANK = 0
"""Index of the CTC blank, before the labels."""


def clean_text(text: str) -> str:
    """Text in Unicode's normal form C, with single spaces between words."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True)
class Alphabet:
    """What the network can write."""

    labels: tuple[str, ...]
    """The text of output 1, 2, ...; output 0 is the blank, whose text is empty."""

    @classmethod
    def of_texts(cls, texts: Iterable[str], bigrams: bool, characters: str = "") -> Alphabet:
        """The alphabet of a training set.

        Args:
            texts: as `clean_text` gives them.
            bigrams: add the pairs into which words of the texts split (Deep Speech 2, 3.6).
            characters: the characters; empty: those of the texts.
        """
        texts = list(texts)
        found = set(unicodedata.normalize("NFC", characters)) or set("".join(texts))
        pairs: set[str] = set()
        if bigrams:
            pairs = {piece for text in texts for piece in _pieces(text) if len(piece) == 2}
        return cls((*sorted(found), *sorted(p for p in pairs if set(p) <= found)))

    @property
    def size(self) -> int:
        """Number of outputs, the blank among them."""
        return len(self.labels) + 1

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels, 1)}

    def unknown(self, text: str) -> Counter[str]:
        """Characters of a text that are not in the alphabet, with their counts."""
        return Counter(each for each in text if each not in self._index)

    def encode(self, text: str) -> list[int]:
        """Outputs of a text: the pair where the alphabet has it, else its characters."""
        pieces = _pieces(text) if len(self.labels[-1]) == 2 else list(text)
        known = [[piece] if piece in self._index else list(piece) for piece in pieces]
        return [self._index[piece] for group in known for piece in group]

    @property
    def outputs(self) -> Labels:
        """The labels as a decoder takes them; words are what stands between spaces."""
        return Labels(("<blank>", *self.labels), BLANK, ("", *self.labels), " ")


def frames_needed(target: Sequence[int]) -> int:
    """Frames that CTC needs for a target: one per label, and a blank between equal neighbors."""
    return len(target) + sum(a == b for a, b in pairwise(target))


def _pieces(text: str) -> list[str]:
    """Words as non-overlapping pairs; the last character of an odd word and spaces are alone."""
    pieces = []
    for place, word in enumerate(text.split(" ")):
        pieces += [" "] if place else []
        pieces += [word[k : k + 2] for k in range(0, len(word), 2)]
    return pieces
