"""Tokens of a JSON text: strings, numbers and literals, and common mistakes in their place."""

from __future__ import annotations

import math
from collections.abc import Callable
from re import DOTALL, Match
from re import compile as pattern
from typing import Any

_SPACE = pattern(r"[ \t\n\r]*")
_COMMENT = pattern(r"//[^\n\r]*|/\*.*?(?:\*/|\Z)|#[^\n\r]*", DOTALL)
_ODD_SPACE = pattern(r"[\s\ufeff\x00]+")
_PLAIN = pattern(r'"([^"\\\x00-\x1f]*)"')
_STRING = pattern(r'"((?:[^"\\]++|\\.)*+)"', DOTALL)
_ONE_LINE = pattern(r'"((?:[^"\\\n\r]++|\\[^\n\r])*+)')
_SINGLE = pattern(r"'((?:[^'\\\n\r]++|\\[^\n\r])*+)'")
_ESCAPE = pattern(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))",
    DOTALL,
)
_CONTROL = pattern(r"[\x00-\x1f]")
_AFTER_STRING = pattern(r"[ \t\n\r]*(?:[,:\]}]|\Z)")
_NUMBER = pattern(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?(?=[\s,\]}:\"\[{/#]|\Z)")
_WORD = pattern(r"[^\s,:\[\]{}\"'/#]+")
_LOOSE_NUMBER = pattern(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_SHORT = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": True, "false": False, "null": None}
_FOREIGN_WORDS: dict[str, tuple[Any, str]] = {
    "True": (True, "true"),
    "TRUE": (True, "true"),
    "False": (False, "false"),
    "FALSE": (False, "false"),
    "None": (None, "null"),
    "Null": (None, "null"),
    "NULL": (None, "null"),
    "undefined": (None, "null"),
}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
NOTHING = object()  # where a value could not be read

# Called with every mistake: kind, offset, message.
Tell = Callable[[str, int, str], None]


class Tokens:
    """Reads single tokens of a text.

    Args:
        text: the whole text.
        tell: called with every mistake.
    """

    def __init__(self, text: str, tell: Tell) -> None:
        self._text = text
        self._tell = tell

    def skip(self, at: int) -> int:
        """Skip white space, and comments and odd spaces, which are reported."""
        text = self._text
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string
            if at == len(text):
                return at
            char = text[at]
            if char in "/#" and (comment := _COMMENT.match(text, at)):
                self._tell("comment", at, "JSON has no comments; this one is passed over")
                at = comment.end()
            elif (char.isspace() or char in "\ufeff\x00") and (odd := _ODD_SPACE.match(text, at)):
                self._tell("odd-space", at, f"U+{ord(char):04X} is not a space that JSON allows")
                at = odd.end()
            else:
                return at

    def string(self, at: int) -> tuple[str, int]:
        """The string that begins at a quotation mark, and where it ends."""
        text = self._text
        plain = _PLAIN.match(text, at)
        if plain:
            return plain[1], plain.end()
        whole = _STRING.match(text, at)
        broken = whole and ("\n" in whole[1] or "\r" in whole[1])
        if whole is None or (broken and not _AFTER_STRING.match(text, whole.end())):
            line: Match[str] = _ONE_LINE.match(text, at)  # type: ignore[assignment]  # begins alike
            raw = line[1].rstrip().rstrip(",")
            self._tell("unterminated", at, "this string has no closing quotation mark on its line")
            return self._unescaped(raw, at + 1), at + 1 + len(raw)
        for control in _CONTROL.finditer(whole[1]):
            code = f"U+{ord(control[0]):04X}"
            self._tell(
                "control-character",
                whole.start(1) + control.start(),
                f"{code} must be escaped in a string",
            )
        return self._unescaped(whole[1], whole.start(1)), whole.end()

    def _unescaped(self, raw: str, start: int) -> str:
        if "\\" not in raw:
            return raw

        def character(escape: Match[str]) -> str:
            high, low, single, short = escape.groups()
            if high is not None:
                return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
            if single is not None:
                code = int(single, 16)
                if 0xD800 <= code < 0xE000:
                    self._tell(
                        "lone-surrogate",
                        start + escape.start(),
                        f"\\u{single} is half of a character",
                    )
                    return "\ufffd"
                return chr(code)
            if short in _SHORT:
                return _SHORT[short]
            self._tell("escape", start + escape.start(), f"\\{short} is not a JSON escape")
            return "\\" + short

        return _ESCAPE.sub(character, raw)

    def _single_quoted(self, at: int) -> tuple[Any, int]:
        quoted = _SINGLE.match(self._text, at)
        if quoted is None:
            self._tell("unexpected", at, "' found where a value is expected")
            return NOTHING, at + 1
        self._tell("single-quotes", at, "JSON writes strings in double quotation marks")
        return self._unescaped(quoted[1].replace("\\'", "'"), at + 1), quoted.end()

    def scalar(self, at: int) -> tuple[Any, int]:
        """The number, word or string at a place, and where it ends."""
        text = self._text
        char = text[at]
        if char == '"':
            return self.string(at)
        if char == "'":
            return self._single_quoted(at)
        number = _NUMBER.match(text, at)
        if number:
            return self._number(number), number.end()
        word = _WORD.match(text, at)
        if word is None:
            self._tell("unexpected", at, f"{char} found where a value is expected")
            return NOTHING, at + 1
        return self._word(word[0], at), word.end()

    def _number(self, number: Match[str]) -> Any:
        whole, fraction, exponent = number.groups()
        if fraction is None and exponent is None:
            return self._integer(whole, number.start())
        value = float(number[0])
        if math.isinf(value):
            self._tell("number", number.start(), f"{number[0][:40]} is too large; infinity is read")
        return value

    def _integer(self, digits: str, at: int) -> Any:
        try:
            return int(digits)
        except ValueError:  # Python refuses thousands of digits
            self._tell("number", at, f"a number of {len(digits)} digits is too long to be read")
            return None

    def _word(self, word: str, at: int) -> Any:
        if word in _WORDS:
            return _WORDS[word]
        if word in _NOT_FINITE:
            self._tell("not-finite", at, f"JSON has no {word}")
            return _NOT_FINITE[word]
        if word in _FOREIGN_WORDS:
            value, right = _FOREIGN_WORDS[word]
            self._tell("word", at, f"JSON writes {right}, not {word}")
            return value
        if _LOOSE_NUMBER.fullmatch(word):
            self._tell("number", at, f"{word[:40]} is not how JSON writes a number")
            loose = word.lstrip("+")
            return self._integer(loose, at) if loose.lstrip("-").isdecimal() else float(loose)
        self._tell("word", at, f"{word[:40]} has no quotation marks")
        return word
