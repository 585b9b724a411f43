"""A pronouncing dictionary in the format of CMUdict, and a split of it by word."""

from __future__ import annotations

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


def read_dictionary(path: str | Path) -> dict[str, list[Phones]]:
    """Words and their distinct pronunciations, the usual one first.

    Args:
        path: a line per pronunciation: word, phones, and a comment behind ``#``; other pronunciations of
            a word are ``word(2)``, ``word(3)``. Compressed or plain.

    Raises:
        InputError: ``unreadable``, ``damaged``, ``invalid-encoding``; ``empty-input``; ``unknown-name``
            with the line for a phone that is not one of `PHONES`.
    """
    words: dict[str, list[Phones]] = {}
    known = frozenset(PHONES)
    for number, line in enumerate(read_text(Path(path)).splitlines(), 1):
        name, _, rest = line.partition(" ")
        if not name or name.startswith(";;;"):
            continue
        phones = tuple(rest.partition("#")[0].split())
        if not phones or not known.issuperset(phones):
            raise InputError(
                "invalid pronunciation in the dictionary",
                code="unknown-name",
                path=path,
                place=f"line {number}",
                found=" ".join(each for each in phones if each not in known) or "no phones",
                expected="ARPAbet with stress, such as HH AH0 L OW1",
            )
        found = words.setdefault(name.partition("(")[0] or name, [])
        if phones not in found:
            found.append(phones)
    if not words:
        raise InputError("the dictionary has no words", code="empty-input", path=path)
    return words


def part_of(word: str) -> str:
    """``test`` for a tenth of the words, ``train`` for all others, by a hash: alternates stay together."""
    place = int.from_bytes(blake2b(word.encode(), digest_size=4).digest())
    return "test" if place % 100 < 10 else "train"
