"""JSON that remembers where everything stands, and reads on after a mistake.

`json.loads` forgets positions and stops at the first mistake. This reader takes one pass over the text with
a stack of its own, so that no nesting can exhaust Python's; it gives the values that `json.loads` gives,
the offset of every key and value, and all slips at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from re import DOTALL, Match
from re import compile as pattern
from typing import Any

from holdfast.data.croissant.document.slips import Lines, Slip, escaped, tokens

MAX_DEPTH = 100  # of real descriptions, none passes 20
MAX_SLIPS = 1000

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
_BRACKETS = pattern(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', DOTALL)
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
_NOTHING = object()  # where a value could not be read


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
    item_before: bool = False  # so a comma must come
    comma_at: int = -1  # of the comma before what is read now


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text holds, where, and what is wrong with it.

    Attributes:
        value: plain Python values, as `json.loads` gives them; None for an empty text.
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


def parse(text: str, lines: Lines | None = None) -> Parsed:
    """Read a text as JSON, past every mistake.

    Time and memory grow in proportion to the text. Containers nested deeper than `MAX_DEPTH` are left out;
    slips past `MAX_SLIPS` are not told.
    """
    return _Reader(text, lines or Lines(text)).read()


class _Reader:
    def __init__(self, text: str, lines: Lines) -> None:
        self._text = text
        self._lines = lines
        self._slips: list[Slip] = []
        self._stack = [
            _Open([], [], 0)
        ]  # the document is the one item of an array that is not there

    def read(self) -> Parsed:
        """The whole text."""
        text, stack = self._text, self._stack
        root, size = stack[0], len(text)
        at = self._skip(0)
        if at == size:
            self._slip("empty", 0, "the text is empty")
        while at < size and not root.value:
            at = self._skip(self._item(root, at))
        while len(stack) > 1:
            at = self._skip(at)
            if at == size:
                self._truncated()
                break
            frame = stack[-1]
            step = self._in_object if isinstance(frame.value, dict) else self._in_array
            at = step(frame, at)
        at = self._skip(at)
        if at < size:
            self._slip("extra", at, "more text follows the end of the description; it is not read")
        self._slips.sort(key=lambda slip: slip.offset)
        items: Any = root.value or [None]
        return Parsed(items[0], tuple(self._slips), (root.spots or [0])[0])

    # --- mistakes

    def _slip(self, kind: str, offset: int, message: str, other: int | None = None) -> None:
        if len(self._slips) < MAX_SLIPS:
            self._slips.append(Slip(kind, self._pointer(), offset, message, other))

    def _pointer(self) -> str:
        return "".join(
            "/" + escaped(str(frame.key)) for frame in self._stack[1:] if frame.key is not None
        )

    def _says(self, offset: int) -> str:
        line, column = self._lines.place(offset)
        return f"line {line}, column {column}"

    # --- tokens

    def _skip(self, at: int) -> int:
        """Past white space, and past what is none but harmless."""
        text = self._text
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string
            if at == len(text):
                return at
            char = text[at]
            if char in "/#" and (comment := _COMMENT.match(text, at)):
                self._slip("comment", at, "JSON has no comments; this one is passed over")
                at = comment.end()
            elif (char.isspace() or char in "\ufeff\x00") and (odd := _ODD_SPACE.match(text, at)):
                self._slip(
                    "odd-space", at, f"U+{ord(char):04X} stands where JSON allows no such space"
                )
                at = odd.end()
            else:
                return at

    def _string(self, at: int) -> tuple[str, int]:
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
            self._slip("unterminated", at, "this string has no closing quotation mark on its line")
            return self._unescaped(raw, at + 1), at + 1 + len(raw)
        for control in _CONTROL.finditer(whole[1]):
            code = f"U+{ord(control[0]):04X}"
            self._slip(
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
                    self._slip(
                        "lone-surrogate",
                        start + escape.start(),
                        f"\\u{single} is half of a character",
                    )
                    return "\ufffd"
                return chr(code)
            if short in _SHORT:
                return _SHORT[short]
            self._slip("escape", start + escape.start(), f"\\{short} is no escape of JSON")
            return "\\" + short

        return _ESCAPE.sub(character, raw)

    def _single_quoted(self, at: int) -> tuple[Any, int]:
        quoted = _SINGLE.match(self._text, at)
        if quoted is None:
            self._slip("unexpected", at, "' stands where a value is expected")
            return _NOTHING, at + 1
        self._slip("single-quotes", at, "strings stand in double quotation marks")
        return self._unescaped(quoted[1].replace("\\'", "'"), at + 1), quoted.end()

    def _scalar(self, at: int) -> tuple[Any, int]:
        """The number, word or string at a place, and where it ends."""
        text = self._text
        char = text[at]
        if char == '"':
            return self._string(at)
        if char == "'":
            return self._single_quoted(at)
        number = _NUMBER.match(text, at)
        if number:
            return self._number(number), number.end()
        word = _WORD.match(text, at)
        if word is None:
            self._slip("unexpected", at, f"{char} stands where a value is expected")
            return _NOTHING, at + 1
        return self._word(word[0], at), word.end()

    def _number(self, number: Match[str]) -> Any:
        whole, fraction, exponent = number.groups()
        if fraction is None and exponent is None:
            return self._integer(whole, number.start())
        return float(number[0])

    def _integer(self, digits: str, at: int) -> Any:
        try:
            return int(digits)
        except ValueError:  # Python refuses thousands of digits
            self._slip("number", at, f"a number of {len(digits)} digits is too long to be read")
            return None

    def _word(self, word: str, at: int) -> Any:
        if word in _WORDS:
            return _WORDS[word]
        if word in _NOT_FINITE:
            self._slip("not-finite", at, f"JSON has no {word}")
            return _NOT_FINITE[word]
        if word in _FOREIGN_WORDS:
            value, right = _FOREIGN_WORDS[word]
            self._slip("word", at, f"JSON writes {right}, not {word}")
            return value
        if _LOOSE_NUMBER.fullmatch(word):
            self._slip("number", at, f"{word[:40]} is not how JSON writes a number")
            loose = word.lstrip("+")
            return self._integer(loose, at) if loose.lstrip("-").isdecimal() else float(loose)
        self._slip("word", at, f"{word[:40]} stands without quotation marks")
        return word

    # --- structure

    def _in_array(self, frame: _Open, at: int) -> int:
        char = self._text[at]
        if char in ",]}":
            return self._comma_or_end(frame, at, char)
        self._needs_comma(frame, at)
        return self._item(frame, at)

    def _in_object(self, frame: _Open, at: int) -> int:
        text = self._text
        char = text[at]
        if char in ",]}":
            return self._comma_or_end(frame, at, char)
        self._needs_comma(frame, at)
        frame.key_at = at
        if char in "{[":
            self._slip("no-key", at, "a value stands in an object without a key; it is not read")
            return self._item(frame, at)
        key, at = self._string(at) if char == '"' else self._odd_key(at)
        if key is None:
            return at
        frame.key = key
        if key in frame.value:
            first = frame.spots[key][0]
            self._slip(
                "duplicate-key",
                frame.key_at,
                f"the key {key[:80]} stands twice in this object, first at {self._says(first)}; "
                "the last one is read",
                first,
            )
        at = self._skip(at)
        if text.startswith(":", at):
            at = self._skip(at + 1)
        elif at < len(text) and text[at] not in ",]}":
            self._slip("missing-colon", at, "a colon is missing after the key")
        if at < len(text) and text[at] in ",]}":
            self._slip("missing-value", at, f"the key {key[:80]} has no value; null is read")
            self._attach(frame, None, at)
            frame.key = None
            return at
        return self._item(frame, at) if at < len(text) else at

    def _odd_key(self, at: int) -> tuple[str | None, int]:
        start = at
        value, at = self._scalar(at)
        if value is _NOTHING:
            return None, at
        if isinstance(value, str):  # told already: single quotes, or none
            return value, at
        self._slip("no-string-key", start, "keys are strings in double quotation marks")
        return self._text[start:at], at

    def _needs_comma(self, frame: _Open, at: int) -> None:
        if frame.item_before:
            self._slip("missing-comma", at, "a comma is missing before this")
        frame.item_before = True

    def _comma_or_end(self, frame: _Open, at: int, char: str) -> int:
        if char == ",":
            if not frame.item_before:
                self._slip("extra-comma", at, "nothing stands before this comma")
            frame.item_before, frame.comma_at = False, at
            return at + 1
        kind = dict if char == "}" else list
        if not isinstance(frame.value, kind):
            if not any(isinstance(outer.value, kind) for outer in self._stack[1:]):
                self._slip("unexpected", at, f"{char} closes nothing")
                return at + 1
            while not isinstance(self._stack[-1].value, kind):
                start = self._stack[-1].start
                self._slip(
                    "unclosed",
                    at,
                    f"what begins at {self._says(start)} is not closed before this",
                    start,
                )
                self._close()
            frame = self._stack[-1]
        elif not frame.item_before and frame.comma_at >= 0:
            self._slip("trailing-comma", frame.comma_at, "no comma may stand after the last item")
        self._close()
        return at + 1

    def _close(self) -> None:
        self._stack.pop()
        self._stack[-1].key = None

    def _item(self, frame: _Open, at: int) -> int:
        """Read a scalar, or begin a container; it is attached to what holds it at once."""
        char = self._text[at]
        if isinstance(frame.value, list):
            frame.key = len(frame.value)
        if char not in "{[":
            value, end = self._scalar(at)
            if value is not _NOTHING or isinstance(frame.value, dict):
                self._attach(frame, None if value is _NOTHING else value, at)
            frame.key = None
            return end
        if len(self._stack) > MAX_DEPTH:
            self._slip(
                "too-deep", at, f"nested deeper than {MAX_DEPTH}; what is in here is not read"
            )
            self._attach(frame, None, at)
            frame.key = None
            return self._past(at)
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

    def _past(self, at: int) -> int:
        """The end of the container that begins at a place."""
        depth = 0
        for token in _BRACKETS.finditer(self._text, at):
            if token[0][0] in "{[":
                depth += 1
            elif token[0][0] in "}]":
                depth -= 1
                if not depth:
                    return token.end()
        return len(self._text)

    def _truncated(self) -> None:
        inner = self._stack[-1]
        what = "object" if isinstance(inner.value, dict) else "array"
        self._slip(
            "truncated",
            len(self._text),
            f"the text ends inside the {what} that begins at {self._says(inner.start)}",
            inner.start,
        )
