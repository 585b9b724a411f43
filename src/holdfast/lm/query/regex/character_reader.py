"""The characters of a pattern: plain, escaped, or in classes; other dialects are refused with advice."""

from __future__ import annotations

import re
from typing import NoReturn

from holdfast.errors import InputError
from holdfast.lm.query.regex.characters import (
    LAST,
    PERL,
    POSIX,
    Ranges,
    folded_with,
    negated,
    normalised,
    unicode_class,
)

_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")
_OCTAL = re.compile(r"[0-7]{1,3}")
_UNICODE = re.compile(r"([pP])(?:\{(\^?)([^}]*)\}|(.))")
_POSIX = re.compile(r"\[:(\^?)(.*?):\]")
_SPACE = ord(" ")
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}

# What other dialects have and this one has not: what it is, and what to do instead.
_FOREIGN_ESCAPES = {
    "C": ("a single byte", "use . for one character"),
    "Z": ("an end of text before a line end", r"use \z, or \n?\z"),
    "G": ("the end of the last match", "leave it out"),
    "K": ("a reset of the match", "give the text before it as the prefix"),
    "R": ("any line end", r"use (?:\r\n|\n|\r)"),
    "X": ("a grapheme", r"use \P{M}\p{M}*"),
    "k": ("a back-reference", "list what it can be; no automaton remembers what a group matched"),
    "g": ("a back-reference", "list what it can be; no automaton remembers what a group matched"),
    "h": ("a horizontal space", r"use [\t\p{Zs}]"),
    "u": ("a code point", r"use \x{...}"),
    "U": ("a code point", r"use \x{...}"),
    "N": ("a named character", r"use \x{...}"),
    "E": (r"the end of \Q", r"write \Q before it"),
}


