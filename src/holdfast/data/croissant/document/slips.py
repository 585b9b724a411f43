"""Mistakes of spelling: text that is not valid JSON, or terms that cannot be understood."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from re import compile as pattern

_LINE_END = pattern(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Slip:
    """One place that is misspelt.

    Attributes:
        kind: what is wrong, such as ``"duplicate-key"``; stable.
        at: RFC 6901 pointer of the value in question, or of the nearest one around it.
        offset: where, in characters from the start of the text.
        message: what is wrong, and how it was read.
    """

    kind: str
    at: str
    offset: int
    message: str


class Lines:
    r"""Where the lines of a text begin; they end in ``\n``, ``\r\n`` or ``\r``."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1, columns in characters."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def escaped(key: str) -> str:
    """A key as one token of an RFC 6901 pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def tokens(pointer: str) -> list[str]:
    """The keys and indices of a pointer."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
