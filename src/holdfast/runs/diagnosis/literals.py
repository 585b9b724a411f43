"""What a line must hold for a pattern to match it, in a form that is fast to test.

The *key* of a text is what remains of it without digits, hexadecimal letters, blanks and most
punctuation, in lower case. Making a key works byte by byte, so a text that holds a literal has a key
that holds the literal's key: lines can be grouped by their keys, and a group whose key lacks what a
pattern needs is never searched. No line that matches is missed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

_parser: Any = import_module("re._parser")
_constants: Any = import_module("re._constants")

_DROPPED = (
    b"0123456789abcdefABCDEF"  # numbers, addresses, hashes
    b" \t\v\f\r\0.,:;+-%|/<>=#~^*'\"()[]{}"
    b"\xe2\x96\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"  # the blocks of which progress bars are made
)
_LOWER = bytes.maketrans(b"GHIJKLMNOPQRSTUVWXYZ", b"ghijklmnopqrstuvwxyz")
_MANY = 8
"""A repeat that may come more often than this can blow up inside or around another."""

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_ZERO_WIDTH = ("AT", "ASSERT", "ASSERT_NOT")


def key(text: bytes) -> bytes:
    """The key of a text; line ends stay, so that a block of lines has a block of keys."""
    return text.translate(_LOWER, _DROPPED)


def required(pattern: str) -> frozenset[bytes] | None:
    """Texts of which every match of the pattern holds at least one.

    Args:
        pattern: a regular expression that `re` compiles.

    Returns:
        The texts in lower case, none with an empty key; None if the pattern tells of none, so that
        any line may match.
    """
    texts = _texts(pattern, _key_length)
    return texts if texts and all(map(key, texts)) else None


def required_texts(pattern: str) -> frozenset[bytes] | None:
    """As `required`, but the longest texts, whatever their keys: for lines that are at hand."""
    return _texts(pattern, len)


class Sieve:
    """Which of many patterns lines with a given key may match.

    Each key that a pattern needs is filed under three letters of it (its rarest, to find it seldom in
    vain); of a line's key only the patterns under its own threes are tried.
    """

    def __init__(self, needs: Sequence[frozenset[bytes] | None]) -> None:
        self.always = [place for place, texts in enumerate(needs) if texts is None]
        keys = [(place, key(text)) for place, texts in enumerate(needs) for text in texts or ()]
        common = Counter(three for _, each in keys for three in _threes(each))
        self.short = [(each, place) for place, each in keys if len(each) < 3]
        self.filed: dict[bytes, list[tuple[bytes, int]]] = {}
        for place, each in keys:
            if threes := _threes(each):
                rarest = min(threes, key=lambda three: (common[three], three))
                self.filed.setdefault(rarest, []).append((each, place))
        self.threes = frozenset(self.filed)

    def candidates(self, line_key: bytes) -> tuple[int, ...]:
        """Places of the patterns that may match, in order."""
        found = {place for each, place in self.short if each in line_key}
        for three in self.threes.intersection(_threes(line_key)):
            found.update(place for each, place in self.filed[three] if each in line_key)
        return tuple(sorted(found.union(self.always)))


def _threes(text: bytes) -> set[bytes]:
    return {text[place : place + 3] for place in range(len(text) - 2)}


def explosive(pattern: str) -> bool:
    """Whether the time of a search could grow exponentially with the text.

    That takes a choice or an open repeat inside an open repeat, such as ``(a+)+`` or ``(a|ab)*``.
    """
    return _explodes(_parser.parse(pattern), inside=False)


def _texts(pattern: str, weight: Callable[[str], int]) -> frozenset[bytes] | None:
    found = _needed(_parser.parse(pattern), weight)
    if found is None:
        return None
    return frozenset(literal.encode("utf-8", "replace").lower() for literal in found)


def _key_length(literal: str) -> int:
    return len(key(literal.encode("utf-8", "replace")))


def _needed(sequence: Any, weight: Callable[[str], int]) -> frozenset[str] | None:
    """The most telling requirement of a sequence, all of whose parts must occur.

    Of a choice, the least telling of its texts counts.
    """
    options: list[frozenset[str] | None] = []
    run: list[str] = []

    def end_run() -> None:
        if run:
            options.append(frozenset(["".join(run)]))
            run.clear()

    for operation, argument in sequence:
        name = str(operation)
        if name == "LITERAL":
            run.append(chr(argument))
        elif name not in _ZERO_WIDTH:
            end_run()
            options.append(_of_part(name, argument, weight))
    end_run()
    return max(options, key=lambda texts: min(map(weight, texts or [""])), default=None)


def _of_part(name: str, argument: Any, weight: Callable[[str], int]) -> frozenset[str] | None:
    if name == "SUBPATTERN":
        return _needed(argument[3], weight)
    if name == "ATOMIC_GROUP":
        return _needed(argument, weight)
    if name in _REPEATS and argument[0] > 0:
        return _needed(argument[2], weight)
    if name == "BRANCH":
        branches = [_needed(branch, weight) for branch in argument[1]]
        if any(branch is None for branch in branches):
            return None
        return frozenset().union(*(branch for branch in branches if branch))
    return None


def _explodes(sequence: Any, inside: bool) -> bool:
    for operation, argument in sequence:
        name = str(operation)
        if name in _REPEATS:
            low, high, body = argument
            if inside and high != low:
                return True
            many = high is _constants.MAXREPEAT or high > _MANY
            if _explodes(body, inside or many):
                return True
        elif name == "BRANCH":
            if inside or any(_explodes(branch, inside) for branch in argument[1]):
                return True
        elif any(_explodes(body, inside) for body in _bodies(name, argument)):
            return True
    return False


def _bodies(name: str, argument: Any) -> Iterator[Any]:
    """The sequences inside a part that is neither a repeat nor a choice."""
    if name == "SUBPATTERN":
        yield argument[3]
    elif name == "ATOMIC_GROUP":
        yield argument
    elif name in ("ASSERT", "ASSERT_NOT"):
        yield argument[1]
    elif name == "GROUPREF_EXISTS":
        yield argument[1]
        if argument[2] is not None:
            yield argument[2]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern without regard to case; classes of characters know ASCII alone.

    Raises:
        re.error: if it is not a regular expression.
    """
    return re.compile(pattern, re.IGNORECASE | re.ASCII)
