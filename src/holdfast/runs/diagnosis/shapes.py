"""One fast pass over a part of a log: lines -> shapes, and the events among them.

Lines are grouped by their key (see `literals`): the same words with other numbers are one *shape*. A
shape is judged once, when it is new: which rules could match lines like it? Only lines of shapes that
some rule could match are looked at one by one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.runs.diagnosis import literals
from holdfast.runs.diagnosis.events import Event, Finds, Kept
from holdfast.runs.diagnosis.origins import Moment, moment_of, rank_of_line, without_prefix
from holdfast.runs.diagnosis.reading import Block, LogFile, Part, blocks
from holdfast.runs.diagnosis.rules import RuleSet
from holdfast.runs.diagnosis.tracebacks import (
    FRAME,
    IGNORED,
    MOST_LINES,
    SUMMARY_KEY,
    TRACEBACK_KEY,
    Collector,
    Traceback,
    TracebackCollector,
    collector,
    is_code,
    starts,
)

TEXT = 2000
"""Characters of a line that rules see."""
MOST_SHAPES = 50_000
"""Shapes remembered; lines of further ones are matched and counted, but no templates come of them."""
MOST_KINDS = 20_000
"""Kinds of events remembered in a part; further ranks and variants count together."""
EXAMPLE = 300
"""Bytes kept of a shape's first line."""
LOOK_BACK = 64
"""Lines before an event in which its time or its traceback is looked for."""
_BEFORE_A_PART = LOOK_BACK << 16
_FAILURES = 1000
_MANY_LINES = 500
MOST_PROGRESS = 64
"""Lines of progress that are kept of a block."""
PROGRESS = re.compile(
    r"\b(?:global[_ ]?step|step|iter|iteration|batch|update|epoch)\b\W{0,12}(\d[\d,]{0,12})"
    r"|\b(\d{1,9})/\d{1,9} \[",
    re.IGNORECASE,
)
_SUCCESS = re.compile(
    r"\b(?:training|pretraining|fine-?tuning|run|job)\b.{0,30}"
    r"\b(?:completed?|finished|done|succeeded|successful)\b"
    r"|\b(?:finished|completed) (?:the )?training\b|^\W{0,3}(?:all )?done\b"
    r"|\bexit(?:ed with)?(?: code)?:? 0\b",
    re.IGNORECASE,
)
_NO_SUCCESS = re.compile(r"\b(?:not|fail|error|abort|unfinished|exception|kill)", re.IGNORECASE)
_LONG_AGO = -(1 << 40)
"""A place before every line that is looked back at."""


@dataclass
class Shape:
    """Lines that differ only in numbers, addresses, blanks and punctuation."""

    count: int
    first: int
    """Line number of the first one, from 0."""
    example: bytes
    """Start of the first one."""
    quoted: bool
    """Whether it belongs to a traceback: its head, a frame, or source code."""
    candidates: tuple[int, ...] = ()
    """Patterns that may match such lines."""
    heads: bool = False
    """Whether such lines may begin a multi-line message."""
    matched: int = 0
    """Lines that a rule matched."""
    goes_on: bool = False
    """Whether such lines show progress, or a successful end."""


@dataclass
class PartScan:
    """What a part of a file holds."""

    part: Part
    shapes: dict[bytes, Shape] = field(default_factory=dict)
    finds: Finds = field(default_factory=Finds)
    feeds: int = 0
    """Line feeds."""
    lines: int = 0
    """Lines, those between carriage returns counted singly."""
    bytes_read: int = 0
    cut: int = 0
    """Lines longer than what is kept of a line."""
    unshaped: int = 0
    """Lines beyond the remembered shapes."""
    broken: str = ""
    """Why the file breaks off; empty: it does not."""


