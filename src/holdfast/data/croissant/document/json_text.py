"""JSON reader that keeps positions.

`json.loads` drops positions, and keys that stand twice. This reader makes one pass over the text with an
explicit stack, so that deep nesting cannot exhaust Python's; it returns the values that `json.loads`
returns, the offset of every key and value, and what is wrong. It stops at the first mistake after which it
is not known how to read on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from re import Match
from re import compile as pattern
from typing import Any

from holdfast.data.croissant.document.slips import Lines, Slip, escaped, tokens

MAX_DEPTH = 100  # of real descriptions, none passes 20

_SPACE = pattern(r"[ \t\n\r]*")
_KEY = pattern(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_NUMBER = pattern(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = pattern(r"-?[A-Za-z]+")
_LONE = pattern(r"[\ud800-\udfff]")
_DECODER = JSONDecoder()
_WORDS = {"true": True, "false": False, "null": None}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# A spot is the offset of a value; of a container, (offset, spots of what it holds): a list of spots, or a
# dict of key -> (offset of the key, spot).
Spot = int | tuple[int, Any]


@dataclass(slots=True)
class _Open:
    """A container that is being read, and the spots of what is in it."""

    value: dict[str, Any] | list[Any]
    spots: Any
    start: int
    key: str | int | None = None  # of the item that is being read
    key_at: int = -1


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text holds, where, and what is wrong with it.

    Attributes:
        value: plain Python values, as `json.loads` gives them, as far as they were read; None for nothing.
        slips: every mistake, in the order of the text.
    """

    value: Any
    slips: tuple[Slip, ...]
    _spots: Spot = field(repr=False)

    def offset(self, pointer: str, *, key: bool = False) -> int:
        """Where a value begins, or its key; of the nearest value around it if the pointer leads nowhere."""
        spot = self._spots
        found = spot if isinstance(spot, int) else spot[0]
        for token in tokens(pointer):
            if isinstance(spot, int):
                return found
            inner: Any = spot[1]
            if isinstance(inner, dict):
                if token not in inner:
                    return found
                key_at, spot = inner[token]
            else:
                if not (token.isdecimal() and token.isascii() and int(token) < len(inner)):
                    return found
                key_at, spot = -1, inner[int(token)]
            value_at = spot if isinstance(spot, int) else spot[0]
            found = key_at if key and key_at >= 0 else value_at
        return found


class _Stop(Exception):
    """A mistake after which it is not known how to read on: kind, offset, message."""


def parse(text: str, lines: Lines | None = None) -> Parsed:
    """Read a text as JSON, up to a mistake that leaves open how to read on.

    Time and memory grow in proportion to the text. Nothing may be nested deeper than `MAX_DEPTH`.
    """
    return _Reader(text, lines or Lines(text)).read()


