"""A Chrome trace, event by event, in memory that does not grow with the file.

Traces of torch.profiler reach gigabytes. The reader decodes one value after the other from a window of
the file, with the decoder of the standard library; it knows only as much of JSON as is needed to find
the array of events.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.opening import open_source

_WINDOW = 1 << 20
_LARGEST_VALUE = 1 << 26
"""Maximum characters of one event."""
_LONGEST_TOKEN = 64
"""Maximum characters of a number or literal."""
_SPACE = " \t\r\n"
_BEHIND_A_NUMBER = ",]}" + _SPACE


class TraceFile:
    """An open trace. Iterate over `events`; `header` holds what stands around them.

    A trace is an object with ``traceEvents``, or the bare array of events.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        """The other keys of the file; those behind the events are known after the last one."""
        self._decode = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._over = False

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event in the order of the file.

        Raises:
            InputError: if the file cannot be read, is truncated, or is not a trace.
        """
        try:
            with open_source(self.path) as source:
                self._file = io.TextIOWrapper(source, "utf-8", errors="replace")
                yield from self._top()
        except OSError as error:
            raise self._error(f"the trace cannot be read: {error}") from None

    def _top(self) -> Iterator[dict[str, Any]]:
        opening = self._next_character()
        if opening == "[":
            yield from self._array()
            return
        if opening != "{":
            raise self._error("no trace", found=opening + self._text[self._at : self._at + 40])
        seen = False
        character = self._peek()
        while character != "}":
            key = self._value()
            if self._next_character() != ":":
                raise self._error("no JSON", found=str(key)[:80])
            if key == "traceEvents" and self._peek() == "[":
                self._next_character()
                seen = True
                yield from self._array()
            else:
                self.header[str(key)] = self._value()
            character = self._peek()
            if character == ",":
                self._next_character()
                character = self._peek()
            elif character != "}":
                raise self._error("no JSON", found=character)
        if not seen:
            raise self._error("no trace", found=f"keys {', '.join(self.header)[:200] or 'none'}")

    def _array(self) -> Iterator[dict[str, Any]]:
        character = self._peek()
        while character != "]":
            event = self._value()
            if isinstance(event, dict):
                yield event
            character = self._peek()
            if character == ",":
                self._at += 1
                character = self._peek()
            elif character != "]":
                raise self._error("no JSON", found=character)
        self._at += 1

    def _value(self) -> Any:
        """The next JSON value; reads on where the window ends inside it."""
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._over or not self._may_go_on(error):
                    raise self._broken(error) from None
            except RecursionError:
                raise self._error("no trace: values are nested too deeply") from None
            else:
                if self._over or self._ends(value, end):
                    self._at = end
                    return value
            if len(self._text) - self._at > _LARGEST_VALUE:
                raise self._error("no trace: a single value of more than 64 MiB")
            self._more()

    def _ends(self, value: Any, end: int) -> bool:
        """Whether a value really ends here: a number may continue beyond the window."""
        if type(value) not in (int, float):
            return True
        return end < len(self._text) and self._text[end] in _BEHIND_A_NUMBER

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Whether the window ends inside a value, rather than the value being wrong.

        What a cut can break is the last token, or a string (the error names its begin).
        """
        near_end = error.pos > len(self._text) - _LONGEST_TOKEN
        return near_end or error.msg.startswith("Unterminated string")

    def _broken(self, error: json.JSONDecodeError) -> InputError:
        if self._may_go_on(error):
            return self._error("the trace is cut off")
        found = self._text[error.pos : error.pos + 40]
        return self._error("no JSON", found=f"{error.msg}: {found}")

    def _peek(self) -> str:
        """The next character that is not white space, without consuming it."""
        while True:
            text, at = self._text, self._at
            while at < len(text) and text[at] in _SPACE:
                at += 1
            self._at = at
            if at < len(text):
                return text[at]
            if self._over:
                raise self._error("the trace is cut off")
            self._more()

    def _next_character(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _more(self) -> None:
        size = max(_WINDOW, len(self._text) - self._at)  # doubles: long values stay linear
        fresh = self._file.read(size)
        self._over = not fresh
        self._text = self._text[self._at :] + fresh
        self._at = 0

    def _error(self, problem: str, found: str | None = None) -> InputError:
        return InputError(
            problem,
            code="damaged",
            path=self.path,
            found=found,
            expected="a trace as torch.profiler exports it (export_chrome_trace), .json or .json.gz",
            remedy="export it again" if "cut" in problem else None,
        )
