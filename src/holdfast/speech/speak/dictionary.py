"""A pronouncing dictionary in the format of CMUdict, and a split of it by word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from holdfast.errors import InputError
from holdfast.speech.recognize.labels import read_text

_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
PHONES = (*_CONSONANTS.split(), *(vowel + k for vowel in _VOWELS.split() for k in "012"))
"""ARPAbet as CMUdict writes it: a vowel ends with its stress (0 none, 1 primary, 2 secondary)."""
PAUSE = "SIL"

Phones = tuple[str, ...]


def plain_phone(phone: str) -> str:
    """A phone without its stress."""
    return phone.rstrip("012")


UNITS = sorted({PAUSE, *map(plain_phone, PHONES)})
"""Phones without stress, and silence."""


class Dictionary:
    """Words and their pronunciations; phones are checked when a word is asked for.

    Args:
        path: a line per pronunciation: word, phones, and a comment behind ``#``; other pronunciations of
            a word are ``word(2)``, ``word(3)``. Compressed or plain.

    Raises:
        InputError: ``unreadable``, ``damaged``, ``invalid-encoding``; ``empty-input``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._entries: dict[str, list[tuple[int, str]]] = defaultdict(list)
        """Number and phones of each line of a word."""
        for number, line in enumerate(read_text(self.path).splitlines(), 1):
            name, _, phones = line.partition(" ")
            if name and not name.startswith(";;;"):
                self._entries[name.partition("(")[0] or name].append((number, phones))
        if not self._entries:
            raise InputError("the dictionary has no words", code="empty-input", path=path)

    def pronunciations(self, word: str) -> list[Phones]:
        """Distinct pronunciations of a lower-case word, the usual one first; none if it is not a word here.

        Raises:
            InputError: ``unknown-name`` for a phone that is not one of `PHONES`.
        """
        found = []
        for number, text in self._entries.get(word, ()):
            phones = tuple(text.partition("#")[0].split())
            unknown = [phone for phone in phones if phone not in _KNOWN]
            if unknown or not phones:
                raise InputError(
                    "invalid pronunciation in the dictionary",
                    code="unknown-name",
                    path=self.path,
                    place=f"line {number}",
                    found=" ".join(unknown) or "no phones",
                    expected="ARPAbet with stress, such as HH AH0 L OW1",
                )
            found.append(phones)
        return list(dict.fromkeys(found))

    def words(self) -> Mapping[str, list[Phones]]:
        """Every word with its pronunciations."""
        return {word: self.pronunciations(word) for word in self._entries}


_KNOWN = frozenset(PHONES)


def part_of(word: str) -> str:
    """``test`` for a tenth of the words, ``train`` for all others, by a hash: alternates stay together."""
    place = int.from_bytes(blake2b(word.encode(), digest_size=4).digest())
    return "test" if place % 100 < 10 else "train"