class _Reader:
    def __init__(self, text: str, lines: Lines) -> None:
        self._text, self._lines = text, lines
        self._slips: list[Slip] = []
        # The document is the one item of an array that is not there.
        self._stack = [_Open([], [], 0)]

    def read(self) -> Parsed:
        """The whole text."""
        root = self._stack[0]
        try:
            self._document(root)
        except _Stop as stop:
            self._slip(*stop.args)
        items: Any = root.value or [None]
        return Parsed(items[0], tuple(self._slips), (root.spots or [0])[0])

    def _document(self, root: _Open) -> None:
        at = self._skip(0)
        if at == len(self._text):
            raise _Stop("empty", 0, "the text is empty")
        at = self._item(root, at)
        while len(self._stack) > 1:
            at = self._next(self._stack[-1], self._skip(at))
        at = self._skip(at)
        if at < len(self._text):
            raise _Stop("extra", at, "more text follows the end of the description")

    def _skip(self, at: int) -> int:
        return _SPACE.match(self._text, at).end()  # type: ignore[union-attr]  # matches the empty string

    # --- mistakes

    def _slip(self, kind: str, offset: int, message: str) -> None:
        keys = (str(frame.key) for frame in self._stack[1:] if frame.key is not None)
        pointer = "".join(f"/{escaped(key)}" for key in keys)
        self._slips.append(Slip(kind, pointer, offset, message))

    def _expected(self, at: int, what: str) -> _Stop:
        if at < len(self._text):
            return _Stop("syntax", at, f"{self._text[at]!r} found where {what} is expected")
        inner = self._stack[-1]
        kind = "object" if isinstance(inner.value, dict) else "array"
        says = f"the text ends inside the {kind} that begins at {self._says(inner.start)}"
        return _Stop("truncated", at, says)

    def _says(self, offset: int) -> str:
        line, column = self._lines.place(offset)
        return f"line {line}, column {column}"

    # --- structure

    def _next(self, frame: _Open, at: int) -> int:
        """Read the next item of a container, with the comma before it, or the container's end."""
        is_object = isinstance(frame.value, dict)
        closing = "}" if is_object else "]"
        if self._text.startswith(closing, at):
            self._stack.pop()
            self._stack[-1].key = None
            return at + 1
        if frame.value:
            if not self._text.startswith(",", at):
                raise self._expected(at, f"a comma or {closing}")
            at = self._skip(at + 1)
        return self._item(frame, self._key(frame, at) if is_object else at)

    def _key(self, frame: _Open, at: int) -> int:
        """Read a key and its colon."""
        if plain := _KEY.match(self._text, at):  # nearly always
            key, end = plain[1], plain.end()
        else:
            if not self._text.startswith('"', at):
                raise self._expected(at, "a key in double quotation marks")
            key, end = self._string(at)
            end = self._skip(end)
            if not self._text.startswith(":", end):
                raise self._expected(end, "a colon")
            end = self._skip(end + 1)
        frame.key, frame.key_at = key, at
        if key in frame.spots:
            first = self._says(frame.spots[key][0])
            said = f"the key {key[:80]} appears twice in this object, first at {first}"
            self._slip("duplicate-key", at, f"{said}; the last one is read")
        return end

    def _item(self, frame: _Open, at: int) -> int:
        """Read a scalar, or begin a container; it is attached to what holds it at once."""
        char = self._text[at : at + 1]
        if isinstance(frame.value, list):
            frame.key = len(frame.value)
        if char not in ("{", "["):
            value, end = self._string(at) if char == '"' else self._scalar(at)
            self._attach(frame, value, at)
            frame.key = None
            return end
        if len(self._stack) > MAX_DEPTH:
            raise _Stop("too-deep", at, f"nested deeper than {MAX_DEPTH}")
        inner = _Open({}, {}, at) if char == "{" else _Open([], [], at)
        self._attach(frame, inner.value, (at, inner.spots))
        self._stack.append(inner)
        return at + 1

    @staticmethod
    def _attach(frame: _Open, value: Any, spot: Spot) -> None:
        if isinstance(frame.value, list):
            frame.value.append(value)
            frame.spots.append(spot)
        elif isinstance(frame.key, str):
            frame.value[frame.key] = value
            frame.spots[frame.key] = (frame.key_at, spot)

    # --- scalars

    def _string(self, at: int) -> tuple[str, int]:
        try:
            value, end = _DECODER.raw_decode(self._text, at)
        except JSONDecodeError as error:
            if error.msg.startswith("Unterminated"):
                raise _Stop("truncated", at, "this string has no closing quotation mark") from None
            says = f"{error.msg.removesuffix(' at')} in a string"
            raise _Stop("syntax", error.pos, says) from None
        if _LONE.search(value):
            self._slip("lone-surrogate", at, "a \\u escape in this string is half of a character")
            value = _LONE.sub("\ufffd", value)
        return value, end

    def _scalar(self, at: int) -> tuple[Any, int]:
        if number := _NUMBER.match(self._text, at):
            return self._number(number), number.end()
        word = _WORD.match(self._text, at)
        if word and word[0] in _WORDS:
            return _WORDS[word[0]], word.end()
        if word and word[0] in _NOT_FINITE:
            self._slip("not-finite", at, f"JSON has no {word[0]}")
            return _NOT_FINITE[word[0]], word.end()
        raise self._expected(at, "a value")

    def _number(self, number: Match[str]) -> Any:
        whole, fraction, exponent = number.groups()
        if fraction or exponent:
            value = float(number[0])
            if math.isinf(value):
                said = f"{number[0][:40]} is too large; infinity is read"
                self._slip("number", number.start(), said)
            return value
        try:
            return int(whole)
        except ValueError:  # Python refuses thousands of digits
            said = f"a number of {len(whole)} digits is too long to be read"
            self._slip("number", number.start(), said)
            return None