class Scanner:
    """The state of a pass over one part."""

    def __init__(self, rules: RuleSet, part: Part) -> None:
        self.rules = rules
        self.scan = PartScan(part)
        self.open: list[Collector] = []
        self.whole: list[Collector] = []
        """Messages that are whole; kept until those that began before them are, too."""
        self.before: list[bytes] = []  # the last lines of the block before
        self.timed: tuple[int, int, Moment | None] = (_LONG_AGO, _LONG_AGO, None)
        """The last line whose time was asked for, the line that says it, and the time."""
        self.traceback_rule = rules.traceback_rule()
        self.beyond: dict[bytes, Shape] = {}
        """Shapes of the block beyond those that are remembered."""

    def take(self, block: Block) -> None:
        """Count a block's lines, find new shapes, look at the lines that rules may know."""
        scan = self.scan
        text = b"\n".join(block.lines)
        keys = literals.key(text).split(b"\n") if block.lines else []
        self._feed(block, 0, self.open)
        counts = Counter(keys)
        self._count(counts, keys, block)
        self._note_progress(counts, keys, block)
        if looked_at := self._suspicious(counts, text):
            for place, key in enumerate(keys):
                if key in looked_at:
                    self._look(block, place, *looked_at[key])
        scan.feeds += block.feeds
        scan.lines += len(block.lines)
        scan.bytes_read += block.size_bytes
        scan.cut += block.cut
        self.before = [*self.before, *block.lines[-LOOK_BACK:]][-LOOK_BACK:]
        self._keep_whole()

    def finish(self, after: Iterator[Block]) -> PartScan:
        """End the messages that are open, with the lines that follow the part."""
        seen = 0
        while self.open and seen < MOST_LINES and (block := next(after, None)) is not None:
            numbers = [self.scan.feeds + number for number in block.numbers]
            self._feed(Block(block.lines, numbers, block.feeds), 0, self.open)
            seen += len(block.lines)
        for each in self.open:
            each.close()
        self.whole += self.open
        self.open = []
        self._keep_whole()
        return self.scan

    def _count(self, counts: Counter[bytes], keys: list[bytes], block: Block) -> None:
        """Count the lines of each shape; shapes that are new are judged."""
        scan, shapes = self.scan, self.scan.shapes
        self.beyond = {}
        first: dict[bytes, int] = {}
        for key, count in counts.items():
            shape = shapes.get(key)
            if shape is None:
                if not first:
                    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
                shape = self._new(key, block, first[key])
                if len(shapes) < MOST_SHAPES:
                    shapes[key] = shape
                else:
                    self.beyond[key] = shape
                    scan.unshaped += count
            shape.count += count

    def _suspicious(
        self, counts: Counter[bytes], text: bytes
    ) -> dict[bytes, tuple[Shape, tuple[int, ...]]]:
        """The shapes whose lines must be looked at, and the patterns to try on them.

        A pattern that many lines of the block may match by their keys is first searched for in the
        block as a whole: one search for a text costs as much as a look at some hundred lines.
        """
        shapes = {
            key: shape
            for key in counts
            if (shape := self.scan.shapes.get(key) or self.beyond[key]).candidates or shape.heads
        }
        lines = Counter[int]()
        for key, shape in shapes.items():
            lines.update(dict.fromkeys(shape.candidates, counts[key]))
        lower = text.lower()
        absent = {
            candidate
            for candidate, count in lines.items()
            if count > _MANY_LINES and not self.rules.patterns[candidate][1].may_match(lower)
        }
        found = {}
        for key, shape in shapes.items():
            left = tuple(each for each in shape.candidates if each not in absent)
            if left or shape.heads:
                found[key] = shape, left
        return found

    def _note_progress(self, counts: Counter[bytes], keys: list[bytes], block: Block) -> None:
        """Keep where the program went on: some lines of each block are enough."""
        shapes = self.scan.shapes
        going = {key for key in counts if (shape := shapes.get(key)) and shape.goes_on}
        if not going:
            return
        places = [place for place, key in enumerate(keys) if key in going]
        for place in places[:: 1 + len(places) // MOST_PROGRESS]:
            text = _text(block.lines[place])
            numbers = tuple(number for each in PROGRESS.findall(text) for number in each if number)
            if numbers or succeeded(text):
                self.scan.finds.progress.append((block.numbers[place], numbers))

    def _new(self, key: bytes, block: Block, place: int) -> Shape:
        line = block.lines[place]
        text = _text(line)
        quoted = len(self.scan.shapes) < MOST_SHAPES and (
            starts(text) is not None or self._is_quoted(block, place, text)
        )
        return Shape(
            0,
            block.numbers[place],
            line[:EXAMPLE],
            quoted,
            self.rules.sieve.candidates(key),
            TRACEBACK_KEY in key or SUMMARY_KEY in key,
            goes_on=not quoted and bool(PROGRESS.search(text) or succeeded(text)),
        )

    def _is_quoted(self, block: Block, place: int, text: str) -> bool:
        """Whether a line is a frame of a traceback, or source code under one."""
        if FRAME.match(without_prefix(text)):
            return True
        return "    " in text[:40] and is_code([*self._back(block, place), text])

    def _look(self, block: Block, place: int, shape: Shape, candidates: tuple[int, ...]) -> None:
        raw, line = block.lines[place], block.numbers[place]
        text = _text(raw)
        if shape.heads and (begun := collector(text, line, self._back(block, place))):
            begun.moment = self._moment(block, place, text)
            self.open.append(begun)
            self._feed(block, place + 1, [begun])
        found = self.rules.match(raw, without_prefix(text), candidates)
        if found is None or self._is_quoted(block, place, text):
            return
        shape.matched += 1
        number, groups = found
        named = groups.get("rank", "")
        rank = int(named) if named.isdecimal() else rank_of_line(text)
        event = Event(
            number,
            self.scan.part.file,
            line,
            rank,
            self._moment(block, place, text),
            text.strip(),
            tuple(groups.items()),
            groups.get("xid", ""),
        )
        self._kept(number, rank, event.variant).add(event)

    def _kept(self, rule: int, rank: int | None, variant: str) -> Kept[Event]:
        events = self.scan.finds.events
        kind = (rule, rank, variant)
        if kind not in events and len(events) >= MOST_KINDS:
            kind = (rule, None, "")
        return events.setdefault(kind, Kept())

    # --- Messages of several lines

    def _feed(self, block: Block, place: int, collectors: list[Collector]) -> None:
        """Give lines to collectors until each has what it needs; those that have leave `open`."""
        for each in list(collectors):
            own_start = each.own_start
            for here in range(place, len(block.lines)):
                line = block.lines[here]
                if line.startswith(own_start):
                    each.feed(_text(line), block.numbers[here])
                else:  # of another rank: not worth decoding
                    each.pass_over()
                if each.done:
                    self.open.remove(each)
                    self.whole.append(each)
                    break

    def _keep_whole(self) -> None:
        """Keep whole messages in the order in which they began, whenever they ended."""
        oldest = min((each.start for each in self.open), default=None)
        self.whole.sort(key=lambda each: each.start)
        while self.whole and (oldest is None or self.whole[0].start < oldest):
            self._collected(self.whole.pop(0))

    def _collected(self, done: Collector) -> None:
        if not isinstance(done, TracebackCollector):
            if done.result is not None and len(self.scan.finds.failures) < _FAILURES:
                self.scan.finds.failures.append(done.result)
            return
        if (found := done.result) is None:
            return
        said = found.said.encode("utf-8", "replace")
        by_frame = self.rules.match_frames(found.said, found.frames)
        by_text = self.rules.match(
            said, found.said, self.rules.sieve.candidates(literals.key(said))
        )
        nothing: tuple[int, dict[str, str]] = (self.traceback_rule, {})
        # The line of an exception that no other rule knows was counted when it was read.
        known = by_frame or by_text or nothing
        if (by_frame or not by_text) and found.chained != IGNORED:
            self._raised(known[0], known[1], found)
        tracebacks = self.scan.finds.tracebacks
        kind = (known[0], found.rank, found.exception)
        if kind in tracebacks or len(tracebacks) < MOST_KINDS:
            tracebacks.setdefault(kind, Kept()).add(found)

    def _raised(self, rule: int, groups: dict[str, str], found: Traceback) -> None:
        """An event at the exception's line, for rules that know it by its traceback."""
        self._kept(rule, found.rank, found.exception).add(
            Event(
                rule,
                self.scan.part.file,
                found.line,
                found.rank,
                found.moment,
                found.said,
                tuple(groups.items()),
                found.exception,
            )
        )

    # --- What stands before a line

    def _back(self, block: Block, place: int) -> list[str]:
        """The starts of the lines before a place, the nearest last."""
        lines = block.lines[max(0, place - LOOK_BACK) : place]
        if place < LOOK_BACK:
            lines = [*self.before[max(0, len(self.before) - LOOK_BACK + place) :], *lines]
        return [line[:_START].decode("utf-8", "replace") for line in lines]

    def _moment(self, block: Block, place: int, text: str) -> Moment | None:
        """When a line was written: the time in it, else in the nearest line before that has one."""
        here = self.scan.lines + place
        asked, source, moment = self.timed
        times = block.times
        if own := moment_of(
            times[place].decode("ascii", "replace") if times and times[place] else text
        ):
            source, moment = here, own
        else:
            unknown = self._back(block, place) if here - asked > 1 else []
            unknown = unknown[max(0, len(unknown) - (here - asked) + 1) :]
            for distance, before in enumerate(reversed(unknown), 1):
                if found := moment_of(before):
                    source, moment = here - distance, found
                    break
        if here - source > LOOK_BACK:
            moment = None
        self.timed = (here, source, moment)
        return moment


_START = 400
"""Bytes of a line before an event that are looked at."""


def _text(line: bytes) -> str:
    return line[:TEXT].decode("utf-8", "replace")


def succeeded(text: str) -> bool:
    """Whether a line says that the program ended well."""
    body = without_prefix(text)
    return bool(_SUCCESS.search(body)) and not _NO_SUCCESS.search(body)


def scan_part(rules: RuleSet, log: LogFile, part: Part, chunk: int) -> PartScan:
    """Pass over a part of a file.

    Args:
        rules: what to look for.
        log: the file.
        part: which piece of it.
        chunk: bytes read at once; it changes nothing in the result.
    """
    scanner = Scanner(rules, part)
    reasons: list[str] = []
    if part.begin:
        scanner.before = _lines_before(log, part.begin)
    for block in blocks(log, part.begin, part.end, chunk=chunk, broken=reasons.append):
        scanner.take(block)
    rest = iter(()) if part.end is None else blocks(log, part.end, chunk=chunk)
    scan = scanner.finish(rest)
    scan.broken = reasons[0] if reasons else ""
    return scan


def _lines_before(log: LogFile, begin: int) -> list[bytes]:
    """The lines before a part, as a pass from the start would remember them."""
    start = max(0, begin - _BEFORE_A_PART)
    lines = [line for block in blocks(log, start, begin) for line in block.lines]
    return lines[0 if start == 0 else 1 :][-LOOK_BACK:]
