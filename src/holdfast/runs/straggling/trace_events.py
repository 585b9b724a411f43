"""A Chrome trace, event by event: its text is held in memory, its events are not.

As Python objects the events of a trace take ten times the memory of their text, so one value after the
other is decoded. Only as much of JSON is known here as is needed to find the array of events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.opening import open_source

_SPACE = " \t\r\n"


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

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event in the order of the file.

        Raises:
            InputError: if the file cannot be read, is truncated, or is not a trace.
        """
        try:
            with open_source(self.path) as source:
                self._text = source.read().decode("utf-8", errors="replace")
        except OSError as error:
            raise self._error(f"the trace cannot be read: {error}") from None
        if (opening := self._next()) == "[":
            yield from self._items("]")
            return
        if opening != "{":
            raise self._error("no trace", found=self._text[self._at - 1 : self._at + 40])
        seen = False
        for key in self._items("}"):
            if self._next() != ":":
                raise self._error("no JSON", found=str(key)[:80])
            if key == "traceEvents" and self._peek() == "[":
                self._at += 1
                seen = True
                yield from self._items("]")
            else:
                self.header[str(key)] = self._value()
        if not seen:
            raise self._error("no trace", found=f"keys {', '.join(self.header)[:200] or 'none'}")

    def _items(self, end: str) -> Iterator[Any]:
        """The values up to a closing bracket; of an object its keys, after which the rest is read."""
        while self._peek() != end:
            value = self._value()
            if end == "}" or isinstance(value, dict):
                yield value
            if (character := self._peek()) not in (",", end):
                raise self._error("no JSON", found=character)
            self._at += character == ","
        self._at += 1

    def _value(self) -> Any:
        """The next JSON value."""
        self._peek()
        try:
            value, self._at = self._decode(self._text, self._at)
        except RecursionError:
            raise self._error("no trace: values are nested too deeply") from None
        except json.JSONDecodeError as error:
            found = self._text[error.pos : error.pos + 40]
            # A cut breaks the last token, or a string, of which the error names the begin.
            if len(found) < 40 or error.msg.startswith("Unterminated string"):
                raise self._error("the trace is cut off") from None
            raise self._error("no JSON", found=f"{error.msg}: {found}") from None
        return value

    def _peek(self) -> str:
        """The next character that is not white space, without consuming it."""
        text, at = self._text, self._at
        while at < len(text) and text[at] in _SPACE:
            at += 1
        self._at = at
        if at == len(text):
            raise self._error("the trace is cut off")
        return text[at]

    def _next(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _error(self, problem: str, found: str | None = None) -> InputError:
        return InputError(
            problem,
            code="damaged",
            path=self.path,
            found=found,
            expected="a trace as torch.profiler exports it (export_chrome_trace), .json or .json.gz",
            remedy="export it again" if "cut" in problem else None,
        )
