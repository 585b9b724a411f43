"""Messages of several lines: Python tracebacks, and torchrun's summary of a failed run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.runs.diagnosis.origins import (
    PREFIX,
    Moment,
    moment_of,
    rank_of_line,
    without_prefix,
)

MOST_LINES = 3000
"""A message that is not over by then is given up: other ranks write in between, but not so much."""
FRAME = re.compile(
    r'\s{2,}File "(?P<file>[^"\n]{1,400})", line (?P<line>\d{1,9})(?:, in (?P<name>.{1,200}))?'
)

START = r"(?:Original )?Traceback \(most recent call last\)"
SUMMARY = r"\(first observed failure\)"
"""How the lines before a traceback and before torchrun's first failure look."""
_START, _SUMMARY = re.compile(START), re.compile(SUMMARY)
_EXCEPTION = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Za-z_]\w{0,80})(?:: ?(?P<message>.*))?$"
)
_FIELD = re.compile(r"\s{1,8}(?P<name>time|host|rank|exitcode|traceback)\s{0,8}: (?P<value>.*)")
_NOT_OWN = re.compile(r"site-packages|dist-packages|/lib/python3|<frozen |<string>|\.pyx$|^torch/")
IGNORED = "ignored"
_HANDLING = "During handling of the above exception"
_DIRECT = "The above exception was the direct cause"


@dataclass(frozen=True)
class Traceback:
    """A Python exception with the frames that led to it."""

    line: int
    """Line number, from 0, of the exception's own line."""
    start: int
    """Line number of the head."""
    exception: str
    """Its type, without its module."""
    final_line: str
    """The exception's line as it stands."""
    message: str
    frames: tuple[str, ...]
    """``file:line function``, outermost first."""
    rank: int | None
    moment: Moment | None
    """When, as the head or a line shortly before it says."""
    chained: str
    """``"handled"``: another exception came while this one was handled; ``"follows"``: this one was
    raised from another before it; ``"ignored"``: Python went on after it; else empty."""

    @property
    def frame(self) -> str:
        """The innermost frame of the program's own code, else the innermost."""
        own = [frame for frame in self.frames if not _NOT_OWN.search(frame.rsplit(":", 1)[0])]
        return (own or list(self.frames) or ["an unknown place"])[-1]


@dataclass(frozen=True)
class FirstFailure:
    """What torchrun says failed first."""

    line: int
    """Line number, from 0, of its heading."""
    rank: int | None
    exit_code: int | None
    host: str
    moment: Moment | None


def starts(text: str) -> type[Traceback] | type[FirstFailure] | None:
    """The kind of message that a line begins, if any."""
    if _START.search(text):
        return Traceback
    return FirstFailure if _SUMMARY.search(text) else None


