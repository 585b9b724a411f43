"""JSON reader that keeps positions, and continues after a mistake.

`json.loads` drops positions and stops at the first mistake. This reader makes one pass over the text with
an explicit stack, so that deep nesting cannot exhaust Python's; it returns the values that `json.loads`
returns, the offset of every key and value, and all slips at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from re import DOTALL
from re import compile as pattern
from typing import Any

from holdfast.data.croissant.document.json_tokens import NOTHING, Tokens
from holdfast.data.croissant.document.slips import Lines, Slip, escaped, tokens

MAX_DEPTH = 100  # of real descriptions, none passes 20
MAX_SLIPS = 1000

_BRACKETS = pattern(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', DOTALL)
_KEY = pattern(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')

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
        self._tokens = Tokens(text, self._slip)
        self._stack = [
            _Open([], [], 0)
        ]  # the document is the one item of an array that is not there

    def read(self) -> Parsed:
        """The whole text."""
        text, stack = self._text, self._stack
        root, size = stack[0], len(text)
        at = self._tokens.skip(0)
        if at == size:
            self._slip("empty", 0, "the text is empty")
        while at < size and not root.value:
            at = self._tokens.skip(self._item(root, at))
        while len(stack) > 1:
            at = self._tokens.skip(at)
            if at == size:
                self._truncated()
                break
            frame = stack[-1]
            step = self._in_object if isinstance(frame.value, dict) else self._in_array
            at = step(frame, at)
        at = self._tokens.skip(at)
        if at < size:
            self._slip("extra", at, "more text follows the end of the description; it is not read")
        self._slips.sort(key=lambda slip: slip.offset)
        items: Any = root.value or [None]
        return Parsed(items[0], tuple(self._slips), (root.spots or [0])[0])

    # --- mistakes

    def _slip(self, kind: str, offset: int, message: str, other: int | None = None) -> None:
        if kind == "truncated":  # the last, and the gravest: it is never left out
            del self._slips[MAX_SLIPS - 1 :]
        if len(self._slips) < MAX_SLIPS:
            self._slips.append(Slip(kind, self._pointer(), offset, message, other))

    def _pointer(self) -> str:
        return "".join(
            "/" + escaped(str(frame.key)) for frame in self._stack[1:] if frame.key is not None
        )

    def _says(self, offset: int) -> str:
        line, column = self._lines.place(offset)
        return f"line {line}, column {column}"

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
            self._slip("no-key", at, "a value in an object has no key; it is not read")
            return self._item(frame, at)
        plain = _KEY.match(text, at)
        if plain:  # nearly always
            frame.key, end = plain[1], plain.end()
            if frame.key in frame.value:
                self._twice(frame)
            if end < len(text) and text[end] not in ",]}/#":
                return self._item(frame, end)
            return self._value(frame, end)
        key, at = self._tokens.string(at) if char == '"' else self._odd_key(at)
        if key is None:
            return at
        frame.key = key
        if key in frame.value:
            self._twice(frame)
        at = self._tokens.skip(at)
        if text.startswith(":", at):
            at += 1
        elif at < len(text) and text[at] not in ",]}":
            self._slip("missing-colon", at, "a colon is missing after the key")
        return self._value(frame, at)

    def _value(self, frame: _Open, at: int) -> int:
        """What follows a key and its colon."""
        at = self._tokens.skip(at)
        if at == len(self._text):
            return at
        if self._text[at] in ",]}":
            self._slip(
                "missing-value", at, f"the key {str(frame.key)[:80]} has no value; null is read"
            )
            self._attach(frame, None, at)
            frame.key = None
            return at
        return self._item(frame, at)

    def _twice(self, frame: _Open) -> None:
        first = frame.spots[frame.key][0]
        self._slip(
            "duplicate-key",
            frame.key_at,
            f"the key {str(frame.key)[:80]} appears twice in this object, first at {self._says(first)}; "
            "the last one is read",
            first,
        )

    def _odd_key(self, at: int) -> tuple[str | None, int]:
        start = at
        value, at = self._tokens.scalar(at)
        if value is NOTHING:
            return None, at
        if isinstance(value, str):  # told already: single quotes, or none
            return value, at
        self._slip("no-string-key", start, "keys are strings in double quotation marks")
        return self._text[start:at], at

    def _needs_comma(self, frame: _Open, at: int) -> None:
        if frame.item_before:
            guess = (
                "" if self._text[at] in '"{[' else ", or a quotation mark before it is not escaped"
            )
            self._slip("missing-comma", at, f"a comma is missing before this{guess}")
        frame.item_before = True

    def _comma_or_end(self, frame: _Open, at: int, char: str) -> int:
        if char == ",":
            if not frame.item_before:
                self._slip("extra-comma", at, "there is nothing before this comma")
            frame.comma_at = at if frame.item_before else -1
            frame.item_before = False
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
            self._slip("trailing-comma", frame.comma_at, "JSON allows no comma after the last item")
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
            value, end = self._tokens.scalar(at)
            if value is not NOTHING or isinstance(frame.value, dict):
                self._attach(frame, None if value is NOTHING else value, at)
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
