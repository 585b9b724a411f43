r"""Log formats -> plain lines, without what containers, services, launchers and loggers put around them.

``2025-03-01T10:00:00.1Z stderr F KeyError: 3`` (CRI), ``Mar  1 10:00:00 host unit[7]: KeyError: 3``
(journald) and ``{"log": "KeyError: 3\n"}`` (Docker) all become ``KeyError: 3``; the time is kept beside it,
and a rank as ``[rank3]: `` before it. A record of several lines becomes as many lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Wrapped = tuple[bytes, bytes]
"""Line, and the text that says its time; empty where its own text does."""

_ISO = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_TIME = rb"(?P<time>" + _ISO + rb")"
_CRI = re.compile(_TIME + rb" (?:stdout|stderr) (?P<part>[FP]) ")
_LEVEL = rb"(?:INFO|WARNING|ERROR|CRITICAL|FATAL)"
_OF_TRACEBACK = rb"(?=Traceback \(most recent| {2,12}\S|[\w.]{1,80}(?:Error|Exception)\b)"
"""What `logging` put before it is taken off; other lines keep their logger and level."""
_PREFIXES: tuple[re.Pattern[bytes], ...] = tuple(
    re.compile(each)
    for each in (
        _TIME + rb"(?<=Z) (?=\S|  )",
        rb"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|"
        + _ISO
        + rb") [\w.-]{1,64} [\w.@/-]{1,64}\[\d{1,9}\]: ?",
        _TIME + rb" [\w.-]{1,64} kernel: ",
        rb"\["
        + _TIME
        + rb"\](?:\[(?:rank[ =:]?(?P<rank>\d{1,6})|[^\]\[\n]{1,60})\]){1,5}(?: - | ?)",
        rb"\[\d{1,6},(?P<rank>\d{1,6})\]<std(?:err|out|diag)>: ?",
        # loguru
        _TIME + rb" \| [A-Z]{4,8} {0,4} \| [\w.<>-]{1,80}:[\w<>]{1,80}:\d{1,6} - ",
        rb"[a-z][\w.-]{0,62}-\d{1,4} {1,40}\| ",
        rb"\[pod/[^\]\n]{1,120}\] ",
        rb"\([A-Za-z_]\w{0,60} pid=\d{1,9}(?:, ip=[\d.:a-f]{1,45})?\) ",
        rb"(?:worker|node|host|gpu|compute)[\w.]{0,40}-?\d{1,6}: ",
        rb"\[?"
        + _TIME
        + rb"\]? (?:[-|] )?(?:\[?[\w.:/-]{1,60}\]?(?: [-|])? ){0,2}\[?"
        + _LEVEL
        + rb"\]?(?: ?[-|:])?(?: \[?[\w.:/-]{1,60}(?:[\]:]| [-|]))? "
        + _OF_TRACEBACK,
        _LEVEL + rb":[\w.-]{1,60}:" + _OF_TRACEBACK,
    )
)
"""Formats whose prefix ends before the text: the first that fits is taken off, then the next one."""
_WRAPPED = re.compile(
    rb"\{|" + b"|".join(re.sub(rb"\(\?P<\w+>", b"(?:", each.pattern) for each in (_CRI, *_PREFIXES))
)
"""What some format stands before; no other line is changed."""
_JSON_TEXTS = ("log", "message", "msg", "event", "@message", "textPayload", "text")
_JSON_TRACES = (
    "exc_info",
    "exc_text",
    "exception",
    "stack_trace",
    "stacktrace",
    "traceback",
    "error.stack",
)
_JSON_TIMES = ("time", "timestamp", "asctime", "@timestamp", "ts")
_JSON_RANKS = ("rank", "global_rank", "RANK")
_RICH_HEAD = re.compile(
    "^\\s*[╭┌]?[─━-]{2,} Traceback \\(most recent call last\\) [─━-]{2,}[╮┐]?\\s*$"
)
_RICH_FRAME = re.compile(
    "^\\s*[│┃] (?P<file>\\S.{0,300}?):(?P<line>\\d{1,7}) in (?P<name>\\S{1,100})\\s*+[│┃]?\\s*+$"
)
_RICH_REST = re.compile("^\\s*[│┃╰└╭┌]")
BOX = "│".encode()
"""The side of a box that rich draws around a traceback."""
_MOST_LAYERS = 4
_MOST_LINES = 2000
"""Lines of one record."""


class Unwrapper:
    """Takes the formats off the lines of one file, block by block."""

    def __init__(self) -> None:
        self._parts: dict[int, bytes] = {}
        self._in_box = False

    def block(
        self, lines: list[bytes], numbers: Sequence[int], boxed: bool
    ) -> tuple[list[bytes], Sequence[int], list[bytes] | None]:
        """Lines, their numbers and their times; the same lists and None where nothing is wrapped.

        Args:
            lines: as the file has them.
            numbers: of each.
            boxed: whether some line has the side of a box, as rich draws it.
        """
        boxed = boxed or self._in_box
        # Most lines of most logs are as the program wrote them: one look at each must be enough.
        if not boxed and not any(map(_WRAPPED.match, lines)):
            return lines, numbers, None
        found = [
            (self._classic(text) if boxed else text, number, time)
            for line, number in zip(lines, numbers, strict=False)
            for text, time in self._unwrapped(line)
        ]
        texts, known, times = zip(*found, strict=True) if found else ((), (), ())
        return [*texts], known, [*times]

    def _unwrapped(
        self, line: bytes, time: bytes = b"", left: int = _MOST_LAYERS
    ) -> Iterator[Wrapped]:
        layers = (self._cri, self._record, self._plain) if left and _WRAPPED.match(line) else ()
        inner = next((found for layer in layers if (found := layer(line)) is not None), None)
        if inner is None:
            yield line, time
        for text, own_time, rank in inner or ():
            for deeper, its_time in self._unwrapped(text, own_time or time, left - 1):
                yield (b"[rank%s]: %s" % (rank, deeper) if rank else deeper), its_time

    def _plain(self, line: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
        """A prefix that ends before the text."""
        found = next((found for each in _PREFIXES if (found := each.match(line))), None)
        if found is None:
            return None
        named = found.groupdict(b"")
        return [(line[found.end() :], named.get("time", b""), named.get("rank", b""))]

    def _cri(self, line: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
        found = _CRI.match(line)
        if found is None:
            return None
        stream = line.find(b"stderr", 0, found.end())
        text = self._parts.pop(stream > 0, b"") + line[found.end() :]
        if found["part"] == b"P":  # the rest of the line follows in further records
            self._parts[stream > 0] = text
            return []
        return [(text, found["time"], b"")]

    def _record(self, line: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
        """A record in JSON: Docker's, Kubernetes's, or a logger's."""
        if not line.startswith(b"{"):
            return None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        inner = record.get("jsonPayload")
        record = {**record, **inner} if isinstance(inner, dict) else record
        texts = [text for name in _JSON_TEXTS if isinstance(text := record.get(name), str)][:1]
        texts += [trace for name in _JSON_TRACES if (trace := _trace(record.get(name)))][:1]
        if not texts:
            return None
        time = next((str(record[name]) for name in _JSON_TIMES if name in record), "")
        rank = next((record[name] for name in _JSON_RANKS if type(record.get(name)) is int), "")
        lines = "\n".join(text.rstrip("\n") for text in texts).split("\n")[:_MOST_LINES]
        return [
            (each.encode("utf-8", "replace"), time.encode(), str(rank).encode()) for each in lines
        ]

    def _classic(self, line: bytes) -> bytes:
        """A line of a traceback that rich has drawn, as Python writes it."""
        text = line.decode("utf-8", "replace")
        start = re.match(r"\[rank\d{1,6}\]: ", text)
        before, body = (start[0], text[start.end() :]) if start else ("", text)
        if _RICH_HEAD.match(body):
            self._in_box = True
            return f"{before}Traceback (most recent call last):".encode()
        if not self._in_box:
            return line
        if frame := _RICH_FRAME.match(body):
            body = f'  File "{frame["file"]}", line {frame["line"]}, in {frame["name"]}'
            return (before + body).encode()
        if _RICH_REST.match(body):
            self._in_box = body.lstrip()[:1] not in "╰└"
            return f"{before}    ".encode()
        return line


def _trace(value: Any) -> str:
    """A traceback as text, however a logger writes it down."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        traces = (_trace(value.get(key)) for key in _JSON_TRACES)
        return next(filter(None, traces), "")
    if not isinstance(value, list) or not value:
        return ""
    if all(isinstance(each, str) for each in value):
        lines: list[str] = value
        return "".join(lines) if any("\n" in each for each in lines) else "\n".join(lines)
    if not isinstance(value[-1], dict) or "exc_type" not in value[-1]:
        return ""
    last = value[-1]  # structlog
    frames = [each for each in last.get("frames") or [] if isinstance(each, dict)]
    places = [
        f'  File "{each.get("filename")}", line {each.get("lineno")}, in {each.get("name")}'
        for each in frames
    ]
    said = f"{last['exc_type']}: {last.get('exc_value', '')}"
    return "\n".join(["Traceback (most recent call last):", *places, said])