class TracebackCollector:
    """Takes the lines after a traceback's head until it is whole."""

    def __init__(self, head: str, line: int, before: Sequence[str] = ()) -> None:
        found = _START.search(head)
        self.prefix = head[: found.start()] if found else ""
        launcher = PREFIX.match(head)
        self.launcher = launcher[0] if launcher else ""
        self.rank = rank_of_line(self.launcher) if launcher else None
        self.own_start = self.launcher.rstrip().encode()
        self.start = line
        self.moment: Moment | None = None
        own = "".join([text for text in before if text.startswith(self.launcher)][-2:])
        self.chained = "follows" if _DIRECT in own else ""
        if "Exception ignored in" in own:
            self.chained = IGNORED
        self.frames: list[str] = []
        self.seen = 0
        self.done = False
        self.result: Traceback | None = None
        self._ended: tuple[int, str, str, str] | None = None
        self._after = 0

    def pass_over(self) -> None:
        """Count a line of somebody else."""
        self.seen += 1
        if self.seen >= MOST_LINES:
            self.close()

    def feed(self, text: str, line: int) -> None:
        """Take the next line of the file, whoever wrote it."""
        self.seen += 1
        body = self._own(text)
        if body is None:
            self.done = self.seen >= MOST_LINES
        elif self._ended is not None:
            self._look_behind(body)
        elif _START.search(body):
            self.done = True  # broken off by another
        elif frame := FRAME.match(body):
            place = f"{frame['file']}:{frame['line']} {frame['name'] or ''}".rstrip()
            self.frames = [*self.frames[-40:], place]
        elif body and not body[0].isspace() and (found := _EXCEPTION.match(body)):
            if self.frames or "Error" in found["type"]:
                kind = found["type"].rsplit(".", 1)[-1]
                self._ended = (line, kind, body.strip(), (found["message"] or "").strip()[:300])
        elif self.seen >= MOST_LINES:
            self.done = True
        if self.done:
            self.close()

    def close(self) -> None:
        """No more lines come."""
        self.done = True
        if self._ended is not None and self.result is None:
            self._finish(self.chained)

    def _own(self, text: str) -> str | None:
        """The line without what stands before this traceback's lines; None if it is not one of them."""
        if self.launcher:
            return (
                text[len(self.launcher) :] if text.startswith(self.launcher) else self._bare(text)
            )
        if self.prefix and text.startswith(self.prefix):
            return text[len(self.prefix) :]
        return None if PREFIX.match(text) else text

    def _bare(self, text: str) -> str | None:
        # A launcher strips the blank behind its prefix where a line is empty.
        return "" if text.rstrip() == self.launcher.rstrip() else None

    def _look_behind(self, body: str) -> None:
        """Whether another exception follows that this one led to."""
        self._after += 1
        if _HANDLING in body:
            self._finish("handled")
        elif self._after >= 12 or _DIRECT in body or _START.search(body):
            self._finish(self.chained)

    def _finish(self, chained: str) -> None:
        self.done = True
        if self._ended is not None:
            line, kind, said, message = self._ended
            self.result = Traceback(
                line,
                self.start,
                kind,
                said,
                message,
                tuple(self.frames),
                self.rank,
                self.moment,
                chained,
            )


class SummaryCollector:
    """Takes the lines after torchrun's ``Root Cause (first observed failure)``."""

    def __init__(self, head: str, line: int, before: Sequence[str] = ()) -> None:
        self.start = line
        self.moment: Moment | None = None
        self.own_start = b""
        self.fields: dict[str, str] = {}
        self.seen = 0
        self.done = False
        self.result: FirstFailure | None = None

    def pass_over(self) -> None:
        """Count a line of somebody else; every line counts as its own here."""
        self.seen += 1

    def feed(self, text: str, line: int) -> None:
        """Take the next line of the file."""
        self.seen += 1
        found = _FIELD.match(without_prefix(text))
        if found:
            self.fields.setdefault(found["name"], found["value"])
        if "traceback" in self.fields or self.seen >= 20:
            self.close()

    def close(self) -> None:
        """No more lines come."""
        self.done = True
        if self.result is None and self.fields:
            self.result = FirstFailure(
                self.start,
                _number(self.fields.get("rank", "")),
                _number(self.fields.get("exitcode", "")),
                self.fields.get("host", ""),
                moment_of(self.fields.get("time", "")) or self.moment,
            )


Collector = TracebackCollector | SummaryCollector


def collector(head: str, line: int, before: Sequence[str]) -> Collector | None:
    """What takes the lines after a head; None if the line is none."""
    kind = starts(head)
    if kind is None:
        return None
    return (TracebackCollector if kind is Traceback else SummaryCollector)(head, line, before)


def is_code(texts: Sequence[str]) -> bool:
    """Whether the last of these lines quotes source code inside a traceback: it follows a frame.

    Lines of other ranks may stand in between.
    """
    last = PREFIX.match(texts[-1])
    launcher = last[0] if last else ""
    body = texts[-1][len(launcher) :]
    if not body.startswith("    "):
        return False
    for text in reversed(texts[:-1]):
        if launcher and not text.startswith(launcher):
            continue
        return FRAME.match(text, len(launcher)) is not None
    return False


def _number(text: str) -> int | None:
    found = re.match(r"-?\d{1,9}", text)
    return int(found[0]) if found else None
