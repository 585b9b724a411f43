"""A pronouncing dictionary in the format of CMUdict, and a split of it by word."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from holdfast.errors import InputError
from holdfast.opening import open_source

_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
PHONES = (*_CONSONANTS.split(), *(vowel + k for vowel in _VOWELS.split() for k in "012"))
"""ARPAbet as CMUdict writes it: a vowel ends with its stress (0 none, 1 primary, 2 secondary)."""
PAUSE = "SIL"

Phones = tuple[str, ...]
_ALTERNATE = re.compile(r"\(\d+\)$")


def plain_phone(phone: str) -> str:
    """A phone without its stress."""
    return phone.rstrip("012")


class Dictionary:
    """Words and their pronunciations.

    The text is searched, not parsed: a command that needs ten words of 130,000 starts at once.

    Args:
        path: a line per pronunciation: word, phones, and a comment behind ``#``; other pronunciations of
            a word follow it as ``word(2)``, ``word(3)``. Compressed or plain.

    Raises:
        InputError: ``not-found``, ``unreadable``, ``damaged``, ``invalid-encoding``; ``empty-input``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError("pronouncing dictionary not found", code="not-found", path=path)
        with open_source(self.path) as source:
            content = source.read()
        try:
            self._text = "\n" + content.decode().replace("\r\n", "\n").rstrip() + "\n"
        except UnicodeDecodeError as error:
            raise InputError(
                "the dictionary is not UTF-8",
                code="invalid-encoding",
                path=path,
                place=f"byte {error.start}",
            ) from error
        if not self._text.strip():
            raise InputError("the dictionary has no words", code="empty-input", path=path)

    def pronunciations(self, word: str) -> list[Phones]:
        """The pronunciations of a lower-case word, the usual one first; empty: it is not a word here.

        Raises:
            InputError: ``unknown-name`` for a phone that is not one of `PHONES`.
        """
        place, found = self._text.find(f"\n{word.lower()} "), []
        while place >= 0:
            end = self._text.find("\n", place + 1)
            name, phones = self._entry(self._text[place + 1 : end], place)
            if name != word.lower():
                break
            found.append(phones)
            place = end if end + 1 < len(self._text) else -1
        return found

    def words(self) -> Mapping[str, list[Phones]]:
        """Every word with its pronunciations."""
        found: dict[str, list[Phones]] = defaultdict(list)
        for name, phones in self._entries():
            if phones not in found[name]:
                found[name].append(phones)
        return found

    def _entries(self) -> Iterator[tuple[str, Phones]]:
        place = 0
        for line in self._text.split("\n"):
            if line.strip() and not line.startswith(";;;"):
                yield self._entry(line, place - 1)
            place += len(line) + 1

    def _entry(self, line: str, place: int) -> tuple[str, Phones]:
        name, *phones = line.partition("#")[0].split()
        unknown = [phone for phone in phones if phone not in _KNOWN]
        if unknown or not phones:
            raise InputError(
                "invalid pronunciation in the dictionary",
                code="unknown-name",
                path=self.path,
                place=f"line {self._text.count(chr(10), 0, place + 1)}",
                found=" ".join(unknown) or "no phones",
                expected="ARPAbet with stress, such as HH AH0 L OW1",
            )
        return _ALTERNATE.sub("", name), tuple(phones)


_KNOWN = frozenset(PHONES)


def part_of(word: str) -> str:
    """``test`` for a tenth of the words, ``train`` for all others, by a hash: alternates stay together."""
    place = int.from_bytes(blake2b(word.encode(), digest_size=4).digest())
    return "test" if place % 100 < 10 else "train"