class CharacterReader:
    """Reads a pattern from the left, one character or class at a time."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self.pattern = pattern
        self.at = 0
        """The next character of the pattern."""
        self.fold = ignore_case
        """Whether case is ignored here."""
        self.negations = 0
        """Complements around what is read."""
        self.names_space = False
        """Whether a space was named, outside of complements and negated classes."""
        self.numbers: dict[Ranges, int] = {}
        """The sets read so far, numbered."""
        self._plain: dict[tuple[str, bool], int] = {}
        if not pattern.isascii():
            for place, char in enumerate(pattern):
                if "\ud800" <= char <= "\udfff":
                    self.refuse(
                        "a surrogate is not a character of a text", place, remedy="leave it out"
                    )

    def refuse(
        self, problem: str, at: int, *, found: str | None = None, expected: str | None = None,
        remedy: str | None = None,
    ) -> NoReturn:  # fmt: skip
        """Say what is wrong, and at which character of the pattern."""
        if found is None:
            found = self.pattern[at : at + 12]
        raise InputError(
            f"regular expression: {problem}",
            code="invalid-syntax",
            place=f"character {at + 1}",
            found=found.encode(errors="backslashreplace").decode() or "the end of the pattern",
            expected=expected,
            remedy=remedy,
        )

    def foreign(self, start: int, what: str, remedy: str) -> NoReturn:
        """An escape of another dialect."""
        found = self.pattern[start : start + 2]
        self.refuse(f"{what} is not regular syntax", start, found=found, remedy=remedy)

    def number(self, ranges: Ranges) -> int:
        """The number of a set."""
        return self.numbers.setdefault(ranges, len(self.numbers))

    def note(self, low: int, high: int) -> None:
        """Remember that a character, or a range, was named by its ends."""
        if _SPACE in (low, high) and not self.negations:
            self.names_space = True

    def character(self, char: str) -> int:
        """The number of a literal character's set."""
        if char == " ":
            self.note(_SPACE, _SPACE)
        key = (char, self.fold)
        number = self._plain.get(key)
        if number is None:
            ranges: Ranges = ((ord(char), ord(char)),)
            number = self._plain[key] = self.number(folded_with(ranges) if self.fold else ranges)
        return number

    def folded(self, ranges: Ranges) -> Ranges:
        """The set as the flag for case has it here."""
        return folded_with(ranges) if self.fold else ranges

    def named_class(self) -> Ranges | None:
        r"""A class such as ``\d`` or ``\p{Greek}``, if one stands here."""
        pattern, start = self.pattern, self.at
        letter = pattern[start + 1 : start + 2]
        if letter and letter in "dswDSW":
            self.at += 2
            ranges = self.folded(PERL[letter.lower()])
            return ranges if letter.islower() else negated(ranges)
        if letter not in ("p", "P"):
            return None
        match = _UNICODE.match(pattern, start + 1)
        found = None
        if match:
            name = match.group(3) if match.group(4) is None else match.group(4)
            found = unicode_class(name)
        if match is None or found is None:
            self.refuse(
                "an unknown class of characters",
                start,
                found="\\" + match.group() if match else None,
                expected="a general category or a script of Unicode, as in \\pL, \\p{Lu} or \\p{Greek}",
            )
        self.at = match.end()
        found = self.folded(found)
        outside = (match.group(1) == "P") != bool(match.group(2))
        return negated(found) if outside else found

    def code_point(self) -> int:
        """The character that an escape names."""
        pattern, start = self.pattern, self.at
        letter = pattern[start + 1 : start + 2]
        if not letter:
            self.refuse(
                "the pattern ends in a backslash",
                start,
                expected="a character after it",
                remedy=r"write \\ for the character",
            )
        if letter in _CONTROL:
            self.at += 2
            return _CONTROL[letter]
        if letter == "x":
            match = _HEX.match(pattern, start + 1)
            if not match or int(match.group(1) or match.group(2), 16) > LAST:
                self.refuse(
                    "no code point",
                    start,
                    found=match and "\\" + match.group(),
                    expected="two hexadecimal digits, or {...} up to 10FFFF",
                )
            self.at = match.end()
            return int(match.group(1) or match.group(2), 16)
        if letter in "01234567":
            digits = _OCTAL.match(pattern, start + 1)
            assert digits is not None
            if letter != "0" and len(digits.group()) == 1:
                self.foreign(start, "a back-reference", _FOREIGN_ESCAPES["k"][1])
            self.at = digits.end()
            return int(digits.group(), 8)
        if letter in "89":
            self.foreign(start, "a back-reference", _FOREIGN_ESCAPES["k"][1])
        if letter.isascii() and not letter.isalnum():
            self.at += 2
            return ord(letter)
        if letter in _FOREIGN_ESCAPES:
            self.foreign(start, *_FOREIGN_ESCAPES[letter])
        return self.refuse(
            "an unknown escape",
            start,
            found=pattern[start : start + 2],
            expected="an escape of RE2",
            remedy="leave the backslash out for the character itself",
        )

    def bracket(self) -> Ranges:
        """A class in brackets."""
        pattern, start = self.pattern, self.at
        self.at += 1
        outside = pattern.startswith("^", self.at)
        self.at += outside
        pairs: list[tuple[int, int]] = []
        first = True
        while first or not pattern.startswith("]", self.at):
            if self.at >= len(pattern):
                self.refuse(
                    "a class is not closed",
                    start,
                    expected="a closing bracket",
                    remedy=r"write \[ for the character",
                )
            first = False
            posix = _POSIX.match(pattern, self.at)
            if posix:
                if posix.group(2) not in POSIX:
                    self.refuse(
                        "an unknown class of characters",
                        self.at,
                        found=posix.group(),
                        expected=", ".join(POSIX),
                    )
                ranges = self.folded(POSIX[posix.group(2)])
                pairs += negated(ranges) if posix.group(1) else ranges
                self.at = posix.end()
                continue
            named = self.named_class() if pattern[self.at] == "\\" else None
            if named is not None:
                pairs += named
                continue
            place = self.at
            low = high = self.member()
            if pattern.startswith("-", self.at) and pattern[self.at + 1 : self.at + 2] not in (
                "]",
                "",
            ):
                self.at += 1
                high = self.member()
                if high < low:
                    self.refuse(
                        "a range ends before it begins",
                        place,
                        found=pattern[place : self.at],
                        remedy=r"write \- for the character",
                    )
            if not outside:
                self.note(low, high)
            pairs += self.folded(normalised([(low, high)]))
        self.at += 1
        ranges = normalised(pairs)
        return negated(ranges) if outside else ranges

    def member(self) -> int:
        """One character of a class."""
        if self.at >= len(self.pattern):
            return 0  # the caller finds the class unclosed
        if self.pattern[self.at] == "\\":
            return self.code_point()
        self.at += 1
        return ord(self.pattern[self.at - 1])
