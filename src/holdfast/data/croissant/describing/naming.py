"""Names of files and columns as ids, as words, and as people read them."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def slug(text: str) -> str:
    """Text as part of an id: letters of any script, digits, ``.``, ``_`` and ``-``; never empty."""
    composed = unicodedata.normalize("NFC", text)
    bare = re.sub(r"[^\w.-]+", "_", composed).strip("_")
    return bare or "unnamed"


def words(text: str) -> list[str]:
    """The words of a name, in lower case: ``userId`` and ``user_id`` are both ``user``, ``id``."""
    return [word.lower() for word in _WORD.findall(_HUMP.sub(" ", text))]


def root(word: str) -> str:
    """What an English word and its plural have in common: ``categori`` of category and categories."""
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2:
        word = word[:-1]
    if word.endswith("e") and len(word) > 2:
        return word[:-1]
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > 2 else word


def human(text: str) -> str:
    """A header as a person reads it: ``home.dest`` is ``home dest``, ``userId`` ``user id``."""
    spaced = re.sub(r"[_\s]+|(?<=[^\W\d])\.(?=[^\W\d])", " ", _HUMP.sub(" ", text)).strip()
    parts = [part if part.isupper() else part.lower() for part in spaced.split(" ")]
    return " ".join(parts)


class Ids:
    """Hands out ids that are unique in a description; the same wishes in the same order give the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, *wishes: str) -> str:
        """The first wish that is free; the last one with a number where none is."""
        for wish in wishes:
            if wish not in self._taken:
                break
        else:
            number = 2
            while f"{wishes[-1]}-{number}" in self._taken:
                number += 1
            wish = f"{wishes[-1]}-{number}"
        self._taken.add(wish)
        return wish
