"""The messages of an Arrow IPC stream, looked at before Arrow decodes them.

https://arrow.apache.org/docs/format/Columnar.html describes them; each has a flatbuffer in front.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_CONTINUATION = 0xFFFFFFFF
_BODY_ALIGNMENT = 8


class BadStream(ValueError):
    """A stream that is none, or has more in it than a record may have."""


def check_messages(stream: memoryview) -> None:
    """One schema, dictionaries that stand once, one batch, the end: nothing compressed, nothing after.

    Raises:
        BadStream, struct.error: if it is otherwise.
    """
    kinds = []
    dictionaries = []
    for message in _messages(stream):
        kinds.append(message.kind)
        batch = message.header
        if message.kind == _DICTIONARY:
            dictionaries.append(message.header.number("q", 0))
            if message.header.number("B", 2):
                raise BadStream("it has a dictionary that grows")
            batch = message.header.table(1)
        if message.kind != _SCHEMA and batch.has(3):
            raise BadStream("it has compressed buffers")
    if kinds != [_SCHEMA, *[_DICTIONARY] * len(dictionaries), _BATCH]:
        raise BadStream("it is not one schema, its dictionaries and one batch")
    if len(set(dictionaries)) != len(dictionaries):
        raise BadStream("it has a dictionary twice")


class _Table(NamedTuple):
    """A table of a flatbuffer; what leads out of the buffer raises struct.error or BadStream."""

    buffer: memoryview
    at: int

    def _field(self, number: int) -> int:
        """Where a field stands; 0 where the table lacks it."""
        vtable = self.at - self._read("i", self.at)
        if 4 + 2 * number >= self._read("H", vtable):
            return 0
        offset: int = self._read("H", vtable + 4 + 2 * number)
        return offset and self.at + offset

    def _read(self, form: str, at: int) -> Any:
        if at < 0:
            raise BadStream("its messages lead out of it")
        return struct.unpack_from("<" + form, self.buffer, at)[0]

    def has(self, number: int) -> bool:
        return bool(self._field(number))

    def number(self, form: str, field: int) -> int:
        at = self._field(field)
        return int(self._read(form, at)) if at else 0

    def table(self, field: int) -> _Table:
        at = self._field(field)
        return _Table(self.buffer, at + self._read("I", at))


class _Message(NamedTuple):
    kind: int
    header: _Table


def _messages(stream: memoryview) -> Iterator[_Message]:
    at = 0
    while True:
        marker, length = struct.unpack_from("<Ii", stream, at)
        at += 8
        if marker != _CONTINUATION or length < 0 or length > len(stream) - at:
            raise BadStream("it is not an Arrow IPC stream")
        if length == 0:
            if at != len(stream):
                raise BadStream("it continues after its end")
            return
        metadata = stream[at : at + length]
        message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        body = message.number("q", 3)
        at += length
        if body < 0 or body % _BODY_ALIGNMENT or body > len(stream) - at:
            raise BadStream("it is cut")
        at += body
        yield _Message(message.number("B", 1), message.table(2))
